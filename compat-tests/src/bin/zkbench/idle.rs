//! Sessions that do nothing but ping, as most sessions do most of the time.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use crate::connection::Connection;
use crate::costs;
use crate::frames::{CreateMode, Op};
use crate::measure::{Meter, Tally, Window};
use crate::workload::{Plan, Workload, join_all};
use crate::znodes::DATA;

/// Keeps as many idle sessions as the plan has connections.
pub(crate) async fn measure(plan: &Plan) -> Result<(Meter, Tally)> {
    let before = plan.etcd_at_rest().await?;
    let (tell, mut told) = unbounded_channel();
    let (open, opened) = watch::channel(None);
    let mut running = JoinSet::new();
    while running.len() < plan.connections {
        for own in plan.connect_some(running.len()).await.context("start sessions")? {
            // Spread, so that no burst is measured.
            let share = running.len() as f64 / plan.connections as f64;
            // It pings from now on: all the others may take longer to start than it would live.
            let owns = plan.workload == Workload::IdleOwn;
            let ephemeral = owns.then(|| plan.path(&format!("own-{:05}", running.len())));
            let task = Idle { own, share, ephemeral, tell: tell.clone() };
            running.spawn(task.run(opened.clone()));
        }
    }
    drop(tell);
    let after = plan.etcd_at_rest().await?;
    let mut meter = plan.start();
    let counted = before.zip(after).map(|(before, after)| costs::between(&before, &after));
    meter.etcd_start_per_session =
        counted.map(|counts| costs::each(counts, plan.connections as f64));
    open.send_replace(Some(meter.window));
    let mut tally = Tally::new();
    while let Some((sent, answered)) = told.recv().await {
        tally.record(&meter.window, sent, answered);
    }
    join_all(running).await?;
    Ok((meter, tally))
}

/// One session.
struct Idle {
    own: Connection,
    /// Where in the interval it pings, from 0 to 1.
    share: f64,
    /// What it creates at its start.
    ephemeral: Option<String>,
    tell: UnboundedSender<(Instant, Instant)>,
}

impl Idle {
    async fn run(mut self, mut window: watch::Receiver<Option<Window>>) -> Result<()> {
        if let Some(path) = &self.ephemeral {
            let op = Op::Create { path, data: &DATA, mode: CreateMode::Ephemeral };
            self.own.demand(op).await.context("create an ephemeral")?;
        }
        // A third of the timeout, as `ClientCnxn` does.
        let interval = self.own.session_timeout / 3;
        let mut next = Instant::now() + interval.mul_f64(self.share);
        loop {
            let closes = (*window.borrow_and_update()).map(|window| window.closes());
            let wake = closes.map_or(next, |closes| closes.min(next));
            tokio::select! {
                () = sleep_until(wake.into()) => {}
                Ok(()) = window.changed() => continue,
            }
            if closes == Some(wake) {
                return self.own.close().await;
            }
            let sent = Instant::now();
            let reply = self.own.call(Op::Ping).await.context("ping")?;
            ensure!(reply.err == 0, "a ping was answered {}", reply.err);
            if self.tell.send((sent, Instant::now())).is_err() {
                return self.own.close().await;
            }
            next += interval;
        }
    }
}
