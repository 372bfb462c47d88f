//! kazoo, Python's client, through the recipes that its users lean on, against the oracle and
//! against zkshim.

use std::process::Command;

use anyhow::{Result, ensure};

use compat_tests::clients::steps::{Outcome, run as run_steps};
use compat_tests::clients::under_test::Against;
use compat_tests::clients::{can_run, kazoo_python, source};

/// Every step, so that none can go missing.
const STEPS: [&str; 21] = [
    "create_read_write_delete",
    "create_with_stat",
    "ephemeral_and_sequence",
    "watches_fire_once",
    "data_and_children_watch",
    "transaction",
    "transaction_rolls_back",
    "digest_acl_is_kept",
    "digest_acl_is_enforced",
    "lock",
    "lock_contended",
    "lock_of_a_closed_holder",
    "election",
    "party",
    "counter",
    "barrier",
    "double_barrier",
    "survives_a_cut",
    "survives_a_move",
    "session_is_lost",
    "server_version",
];

#[test]
fn kazoos_steps_pass_on_zookeeper() -> Result<()> {
    run("kazoos_steps_pass_on_zookeeper", Against::ZooKeeper)
}

#[test]
fn kazoos_steps_pass_on_zkshim_embedded() -> Result<()> {
    run("kazoos_steps_pass_on_zkshim_embedded", Against::Embedded)
}

#[test]
fn kazoos_steps_pass_on_two_zkshim_on_etcd() -> Result<()> {
    run("kazoos_steps_pass_on_two_zkshim_on_etcd", Against::TwoOnEtcd)
}

fn run(test: &str, against: Against) -> Result<()> {
    if !can_run(test, &["python3"], against)? {
        return Ok(());
    }
    let mut command = Command::new(kazoo_python()?);
    command.arg("-u").arg(source("python/kazoo_steps.py"));
    let outcome = run_steps("kazoo's steps", command, &against.start()?)?;
    let all = STEPS.map(str::to_owned).into();
    let expected = Outcome { passed: all, ..Outcome::default() };
    ensure!(outcome == expected, "found {outcome:?}");
    Ok(())
}
