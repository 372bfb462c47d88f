//! A server with the embedded store on a small disk, which its clients fill: it must end and say
//! why, and with more room it must have all that it acknowledged.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use crate::conformance::wire::{op, open_acl, record};
use crate::faults::cluster::run as run_program;
use crate::faults::roamer::{Roamer, Trouble};
use crate::servers::process::{Launch, Process, free_port, serves_zookeeper};
use crate::servers::zkshim::binary;

/// The size of one znode.
const DATA_BYTES: usize = 100_000;
/// The disk that it gets in the end.
const ROOMY_BYTES: u64 = 256 << 20;
/// How long a server may take to notice that it cannot write.
const PATIENCE: Duration = Duration::from_secs(60);
const TIMEOUT: Duration = Duration::from_secs(10);

/// What a full disk did.
#[derive(Clone, Debug)]
pub struct Report {
    /// The size of the disk.
    pub disk_bytes: u64,
    /// How many creates of 100 kB were acknowledged before it was full.
    pub acknowledged: usize,
    /// Its exit code.
    pub code: Option<i32>,
    /// The line of the log that says why.
    pub said: String,
    /// Of a start on the disk that was still full: whether it served, or its exit code.
    pub start_on_full: Result<(), Option<i32>>,
    /// What must not be.
    pub violations: Vec<String>,
}

/// Fills a disk of that size, inside a world.
///
/// # Errors
/// The rig itself does not work.
pub fn run(disk_bytes: u64) -> Result<Report> {
    // In a new network even the loopback interface is down.
    run_program("ip", &["link", "set", "lo", "up"])?;
    let directory = TempDir::new().context("make a directory for zkshim")?;
    let disk = directory.path().join("disk");
    std::fs::create_dir(&disk).context("make a place for a disk")?;
    let place = disk.display().to_string();
    let size = format!("size={disk_bytes}");
    run_program("mount", &["-t", "tmpfs", "-o", &size, "disk", &place])?;
    let mut server = start(directory, &disk)?;
    server.wait_until_serving()?;
    let filled = fill(server.address())?;
    let code = ended(&mut server)?;
    let log = server.log();
    let said = log.lines().rfind(|line| line.contains("No space left")).unwrap_or_default();
    let mut report = Report {
        disk_bytes,
        acknowledged: filled.acknowledged.len(),
        code,
        said: said.to_owned(),
        start_on_full: Ok(()),
        violations: Vec::new(),
    };
    report.start_on_full = start_on_full(&mut server, &mut report.violations)?;
    let size = format!("remount,size={ROOMY_BYTES}");
    run_program("mount", &["-o", &size, &place])?;
    server.restart()?;
    check(server.address(), &filled, &mut report.violations)?;
    if code != Some(1) || !said.contains("zkshim.redb") && !said.contains("journal-") {
        report.violations.push(format!("it ended with {code:?} and said {said:?}"));
    }
    Ok(report)
}

fn start(directory: TempDir, disk: &Path) -> Result<Process> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
    let mut command = Command::new(binary()?);
    command
        .arg("serve")
        .arg(format!("--listen={address}"))
        .arg("--store=embedded")
        .arg(format!("--data-dir={}", disk.join("data").display()));
    Process::spawn(Launch { name: "zkshim", address, command, serves: serves_zookeeper }, directory)
}

/// What a client created before the disk was full.
struct Filled {
    acknowledged: BTreeMap<String, Vec<u8>>,
    /// Of this one nobody knows.
    in_doubt: String,
}

/// Creates znodes until the connection is lost.
fn fill(server: SocketAddr) -> Result<Filled> {
    let mut roamer = connected(server)?;
    let mut acknowledged = BTreeMap::new();
    loop {
        let path = format!("/n{:04}", acknowledged.len());
        let data = data(acknowledged.len());
        let body = record().string(&path).buffer(&data).acls(&open_acl()).int(0);
        match roamer.call(op::CREATE, body) {
            Ok(reply) => {
                reply.ok().with_context(|| format!("create {path}"))?;
                acknowledged.insert(path, data);
            }
            Err(Trouble::Lost) => return Ok(Filled { acknowledged, in_doubt: path }),
            Err(Trouble::Expired { .. }) => bail!("the session expired"),
        }
        ensure!(acknowledged.len() < 100_000, "the disk is never full");
    }
}

fn data(number: usize) -> Vec<u8> {
    let mut state = number as u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state.to_be_bytes()[0]
    };
    (0..DATA_BYTES).map(|_| next()).collect()
}

fn connected(server: SocketAddr) -> Result<Roamer> {
    let mut roamer = Roamer::new(vec![server], 0, TIMEOUT);
    let until = Instant::now() + PATIENCE;
    while !matches!(roamer.connect(), Ok(true)) {
        ensure!(Instant::now() < until, "{server} takes no client");
    }
    Ok(roamer)
}

fn ended(server: &mut Process) -> Result<Option<i32>> {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = server.poll_exit()? {
            return Ok(status.code());
        }
        ensure!(Instant::now() < until, "it goes on without a disk");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Starts it while the disk is still full. It may serve, since nothing need be written to read;
/// if it does not, it ends and says why.
fn start_on_full(
    server: &mut Process,
    violations: &mut Vec<String>,
) -> Result<Result<(), Option<i32>>> {
    let before = server.log().len();
    server.spawn_again()?;
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        if let Some(status) = server.poll_exit()? {
            let log = server.log();
            let said = log.get(before..).unwrap_or_default();
            if status.code() != Some(1) || !said.contains("No space left") {
                violations.push(format!("started on a full disk: {status}, and said {said:?}"));
            }
            return Ok(Err(status.code()));
        }
        if serves_zookeeper(server.address()) {
            server.kill()?;
            return Ok(Ok(()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    violations.push("started on a full disk, it neither serves nor ends".to_owned());
    server.kill()?;
    Ok(Err(None))
}

/// All that was acknowledged is there and whole; of what is in doubt, all or nothing.
fn check(
    server: SocketAddr,
    Filled { acknowledged, in_doubt }: &Filled,
    violations: &mut Vec<String>,
) -> Result<()> {
    let mut roamer = connected(server)?;
    let mut found = |path: &str| -> Result<Option<Vec<u8>>> {
        let reply = roamer.call(op::GET_DATA, record().string(path).flag(false));
        let reply = reply.map_err(|trouble| anyhow::anyhow!("read {path}: {trouble:?}"))?;
        Ok(reply.data_and_stat().ok().and_then(|(data, _)| data))
    };
    for (path, data) in acknowledged {
        if found(path)?.as_ref() != Some(data) {
            violations.push(format!("{path} was acknowledged and is not there, or not whole"));
        }
    }
    if found(in_doubt)?.is_some_and(|there| there != data(acknowledged.len())) {
        violations.push(format!("{in_doubt} was in doubt and is there in part"));
    }
    // And it takes writes again.
    let body = record().string("/more").buffer(b"").acls(&open_acl()).int(0);
    let made = roamer.call(op::CREATE, body);
    if !made.as_ref().is_ok_and(|reply| reply.error == 0) {
        violations.push(format!("with room again it does not take a write: {made:?}"));
    }
    Ok(())
}
