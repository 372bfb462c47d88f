//! Namespaces: a world of its own for a run, and a network of its own for each machine in it.
//!
//! The world is left to the kernel to clear away: when its first process ends, however it ends,
//! all processes, networks and mounts of the world end with it.

use std::env;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::thread;

use anyhow::{Context, Result, bail};
use rustix::process::geteuid;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tempfile::TempDir;
use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};

/// The flags of `unshare` that make a world: its first process ends with the program that made
/// it, and everything else with its first process.
const WORLD: [&str; 6] =
    ["--net", "--mount", "--pid", "--fork", "--kill-child=SIGKILL", "--mount-proc"];

/// Says to a program that it runs inside a world.
const INSIDE: &str = "ZKSHIM_FAULTS_INSIDE";

/// Whether worlds can be made here; if not, why.
///
/// # Errors
/// The reason, for whoever reads what was not run.
pub fn can_be_made() -> std::result::Result<(), String> {
    let made = world().args(["sh", "-c", "ip link set lo up && test -w /dev/net/tun"]).output();
    match made {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!(
            "network namespaces cannot be made: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
        Err(error) => Err(format!("`unshare` cannot be run: {error}")),
    }
}

/// Whether this program runs inside a world.
#[must_use]
pub fn is_inside() -> bool {
    env::var_os(INSIDE).is_some()
}

/// Runs this program again, with its arguments, inside a world, and gives its exit code.
///
/// # Errors
/// No world can be made.
pub fn run_inside() -> Result<ExitCode> {
    let scratch = TempDir::new().context("make a directory for the world's files")?;
    let mut child = world()
        .arg(env::current_exe().context("find the running program")?)
        .args(env::args_os().skip(1))
        .env(INSIDE, "1")
        .env("TMPDIR", scratch.path())
        .spawn()
        .context("run unshare")?;
    let status = wait(&mut child)?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Waits for the world's end, or ends it when this program is told to end.
fn wait(child: &mut Child) -> Result<ExitStatus> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("make a runtime")?;
    let ended: std::io::Result<Option<ExitStatus>> = runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut tick = tokio::time::interval(std::time::Duration::from_millis(50));
        loop {
            tokio::select! {
                _ = tick.tick() => if let Some(status) = child.try_wait()? {
                    return Ok(Some(status));
                },
                _ = interrupt.recv() => return Ok(None),
                _ = terminate.recv() => return Ok(None),
            }
        }
    });
    match ended.context("wait for the world")? {
        Some(status) => Ok(status),
        None => {
            child.kill().context("end the world")?;
            child.wait().context("wait for the world's end")
        }
    }
}

fn world() -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "unshare"]).args(WORLD);
    if !geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command
}

/// A network namespace inside the world.
#[derive(Debug)]
pub struct Namespace(File);

impl Namespace {
    /// Makes one, with nothing in it but its loopback interface.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn make() -> Result<Self> {
        // Something must live in it until it is opened here.
        let mut child = Command::new("unshare")
            .args(["--net", "sh", "-c", "ip link set lo up && echo up && exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("run unshare")?;
        let mut said = [0; 3];
        let output = child.stdout.as_mut().context("take the output")?;
        output.read_exact(&mut said).context("make a network namespace")?;
        let opened = File::open(format!("/proc/{}/ns/net", child.id()));
        drop(child.stdin.take());
        child.wait().context("wait for unshare")?;
        Ok(Self(opened.context("open a network namespace")?))
    }

    /// Does something inside it: what is opened or started there belongs to it.
    ///
    /// # Errors
    /// What the work gives, or the kernel lets nobody in.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                self.enter()?;
                work()
            });
            match inside.join() {
                Ok(result) => result,
                Err(_) => bail!("the work in a network namespace panicked"),
            }
        })
    }

    /// Moves the calling thread into it, for good.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn enter(&self) -> Result<()> {
        move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))
            .context("enter a network namespace")
    }
}
