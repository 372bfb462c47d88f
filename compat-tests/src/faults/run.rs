//! A run: servers, load, one fault after the other, and the judgement.

use std::env;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};

use crate::differential::chance::Chance;
use crate::faults::admin::Admin;
use crate::faults::checks::{judge, read};
use crate::faults::cluster::{Cluster, Settings, shim_addresses};
use crate::faults::holders::{Client, Holders};
use crate::faults::inject::{make, mend};
use crate::faults::kind::{Kind, Since};
use crate::faults::load::{Load, WRITER_TIMEOUT, prepare};
use crate::faults::record::{Life, Record};
use crate::faults::recovery::{Recovery, clients_of, seconds};
use crate::history::check::check;
use crate::history::record::History;
use crate::history::workload::{Running, Workload};

/// How long after a fault was mended every client must work again, whatever it was.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long is watched after all work again.
const AFTERMATH: Duration = Duration::from_secs(2);
/// How long the clients have to go back to their shims.
const SETTLING: Duration = Duration::from_secs(1);
/// The clients whose every answer is recorded, and how long each pauses between two turns.
const HISTORY_CLIENTS: usize = 6;
const HISTORY_PACE: Duration = Duration::from_millis(25);
/// A history is judged after so many faults, and another one begun: to judge one takes time that
/// grows faster than the history.
const HISTORY_FAULTS: usize = 4;
/// A shim that was cut off has so long beyond half of a timeout until it is seen to have cut.
const CUT_SLACK: Duration = Duration::from_millis(1500);

/// A session of a minute that nobody has is gone after this.
const LEASES_MAX: Duration = Duration::from_secs(150);

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Decides the order of faults and whom they strike.
    pub seed: u64,
    /// The kinds to choose from.
    pub kinds: Vec<Kind>,
    /// Each kind so many times, in a random order; else, until the time is over, any.
    pub rounds: Option<usize>,
    /// When to begin no further fault.
    pub time: Duration,
    /// Clients of others that hold locks throughout.
    pub clients: Vec<Client>,
    /// Of the servers.
    pub settings: Settings,
    /// Where to leave the servers' logs, if they are wanted.
    pub logs: Option<PathBuf>,
}

/// What a run showed.
#[derive(Debug)]
pub struct Report {
    /// By fault.
    pub recoveries: Vec<Recovery>,
    /// What must not be.
    pub violations: Vec<String>,
    /// How many writes were acknowledged.
    pub writes: usize,
    /// How many times the lock was held.
    pub holds: usize,
    /// How many answers the recorded history has.
    pub answered: u64,
}

/// Runs a plan, inside a world.
///
/// # Errors
/// The rig itself does not work; what the servers do wrong is in the report.
pub fn run(plan: &Plan) -> Result<Report> {
    let restores = plan.kinds.iter().any(|kind| kind.is_restore());
    ensure!(!restores || plan.clients.is_empty(), "a restore may take locks of others along");
    let mut cluster = Cluster::start(plan.settings.clone())?;
    let admin = Admin::new()?;
    prepare(&shim_addresses())?;
    let record = Arc::new(Record::default());
    let machines: Vec<_> = cluster.clients.iter().map(Some).collect();
    let load = Load::start(&machines, &shim_addresses(), &record, 0)?;
    let holders = plan.clients.iter().map(|client| Holders::start(*client, &cluster));
    let holders = holders.collect::<Result<Vec<_>>>()?;
    let recoveries = faults(plan, &mut cluster, &admin, &record, &load);
    holders.into_iter().try_for_each(|holders| holders.finish(&record))?;
    load.stop();
    if let Some(directory) = &plan.logs {
        keep_logs(&cluster, directory)?;
    }
    if recoveries.is_err() {
        logs(&cluster);
    }
    let (recoveries, answered) = recoveries?;
    if restores {
        wait_for_leases(&record)?;
    }
    let mut endings = Vec::new();
    for server in shim_addresses() {
        endings.push(read(server)?);
    }
    if let Some(first) = endings.first() {
        judge(&record, first);
        if endings.iter().any(|ending| ending != first) {
            record.violation("the shims do not end with the same tree".to_owned());
        }
    }
    let (violations, writes, holds) = record.with(|told| {
        let lives = told.lives.values();
        let writes = lives.map(|life| life.writes_acknowledged.len()).sum();
        (std::mem::take(&mut told.violations), writes, told.holds.len())
    });
    if !violations.is_empty() {
        logs(&cluster);
    }
    Ok(Report { recoveries, violations, writes, holds, answered })
}

/// Sessions that a restore has brought back and that nobody has any more end by their leases.
fn wait_for_leases(record: &Record) -> Result<()> {
    let until = Instant::now() + LEASES_MAX;
    let server = *shim_addresses().first().context("there are shims")?;
    while record.with(|told| !told.restores.is_empty())
        && Instant::now() < until
        && !read(server)?.left.is_empty()
    {
        sleep(Duration::from_secs(1));
    }
    Ok(())
}

/// The load whose every answer is recorded, from the first machine of clients.
struct Recorded<'a> {
    record: &'a Record,
    running: Option<Running>,
    answered: u64,
}

impl Recorded<'_> {
    /// Begins one, if there is none.
    fn begin(&mut self, chance: &mut Chance, cluster: &Cluster) -> Result<()> {
        if self.running.is_some() {
            return Ok(());
        }
        let mut workload = Workload::new(shim_addresses(), chance.bits());
        workload.clients = HISTORY_CLIENTS;
        workload.session_timeout = WRITER_TIMEOUT;
        workload.pace = HISTORY_PACE;
        let machine = cluster.clients.first().context("there are machines of clients")?;
        // Its thread is born in the namespace of the thread that starts it.
        self.running = Some(machine.within(|| workload.start())?);
        Ok(())
    }

    /// Ends it, if there is one, and judges it.
    fn end(&mut self) -> Result<()> {
        let Some(running) = self.running.take() else { return Ok(()) };
        self.answered += running.answered();
        judge_history(&running.stop()?, self.record)
    }
}

fn judge_history(history: &History, record: &Record) -> Result<()> {
    let verdict = check(history);
    println!("{verdict}");
    if verdict.is_clean() {
        return Ok(());
    }
    let file = env::current_dir()?.join(format!("faults-{}.history", history.run.seed));
    history.save(&file)?;
    record.violation(format!("the history in {} is not clean", file.display()));
    verdict.violations.iter().for_each(|violation| record.violation(format!("{violation:?}")));
    Ok(())
}

fn faults(
    plan: &Plan,
    cluster: &mut Cluster,
    admin: &Admin,
    record: &Record,
    load: &Load,
) -> Result<(Vec<Recovery>, u64)> {
    let mut chance = Chance::new(plan.seed);
    let mut waiting = Vec::new();
    for _ in 0..plan.rounds.unwrap_or(0) {
        waiting.extend(plan.kinds.iter().copied());
    }
    let end = Instant::now() + plan.time;
    let mut recoveries = Vec::new();
    all_work(record, Instant::now())?;
    let mut recorded = Recorded { record, running: None, answered: 0 };
    recorded.begin(&mut chance, cluster)?;
    while Instant::now() < end {
        let kind = match plan.rounds {
            Some(_) if waiting.is_empty() => break,
            Some(_) => waiting.swap_remove(chance.below(waiting.len())),
            None => chance.pick(&plan.kinds),
        };
        if kind.is_restore() {
            // What that takes back is judged by the other clients: a history has no word for it.
            recorded.end()?;
        }
        recoveries.push(fault(kind, cluster, admin, record, &mut chance)?);
        load.call_home();
        sleep(SETTLING);
        if recoveries.len() % HISTORY_FAULTS == 0 {
            recorded.end()?;
        }
        recorded.begin(&mut chance, cluster)?;
    }
    recorded.end()?;
    Ok((recoveries, recorded.answered))
}

fn fault(
    kind: Kind,
    cluster: &mut Cluster,
    admin: &Admin,
    record: &Record,
    chance: &mut Chance,
) -> Result<Recovery> {
    let on_each: Vec<(SocketAddr, Vec<usize>)> = shim_addresses()
        .into_iter()
        .map(|address| (address, clients_of(record, address)))
        .collect();
    let fault = make(cluster, admin, kind, chance)?;
    let struck_at = time_of_day(fault.at);
    let since_fault = fault.at;
    sleep(kind.lasts());
    if let Some(kept) = fault.keeps() {
        record.restored(kept);
    }
    mend(cluster, admin, &fault)?;
    let mended = Instant::now();
    let since = match kind.since() {
        Since::Fault => since_fault,
        Since::Mended => mended,
    };
    all_work(record, mended)?;
    all_serve(cluster, mended)?;
    sleep(AFTERMATH);
    let struck = on_each.iter().find(|(address, _)| {
        fault
            .victim
            .strip_prefix("shim ")
            .is_some_and(|index| address.ip().to_string().ends_with(&format!(".2{index}")))
    });
    let on_struck = struck.map(|(_, clients)| clients.as_slice()).unwrap_or_default();
    let recovery = Recovery::read(record, kind, (since_fault, since, Instant::now()), on_struck);
    say(&struck_at, &fault.victim, &recovery);
    check_cuts(record, &recovery, on_struck.len());
    if kind.is_restore() {
        check_told(record, &recovery, since_fault);
    }
    Ok(recovery)
}

/// Whoever was connected when etcd was set back is cut, or told that the session has ended.
fn check_told(record: &Record, recovery: &Recovery, fault: Instant) {
    let untold: Vec<usize> = record.with(|told| {
        let is_told = |life: &Life| {
            !life.losses_within(fault, Instant::now()).is_empty()
                || life.expiries.iter().any(|expiry| *expiry >= fault)
        };
        let lives = told.lives.iter().filter(|(_, life)| !is_told(life));
        lives.map(|(number, _)| *number).collect()
    });
    if !untold.is_empty() {
        let kind = recovery.kind.name();
        record.violation(format!("{kind}: clients {untold:?} were not told of it"));
    }
}

/// A shim that has lost etcd cuts all its clients, within half of their timeouts.
fn check_cuts(record: &Record, recovery: &Recovery, clients: usize) {
    if !matches!(recovery.kind, Kind::ShimCut | Kind::ShimDeaf | Kind::ShimMute) {
        return;
    }
    if recovery.cut_after.len() < clients {
        record.violation(format!(
            "{}: of {clients} clients of the shim only {} were cut",
            recovery.kind.name(),
            recovery.cut_after.len()
        ));
    }
    for (timeout, after) in &recovery.cut_after {
        if *after > (*timeout / 2).min(Duration::from_secs(10)) + CUT_SLACK {
            record.violation(format!(
                "{}: a client with a timeout of {timeout:?} was cut after {after:?}",
                recovery.kind.name()
            ));
        }
    }
}

/// The time in UTC, as in the servers' logs.
fn time_of_day(at: Instant) -> String {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let of_day = since_1970.saturating_sub(at.elapsed()).as_millis() % 86_400_000;
    let (seconds, ms) = (of_day / 1000, of_day % 1000);
    format!("{:02}:{:02}:{:02}.{ms:03}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

fn say(struck_at: &str, victim: &str, recovery: &Recovery) {
    let mut again = recovery.works_again.clone();
    again.sort_unstable();
    let again: Vec<_> = again.into_iter().map(seconds).collect();
    let cut: Vec<_> = recovery
        .cut_after
        .iter()
        .map(|(timeout, after)| format!("{}s:{}", timeout.as_secs(), seconds(*after)))
        .collect();
    println!(
        "{struck_at} {:18} {victim:24} again after {} | longest write {} | cut {} ({} of 60 s) {} | expired {}",
        recovery.kind.name(),
        again.join(" "),
        seconds(recovery.longest_write),
        recovery.cut,
        recovery.cut_long,
        cut.join(" "),
        recovery.expired,
    );
}

/// Waits until each client has a write that began after this moment, or is connected if it does
/// not write.
fn all_work(record: &Record, since: Instant) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let idle: Vec<usize> = record.with(|told| {
            let works = |life: &Life| match life.writes {
                true => life.works_again(since).is_some(),
                false => life.server.is_some(),
            };
            let lives = told.lives.iter().filter(|(_, life)| !works(life));
            lives.map(|(number, _)| *number).collect()
        });
        if idle.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("clients {idle:?} do not work again within {PATIENCE:?}");
        }
        sleep(Duration::from_millis(20));
    }
}

/// Waits until each server serves again by itself.
fn all_serve(cluster: &mut Cluster, since: Instant) -> Result<()> {
    for server in cluster.members.iter_mut().chain(&mut cluster.shims) {
        server.process.wait_until_serving()?;
    }
    let took = since.elapsed();
    if took > PATIENCE {
        bail!("the servers serve again only after {took:?}");
    }
    Ok(())
}

fn keep_logs(cluster: &Cluster, directory: &Path) -> Result<()> {
    fs::create_dir_all(directory).context("make a directory for logs")?;
    for (kind, servers) in [("shim", &cluster.shims), ("member", &cluster.members)] {
        for (index, server) in servers.iter().enumerate() {
            let file = directory.join(format!("{kind}-{index}.log"));
            fs::write(&file, server.process.log()).context("write a log")?;
        }
    }
    Ok(())
}

/// What the shims have to say, for whoever looks for the reason.
fn logs(cluster: &Cluster) {
    for shim in &cluster.shims {
        let log = shim.process.log();
        let lines: Vec<_> = log.lines().collect();
        let tail = lines.len().saturating_sub(60);
        eprintln!(
            "--- {:?} ---\n{}",
            shim.machine,
            lines.get(tail..).unwrap_or_default().join("\n")
        );
    }
}
