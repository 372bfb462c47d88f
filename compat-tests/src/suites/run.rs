//! Runs the classes of a suite, in a JVM of their own or several in one, and gathers what became
//! of each method.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use tempfile::TempDir;

use crate::clients::class_path;
use crate::clients::program::{Program, run_to_end};
use crate::servers::etcd::Etcd;
use crate::servers::zkshim::binary;
use crate::suites::list::{Class, List};

/// How long a method may take; upstream's slowest take minutes.
const SILENCE_MAX: Duration = Duration::from_secs(300);

/// A suite that is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Suite {
    /// That of ZooKeeper's server and Java client.
    Zookeeper,
    /// Those of Curator's client, framework and recipes.
    Curator,
}

impl Suite {
    /// What is run of it, and what is not.
    ///
    /// # Errors
    /// Never: a test reads the lists.
    pub fn list(self) -> Result<List> {
        List::parse(match self {
            Self::Zookeeper => include_str!("../../java/suites/zookeeper.txt"),
            Self::Curator => include_str!("../../java/suites/curator.txt"),
        })
    }

    fn jars(self) -> &'static [&'static str] {
        match self {
            Self::Zookeeper => &["zookeeper-3.9.5-tests.jar"],
            Self::Curator => &[
                "curator-client-5.9.0-tests.jar",
                "curator-framework-5.9.0-tests.jar",
                "curator-recipes-5.9.0-tests.jar",
            ],
        }
    }

    /// Every test class that its jars have, run or not.
    ///
    /// # Errors
    /// The jars cannot be fetched or read.
    pub fn all_classes(self) -> Result<BTreeSet<String>> {
        let class_path = class_path("suites")?;
        let (_, jars) = split(&class_path)?;
        let directory = Path::new(jars.trim_end_matches('*'));
        let mut command = java();
        command.args(["-cp", &class_path, MAIN, "list"]);
        command.args(self.jars().iter().map(|jar| directory.join(jar)));
        let lines = run_to_end("the list of classes", command, SILENCE_MAX)?;
        let name = |line: &String| line.strip_prefix("class ").map(str::to_owned);
        lines.iter().map(|line| name(line).with_context(|| format!("read {line}"))).collect()
    }
}

/// What a suite's tests find when they start a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Found {
    /// What upstream has there: a ZooKeeper inside the test.
    Zookeeper,
    /// A zkshim with its own store.
    Embedded,
    /// A zkshim, or as many as there are members, on an etcd.
    Etcd,
}

/// What became of the methods, as `CLASS#METHOD`.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Those that passed.
    pub passed: BTreeSet<String>,
    /// Those that failed, with the reason.
    pub failed: Vec<String>,
    /// Those that upstream itself does not run.
    pub disabled: BTreeSet<String>,
    /// The classes of which nothing was run.
    pub empty: Vec<String>,
}

/// Runs classes of a suite, so many in a JVM and so many JVMs at once.
///
/// # Errors
/// A JVM cannot be run, is silent for too long, or breaks down.
pub fn run(classes: &[Class], found: Found, per_jvm: usize, jvms: usize) -> Result<Outcome> {
    let class_path = class_path("suites")?;
    let class_path = match found {
        // The classes that stand in for upstream's own come last, and are not used.
        Found::Zookeeper => split(&class_path).map(|(ours, jars)| format!("{jars}:{ours}"))?,
        Found::Embedded | Found::Etcd => class_path,
    };
    let etcd = if found == Found::Etcd { Some(Etcd::start()?) } else { None };
    let waiting = Mutex::new(classes.chunks(per_jvm));
    let outcome = Mutex::new(Outcome::default());
    let work = || -> Result<()> {
        loop {
            let next = waiting.lock().map_err(|_| anyhow!("another JVM failed"))?.next();
            let Some(chunk) = next else { return Ok(()) };
            run_jvm(chunk, &class_path, found, etcd.as_ref(), &outcome)?;
        }
    };
    thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = (0..jvms).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| {
            worker.join().map_err(|_| anyhow!("a thread with a JVM panicked"))?
        })
    })?;
    outcome.into_inner().context("take the outcome")
}

fn run_jvm(
    classes: &[Class],
    class_path: &str,
    found: Found,
    etcd: Option<&Etcd>,
    outcome: &Mutex<Outcome>,
) -> Result<()> {
    let directory = TempDir::new().context("make a directory for a suite")?;
    let files = directory.path().display();
    let mut command = java();
    command
        .arg(format!("-Djava.io.tmpdir={files}"))
        // ZKTestCase.testBaseDir.
        .arg(format!("-Dbuild.test.dir={files}"))
        .arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
        .arg("-Dorg.slf4j.simpleLogger.showDateTime=true")
        .arg("-Dzookeeper.admin.enableServer=false")
        // ZooKeeper's own build sets it (surefire's systemPropertyVariables).
        .arg(format!("-Dzookeeper.DigestAuthenticationProvider.superDigest={SUPER_TEST}"));
    if found != Found::Zookeeper {
        command.arg(format!("-Dzkshim.binary={}", binary()?.display()));
    }
    if let Some(etcd) = etcd {
        command.arg(format!("-Dzkshim.etcd={}", etcd.endpoint()));
    }
    command.args(["-cp", class_path, MAIN]);
    for class in classes {
        command.arg(&class.name);
        let without = without(class, found).map(|method| format!("-{}#{method}", class.name));
        command.args(without);
    }
    let began = Instant::now();
    let mut program = Program::start("a suite", command)?;
    let mut here = Outcome::default();
    while let Some(line) = program.hear(SILENCE_MAX)? {
        here.line(&line)?;
    }
    let status = program.finish()?;
    for class in classes {
        if !here.names(&class.name) {
            here.empty.push(class.name.clone());
        }
    }
    let names: Vec<_> = classes.iter().map(|class| class.name.as_str()).collect();
    eprintln!("{}: {} in {:.0?}", names.join(" "), here.figures(), began.elapsed());
    if !status.success() || !here.failed.is_empty() || !here.empty.is_empty() {
        eprintln!("{}\n{}", program.errors(), here.failed.join("\n"));
    }
    if !status.success() {
        bail!("a JVM with {names:?} ended with {status}");
    }
    outcome.lock().map_err(|_| anyhow!("another JVM failed"))?.add(here);
    Ok(())
}

/// The methods of a class that are not run.
fn without(class: &Class, found: Found) -> impl Iterator<Item = &String> {
    let never = class.without.iter().map(|(method, _)| method);
    let several = class.in_ensemble.iter().filter(move |_| found == Found::Embedded);
    let on_etcd = class.not_on_etcd.iter().filter(move |_| found == Found::Etcd);
    never.chain(several).chain(on_etcd.map(|(method, _)| method))
}

const MAIN: &str = "zkshim.suites.RunSuite";

/// super:test.
const SUPER_TEST: &str = "super:D/InIHSb7yEEbrWz8b9l71RjZJU=";

impl Outcome {
    fn line(&mut self, line: &str) -> Result<()> {
        match line.split_once(' ') {
            Some(("ok", name)) => {
                self.passed.insert(name.to_owned());
            }
            Some(("failed", rest)) => self.failed.push(rest.to_owned()),
            Some(("disabled", name)) => {
                self.disabled.insert(name.to_owned());
            }
            _ => bail!("a suite says {line:?}"),
        }
        Ok(())
    }

    /// Whether a method of the class passed or failed.
    fn names(&self, class: &str) -> bool {
        let of = |name: &String| name.strip_prefix(class).is_some_and(|rest| rest.starts_with('#'));
        self.passed.iter().any(of) || self.failed.iter().any(of)
    }

    fn add(&mut self, other: Self) {
        self.passed.extend(other.passed);
        self.failed.extend(other.failed);
        self.disabled.extend(other.disabled);
        self.empty.extend(other.empty);
    }

    /// How many there are of each kind.
    #[must_use]
    pub fn figures(&self) -> String {
        let (passed, failed) = (self.passed.len(), self.failed.len());
        format!("{passed} passed, {failed} failed, {} disabled", self.disabled.len())
    }
}

/// Short-lived: the cheap collector and compiler start faster on few cores.
fn java() -> Command {
    let mut command = Command::new("java");
    command.args(["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
    command
}

/// Our classes, and the jars.
fn split(class_path: &str) -> Result<(&str, &str)> {
    class_path.split_once(':').context("find classes and jars in the class path")
}
