//! The tests of ZooKeeper and of Curator, as released: a brief part of each against zkshim with
//! its own store. `zk-suites` runs all that the lists have, on etcd and on a real ZooKeeper, too.

use anyhow::{Result, ensure};

use compat_tests::clients::can_run;
use compat_tests::clients::under_test::Against;
use compat_tests::suites::list::Part;
use compat_tests::suites::run::{Found, Suite, run};

const TOOLS: [&str; 3] = ["java", "javac", "mvn"];

#[test]
fn zookeepers_own_tests_pass_on_zkshim_embedded() -> Result<()> {
    brief("zookeepers_own_tests_pass_on_zkshim_embedded", Suite::Zookeeper, 233)
}

#[test]
fn curators_own_tests_pass_on_zkshim_embedded() -> Result<()> {
    brief("curators_own_tests_pass_on_zkshim_embedded", Suite::Curator, 132)
}

#[test]
fn each_of_zookeepers_test_classes_is_run_or_left_out_for_a_reason() -> Result<()> {
    complete("each_of_zookeepers_test_classes_is_run_or_left_out_for_a_reason", Suite::Zookeeper)
}

#[test]
fn each_of_curators_test_classes_is_run_or_left_out_for_a_reason() -> Result<()> {
    complete("each_of_curators_test_classes_is_run_or_left_out_for_a_reason", Suite::Curator)
}

/// So many methods, so that none can go missing.
fn brief(test: &str, suite: Suite, methods: usize) -> Result<()> {
    if !can_run(test, &TOOLS, Against::Embedded)? {
        return Ok(());
    }
    let classes = suite.list()?.classes;
    let brief: Vec<_> = classes.into_iter().filter(|class| class.part == Part::Brief).collect();
    let outcome = run(&brief, Found::Embedded, brief.len(), 1)?;
    ensure!(outcome.failed.is_empty() && outcome.empty.is_empty(), "found {outcome:#?}");
    ensure!(outcome.passed.len() == methods, "{} instead of {methods}", outcome.figures());
    Ok(())
}

fn complete(test: &str, suite: Suite) -> Result<()> {
    if !can_run(test, &TOOLS, Against::Embedded)? {
        return Ok(());
    }
    let faults = suite.list()?.faults(&suite.all_classes()?);
    ensure!(faults.is_empty(), "{faults:#?}");
    Ok(())
}
