//! Starts etcd, a real ZooKeeper and zkshim as processes, each on a port of its own.
//!
//! Every server keeps its files in a temporary directory and is killed when it is dropped,
//! so that a test that panics leaves nothing behind.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

pub mod etcd;
pub mod prepared;
pub mod process;
pub mod zkshim;
pub mod zookeeper;

/// Runs a script of this repository, with its arguments after blanks, and gives what it prints,
/// trimmed.
///
/// # Errors
/// It is not there or fails; what it says goes to the test's own standard error.
pub(crate) fn tool_output(script: &str) -> Result<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut words = script.split(' ');
    let output = Command::new(root.join(words.next().unwrap_or_default()))
        .args(words)
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("run {script}"))?;
    if !output.status.success() {
        bail!("{script} failed with {}", output.status);
    }
    let text = String::from_utf8(output.stdout).context("read the output of a script")?;
    Ok(text.trim().to_owned())
}
