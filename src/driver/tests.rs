//! The driver's own part; what the core makes of its inputs is tested there.

use std::net::Ipv4Addr;
use std::sync::mpsc as sync_mpsc;
use std::time::Duration;

use bytes::Bytes;
use jute::Stat;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::*;
use crate::keeper::request::{Body, Operation, Reply, SessionId, Xid};
use crate::keeper::zxid::Zxid;

type Commands = sync_mpsc::Receiver<StoreCommand>;

pub(super) fn options() -> Options {
    Options {
        tick: Duration::from_secs(2),
        session_timeout_min: Duration::from_secs(4),
        session_timeout_max: Duration::from_secs(40),
        seed: [7; 32],
        sole: true,
        writes_worth_a_batch: Options::WRITES_WORTH_A_BATCH,
        alone_after: Options::ALONE_AFTER,
        ttl_nodes: false,
        super_digest: None,
        skip_acl: false,
        enforce_quota: false,
        kept_bytes_max: 1 << 30,
        session_key_delay: Duration::from_secs(1),
        container_check_interval: Duration::from_secs(60),
    }
}

fn driver() -> (Handle, mpsc::Sender<StoreEvent>, Commands, JoinHandle<()>) {
    let (events, store_events) = mpsc::channel(8);
    let (sender, commands) = sync_mpsc::channel();
    let store = move |command| drop(sender.send(command));
    let clock = Clock::Runtime(Instant::now());
    let (driver, handle) = Driver::new(options(), clock, store, store_events);
    (handle, events, commands, tokio::spawn(driver.run()))
}

#[tokio::test(start_paused = true)]
async fn a_driver_without_a_loaded_store_does_not_serve() {
    let (handle, _events, _commands, _task) = driver();
    assert!(!handle.status().await.expect("it runs").serving);
    assert_eq!(handle.sessions().await, Ok(Vec::new()));
    assert_eq!(handle.watches().await, Ok(WatchStatus::default()));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_the_driver_after_what_came_before() {
    let (handle, _events, _commands, task) = driver();
    let status = handle.status();
    handle.send(Input::Shutdown).await.expect("it runs");
    assert_eq!(status.await, Err(Stopped), "it was asked after the shutdown");
    task.await.expect("it ends");
    assert_eq!(handle.send(Input::Shutdown).await, Err(Stopped));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_gone_ends_the_driver() {
    let (_handle, events, _commands, task) = driver();
    drop(events);
    task.await.expect("it ends");
}

fn ignore(_command: StoreCommand) {}

#[tokio::test(start_paused = true)]
async fn requests_that_take_long_are_handed_in_by_and_by() {
    let (_events, store_events) = mpsc::channel(8);
    let clock = Clock::Runtime(Instant::now());
    let (mut driver, handle) =
        Driver::new(options(), clock, ignore as fn(StoreCommand), store_events);
    driver.batch_time_max = Duration::ZERO;
    let (first, second) = (handle.connection(), handle.connection());
    let requests = |connection, count| {
        let ping = Request { xid: Xid::PING, operation: Operation::Ping };
        Input::Requests(connection, vec![ping; count])
    };
    let waiting = |driver: &Driver<fn(StoreCommand)>| {
        let left = driver.left_over.iter();
        left.map(|(connection, requests)| (*connection, requests.len())).collect::<Vec<_>>()
    };
    let now = clock.now();
    assert!(driver.handle_batch(requests(first, 40), now));
    assert_eq!(waiting(&driver), [(first, 24)]);
    assert!(driver.handle_batch(requests(second, 20), now));
    assert_eq!(waiting(&driver), [(first, 8), (second, 4)]);
    assert!(driver.handle_batch(requests(first, 1), now));
    assert_eq!(waiting(&driver), [(second, 4)], "nine were left, and nothing overtakes");
    assert!(driver.handle_batch(requests(second, 30), now));
    assert!(driver.handle_batch(Input::Closed(second), now));
    assert_eq!(waiting(&driver), [], "what was asked is carried out all the same");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_closed_gets_nothing_more() {
    let (handle, _events, _commands, _task) = driver();
    let connection = handle.connection();
    let outbox = Outbox::new(1000, &Backlog::new(1000));
    let connect = Connect {
        last_zxid_seen: Zxid(0),
        timeout_ms: 1000,
        session: SessionId(0),
        password: Bytes::new(),
    };
    let peer = Ipv4Addr::LOCALHOST.into();
    let input = Input::Connect { connection, peer, outbox: outbox.clone(), connect };
    handle.send(input).await.expect("it runs");
    handle.send(Input::Closed(connection)).await.expect("it runs");
    handle.send(Input::Closed(connection)).await.expect("it runs");
    assert!(handle.status().await.is_ok(), "closing twice is survived");
}

#[tokio::test(start_paused = true)]
async fn past_the_bound_on_all_outboxes_whoever_has_most_waiting_is_cut() {
    let (_events, store_events) = mpsc::channel(8);
    let clock = Clock::Runtime(Instant::now());
    let (mut driver, handle) =
        Driver::new(options(), clock, ignore as fn(StoreCommand), store_events);
    let backlog = Backlog::new(100_000);
    let outboxes = [(); 3].map(|()| Outbox::new(1 << 20, &backlog));
    let mut fill = |outbox: &Outbox, bytes: usize| {
        let connection = handle.connection();
        let data = Some(vec![0; bytes].into());
        let outcome = Ok(Body::Data(data, Stat::default()));
        let reply = Reply { xid: Xid(1), zxid: Zxid(1), outcome };
        let pending = vec![Outgoing::Reply(reply)];
        driver.routes.insert(connection, Route { outbox: outbox.clone(), pending, closing: false });
        driver.touched.push(connection);
        driver.flush();
    };
    let [first, second, third] = &outboxes;
    fill(first, 30_000);
    fill(second, 50_000);
    assert!(!backlog.is_over());
    fill(third, 30_000);
    assert!(!backlog.is_over());
    second.cut().await;
    assert!(first.share() > 30_000 && third.share() > 30_000, "the others have what they had");
}
