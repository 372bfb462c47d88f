//! One server process: start, wait until it serves, signals, and its log.
//!
//! It does not know what kind of server it runs.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tempfile::TempDir;

/// How long a server may take until it serves; generous, because machines of tests are loaded.
const START_TIMEOUT: Duration = Duration::from_secs(90);
/// How long a server may take to end after SIGTERM.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
const LOG_TAIL_LINES: usize = 120;

/// What is needed to start a server, and to start it again on the same port and files.
pub struct Launch {
    /// The name in messages.
    pub name: &'static str,
    /// Where clients connect.
    pub address: SocketAddr,
    /// Program and arguments, without the standard streams.
    pub command: Command,
    /// Whether the server at the address serves.
    pub serves: fn(SocketAddr) -> bool,
}

/// A running (or killed) server with its temporary directory and log.
pub struct Process {
    launch: Launch,
    child: Child,
    log: PathBuf,
    exit: Option<ExitStatus>,
    _directory: TempDir,
}

impl Process {
    /// Starts the server and waits until it serves.
    ///
    /// # Errors
    /// It cannot be run, ends at once, or does not serve in time; the message has its log.
    pub fn start(launch: Launch, directory: TempDir) -> Result<Self> {
        let mut process = Self::spawn(launch, directory)?;
        process.wait_until_serving()?;
        Ok(process)
    }

    /// Starts the server without waiting for it.
    ///
    /// # Errors
    /// It cannot be run.
    pub fn spawn(mut launch: Launch, directory: TempDir) -> Result<Self> {
        let log = directory.path().join("log");
        let child = spawn_logged(&mut launch, &log)?;
        Ok(Self { launch, child, log, exit: None, _directory: directory })
    }

    /// Waits until the server serves.
    ///
    /// # Errors
    /// It ended, or does not serve in time; the message has its log.
    pub fn wait_until_serving(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        while !(self.launch.serves)(self.launch.address) {
            if let Some(status) = self.poll_exit()? {
                bail!("{} ended at start with {status}\n{}", self.launch.name, self.log_tail());
            }
            if Instant::now() > deadline {
                bail!("{} does not serve\n{}", self.launch.name, self.log_tail());
            }
            sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.launch.address
    }

    /// The process id, for measuring it.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What follows a prefix (`--name=`) in the first of its arguments that has it.
    #[must_use]
    pub fn argument(&self, prefix: &str) -> Option<String> {
        let texts = self.launch.command.get_args().filter_map(|argument| argument.to_str());
        texts.filter_map(|text| text.strip_prefix(prefix)).map(str::to_owned).next()
    }

    /// Everything that the server wrote to its standard streams.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read(&self.log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Ends the server at once (SIGKILL), as a crash would.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn kill(&mut self) -> Result<()> {
        if self.exit.is_none() {
            self.child.kill().context("kill the server")?;
            self.exit = Some(self.child.wait().context("wait for the killed server")?);
        }
        Ok(())
    }

    /// Asks the server to end (SIGTERM) and waits for it.
    ///
    /// # Errors
    /// It is not there any more, or does not end in time.
    pub fn stop(&mut self) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        let deadline = Instant::now() + STOP_TIMEOUT;
        loop {
            if let Some(status) = self.poll_exit()? {
                return Ok(status);
            }
            if Instant::now() > deadline {
                bail!("{} does not end on SIGTERM\n{}", self.launch.name, self.log_tail());
            }
            sleep(Duration::from_millis(20));
        }
    }

    /// Freezes the process (SIGSTOP): its sockets stay open and silent.
    ///
    /// # Errors
    /// It is not there any more.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)?;
        // The signal reaches the threads one by one; what follows relies on all being still.
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(Pid::from_child(&self.child)), stopped).context("wait for the stop")?;
        Ok(())
    }

    /// Lets a paused process go on (SIGCONT).
    ///
    /// # Errors
    /// It is not there any more.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Starts a killed or stopped server again, on the same port and files, and waits for it.
    ///
    /// # Errors
    /// It still runs, or does not serve again.
    pub fn restart(&mut self) -> Result<()> {
        self.spawn_again()?;
        self.wait_until_serving()
    }

    /// As [`Process::restart`], without waiting until it serves.
    ///
    /// # Errors
    /// It still runs, or cannot be run again.
    pub fn spawn_again(&mut self) -> Result<()> {
        if self.exit.is_none() {
            bail!("{} still runs", self.launch.name);
        }
        self.child = spawn_logged(&mut self.launch, &self.log)?;
        self.exit = None;
        Ok(())
    }

    /// The exit status if the process has ended.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn poll_exit(&mut self) -> Result<Option<ExitStatus>> {
        if self.exit.is_none() {
            self.exit = self.child.try_wait().context("wait for the server")?;
        }
        Ok(self.exit)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        if let Some(status) = self.exit {
            bail!("{} has ended with {status}", self.launch.name);
        }
        kill_process(Pid::from_child(&self.child), signal)
            .with_context(|| format!("send {signal:?} to {}", self.launch.name))
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines.len().saturating_sub(LOG_TAIL_LINES);
        format!("--- last lines of {} ---\n{}", self.launch.name, lines[tail..].join("\n"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let crashed = self
            .poll_exit()
            .ok()
            .flatten()
            .filter(|status| !status.success() && !matches!(status.signal(), Some(9 | 15)));
        if std::thread::panicking() || crashed.is_some() {
            eprintln!("{}", self.log_tail());
        }
        if let Err(error) = self.kill() {
            eprintln!("{} (pid {}) is left: {error:#}", self.launch.name, self.pid());
        }
    }
}

/// A port of the loopback interface that nobody uses now; never the same twice in one process.
///
/// # Errors
/// The system has none.
pub fn free_port() -> Result<u16> {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let mut given = GIVEN.lock().expect("nothing panics under this lock");
    loop {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("find a free port")?;
        let port = listener.local_addr().context("read the free port")?.port();
        if given.insert(port) {
            return Ok(port);
        }
    }
}

/// Starts up to three times with new ports: another process may take a free port first.
///
/// # Errors
/// The last attempt's.
pub fn retry_start<T>(mut start: impl FnMut() -> Result<T>) -> Result<T> {
    let mut result = start();
    for _ in 0..2 {
        match &result {
            Err(error) if format!("{error:#}").contains("in use") => result = start(),
            _ => break,
        }
    }
    result
}

/// Sends bytes and reads all that comes until the peer closes; empty if it cannot be reached.
#[must_use]
pub fn ask(address: SocketAddr, question: &[u8]) -> String {
    let timeout = Duration::from_secs(2);
    let mut answer = Vec::new();
    if let Ok(mut stream) = TcpStream::connect_timeout(&address, timeout) {
        let sent = stream.set_read_timeout(Some(timeout)).and_then(|()| stream.write_all(question));
        if sent.is_ok() {
            // What came before an error (a reset after the answer) is still the answer.
            let _ = stream.read_to_end(&mut answer);
        }
    }
    String::from_utf8_lossy(&answer).into_owned()
}

/// Whether a ZooKeeper, or something that passes for one, serves at the address.
#[must_use]
pub fn serves_zookeeper(address: SocketAddr) -> bool {
    ask(address, b"srvr").contains("Mode:")
}

fn spawn_logged(launch: &mut Launch, log: &Path) -> Result<Child> {
    let output = File::options().create(true).append(true).open(log).context("open the log")?;
    let errors = output.try_clone().context("share the log")?;
    launch
        .command
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .spawn()
        .with_context(|| format!("run {} ({:?})", launch.name, launch.command.get_program()))
}
