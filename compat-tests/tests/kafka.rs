//! A cluster of two Kafka 3.9 brokers that keep their metadata in ZooKeeper: the oracle, zkshim on
//! its embedded store, and two zkshim on one etcd. Brokers and servers are killed under them.

use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};

use compat_tests::clients::kafka::{Broker, log4j};
use compat_tests::clients::steps::{Outcome, check_log, run_with};
use compat_tests::clients::under_test::{Against, UnderTest};
use compat_tests::clients::{can_run, class_path};

/// Each test runs several JVMs; together they would starve each other's sessions.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Every step, so that none can go missing.
const STEPS: [&str; 14] = [
    "registration",
    "topic",
    "produce-and-consume",
    "configuration",
    "client-quota",
    "reassignment",
    "scram-and-acl",
    "delegation-token",
    "server-killed",
    "controller-killed",
    "preferred-leader",
    "session-expired",
    "controlled-shutdown",
    "topic-deleted",
];

#[test]
fn kafka_runs_on_zookeeper() -> Result<()> {
    run("kafka_runs_on_zookeeper", Against::ZooKeeper)
}

#[test]
fn kafka_runs_on_zkshim_embedded() -> Result<()> {
    run("kafka_runs_on_zkshim_embedded", Against::Embedded)
}

#[test]
fn kafka_runs_on_two_zkshim_on_etcd() -> Result<()> {
    run("kafka_runs_on_two_zkshim_on_etcd", Against::TwoOnEtcd)
}

fn run(test: &str, against: Against) -> Result<()> {
    if !can_run(test, &["java", "javac", "mvn"], against)? {
        return Ok(());
    }
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut servers = against.start()?;
    // The brokers make the chroot that they are told of.
    let chroot = format!("{}/kafka/one", servers.connect_string());
    let mut brokers = [Broker::spawn(1, &chroot)?, Broker::spawn(2, &chroot)?];
    for broker in &mut brokers {
        broker.wait_until_serving()?;
    }
    let mut command = Command::new("java");
    command
        .args(["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
        .arg(format!("-Dlog4j.configuration=file:{}", log4j().display()))
        .args(["-cp", &class_path("kafka")?, "KafkaSteps"])
        .arg(servers.connect_string())
        .arg(format!("{},{}", brokers[0].address(), brokers[1].address()))
        .arg(format!("{},{}", brokers[0].secured(), brokers[1].secured()));
    let outcome = run_with("Kafka's steps", command, |what| {
        trouble(what, &mut brokers, &mut servers).with_context(|| format!("do {what:?}"))
    })?;
    let all = STEPS.map(str::to_owned).into();
    let expected = Outcome { passed: all, ..Outcome::default() };
    ensure!(outcome == expected, "found {outcome:?}");
    // On a real one, too, a broker that was frozen: its session is gone.
    brokers.iter().try_for_each(|broker| check_log(&broker.log(), "Session expired"))
}

fn trouble(what: &str, brokers: &mut [Broker; 2], servers: &mut UnderTest) -> Result<()> {
    let (action, which) = what.split_once(' ').unwrap_or((what, "0"));
    let which: i64 = which.parse().context("read the number")?;
    match action {
        "kill-server-of" => servers.kill_server_of(which),
        "start-server" => servers.restart_killed(),
        _ => {
            let index = usize::try_from(which - 1).context("read the broker's number")?;
            let broker = brokers.get_mut(index).context("find the broker")?;
            match action {
                "kill-broker" => broker.kill(),
                "start-broker" => broker.restart(),
                "freeze-broker" => broker.pause(),
                "resume-broker" => broker.resume(),
                "stop-broker" => broker.stop().map(|_status| ()),
                _ => bail!("the steps ask for {what:?}"),
            }
        }
    }
}
