//! The store in etcd. Nothing here is sent twice: whether a txn happened is for the stream of
//! changes to say.

mod options;

mod connection;
mod gathered;
mod prefix;

mod leader;
mod link;
mod room;

mod changes;
mod deletions;
mod frontier;
mod snapshot;
mod witness;

mod commit;

mod keepalive;
mod leases;
mod lives;

mod upkeep;

pub use options::{Options, UserOptions};

use crate::keeper::txn::{StoreCommand, StoreEvent};
use crate::keeper::zxid::Revision;
use crate::store::StoreError;
use crate::store::etcd::changes::Changes;
use crate::store::etcd::frontier::Frontier;
use crate::store::etcd::leader::LeaderWatcher;
use crate::store::etcd::leases::Leases;
use crate::store::etcd::link::{Link, Supervisor};
use crate::store::etcd::prefix::Prefix;
use crate::store::etcd::upkeep::Upkeep;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// The store in etcd at work.
#[derive(Debug)]
pub(super) struct Etcd {
    shared: Arc<Shared>,
    runtime: Handle,
    /// Calls under way.
    calls: TaskTracker,
    /// Ends the long-lived tasks.
    background: DropGuard,
}

#[derive(Debug)]
struct Shared {
    link: Link,
    prefix: Prefix,
    timeout: Duration,
    leases: Leases,
    frontier: Frontier,
    /// Makes the stream say how far it is.
    asked: Arc<Notify>,
    events: mpsc::Sender<StoreEvent>,
}

impl Etcd {
    /// Waits until etcd answers.
    pub(super) async fn open(
        options: Options,
        events: mpsc::Sender<StoreEvent>,
    ) -> Result<Self, StoreError> {
        let members = options.checked_members()?;
        let prefix = Prefix::new(&options.prefix);
        let timeout = options.call_timeout;
        let background = Background::default();
        let (supervisor, link) =
            Supervisor::new(members.clone(), prefix.clone(), options.value_bytes_max);
        background.spawn(supervisor.run());
        wait(&link).await;
        let (watcher, leader) = LeaderWatcher::new(link.clone(), members);
        background.spawn(watcher.run());
        let asked = Arc::new(Notify::new());
        let (to_tell, progress) = (events.clone(), Arc::clone(&asked));
        let frontier = Frontier::default();
        let (way, known) = (link.clone(), frontier.clone());
        let changes = Changes::new(way, prefix.clone(), timeout, to_tell, progress, known);
        background.spawn(changes.run());
        background.spawn(Upkeep::new(link.clone(), prefix.clone()).run());
        let leases = Leases::start(link.clone(), leader, timeout, &events, &background);
        let shared = Arc::new(Shared { link, prefix, timeout, leases, frontier, asked, events });
        Ok(Self {
            shared,
            runtime: Handle::current(),
            calls: TaskTracker::new(),
            background: background.ended.drop_guard(),
        })
    }

    pub(super) fn send(&self, command: StoreCommand) {
        match command {
            StoreCommand::Progress => self.shared.asked.notify_one(),
            StoreCommand::Renew(lease) => self.shared.leases.renew(lease),
            StoreCommand::Commit(..)
            | StoreCommand::Barrier(..)
            | StoreCommand::Grant(..)
            | StoreCommand::Revoke(..) => {
                let shared = Arc::clone(&self.shared);
                self.calls.spawn_on(async move { shared.call(command).await }, &self.runtime);
            }
        }
    }

    pub(super) async fn close(self) {
        self.calls.close();
        // Each call ends by its timeout, unless nobody takes its answer.
        let _ = tokio::time::timeout(2 * self.shared.timeout, self.calls.wait()).await;
        drop(self.background);
    }
}

impl Shared {
    async fn call(&self, command: StoreCommand) {
        let event = match command {
            StoreCommand::Commit(token, txn) => {
                let outcome = commit::commit(&self.link, &self.prefix, self.timeout, txn).await;
                StoreEvent::Committed(token, outcome)
            }
            StoreCommand::Barrier(token) => StoreEvent::BarrierPassed(token, self.barrier().await),
            StoreCommand::Grant(token, ttl) => {
                StoreEvent::Granted(token, self.leases.grant(ttl).await)
            }
            StoreCommand::Revoke(token, lease) => {
                StoreEvent::Revoked(token, self.leases.revoke(lease).await)
            }
            StoreCommand::Progress | StoreCommand::Renew(_) => return,
        };
        // An event that nobody wants any more is none.
        let _ = self.events.send(event).await;
    }

    async fn barrier(&self) -> Result<Revision, String> {
        let waiting = tokio::time::timeout(self.timeout, self.link.connected()).await;
        let connection = waiting.map_err(|_| "not connected to etcd".to_owned())?;
        let told = self.frontier.revision();
        let reading = connection.position(&self.prefix);
        tokio::pin!(reading);
        let answered = tokio::time::timeout(BARRIER_SLOW, &mut reading).await;
        let position = match answered {
            Ok(position) => position,
            Err(_) => {
                self.link.suspect(&connection);
                tokio::select! {
                    position = reading => position,
                    () = self.link.replaced(&connection) => {
                        return Err("another member is asked now".to_owned());
                    }
                }
            }
        };
        let position = position.inspect_err(|_| self.link.suspect(&connection))?;
        if position.revision < told {
            // The stream is going to find the same, and to tell what there is now.
            return Err(format!("etcd is at {}, and was at {told}", position.revision));
        }
        Ok(position.revision)
    }
}

/// Tasks that live as long as the store.
#[derive(Debug, Default)]
struct Background {
    ended: CancellationToken,
}

impl Background {
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let ended = self.ended.clone();
        tokio::spawn(async move { ended.run_until_cancelled(task).await });
    }
}

/// Waits for etcd, and says so while it lasts.
async fn wait(link: &Link) {
    loop {
        match tokio::time::timeout(SAY_INTERVAL, link.connected()).await {
            Ok(_) => return,
            Err(_) => {
                let reason = link.failure().unwrap_or_default();
                tracing::warn!(reason, "waiting for etcd");
            }
        }
    }
}

/// A member that lets a read wait for so long is looked at.
const BARRIER_SLOW: Duration = Duration::from_millis(700);
const SAY_INTERVAL: Duration = Duration::from_secs(3);
