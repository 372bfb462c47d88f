//! The load of a soak: sessions that come, read, write, watch, and go: closed, cut, moved or left
//! to expire. What they make is bounded, and goes with them.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};

use crate::conformance::message::Reply;
use crate::conformance::multi::{Operation, request};
use crate::conformance::wire::{Writer, code, op, open_acl, record};
use crate::differential::chance::Chance;
use crate::faults::cluster::{Cluster, shim_addresses};
use crate::faults::roamer::{Roamer, Trouble};

const HOME: &str = "/soak";
const SHARED: &str = "/soak/shared";
const QUEUE: &str = "/soak/queue";
/// Znodes of each guest of its own.
const OWN: usize = 10;
/// Guests on each machine.
const GUESTS: usize = 5;
/// The shortest that servers give, so that what is left to expire is soon gone.
const TIMEOUT: Duration = Duration::from_secs(4);
const PACE: Duration = Duration::from_millis(30);
const EPHEMERAL: i32 = 1;
const SEQUENTIAL_EPHEMERAL: i32 = 3;
const RECURSIVE: i32 = 1;

/// What the guests did.
#[derive(Debug, Default)]
pub struct Counts {
    /// Requests that were answered.
    pub answered: AtomicU64,
    /// Sessions that began.
    pub opened: AtomicU64,
    /// That were closed by their clients.
    pub closed: AtomicU64,
    /// That went on at another server.
    pub moved: AtomicU64,
    /// That were left to expire.
    pub left: AtomicU64,
    /// Connections that were lost.
    pub lost: AtomicU64,
    /// Sessions that had ended while their clients talked.
    pub violations: AtomicU64,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        write!(
            f,
            "{} requests answered; {} sessions opened: {} closed, {} left to expire; {} moves, \
             {} connections lost",
            of(&self.answered),
            of(&self.opened),
            of(&self.closed),
            of(&self.left),
            of(&self.moved),
            of(&self.lost)
        )
    }
}

/// Guests at work.
pub struct Guests {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Guests {
    /// Starts them, on each machine of clients.
    ///
    /// # Errors
    /// A guest cannot enter its machine.
    pub fn start(cluster: &Cluster, seed: u64, counts: &Arc<Counts>) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for (machine, namespace) in cluster.clients.iter().enumerate() {
            for guest in 0..GUESTS {
                let number = machine * GUESTS + guest;
                let mut guest = Guest {
                    number,
                    chance: Chance::new(seed.wrapping_mul(1000) + number as u64),
                    counts: Arc::clone(counts),
                    stop: Arc::clone(&stop),
                };
                // A thread is born in the namespace of the thread that makes it.
                let started = namespace.within(move || Ok(thread::spawn(move || guest.live())));
                threads.push(started.context("start a guest")?);
            }
        }
        Ok(Self { stop, threads })
    }

    /// Lets every guest end its session and waits for all.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            // A panic of a guest has been printed, and shows as something left behind.
            let _ = thread.join();
        }
    }
}

/// Makes the places of the load, with all keys that they will ever have.
///
/// # Errors
/// A server refuses.
pub fn prepare(servers: &[SocketAddr]) -> Result<()> {
    administer(servers, |ask| {
        for place in [HOME, SHARED, QUEUE] {
            ask(op::CREATE, create(place, b"0", 0))?.ok()?;
        }
        Ok(())
    })
}

/// Takes away what guests may have left that was theirs to take away.
///
/// # Errors
/// A server refuses.
pub fn clear(servers: &[SocketAddr]) -> Result<()> {
    administer(servers, |ask| {
        ask(op::SYNC, record().string("/"))?.ok()?;
        let names = ask(op::GET_CHILDREN, record().string(HOME).flag(false))?.names()?;
        for name in names.iter().filter(|name| name.starts_with("own-")) {
            let gone = ask(op::DELETE, record().string(&format!("{HOME}/{name}")).int(-1))?;
            ensure!([0, code::NO_NODE].contains(&gone.error), "delete {name}: {gone:?}");
        }
        Ok(())
    })
}

type Ask<'a> = dyn FnMut(i32, Writer) -> Result<Reply> + 'a;

fn administer(servers: &[SocketAddr], work: impl Fn(&mut Ask<'_>) -> Result<()>) -> Result<()> {
    let mut roamer = Roamer::new(servers.to_vec(), 0, TIMEOUT);
    let deadline = Instant::now() + Duration::from_secs(30);
    while !matches!(roamer.connect(), Ok(true)) {
        ensure!(Instant::now() < deadline, "no server takes a client");
    }
    let mut ask = |opcode, body| {
        roamer.call(opcode, body).map_err(|trouble| anyhow!("operation {opcode}: {trouble:?}"))
    };
    work(&mut ask)?;
    let _ = roamer.close();
    Ok(())
}

fn create(path: &str, data: &[u8], flags: i32) -> Writer {
    record().string(path).buffer(data).acls(&open_acl()).int(flags)
}

struct Guest {
    number: usize,
    chance: Chance,
    counts: Arc<Counts>,
    stop: Arc<AtomicBool>,
}

type Answered<T> = std::result::Result<T, Trouble>;

/// One session of a guest.
struct Visit<'a> {
    roamer: Roamer,
    guest: &'a mut Guest,
}

impl Guest {
    fn running(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    fn live(&mut self) {
        while self.running() {
            let first = self.chance.below(3);
            let roamer = Roamer::new(shim_addresses(), first, TIMEOUT);
            let mut visit = Visit { roamer, guest: self };
            // What went wrong has been counted; the next session begins all the same.
            let _ = visit.stay();
            let cut = visit.guest.running() && visit.guest.chance.percent(30);
            let ended = if cut { Ok(false) } else { visit.close() };
            let counter = match ended {
                Ok(true) => &self.counts.closed,
                Ok(false) | Err(_) => &self.counts.left,
            };
            counter.fetch_add(1, Ordering::Relaxed);
            thread::sleep(PACE);
        }
    }
}

impl Visit<'_> {
    /// Some reads, some writes, some watches; short as JDBC drivers' sessions, or longer.
    fn stay(&mut self) -> Answered<()> {
        let rounds = match self.guest.chance.below(10) {
            0..4 => 0,
            4..9 => 5,
            _ => 100,
        };
        self.ask(op::GET_CHILDREN2, record().string(SHARED).flag(true))?;
        self.watch()?;
        for _ in 0..rounds {
            if !self.guest.running() {
                break;
            }
            self.turn()?;
            thread::sleep(PACE);
            if self.guest.chance.percent(5) {
                self.guest.counts.moved.fetch_add(1, Ordering::Relaxed);
                let server = self.guest.chance.below(3);
                self.roamer.go_to(server);
            }
        }
        Ok(())
    }

    fn watch(&mut self) -> Answered<()> {
        for _ in 0..self.guest.chance.below(8) {
            let path = self.own();
            self.ask(op::EXISTS, record().string(&path).flag(true))?;
        }
        if self.guest.chance.percent(30) {
            self.ask(op::ADD_WATCH, record().string(HOME).int(RECURSIVE))?;
        }
        Ok(())
    }

    fn turn(&mut self) -> Answered<()> {
        let path = self.own();
        match self.guest.chance.below(8) {
            0 => self.ask(op::CREATE, create(&path, &[b'x'; 200], 0)),
            1 => self.ask(op::DELETE, record().string(&path).int(-1)),
            2 => self.ask(op::SET_DATA, record().string(&path).buffer(&[b'y'; 500]).int(-1)),
            3 => self.ask(op::GET_DATA, record().string(&path).flag(true)),
            4 => self.ask(op::CREATE, create(&format!("{QUEUE}/q-"), b"q", SEQUENTIAL_EPHEMERAL)),
            5 => self.ask(op::SET_DATA, record().string(SHARED).buffer(b"shared").int(-1)),
            6 => {
                let here = format!("{SHARED}/{}", self.guest.number);
                let steps = [
                    Operation::set(SHARED, b"one", -1),
                    Operation::create(&here, EPHEMERAL),
                    Operation::set(&here, b"two", -1),
                    Operation::delete(&here, -1),
                ];
                self.ask(op::MULTI, request(&steps))
            }
            _ => self.ask(op::GET_CHILDREN, record().string(QUEUE).flag(true)),
        }
        .map(|_| ())
    }

    /// A znode of some guest's own.
    fn own(&mut self) -> String {
        let number = self.guest.number;
        format!("{HOME}/own-{number}-{}", self.guest.chance.below(OWN))
    }

    fn ask(&mut self, opcode: i32, body: Writer) -> Answered<Reply> {
        self.be_there()?;
        let answered = self.roamer.call(opcode, body);
        let counts = &self.guest.counts;
        let counter = if answered.is_ok() { &counts.answered } else { &counts.lost };
        counter.fetch_add(1, Ordering::Relaxed);
        answered
    }

    fn be_there(&mut self) -> Answered<()> {
        let begins = self.roamer.session().is_none();
        loop {
            match self.roamer.connect() {
                Ok(true) => break,
                Ok(false) if self.guest.running() => {}
                Ok(false) => return Err(Trouble::Lost),
                Err(Trouble::Expired { silent }) => {
                    if silent < TIMEOUT {
                        self.guest.counts.violations.fetch_add(1, Ordering::Relaxed);
                    }
                    return Err(Trouble::Expired { silent });
                }
                Err(Trouble::Lost) => return Err(Trouble::Lost),
            }
        }
        if begins {
            self.guest.counts.opened.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Ends the session; false if no server could be told.
    fn close(mut self) -> Answered<bool> {
        let deadline = Instant::now() + TIMEOUT;
        if self.roamer.session().is_none() {
            return Ok(false);
        }
        while !self.roamer.connect()? {
            if Instant::now() > deadline {
                return Ok(false);
            }
        }
        self.roamer.close()?;
        Ok(true)
    }
}
