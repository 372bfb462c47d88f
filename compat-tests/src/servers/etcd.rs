//! A single-member etcd: the one that the product is built for, and the oldest supported.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::servers::process::{Launch, Process, ask, free_port, retry_start};
use crate::servers::tool_output;

/// A running etcd.
pub struct Etcd {
    process: Process,
}

impl Etcd {
    /// Starts the etcd that `tools/etcd/build` gives, with default settings.
    ///
    /// # Errors
    /// It cannot be built or does not serve.
    pub fn start() -> Result<Self> {
        Self::start_with(&[])
    }

    /// As [`Etcd::start`], with more flags (`--max-txn-ops=2048`).
    ///
    /// # Errors
    /// It cannot be built or does not serve.
    pub fn start_with(flags: &[&str]) -> Result<Self> {
        let binary = PathBuf::from(tool_output("tools/etcd/build")?);
        Self::start_binary(&binary, flags)
    }

    /// Starts the distribution's etcd (3.4 on Debian 12) that `tools/etcd/oldest` gives, or gives
    /// `None` where there is none.
    ///
    /// # Errors
    /// It cannot be fetched or does not serve.
    pub fn start_oldest() -> Result<Option<Self>> {
        let binary = tool_output("tools/etcd/oldest")?;
        if binary.is_empty() {
            return Ok(None);
        }
        Self::start_binary(Path::new(&binary), &[]).map(Some)
    }

    /// Starts a given etcd program.
    ///
    /// # Errors
    /// It does not serve.
    pub fn start_binary(binary: &Path, flags: &[&str]) -> Result<Self> {
        retry_start(|| {
            let directory = TempDir::new().context("make a directory for etcd")?;
            let port = free_port()?;
            let clients = format!("http://127.0.0.1:{port}");
            let peers = format!("http://127.0.0.1:{}", free_port()?);
            let mut command = Command::new(binary);
            command
                .arg("--name=test")
                .arg(format!("--data-dir={}", directory.path().join("data").display()))
                .arg(format!("--listen-client-urls={clients}"))
                .arg(format!("--advertise-client-urls={clients}"))
                .arg(format!("--listen-peer-urls={peers}"))
                .arg(format!("--initial-advertise-peer-urls={peers}"))
                .arg(format!("--initial-cluster=test={peers}"))
                .args(flags);
            let launch = Launch {
                name: "etcd",
                address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
                command,
                serves: is_healthy,
            };
            Ok(Self { process: Process::start(launch, directory)? })
        })
    }

    /// The URL for clients.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address())
    }
}

impl Deref for Etcd {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for Etcd {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}

/// Whether the etcd at the address serves.
#[must_use]
pub fn is_healthy(address: SocketAddr) -> bool {
    ask(address, b"GET /health HTTP/1.0\r\n\r\n").contains(r#""health":"true""#)
}
