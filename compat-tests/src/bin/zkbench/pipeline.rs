//! Workloads of single requests: each connection keeps several under way, as a closed loop, or
//! as an open one that starts operations at a rate whatever the server does.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};

use crate::connection::{Connection, PATIENCE};
use crate::frames::{Message, Reply};
use crate::measure::{Meter, Tally, Window};
use crate::source::{CHILD_PREFIX, CHILDREN, Expect, Source};
use crate::workload::{Plan, Workload, join_all, sum};
use crate::znodes;

/// Runs the plan's workload.
pub(crate) async fn measure(plan: &Plan) -> Result<(Meter, Tally)> {
    let mut setup = JoinSet::new();
    prepare_shared(plan).await.context("create znodes")?;
    for index in 0..plan.connections {
        let plan = plan.clone();
        setup.spawn(async move { Worker::prepare(&plan, index).await });
    }
    let workers = join_all(setup).await?;
    let meter = plan.start();
    let mut running = JoinSet::new();
    for (index, mut worker) in workers.into_iter().enumerate() {
        worker.pace = Pace::new(plan, index);
        let window = meter.window;
        running.spawn(async move { worker.run(window).await });
    }
    let done = join_all(running).await?;
    let tally = sum(done.iter().map(|(_, tally)| tally));
    let mut closing = JoinSet::new();
    for (worker, _) in done {
        closing.spawn(worker.clean_up());
    }
    join_all(closing).await.context("clean up")?;
    Ok((meter, tally))
}

async fn prepare_shared(plan: &Plan) -> Result<()> {
    let mut control = plan.connect().await?;
    let shared = plan.path("shared");
    znodes::create(&mut control, &shared).await?;
    if plan.workload == Workload::Children {
        for number in 0..CHILDREN {
            znodes::create(&mut control, &format!("{shared}/{CHILD_PREFIX}{number:010}")).await?;
        }
    }
    control.close().await
}

/// When the next operation may start.
#[derive(Debug)]
struct Pace {
    /// Start of the next operation and the time between two, in an open loop.
    open: Option<(Instant, Duration)>,
}

impl Pace {
    fn new(plan: &Plan, index: usize) -> Self {
        let interval = plan.rate.map(|rate| plan.connections as f64 / rate);
        let open = interval.map(|interval| {
            let offset = interval * index as f64 / plan.connections as f64;
            (Instant::now() + Duration::from_secs_f64(offset), Duration::from_secs_f64(interval))
        });
        Self { open }
    }

    /// The moment an operation due by `now` was to start, which its latency counts from.
    fn take_due(&mut self, now: Instant) -> Option<Instant> {
        let Some((due, interval)) = &mut self.open else { return Some(now) };
        let start = (*due <= now).then_some(*due)?;
        *due += *interval;
        Some(start)
    }

    /// When to look again; far away in a closed loop.
    fn next(&self, now: Instant) -> Instant {
        self.open.map_or(now + PATIENCE, |(due, _)| due)
    }
}

/// One connection's loop.
#[derive(Debug)]
struct Worker {
    connection: Connection,
    source: Source,
    in_flight: usize,
    pace: Pace,
    outstanding: VecDeque<(i32, Instant, Expect)>,
    tally: Tally,
}

impl Worker {
    async fn prepare(plan: &Plan, index: usize) -> Result<Self> {
        let mut connection = plan.connect_to(index).await?;
        let own = match plan.workload {
            _ if plan.same => 0,
            Workload::Set | Workload::Mixed => plan.in_flight,
            Workload::SetOwn => 1,
            _ => 0,
        };
        let mut paths = Vec::new();
        for slot in 0..own {
            let path = plan.path(&format!("own-{index:05}-{slot:03}"));
            znodes::create(&mut connection, &path).await?;
            paths.push(path);
        }
        let sole_writer = own > 0;
        if !sole_writer {
            paths.push(plan.path("shared"));
        }
        Ok(Self {
            connection,
            source: Source::new(plan.workload, paths, index, sole_writer),
            in_flight: plan.in_flight,
            pace: Pace { open: None },
            outstanding: VecDeque::with_capacity(plan.in_flight),
            tally: Tally::new(),
        })
    }

    async fn run(mut self, window: Window) -> Result<(Self, Tally)> {
        loop {
            let now = Instant::now();
            while let Some(message) = self.connection.poll_message()? {
                let Message::Reply(reply) = message else { bail!("an event without a watch") };
                self.settle(&reply, &window, now)?;
            }
            if !window.is_over(now) {
                self.send(now).await?;
            } else if self.outstanding.is_empty() {
                let tally = std::mem::replace(&mut self.tally, Tally::new());
                return Ok((self, tally));
            }
            self.wait(&window, now).await?;
        }
    }

    async fn send(&mut self, now: Instant) -> Result<()> {
        while self.outstanding.len() < self.in_flight {
            let Some(start) = self.pace.take_due(now) else { break };
            let (xid, expect) = self.source.queue(&mut self.connection);
            self.outstanding.push_back((xid, start, expect));
        }
        self.connection.flush().await
    }

    /// Waits for bytes, or until an operation is due.
    async fn wait(&mut self, window: &Window, now: Instant) -> Result<()> {
        if self.outstanding.is_empty() {
            sleep_until(self.pace.next(now).min(window.closes()).into()).await;
            return Ok(());
        }
        let may_send = !window.is_over(now) && self.outstanding.len() < self.in_flight;
        if !may_send {
            return self.connection.fill().await;
        }
        let until_due = self.pace.next(now).saturating_duration_since(now).min(PATIENCE);
        // Elapsed means that something is due, not that the server is silent.
        timeout(until_due, self.connection.fill_patiently()).await.unwrap_or(Ok(()))
    }

    fn settle(&mut self, reply: &Reply, window: &Window, now: Instant) -> Result<()> {
        let (xid, start, expect) = self.outstanding.pop_front().context("an unasked reply")?;
        ensure!(reply.xid == xid, "reply to request {} instead of {xid}", reply.xid);
        let checked = self.source.check(expect, reply);
        checked.with_context(|| format!("wrong answer to request {xid}"))?;
        self.tally.record(window, start, now);
        Ok(())
    }

    /// Deletes what was created and ends the session.
    async fn clean_up(mut self) -> Result<()> {
        znodes::delete_all(&mut self.connection, &self.source.created).await?;
        self.connection.close().await
    }
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut, BytesMut};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::measure::{Latency, Watched};

    /// A server that starts a session and answers every request with this reply, header included.
    async fn serve(listener: TcpListener, reply: impl Fn(i32) -> BytesMut) -> Result<()> {
        let (mut stream, _) = listener.accept().await?;
        let mut connect = [0; 49];
        stream.read_exact(&mut connect).await?;
        let mut response = BytesMut::new();
        response.put_i32(37);
        response.put_i32(0);
        response.put_i32(4000);
        response.put_i64(1);
        response.put_i32(16);
        response.put_bytes(0, 17);
        stream.write_all(&response).await?;
        loop {
            let mut request = vec![0; stream.read_i32().await? as usize];
            stream.read_exact(&mut request).await?;
            let xid = i32::from_be_bytes(*request.first_chunk().context("no header")?);
            let reply = reply(xid);
            stream.write_i32(reply.len() as i32).await?;
            stream.write_all(&reply).await?;
        }
    }

    fn header(xid: i32, zxid: i64, err: i32) -> BytesMut {
        let mut reply = BytesMut::new();
        reply.put_i32(xid);
        reply.put_i64(zxid);
        reply.put_i32(err);
        reply
    }

    /// Runs `exists` against such a server for a moment: operations, or what was wrong.
    async fn check(reply: impl Fn(i32) -> BytesMut) -> Result<u64, String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let addr = listener.local_addr().expect("it is bound");
        let run = async {
            let worker = Worker {
                connection: Connection::open(addr, 4000).await?,
                source: Source::new(Workload::Exists, vec!["/a".into()], 0, false),
                in_flight: 3,
                pace: Pace { open: None },
                outstanding: VecDeque::new(),
                tally: Tally::new(),
            };
            let watched = Watched::default();
            let meter = Meter::start(Duration::ZERO, Duration::from_secs(1), &watched);
            worker.run(meter.window).await
        };
        tokio::select! {
            ran = run => ran.map(|(_, tally)| tally.ops).map_err(|error| format!("{error:#}")),
            ended = serve(listener, reply) => panic!("the server ended: {ended:?}"),
        }
    }

    #[tokio::test]
    async fn right_answers_are_counted() {
        let right = check(|xid| {
            let mut reply = header(xid, 5, 0);
            reply.put_bytes(0, 52);
            reply.put_i32(100);
            reply.put_bytes(0, 12);
            reply
        });
        assert!(right.await.expect("right answers") > 0);
    }

    #[tokio::test]
    async fn wrong_answers_end_the_run() {
        let refused = check(|xid| header(xid, 5, -101)).await;
        assert_eq!(refused, Err("wrong answer to request 1: error code -101".into()));
        let short = check(|xid| header(xid, 5, 0)).await;
        assert!(short.is_err_and(|told| told.contains("ends 32 bytes early")));
        let misplaced = check(|xid| header(xid + 1, 5, 0)).await;
        assert_eq!(misplaced, Err("reply to request 2 instead of 1".into()));
    }

    #[tokio::test]
    async fn a_zxid_that_falls_ends_the_run() {
        let told = check(|xid| header(xid, i64::from(-xid), 0)).await;
        assert_eq!(told, Err("zxid went back from 0x0 to 0xffffffffffffffff".into()));
    }

    #[test]
    fn an_open_loop_starts_operations_when_they_are_due() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let mut pace = Pace { open: Some((start, second)) };
        let late = start + second.mul_f64(1.5);
        assert_eq!(pace.take_due(late), Some(start));
        assert_eq!(pace.take_due(late), Some(start + second));
        assert_eq!(pace.take_due(late), None);
        assert_eq!(pace.next(late), start + 2 * second);
    }

    /// A load generator that waits with its server would count one slow operation here.
    #[test]
    fn an_open_loop_counts_the_wait_of_all_that_a_stalled_server_holds_up() {
        let meter = Meter::start(Duration::ZERO, Duration::from_secs(2), &Watched::default());
        let start = meter.window.closes() - Duration::from_secs(2);
        let mut pace = Pace { open: Some((start, Duration::from_millis(10))) };
        let stalled_until = start + Duration::from_secs(1);
        let mut tally = Tally::new();
        while let Some(due) = pace.take_due(stalled_until) {
            tally.record(&meter.window, due, stalled_until);
        }
        assert_eq!(tally.ops, 101);
        let Latency { p50_us, p99_us, max_us, .. } = tally.latency();
        for (seen, wanted) in [(p50_us, 500_000.0), (p99_us, 990_000.0), (max_us, 1_000_000.0)] {
            assert!((seen - wanted).abs() < 2000.0, "{seen} instead of {wanted}");
        }
    }
}
