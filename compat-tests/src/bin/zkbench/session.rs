//! Short sessions, as a JDBC driver that looks its server up makes them: each is a TCP connection
//! of its own.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use tokio::task::JoinSet;

use crate::frames::{Op, Reader};
use crate::measure::{Meter, Tally, Window};
use crate::workload::{Plan, join_all, sum};
use crate::znodes::{self, DATA};

const SERVERS: [&str; 2] = ["server-0000000000", "server-0000000001"];

/// Runs as many at a time as the plan has connections.
pub(crate) async fn measure(plan: &Plan) -> Result<(Meter, Tally)> {
    let mut control = plan.connect().await?;
    let parent = plan.path("servers");
    znodes::create(&mut control, &parent).await?;
    for name in SERVERS {
        znodes::create(&mut control, &format!("{parent}/{name}")).await?;
    }
    control.close().await?;
    let meter = plan.start();
    let mut running = JoinSet::new();
    for _ in 0..plan.connections {
        running.spawn(run(plan.clone(), parent.clone(), meter.window));
    }
    let tallies = join_all(running).await?;
    Ok((meter, sum(&tallies)))
}

async fn run(plan: Plan, parent: String, window: Window) -> Result<Tally> {
    let mut tally = Tally::new();
    loop {
        let start = Instant::now();
        if window.is_over(start) {
            return Ok(tally);
        }
        look_up(&plan, &parent).await.context("short session")?;
        tally.record(&window, start, Instant::now());
    }
}

async fn look_up(plan: &Plan, parent: &str) -> Result<()> {
    let mut connection = plan.connect().await?;
    let reply = connection.demand(Op::GetChildren2 { path: parent }).await?;
    let mut reader = Reader::new(&reply.body);
    let mut names = reader.strings()?;
    names.sort_unstable();
    ensure!(names == SERVERS, "children are {names:?}");
    let children = reader.stat()?.children;
    ensure!(children == 2, "numChildren is {children}");
    reader.end()?;
    let path = format!("{parent}/{}", SERVERS[0]);
    let reply = connection.demand(Op::GetData { path: &path, watch: false }).await?;
    let mut reader = Reader::new(&reply.body);
    ensure!(reader.buffer()? == Some(&DATA), "wrong data");
    reader.stat()?;
    reader.end()?;
    connection.close().await
}
