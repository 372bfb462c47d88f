//! The world: one clock, one queue of what happens when, and everybody in it.

use crate::breaks::Break;
use crate::checks::Checks;
use crate::client::{Client, Link};
use crate::etcd::{Etcd, Fate};
use crate::faults::Fault;
use crate::plan::Plan;
use crate::random::{Chance, Random, Source};
use crate::script::{Decision, Script};
use crate::shim::{Input, Shim};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use zkshim::keeper::acl::Identity;
use zkshim::keeper::keyspace::{Slot, own};
use zkshim::keeper::request::{ConnectionId, Outgoing, SessionId};
use zkshim::keeper::txn::{LeaseId, Op, StoreCommand, StoreEvent, Txn};
use zkshim::keeper::zxid::Revision;

/// A shim at one of its starts; what was meant for an earlier one does not reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Start {
    pub(crate) shim: usize,
    pub(crate) number: u64,
}

/// Something that happens at its time.
#[derive(Debug)]
pub(crate) enum Event {
    Input(Start, Input),
    Timer(Start, Duration),
    /// From the watch stream; the number is that of the stream's resumption.
    Stream(Start, u64, StoreEvent),
    Call(Start, StoreCommand, Fate),
    /// A call that its caller sent then, and has given up, is carried out.
    LateCall(StoreCommand, Start, Duration),
    Answer(Start, StoreCommand, StoreEvent),
    Leases,
    ToClient(ConnectionId, Outgoing),
    /// The client's end of a connection is closed.
    HangUp(ConnectionId),
    Client(usize),
    /// A connection breaks.
    Break(ConnectionId),
    /// A client closes its session, if it is still on this connection.
    Goodbye(usize, ConnectionId),
    /// A shim loses etcd.
    Unlink(Start, Random),
    Fault(u64),
    Mend(Fault),
}

/// A connection between a client and a shim. What is sent one way arrives in order.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) client: usize,
    pub(crate) start: Start,
    pub(crate) asked: SessionId,
    pub(crate) session: SessionId,
    /// Its client has been told of its session.
    pub(crate) served: bool,
    /// Who the client is to the shim.
    pub(crate) identities: Vec<Identity>,
    pub(crate) open_at_client: bool,
    pub(crate) open_at_shim: bool,
    pub(crate) last_to_shim: Duration,
    pub(crate) last_to_client: Duration,
}

/// How the run has gone.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Report {
    pub(crate) simulated: Duration,
    pub(crate) replies: u64,
    pub(crate) events: u64,
    pub(crate) revisions: u64,
    pub(crate) sessions: u64,
    pub(crate) expired: u64,
    pub(crate) locks: usize,
    pub(crate) faults: u64,
}

/// What is to be run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trial {
    pub(crate) seed: u64,
    /// The shims' clocks are far apart; what is not promised then is not judged.
    pub(crate) wide_clocks: bool,
    /// A rule that is broken on purpose.
    pub(crate) breaks: Option<Break>,
    /// These decisions alone are taken.
    pub(crate) only: Option<Vec<Decision>>,
    /// Complaints with none of these words are not heard.
    pub(crate) heeded: Option<&'static [&'static str]>,
    /// When the run is over.
    pub(crate) until: Option<Duration>,
    /// How many lines of the trace are kept.
    pub(crate) log_lines_max: usize,
}

/// Why a run stops before its end.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Something does not hold.
    Violation(String),
    /// It was to go no further.
    Over,
}

impl From<String> for Stop {
    fn from(violation: String) -> Self {
        Self::Violation(violation)
    }
}

/// When the world begins.
const BEGIN: Duration = Duration::from_secs(1000);

/// See the file's text.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) now: Duration,
    pub(crate) chance: Chance,
    pub(crate) script: Script,
    pub(crate) etcd: Etcd,
    pub(crate) shims: Vec<Shim>,
    pub(crate) clients: Vec<Client>,
    pub(crate) wires: BTreeMap<ConnectionId, Wire>,
    pub(crate) checks: Checks,
    pub(crate) breaks: Option<Break>,
    /// Faults go on.
    pub(crate) faulty: bool,
    /// Clients have work to do.
    pub(crate) working: bool,
    pub(crate) faults: u64,
    pub(crate) connection: u64,
    queue: BTreeMap<(Duration, u64), Event>,
    sequence: u64,
    violation: Option<String>,
    /// Complaints about anything else are not heard.
    heeded: Option<&'static [&'static str]>,
    log: Option<VecDeque<String>>,
    log_lines_max: usize,
    /// When the run is over, whatever is under way.
    until: Duration,
    leases_at: Option<Duration>,
}

impl World {
    pub(crate) fn new(trial: &Trial) -> Self {
        let mut chance = Chance::new(trial.seed);
        let mut script = Script::new(trial.only.as_deref());
        let plan = Plan::draw(chance.of(Source::Plan), trial.wide_clocks).with(&mut script);
        let mut world = Self {
            now: BEGIN,
            etcd: Etcd::new(plan.txn_ops_max, plan.members),
            shims: Vec::new(),
            clients: Vec::new(),
            wires: BTreeMap::new(),
            checks: Checks::default(),
            breaks: trial.breaks,
            faulty: plan.fault_every.is_some(),
            working: true,
            faults: 0,
            connection: 0,
            queue: BTreeMap::new(),
            sequence: 0,
            violation: None,
            heeded: trial.heeded,
            log: (trial.log_lines_max > 0).then(VecDeque::new),
            log_lines_max: trial.log_lines_max,
            until: trial.until.unwrap_or(Duration::MAX),
            leases_at: None,
            chance,
            script,
            plan,
        };
        world.checks.model.enforces_quotas = world.plan.enforce_quota;
        world.checks.sessions.late_max = world.plan.late_max();
        world.checks.told.sole = world.plan.sole;
        world.checks.told.remembered = 20 * world.plan.tick;
        world.checks.sessions.clocks_agree = !trial.wide_clocks;
        world.checks.sessions.skew = 2 * Duration::from_millis(world.plan.skew_ms.unsigned_abs());
        world.note(|world| format!("{:?}", world.plan));
        world.etcd.embedded = world.plan.sole;
        world.set_offset();
        for shim in 0..world.plan.shims {
            world.shims.push(Shim::default());
            world.start(shim);
        }
        // One more for each shim, that stays with it and looks at everything in the end.
        for client in 0..world.plan.clients + world.plan.shims {
            let home = client.checked_sub(world.plan.clients);
            let random = world.chance.of(Source::Client(client));
            let wanted_ms = 500 * (4 + random.below(30) as i32);
            let at = world.now + random.millis(10, 3000);
            world.clients.push(Client::new(home, wanted_ms));
            if world.script.takes(Decision::Join(client)) {
                world.clients[client].leaving = false;
                world.schedule(at, Event::Client(client));
            }
        }
        let first = world.now + world.chance.of(Source::Faults).millis(1000, 4000);
        world.schedule(first, Event::Fault(0));
        world
    }

    /// The tree came from a ZooKeeper whose zxids were higher.
    fn set_offset(&mut self) {
        if self.plan.offset > 0 {
            let (key, value) = (Slot::Meta.key(), own::encode_meta(self.plan.offset));
            let put = Op::Put { key, value, lease: LeaseId::NONE };
            let txn = Txn { then: vec![put], ..Txn::default() };
            self.etcd.engine.commit(&txn).expect("a put needs nothing");
            self.etcd_moved();
        }
    }

    /// Everything from the first connect until nothing is left.
    ///
    /// # Errors
    /// What does not hold, or that the time is over.
    pub(crate) fn run(&mut self) -> Result<Report, Stop> {
        let busy = self.plan.busy;
        self.pass(busy)?;
        self.calm_down();
        self.pass(Duration::from_secs(15))?;
        self.check_served()?;
        self.working = false;
        self.pass(Duration::from_secs(5))?;
        self.look_at_everything();
        self.pass(Duration::from_secs(5))?;
        self.check_at_rest()?;
        self.leave();
        self.pass(Duration::from_secs(60))?;
        self.check_left()?;
        self.pass(Duration::from_secs(160))?;
        self.check_empty()?;
        Ok(Report {
            simulated: self.now - BEGIN,
            replies: self.checks.replies,
            events: self.checks.events,
            revisions: self.etcd.engine.revision().0 as u64,
            sessions: self.checks.sessions.opened,
            expired: self.checks.sessions.expired,
            locks: self.checks.locks.count(),
            faults: self.faults,
        })
    }

    /// Let time pass.
    fn pass(&mut self, time: Duration) -> Result<(), Stop> {
        let until = self.now + time;
        while let Some(entry) = self.queue.first_entry() {
            let at = entry.key().0;
            if at > until {
                break;
            }
            if at > self.until {
                return Err(Stop::Over);
            }
            let event = entry.remove();
            self.now = at;
            self.happen(event);
            if let Some(violation) = self.violation.take() {
                return Err(Stop::Violation(violation));
            }
        }
        self.now = until;
        Ok(())
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Input(start, input) => self.input(start, input),
            Event::Timer(start, at) => self.timer(start, at),
            Event::Stream(start, resumed, event) => self.streamed(start, resumed, event),
            Event::Call(start, command, fate) => self.called(start, command, fate),
            Event::LateCall(command, by, sent_at) if self.etcd.out_until.is_some() => {
                let out_until = self.etcd.out_until.unwrap_or(self.now);
                if out_until < Duration::MAX {
                    let again = out_until.max(self.now) + Duration::from_millis(10);
                    self.schedule(again, Event::LateCall(command, by, sent_at));
                }
            }
            Event::LateCall(command, by, sent_at) => {
                self.note(|_| format!("late: {command:?}"));
                let before = self.revision();
                self.etcd.call(&command, self.now);
                if matches!(command, StoreCommand::Commit(..)) {
                    self.was_late(by, before, sent_at);
                }
                self.etcd_moved();
            }
            Event::Answer(start, command, event) => self.answered(start, &command, event),
            Event::Leases => {
                self.leases_at = None;
                self.etcd_moved();
            }
            Event::ToClient(connection, outgoing) => self.reach_client(connection, outgoing),
            Event::HangUp(connection) => self.hung_up(connection),
            Event::Client(client) => self.client_acts(client),
            Event::Break(connection) => self.break_wire(connection),
            Event::Goodbye(client, connection) => {
                if self.clients[client].link == Link::Open(connection) {
                    self.say_goodbye(client);
                }
            }
            Event::Unlink(start, mut random) => {
                if self.shims[start.shim].number == start.number && self.faulty {
                    self.unlink(start.shim, false, &mut random);
                    self.note_touch();
                }
            }
            Event::Fault(number) => self.fault(number),
            Event::Mend(fault) => self.mend(fault),
        }
    }

    pub(crate) fn schedule(&mut self, at: Duration, event: Event) {
        self.sequence += 1;
        self.queue.insert((at.max(self.now), self.sequence), event);
    }

    /// etcd's history may have grown: everybody is told.
    pub(crate) fn etcd_moved(&mut self) {
        let late = self.lease_end_delay();
        // An embedded store is away with its shim.
        let gone = |shim: &Shim| shim.keeper.is_none() || shim.paused;
        let away = self.plan.sole && self.shims.iter().all(gone);
        let ends = self.breaks != Some(Break::SilenceKept) && !away;
        if ends {
            self.etcd.expire(self.now.saturating_sub(late));
        }
        let history = self.etcd.engine.changes_after(self.etcd.seen);
        let news: Vec<_> = history.expect("the world is never behind").cloned().collect();
        for changes in &news {
            self.note(|_| format!("history {}: {}", changes.revision, brief(changes)));
            let checked = self.checks.revision(changes, self.now, self.unix_ms());
            self.judge(checked);
        }
        self.etcd.seen = self.etcd.engine.revision();
        for changes in news {
            self.tell_members(changes.revision);
            self.tell_streams(&changes);
        }
        if let Some(next) = self.etcd.next_expiry().map(|next| next + late)
            && self.etcd.out_until.is_none()
            && ends
            && self.leases_at.is_none_or(|at| next < at)
        {
            self.leases_at = Some(next);
            self.schedule(next, Event::Leases);
        }
    }

    /// See [`Break::LeasesLast`].
    fn lease_end_delay(&self) -> Duration {
        let late = self.breaks == Some(Break::LeasesLast);
        if late { Duration::from_secs(60) } else { Duration::ZERO }
    }

    pub(crate) fn judge(&mut self, verdict: Result<(), String>) {
        if let Err(violation) = verdict {
            if self.heeded.is_some_and(|heeded| !heeded.iter().any(|word| violation.contains(word)))
            {
                return;
            }
            let at = self.now;
            self.note(|_| format!("VIOLATION: {violation}"));
            self.violation.get_or_insert(format!("at {at:?}: {violation}"));
        }
    }

    /// The trace, if one is kept.
    pub(crate) fn note(&mut self, line: impl FnOnce(&Self) -> String) {
        if self.log.is_none() {
            return;
        }
        let line = format!("{:>12.6} {}", self.now.as_secs_f64(), line(self));
        let log = self.log.as_mut().expect("just seen");
        if log.len() == self.log_lines_max {
            log.pop_front();
        }
        log.push_back(line);
    }

    pub(crate) fn log(&self) -> impl Iterator<Item = &String> {
        self.log.iter().flatten()
    }

    pub(crate) fn revision(&self) -> Revision {
        self.etcd.engine.revision()
    }
}

/// A time's millisecond, to draw by.
pub(crate) fn millis(at: Duration) -> u64 {
    at.as_millis() as u64
}

fn brief(changes: &zkshim::keeper::txn::RevisionChanges) -> String {
    use zkshim::keeper::txn::Change;
    let told = changes.changes.iter().map(|change| match change {
        Change::Put(entry) => format!("+{}", String::from_utf8_lossy(&entry.key)),
        Change::Delete(key) => format!("-{}", String::from_utf8_lossy(key)),
    });
    told.collect::<Vec<_>>().join(" ")
}

impl Report {
    pub(crate) fn add(&mut self, other: &Self) {
        self.simulated += other.simulated;
        self.replies += other.replies;
        self.events += other.events;
        self.revisions += other.revisions;
        self.sessions += other.sessions;
        self.expired += other.expired;
        self.locks += other.locks;
        self.faults += other.faults;
    }
}
