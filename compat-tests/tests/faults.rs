//! Real faults, a few of them: servers are killed and cut off under load, in network namespaces,
//! etcd is set back, a disk is full, and nothing that was acknowledged may be lost. `zk-faults`
//! runs as many as one likes.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use compat_tests::clients::under_test::Against;
use compat_tests::clients::{can_run, not_run};
use compat_tests::faults::namespace;

/// Whether the world of `zk-faults` can be made; if not, that is noted.
fn can_be_run(test: &str, against: Against) -> Result<bool> {
    if !can_run(test, &["unshare", "setpriv", "ip", "mount"], against)? {
        return Ok(false);
    }
    match namespace::can_be_made() {
        Ok(()) => Ok(true),
        Err(reason) => not_run(&format!("{test} because {reason}")).map(|()| false),
    }
}

/// What `zk-faults` says, which must be without a violation.
fn zk_faults(arguments: &[&str]) -> Result<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_zk-faults")).args(arguments).output();
    let output = output.context("run zk-faults")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "zk-faults: {}\n{said}\n{errors}", output.status);
    ensure!(said.contains(" 0 violations"), "no verdict in\n{said}");
    Ok(said)
}

#[test]
fn nothing_is_lost_when_servers_are_killed_and_cut_off() -> Result<()> {
    let test = "nothing_is_lost_when_servers_are_killed_and_cut_off";
    if !can_be_run(test, Against::TwoOnEtcd)? {
        return Ok(());
    }
    let kinds = ["shim-kill", "leader-kill", "shim-cut"];
    let said = zk_faults(&["--seed", "1", "--rounds", "1", "--kinds", &kinds.join(",")])?;
    for kind in kinds {
        ensure!(said.contains(&format!("| `{kind}` | 1 |")), "no {kind} in\n{said}");
    }
    Ok(())
}

#[test]
fn what_an_etcd_that_is_set_back_has_lost_is_lost_whole_and_clients_know() -> Result<()> {
    let test = "what_an_etcd_that_is_set_back_has_lost_is_lost_whole_and_clients_know";
    if !can_be_run(test, Against::TwoOnEtcd)? {
        return Ok(());
    }
    let kinds = ["restore-paused", "restore-bumped"];
    let said = zk_faults(&["--seed", "1", "--rounds", "1", "--kinds", &kinds.join(",")])?;
    for kind in kinds {
        ensure!(said.contains(&format!("| `{kind}` | 1 |")), "no {kind} in\n{said}");
    }
    Ok(())
}

#[test]
fn an_embedded_store_on_a_full_disk_ends_with_a_reason_and_has_what_it_acknowledged() -> Result<()>
{
    let test = "an_embedded_store_on_a_full_disk_ends_with_a_reason_and_has_what_it_acknowledged";
    if !can_be_run(test, Against::Embedded)? {
        return Ok(());
    }
    let said = zk_faults(&["--embedded-full-disk"])?;
    ensure!(said.contains("5 disks"), "not all disks in\n{said}");
    Ok(())
}

#[test]
fn an_embedded_store_that_is_killed_again_and_again_has_what_it_acknowledged() -> Result<()> {
    let said = zk_faults(&["--seed", "1", "--embedded-kills", "15"])?;
    ensure!(said.contains("15 kills, "), "not all kills in\n{said}");
    Ok(())
}
