//! Leases: grants and revokes are calls of their own; renewals share a few long-lived streams.

use crate::keeper::txn::{LeaseId, StoreEvent};
use crate::store::etcd::Background;
use crate::store::etcd::connection::{Connection, describe, within};
use crate::store::etcd::keepalive::Lane;
use crate::store::etcd::leader::Leader;
use crate::store::etcd::link::Link;
use crate::store::etcd::lives::Lives;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// All that the store does with leases.
#[derive(Debug)]
pub(super) struct Leases {
    link: Link,
    timeout: Duration,
    /// The last one is for leases that may have ended.
    lanes: Vec<mpsc::UnboundedSender<LeaseId>>,
    lives: Lives,
}

impl Leases {
    /// Starts the lanes; they end with the store.
    pub(super) fn start(
        link: Link,
        leader: Leader,
        timeout: Duration,
        events: &mpsc::Sender<StoreEvent>,
        background: &Background,
    ) -> Self {
        let lives = Lives::default();
        let lanes = (0..=LANES).map(|_| {
            let (sender, renewals) = mpsc::unbounded_channel();
            let lane = Lane::new(leader.clone(), renewals, events.clone(), lives.clone());
            background.spawn(lane.run());
            sender
        });
        let lanes = lanes.collect();
        Self { link, timeout, lanes, lives }
    }

    /// Grants a lease, with the time that etcd gives it.
    pub(super) async fn grant(&self, ttl: Duration) -> Result<(LeaseId, Duration), String> {
        let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
        let connection = self.connected().await?;
        let mut client = connection.lease.clone();
        let granted = within(self.timeout, client.grant(seconds, None)).await;
        let granted = granted.inspect_err(|_| self.link.suspect(&connection))?;
        let lease = LeaseId(granted.id());
        let ttl = Duration::from_secs(u64::try_from(granted.ttl()).unwrap_or(0));
        self.lives.note(lease, ttl);
        Ok((lease, ttl))
    }

    /// Ends a lease and its keys. One that does not exist has ended.
    pub(super) async fn revoke(&self, lease: LeaseId) -> Result<(), String> {
        let connection = self.connected().await?;
        let mut client = connection.lease.clone();
        let revoked = tokio::time::timeout(self.timeout, client.revoke(lease.0)).await;
        let reason = match revoked {
            Ok(Ok(_)) => {
                self.lives.forget(lease);
                return Ok(());
            }
            Ok(Err(etcd_client::Error::GRpcStatus(status)))
                if status.code() == tonic::Code::NotFound =>
            {
                self.lives.forget(lease);
                return Ok(());
            }
            Ok(Err(error)) => describe(&error),
            Err(_) => format!("no answer within {:?}", self.timeout),
        };
        self.link.suspect(&connection);
        Err(reason)
    }

    /// Asks for a renewal; its answer is told by a lane. A lease that has ended but is not
    /// revoked yet holds up all that are behind it on its stream (etcd's `LeaseRenew` waits for
    /// the revoke), so those that may have ended go on a stream of their own.
    pub(super) fn renew(&self, lease: LeaseId) {
        let index = match self.lives.is_alive(lease) {
            true => lease.0.unsigned_abs() as usize % LANES,
            false => LANES,
        };
        // A lane ends only with the store.
        let _ = self.lanes[index].send(lease);
    }

    async fn connected(&self) -> Result<Arc<Connection>, String> {
        let waiting = tokio::time::timeout(self.timeout, self.link.connected()).await;
        waiting.map_err(|_| "not connected to etcd".to_owned())
    }
}

/// How many streams carry the renewals of leases that surely live.
const LANES: usize = 8;
