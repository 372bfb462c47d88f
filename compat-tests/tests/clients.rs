//! Clients in several languages through what their users lean on, against the oracle and against
//! zkshim: Curator 5's recipes, ZooKeeper's command line, go-zookeeper, the C client,
//! node-zookeeper-client, Rust's zookeeper-client, and Patroni.
//!
//! Most are programs of steps; the same steps must pass everywhere, and none may be missing.

use std::process::Command;

use anyhow::{Result, ensure};

use compat_tests::clients::steps::{Outcome, run as run_steps};
use compat_tests::clients::under_test::{Against, UnderTest};
use compat_tests::clients::zkcli::{matches, run_once, run_transcript};
use compat_tests::clients::{built, can_run, class_path, has_header, patroni_python, source};

const CURATOR_STEPS: &[&str] = &[
    "leader-latch",
    "leader-latch-cut",
    "leader-latch-move",
    "leader-latch-session-loss",
    "leader-selector",
    "leader-selector-requeue",
    "mutex",
    "mutex-contended",
    "mutex-revoked",
    "semaphore",
    "semaphore-contended",
    "read-write-lock",
    "multi-lock",
    "barrier",
    "double-barrier",
    "persistent-node",
    "persistent-node-session-loss",
    "group-member",
    "transaction",
    "transaction-rolls-back",
    "create-modes",
    "container-goes",
    "ttl-goes",
    "persistent-ttl-node",
    "acl",
    "cache",
    "cache-of-one-node",
    "cache-cut",
    "cache-move",
    "cache-bridge",
    "persistent-watcher",
    "add-and-remove-watches",
    "service-discovery",
    "service-cache",
    "service-provider",
    "shared-count",
    "shared-value",
    "atomic-long",
    "atomic-long-contended",
    "simple-queue",
    "queue",
    "priority-queue",
];

#[test]
fn curators_steps_pass_on_zookeeper() -> Result<()> {
    curator("curators_steps_pass_on_zookeeper", Against::ZooKeeper)
}

#[test]
fn curators_steps_pass_on_zkshim_embedded() -> Result<()> {
    curator("curators_steps_pass_on_zkshim_embedded", Against::Embedded)
}

#[test]
fn curators_steps_pass_on_two_zkshim_on_etcd() -> Result<()> {
    curator("curators_steps_pass_on_two_zkshim_on_etcd", Against::TwoOnEtcd)
}

fn curator(test: &str, against: Against) -> Result<()> {
    if !can_run(test, &["java", "javac", "mvn"], against)? {
        return Ok(());
    }
    let mut command = java();
    command.arg("-cp").arg(class_path("curator")?).arg("CuratorSteps");
    all_pass("Curator's steps", command, &against.start_with_ttl_nodes()?, CURATOR_STEPS)
}

#[test]
fn zkclis_commands_answer_on_zookeeper() -> Result<()> {
    zkcli("zkclis_commands_answer_on_zookeeper", Against::ZooKeeper)
}

#[test]
fn zkclis_commands_answer_on_zkshim_embedded() -> Result<()> {
    zkcli("zkclis_commands_answer_on_zkshim_embedded", Against::Embedded)
}

#[test]
fn zkclis_commands_answer_on_two_zkshim_on_etcd() -> Result<()> {
    zkcli("zkclis_commands_answer_on_two_zkshim_on_etcd", Against::TwoOnEtcd)
}

fn zkcli(test: &str, against: Against) -> Result<()> {
    if !can_run(test, &["java", "mvn"], against)? {
        return Ok(());
    }
    let servers = against.start()?;
    let commands = run_transcript(&servers.connect_string(), ZKCLI_TRANSCRIPT)?;
    ensure!(commands > 80, "only {commands} commands are typed");

    // One server: each command is a session of its own, which may not be up to date elsewhere.
    let server = servers.first()?.to_string();
    for (words, printed, code) in ZKCLI_ALONE {
        let (lines, found) = run_once(&server, words)?;
        let as_expected = lines.len() == printed.len()
            && printed.iter().zip(&lines).all(|(pattern, line)| matches(pattern, line));
        ensure!(as_expected && found == *code, "{words:?} prints {lines:?} and ends with {found}");
    }
    Ok(())
}

const ZKCLI_TRANSCRIPT: &str = include_str!("../java/zkcli/transcript.txt");

/// Commands given as arguments, what they print, and the exit code that scripts go by.
const ZKCLI_ALONE: &[(&[&str], &[&str], i32)] = &[
    (&["create", "-e", "-s", "/alone-", "data"], &["Created /alone-*"], 0),
    (&["create", "/alone", "data"], &["Created /alone"], 0),
    (&["create", "/alone", "data"], &["Node already exists: /alone"], 1),
    (&["get", "/alone"], &["data"], 0),
    (&["delete", "/alone"], &[], 0),
    (&["get", "/alone"], &["Node does not exist: /alone"], 1),
];

const GO_STEPS: &[&str] = &[
    "create-read-write-delete",
    "ephemeral-and-sequence",
    "container-and-ttl",
    "protected",
    "watches",
    "multi",
    "multi-rolls-back",
    "acl",
    "lock",
    "lock-contended",
    "big-data",
    "cut",
    "move",
    "session-loss",
    "four-letter-words",
];

#[test]
fn go_zookeepers_steps_pass_on_zookeeper() -> Result<()> {
    go("go_zookeepers_steps_pass_on_zookeeper", Against::ZooKeeper)
}

#[test]
fn go_zookeepers_steps_pass_on_zkshim_embedded() -> Result<()> {
    go("go_zookeepers_steps_pass_on_zkshim_embedded", Against::Embedded)
}

#[test]
fn go_zookeepers_steps_pass_on_two_zkshim_on_etcd() -> Result<()> {
    go("go_zookeepers_steps_pass_on_two_zkshim_on_etcd", Against::TwoOnEtcd)
}

fn go(test: &str, against: Against) -> Result<()> {
    if !can_run(test, &["go"], against)? {
        return Ok(());
    }
    let command = Command::new(built("go")?);
    all_pass("go-zookeeper's steps", command, &against.start()?, GO_STEPS)
}

const C_STEPS: &[&str] = &[
    "create-read-write-delete",
    "null-and-empty-data",
    "ephemeral-and-sequence",
    "container-and-ttl",
    "watches",
    "remove-watches",
    "multi",
    "multi-rolls-back",
    "acl",
    "pipelined",
    "cut",
    "move",
    "session-loss",
];

#[test]
fn the_c_clients_steps_pass_on_zookeeper() -> Result<()> {
    c("the_c_clients_steps_pass_on_zookeeper", Against::ZooKeeper)
}

#[test]
fn the_c_clients_steps_pass_on_zkshim_embedded() -> Result<()> {
    c("the_c_clients_steps_pass_on_zkshim_embedded", Against::Embedded)
}

#[test]
fn the_c_clients_steps_pass_on_two_zkshim_on_etcd() -> Result<()> {
    c("the_c_clients_steps_pass_on_two_zkshim_on_etcd", Against::TwoOnEtcd)
}

fn c(test: &str, against: Against) -> Result<()> {
    let header = "zookeeper/zookeeper.h";
    if !can_run(test, &["cc"], against)? || !has_header(test, header, "libzookeeper-mt-dev")? {
        return Ok(());
    }
    let command = Command::new(built("c")?);
    all_pass("the C client's steps", command, &against.start()?, C_STEPS)
}

const NODE_STEPS: &[&str] = &[
    "create-read-write-delete",
    "ephemeral-and-sequence",
    "watches",
    "transaction",
    "transaction-rolls-back",
    "acl",
    "cut",
    "move",
    "session-loss",
];

#[test]
fn nodes_steps_pass_on_zookeeper() -> Result<()> {
    node("nodes_steps_pass_on_zookeeper", Against::ZooKeeper)
}

#[test]
fn nodes_steps_pass_on_zkshim_embedded() -> Result<()> {
    node("nodes_steps_pass_on_zkshim_embedded", Against::Embedded)
}

#[test]
fn nodes_steps_pass_on_two_zkshim_on_etcd() -> Result<()> {
    node("nodes_steps_pass_on_two_zkshim_on_etcd", Against::TwoOnEtcd)
}

fn node(test: &str, against: Against) -> Result<()> {
    if !can_run(test, &["node", "npm"], against)? {
        return Ok(());
    }
    let mut command = Command::new("node");
    command.arg(built("node")?);
    all_pass("node-zookeeper-client's steps", command, &against.start()?, NODE_STEPS)
}

const RUST_STEPS: &[&str] = &[
    "create-read-write-delete",
    "ephemeral-and-sequence",
    "container-and-ttl",
    "one-shot-watches",
    "persistent-watches",
    "multi-write",
    "multi-write-rolls-back",
    "multi-read",
    "acl",
    "lock",
    "chroot",
    "reconfig-is-disabled",
    "cut",
    "move",
    "session-loss",
];

#[test]
fn the_rust_clients_steps_pass_on_zookeeper() -> Result<()> {
    rust("the_rust_clients_steps_pass_on_zookeeper", Against::ZooKeeper)
}

#[test]
fn the_rust_clients_steps_pass_on_zkshim_embedded() -> Result<()> {
    rust("the_rust_clients_steps_pass_on_zkshim_embedded", Against::Embedded)
}

#[test]
fn the_rust_clients_steps_pass_on_two_zkshim_on_etcd() -> Result<()> {
    rust("the_rust_clients_steps_pass_on_two_zkshim_on_etcd", Against::TwoOnEtcd)
}

fn rust(test: &str, against: Against) -> Result<()> {
    if !can_run(test, &["cargo"], against)? {
        return Ok(());
    }
    let command = Command::new(built("rust-client")?);
    all_pass("zookeeper-client's steps", command, &against.start()?, RUST_STEPS)
}

const PATRONI_STEPS: &[&str] = &[
    "initialized_once",
    "members_touch_themselves",
    "one_leader",
    "settings_with_versions",
    "leader_steps_down",
    "leader_keeps_its_place_cut",
    "leader_keeps_its_place_moved",
    "leader_is_replaced",
    "cluster_removed",
];

#[test]
fn patronis_steps_pass_on_zookeeper() -> Result<()> {
    patroni("patronis_steps_pass_on_zookeeper", Against::ZooKeeper)
}

#[test]
fn patronis_steps_pass_on_zkshim_embedded() -> Result<()> {
    patroni("patronis_steps_pass_on_zkshim_embedded", Against::Embedded)
}

#[test]
fn patronis_steps_pass_on_two_zkshim_on_etcd() -> Result<()> {
    patroni("patronis_steps_pass_on_two_zkshim_on_etcd", Against::TwoOnEtcd)
}

fn patroni(test: &str, against: Against) -> Result<()> {
    if !can_run(test, &["python3"], against)? {
        return Ok(());
    }
    let mut command = Command::new(patroni_python()?);
    command.arg("-u").arg(source("python/patroni_steps.py"));
    all_pass("Patroni's steps", command, &against.start()?, PATRONI_STEPS)
}

/// Short-lived and small: the cheap collector and compiler start faster on few cores.
fn java() -> Command {
    let mut command = Command::new("java");
    command.args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
    command.arg("-Dorg.slf4j.simpleLogger.showDateTime=true");
    command
}

fn all_pass(name: &str, command: Command, servers: &UnderTest, steps: &[&str]) -> Result<()> {
    let outcome = run_steps(name, command, servers)?;
    let all = steps.iter().map(|&step| step.to_owned()).collect();
    let expected = Outcome { passed: all, ..Outcome::default() };
    ensure!(outcome == expected, "found {outcome:?}");
    Ok(())
}
