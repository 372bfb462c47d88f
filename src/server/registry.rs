//! What connection tasks share: who is connected, and how many from each address.

use std::net::IpAddr;
use std::sync::Arc;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;

use crate::keeper::request::ConnectionId;
use crate::server::figures::ConnectionFigures;

/// The live connections.
#[derive(Debug)]
pub struct Registry {
    connections: DashMap<ConnectionId, Arc<ConnectionFigures>>,
    addresses: DashMap<IpAddr, usize>,
    /// Connections from one address; 0 is no limit.
    per_address_max: usize,
}

impl Registry {
    /// Nobody is connected.
    pub fn new(per_address_max: usize) -> Self {
        Self { connections: DashMap::new(), addresses: DashMap::new(), per_address_max }
    }

    /// A place for one more connection from an address, until it is dropped; `None` if there are
    /// too many (`maxClientCnxns`).
    pub fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Admission> {
        let mut count = self.addresses.entry(address).or_insert(0);
        if self.per_address_max != 0 && *count >= self.per_address_max {
            return None;
        }
        *count += 1;
        Some(Admission { registry: Arc::clone(self), address })
    }

    /// Shows a connection to `cons` until what is returned is dropped.
    pub fn register(
        self: &Arc<Self>,
        connection: ConnectionId,
        figures: Arc<ConnectionFigures>,
    ) -> Registration {
        self.connections.insert(connection, figures);
        Registration { registry: Arc::clone(self), connection }
    }

    /// How many are connected.
    pub fn count(&self) -> usize {
        self.connections.len()
    }

    /// All that are connected, the oldest first.
    pub fn all(&self) -> Vec<(ConnectionId, Arc<ConnectionFigures>)> {
        let mut all: Vec<_> =
            self.connections.iter().map(|entry| (*entry.key(), Arc::clone(&entry))).collect();
        all.sort_by_key(|(connection, _)| *connection);
        all
    }
}

/// One connection's place among those of its address.
#[derive(Debug)]
pub struct Admission {
    registry: Arc<Registry>,
    address: IpAddr,
}

impl Drop for Admission {
    fn drop(&mut self) {
        if let Entry::Occupied(mut count) = self.registry.addresses.entry(self.address) {
            if *count.get() > 1 {
                *count.get_mut() -= 1;
            } else {
                count.remove();
            }
        }
    }
}

/// One connection's line in `cons`.
#[derive(Debug)]
pub struct Registration {
    registry: Arc<Registry>,
    connection: ConnectionId,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.registry.connections.remove(&self.connection);
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
        let registry = Arc::new(Registry::new(2));
        let first = registry.admit(address(1));
        let second = registry.admit(address(1));
        assert!(first.is_some() && second.is_some());
        assert!(registry.admit(address(1)).is_none());
        assert!(registry.admit(address(2)).is_some());
        drop(first);
        assert!(registry.admit(address(1)).is_some());
    }

    #[test]
    fn an_address_that_is_gone_leaves_nothing_behind() {
        let registry = Arc::new(Registry::new(2));
        drop(registry.admit(address(1)));
        assert!(registry.addresses.is_empty());
    }

    #[test]
    fn zero_is_no_limit() {
        let registry = Arc::new(Registry::new(0));
        let admitted: Vec<_> = (0..500).map_while(|_| registry.admit(address(1))).collect();
        assert_eq!(admitted.len(), 500);
    }
}
