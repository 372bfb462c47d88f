//! The load of a run: clients that write, count, number and lock without a pause, and clients
//! that only keep their sessions. What they are told goes into the record.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::conformance::message::Reply;
use crate::conformance::wire::{Writer, code, op, open_acl, record};
use crate::faults::namespace::Namespace;
use crate::faults::own::Own;
use crate::faults::record::{Hold, Record, Restored, Write};
use crate::faults::roamer::{Roamer, Trouble};

/// The znodes that must be there before the load begins.
pub const PLACES: [&str; 5] =
    ["/faults", "/faults/own", "/faults/numbers", "/faults/here", COUNTER];
const COUNTER: &str = "/faults/counter";
const LOCK: &str = "/faults/lock";

/// How long after etcd's new beginning a shim may not have met it.
const MET_WITHIN: Duration = Duration::from_secs(1);

/// What a writing client asks for as its timeout.
pub const WRITER_TIMEOUT: Duration = Duration::from_secs(10);
/// What the idle clients ask for.
pub const IDLE_TIMEOUTS: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(60)];

/// Between two requests of a writer.
const PACE: Duration = Duration::from_millis(20);
const EPHEMERAL: i32 = 1;
const SEQUENTIAL: i32 = 2;

/// Clients at work.
pub struct Load {
    stop: Arc<AtomicBool>,
    /// How many times the clients were called home.
    calls: Arc<AtomicUsize>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts two writers and two idle clients on each machine, or in each of these places of
    /// this one, on each server first. What they write of their own has at least so many bytes.
    ///
    /// # Errors
    /// A client cannot enter its machine.
    pub fn start(
        machines: &[Option<&Namespace>],
        servers: &[SocketAddr],
        record: &Arc<Record>,
        padding_bytes: usize,
    ) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let calls = Arc::new(AtomicUsize::new(0));
        let mut clients = Vec::new();
        for (index, machine) in machines.iter().enumerate() {
            let [short, long] = IDLE_TIMEOUTS;
            for (kind, writes, timeout) in [
                (0, true, WRITER_TIMEOUT),
                (1, true, WRITER_TIMEOUT),
                (2, false, short),
                (3, false, long),
            ] {
                let number = index * 4 + kind;
                let client = Client {
                    number,
                    timeout,
                    roamer: Roamer::new(servers.to_vec(), index, timeout),
                    record: Arc::clone(record),
                    stop: Arc::clone(&stop),
                    home: index,
                    calls: Arc::clone(&calls),
                    calls_heard: 0,
                    requests: 0,
                    losses_told: 0,
                    restores: Vec::new(),
                    padding_bytes,
                };
                record.live(number, |life| (life.timeout, life.writes) = (timeout, writes));
                // A thread is born in the namespace of the thread that makes it.
                let start = move || {
                    Ok(thread::spawn(move || if writes { client.write() } else { client.idle() }))
                };
                let started = match machine {
                    Some(machine) => machine.within(start),
                    None => start(),
                };
                clients.push(started.context("start a client")?);
            }
        }
        Ok(Self { stop, calls, clients })
    }

    /// Lets every client go back to the shim that it began with, as a client does that is moved
    /// by a load balancer: all shims have clients again.
    pub fn call_home(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// Lets every client end its session and waits for all.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients {
            // A panic of a client has been printed, and shows as a missing end below.
            let _ = client.join();
        }
    }
}

/// Makes the znodes that the load needs.
///
/// # Errors
/// A server refuses.
pub fn prepare(servers: &[SocketAddr]) -> Result<()> {
    let mut roamer = Roamer::new(servers.to_vec(), 0, WRITER_TIMEOUT);
    let deadline = Instant::now() + Duration::from_secs(30);
    while !matches!(roamer.connect(), Ok(true)) {
        anyhow::ensure!(Instant::now() < deadline, "no server takes a client");
    }
    for place in PLACES {
        let made = roamer.call(op::CREATE, create(place, b"0", 0));
        let made = made.map_err(|trouble| anyhow::anyhow!("create {place}: {trouble:?}"))?;
        made.ok().with_context(|| format!("create {place}"))?;
    }
    let _ = roamer.close();
    Ok(())
}

fn create(path: &str, data: &[u8], flags: i32) -> Writer {
    record().string(path).buffer(data).acls(&open_acl()).int(flags)
}

fn set(path: &str, data: &str, version: i32) -> Writer {
    record().string(path).buffer(data.as_bytes()).int(version)
}

struct Client {
    number: usize,
    timeout: Duration,
    roamer: Roamer,
    record: Arc<Record>,
    stop: Arc<AtomicBool>,
    home: usize,
    calls: Arc<AtomicUsize>,
    calls_heard: usize,
    requests: u64,
    losses_told: usize,
    /// Of which it has heard.
    restores: Vec<Restored>,
    padding_bytes: usize,
}

type Answered<T> = std::result::Result<T, Trouble>;

impl Client {
    fn running(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// Until it is stopped: keeps a session and nothing else.
    fn idle(mut self) {
        while self.running() {
            self.hear_of_restores();
            let done = self.be_there().and_then(|()| self.roamer.idle(Duration::from_millis(200)));
            self.note(done);
        }
        self.end();
    }

    /// Until it is stopped: writes, counts, numbers, locks.
    fn write(mut self) {
        let path = format!("/faults/own/{}", self.number);
        let mut own = Own::new(path, self.padding_bytes);
        let mut here = None;
        let mut round = 0_u64;
        while self.running() {
            for restored in self.hear_of_restores() {
                own.restored(&restored);
                // It may not have been there yet.
                here = None;
            }
            let done = self.be_there().and_then(|()| {
                self.stay_here(&mut here)?;
                self.write_own(&mut own)?;
                match round % 4 {
                    0 => self.count(),
                    1 => self.number_one(),
                    2 => self.hold_lock(),
                    _ => Ok(()),
                }
            });
            self.note(done);
            round += 1;
            thread::sleep(PACE);
        }
        self.end();
    }

    fn hear_of_restores(&mut self) -> Vec<Restored> {
        let news = self.record.restores_after(self.restores.len());
        self.restores.extend(&news);
        news
    }

    /// Connects, if it is not connected.
    fn be_there(&mut self) -> Answered<()> {
        let calls = self.calls.load(Ordering::Relaxed);
        if calls > self.calls_heard {
            self.calls_heard = calls;
            self.roamer.go_to(self.home);
        }
        let was = self.roamer.server();
        while !self.roamer.connect()? {
            if !self.running() {
                return Err(Trouble::Lost);
            }
        }
        let server = self.roamer.server();
        if server != was {
            self.record.live(self.number, |life| life.server = server);
        }
        Ok(())
    }

    /// Tells the record of what went wrong.
    fn note(&mut self, done: Answered<()>) {
        let news: Vec<_> = self.roamer.losses.iter().skip(self.losses_told).cloned().collect();
        self.losses_told = self.roamer.losses.len();
        let server = self.roamer.server();
        self.record.live(self.number, |life| {
            life.losses.extend(news);
            life.server = server;
        });
        for (before, after) in self.roamer.falls.drain(..) {
            let text = format!("client {} saw zxid {after:#x} after {before:#x}", self.number);
            self.record.violation(text);
        }
        if let Err(Trouble::Expired { silent }) = done {
            self.record.live(self.number, |life| life.expiries.push(Instant::now()));
            eprintln!("client {}: expired, last heard {silent:?} ago", self.number);
            self.hear_of_restores();
            // A restore may take sessions along: whoever has not been served since is told so. A
            // shim answers pings until it has met the new history.
            let heard = Instant::now().checked_sub(silent);
            let excused =
                self.restores.iter().any(|restored| heard <= Some(restored.at + MET_WITHIN));
            if silent < self.timeout && !excused {
                let text = format!(
                    "client {} was told that its session has expired {silent:?} after it was \
                     last heard",
                    self.number
                );
                self.record.violation(text);
            }
        }
    }

    /// Ends the session; waits a while for a server if there is none.
    fn end(mut self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while Instant::now() < deadline {
            match self.roamer.connect() {
                Ok(true) => {
                    let _ = self.roamer.close();
                    return;
                }
                Ok(false) => {}
                Err(_) => return,
            }
        }
    }

    fn ask(&mut self, opcode: i32, body: Writer) -> Answered<Reply> {
        self.requests += 1;
        self.roamer.call(opcode, body)
    }

    fn sync(&mut self) -> Answered<()> {
        self.ask(op::SYNC, record().string("/")).map(|_| ())
    }

    fn violation(&self, text: &str) {
        self.record.violation(format!("client {}: {text}", self.number));
    }

    /// An ephemeral of the session is there as long as the session is, and not a moment longer.
    fn stay_here(&mut self, here: &mut Option<(i64, String)>) -> Answered<()> {
        let Some(session) = self.roamer.session() else { return Err(Trouble::Lost) };
        if let Some((owner, path)) = here
            && *owner == session
        {
            let reply = self.ask(op::EXISTS, record().string(path).flag(false))?;
            if reply.stat().map(|stat| stat.ephemeral_owner).ok() != Some(session) {
                self.violation(&format!("{path} is not there as its own: {reply:?}"));
            }
            return Ok(());
        }
        if let Some((_, path)) = here {
            // This session began after the one before was said to have expired.
            let path = path.clone();
            self.sync()?;
            let reply = self.ask(op::EXISTS, record().string(&path).flag(false))?;
            if reply.error != code::NO_NODE {
                self.violation(&format!("{path} has outlived its session: {reply:?}"));
            }
        }
        let path = format!("/faults/here/{}-{session:x}", self.number);
        let reply = self.ask(op::CREATE, create(&path, b"", EPHEMERAL))?;
        // It may have been created by a request whose answer was lost.
        if reply.error != 0 && reply.error != code::NODE_EXISTS {
            self.violation(&format!("{path} cannot be created: {reply:?}"));
        }
        *here = Some((session, path));
        Ok(())
    }

    /// The next number, exactly once, whatever became of the answer.
    fn write_own(&mut self, own: &mut Own) -> Answered<()> {
        let begun = *own.begun.get_or_insert_with(Instant::now);
        if own.is_unsettled() {
            self.settle_own(own)?;
        }
        let Some((data, version)) = own.plan() else { return Ok(()) };
        let reply = self.ask(op::SET_DATA, set(&own.path, &data, version))?;
        let Ok(stat) = reply.stat() else {
            self.violation(&format!("{} is not at version {version}: {reply:?}", own.path));
            own.refused();
            return Ok(());
        };
        if let Some(wrong) = own.written(stat.version, reply.zxid) {
            self.violation(&wrong);
            own.refused();
            return Ok(());
        }
        let write = Write { begun, ended: Instant::now() };
        self.record.live(self.number, |life| life.writes_acknowledged.push(write));
        own.begun = None;
        Ok(())
    }

    /// Reads what the node holds: what was known, or what was in doubt.
    fn settle_own(&mut self, own: &mut Own) -> Answered<()> {
        self.sync()?;
        let reply = self.ask(op::GET_DATA, record().string(&own.path).flag(false))?;
        if reply.error == code::NO_NODE && own.is_unknown() {
            let first = own.text(0);
            let made = self.ask(op::CREATE, create(&own.path, first.as_bytes(), 0))?;
            if made.error == 0 {
                own.made(made.zxid);
            }
            return Ok(());
        }
        let wrong = match reply.data_and_stat() {
            Ok((data, stat)) => own.found(&data.unwrap_or_default(), stat.version, stat.mzxid),
            Err(_) => Some(format!("{} cannot be read: {reply:?}", own.path)),
        };
        wrong.iter().for_each(|wrong| self.violation(wrong));
        Ok(())
    }

    /// Adds one to the counter that all share.
    fn count(&mut self) -> Answered<()> {
        let reply = self.ask(op::GET_DATA, record().string(COUNTER).flag(false))?;
        let Ok((_, stat)) = reply.data_and_stat() else {
            self.violation(&format!("the counter cannot be read: {reply:?}"));
            return Ok(());
        };
        let body = set(COUNTER, &self.number.to_string(), stat.version);
        match self.ask(op::SET_DATA, body) {
            Ok(reply) if reply.error == code::BAD_VERSION => Ok(()),
            Ok(reply) => {
                let made = reply.stat().map(|stat| stat.version).unwrap_or(-1);
                if made != stat.version + 1 {
                    self.violation(&format!("{reply:?} to a count from {}", stat.version));
                }
                let maker = (self.number, reply.zxid);
                let other = self.record.with(|told| told.counted.insert(made, maker));
                if let Some((other, _)) = other {
                    self.violation(&format!("version {made} was made by {other}, too"));
                }
                Ok(())
            }
            Err(trouble) => {
                self.record.with(|told| told.counts_unknown += 1);
                Err(trouble)
            }
        }
    }

    /// A sequential node with something in it that nobody else writes.
    fn number_one(&mut self) -> Answered<()> {
        let text = format!("{}-{}", self.number, self.requests);
        let body = create("/faults/numbers/n-", text.as_bytes(), SEQUENTIAL);
        match self.ask(op::CREATE, body) {
            Ok(reply) => {
                let Ok(path) = reply.text() else {
                    self.violation(&format!("no number: {reply:?}"));
                    return Ok(());
                };
                let made = (text, reply.zxid);
                let other = self.record.with(|told| told.numbered.insert(path.clone(), made));
                if let Some((other, _)) = other {
                    self.violation(&format!("{path} was given to {other}, too"));
                }
                Ok(())
            }
            Err(trouble) => {
                self.record.with(|told| told.numbered_unknown.push(text));
                Err(trouble)
            }
        }
    }

    /// A lock that is an ephemeral, held for a few requests.
    fn hold_lock(&mut self) -> Answered<()> {
        let mine = self.number.to_string();
        let reply = self.ask(op::CREATE, create(LOCK, mine.as_bytes(), EPHEMERAL))?;
        if reply.error == code::NODE_EXISTS {
            // Its own, if the answer to its creation was lost: nobody else would end it.
            let reply = self.ask(op::GET_DATA, record().string(LOCK).flag(false))?;
            let holder = reply.data_and_stat().ok().map(|(_, stat)| stat.ephemeral_owner);
            if holder == self.roamer.session() {
                self.ask(op::DELETE, record().string(LOCK).int(-1))?;
            }
            return Ok(());
        }
        if reply.ok().is_err() {
            self.violation(&format!("the lock: {reply:?}"));
            return Ok(());
        }
        let mut hold = Hold { client: self.number, from: Instant::now(), to: Instant::now() };
        let held = (0..3).try_for_each(|_| {
            let sent = Instant::now();
            let reply = self.ask(op::EXISTS, record().string(LOCK).flag(false))?;
            if reply.stat().map(|stat| stat.ephemeral_owner).ok() != self.roamer.session() {
                self.violation(&format!("the lock is somebody else's: {reply:?}"));
            }
            hold.to = sent;
            Ok(())
        });
        let sent = Instant::now();
        let released = held.and_then(|()| self.ask(op::DELETE, record().string(LOCK).int(-1)));
        if let Ok(reply) = &released {
            hold.to = sent;
            if reply.error != 0 {
                self.violation(&format!("the lock cannot be released: {reply:?}"));
            }
        }
        self.record.with(|told| told.holds.push(hold));
        released.map(|_| ())
    }
}
