//! The table of leases: who lives until when, and which keys go with whom.

use crate::keeper::txn::{Key, LeaseId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// All leases. Deadlines are on the caller's monotonic clock.
#[derive(Clone, Debug, Default)]
pub(super) struct Leases {
    leases: BTreeMap<LeaseId, Lease>,
    /// The same deadlines, soonest first.
    deadlines: BTreeSet<(Duration, LeaseId)>,
}

#[derive(Clone, Debug)]
struct Lease {
    ttl: Duration,
    deadline: Duration,
    keys: BTreeSet<Key>,
}

impl Leases {
    pub(super) fn insert(&mut self, id: LeaseId, ttl: Duration, now: Duration) {
        let deadline = now.saturating_add(ttl);
        let fresh = self.leases.insert(id, Lease { ttl, deadline, keys: BTreeSet::new() });
        assert!(fresh.is_none(), "a lease's number is used once");
        self.deadlines.insert((deadline, id));
    }

    pub(super) fn contains(&self, id: LeaseId) -> bool {
        self.leases.contains_key(&id)
    }

    /// Starts the lease's time again; `None` if there is no such lease.
    pub(super) fn renew(&mut self, id: LeaseId, now: Duration) -> Option<Duration> {
        let lease = self.leases.get_mut(&id)?;
        self.deadlines.remove(&(lease.deadline, id));
        lease.deadline = now.saturating_add(lease.ttl);
        self.deadlines.insert((lease.deadline, id));
        Some(lease.ttl)
    }

    /// Takes the lease out and returns its keys, sorted; `None` if there is no such lease.
    pub(super) fn remove(&mut self, id: LeaseId) -> Option<BTreeSet<Key>> {
        let lease = self.leases.remove(&id)?;
        self.deadlines.remove(&(lease.deadline, id));
        Some(lease.keys)
    }

    pub(super) fn attach(&mut self, id: LeaseId, key: Key) {
        if let Some(lease) = self.leases.get_mut(&id) {
            lease.keys.insert(key);
        }
    }

    pub(super) fn detach(&mut self, id: LeaseId, key: &Key) {
        if let Some(lease) = self.leases.get_mut(&id) {
            lease.keys.remove(key);
        }
    }

    /// The lease that ends first, and when.
    pub(super) fn first_deadline(&self) -> Option<(Duration, LeaseId)> {
        self.deadlines.first().copied()
    }

    pub(super) fn ttl(&self, id: LeaseId) -> Option<Duration> {
        self.leases.get(&id).map(|lease| lease.ttl)
    }
}
