//! Real faults, a few of them: servers are killed and cut off under load, in network namespaces,
//! and nothing that was acknowledged may be lost. `zk-faults` runs as many as one likes.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use compat_tests::clients::under_test::Against;
use compat_tests::clients::{can_run, not_run};
use compat_tests::faults::namespace;

#[test]
fn nothing_is_lost_when_servers_are_killed_and_cut_off() -> Result<()> {
    let test = "nothing_is_lost_when_servers_are_killed_and_cut_off";
    if !can_run(test, &["unshare", "setpriv", "ip", "mount"], Against::TwoOnEtcd)? {
        return Ok(());
    }
    if let Err(reason) = namespace::can_be_made() {
        return not_run(&format!("{test} because {reason}"));
    }
    let kinds = ["shim-kill", "leader-kill", "shim-cut"];
    let output = Command::new(env!("CARGO_BIN_EXE_zk-faults"))
        .args(["--seed", "1", "--rounds", "1", "--kinds", &kinds.join(",")])
        .output()
        .context("run zk-faults")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "zk-faults: {}\n{said}\n{errors}", output.status);
    for kind in kinds {
        ensure!(said.contains(&format!("| `{kind}` | 1 |")), "no {kind} in\n{said}");
    }
    ensure!(said.contains(" 0 violations"), "no verdict in\n{said}");
    Ok(())
}
