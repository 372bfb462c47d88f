//! Clients that ask for too much, and one beside them that must not feel it.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};

use crate::conformance::client::Client;
use crate::conformance::session::ConnectRequest;
use crate::conformance::wire::{op, open_acl, record};
use crate::servers::process::ask;
use crate::servers::zkshim::{Zkshim, ZkshimOptions};

/// Between two looks at the memory.
const LOOK: Duration = Duration::from_millis(20);
/// How long a count may take to become what it should be.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the bystander may wait for one answer: long for a test, short for a session.
const BYSTANDER_WAITS: Duration = Duration::from_secs(15);

/// A zkshim whose memory is watched.
pub struct Watched {
    server: Zkshim,
    peak_kib: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    looking: Option<JoinHandle<()>>,
}

impl Watched {
    /// Starts it.
    ///
    /// # Errors
    /// It does not serve.
    pub fn start(options: &ZkshimOptions) -> Result<Self> {
        let server = Zkshim::start(options)?;
        let (peak_kib, stop) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let looking = thread::spawn({
            let (pid, peak_kib, stop) = (server.pid(), Arc::clone(&peak_kib), Arc::clone(&stop));
            move || {
                while !stop.load(Ordering::Relaxed) {
                    peak_kib.fetch_max(resident_kib(pid), Ordering::Relaxed);
                    sleep(LOOK);
                }
            }
        });
        Ok(Self { server, peak_kib, stop, looking: Some(looking) })
    }

    /// It never took more memory than so many MiB.
    ///
    /// # Errors
    /// It did.
    pub fn stayed_below(&self, mib: u64) -> Result<()> {
        let peak = self.peak_kib.load(Ordering::Relaxed) / 1024;
        println!("at most {peak} MiB of {mib}");
        ensure!(peak > 0, "the memory was never looked at");
        ensure!(peak < mib, "{peak} MiB, and {mib} were allowed");
        Ok(())
    }

    /// Waits until a figure of `mntr` is not above this.
    ///
    /// # Errors
    /// It stays above.
    pub fn counts(&self, figure: &str, most: u64) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let text = ask(self.server.address(), b"mntr");
            let line = text.lines().find_map(|line| line.strip_prefix(figure));
            let value = line.and_then(|line| line.trim().parse::<u64>().ok());
            if value.is_some_and(|value| value <= most) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{figure} is {value:?}, and should be {most}");
            sleep(Duration::from_millis(100));
        }
    }
}

impl Deref for Watched {
    type Target = Zkshim;

    fn deref(&self) -> &Zkshim {
        &self.server
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(looking) = self.looking.take() {
            // It only reads; if it has panicked, there is no peak, which is noticed.
            let _ = looking.join();
        }
    }
}

fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// A client that counts upwards in a znode of its own, and reads what it has written.
pub struct Bystander {
    stop: Arc<AtomicBool>,
    working: JoinHandle<Result<()>>,
}

/// The bystander's znode.
pub const BYSTANDER: &str = "/bystander";

impl Bystander {
    /// Starts it.
    ///
    /// # Errors
    /// The server takes no client.
    pub fn start(server: SocketAddr) -> Result<Self> {
        let mut client = Client::connect(server, &ConnectRequest::default(), 0, None)?;
        let body = record().string(BYSTANDER).buffer(b"0").acls(&open_acl()).int(0);
        client.call(op::CREATE, body)?.ok()?;
        let stop = Arc::<AtomicBool>::default();
        let working = thread::spawn({
            let stop = Arc::clone(&stop);
            move || count(&mut client, &stop)
        });
        Ok(Self { stop, working })
    }

    /// It was served in order and without a long wait, and still is.
    ///
    /// # Errors
    /// It was not.
    pub fn finish(self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        self.working
            .join()
            .map_err(|_| anyhow!("the bystander has panicked"))?
            .context("the bystander")
    }
}

fn count(client: &mut Client, stop: &AtomicBool) -> Result<()> {
    let mut version = 0;
    loop {
        let last = stop.load(Ordering::Relaxed);
        let begun = Instant::now();
        let text = (version + 1).to_string();
        let set = client.set_data(BYSTANDER, text.as_bytes(), version)?.stat()?;
        ensure!(set.version == version + 1, "version {} after {version}", set.version);
        let (data, _) = client.get_data(BYSTANDER, false)?.data_and_stat()?;
        ensure!(data.as_deref() == Some(text.as_bytes()), "{data:?} after {text}");
        ensure!(begun.elapsed() < BYSTANDER_WAITS, "served after {:?}", begun.elapsed());
        if last {
            return Ok(());
        }
        version += 1;
        sleep(Duration::from_millis(5));
    }
}

/// Connections that send and do not read.
pub struct Flood {
    streams: Vec<TcpStream>,
}

impl Flood {
    /// Opens so many connections and sends the same on each, as far as the server takes it.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub fn open(server: &Watched, count: usize, bytes: &[u8]) -> Result<Self> {
        let mut streams = Vec::new();
        for _ in 0..count {
            let mut stream = TcpStream::connect(server.address()).context("connect")?;
            stream.set_write_timeout(Some(Duration::from_secs(5))).context("set a timeout")?;
            // Closed early, or taken in part: that is for the test to find out.
            let _ = stream.write_all(bytes);
            streams.push(stream);
        }
        Ok(Self { streams })
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// Sends more on the first. False: it was not taken within this time.
    pub fn send(&mut self, bytes: &[u8], within: Duration) -> bool {
        let Some(stream) = self.streams.first_mut() else { return false };
        stream.set_write_timeout(Some(within)).is_ok() && stream.write_all(bytes).is_ok()
    }

    /// How many the server closes within this time for each.
    ///
    /// # Errors
    /// The system refuses to read.
    pub fn closed(&mut self, within: Duration) -> Result<usize> {
        let mut closed = 0;
        for stream in &mut self.streams {
            closed += usize::from(is_closed(stream, within)?);
        }
        Ok(closed)
    }

    /// As [`Self::closed`], for all of them together.
    ///
    /// # Errors
    /// The system refuses to read.
    pub fn closed_some(&mut self, within: Duration) -> Result<usize> {
        sleep(within);
        self.closed(Duration::from_millis(1))
    }

    /// Whether there are so many answers on all connections together.
    ///
    /// # Errors
    /// A connection ends before.
    pub fn answered(&mut self, count: usize) -> Result<bool> {
        let each = count / self.streams.len().max(1);
        for stream in &mut self.streams {
            stream.set_read_timeout(Some(PATIENCE)).context("set a timeout")?;
            for _ in 0..each {
                let mut length = [0; 4];
                stream.read_exact(&mut length).context("read an answer")?;
                let mut body = vec![0; usize::try_from(u32::from_be_bytes(length))?];
                stream.read_exact(&mut body).context("read an answer")?;
            }
        }
        Ok(true)
    }
}

fn is_closed(stream: &mut TcpStream, within: Duration) -> Result<bool> {
    let deadline = Instant::now() + within;
    let mut unread = vec![0; 1 << 16];
    while Instant::now() < deadline {
        stream.set_read_timeout(Some(within)).context("set a timeout")?;
        match stream.read(&mut unread) {
            Ok(0) => return Ok(true),
            Ok(_) => {}
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => {}
                ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => return Ok(true),
                _ => return Err(error).context("read"),
            },
        }
    }
    Ok(false)
}
