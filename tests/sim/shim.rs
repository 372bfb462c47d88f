//! A shim: a `Keeper`, what holds it up, and its ways to etcd and to its clients.

use crate::breaks::Break;
use crate::client::{PEER, identify};
use crate::offset;
use crate::random::Source;
use crate::world::{Event, Start, Wire, World};
use std::collections::BTreeMap;
use std::time::Duration;
use zkshim::keeper::request::{Body, Connect, ConnectionId, Operation, Outgoing, Reply, Request};
use zkshim::keeper::time::Now;
use zkshim::keeper::txn::StoreEvent;
use zkshim::keeper::zxid::{Revision, Zxid};
use zkshim::keeper::{Keeper, Options, Output};

/// What is handed to a shim.
#[derive(Debug)]
pub(crate) enum Input {
    Connect(ConnectionId, Connect),
    Requests(ConnectionId, Vec<Request>),
    Closed(ConnectionId),
    Store(StoreEvent),
    Timeout,
}

/// See the file's text.
#[derive(Debug, Default)]
pub(crate) struct Shim {
    /// None while it is dead.
    pub(crate) keeper: Option<Keeper>,
    pub(crate) number: u64,
    /// It stands still; what comes is held back.
    pub(crate) paused: bool,
    held: Vec<Input>,
    /// Whose requests were handed in since the last drain.
    spoken: Vec<ConnectionId>,
    /// It reaches etcd.
    pub(crate) linked: bool,
    /// The member of etcd that it talks to.
    pub(crate) member: usize,
    /// It stands still, or stood still, from then on.
    pub(crate) paused_at: Duration,
    /// It stood still until then.
    woke_at: Duration,
    /// Since when no word of etcd's leader can have reached it.
    pub(crate) lost_since: Option<Duration>,
    /// What it sent, and had given up when it was carried out: the revision, and when it was sent.
    pub(crate) late: BTreeMap<Revision, Duration>,
    /// What it sends to etcd until then arrives when it has given it up.
    pub(crate) slow_until: Duration,
    /// It has been alive, awake and linked since then.
    pub(crate) steady_since: Duration,
    /// It may not know which children came or went up to here.
    pub(crate) uncertain: Revision,
    pub(crate) resumed: u64,
    pub(crate) cursor: Revision,
    pub(crate) last_streamed: Duration,
    timer_at: Option<Duration>,
    /// Timers in a row that the clock did not move between.
    spins: (Duration, u32),
    /// What its monotonic clock shows beyond the world's.
    ahead: Duration,
    /// How much too fast that is.
    drift_ppm: u32,
    /// What its wall clock shows beyond the world's.
    pub(crate) skew_ms: i64,
}

/// Without word from etcd for so long nobody is served, however long the session's timeout is.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// A shim looks so often, and a little more, whether it must cut somebody off.
const CUT_WITHIN: Duration = Duration::from_millis(600);

/// A shim that rests on nobody else having written, nearly always. With no time at all it would
/// do so again at the moment at which it learns that somebody has, and lose for ever.
const ALONE_SOON: Duration = Duration::from_millis(1);

/// Clocks are not the same.
const MOMENT: Duration = Duration::from_millis(50);

/// More timers than this at one moment are a loop.
const SPINS_MAX: u32 = 200;

impl Shim {
    /// What its monotonic clock shows.
    fn clock(&self, now: Duration) -> Duration {
        now + self.ahead + now * self.drift_ppm / 1_000_000
    }

    /// The first moment at which its clock shows this.
    fn world_time(&self, shown: Duration) -> Duration {
        let shown = shown.saturating_sub(self.ahead).as_nanos();
        let rate = u128::from(1_000_000 + self.drift_ppm);
        let nanos = (shown * 1_000_000).div_ceil(rate);
        let mut at = Duration::from_nanos(nanos as u64);
        while self.clock(at) < self.ahead + Duration::from_nanos(shown as u64) {
            at += Duration::from_nanos(1);
        }
        at
    }
}

impl World {
    pub(crate) fn start_of(&self, shim: usize) -> Start {
        Start { shim, number: self.shims[shim].number }
    }

    /// A shim starts, with a new seed.
    pub(crate) fn start(&mut self, shim: usize) {
        let seed = self.chance.of(Source::Shim(shim)).seed();
        let options = Options {
            tick: self.plan.tick,
            session_timeout_min: 2 * self.plan.tick,
            session_timeout_max: 20 * self.plan.tick,
            seed,
            sole: self.plan.sole,
            writes_worth_a_batch: 1 + usize::from(seed[0] % 4),
            alone_after: [ALONE_SOON, Options::ALONE_AFTER, Duration::MAX]
                [usize::from(seed[1] % 3)],
            ttl_nodes: true,
            super_digest: None,
            skip_acl: false,
            enforce_quota: self.plan.enforce_quota && self.breaks != Some(Break::QuotasForgotten),
            kept_bytes_max: 1 << 30,
            session_key_delay: self.plan.session_key_delay,
            container_check_interval: self.plan.container_check,
        };
        let long = self.plan.skew_ms;
        let random = self.chance.of(Source::Shim(shim));
        let ahead = random.millis(0, 100_000);
        let skew_ms = if long == 0 { 0 } else { random.below(2 * long as usize) as i64 - long };
        let drift_ppm = if long == 0 { 0 } else { random.below(1000) as u32 };
        let member = self.etcd.pick_member(random);
        let old = &self.shims[shim];
        let fresh = Shim {
            number: old.number + 1,
            linked: true,
            member,
            steady_since: self.now,
            resumed: old.resumed,
            ahead,
            skew_ms,
            drift_ppm,
            ..Shim::default()
        };
        self.shims[shim] = fresh;
        self.checks.clock_is_ahead(skew_ms);
        let keeper = Keeper::new(options, self.now_of(shim));
        self.shims[shim].keeper = Some(keeper);
        self.note(|_| format!("shim {shim} starts"));
        if self.etcd.embedded {
            self.checks.sessions.disturbed(None, self.now);
            self.etcd.restart(self.now);
            self.etcd_moved();
        }
        self.resume_stream(shim, true);
        self.set_timer(shim);
    }

    fn now_of(&self, shim: usize) -> Now {
        let there = &self.shims[shim];
        Now { monotonic: there.clock(self.now), unix_ms: self.unix_ms() + there.skew_ms }
    }

    /// The world's wall clock.
    pub(crate) fn unix_ms(&self) -> i64 {
        1_700_000_000_000 + self.now.as_millis() as i64
    }

    pub(crate) fn input(&mut self, start: Start, input: Input) {
        let shim = start.shim;
        if self.shims[shim].number != start.number || self.shims[shim].keeper.is_none() {
            if let Input::Connect(connection, _) = input {
                self.schedule(self.now, Event::HangUp(connection));
            }
            return;
        }
        if self.shims[shim].paused {
            self.shims[shim].held.push(input);
            return;
        }
        if !self.close_unheard(shim, &input) {
            self.hand_in(shim, input);
        }
        self.drain(shim);
    }

    /// See [`Break::ClosesUnheard`].
    fn close_unheard(&mut self, shim: usize, input: &Input) -> bool {
        let Input::Requests(connection, requests) = input else { return false };
        let [Request { xid, operation: Operation::CloseSession }] = requests[..] else {
            return false;
        };
        let broken = self.breaks == Some(Break::ClosesUnheard) && !self.is_in_touch(shim);
        if broken {
            let zxid = Zxid(self.checks.model.last().0);
            let reply = Reply { xid, zxid, outcome: Ok(Body::Empty) };
            self.send(*connection, Outgoing::Reply(reply));
        }
        broken
    }

    /// It moves again: what came meanwhile is all there at once.
    pub(crate) fn wake(&mut self, shim: usize) {
        if !std::mem::take(&mut self.shims[shim].paused) {
            return;
        }
        let stood_still = self.now.saturating_sub(self.shims[shim].paused_at);
        self.etcd.moves_again(stood_still);
        self.shims[shim].steady_since = self.now;
        self.shims[shim].woke_at = self.now;
        self.disturbed(shim);
        for input in std::mem::take(&mut self.shims[shim].held) {
            self.hand_in(shim, input);
            if self.chance.of(Source::Shim(shim)).chance(500) {
                self.drain(shim);
            }
        }
        self.hand_in(shim, Input::Timeout);
        self.drain(shim);
    }

    fn hand_in(&mut self, shim: usize, input: Input) {
        let now = self.now_of(shim);
        self.before_input(shim, &input);
        let Some(keeper) = &mut self.shims[shim].keeper else { return };
        match input {
            Input::Connect(connection, mut connect) => {
                offset::put_on(&mut connect, self.plan.offset);
                keeper.handle_opened(connection, PEER);
                keeper.handle_connect(connection, connect, now);
            }
            Input::Requests(connection, mut requests) => {
                let offset = self.plan.offset;
                requests.iter_mut().for_each(|request| offset::put_on_request(request, offset));
                keeper.handle_requests(connection, requests, now);
            }
            Input::Closed(connection) => keeper.handle_closed(connection, now),
            Input::Store(event) => keeper.handle_store(event, now),
            Input::Timeout => keeper.handle_timeout(now),
        }
    }

    /// What the checks must know of an input.
    fn before_input(&mut self, shim: usize, input: &Input) {
        if let Input::Store(event) = input {
            self.checks.told.event(self.start_of(shim), event, self.now);
        }
        match input {
            Input::Requests(connection, requests) => {
                let speaks = |request: &Request| !matches!(request.operation, Operation::Auth(_));
                let Some(wire) = self.wires.get_mut(connection) else { return };
                if !wire.open_at_shim {
                    return;
                }
                let applied = self.shims[shim].keeper.as_ref().map(Keeper::applied);
                for request in requests {
                    if let Operation::Auth(auth) = &request.operation {
                        identify(&mut wire.identities, auth);
                        let (at, who) = (applied.unwrap_or_default(), wire.identities.as_slice());
                        self.checks.identified(*connection, at, who.into());
                    }
                }
                if requests.iter().any(speaks) {
                    self.shims[shim].spoken.push(*connection);
                }
            }
            Input::Store(StoreEvent::Loaded(snapshot)) => {
                let from = self.shims[shim].keeper.as_ref().map(Keeper::applied);
                let start = self.start_of(shim);
                let here = self.wires.iter().filter(|(_, wire)| wire.start == start);
                let here: Vec<ConnectionId> = here.map(|(connection, _)| *connection).collect();
                let step = (from.unwrap_or_default(), snapshot.revision);
                self.checks.reloaded(&here, step, snapshot.deletions_since);
                let there = &mut self.shims[shim];
                there.uncertain = there.uncertain.max(snapshot.deletions_since);
            }
            Input::Connect(connection, connect) => {
                self.checks.sessions.touched(connect.session, *connection, self.now);
                if let Some(wire) = self.wires.get_mut(connection) {
                    wire.open_at_shim = true;
                }
            }
            Input::Closed(connection) => {
                if let Some(wire) = self.wires.get_mut(connection) {
                    wire.open_at_shim = false;
                }
            }
            Input::Store(_) | Input::Timeout => {}
        }
    }

    /// Who spoke and was not cut off for it was heard.
    fn were_heard(&mut self, shim: usize) {
        for connection in std::mem::take(&mut self.shims[shim].spoken) {
            let Some(wire) = self.wires.get(&connection) else { continue };
            let (session, open) = (wire.session, wire.open_at_shim);
            let steady = open && self.is_steady(shim, self.checks.sessions.timeout(session));
            self.checks.sessions.heard(session, connection, self.now, steady);
        }
    }

    /// Long enough in touch with etcd that every lease was renewed when it was due.
    fn is_steady(&self, shim: usize, timeout: Duration) -> bool {
        let there = &self.shims[shim];
        let since = there.steady_since + timeout / 3 + Duration::from_secs(1);
        self.is_in_touch(shim) && self.now >= since
    }

    /// It reaches a member that hears of etcd's leader.
    pub(crate) fn is_in_touch(&self, shim: usize) -> bool {
        let there = &self.shims[shim];
        let cut = self.etcd.members[there.member].cut;
        there.linked && !cut && self.etcd.out_until.is_none()
    }

    /// Something has gone wrong or is mended.
    pub(crate) fn note_touch(&mut self) {
        for shim in 0..self.shims.len() {
            let (lost, now) = (!self.is_in_touch(shim), self.now);
            let since = &mut self.shims[shim].lost_since;
            if lost != since.is_some() {
                *since = lost.then_some(now);
                self.disturbed(shim);
            }
        }
    }

    /// Something goes wrong for a shim, or is mended.
    pub(crate) fn disturbed(&mut self, shim: usize) {
        let start = self.start_of(shim);
        self.checks.sessions.disturbed(Some(start), self.now);
    }

    fn drain(&mut self, shim: usize) {
        let mut outputs = Vec::new();
        if let Some(keeper) = &mut self.shims[shim].keeper {
            while let Some(output) = keeper.poll_output() {
                outputs.push(output);
            }
        }
        if let Some(breaks) = self.breaks {
            breaks.outputs(&mut outputs, self.chance.of(Source::Break));
        }
        for output in outputs {
            match output {
                Output::Send(connection, mut outgoing) => {
                    offset::take_off(&mut outgoing, self.plan.offset);
                    if self.breaks == Some(Break::OffsetForgotten)
                        && self.chance.of(Source::Break).chance(50)
                    {
                        offset::take_off(&mut outgoing, self.plan.offset);
                    }
                    self.send(connection, outgoing);
                }
                Output::Close(connection) => self.close_from_shim(connection),
                Output::Store(command) => self.call(shim, command),
            }
        }
        self.were_heard(shim);
        self.set_timer(shim);
    }

    fn set_timer(&mut self, shim: usize) {
        let there = &mut self.shims[shim];
        let due = there.keeper.as_ref().and_then(Keeper::poll_timeout);
        let Some(due) = due.map(|due| there.world_time(due).max(self.now)) else { return };
        if there.timer_at.is_none_or(|at| due < at) {
            there.timer_at = Some(due);
            let start = self.start_of(shim);
            self.schedule(due, Event::Timer(start, due));
        }
    }

    pub(crate) fn timer(&mut self, start: Start, at: Duration) {
        let there = &mut self.shims[start.shim];
        if there.number != start.number || there.timer_at != Some(at) {
            return;
        }
        there.timer_at = None;
        there.spins = if there.spins.0 == at { (at, there.spins.1 + 1) } else { (at, 0) };
        if there.spins.1 > SPINS_MAX {
            self.judge(Err(format!("shim {} spins", start.shim)));
            return;
        }
        self.input(start, Input::Timeout);
        let checked = self.check_cut_off(start);
        self.judge(checked);
    }

    /// How long a connection may be served without word from etcd.
    fn silence_max(&self, wire: &Wire) -> Duration {
        let timeout = match wire.served {
            true => self.checks.sessions.timeout(wire.session),
            false => 20 * self.plan.tick,
        };
        (timeout / 2).min(SILENCE_MAX)
    }

    /// Clients of a shim that has lost etcd are cut off, to go elsewhere in time.
    fn check_cut_off(&self, start: Start) -> Result<(), String> {
        let there = &self.shims[start.shim];
        let Some(lost) = there.lost_since else { return Ok(()) };
        let moves = self.now > there.woke_at + CUT_WITHIN;
        if !moves || there.paused || there.keeper.is_none() {
            return Ok(());
        }
        let left = self.wires.iter().find(|(_, wire)| {
            let late = lost + self.silence_max(wire) + CUT_WITHIN;
            wire.start == start && wire.served && wire.open_at_shim && self.now > late
        });
        match left {
            Some((connection, _)) => {
                Err(format!("{connection:?} is not cut off without etcd since {lost:?}"))
            }
            None => Ok(()),
        }
    }

    /// Something for a client leaves.
    fn send(&mut self, connection: ConnectionId, outgoing: Outgoing) {
        self.note(|_| format!("{connection:?} <- {outgoing:?}"));
        let Some(client) = self.wires.get(&connection).map(|wire| wire.client) else { return };
        let at = self.now + self.network_delay(client);
        let Some(wire) = self.wires.get(&connection) else { return };
        let there = &self.shims[wire.start.shim];
        // What it was told before it stood still is news to it when it moves again.
        let lost = there.lost_since.filter(|_| self.now > there.woke_at + CUT_WITHIN);
        if let Some(lost) = lost.filter(|lost| self.now > *lost + self.silence_max(wire) + MOMENT) {
            let words = format!("{connection:?} is served without etcd since {lost:?}");
            self.judge(Err(words));
        }
        let Some(wire) = self.wires.get_mut(&connection) else { return };
        if let Outgoing::Connected(answer) = &outgoing {
            if let zkshim::keeper::request::Connected::Accepted { session, .. } = answer {
                wire.session = *session;
                wire.served = true;
            }
            let (asked, start) = (wire.asked, wire.start);
            let when = (start, self.now, self.is_in_touch(start.shim));
            let checked = self.checks.connected(connection, asked, answer, when);
            self.judge(checked);
        }
        let Some(wire) = self.wires.get_mut(&connection) else { return };
        wire.last_to_client = wire.last_to_client.max(at);
        let at = wire.last_to_client;
        self.schedule(at, Event::ToClient(connection, outgoing));
    }

    fn close_from_shim(&mut self, connection: ConnectionId) {
        self.note(|_| format!("{connection:?} is closed by its shim"));
        let Some(wire) = self.wires.get_mut(&connection) else { return };
        let (start, at) = (wire.start, wire.last_to_client);
        wire.open_at_shim = false;
        self.schedule(at, Event::HangUp(connection));
        self.schedule(self.now, Event::Input(start, Input::Closed(connection)));
    }
}
