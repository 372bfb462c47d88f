//! Puts recorded load on servers and judges what their clients saw; also judges what was recorded
//! before.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Parser;

use compat_tests::clients::under_test::{Against, UnderTest};
use compat_tests::differential::chance::Chance;
use compat_tests::history::check::check;
use compat_tests::history::record::History;
use compat_tests::history::workload::{Running, Workload};

/// Puts recorded load on servers of one tree, whatever happens to them meanwhile, and checks that
/// no promise was broken: linearizable writes and synced reads, one order of zxids, watches,
/// locks, ephemerals.
#[derive(Debug, Parser)]
#[command(name = "zk-history")]
struct Cli {
    /// The servers, all of one tree.
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    server: Vec<SocketAddr>,
    /// Start servers to put load on.
    #[arg(long, value_enum, conflicts_with = "server")]
    start: Option<Start>,
    /// Kill or freeze one of the servers that were started, about so often; 0 is never.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "start")]
    trouble_every_seconds: u64,
    /// The seed of what the clients do.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How long they do it.
    #[arg(long, value_name = "N", default_value_t = 10)]
    seconds: u64,
    /// How many clients there are.
    #[arg(long, value_name = "N", default_value_t = 8)]
    clients: usize,
    /// The session timeout that they ask for.
    #[arg(long, value_name = "MS", default_value_t = 6000)]
    session_timeout_ms: u64,
    /// How long a client waits between two turns, on average.
    #[arg(long, value_name = "US", default_value_t = 5000)]
    pace_us: u64,
    /// Where to keep what was recorded.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Judge this record, and put load on nobody.
    #[arg(long, value_name = "FILE", conflicts_with = "server")]
    check: Option<PathBuf>,
}

/// Servers to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Start {
    /// A ZooKeeper ensemble of three.
    Ensemble,
    /// zkshim on its embedded store.
    Embedded,
    /// Two zkshims on one etcd.
    Etcd,
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("zk-history: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(cli: &Cli) -> Result<bool> {
    let history = match &cli.check {
        Some(file) => History::load(file)?,
        None => record(cli)?,
    };
    if let Some(file) = &cli.record {
        history.save(file)?;
    }
    let began = Instant::now();
    let verdict = check(&history);
    print!("{verdict}");
    println!("checked in {:?}", began.elapsed());
    Ok(verdict.is_clean())
}

fn record(cli: &Cli) -> Result<History> {
    let mut started = match cli.start {
        Some(Start::Ensemble) => Some(Against::ZooKeeper.start()?),
        Some(Start::Embedded) => Some(Against::Embedded.start()?),
        Some(Start::Etcd) => Some(Against::TwoOnEtcd.start()?),
        None => None,
    };
    let servers = match &mut started {
        Some(started) => started.servers().iter().map(|server| server.address()).collect(),
        None => cli.server.clone(),
    };
    if servers.is_empty() {
        bail!("name servers with --server, have some started with --start, or a record judged");
    }
    let mut workload = Workload::new(servers, cli.seed);
    workload.clients = cli.clients;
    workload.session_timeout = Duration::from_millis(cli.session_timeout_ms);
    workload.pace = Duration::from_micros(cli.pace_us);
    let running = workload.start()?;
    let until = Instant::now() + Duration::from_secs(cli.seconds);
    let mut chance = Chance::new(cli.seed);
    let mut next_trouble = Instant::now() + Duration::from_secs(cli.trouble_every_seconds);
    while Instant::now() < until && !running.has_ended() {
        sleep(Duration::from_millis(100));
        if let Some(started) = &mut started
            && cli.trouble_every_seconds > 0
            && Instant::now() > next_trouble
        {
            make_trouble(started, &mut chance, cli, &running)?;
            let after = 500 * cli.trouble_every_seconds;
            let more = chance.below(usize::try_from(2 * after).unwrap_or(usize::MAX));
            next_trouble = Instant::now()
                + Duration::from_millis(after + u64::try_from(more).unwrap_or_default());
        }
    }
    running.stop()
}

/// Kills one of the servers and starts it again, or freezes it, mostly for longer than sessions
/// live without it.
fn make_trouble(
    servers: &mut UnderTest,
    chance: &mut Chance,
    cli: &Cli,
    running: &Running,
) -> Result<()> {
    let index = chance.below(servers.servers().len());
    let Some(server) = servers.servers().get_mut(index) else { return Ok(()) };
    let before = running.answered();
    let what = if chance.percent(60) {
        server.kill()?;
        sleep(Duration::from_millis(chance.below(3000) as u64));
        server.restart()?;
        "killed"
    } else {
        server.pause()?;
        let longest = usize::try_from(cli.session_timeout_ms).unwrap_or(usize::MAX / 4);
        sleep(Duration::from_millis(chance.below(2 * longest) as u64));
        server.resume()?;
        "frozen"
    };
    println!("server {index} was {what}, with {} answers meanwhile", running.answered() - before);
    Ok(())
}
