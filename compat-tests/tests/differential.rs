//! Random scripts, played to a real ZooKeeper and to zkshim: both must show the same.
//!
//! `zk-differential` plays as many as one likes, and replays what fails here.

use anyhow::{Result, bail};
use compat_tests::clients::can_run;
use compat_tests::clients::under_test::Against;
use compat_tests::differential::run::Runner;
use compat_tests::differential::servers::{Pair, Store};

/// Requests in a script.
const OPS: usize = 150;

#[test]
fn random_scripts_show_the_same_on_the_embedded_store() -> Result<()> {
    let test = "random_scripts_show_the_same_on_the_embedded_store";
    play(test, Store::Embedded, Against::Embedded, true, 1..41)
}

#[test]
fn random_scripts_show_the_same_with_plain_settings() -> Result<()> {
    let test = "random_scripts_show_the_same_with_plain_settings";
    play(test, Store::Embedded, Against::Embedded, false, 41..61)
}

#[test]
fn random_scripts_show_the_same_on_etcd() -> Result<()> {
    let test = "random_scripts_show_the_same_on_etcd";
    play(test, Store::Etcd, Against::TwoOnEtcd, true, 61..81)
}

#[test]
fn random_scripts_show_the_same_on_two_shims() -> Result<()> {
    let test = "random_scripts_show_the_same_on_two_shims";
    play(test, Store::TwoOnEtcd, Against::TwoOnEtcd, true, 81..111)
}

fn play(
    test: &str,
    store: Store,
    against: Against,
    extras: bool,
    seeds: std::ops::Range<u64>,
) -> Result<()> {
    if !can_run(test, Against::ZooKeeper.tools(), against)? {
        return Ok(());
    }
    let pair = Pair::start(store, extras)?;
    let mut runner = Runner::new(&pair);
    for seed in seeds.clone() {
        if let Some(finding) = runner.seed(seed, OPS)? {
            bail!("{finding}");
        }
    }
    let least = seeds.count() * OPS;
    anyhow::ensure!(runner.requests >= least, "only {} of {least} were sent", runner.requests);
    Ok(())
}
