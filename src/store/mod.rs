//! Where the history is kept: etcd, or the same model in this process.
//!
//! A store runs the core's [`StoreCommand`]s and tells [`StoreEvent`]s. It knows nothing of
//! znodes; keys are bytes to it.

pub mod embedded;

pub mod etcd;

use crate::keeper::txn::{StoreCommand, StoreEvent};
use crate::store::embedded::Embedded;
use crate::store::etcd::Etcd;
use std::path::PathBuf;
use tokio::sync::mpsc;

/// Which store, and how.
#[derive(Clone, Debug)]
pub enum StoreOptions {
    /// In this process, on disk.
    Embedded(embedded::Options),
    /// In etcd.
    Etcd(etcd::Options),
}

/// A store at work.
///
/// It tells [`StoreEvent::Loaded`] first, then each revision that changes something once, whole
/// and in order. The channel of events is the caller's and should be bounded: a store waits for
/// room in it, which holds back etcd or the disk, and never waits for anything else of the
/// caller's. Commands wait inside without a bound; the core bounds what it has under way.
#[derive(Debug)]
pub struct Store(Kind);

#[derive(Debug)]
enum Kind {
    Embedded(Embedded),
    Etcd(Etcd),
}

impl Store {
    /// Opens the store; its events begin at once.
    ///
    /// # Errors
    /// The data cannot be used, or an option is wrong. An etcd that does not answer is none:
    /// it is waited for.
    pub async fn open(
        options: StoreOptions,
        events: mpsc::Sender<StoreEvent>,
    ) -> Result<Self, StoreError> {
        match options {
            StoreOptions::Embedded(options) => {
                Embedded::open(options, events).await.map(|store| Self(Kind::Embedded(store)))
            }
            StoreOptions::Etcd(options) => {
                Etcd::open(options, events).await.map(|store| Self(Kind::Etcd(store)))
            }
        }
    }

    /// Hands in a command. Never blocks; the answer comes as an event.
    pub fn send(&self, command: StoreCommand) {
        match &self.0 {
            Kind::Embedded(store) => store.send(command),
            Kind::Etcd(store) => store.send(command),
        }
    }

    /// Waits until the store is broken for good, and says why. What it is asked from then on it
    /// refuses; only a new start can help.
    pub async fn failed(&self) -> StoreError {
        match &self.0 {
            Kind::Embedded(store) => store.failed().await,
            // etcd may come back at any time.
            Kind::Etcd(_) => std::future::pending().await,
        }
    }

    /// Finishes what was handed in and closes. Meanwhile the caller takes the events, or has
    /// dropped their receiver.
    pub async fn close(self) {
        match self.0 {
            Kind::Embedded(store) => store.close().await,
            Kind::Etcd(store) => store.close().await,
        }
    }
}

/// Why a store cannot be opened, or cannot go on.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// An option makes no sense.
    #[error("{0}")]
    Option(String),
    /// Another process, or another store of this one, has the data open.
    #[error("{} is in use by another process", .0.display())]
    InUse(PathBuf),
    /// The data is damaged. It is not touched further.
    #[error("{} is damaged: {reason}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The data was written by a version with another layout.
    #[error("{} has layout {found}, this version reads {expected}", .path.display())]
    Layout {
        /// The file.
        path: PathBuf,
        /// The layout of the file.
        found: u64,
        /// The layout that this version knows.
        expected: u64,
    },
    /// The disk refuses: no space, no permission, an I/O error.
    #[error("cannot use {}: {reason}", .path.display())]
    Disk {
        /// The file.
        path: PathBuf,
        /// What the system says.
        reason: String,
    },
}
