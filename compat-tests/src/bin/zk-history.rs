//! Puts recorded load on servers and judges what their clients saw; also judges what was recorded
//! before.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Parser;

use compat_tests::history::check::check;
use compat_tests::history::record::History;
use compat_tests::history::workload::Workload;

/// Puts recorded load on servers of one tree, whatever happens to them meanwhile, and checks that
/// no promise was broken: linearizable writes and synced reads, one order of zxids, watches,
/// locks, ephemerals.
#[derive(Debug, Parser)]
#[command(name = "zk-history")]
struct Cli {
    /// The servers, all of one tree.
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    server: Vec<SocketAddr>,
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
    if cli.server.is_empty() {
        bail!("name servers with --server, or a record with --check");
    }
    let mut workload = Workload::new(cli.server.clone(), cli.seed);
    workload.clients = cli.clients;
    workload.session_timeout = Duration::from_millis(cli.session_timeout_ms);
    workload.pace = Duration::from_micros(cli.pace_us);
    let running = workload.start()?;
    let until = Instant::now() + Duration::from_secs(cli.seconds);
    while Instant::now() < until && !running.has_ended() {
        std::thread::sleep(Duration::from_millis(100));
    }
    running.stop()
}
