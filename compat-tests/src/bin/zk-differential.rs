//! Plays seeded scripts to a real ZooKeeper and to zkshim and compares every answer and event.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use clap::Parser;

use compat_tests::differential::run::Runner;
use compat_tests::differential::servers::{Pair, Store};

/// Plays seeded scripts of sessions, requests, watches and reconnects to a real ZooKeeper and to
/// zkshim, and compares every answer and event.
#[derive(Debug, Parser)]
#[command(name = "zk-differential")]
struct Cli {
    /// The first seed.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How many seeds to play.
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    seeds: u64,
    /// How many requests a script has.
    #[arg(long, value_name = "M", default_value_t = 150)]
    ops: usize,
    /// Play only these steps of the seed's script, as a finding names them.
    #[arg(long, value_name = "STEPS", value_delimiter = ',')]
    only: Option<Vec<usize>>,
    /// Where zkshim keeps its tree.
    #[arg(long, default_value = "embedded")]
    store: Store,
    /// Leave TTL nodes and the enforcement of quotas off on both, as they are by default.
    #[arg(long)]
    plain: bool,
    /// After how many findings to stop.
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    findings: usize,
    /// A ZooKeeper that runs already (its super user must be super:test).
    #[arg(long, value_name = "HOST:PORT", requires = "zkshim")]
    zookeeper: Option<SocketAddr>,
    /// A zkshim that runs already, or several of one tree.
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', requires = "zookeeper")]
    zkshim: Vec<SocketAddr>,
    /// Print the script before it is played.
    #[arg(long)]
    print: bool,
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("zk-differential: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(cli: &Cli) -> Result<usize> {
    let pair = match cli.zookeeper {
        Some(zookeeper) => Pair::running(vec![zookeeper], cli.zkshim.clone()),
        None => Pair::start(cli.store, !cli.plain)?,
    };
    let mut runner = Runner::new(&pair);
    let began = Instant::now();
    let mut findings = 0;
    for seed in cli.seed..cli.seed.saturating_add(cli.seeds) {
        if cli.print || cli.only.is_some() {
            let (script, difference) = runner.play(seed, cli.ops, cli.only.as_deref())?;
            println!("{script}");
            if let Some(difference) = difference {
                println!("batch {}: {}", difference.batch, difference.text);
                findings += 1;
            }
        } else if let Some(finding) = runner.seed(seed, cli.ops)? {
            println!("{finding}");
            findings += 1;
        }
        if findings >= cli.findings {
            break;
        }
        if seed % 20 == 0 {
            println!("seed {seed}: {} requests in {:?}", runner.requests, began.elapsed());
        }
    }
    println!(
        "{} requests without a difference, {findings} findings, known deviations {:?}, in {:?}",
        runner.requests,
        runner.excused,
        began.elapsed()
    );
    Ok(findings)
}
