//! zkshim itself, as a process, on either store.

use std::env;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;
use zkshim::store::{StoreOptions, embedded, etcd};

use crate::servers::etcd::Etcd;
use crate::servers::prepared::{Node, write_store};
use crate::servers::process::{Launch, Process, free_port, retry_start, serves_zookeeper};

/// A running zkshim.
pub struct Zkshim {
    process: Process,
}

/// The store of a zkshim, and flags beyond the harness's own.
#[derive(Clone, Debug, Default)]
pub struct ZkshimOptions {
    /// etcd's endpoints and the prefix of the keys; `None` is the embedded store.
    pub etcd: Option<(Vec<String>, String)>,
    /// More flags of `zkshim serve`, such as `--tick-time`, `1000`.
    pub flags: Vec<String>,
    /// More environment variables.
    pub environment: Vec<(String, String)>,
    /// Nodes that are there from the start, with the versions of their data.
    pub nodes: Vec<Node>,
}

impl ZkshimOptions {
    /// The embedded store in a fresh directory.
    #[must_use]
    pub fn embedded() -> Self {
        Self::default()
    }

    /// A tree under a prefix (`/zkshim/`) of an etcd, shared by all that use the same prefix.
    #[must_use]
    pub fn etcd(etcd: &Etcd, prefix: &str) -> Self {
        Self { etcd: Some((vec![etcd.endpoint()], prefix.to_owned())), ..Self::default() }
    }

    /// Adds a flag and its value.
    #[must_use]
    pub fn flag(mut self, flag: &str, value: &str) -> Self {
        self.flags.extend([flag.to_owned(), value.to_owned()]);
        self
    }

    /// Adds an environment variable.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }
}

impl ZkshimOptions {
    /// The same store, to be opened from here.
    fn store(&self, data_dir: &Path) -> StoreOptions {
        match &self.etcd {
            Some((endpoints, prefix)) => StoreOptions::Etcd(etcd::Options {
                endpoints: endpoints.clone(),
                prefix: prefix.clone(),
                ..etcd::Options::default()
            }),
            None => StoreOptions::Embedded(embedded::Options::at(data_dir.to_path_buf())),
        }
    }
}

impl Zkshim {
    /// Starts `zkshim serve` and waits until it serves.
    ///
    /// # Errors
    /// The program is not built, or it does not serve.
    pub fn start(options: &ZkshimOptions) -> Result<Self> {
        retry_start(|| {
            let directory = TempDir::new().context("make a directory for zkshim")?;
            let port = free_port()?;
            let mut command = Command::new(binary()?);
            command
                .arg("serve")
                .arg(format!("--listen=127.0.0.1:{port}"))
                .arg("--tick-time=2000")
                .arg("--four-letter-words=*");
            let data = directory.path().join("data");
            if !options.nodes.is_empty() {
                write_store(options.store(&data), &options.nodes)?;
            }
            match &options.etcd {
                Some((endpoints, prefix)) => command
                    .arg("--store=etcd")
                    .arg(format!("--etcd-endpoints={}", endpoints.join(",")))
                    .arg(format!("--prefix={prefix}")),
                None => {
                    command.arg("--store=embedded").arg(format!("--data-dir={}", data.display()))
                }
            };
            command.args(&options.flags);
            command.envs(options.environment.iter().map(|(name, value)| (name, value)));
            let launch = Launch {
                name: "zkshim",
                address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
                command,
                serves: serves_zookeeper,
            };
            Ok(Self { process: Process::start(launch, directory)? })
        })
    }
}

impl Deref for Zkshim {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for Zkshim {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}

/// The program to test: `ZKSHIM_BIN`, or the one beside the running test.
///
/// # Errors
/// It is not built.
pub fn binary() -> Result<PathBuf> {
    if let Some(path) = env::var_os("ZKSHIM_BIN") {
        return Ok(PathBuf::from(path));
    }
    let running = env::current_exe().context("find the running program")?;
    // Tests run in target/<profile>/deps, programs in target/<profile>.
    let found =
        running.ancestors().skip(1).take(2).map(|dir| dir.join("zkshim")).find(|p| p.is_file());
    match found {
        Some(path) => Ok(path),
        None => bail!("no zkshim beside {}: run `cargo build` first", running.display()),
    }
}
