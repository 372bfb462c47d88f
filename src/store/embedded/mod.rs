//! etcd's model in this process, kept on disk. Not replicated.
//!
//! It keeps no history across a restart: the snapshot that it tells knows no deletions.

pub mod engine;
pub mod limits;

mod leases;

mod delta;
mod failure;
mod journal;
mod pages;

mod clock;
mod disk;
mod worker;

use crate::keeper::txn::{StoreCommand, StoreEvent};
use crate::store::StoreError;
use crate::store::embedded::clock::Clock;
use crate::store::embedded::disk::Disk;
use crate::store::embedded::engine::{Engine, State};
use crate::store::embedded::limits::Limits;
use crate::store::embedded::worker::Worker;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};

/// Where the embedded store lives.
#[derive(Clone, Debug)]
pub struct Options {
    /// A directory of its own; it is created if there is none.
    pub data_dir: PathBuf,
    /// The largest value that is going to be written, and so large a request is taken whatever
    /// it asks for; 0 holds all txns to etcd's default limits.
    pub value_bytes_max: usize,
}

impl Options {
    /// The store in a directory, with etcd's limits.
    pub fn at(data_dir: PathBuf) -> Self {
        Self { data_dir, value_bytes_max: 0 }
    }

    /// etcd has its limits for the sake of its other users; this store has none.
    fn limits(&self) -> Limits {
        let limits = Limits::default();
        if self.value_bytes_max == 0 {
            return limits;
        }
        let needed = self.value_bytes_max.saturating_mul(TXN_PER_REQUEST);
        Limits {
            txn_ops_max: TXN_OPS_MAX,
            request_bytes_max: limits.request_bytes_max.max(needed),
            ..limits
        }
    }
}

/// How many operations a txn may have: more than a multi can bring.
const TXN_OPS_MAX: usize = 1 << 17;

/// By how much a txn may be longer than the request that it is for: a delete of a few bytes takes
/// several keys.
const TXN_PER_REQUEST: usize = 16;

/// The embedded store at work on its thread.
#[derive(Debug)]
pub(super) struct Embedded {
    commands: Sender<StoreCommand>,
    /// The disk's failure, once; it is closed when the thread ends.
    failure: watch::Receiver<Option<StoreError>>,
}

impl Embedded {
    pub(super) async fn open(
        options: Options,
        events: mpsc::Sender<StoreEvent>,
    ) -> Result<Self, StoreError> {
        let limits = options.limits();
        let data_dir = options.data_dir;
        let (disk, state) = open_disk(&data_dir).await?;
        tracing::info!(
            data_dir = %data_dir.display(),
            keys = state.entries.len(),
            leases = state.leases.len(),
            revision = %state.revision,
            "embedded store is open; its data is not replicated"
        );
        let engine = Engine::restore(limits, state, Duration::ZERO);
        Self::start(engine, disk, events, data_dir)
    }

    fn start(
        engine: Engine,
        disk: Disk,
        events: mpsc::Sender<StoreEvent>,
        path: PathBuf,
    ) -> Result<Self, StoreError> {
        let (commands, receiver) = std::sync::mpsc::channel();
        let (failed, failure) = watch::channel(None);
        let clock = Clock::new(Instant::now());
        let worker = Worker { engine, disk, commands: receiver, events, clock };
        std::thread::Builder::new()
            .name("embedded-store".into())
            .spawn(move || {
                worker.run(|error| {
                    failed.send_replace(Some(error));
                });
                // What is dropped here tells `close` that the database is closed.
                drop(failed);
            })
            .map_err(|error| StoreError::Disk { path, reason: error.to_string() })?;
        Ok(Self { commands, failure })
    }

    pub(super) fn send(&self, command: StoreCommand) {
        // The thread ends only when nobody listens to its events.
        let _ = self.commands.send(command);
    }

    pub(super) async fn failed(&self) -> StoreError {
        let mut failure = self.failure.clone();
        match failure.wait_for(Option::is_some).await {
            Ok(error) => error.as_ref().expect("it was waited for").clone(),
            Err(_) => std::future::pending().await,
        }
    }

    pub(super) async fn close(self) {
        let Self { commands, mut failure } = self;
        drop(commands);
        while failure.changed().await.is_ok() {}
    }
}

/// Opens the disk. Whoever has it may be just ending: a process that is being replaced, or an
/// opening that was given up and is not over yet. So that is waited for a little.
async fn open_disk(data_dir: &Path) -> Result<(Disk, State), StoreError> {
    let begun = Instant::now();
    loop {
        let path = data_dir.to_owned();
        let opened = tokio::task::spawn_blocking(move || Disk::open(&path)).await;
        match opened.expect("opening does not panic") {
            Err(StoreError::InUse(path)) if begun.elapsed() < IN_USE_MAX => {
                tracing::debug!(path = %path.display(), "the data is in use; trying again");
                tokio::time::sleep(IN_USE_PAUSE).await;
            }
            opened => return opened,
        }
    }
}

const IN_USE_MAX: Duration = Duration::from_secs(3);
const IN_USE_PAUSE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests;
