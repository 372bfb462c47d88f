//! Until when each lease surely lives, as far as etcd has said.

use crate::keeper::txn::LeaseId;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The table, shared by those who hear of leases.
#[derive(Clone, Debug, Default)]
pub(super) struct Lives(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    until: BTreeMap<LeaseId, Instant>,
    /// How many entries there may be before the ended ones are looked for.
    sweep_at: usize,
}

impl Lives {
    /// etcd has said that the lease lives for so long; [`Duration::ZERO`] that it does not.
    pub(super) fn note(&self, lease: LeaseId, ttl: Duration) {
        let now = Instant::now();
        self.with(|table| {
            if ttl.is_zero() {
                table.until.remove(&lease);
                return;
            }
            table.until.insert(lease, now + ttl);
            if table.until.len() > table.sweep_at.max(SWEEP_MIN) {
                table.until.retain(|_, until| now < *until);
                table.sweep_at = table.until.len() * 2;
            }
        });
    }

    pub(super) fn is_alive(&self, lease: LeaseId) -> bool {
        let now = Instant::now();
        self.with(|table| table.until.get(&lease).is_some_and(|until| now < *until))
    }

    pub(super) fn forget(&self, lease: LeaseId) {
        self.note(lease, Duration::ZERO);
    }

    fn with<T>(&self, look: impl FnOnce(&mut Table) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

const SWEEP_MIN: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_lease_that_was_heard_of_in_time_is_alive() {
        let lives = Lives::default();
        lives.note(LeaseId(1), Duration::from_secs(60));
        lives.note(LeaseId(2), Duration::from_secs(1));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(lives.is_alive(LeaseId(1)));
        assert!(!lives.is_alive(LeaseId(2)));
        assert!(!lives.is_alive(LeaseId(3)));
        lives.forget(LeaseId(1));
        assert!(!lives.is_alive(LeaseId(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn ended_leases_do_not_pile_up() {
        let lives = Lives::default();
        for id in 0..10_000 {
            lives.note(LeaseId(id), Duration::from_nanos(1));
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert!(lives.with(|table| table.until.len()) <= SWEEP_MIN);
    }
}
