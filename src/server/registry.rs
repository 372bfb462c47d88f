//! What connection tasks share: who is connected, and how many from each address.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;

use crate::driver::outbox::Outbox;
use crate::keeper::request::ConnectionId;
use crate::server::figures::ConnectionFigures;
use crate::server::{Shared, unix_ms};

/// The live connections.
#[derive(Debug)]
pub struct Registry {
    connections: DashMap<ConnectionId, (Arc<ConnectionFigures>, Outbox)>,
    addresses: DashMap<IpAddr, usize>,
    admitted: AtomicUsize,
    /// Connections in all.
    connections_max: usize,
    /// Connections from one address; 0 is no limit.
    per_address_max: usize,
}

impl Registry {
    /// Nobody is connected.
    pub fn new(connections_max: usize, per_address_max: usize) -> Self {
        Self {
            connections: DashMap::new(),
            addresses: DashMap::new(),
            admitted: AtomicUsize::new(0),
            connections_max,
            per_address_max,
        }
    }

    /// Whether there is a place for one more connection from an address (`maxClientCnxns`); it is
    /// given back by [`Self::leave`].
    fn admit(&self, address: IpAddr) -> bool {
        let one_more = |admitted| (admitted < self.connections_max).then_some(admitted + 1);
        if self.admitted.fetch_update(Relaxed, Relaxed, one_more).is_err() {
            return false;
        }
        let mut count = self.addresses.entry(address).or_insert(0);
        if self.per_address_max != 0 && *count >= self.per_address_max {
            self.admitted.fetch_sub(1, Relaxed);
            return false;
        }
        *count += 1;
        true
    }

    fn leave(&self, address: IpAddr) {
        if let Entry::Occupied(mut count) = self.addresses.entry(address) {
            if *count.get() > 1 {
                *count.get_mut() -= 1;
            } else {
                count.remove();
            }
        }
        self.admitted.fetch_sub(1, Relaxed);
    }

    /// How many are connected.
    pub fn count(&self) -> usize {
        self.connections.len()
    }

    /// All connections look again at what there is to do.
    pub fn wake_all(&self) {
        self.connections.iter().for_each(|entry| entry.1.wake());
    }

    /// All that are connected, the oldest first.
    pub fn all(&self) -> Vec<(ConnectionId, Arc<ConnectionFigures>)> {
        let mut all: Vec<_> =
            self.connections.iter().map(|entry| (*entry.key(), Arc::clone(&entry.0))).collect();
        all.sort_by_key(|(connection, _)| *connection);
        all
    }
}

/// How many frames of the greatest length may wait for a client that does not read, before it is
/// cut. ZooKeeper has no limit there.
const OUTBOX_FRAMES_MAX: usize = 16;

/// One connection's place under the limits and its line in `cons`, until it is dropped.
#[derive(Debug)]
pub struct Seat {
    /// What all connections share.
    pub shared: Arc<Shared>,
    /// The connection's figures.
    pub figures: Arc<ConnectionFigures>,
    /// What waits for its client.
    pub outbox: Outbox,
    /// The connection's number.
    pub id: ConnectionId,
}

impl Seat {
    /// A place for a connection that was accepted just now; `None` if there are too many.
    pub fn take(shared: &Arc<Shared>, peer: SocketAddr) -> Option<Self> {
        if !shared.registry.admit(peer.ip().to_canonical()) {
            return None;
        }
        let id = shared.driver.connection();
        let figures = Arc::new(ConnectionFigures::new(peer, unix_ms(), shared.now_ms()));
        let bytes_max = OUTBOX_FRAMES_MAX * shared.options.frame_bytes_max;
        let outbox = Outbox::new(bytes_max, &shared.backlog);
        shared.registry.connections.insert(id, (Arc::clone(&figures), outbox.clone()));
        Some(Self { shared: Arc::clone(shared), figures, outbox, id })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let registry = &self.shared.registry;
        registry.connections.remove(&self.id);
        registry.leave(self.figures.peer().ip().to_canonical());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn address(last: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))
    }

    #[test]
    fn each_address_has_its_own_limit() {
        let registry = Registry::new(100, 2);
        assert!(registry.admit(address(1)) && registry.admit(address(1)));
        assert!(!registry.admit(address(1)));
        assert!(registry.admit(address(2)));
        registry.leave(address(1));
        assert!(registry.admit(address(1)));
    }

    #[test]
    fn all_together_have_a_limit_in_which_nobody_counts_who_was_refused() {
        let registry = Registry::new(3, 2);
        assert!(registry.admit(address(1)) && registry.admit(address(1)));
        assert!(!registry.admit(address(1)));
        assert!(registry.admit(address(2)));
        assert!(!registry.admit(address(3)));
        registry.leave(address(1));
        assert!(registry.admit(address(3)));
    }

    #[test]
    fn an_address_that_is_gone_leaves_nothing_behind() {
        let registry = Registry::new(100, 2);
        assert!(registry.admit(address(1)));
        registry.leave(address(1));
        assert!(registry.addresses.is_empty());
    }

    #[test]
    fn zero_is_no_limit_for_an_address() {
        let registry = Registry::new(1000, 0);
        assert!((0..500).all(|_| registry.admit(address(1))));
    }
}
