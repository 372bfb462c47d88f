//! A cluster of two HBase 2.6 nodes, each with a master and a region server: on the oracle, on
//! zkshim with its embedded store, and on two zkshim on one etcd. A server is killed, and a node.

use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use compat_tests::clients::can_run;
use compat_tests::clients::hbase::Node;
use compat_tests::clients::steps::{Outcome, check_log, run_with};
use compat_tests::clients::under_test::{Against, UnderTest};

/// Each test runs several JVMs; together they would starve each other's sessions.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Every step, so that none can go missing.
const STEPS: [&str; 7] = [
    "registration",
    "table",
    "snapshot",
    "replication-peer",
    "server-killed",
    "node-killed",
    "table-deleted",
];

#[test]
fn hbase_runs_on_zookeeper() -> Result<()> {
    run("hbase_runs_on_zookeeper", Against::ZooKeeper)
}

#[test]
fn hbase_runs_on_zkshim_embedded() -> Result<()> {
    run("hbase_runs_on_zkshim_embedded", Against::Embedded)
}

#[test]
fn hbase_runs_on_two_zkshim_on_etcd() -> Result<()> {
    run("hbase_runs_on_two_zkshim_on_etcd", Against::TwoOnEtcd)
}

fn run(test: &str, against: Against) -> Result<()> {
    if !can_run(test, &["java", "javac", "mvn"], against)? {
        return Ok(());
    }
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut servers = against.start()?;
    let files = TempDir::new().context("make a directory for the cluster")?;
    let spawn = || Node::spawn(files.path(), &servers.connect_string());
    // The first makes the cluster's files before the second looks for them.
    let mut first = spawn()?;
    first.wait_until_serving()?;
    let mut nodes = [first, spawn()?];
    let mut command = nodes[0].client("HBaseSteps")?;
    command.arg(servers.connect_string());
    let outcome = run_with("HBase's steps", command, |what| {
        trouble(what, &mut nodes, &mut servers).with_context(|| format!("do {what:?}"))
    })?;
    let all = STEPS.map(str::to_owned).into();
    let expected = Outcome { passed: all, ..Outcome::default() };
    ensure!(outcome == expected, "found {outcome:?}\n{}\n{}", nodes[0].log(), nodes[1].log());
    // On a real one, too, while a node looks for another server.
    nodes.iter().try_for_each(|node| check_log(&node.log(), "ConnectionLoss"))
}

fn trouble(what: &str, nodes: &mut [Node; 2], servers: &mut UnderTest) -> Result<()> {
    let (action, which) = what.split_once(' ').unwrap_or((what, "0"));
    let which: i64 = which.parse().context("read the number")?;
    let node = nodes.iter_mut().find(|node| i64::from(node.address().port()) == which);
    match (action, node) {
        ("kill-server-of", _) => servers.kill_server_of(which),
        ("start-server", _) => servers.restart_killed(),
        ("kill-node", Some(node)) => node.kill(),
        ("start-node", Some(node)) => node.restart(),
        _ => bail!("the steps ask for {what:?}"),
    }
}
