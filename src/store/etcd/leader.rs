//! Which member leads: renewals through another one are forty times slower.

use crate::store::etcd::connection::Connection;
use crate::store::etcd::link::Link;
use crate::store::etcd::options::Member;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

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
    members: Vec<Member>,
    found: watch::Sender<Option<Arc<Connection>>>,
    asked: Arc<Notify>,
    known: Option<Known>,
    /// It is looked for often until then.
    hurry_until: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    leader: u64,
    generation: u64,
}

impl LeaderWatcher {
    pub(super) fn new(link: Link, members: Vec<Member>) -> (Self, Leader) {
        let (found, receiver) = watch::channel(None);
        let asked = Arc::new(Notify::new());
        let leader = Leader { found: receiver, link: link.clone(), asked: Arc::clone(&asked) };
        let hurry_until = Instant::now();
        (Self { link, members, found, asked, known: None, hurry_until }, leader)
    }

    pub(super) async fn run(mut self) {
        loop {
            let connection = self.link.connected().await;
            let link = self.link.clone();
            tokio::select! {
                () = self.look(&connection) => {}
                () = link.replaced(&connection) => {
                    self.hurry();
                    continue;
                }
            }
            let hurries = Instant::now() < self.hurry_until;
            tokio::select! {
                () = tokio::time::sleep(if hurries { HURRY_INTERVAL } else { LOOK_INTERVAL }) => {}
                () = self.link.replaced(&connection) => self.hurry(),
                () = self.link.suspected(), if !hurries => self.hurry(),
                () = self.asked.notified(), if !hurries => self.hurry(),
            }
        }
    }

    /// A new leader takes a while to be elected, and members to hear of it.
    fn hurry(&mut self) {
        self.hurry_until = Instant::now() + HURRY_FOR;
    }

    async fn look(&mut self, connection: &Arc<Connection>) {
        let Ok(membership) = connection.membership().await else {
            self.link.suspect(connection);
            return;
        };
        let now = Known { leader: membership.leader, generation: connection.generation };
        if self.known == Some(now) || membership.leader == 0 {
            return;
        }
        let found = match membership.member == membership.leader {
            true => Arc::clone(connection),
            false => match self.find(membership.leader).await {
                Some(found) => Arc::new(found),
                None => Arc::clone(connection),
            },
        };
        tracing::debug!(endpoint = found.endpoint, "leases are renewed here");
        self.found.send_replace(Some(found));
        self.known = Some(now);
    }

    /// A connection to the leader, if it is one of the endpoints. All are asked at once, since
    /// one may be silent.
    async fn find(&self, leader: u64) -> Option<Connection> {
        let mut attempts = JoinSet::new();
        for member in self.members.clone() {
            attempts.spawn(async move {
                let connection = Connection::connect(&member).await.ok()?;
                let membership = connection.membership().await.ok()?;
                (membership.member == leader).then_some(connection)
            });
        }
        while let Some(attempt) = attempts.join_next().await {
            if let Ok(Some(found)) = attempt {
                return Some(found);
            }
        }
        None
    }
}

const LOOK_INTERVAL: Duration = Duration::from_secs(5);
const HURRY_INTERVAL: Duration = Duration::from_millis(300);
const HURRY_FOR: Duration = Duration::from_secs(5);
