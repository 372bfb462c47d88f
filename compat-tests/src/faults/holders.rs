//! Real clients that hold a lock and an ephemeral throughout a run: kazoo and Curator, each twice,
//! where the second waits for the lock of the first.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::clients::program::Program;
use crate::clients::{class_path, kazoo_python, source};
use crate::faults::cluster::{Cluster, shim_addresses};
use crate::faults::record::Record;

/// How long a client may take to start, or to be told that the lock is its own.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Client {
    /// Python's.
    Kazoo,
    /// Java's, with ZooKeeper's own client below it.
    Curator,
}

/// Two programs of one client: one that holds a lock, and one that waits for it.
pub struct Holders {
    client: Client,
    holder: Program,
    waiter: Program,
}

impl Client {
    /// Fetches and builds what it needs, while there is a network to fetch from.
    ///
    /// # Errors
    /// It cannot be had.
    pub fn fetch(self) -> Result<()> {
        match self {
            Self::Kazoo => kazoo_python().map(|_| ()),
            Self::Curator => class_path("curator").map(|_| ()),
        }
    }

    fn command(self) -> Result<Command> {
        Ok(match self {
            Self::Kazoo => {
                let mut command = Command::new(kazoo_python()?);
                command.arg("-u").arg(source("python/faults_holder.py"));
                command
            }
            Self::Curator => {
                let mut command = Command::new("java");
                command.arg("-cp").arg(class_path("curator")?).arg("Holder");
                command
            }
        })
    }
}

impl Holders {
    /// Starts both, on machines of clients.
    ///
    /// # Errors
    /// They do not start, or the lock is given to none or to both.
    pub fn start(client: Client, cluster: &Cluster) -> Result<Self> {
        let addresses: Vec<_> = shim_addresses().iter().map(ToString::to_string).collect();
        let program = |machine: usize, name: &str| {
            let namespace = cluster.clients.get(machine).context("find a machine of clients")?;
            let mut command = client.command()?;
            command.arg(addresses.join(",")).arg(name);
            namespace.within(|| Program::start(&format!("{client:?} {name}"), command))
        };
        let mut holder = program(1, "holder")?;
        expect(&mut holder, &["waiting", "held"])?;
        let mut waiter = program(2, "waiter")?;
        expect(&mut waiter, &["waiting"])?;
        Ok(Self { client, holder, waiter })
    }

    /// Lets the holder go and sees that the waiter comes next; notes what is wrong.
    ///
    /// # Errors
    /// A program cannot be talked to.
    pub fn finish(mut self, record: &Record) -> Result<()> {
        // Whatever the waiter has said so far, it has said too early.
        while let Ok(Some(line)) = self.waiter.hear(Duration::from_millis(100)) {
            record.violation(format!("{:?}: the waiter says {line:?}", self.client));
        }
        for (program, name) in [(&mut self.holder, "holder"), (&mut self.waiter, "waiter")] {
            if name == "waiter"
                && let Err(error) = expect(program, &["held"])
            {
                record.violation(format!("{:?}: {error:#}", self.client));
            }
            program.say("end")?;
            let deadline = Instant::now() + PATIENCE;
            let mut said = Vec::new();
            while Instant::now() < deadline {
                match program.hear(PATIENCE)? {
                    Some(line) if line == "ok" => break,
                    Some(line) => said.push(line),
                    None => break,
                }
            }
            if !said.is_empty() {
                record.violation(format!("{:?}: the {name} says {said:?}", self.client));
            }
        }
        Ok(())
    }
}

fn expect(program: &mut Program, lines: &[&str]) -> Result<()> {
    for expected in lines {
        let line = program.hear(PATIENCE)?;
        anyhow::ensure!(
            line.as_deref() == Some(*expected),
            "{line:?} instead of {expected:?}\n{}",
            program.errors()
        );
    }
    Ok(())
}
