//! Many watches on one znode: how long one change takes to reach the last of them.

use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::connection::{Connection, PATIENCE};
use crate::frames::{Op, Reader};
use crate::measure::{Meter, Tally, Window};
use crate::workload::Plan;
use crate::znodes::{self, DATA};

/// What a watcher tells the one who sets the data.
#[derive(Debug)]
enum Told {
    /// The watch is set and this version was read.
    Armed(i32),
    /// The event came at this moment.
    Fired(Instant),
}

/// One round is a `setData` after all watches are set, until the last event is there.
pub(crate) async fn measure(plan: &Plan) -> Result<(Meter, Tally)> {
    let mut setter = plan.connect().await?;
    let path = plan.path("watched");
    znodes::create(&mut setter, &path).await?;
    let mut connections = Vec::new();
    while connections.len() < plan.connections {
        connections.extend(plan.connect_some(connections.len()).await?);
    }
    // Their sessions' keys are no cost of the watches.
    plan.etcd_at_rest().await?;
    let (tell, told) = unbounded_channel();
    let mut watchers = JoinSet::new();
    for connection in connections {
        watchers.spawn(watch(connection, path.clone(), tell.clone()));
    }
    drop(tell);
    let meter = plan.start();
    let rounds = Rounds { path, told, watchers: plan.connections, version: 0 };
    let tally = tokio::select! {
        // A watcher that ends while rounds go on has met a wrong answer.
        Some(ended) = watchers.join_next() => {
            ended.context("a watcher panicked")??;
            bail!("a watcher ended early")
        }
        tally = rounds.run(&mut setter, meter.window) => tally?,
    };
    watchers.shutdown().await;
    setter.close().await?;
    Ok((meter, tally))
}

async fn watch(mut own: Connection, path: String, tell: UnboundedSender<Told>) -> Result<()> {
    loop {
        let reply = own.demand(Op::GetData { path: &path, watch: true }).await?;
        let mut reader = Reader::new(&reply.body);
        ensure!(reader.buffer()? == Some(&DATA), "wrong data");
        let version = reader.stat()?.version;
        reader.end()?;
        if tell.send(Told::Armed(version)).is_err() {
            return own.close().await;
        }
        // Whoever sets the data knows when an event is missing.
        let fired = own.event_patiently().await?;
        ensure!(fired == path, "event for {fired}");
        if tell.send(Told::Fired(Instant::now())).is_err() {
            return own.close().await;
        }
    }
}

struct Rounds {
    path: String,
    told: UnboundedReceiver<Told>,
    watchers: usize,
    version: i32,
}

impl Rounds {
    async fn run(mut self, setter: &mut Connection, window: Window) -> Result<Tally> {
        let mut tally = Tally::new();
        self.drain(0).await?;
        loop {
            let start = Instant::now();
            if window.is_over(start) {
                return Ok(tally);
            }
            self.version += 1;
            setter.demand(Op::SetData { path: &self.path, data: &DATA }).await?;
            let last = self.drain(self.watchers).await?.context("no event")?;
            tally.record_many(self.watchers as u64, &window, start, last);
        }
    }

    /// Waits for that many events, and until all watches are set; returns when the last event came.
    async fn drain(&mut self, mut events: usize) -> Result<Option<Instant>> {
        let mut unarmed = self.watchers;
        let mut last = None;
        while events > 0 || unarmed > 0 {
            let told = timeout(PATIENCE, self.told.recv()).await;
            let told = told.with_context(|| format!("{events} events are missing"))?;
            match told.context("all watchers ended")? {
                Told::Fired(at) => {
                    events = events.checked_sub(1).context("more events than watches")?;
                    last = last.max(Some(at));
                }
                Told::Armed(version) => {
                    // Read after the event, so it cannot be the state before it.
                    ensure!(version == self.version, "read {version} after {}", self.version);
                    unarmed -= 1;
                }
            }
        }
        Ok(last)
    }
}
