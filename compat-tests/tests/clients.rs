//! Clients in several languages through what their users lean on, against the oracle and against
//! zkshim: Curator 5's recipes.
//!
//! Each is a program of steps; the same steps must pass everywhere, and none may be missing.

use std::process::Command;

use anyhow::{Result, ensure};

use compat_tests::clients::steps::{Outcome, run as run_steps};
use compat_tests::clients::under_test::{Against, UnderTest};
use compat_tests::clients::{can_run, class_path};

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
