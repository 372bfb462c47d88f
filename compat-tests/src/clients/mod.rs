//! Real components as clients, unmodified: HiveServer2, beeline, the Hive driver, Kyuubi's client
//! stack, kazoo, Kafka's brokers and HBase, with the servers that they run against.
//!
//! Their jars and packages come from the public registries into a cache, once.

use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::clients::under_test::Against;
use crate::servers::tool_output;

pub mod hbase;
pub mod hive;
pub mod kafka;
pub mod program;
pub mod relay;
pub mod steps;
pub mod under_test;
pub mod zkcli;

/// Whether all tools of the client and of its servers are on the path. If not, the test is noted
/// as not run, for all to see.
///
/// # Errors
/// The note cannot be written: a test must not go missing in silence.
pub fn can_run(test: &str, client: &[&str], against: Against) -> Result<bool> {
    let path = env::var_os("PATH").unwrap_or_default();
    let missing = |tool: &&&str| !env::split_paths(&path).any(|dir| dir.join(tool).is_file());
    let Some(tool) = client.iter().chain(against.tools()).find(missing) else {
        return Ok(true);
    };
    not_run(&format!("{test} because `{tool}` is missing"))?;
    Ok(false)
}

/// Whether the C compiler finds a header; if not, the test is noted as not run, with the package
/// that has it.
///
/// # Errors
/// The compiler cannot be run, or the note cannot be written.
pub fn has_header(test: &str, header: &str, package: &str) -> Result<bool> {
    let found = Command::new("cc")
        .args(["-E", "-include", header, "-x", "c", "/dev/null"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .context("run the C compiler")?
        .success();
    if !found {
        not_run(&format!("{test} because `{header}` ({package}) is missing"))?;
    }
    Ok(found)
}

/// Notes what is not run, and why, for all to see.
///
/// # Errors
/// The note cannot be written.
pub fn not_run(reason: &str) -> Result<()> {
    // Written straight to the stream: the test harness would keep back what `eprintln!` says.
    writeln!(std::io::stderr(), "\nNOT RUN: {reason}").context("say what is not run")?;
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target");
    fs::create_dir_all(&target).context("make the target directory")?;
    let mut list = File::options()
        .create(true)
        .append(true)
        .open(target.join("not-run.txt"))
        .context("open not-run.txt")?;
    // In one piece: other tests write at the same time.
    list.write_all(format!("{reason}\n").as_bytes()).context("write not-run.txt")
}

/// The directory with the jars that `java/<name>/pom.xml` gathers.
///
/// # Errors
/// They cannot be fetched.
pub fn jars(name: &str) -> Result<PathBuf> {
    tool_output(&format!("compat-tests/java/fetch {name}")).map(PathBuf::from)
}

/// What Java needs to run the classes of `java/<name>/*.java`, compiled on its jars.
///
/// # Errors
/// The jars cannot be fetched, or the sources do not compile.
pub fn class_path(name: &str) -> Result<String> {
    tool_output(&format!("compat-tests/java/compile {name}"))
}

/// A program of steps that `<language>/build` builds.
///
/// # Errors
/// It does not compile, or what it leans on cannot be fetched.
pub fn built(language: &str) -> Result<PathBuf> {
    tool_output(&format!("compat-tests/{language}/build")).map(PathBuf::from)
}

/// The Python that has kazoo.
///
/// # Errors
/// It cannot be installed.
pub fn kazoo_python() -> Result<PathBuf> {
    tool_output("compat-tests/python/fetch-kazoo").map(PathBuf::from)
}

/// The Python that has Patroni.
///
/// # Errors
/// It cannot be installed.
pub fn patroni_python() -> Result<PathBuf> {
    tool_output("compat-tests/python/fetch-patroni").map(PathBuf::from)
}

/// A file of this package.
#[must_use]
pub fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}
