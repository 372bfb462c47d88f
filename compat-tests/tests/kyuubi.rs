//! Kyuubi's own client stack (Curator 2.12 on ZooKeeper 3.4.14) through all that a Kyuubi server,
//! engine and session do with ZooKeeper, against the oracle and against zkshim.

use std::process::Command;

use anyhow::{Result, ensure};

use compat_tests::clients::steps::{Outcome, run as run_steps};
use compat_tests::clients::under_test::Against;
use compat_tests::clients::{can_run, jars, source};

/// Every step, so that none can go missing.
const STEPS: [&str; 16] = [
    "namespace",
    "registration",
    "sequence",
    "data-changed-then-deleted",
    "own-delete-event-before-reply",
    "close-removes-registration",
    "reconnect",
    "move",
    "short-outage",
    "session-loss",
    "engine-lock",
    "engine-lock-contended",
    "engine-lock-of-a-lost-holder",
    "counter",
    "counter-contended",
    "lookup",
];

#[test]
fn kyuubis_steps_pass_on_zookeeper() -> Result<()> {
    run("kyuubis_steps_pass_on_zookeeper", Against::ZooKeeper)
}

#[test]
fn kyuubis_steps_pass_on_zkshim_embedded() -> Result<()> {
    run("kyuubis_steps_pass_on_zkshim_embedded", Against::Embedded)
}

#[test]
fn kyuubis_steps_pass_on_two_zkshim_on_etcd() -> Result<()> {
    run("kyuubis_steps_pass_on_two_zkshim_on_etcd", Against::TwoOnEtcd)
}

fn run(test: &str, against: Against) -> Result<()> {
    if !can_run(test, &["java", "mvn"], against)? {
        return Ok(());
    }
    let mut command = Command::new("java");
    command
        .args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"])
        .arg(format!("{}/*", jars("kyuubi")?.display()))
        .arg("-Dorg.slf4j.simpleLogger.showDateTime=true")
        .arg(source("java/kyuubi/KyuubiSteps.java"));
    let outcome = run_steps("Kyuubi's steps", command, &against.start()?)?;
    let all = STEPS.map(str::to_owned).into();
    let expected = Outcome { passed: all, ..Outcome::default() };
    ensure!(outcome == expected, "found {outcome:?}");
    Ok(())
}
