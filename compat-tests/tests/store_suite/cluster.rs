//! A cluster of three: its leader is killed, and the store goes on.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use compat_tests::servers::process::{Launch, Process, ask, free_port, retry_start};
use tempfile::TempDir;
use zkshim::keeper::txn::{CommitError, Compare, Key, StoreEvent, Txn};
use zkshim::keeper::zxid::Revision;
use zkshim::store::etcd::Options;

use crate::{Client, etcd_can_be_built, options};

const MEMBERS: usize = 3;

/// Starts the members, none of which serves before the others are there.
fn start() -> Result<Vec<Process>> {
    let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/etcd/build");
    let built = Command::new(build).output().context("run tools/etcd/build")?;
    let binary = String::from_utf8(built.stdout).context("read a path")?.trim().to_owned();
    retry_start(|| {
        let ports = (0..2 * MEMBERS).map(|_| free_port()).collect::<Result<Vec<_>>>()?;
        let url = |index: usize| format!("http://127.0.0.1:{}", ports[index]);
        let members: Vec<_> =
            (0..MEMBERS).map(|member| format!("m{member}={}", url(MEMBERS + member))).collect();
        let spawn = |member: usize| {
            let directory = TempDir::new().context("make a directory for etcd")?;
            let mut command = Command::new(&binary);
            command
                .arg(format!("--name=m{member}"))
                .arg(format!("--data-dir={}", directory.path().join("data").display()))
                .arg(format!("--listen-client-urls={}", url(member)))
                .arg(format!("--advertise-client-urls={}", url(member)))
                .arg(format!("--listen-peer-urls={}", url(MEMBERS + member)))
                .arg(format!("--initial-advertise-peer-urls={}", url(MEMBERS + member)))
                .arg(format!("--initial-cluster={}", members.join(",")));
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, ports[member]));
            Process::spawn(Launch { name: "etcd", address, command, serves: is_healthy }, directory)
        };
        let mut members = (0..MEMBERS).map(spawn).collect::<Result<Vec<_>>>()?;
        members.iter_mut().try_for_each(Process::wait_until_serving)?;
        Ok(members)
    })
}

fn is_healthy(address: SocketAddr) -> bool {
    ask(address, b"GET /health HTTP/1.0\r\n\r\n").contains(r#""health":"true""#)
}

/// Which member leads, and a member that does not.
async fn roles(members: &[Process]) -> (usize, usize) {
    let mut roles = (0, 0);
    for (index, member) in members.iter().enumerate() {
        let endpoint = format!("http://{}", member.address());
        let mut etcd = etcd_client::Client::connect([endpoint], None).await.expect("it serves");
        let status = etcd.status().await.expect("it serves");
        let id = status.header().expect("etcd sends headers").member_id();
        match status.leader() == id {
            true => roles.0 = index,
            false => roles.1 = index,
        }
    }
    roles
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_goes_on_when_the_leader_is_killed() {
    if !etcd_can_be_built() {
        return;
    }
    let mut members = start().expect("etcd starts");
    let (leader, follower) = roles(&members).await;
    let endpoint = |index: usize| format!("http://{}", members[index].address());
    let third = MEMBERS - leader - follower;
    // Connected to a follower, so that only the renewals go to the leader.
    let endpoints = vec![endpoint(follower), endpoint(leader), endpoint(third)];
    let mut client = Client::open_with(Options { endpoints, ..options("") }).await;
    client.loaded().await;
    let (lease, ttl) = client.grant(Duration::from_secs(60)).await;
    assert!(client.is_renewed(lease, ttl).await);
    let before = client.put("a").await;
    members[leader].kill().expect("it runs");

    let begun = Instant::now();
    while client.barrier().await.is_err() {
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
    let after = client.put("b").await;
    assert_eq!(client.changed().await.revision, before);
    assert_eq!(client.changed().await.revision, after);
    assert!(!client.kept.iter().any(|event| matches!(event, StoreEvent::Loaded(_))));
    while !client.is_renewed(lease, ttl).await {
        assert!(begun.elapsed() < Duration::from_secs(30));
    }
    // The next one has no majority left: nothing may be answered, a txn of compares alone neither.
    members[third].kill().expect("it runs");
    let absent = Compare::ModRevision(Key::from_static(b"absent"), Revision::NEVER);
    let proof = Txn { compares: vec![absent], ..Txn::default() };
    let proved = client.commit(proof).await;
    assert!(matches!(proved, Err(CommitError::Unknown(_))), "{proved:?}");
    assert!(client.barrier().await.is_err());
}
