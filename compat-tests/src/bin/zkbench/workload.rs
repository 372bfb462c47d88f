//! The workloads by name, the plan of a measurement, and which room carries it out.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use tokio::task::{JoinSet, spawn_blocking};

use crate::connection::Connection;
use crate::costs::{self, Counts};
use crate::frames::Op;
use crate::measure::{Figures, Meter, Tally, Watched};
use crate::{bare_etcd, idle, lock, pipeline, session, watch, znodes};

/// What to do to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Workload {
    /// getData of 100 bytes
    Get,
    /// exists of one znode
    Exists,
    /// getChildren of 100
    Children,
    /// setData of 100 bytes, each connection in turn on as many znodes of its own as it has
    /// requests in flight (or see --same)
    Set,
    /// the same, each connection on one znode of its own
    SetOwn,
    /// create of persistent znodes under one parent
    Create,
    /// create of ephemeral-sequential znodes under one parent
    Eseq,
    /// nine getData to one setData, on znodes as those of set
    Mixed,
    /// short sessions: TCP connect, start, getChildren2, getData, closeSession
    Session,
    /// one setData seen by all connections' watches: an operation is an event delivered and its
    /// watch set again; the latency is that of the last event
    Watch,
    /// lock cycle on one lock: create, getChildren, watch the one before, delete
    Lock,
    /// sessions that only ping: an operation is a ping
    Idle,
    /// the same, each with an ephemeral of its own
    IdleOwn,
}

impl Workload {
    /// The name on the command line.
    pub(crate) fn name(self) -> String {
        let value = self.to_possible_value().expect("no workload is skipped");
        value.get_name().to_owned()
    }

    /// Whether an operation is a single request, so that several can be under way.
    pub(crate) fn is_pipelined(self) -> bool {
        !matches!(self, Self::Session | Self::Watch | Self::Lock | Self::Idle | Self::IdleOwn)
    }
}

/// Everything that one measurement needs to know.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The servers; connections are spread over them.
    pub(crate) addrs: Vec<SocketAddr>,
    /// Whether the server is an etcd, to be sent a txn an operation.
    pub(crate) etcd: bool,
    /// The timeout that every session asks for.
    pub(crate) session_timeout_ms: i32,
    /// What to do.
    pub(crate) workload: Workload,
    /// A znode that does not exist and is gone again afterwards.
    pub(crate) root: String,
    /// Connections, watchers or sessions.
    pub(crate) connections: usize,
    /// Requests under way on each connection, where the workload pipelines.
    pub(crate) in_flight: usize,
    /// Operations to start each second over all connections; `None` is a closed loop.
    pub(crate) rate: Option<f64>,
    /// Whether `set` and `mixed` use one znode for all connections.
    pub(crate) same: bool,
    /// How long to run before counting.
    pub(crate) warm_up: Duration,
    /// How long to count.
    pub(crate) duration: Duration,
    /// Whom to ask what it cost.
    pub(crate) watched: Watched,
}

impl Plan {
    /// Makes the znodes, measures, and removes the znodes.
    pub(crate) async fn carry_out(&self) -> Result<Figures> {
        if self.etcd {
            let (meter, tally) = bare_etcd::measure(self).await?;
            return meter.finish(&tally);
        }
        let mut control = self.connect().await?;
        znodes::wipe(&mut control, &self.root).await.context("remove old znodes")?;
        znodes::create(&mut control, &self.root).await.context("create the root")?;
        control.close().await?;
        let (meter, tally) = match self.workload {
            Workload::Session => session::measure(self).await?,
            Workload::Watch => watch::measure(self).await?,
            Workload::Lock => lock::measure(self).await?,
            Workload::Idle | Workload::IdleOwn => idle::measure(self).await?,
            _ => pipeline::measure(self).await?,
        };
        let mut control = self.connect().await?;
        znodes::wipe(&mut control, &self.root).await.context("remove the znodes")?;
        control.close().await?;
        meter.finish(&tally)
    }

    /// A new session on the first server.
    pub(crate) async fn connect(&self) -> Result<Connection> {
        self.connect_to(0).await
    }

    /// A new session for the connection with this index. It has all that was written before.
    pub(crate) async fn connect_to(&self, index: usize) -> Result<Connection> {
        let addr = self.addrs[index % self.addrs.len()];
        let mut connection = Connection::open(addr, self.session_timeout_ms).await?;
        if self.addrs.len() > 1 {
            connection.demand(Op::Sync { path: "/" }).await?;
        }
        Ok(connection)
    }

    /// The next sessions, for the connections from this index on: not all at the same time, which
    /// would fill the server's backlog.
    pub(crate) async fn connect_some(&self, from: usize) -> Result<Vec<Connection>> {
        let mut setup = JoinSet::new();
        for index in from..self.connections.min(from + STARTS_AT_ONCE) {
            let plan = self.clone();
            setup.spawn(async move { plan.connect_to(index).await });
        }
        join_all(setup).await
    }

    /// The znode of this name below the root.
    pub(crate) fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.root)
    }

    /// What the etcd behind the server has counted, if it is to be asked, once nothing is written
    /// any more.
    pub(crate) async fn etcd_at_rest(&self) -> Result<Option<Counts>> {
        let Some(addr) = self.watched.etcd else { return Ok(None) };
        // Connections are to be served meanwhile.
        let counts = spawn_blocking(move || costs::settled(addr)).await;
        counts.context("waiting panicked")?.map(Some)
    }

    /// Opens the window.
    pub(crate) fn start(&self) -> Meter {
        Meter::start(self.warm_up, self.duration, &self.watched)
    }
}

/// Sessions that are started at the same time.
const STARTS_AT_ONCE: usize = 64;

/// Waits for all workers; the first wrong answer ends the measurement.
pub(crate) async fn join_all<T: 'static>(mut workers: JoinSet<Result<T>>) -> Result<Vec<T>> {
    let mut results = Vec::with_capacity(workers.len());
    while let Some(joined) = workers.join_next().await {
        results.push(joined.context("a worker panicked")??);
    }
    Ok(results)
}

/// Adds up what the workers counted.
pub(crate) fn sum<'a>(tallies: impl IntoIterator<Item = &'a Tally>) -> Tally {
    let mut sum = Tally::new();
    tallies.into_iter().for_each(|tally| sum.absorb(tally));
    sum
}
