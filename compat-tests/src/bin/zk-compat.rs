//! Judges a ZooKeeper server, real or not, by the conformance suite.

use std::fs;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use clap::Parser;

use compat_tests::conformance::case::Profile;
use compat_tests::conformance::cases::SECTIONS;
use compat_tests::conformance::context::{Settings, Target};
use compat_tests::conformance::report;
use compat_tests::conformance::run::{Selection, run};

/// Runs the conformance cases against one server, or several that serve the same tree.
///
/// Exits with 0 if all that apply passed, 1 if one failed, 2 if none could be run.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
struct Cli {
    /// The servers; with two, the sessions of a case use different ones.
    #[arg(long, value_name = "HOST:PORT[,HOST:PORT]", value_delimiter = ',', required = true)]
    server: Vec<String>,
    /// Only these sections, such as 10.1.
    #[arg(long, value_name = "NUMBER", value_delimiter = ',')]
    section: Vec<String>,
    /// Only these cases, such as W5.
    #[arg(long, value_name = "NUMBER", value_delimiter = ',')]
    case: Vec<String>,
    /// Whose listed differences to expect.
    #[arg(long, value_enum, default_value = "zookeeper")]
    target: Target,
    /// How the servers are set up; cases for another set-up are not run.
    #[arg(long, value_enum, default_value = "default")]
    profile: Profile,
    /// The servers' tickTime.
    #[arg(long, value_name = "MS", default_value_t = 2000)]
    tick_time_ms: u64,
    /// The server was used before: leave out the cases about a fresh tree.
    #[arg(long)]
    shared: bool,
    /// How many cases run side by side.
    #[arg(long, value_name = "N", default_value_t = 24)]
    parallel: usize,
    /// Writes the report as JUnit XML.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Writes the report as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    match judge(&Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("zk-compat: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn judge(cli: &Cli) -> Result<ExitCode> {
    let servers = cli.server.iter().map(|name| resolve(name)).collect::<Result<Vec<_>>>()?;
    let selection = Selection {
        sections: cli.section.clone(),
        cases: cli.case.clone(),
        profile: cli.profile,
        shared: cli.shared,
        parallel: cli.parallel,
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("read the clock")?;
    let settings = Settings {
        servers,
        target: cli.target,
        tick: Duration::from_millis(cli.tick_time_ms),
        root: format!("/zk-compat-{:x}", now.as_millis()),
    };
    let outcomes = run(SECTIONS, &selection, &settings);
    print!("{}", report::text(SECTIONS, &outcomes));
    if let Some(file) = &cli.junit {
        fs::write(file, report::junit(SECTIONS, &outcomes)).context("write the JUnit report")?;
    }
    if let Some(file) = &cli.json {
        fs::write(file, report::json(&outcomes)?).context("write the JSON report")?;
    }
    let totals = report::totals(&outcomes);
    Ok(ExitCode::from(match (totals.failed, totals.passed) {
        (0, 0) => 2,
        (0, _) => 0,
        _ => 1,
    }))
}

fn resolve(name: &str) -> Result<SocketAddr> {
    let mut addresses = name.to_socket_addrs().with_context(|| format!("find {name}"))?;
    addresses.next().with_context(|| format!("no address for {name}"))
}
