//! `zkbench`: a load generator for any server that speaks ZooKeeper's client protocol.
//! It checks every answer: a wrong one ends the run with a message and exit code 1.

mod bare_etcd;
mod comparison;
mod connection;
mod costs;
mod frames;
mod growth;
mod idle;
mod lock;
mod measure;
mod model;
mod pipeline;
mod plots;
mod processes;
mod report;
mod session;
mod sized;
mod sizes;
mod source;
mod table;
mod targets;
mod watch;
mod workload;
mod znodes;

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use tokio::runtime;

use crate::measure::{Measurement, Watched};
use crate::processes::Process;
use crate::sizes::Sizes;
use crate::workload::{Plan, Workload};

/// Measures ZooKeeper-compatible servers
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Put load on one server and print what it took
    Run(RunArgs),
    /// Fill a server with znodes and idle sessions, leave them there, and print its memory
    Sizes(SizesArgs),
    /// Count what zkshim's core asks of etcd, in simulated time
    Model(ModelArgs),
    /// Turn results of several servers and rounds into a Markdown page
    Report(ReportArgs),
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Server to measure; connections are spread over several separated by commas
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', required = true)]
    addr: Vec<String>,
    /// The server is an etcd: send it one txn for each set or create, over one connection
    #[arg(long)]
    etcd: bool,
    /// What to measure, several separated by commas
    #[arg(long, value_enum, value_delimiter = ',', required = true)]
    workload: Vec<Workload>,
    /// Connections (watchers, sessions), several separated by commas: one run each
    #[arg(long, value_delimiter = ',', default_value = "1", value_parser = positive)]
    connections: Vec<usize>,
    /// Requests under way on each connection, for workloads of single requests
    #[arg(long, value_delimiter = ',', default_value = "1", value_parser = positive)]
    in_flight: Vec<usize>,
    /// Start operations at this rate whatever the server does (default: as fast as it answers)
    #[arg(long, value_name = "OPS_PER_SECOND")]
    rate: Option<f64>,
    /// Let set and mixed use one znode for all connections
    #[arg(long)]
    same: bool,
    /// How long to count
    #[arg(long, default_value_t = 3000, value_name = "MS")]
    duration_ms: u64,
    /// How long to run before counting
    #[arg(long, default_value_t = 1000, value_name = "MS")]
    warm_up_ms: u64,
    /// Session timeout to ask for
    #[arg(long, default_value_t = 40_000, value_name = "MS")]
    session_timeout_ms: i32,
    /// Znode to work under; it and all below it are deleted before and after
    #[arg(long, default_value = "/zkbench", value_name = "PATH")]
    root: String,
    /// Server process whose processor time is measured; may be repeated
    #[arg(long = "pid", value_name = "NAME=PID")]
    pids: Vec<Process>,
    /// Client port of the etcd behind the server, whose counters are read
    #[arg(long, value_name = "HOST:PORT")]
    etcd_metrics: Option<String>,
    /// Name of the server in the results
    #[arg(long, default_value = "server")]
    label: String,
    /// Which code runs, and when, for the results
    #[arg(long, default_value = "")]
    run: String,
    /// Number of the round that this run belongs to
    #[arg(long, default_value_t = 1)]
    round: u32,
    /// Append each measurement to this file, as a line of JSON ("-": print it)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Threads of the load generator
    #[arg(long, default_value_t = 1)]
    threads: usize,
}

#[derive(Debug, clap::Args)]
struct SizesArgs {
    /// Server to fill
    #[arg(long, value_name = "HOST:PORT")]
    addr: String,
    /// Znode to create, with all others under it
    #[arg(long, default_value = "/sizes", value_name = "PATH")]
    root: String,
    /// How many znodes of 100 bytes
    #[arg(long, default_value_t = 0)]
    znodes: usize,
    /// How many sessions, a connection each
    #[arg(long, default_value_t = 0)]
    sessions: usize,
    /// Session timeout to ask for; the sessions do not ping
    #[arg(long, default_value_t = 3_600_000, value_name = "MS")]
    session_timeout_ms: i32,
    /// How long the sessions stay
    #[arg(long, default_value_t = 3000, value_name = "MS")]
    hold_ms: u64,
    /// Server process whose memory is read; may be repeated
    #[arg(long = "pid", value_name = "NAME=PID")]
    pids: Vec<Process>,
}

#[derive(Debug, clap::Args)]
struct ModelArgs {
    /// Shims, several separated by commas: one simulation each
    #[arg(long, value_delimiter = ',', default_value = "1", value_parser = positive)]
    shims: Vec<usize>,
    /// Idle sessions, several separated by commas: one simulation each
    #[arg(long, value_delimiter = ',', value_parser = positive)]
    sessions: Vec<usize>,
    /// Clients that set a znode of their own, and then such that create under one parent, with
    /// one write under way each: two simulations each
    #[arg(long, value_delimiter = ',', value_parser = positive)]
    writers: Vec<usize>,
    /// Which code runs, and when, for the results
    #[arg(long, default_value = "")]
    run: String,
    /// Append each result to this file, as a line of JSON (default: print it)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct ReportArgs {
    /// Results file as written by `run --json`
    results: PathBuf,
    /// Markdown page to write, with plots in a directory of its name (default: print it, without)
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Markdown text on how the figures came about, put before all else
    #[arg(long, value_name = "FILE")]
    conditions: Option<PathBuf>,
    /// Markdown text on what the words mean, put before the tables of each workload
    #[arg(long, value_name = "FILE")]
    terms: Option<PathBuf>,
    /// Results of `run` that show how costs grow; may be repeated
    #[arg(long, value_name = "FILE")]
    growth: Vec<PathBuf>,
    /// What servers take when they are full, a line of JSON each
    #[arg(long, value_name = "FILE")]
    sizes: Option<PathBuf>,
    /// Results of `model`
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// Server that the others are compared with
    #[arg(long, default_value = "ZooKeeper", value_name = "LABEL")]
    reference: String,
    /// Two servers to compare in a table of their own, the first by the second; may be repeated
    #[arg(long = "beside", value_name = "LABEL=LABEL")]
    pairs: Vec<report::Pair>,
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Run(args) => args.run(),
        Command::Sizes(args) => args.run(),
        Command::Model(args) => args.run(),
        Command::Report(args) => args.run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("zkbench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

impl RunArgs {
    fn run(self) -> Result<()> {
        let addrs = self.addr.iter().map(|addr| resolve(addr)).collect::<Result<Vec<_>>>()?;
        let mut builder = if self.threads > 1 {
            runtime::Builder::new_multi_thread()
        } else {
            runtime::Builder::new_current_thread()
        };
        let runtime = builder.worker_threads(self.threads.max(1)).enable_all().build()?;
        print!("{}", table::header());
        let etcd = self.etcd_metrics.as_deref().map(resolve).transpose()?;
        for plan in self.plans(&addrs, etcd) {
            let name = plan.workload.name();
            let figures = runtime.block_on(plan.carry_out());
            let figures = figures.with_context(|| {
                format!("{name} on {} with {} connections", self.label, plan.connections)
            })?;
            self.publish(&Measurement {
                run: self.run.clone(),
                target: self.label.clone(),
                round: self.round,
                workload: if plan.same { format!("{name} (same znode)") } else { name },
                connections: plan.connections,
                in_flight: plan.in_flight,
                rate: plan.rate,
                figures,
            })?;
        }
        Ok(())
    }

    fn plans(&self, addrs: &[SocketAddr], etcd: Option<SocketAddr>) -> Vec<Plan> {
        let mut processes = self.pids.clone();
        processes.push(Process::own());
        let watched = Watched { processes, etcd };
        let mut plans = Vec::new();
        for &workload in &self.workload {
            let single = [1];
            let pipelined = workload.is_pipelined();
            let in_flights = if pipelined { &self.in_flight[..] } else { &single };
            for &connections in &self.connections {
                plans.extend(in_flights.iter().map(|&in_flight| Plan {
                    addrs: addrs.to_vec(),
                    etcd: self.etcd,
                    session_timeout_ms: self.session_timeout_ms,
                    workload,
                    root: self.root.clone(),
                    connections,
                    in_flight,
                    rate: self.rate.filter(|_| pipelined),
                    same: self.same && matches!(workload, Workload::Set | Workload::Mixed),
                    warm_up: Duration::from_millis(self.warm_up_ms),
                    duration: Duration::from_millis(self.duration_ms),
                    watched: watched.clone(),
                }));
            }
        }
        plans
    }

    fn publish(&self, measurement: &Measurement) -> Result<()> {
        print!("{}", table::row(measurement));
        let line = serde_json::to_string(measurement)? + "\n";
        match self.json.as_deref() {
            None => Ok(()),
            Some(path) if path == Path::new("-") => {
                print!("{line}");
                Ok(())
            }
            Some(path) => append(path, &line).with_context(|| format!("write {path:?}")),
        }
    }
}

impl SizesArgs {
    fn run(self) -> Result<()> {
        let sizes = Sizes {
            addr: resolve(&self.addr)?,
            root: self.root,
            znodes: self.znodes,
            sessions: self.sessions,
            session_timeout_ms: self.session_timeout_ms,
            processes: self.pids,
            hold: Duration::from_millis(self.hold_ms),
        };
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(sizes.carry_out())
    }
}

impl ModelArgs {
    fn run(self) -> Result<()> {
        for &shims in &self.shims {
            for &sessions in &self.sessions {
                self.publish(&model::idle(self.run.clone(), shims, sessions)?)?;
            }
            for &writers in &self.writers {
                for work in [model::Work::Set, model::Work::Create] {
                    self.publish(&model::writes(self.run.clone(), work, shims, writers)?)?;
                }
            }
        }
        Ok(())
    }

    fn publish(&self, modelled: &model::Modelled) -> Result<()> {
        let line = serde_json::to_string(modelled)? + "\n";
        print!("{line}");
        match &self.json {
            Some(path) => append(path, &line).with_context(|| format!("write {path:?}")),
            None => Ok(()),
        }
    }
}

impl ReportArgs {
    fn run(self) -> Result<()> {
        let read = |path: &Path| {
            fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
        };
        let text = |path: &Option<PathBuf>| -> Result<String> {
            Ok(path.as_deref().map(read).transpose()?.unwrap_or_default())
        };
        let growth = self.growth.iter().map(|path| read(path)).collect::<Result<Vec<_>>>()?;
        let results = comparison::latest(comparison::parse(&read(&self.results)?)?);
        let comparisons = comparison::arrange(&results);
        let plots = match &self.out {
            None => Vec::new(),
            Some(_) => plots::draw(&comparisons, &self.reference)?,
        };
        let plots_dir = self.out.as_deref().and_then(Path::file_stem).unwrap_or_default();
        let page = report::page(&report::Page {
            conditions: &text(&self.conditions)?,
            terms: &text(&self.terms)?,
            results: &results,
            growth: &comparison::latest(comparison::parse(&growth.concat())?),
            sizes: &sized::parse(&text(&self.sizes)?)?,
            modelled: &model::parse(&text(&self.model)?)?,
            comparisons: &comparisons,
            reference: &self.reference,
            pairs: &self.pairs,
            plots: &plots,
            plots_dir: &plots_dir.to_string_lossy(),
        })?;
        let Some(path) = &self.out else {
            print!("{page}");
            return Ok(());
        };
        fs::write(path, page).with_context(|| format!("write {path:?}"))?;
        let dir = path.with_extension("");
        if !plots.is_empty() {
            fs::create_dir_all(&dir).with_context(|| format!("make {dir:?}"))?;
        }
        for plot in plots {
            let path = dir.join(plot.file);
            fs::write(&path, plot.svg).with_context(|| format!("write {path:?}"))?;
        }
        Ok(())
    }
}

fn resolve(addr: &str) -> Result<SocketAddr> {
    let mut resolved = addr.to_socket_addrs().with_context(|| format!("resolve {addr}"))?;
    resolved.next().with_context(|| format!("{addr} has no address"))
}

fn append(path: &Path, line: &str) -> Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    file.write_all(line.as_bytes())?;
    Ok(())
}

fn positive(typed: &str) -> Result<usize> {
    let number: usize = typed.parse()?;
    anyhow::ensure!(number > 0, "must be at least 1");
    Ok(number)
}
