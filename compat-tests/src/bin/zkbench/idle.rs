//! Sessions that do nothing but ping, as most sessions do most of the time.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use crate::connection::Connection;
use crate::frames::Op;
use crate::measure::{Meter, Tally, Window};
use crate::workload::{Plan, join_all};

/// Keeps as many idle sessions as the plan has connections.
pub(crate) async fn measure(plan: &Plan) -> Result<(Meter, Tally)> {
    let (tell, mut told) = unbounded_channel();
    let (open, opened) = watch::channel(None);
    let mut running = JoinSet::new();
    while running.len() < plan.connections {
        for own in plan.connect_some(running.len()).await.context("start sessions")? {
            // Spread, so that no burst is measured.
            let share = running.len() as f64 / plan.connections as f64;
            // It pings from now on: all the others may take longer to start than it would live.
            running.spawn(idle(own, share, opened.clone(), tell.clone()));
        }
    }
    drop(tell);
    let meter = plan.start();
    open.send_replace(Some(meter.window));
    let mut tally = Tally::new();
    while let Some((sent, answered)) = told.recv().await {
        tally.record(&meter.window, sent, answered);
    }
    join_all(running).await?;
    Ok((meter, tally))
}

async fn idle(
    mut own: Connection,
    share: f64,
    mut window: watch::Receiver<Option<Window>>,
    tell: UnboundedSender<(Instant, Instant)>,
) -> Result<()> {
    // A third of the timeout, as `ClientCnxn` does.
    let interval = own.session_timeout / 3;
    let mut next = Instant::now() + interval.mul_f64(share);
    loop {
        let closes = (*window.borrow_and_update()).map(|window| window.closes());
        let wake = closes.map_or(next, |closes| closes.min(next));
        tokio::select! {
            () = sleep_until(wake.into()) => {}
            Ok(()) = window.changed() => continue,
        }
        if closes == Some(wake) {
            return own.close().await;
        }
        let sent = Instant::now();
        let reply = own.call(Op::Ping).await.context("ping")?;
        ensure!(reply.err == 0, "a ping was answered {}", reply.err);
        if tell.send((sent, Instant::now())).is_err() {
            return own.close().await;
        }
        next += interval;
    }
}
