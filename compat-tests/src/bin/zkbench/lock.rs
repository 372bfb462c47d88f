//! The lock recipe: an ephemeral-sequential znode, and a watch on the one before. Every cycle
//! checks that nobody else holds the lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use tokio::task::JoinSet;

use crate::connection::Connection;
use crate::frames::{CreateMode, Op, Reader};
use crate::measure::{Meter, Tally, Window};
use crate::workload::{Plan, join_all, sum};
use crate::znodes;

const NO_NODE: i32 = -101;

/// All connections take turns on one lock.
pub(crate) async fn measure(plan: &Plan) -> Result<(Meter, Tally)> {
    let mut control = plan.connect().await?;
    let parent = plan.path("lock");
    znodes::create(&mut control, &parent).await?;
    control.close().await?;
    let held = Arc::new(AtomicBool::new(false));
    let mut setup = JoinSet::new();
    for index in 0..plan.connections {
        let (plan, parent, held) = (plan.clone(), parent.clone(), Arc::clone(&held));
        setup.spawn(async move {
            let connection = plan.connect_to(index).await?;
            Ok(Contender { connection, parent, held })
        });
    }
    let contenders = join_all(setup).await?;
    let meter = plan.start();
    let mut running = JoinSet::new();
    for contender in contenders {
        running.spawn(contender.run(meter.window));
    }
    let tallies = join_all(running).await?;
    Ok((meter, sum(&tallies)))
}

struct Contender {
    connection: Connection,
    parent: String,
    held: Arc<AtomicBool>,
}

impl Contender {
    async fn run(mut self, window: Window) -> Result<Tally> {
        let mut tally = Tally::new();
        loop {
            let start = Instant::now();
            if window.is_over(start) {
                self.connection.close().await?;
                return Ok(tally);
            }
            self.cycle().await.context("lock cycle")?;
            tally.record(&window, start, Instant::now());
        }
    }

    async fn cycle(&mut self) -> Result<()> {
        let own = self.enqueue().await?;
        while let Some(before) = self.predecessor(&own).await? {
            let before = format!("{}/{before}", self.parent);
            let reply = self.connection.call(Op::Exists { path: &before, watch: true }).await?;
            if reply.err == NO_NODE {
                continue;
            }
            ensure!(reply.err == 0, "exists was answered {}", reply.err);
            let gone = self.connection.event().await?;
            ensure!(gone == before, "event for {gone} instead of {before}");
        }
        ensure!(!self.held.swap(true, Ordering::SeqCst), "{own} got a lock that another holds");
        let path = format!("{}/{own}", self.parent);
        self.held.store(false, Ordering::SeqCst);
        self.connection.demand(Op::Delete { path: &path }).await.map(drop)
    }

    /// Creates the znode that stands in the queue and returns its name.
    async fn enqueue(&mut self) -> Result<String> {
        let path = format!("{}/lock-", self.parent);
        let mode = CreateMode::EphemeralSequential;
        let reply = self.connection.demand(Op::Create { path: &path, data: b"", mode }).await?;
        let mut reader = Reader::new(&reply.body);
        let created = reader.string()?;
        reader.end()?;
        let (_, name) = created.rsplit_once('/').context("a path without a slash")?;
        Ok(name.to_owned())
    }

    /// Who is next before us in the queue; nobody means that the lock is ours.
    async fn predecessor(&mut self, own: &str) -> Result<Option<String>> {
        let reply = self.connection.demand(Op::GetChildren { path: &self.parent }).await?;
        let names = Reader::new(&reply.body).strings()?;
        ensure!(names.iter().any(|name| name == own), "{own} is not in its queue");
        Ok(names.into_iter().filter(|name| name.as_str() < own).max())
    }
}
