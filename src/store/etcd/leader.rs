//! Which member leads: renewals through another one are forty times slower.

use crate::store::etcd::connection::Connection;
use crate::store::etcd::link::Link;
use crate::store::etcd::prefix::Prefix;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tonic::transport::Endpoint;

/// The connection to the leader, as far as it is known.
#[derive(Clone, Debug)]
pub(super) struct Leader {
    found: watch::Receiver<Option<Arc<Connection>>>,
    link: Link,
    asked: Arc<Notify>,
}

impl Leader {
    /// Waits for a connection, and marks it as seen.
    pub(super) async fn connected(&mut self) -> Arc<Connection> {
        loop {
            if let Some(connection) = &*self.found.borrow_and_update() {
                return Arc::clone(connection);
            }
            self.changed().await;
        }
    }

    /// The connection that everything else goes by: the member there passes renewals on. For
    /// whoever found the leader silent; it is looked for again.
    pub(super) async fn detour(&self) -> Arc<Connection> {
        self.asked.notify_one();
        self.link.connected().await
    }

    /// Waits until there is another connection than the one that was seen.
    pub(super) async fn changed(&mut self) {
        if self.found.changed().await.is_err() {
            // The watcher ends only with the store, and so do all tasks.
            std::future::pending::<()>().await;
        }
    }
}

/// Looks for the leader again and again; it runs as a task of its own.
pub(super) struct LeaderWatcher {
    link: Link,
    endpoints: Vec<Endpoint>,
    prefix: Prefix,
    found: watch::Sender<Option<Arc<Connection>>>,
    asked: Arc<Notify>,
    known: Option<Known>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    leader: u64,
    generation: u64,
}

impl LeaderWatcher {
    pub(super) fn new(link: Link, endpoints: Vec<Endpoint>, prefix: Prefix) -> (Self, Leader) {
        let (found, receiver) = watch::channel(None);
        let asked = Arc::new(Notify::new());
        let leader = Leader { found: receiver, link: link.clone(), asked: Arc::clone(&asked) };
        (Self { link, endpoints, prefix, found, asked, known: None }, leader)
    }

    pub(super) async fn run(mut self) {
        loop {
            let connection = self.link.connected().await;
            if let Ok(membership) = connection.membership().await {
                let connection = Arc::clone(&connection);
                let now = Known { leader: membership.leader, generation: connection.generation };
                if self.known != Some(now) && membership.leader != 0 {
                    let found = match membership.member == membership.leader {
                        true => connection,
                        false => self.find(membership.leader).await.unwrap_or(connection),
                    };
                    tracing::debug!(endpoint = found.endpoint, "leases are renewed here");
                    self.found.send_replace(Some(found));
                    self.known = Some(now);
                }
            } else {
                self.link.suspect(&connection);
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK_INTERVAL) => {}
                () = self.link.replaced(&connection) => {}
                () = self.asked.notified() => {}
            }
        }
    }

    /// A connection to the leader, if it is one of the endpoints.
    async fn find(&self, leader: u64) -> Option<Arc<Connection>> {
        for endpoint in &self.endpoints {
            let Ok(connection) = Connection::open(endpoint, 0, &self.prefix).await else {
                continue;
            };
            let membership = connection.membership().await;
            if membership.is_ok_and(|membership| membership.member == leader) {
                return Some(Arc::new(connection));
            }
        }
        None
    }
}

const LOOK_INTERVAL: Duration = Duration::from_secs(5);
