//! The leases that this shim keeps alive, and the empty ones that wait for the next session.
//!
//! Granting a lease costs an entry in etcd's log and revoking one makes etcd write its database
//! to disk at once; so a lease whose session has ended in a txn serves the next session.

use crate::keeper::request::SessionId;
use crate::keeper::time::Compact;
use crate::keeper::txn::LeaseId;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

/// How long an empty lease is kept for the next session.
const IDLE_FOR: Duration = Duration::from_secs(120);

/// Empty leases of one TTL that are kept at most; more lapse.
const IDLE_MAX: usize = 10_000;

/// Whose lease it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A session's key and ephemerals are on it.
    Session(SessionId),
    /// Nothing is on it.
    Idle {
        /// When it may lapse.
        until: Duration,
    },
    /// The shim's own keys are on it.
    Shim,
}

#[derive(Debug)]
struct Lease {
    holder: Holder,
    ttl: Compact,
    interval: Compact,
    renewed_at: Compact,
    asked_at: Option<Compact>,
    /// When it is due; an entry of the heap with another time is a leftover.
    due_at: Compact,
}

impl Lease {
    fn has_ttl(&self) -> bool {
        !self.ttl.get().is_zero()
    }

    /// It was renewed less than one interval ago.
    fn was_renewed_lately(&self, now: Duration) -> bool {
        now.saturating_sub(self.renewed_at.get()) < self.interval.get()
    }
}

/// See the file's text.
#[derive(Debug, Default)]
pub struct Leases {
    leases: FxHashMap<LeaseId, Lease>,
    due: BinaryHeap<Reverse<(Compact, LeaseId)>>,
    idle: BTreeMap<Duration, Vec<LeaseId>>,
}

impl Leases {
    /// A lease that was granted, or is known to run from `now`.
    pub fn add(
        &mut self,
        lease: LeaseId,
        holder: Holder,
        ttl: Duration,
        interval: Duration,
        now: Duration,
    ) {
        let due_at = Compact::from(now + interval);
        let known = Lease {
            holder,
            ttl: ttl.into(),
            interval: interval.into(),
            renewed_at: now.into(),
            asked_at: None,
            due_at,
        };
        self.leases.insert(lease, known);
        self.due.push(Reverse((due_at, lease)));
    }

    /// As [`Self::add`], for a lease of which it is not known when it was renewed last: it counts
    /// as stale and is due at once.
    pub fn adopt(&mut self, lease: LeaseId, holder: Holder, interval: Duration, now: Duration) {
        let known = Lease {
            holder,
            ttl: Duration::ZERO.into(),
            interval: interval.into(),
            renewed_at: Duration::ZERO.into(),
            asked_at: None,
            due_at: now.into(),
        };
        self.leases.insert(lease, known);
        self.due.push(Reverse((now.into(), lease)));
    }

    /// An empty lease of this TTL that was renewed lately, for a session.
    pub fn take(
        &mut self,
        ttl: Duration,
        session: SessionId,
        interval: Duration,
        now: Duration,
    ) -> Option<LeaseId> {
        let idle = self.idle.get_mut(&ttl)?;
        while let Some(id) = idle.pop() {
            let Some(lease) = self.leases.get_mut(&id) else { continue };
            if lease.was_renewed_lately(now) {
                lease.holder = Holder::Session(session);
                lease.interval = interval.into();
                return Some(id);
            }
            self.leases.remove(&id);
        }
        None
    }

    /// The session on a lease has ended in a txn with a known outcome: nothing is on it.
    pub fn give_back(&mut self, id: LeaseId, now: Duration) {
        let Some(lease) = self.leases.get_mut(&id) else { return };
        let idle = self.idle.entry(lease.ttl.get()).or_default();
        if idle.len() < IDLE_MAX && lease.has_ttl() {
            lease.holder = Holder::Idle { until: now + IDLE_FOR };
            idle.push(id);
        } else {
            self.leases.remove(&id);
        }
    }

    /// A lease is not kept any more.
    pub fn forget(&mut self, lease: LeaseId) {
        self.leases.remove(&lease);
    }

    /// None of the empty ones is handed out or kept any more: something may be on them after all.
    pub fn forget_idle(&mut self) {
        for lease in std::mem::take(&mut self.idle).into_values().flatten() {
            self.leases.remove(&lease);
        }
    }

    /// Whose lease it is.
    pub fn holder(&self, lease: LeaseId) -> Option<Holder> {
        self.leases.get(&lease).map(|lease| lease.holder)
    }

    /// The TTL that a lease was last told to have.
    pub fn ttl(&self, lease: LeaseId) -> Option<Duration> {
        self.leases.get(&lease).filter(|lease| lease.has_ttl()).map(|lease| lease.ttl.get())
    }

    /// How often a lease is renewed changes with its session's timeout.
    pub fn change_interval(&mut self, lease: LeaseId, interval: Duration) {
        if let Some(lease) = self.leases.get_mut(&lease) {
            lease.interval = interval.into();
        }
    }

    /// The lease was renewed less than one interval ago.
    pub fn is_fresh(&self, lease: LeaseId, now: Duration) -> bool {
        let lease = self.leases.get(&lease);
        lease.is_some_and(|lease| lease.has_ttl() && lease.was_renewed_lately(now))
    }

    /// A renewal of this lease is sent now.
    pub fn asked(&mut self, lease: LeaseId, now: Duration) {
        if let Some(lease) = self.leases.get_mut(&lease) {
            lease.asked_at.get_or_insert(now.into());
        }
    }

    /// A renewal's answer: the TTL from when it was sent on; `None` if nothing was learnt.
    pub fn renewed(&mut self, lease: LeaseId, ttl: Option<Duration>) {
        let Some(lease) = self.leases.get_mut(&lease) else { return };
        let asked_at = lease.asked_at.take();
        if let (Some(ttl), Some(asked_at)) = (ttl, asked_at) {
            lease.ttl = ttl.into();
            lease.renewed_at = lease.renewed_at.max(asked_at);
        }
    }

    /// The leases to renew now. `wanted` says of a session's lease whether the session still has
    /// time; one that has none is left to lapse.
    pub fn due(&mut self, now: Duration, wanted: impl Fn(SessionId) -> bool) -> Vec<LeaseId> {
        let mut due = Vec::new();
        while let Some(Reverse((at, id))) = self.due.peek().copied() {
            if at.get() > now {
                break;
            }
            self.due.pop();
            let Some(lease) = self.leases.get_mut(&id).filter(|lease| lease.due_at == at) else {
                continue;
            };
            let keep = match lease.holder {
                Holder::Session(session) => wanted(session),
                Holder::Idle { until } => now < until,
                Holder::Shim => true,
            };
            if keep {
                due.push(id);
            } else if matches!(lease.holder, Holder::Idle { .. }) {
                self.leases.remove(&id);
                continue;
            }
            lease.due_at = (now + lease.interval.get()).into();
            self.due.push(Reverse((lease.due_at, id)));
        }
        due
    }

    /// When [`Self::due`] should be asked next.
    pub fn next_due(&self) -> Option<Duration> {
        self.due.peek().map(|Reverse((at, _))| at.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(8);
    const INTERVAL: Duration = Duration::from_secs(1);
    const NOW: Duration = Duration::from_secs(100);

    fn one_lease() -> Leases {
        let mut leases = Leases::default();
        leases.add(LeaseId(1), Holder::Session(SessionId(1)), TTL, INTERVAL, NOW);
        leases
    }

    #[test]
    fn a_lease_is_small() {
        // There may be a hundred thousand.
        assert_eq!(size_of::<Lease>(), 56);
    }

    #[test]
    fn a_lease_given_back_serves_the_next_session_of_its_class() {
        let mut leases = one_lease();
        leases.give_back(LeaseId(1), NOW);
        assert_eq!(leases.take(2 * TTL, SessionId(2), INTERVAL, NOW), None);
        assert_eq!(leases.take(TTL, SessionId(2), INTERVAL, NOW), Some(LeaseId(1)));
        assert_eq!(leases.take(TTL, SessionId(3), INTERVAL, NOW), None);
        assert_eq!(leases.holder(LeaseId(1)), Some(Holder::Session(SessionId(2))));
    }

    #[test]
    fn an_idle_lease_that_was_not_renewed_is_not_handed_out() {
        let mut leases = one_lease();
        leases.give_back(LeaseId(1), NOW);
        assert_eq!(leases.take(TTL, SessionId(2), INTERVAL, NOW + INTERVAL), None);
    }

    #[test]
    fn an_idle_lease_that_is_forgotten_is_not_renewed() {
        let mut leases = one_lease();
        leases.add(LeaseId(2), Holder::Session(SessionId(2)), TTL, INTERVAL, NOW);
        leases.give_back(LeaseId(1), NOW);
        leases.forget_idle();
        assert_eq!(leases.take(TTL, SessionId(3), INTERVAL, NOW), None);
        assert_eq!(leases.due(NOW + INTERVAL, |_| true), [LeaseId(2)]);
    }

    #[test]
    fn renewals_go_on_until_nobody_wants_the_lease() {
        let mut leases = one_lease();
        assert_eq!(leases.due(NOW, |_| true), []);
        assert_eq!(leases.due(NOW + INTERVAL, |_| true), [LeaseId(1)]);
        assert_eq!(leases.due(NOW + 2 * INTERVAL, |_| false), []);
        leases.give_back(LeaseId(1), NOW);
        assert_eq!(leases.due(NOW + IDLE_FOR, |_| true), []);
        assert_eq!(leases.holder(LeaseId(1)), None, "it lapses");
    }

    #[test]
    fn a_renewal_counts_from_when_it_was_sent() {
        let mut leases = one_lease();
        let later = NOW + 2 * INTERVAL;
        assert!(!leases.is_fresh(LeaseId(1), later));
        leases.asked(LeaseId(1), later);
        leases.renewed(LeaseId(1), None);
        assert!(!leases.is_fresh(LeaseId(1), later), "no answer, no renewal");
        leases.asked(LeaseId(1), later);
        leases.renewed(LeaseId(1), Some(TTL));
        assert!(leases.is_fresh(LeaseId(1), later));
        assert!(!leases.is_fresh(LeaseId(1), later + INTERVAL));
    }
}
