//! etcd set back to an earlier time: a snapshot is taken, and later all members begin anew from it
//! with `etcdutl snapshot restore`, as etcd's manual has it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::faults::admin::Admin;
use crate::servers::tool_output;

/// A snapshot that members can begin with.
pub struct Backup {
    directory: TempDir,
    /// The revision that it has.
    pub revision: i64,
    bumped: bool,
}

/// By how much the revision is raised, where it is. Kubernetes' manual has a thousand million.
const BUMP: &str = "1000000";

/// What `etcdutl snapshot restore` must know of a member.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// What it calls itself.
    pub name: &'a str,
    /// Where other members reach it.
    pub peer_url: &'a str,
    /// All members, as `--initial-cluster` has them.
    pub cluster: &'a str,
}

impl Backup {
    /// Takes a snapshot of etcd as it is. One that is bumped is going to be restored as another
    /// cluster and with a revision above all that there were.
    ///
    /// # Errors
    /// etcd does not give it.
    pub fn take(admin: &Admin, bumped: bool) -> Result<Self> {
        let directory = TempDir::new().context("make a directory for a snapshot")?;
        let mut backup = Self { directory, revision: 0, bumped };
        fs::write(backup.file(), admin.snapshot()?).context("write a snapshot")?;
        let mut command = etcdutl()?;
        command.args(["snapshot", "status", "--write-out=json"]).arg(backup.file());
        let status: serde_json::Value =
            serde_json::from_str(&output(&mut command)?).context("read a snapshot's status")?;
        backup.revision = status["revision"].as_i64().context("find a snapshot's revision")?;
        Ok(backup)
    }

    /// Makes a member's data directory of it.
    ///
    /// # Errors
    /// The tool refuses.
    pub fn restore(&self, data: &Path, member: Member<'_>) -> Result<()> {
        let mut command = etcdutl()?;
        command
            .args(["snapshot", "restore"])
            .arg(self.file())
            .arg(format!("--data-dir={}", data.display()))
            .arg(format!("--name={}", member.name))
            .arg(format!("--initial-cluster={}", member.cluster))
            .arg(format!("--initial-advertise-peer-urls={}", member.peer_url));
        if self.bumped {
            command.arg("--initial-cluster-token=restored");
            command.arg(format!("--bump-revision={BUMP}")).arg("--mark-compacted");
        }
        output(&mut command).map(drop)
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("snapshot")
    }
}

fn etcdutl() -> Result<Command> {
    Ok(Command::new(tool_output("tools/etcd/etcdutl")?))
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output().context("run etcdutl")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).context("read what etcdutl says")
}
