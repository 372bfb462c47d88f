//! One clock for clients, shims and a store: the core of each shim, the embedded store's engine as
//! etcd, and the same short way between all of them. Nothing goes wrong, and nothing takes time
//! but the ways.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use bytes::Bytes;
use zkshim::keeper::request::{
    Connect, Connected, ConnectionId, Create, CreateOpcode, Operation, Outgoing, Reply, Request,
    SessionId, SetData, Xid,
};
use zkshim::keeper::time::Now;
use zkshim::keeper::txn::{Change, Op, StoreCommand, StoreEvent, Txn, TxnAnswer};
use zkshim::keeper::zxid::{Revision, Zxid};
use zkshim::keeper::{Keeper, Options, Output, tree};
use zkshim::store::embedded::engine::Engine;
use zkshim::store::embedded::limits::Limits;

use crate::costs::Counts;
use crate::model::{TIMEOUT, Work};
use crate::znodes::DATA;

/// From one to the other.
const WAY: Duration = Duration::from_micros(200);
/// The engine forgets its history so often, and leases whose time is over end.
const TIDY_EVERY: Duration = Duration::from_secs(1);
const SHIMS_START_IN: Duration = Duration::from_secs(3);
/// Not zero: a shim that is asked for the first time has its past behind it.
const BEGIN: Duration = Duration::from_secs(1000);

#[derive(Debug)]
enum Event {
    Open(usize),
    Ping(usize),
    Write(usize),
    Call(usize, StoreCommand),
    Told(usize, StoreEvent),
    Timer(usize),
    Tidy,
}

/// What waits for its time: by that, then in the order in which it was put there.
#[derive(Debug)]
struct Waiting {
    at: Duration,
    number: u64,
    event: Event,
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Waiting {}
impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

#[derive(Debug)]
struct Shim {
    keeper: Keeper,
    timer_at: Option<Duration>,
    /// Something was handed in at this moment.
    touched: bool,
}

/// A client with a session: its connection has the same number.
#[derive(Clone, Debug, Default)]
struct Client {
    served: bool,
    /// So many of its requests have been sent.
    sent: i32,
}

/// See the file's text.
#[derive(Debug)]
pub(super) struct World {
    now: Duration,
    shims: Vec<Shim>,
    clients: Vec<Client>,
    engine: Engine,
    /// What the shims were told of the history.
    told: Revision,
    waiting: BinaryHeap<Reverse<Waiting>>,
    number: u64,
    counts: BTreeMap<&'static str, u64>,
    written: u64,
    work: Option<Work>,
}

impl World {
    /// Shims that serve, on an empty store.
    pub(super) fn started(shims: usize) -> Result<Self> {
        let limits = Limits::default();
        let engine = Engine::new(limits, 7);
        let mut world = Self {
            now: BEGIN,
            shims: (0..shims).map(shim).collect(),
            clients: Vec::new(),
            told: engine.revision(),
            engine,
            waiting: BinaryHeap::new(),
            number: 0,
            counts: BTreeMap::new(),
            written: 0,
            work: None,
        };
        for shim in 0..shims {
            let loaded = StoreEvent::Loaded(world.engine.snapshot());
            world.after(WAY, Event::Told(shim, loaded));
        }
        world.after(TIDY_EVERY, Event::Tidy);
        world.pass(SHIMS_START_IN)?;
        let serving = world.shims.iter().all(|shim| shim.keeper.status().serving);
        ensure!(serving, "a shim does not serve");
        Ok(world)
    }

    /// So many clients connect, one after the other.
    pub(super) fn open(&mut self, clients: usize, each: Duration) {
        self.clients = vec![Client::default(); clients];
        let mut delay = Duration::ZERO;
        for client in 0..clients {
            self.after(delay, Event::Open(client));
            delay += each;
        }
    }

    /// Each client writes without a pause, beginning with a create in any case.
    pub(super) fn begin_to_write(&mut self, work: Work) {
        self.work = Some(work);
        (0..self.clients.len()).for_each(|client| self.after(WAY, Event::Write(client)));
    }

    /// What was asked of the store so far.
    pub(super) fn counts(&self) -> Counts {
        COUNTED.iter().map(|name| ((*name).to_owned(), self.count(name) as f64)).collect()
    }

    /// Writes that were answered, but for each client's first.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    fn count(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or_default()
    }

    /// Whether so many clients have a session.
    pub(super) fn check_served(&self, clients: usize) -> Result<()> {
        let served = self.clients.iter().filter(|client| client.served).count();
        ensure!(served == clients, "{served} of {clients} clients are served");
        Ok(())
    }

    /// Lets time pass. What comes at one moment is worked on together, as in the server.
    pub(super) fn pass(&mut self, time: Duration) -> Result<()> {
        let until = self.now + time;
        loop {
            while let Some(event) = self.take_due() {
                self.happen(event)?;
            }
            self.drain()?;
            match self.waiting.peek() {
                Some(Reverse(next)) if next.at <= until => self.now = next.at.max(self.now),
                _ => break,
            }
        }
        self.now = until;
        Ok(())
    }

    fn take_due(&mut self) -> Option<Event> {
        let is_due = self.waiting.peek().is_some_and(|next| next.0.at <= self.now);
        let due = if is_due { self.waiting.pop() } else { None };
        due.map(|Reverse(due)| due.event)
    }

    fn after(&mut self, delay: Duration, event: Event) {
        self.at(self.now + delay, event);
    }

    fn at(&mut self, at: Duration, event: Event) {
        self.number += 1;
        self.waiting.push(Reverse(Waiting { at, number: self.number, event }));
    }

    fn clock(&self) -> Now {
        Now { monotonic: self.now, unix_ms: 1_700_000_000_000 + self.now.as_millis() as i64 }
    }

    fn happen(&mut self, event: Event) -> Result<()> {
        let now = self.clock();
        match event {
            Event::Open(client) => {
                let connect = Connect {
                    last_zxid_seen: Zxid(0),
                    timeout_ms: TIMEOUT.as_millis() as i32,
                    session: SessionId(0),
                    password: Bytes::from_static(&[0; 16]),
                };
                let keeper = self.keeper_of(client);
                keeper.handle_opened(connection(client), IpAddr::V4(Ipv4Addr::LOCALHOST));
                keeper.handle_connect(connection(client), connect, now);
            }
            Event::Ping(client) => {
                let ping = Request { xid: Xid::PING, operation: Operation::Ping };
                self.keeper_of(client).handle_requests(connection(client), [ping], now);
                self.after(TIMEOUT / 3, Event::Ping(client));
            }
            Event::Write(client) => {
                let request = self.write(client);
                self.keeper_of(client).handle_requests(connection(client), [request], now);
            }
            Event::Call(shim, command) => self.call(shim, command),
            Event::Told(shim, told) => self.touch(shim).keeper.handle_store(told, now),
            Event::Timer(shim) => {
                let there = &mut self.shims[shim];
                if there.timer_at.take_if(|at| *at <= now.monotonic).is_some() {
                    self.touch(shim).keeper.handle_timeout(now);
                }
            }
            Event::Tidy => {
                let ended = self.engine.expire(self.now);
                ensure!(ended.is_empty(), "{} leases were not renewed in time", ended.len());
                self.engine.compact(self.engine.revision());
                self.after(TIDY_EVERY, Event::Tidy);
            }
        }
        Ok(())
    }

    fn write(&mut self, client: usize) -> Request {
        let sent = &mut self.clients[client].sent;
        *sent += 1;
        let data = Some(Bytes::from_static(&DATA));
        let create = |path: String| {
            Operation::Create(Create {
                opcode: CreateOpcode::Create,
                path: Some(path.into()),
                data: data.clone(),
                acl: Some(tree::open_acl()),
                flags: 0,
                ttl_ms: -1,
            })
        };
        let own = format!("/own-{client:07}");
        let operation = match self.work {
            Some(Work::Create) => create(format!("{own}-{sent:08}")),
            _ if *sent == 1 => create(own),
            _ => Operation::SetData(SetData { path: Some(own.into()), data, version: -1 }),
        };
        Request { xid: Xid(*sent), operation }
    }

    fn touch(&mut self, shim: usize) -> &mut Shim {
        let shim = &mut self.shims[shim];
        shim.touched = true;
        shim
    }

    /// Clients are spread over the shims.
    fn keeper_of(&mut self, client: usize) -> &mut Keeper {
        let shim = client % self.shims.len();
        &mut self.touch(shim).keeper
    }

    /// Everything that the shims want by now.
    fn drain(&mut self) -> Result<()> {
        for shim in 0..self.shims.len() {
            if !std::mem::take(&mut self.shims[shim].touched) {
                continue;
            }
            while let Some(output) = self.shims[shim].keeper.poll_output() {
                match output {
                    Output::Store(command) => self.after(WAY, Event::Call(shim, command)),
                    Output::Send(ConnectionId(client), outgoing) => {
                        self.answered(client as usize, &outgoing)?;
                    }
                    Output::Close(ConnectionId(client)) => bail!("client {client} was cut off"),
                }
            }
            let there = &mut self.shims[shim];
            let due = there.keeper.poll_timeout().map(|due| due.max(self.now));
            if let Some(due) = due
                && there.timer_at.is_none_or(|at| due < at)
            {
                there.timer_at = Some(due);
                self.at(due, Event::Timer(shim));
            }
        }
        Ok(())
    }

    fn answered(&mut self, client: usize, outgoing: &Outgoing) -> Result<()> {
        match outgoing {
            Outgoing::Connected(Connected::Accepted { .. }) => {
                self.clients[client].served = true;
                self.after(TIMEOUT / 3, Event::Ping(client));
            }
            Outgoing::Reply(Reply { xid, outcome, .. }) => {
                ensure!(outcome.is_ok(), "client {client} was answered {outcome:?}");
                if self.work.is_some() && *xid != Xid::PING {
                    self.written += u64::from(xid.0 > 1);
                    self.after(WAY, Event::Write(client));
                }
            }
            other => bail!("client {client} was told {other:?}"),
        }
        Ok(())
    }

    /// A command has reached the store: it is carried out and counted, all shims hear of what
    /// changed, and then the one that asked hears what became of it.
    fn call(&mut self, shim: usize, command: StoreCommand) {
        let answer = match command {
            StoreCommand::Commit(token, txn) => {
                self.add(if writes(&txn) { ENTRIES } else { READS }, 1);
                let answer = self.engine.commit(&txn);
                self.add(FAILED, answer.as_ref().map_or(0, failed));
                StoreEvent::Committed(token, answer)
            }
            StoreCommand::Barrier(token) => {
                self.add(READS, 1);
                StoreEvent::BarrierPassed(token, Ok(self.engine.revision()))
            }
            StoreCommand::Progress => {
                self.add(PROGRESS, 1);
                StoreEvent::Progress(self.engine.revision())
            }
            StoreCommand::Grant(token, ttl) => {
                self.add(ENTRIES, 1);
                self.add(GRANTED, 1);
                StoreEvent::Granted(token, self.engine.grant(ttl, self.now))
            }
            StoreCommand::Revoke(token, lease) => {
                self.add(ENTRIES, 1);
                self.add(REVOKED, 1);
                self.engine.revoke(lease);
                StoreEvent::Revoked(token, Ok(()))
            }
            StoreCommand::Renew(lease) => {
                self.add(RENEWED, 1);
                let ttl = self.engine.renew(lease, self.now).unwrap_or(Duration::ZERO);
                StoreEvent::Renewed(lease, Some(ttl))
            }
        };
        let news =
            self.engine.changes_after(self.told).expect("all are told before it is forgotten");
        let news: Vec<_> = news.cloned().collect();
        self.told = self.engine.revision();
        for changes in news {
            let count = changes.changes.len();
            let puts = changes.changes.iter().filter(|change| matches!(change, Change::Put(_)));
            self.add(PUTS, puts.count() as u64);
            self.add(SENT, (count * self.shims.len()) as u64);
            for shim in 0..self.shims.len() {
                self.after(WAY, Event::Told(shim, StoreEvent::Changed(changes.clone())));
            }
        }
        self.after(WAY, Event::Told(shim, answer));
    }

    fn add(&mut self, name: &'static str, count: u64) {
        *self.counts.entry(name).or_default() += count;
    }
}

// The first four are etcd's own, under the names of its counters in our tables.
const ENTRIES: &str = "Raft entries";
const PUTS: &str = "puts";
const GRANTED: &str = "leases granted";
const RENEWED: &str = "leases renewed";
const REVOKED: &str = "leases revoked";
const READS: &str = "linearizable reads";
const PROGRESS: &str = "progress requests";
const FAILED: &str = "failed txns";
const SENT: &str = "changes sent";
const COUNTED: [&str; 9] =
    [ENTRIES, PUTS, GRANTED, RENEWED, REVOKED, READS, PROGRESS, FAILED, SENT];

/// How many txns did not hold, those within others as well.
fn failed(answer: &TxnAnswer) -> u64 {
    let nested = answer.nested.iter().filter(|held| !**held).count() as u64;
    nested + u64::from(!answer.succeeded)
}

/// A txn that cannot write is no entry of the log.
fn writes(txn: &Txn) -> bool {
    txn.then.iter().chain(&txn.otherwise).any(|op| match op {
        Op::Put { .. } | Op::Delete(_) => true,
        Op::Txn(nested) => writes(nested),
    })
}

fn connection(client: usize) -> ConnectionId {
    ConnectionId(client as u64)
}

/// As `zkshim serve` starts one without flags.
fn shim(index: usize) -> Shim {
    let mut seed = [7; 32];
    seed[0] = index as u8;
    let tick = Duration::from_secs(2);
    let options = Options {
        tick,
        session_timeout_min: 2 * tick,
        session_timeout_max: 20 * tick,
        seed,
        sole: false,
        session_key_delay: Duration::from_secs(1),
        writes_worth_a_batch: Options::WRITES_WORTH_A_BATCH,
        alone_after: Options::ALONE_AFTER,
        ttl_nodes: false,
        super_digest: None,
        skip_acl: false,
        kept_bytes_max: 1 << 40,
        enforce_quota: false,
        container_check_interval: Duration::from_secs(60),
    };
    let keeper = Keeper::new(options, Now { monotonic: BEGIN, unix_ms: 1_700_000_000_000 });
    Shim { keeper, timer_at: None, touched: true }
}
