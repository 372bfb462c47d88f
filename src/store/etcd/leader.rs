//! Which member leads: renewals through another one are forty times slower.

use crate::store::etcd::connection::Connection;
use crate::store::etcd::link::Link;
use crate::store::etcd::prefix::Prefix;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tonic::transport::Endpoint;

/// The connection to the leader, as far as it is known.
#[derive(Clone, Debug)]
pub(super) struct Leader(watch::Receiver<Option<Arc<Connection>>>);

impl Leader {
    /// Waits for a connection, and marks it as seen.
    pub(super) async fn connected(&mut self) -> Arc<Connection> {
        loop {
            if let Some(connection) = &*self.0.borrow_and_update() {
                return Arc::clone(connection);
            }
            self.changed().await;
        }
    }

    /// Waits until there is another connection than the one that was seen.
    pub(super) async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
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
        (Self { link, endpoints, prefix, found, known: None }, Leader(receiver))
    }

    pub(super) async fn run(mut self) {
        loop {
            let connection = self.link.connected().await;
            if let Ok(membership) = connection.membership().await {
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
            tokio::time::sleep(LOOK_INTERVAL).await;
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
