//! Real faults: three etcd members and three zkshim in network namespaces, under load, while
//! processes die and pause and networks split.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;

use compat_tests::faults::cluster::Settings;
use compat_tests::faults::embedded::{full_disk, kills};
use compat_tests::faults::holders::Client;
use compat_tests::faults::kind::Kind;
use compat_tests::faults::namespace;
use compat_tests::faults::recovery::table;
use compat_tests::faults::run::{Plan, run};
use compat_tests::faults::soak;

/// Runs three etcd members and three zkshim in network namespaces, with clients, and breaks one
/// thing after the other. Ends with a table of the times until the clients worked again.
///
/// Needs root, or a kernel that lets users make namespaces, and `unshare`, `setpriv` and `ip`.
#[derive(Debug, Parser)]
#[command(name = "zk-faults")]
struct Cli {
    /// Decides the order of the faults and whom they strike.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How long to begin new faults.
    #[arg(long, value_name = "N", default_value_t = 10)]
    minutes: u64,
    /// Each kind so many times, in a random order; else any kind, until the time is over.
    #[arg(long, value_name = "COUNT")]
    rounds: Option<usize>,
    /// The kinds to choose from, separated by commas; all of them by default.
    #[arg(long, value_name = "KIND,KIND", value_delimiter = ',')]
    kinds: Vec<Kind>,
    /// Clients of others that hold locks and ephemerals throughout.
    #[arg(long, value_name = "CLIENT,CLIENT", value_delimiter = ',')]
    clients: Vec<Client>,
    /// etcd's --quota-backend-bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20)]
    quota_bytes: u64,
    /// Leave the servers' logs there.
    #[arg(long, value_name = "DIRECTORY")]
    logs: Option<PathBuf>,
    /// A fault every few seconds under sessions that come and go, while memory and all that could
    /// be left behind is watched; --rounds, --kinds and --clients do not matter then.
    #[arg(long)]
    soak: bool,
    /// Instead of all that, kill one server with the embedded store so many times under load; of
    /// the other options only --seed matters then, and no namespaces are needed.
    #[arg(long, value_name = "COUNT", conflicts_with = "soak")]
    embedded_kills: Option<usize>,
    /// Instead of all that, fill the disk under the embedded store; of disks of several sizes.
    #[arg(long, conflicts_with_all = ["soak", "embedded_kills"])]
    embedded_full_disk: bool,
}

/// Between these a disk is full at different moments: a journal grows, or the pages do.
const DISKS_MIB: [u64; 5] = [20, 22, 24, 27, 31];

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.embedded_kills {
        Some(count) => embedded_kills(cli.seed, count),
        None if namespace::is_inside() => inside(&cli),
        None => outside(&cli),
    };
    done.unwrap_or_else(|error| {
        eprintln!("zk-faults: {error:#}");
        ExitCode::from(2)
    })
}

fn outside(cli: &Cli) -> Result<ExitCode> {
    namespace::can_be_made().map_err(anyhow::Error::msg)?;
    compat_tests::faults::cluster::fetch()?;
    cli.clients.iter().try_for_each(|client| client.fetch())?;
    namespace::run_inside()
}

fn inside(cli: &Cli) -> Result<ExitCode> {
    if cli.embedded_full_disk {
        return embedded_full_disk();
    }
    let mut kinds = if cli.kinds.is_empty() { Kind::all().to_vec() } else { cli.kinds.clone() };
    if cli.kinds.is_empty() && !cli.clients.is_empty() {
        // Locks that are held from the beginning may go with a restore.
        kinds.retain(|kind| !kind.is_restore());
    }
    let settings = Settings { seed: cli.seed, quota_bytes: cli.quota_bytes, ..Settings::default() };
    let time = Duration::from_secs(60 * cli.minutes);
    if cli.soak {
        return soak(soak::run(cli.seed, time, settings)?);
    }
    let (seed, rounds, clients) = (cli.seed, cli.rounds, cli.clients.clone());
    let logs = cli.logs.clone();
    let plan = Plan { seed, kinds, rounds, time, clients, settings, logs };
    let report = run(&plan)?;
    println!("\n{}", table(&report.recoveries));
    println!(
        "{} faults, {} writes acknowledged, the lock held {} times, {} recorded answers, \
         {} violations",
        report.recoveries.len(),
        report.writes,
        report.holds,
        report.answered,
        report.violations.len()
    );
    Ok(ended(&report.violations))
}

fn embedded_kills(seed: u64, count: usize) -> Result<ExitCode> {
    let report = kills::run(seed, count)?;
    for (moment, (kills, as_meant)) in &report.kills {
        println!("{moment:?}: {kills} kills, {as_meant} of them at the moment meant");
    }
    let (kills, writes) = (count, report.writes);
    println!("{kills} kills, {writes} writes, {} violations", report.violations.len());
    Ok(ended(&report.violations))
}

fn embedded_full_disk() -> Result<ExitCode> {
    let mut violations = Vec::new();
    for mib in DISKS_MIB {
        let report = full_disk::run(mib << 20)?;
        println!(
            "{mib} MiB: {} creates of 100 kB acknowledged, ended with {:?}, started on the full \
             disk: {:?}\n    {}",
            report.acknowledged, report.code, report.start_on_full, report.said
        );
        violations.extend(report.violations.into_iter().map(|text| format!("{mib} MiB: {text}")));
    }
    println!("{} disks, {} violations", DISKS_MIB.len(), violations.len());
    Ok(ended(&violations))
}

fn ended(violations: &[String]) -> ExitCode {
    violations.iter().for_each(|violation| println!("VIOLATION: {violation}"));
    if violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn soak(report: soak::Report) -> Result<ExitCode> {
    let faults = report.faults.iter().map(|(kind, count)| format!("{count} {}", kind.name()));
    println!("{}", faults.collect::<Vec<_>>().join(", "));
    println!("{}; {} leaks", report.counts, report.leaks.len());
    for leak in &report.leaks {
        println!("LEAK: {leak}");
    }
    Ok(if report.leaks.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
