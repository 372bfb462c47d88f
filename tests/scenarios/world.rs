//! Cores and one engine, with everything between them in the hands of the script.
//!
//! A link carries what a core asks of the store and what the store tells it. Each kind of
//! traffic can be held back on each link, so that an answer may come before the stream or after
//! it, or never. Nothing here waits: time is moved by the script.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use bytes::Bytes;
use zkshim::keeper::keyspace::META;
use zkshim::keeper::request::{Connect, ConnectionId, Outgoing, Request};
use zkshim::keeper::time::Now;
use zkshim::keeper::txn::{
    Change, CommitError, Key, LeaseId, Op, RevisionChanges, Snapshot, StoreCommand, StoreEvent,
    Token, Txn,
};
use zkshim::keeper::zxid::Revision;
use zkshim::keeper::{Keeper, Options, Output};
use zkshim::store::embedded::engine::Engine;
use zkshim::store::embedded::limits::Limits;

/// What passes between a core and the store, each held back by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Traffic {
    /// Txns on their way to the store.
    Commits,
    /// Linearizable reads on their way to the store.
    Barriers,
    /// Grants and revokes on their way to the store.
    Leases,
    /// Renewals on their way to the store.
    Renewals,
    /// The store's answers, of all kinds.
    Answers,
    /// The store's history.
    Stream,
}

impl Traffic {
    /// All of them: a shim that is cut off.
    pub(crate) const ALL: [Self; 6] =
        [Self::Commits, Self::Barriers, Self::Leases, Self::Renewals, Self::Answers, Self::Stream];

    fn of(command: &StoreCommand) -> Self {
        match command {
            StoreCommand::Commit(..) => Self::Commits,
            StoreCommand::Barrier(_) => Self::Barriers,
            StoreCommand::Grant(..) | StoreCommand::Revoke(..) => Self::Leases,
            StoreCommand::Renew(_) => Self::Renewals,
            StoreCommand::Progress => Self::Stream,
        }
    }
}

/// A core and its link.
pub(crate) struct Shim {
    pub(crate) keeper: Keeper,
    /// How far the stream has been told.
    pub(crate) told: Revision,
    pub(crate) held: BTreeSet<Traffic>,
    commands: VecDeque<StoreCommand>,
    answers: VecDeque<StoreEvent>,
    /// Txns whose sender has given up on them; they may still arrive.
    adrift: VecDeque<Txn>,
}

/// What the script sees happen.
#[derive(Clone, Debug)]
pub(crate) enum Seen {
    /// Something for a client.
    Sent(ConnectionId, Outgoing),
    /// A connection was closed.
    Closed(ConnectionId),
    /// A command was carried out.
    Asked(String, StoreCommand),
}

/// Where a txn gets lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// It is carried out, but the answer does not come back.
    Answer,
    /// It never reaches the store.
    Txn,
    /// Nobody knows where it is; it may arrive later.
    Adrift,
}

/// See the file's text.
pub(crate) struct World {
    pub(crate) now: Now,
    pub(crate) engine: Engine,
    pub(crate) shims: BTreeMap<String, Shim>,
    pub(crate) seen: Vec<Seen>,
    homes: BTreeMap<ConnectionId, String>,
    connections: u64,
}

/// When the world begins: not at 0, as no machine's clock stands there.
const BEGINNING: Now = Now { monotonic: Duration::from_secs(1000), unix_ms: 1_000_000 };

/// A timer that is due again and again without an end is an error of the core's.
const TURNS_MAX: u32 = 100_000;

/// A key outside the prefix: its changes take revisions that the stream does not tell.
const FOREIGN: &[u8] = b"/other/key";

/// Whether a revision holds nothing of ours.
pub(crate) fn is_foreign(changes: &RevisionChanges) -> bool {
    changes.changes.iter().all(|change| match change {
        Change::Put(entry) => entry.key == FOREIGN,
        Change::Delete(key) => key == FOREIGN,
    })
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            now: BEGINNING,
            engine: Engine::new(Limits::default(), 7),
            shims: BTreeMap::new(),
            seen: Vec::new(),
            homes: BTreeMap::new(),
            connections: 0,
        }
    }

    /// Options as a server of one's own would have them.
    pub(crate) fn options(seed: u8) -> Options {
        Options {
            tick: Duration::from_secs(2),
            session_timeout_min: Duration::from_secs(4),
            session_timeout_max: Duration::from_secs(40),
            seed: [seed; 32],
            sole: false,
            writes_worth_a_batch: 64,
            alone_after: Duration::MAX,
            ttl_nodes: true,
            super_digest: None,
            skip_acl: false,
            enforce_quota: false,
            kept_bytes_max: 1 << 30,
            session_key_delay: Duration::ZERO,
            container_check_interval: Duration::from_secs(60),
        }
    }

    /// A shim starts: it loads what there is.
    pub(crate) fn start(&mut self, name: &str, options: Options) {
        let shim = Shim {
            keeper: Keeper::new(options, self.now),
            told: Revision::NEVER,
            held: BTreeSet::new(),
            commands: VecDeque::new(),
            answers: VecDeque::new(),
            adrift: VecDeque::new(),
        };
        self.shims.insert(name.to_owned(), shim);
        self.load(name);
        self.advance(Duration::ZERO);
    }

    /// A shim dies without a word. Its connections are gone.
    pub(crate) fn kill(&mut self, name: &str) {
        self.shims.remove(name).expect("it runs");
        self.homes.retain(|_, home| home != name);
    }

    /// A shim is told the whole content, as after a start or a compaction.
    pub(crate) fn load(&mut self, name: &str) {
        self.load_as(name, false);
    }

    /// As [`Self::load`]; or of an etcd that was restored.
    pub(crate) fn load_as(&mut self, name: &str, is_another_history: bool) {
        let snapshot = Snapshot { is_another_history, ..self.engine.snapshot() };
        let now = self.now;
        let shim = self.shim(name);
        shim.told = snapshot.revision;
        shim.keeper.handle_store(StoreEvent::Loaded(snapshot), now);
        self.settle();
    }

    pub(crate) fn shim(&mut self, name: &str) -> &mut Shim {
        self.shims.get_mut(name).expect("the shim was started")
    }

    /// A client connects.
    pub(crate) fn connect(&mut self, shim: &str, connect: Connect) -> ConnectionId {
        self.connections += 1;
        let connection = ConnectionId(self.connections);
        let now = self.now;
        self.homes.insert(connection, shim.to_owned());
        let keeper = &mut self.shim(shim).keeper;
        keeper.handle_opened(connection, IpAddr::V4(Ipv4Addr::LOCALHOST));
        keeper.handle_connect(connection, connect, now);
        self.settle();
        connection
    }

    /// Requests that one read of the socket brought.
    pub(crate) fn request(&mut self, connection: ConnectionId, requests: Vec<Request>) {
        let now = self.now;
        let home = self.home(connection);
        self.shim(&home).keeper.handle_requests(connection, requests, now);
        self.settle();
    }

    /// The client's socket is gone.
    pub(crate) fn disconnect(&mut self, connection: ConnectionId) {
        let now = self.now;
        let home = self.home(connection);
        self.shim(&home).keeper.handle_closed(connection, now);
        self.settle();
    }

    fn home(&self, connection: ConnectionId) -> String {
        self.homes.get(&connection).cloned().expect("the connection's shim lives")
    }

    /// Time passes: timers go off and leases end when they are due.
    pub(crate) fn advance(&mut self, by: Duration) {
        let end = self.now.monotonic + by;
        for _ in 0..TURNS_MAX {
            self.settle();
            let due = self.shims.values().filter_map(|shim| shim.keeper.poll_timeout());
            let Some(next) = due.chain(self.engine.next_expiry()).min().filter(|at| *at <= end)
            else {
                self.move_clock(end);
                return;
            };
            self.move_clock(next);
            self.engine.expire(next);
            let now = self.now;
            for shim in self.shims.values_mut() {
                if shim.keeper.poll_timeout().is_some_and(|at| at <= next) {
                    shim.keeper.handle_timeout(now);
                }
            }
        }
        panic!("the clock does not get past {:?}: a timer is due for ever", self.now);
    }

    /// What the wall clock shows goes back; no other clock does.
    pub(crate) fn set_back_wall_clock(&mut self, by: Duration) {
        self.now.unix_ms -= i64::try_from(by.as_millis()).expect("scripts are short");
    }

    fn move_clock(&mut self, to: Duration) {
        let by = to.saturating_sub(self.now.monotonic);
        self.now.monotonic += by;
        self.now.unix_ms += i64::try_from(by.as_millis()).expect("scripts are short");
    }

    /// Let everything flow that is not held, until nothing moves.
    pub(crate) fn settle(&mut self) {
        let names: Vec<String> = self.shims.keys().cloned().collect();
        for _ in 0..TURNS_MAX {
            let mut moved = false;
            for name in &names {
                moved |= self.drain(name);
                moved |= self.tell_stream(name, 1) > 0;
                moved |= self.tell_answer(name);
                moved |= self.carry_out(name);
            }
            if !moved {
                return;
            }
        }
        panic!("core and store talk to each other without an end");
    }

    fn drain(&mut self, name: &str) -> bool {
        let shim = self.shims.get_mut(name).expect("it runs");
        let mut closed = Vec::new();
        let before = self.seen.len() + shim.commands.len();
        while let Some(output) = shim.keeper.poll_output() {
            match output {
                Output::Send(connection, outgoing) => {
                    self.seen.push(Seen::Sent(connection, outgoing));
                }
                Output::Close(connection) => {
                    self.seen.push(Seen::Closed(connection));
                    closed.push(connection);
                }
                Output::Store(command) => shim.commands.push_back(command),
            }
        }
        let moved = before != self.seen.len() + shim.commands.len();
        for connection in closed {
            shim.keeper.handle_closed(connection, self.now);
        }
        moved
    }

    /// Tell some of the stream unless it is held; how many revisions were told.
    fn tell_stream(&mut self, name: &str, count: usize) -> usize {
        let shim = self.shims.get_mut(name).expect("it runs");
        if shim.held.contains(&Traffic::Stream) {
            return 0;
        }
        Self::push_stream(&self.engine, shim, self.now, count)
    }

    /// Tell some of the stream although it is held.
    pub(crate) fn force_stream(&mut self, name: &str, count: usize) -> usize {
        let shim = self.shims.get_mut(name).expect("it runs");
        let told = Self::push_stream(&self.engine, shim, self.now, count);
        self.settle();
        told
    }

    fn push_stream(engine: &Engine, shim: &mut Shim, now: Now, count: usize) -> usize {
        let history = engine.changes_after(shim.told).expect("scripts reload after compaction");
        let ours = history.filter(|changes| !is_foreign(changes));
        let changes: Vec<_> = ours.take(count).cloned().collect();
        for change in &changes {
            shim.told = change.revision;
            shim.keeper.handle_store(StoreEvent::Changed(change.clone()), now);
        }
        changes.len()
    }

    fn tell_answer(&mut self, name: &str) -> bool {
        let now = self.now;
        let shim = self.shim(name);
        if shim.held.contains(&Traffic::Answers) {
            return false;
        }
        let Some(answer) = shim.answers.pop_front() else { return false };
        shim.keeper.handle_store(answer, now);
        true
    }

    /// One of the held answers, counted from 1, comes before the others.
    pub(crate) fn force_answer(&mut self, name: &str, which: usize) {
        let now = self.now;
        let shim = self.shim(name);
        let answer = shim.answers.remove(which - 1).expect("so many answers are held");
        shim.keeper.handle_store(answer, now);
        self.settle();
    }

    fn carry_out(&mut self, name: &str) -> bool {
        let shim = self.shims.get_mut(name).expect("it runs");
        let free = |command: &StoreCommand| !shim.held.contains(&Traffic::of(command));
        let Some(at) = shim.commands.iter().position(free) else { return false };
        let command = shim.commands.remove(at).expect("it was found there");
        self.run(name, command);
        true
    }

    fn run(&mut self, name: &str, command: StoreCommand) {
        self.seen.push(Seen::Asked(name.to_owned(), command.clone()));
        let at = self.now.monotonic;
        let engine = &mut self.engine;
        let shim = self.shims.get_mut(name).expect("it runs");
        let answer = match command {
            StoreCommand::Commit(token, txn) => StoreEvent::Committed(token, engine.commit(&txn)),
            StoreCommand::Barrier(token) => StoreEvent::BarrierPassed(token, Ok(engine.revision())),
            StoreCommand::Progress => {
                let mut rest = engine.changes_after(shim.told).expect("as above");
                if !rest.all(is_foreign) {
                    return;
                }
                StoreEvent::Progress(engine.revision())
            }
            StoreCommand::Grant(token, ttl) => StoreEvent::Granted(token, engine.grant(ttl, at)),
            StoreCommand::Revoke(token, lease) => {
                engine.revoke(lease);
                StoreEvent::Revoked(token, Ok(()))
            }
            StoreCommand::Renew(lease) => {
                let left = engine.renew(lease, at).unwrap_or_default();
                StoreEvent::Renewed(lease, Some(left))
            }
        };
        shim.answers.push_back(answer);
    }

    /// Somebody writes the key that says which layout the store has, and the offset.
    pub(crate) fn put_meta(&mut self, layout: u32, offset: i64) {
        let layout = layout.to_be_bytes();
        let value = [&[1][..], &layout, &offset.to_be_bytes()].concat();
        self.put(Bytes::from_static(META), value.into());
    }

    /// Somebody else uses the same etcd.
    pub(crate) fn change_foreign_key(&mut self) {
        self.put(Bytes::from_static(FOREIGN), Bytes::new());
    }

    fn put(&mut self, key: Key, value: Bytes) {
        let then = vec![Op::Put { key, value, lease: LeaseId::NONE }];
        let txn = Txn { then, ..Txn::default() };
        self.engine.commit(&txn).expect("it is a small one");
        self.settle();
    }

    /// The first txn that is held on a link.
    pub(crate) fn held_commit(&mut self, name: &str) -> Option<(Token, Txn)> {
        let at = self.shim(name).commands.iter().position(is_commit)?;
        self.take_commit(name, at)
    }

    fn take_commit(&mut self, name: &str, at: usize) -> Option<(Token, Txn)> {
        match self.shim(name).commands.remove(at) {
            Some(StoreCommand::Commit(token, txn)) => Some((token, txn)),
            _ => None,
        }
    }

    /// The last held txn overtakes those before it.
    pub(crate) fn force_last_commit(&mut self, name: &str) {
        let at = self.shim(name).commands.iter().rposition(is_commit).expect("a txn is held");
        let (token, txn) = self.take_commit(name, at).expect("it is there");
        self.run(name, StoreCommand::Commit(token, txn));
        self.settle();
    }

    /// The first held txn goes through although txns are held.
    pub(crate) fn force_commit(&mut self, name: &str) {
        let (token, txn) = self.held_commit(name).expect("a txn is held");
        self.run(name, StoreCommand::Commit(token, txn));
        self.settle();
    }

    /// The first held txn gets lost; its sender learns that the outcome is unknown.
    pub(crate) fn lose_commit(&mut self, name: &str, loss: Loss) {
        let (token, txn) = self.held_commit(name).expect("a txn is held");
        match loss {
            Loss::Answer => drop(self.engine.commit(&txn)),
            Loss::Txn => {}
            Loss::Adrift => self.shim(name).adrift.push_back(txn),
        }
        self.answer_commit(name, token, CommitError::Unknown("lost".to_owned()));
    }

    /// The first held grant gets lost, and its sender learns that.
    pub(crate) fn lose_grant(&mut self, name: &str) {
        let token = self.take_grant(name);
        let lost = StoreEvent::Granted(token, Err("lost".to_owned()));
        self.shim(name).answers.push_back(lost);
        self.settle();
    }

    /// The first held grant gets lost, and nobody says so.
    pub(crate) fn swallow_grant(&mut self, name: &str) {
        self.take_grant(name);
    }

    fn take_grant(&mut self, name: &str) -> Token {
        let commands = &mut self.shim(name).commands;
        let grant = commands.iter().enumerate().find_map(|(at, command)| match command {
            StoreCommand::Grant(token, _) => Some((at, *token)),
            _ => None,
        });
        let (at, token) = grant.expect("a grant is held");
        commands.remove(at);
        token
    }

    /// The first held txn is refused.
    pub(crate) fn refuse_commit(&mut self, name: &str, error: CommitError) {
        let (token, _) = self.held_commit(name).expect("a txn is held");
        self.answer_commit(name, token, error);
    }

    fn answer_commit(&mut self, name: &str, token: Token, error: CommitError) {
        self.shim(name).answers.push_back(StoreEvent::Committed(token, Err(error)));
        self.settle();
    }

    /// The oldest txn that was adrift reaches the store after all.
    pub(crate) fn arrive(&mut self, name: &str) -> bool {
        let txn = self.shim(name).adrift.pop_front().expect("a txn is adrift");
        let held = self.engine.commit(&txn).is_ok_and(|answer| answer.succeeded);
        self.settle();
        held
    }
}

fn is_commit(command: &StoreCommand) -> bool {
    matches!(command, StoreCommand::Commit(..))
}
