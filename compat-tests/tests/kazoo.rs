//! kazoo, Python's client, through the recipes that its users lean on, against the oracle and
//! against zkshim.

use std::collections::BTreeSet;
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
    run("kazoos_steps_pass_on_zookeeper", Against::ZooKeeper, &[])
}

fn run(test: &str, against: Against, fails: &[&str]) -> Result<()> {
    if !can_run(test, &["python3"], against)? {
        return Ok(());
    }
    let mut command = Command::new(kazoo_python()?);
    command.arg("-u").arg(source("python/kazoo_steps.py"));
    let outcome = run_steps("kazoo's steps", command, &against.start()?)?;
    let names = |steps: &[&str]| steps.iter().map(|&step| step.to_owned()).collect();
    let (all, failed): (BTreeSet<String>, BTreeSet<String>) = (names(&STEPS), names(fails));
    let expected = Outcome { passed: all.difference(&failed).cloned().collect(), failed };
    ensure!(outcome == expected, "found {outcome:?}");
    Ok(())
}
