//! The sessions that this shim serves: their queues, their deadlines and their leases.
//!
//! ```text
//!            open            traffic moves the deadline
//! (absent) ───────▶ alive ◀──────────────┐
//!    ▲        move ▲  │ └────────────────┘
//!    │             │  │ close, or the deadline passes: key and ephemerals go in one txn,
//!    │             │  ▼ or the end is marked and the lease revoked
//!    └───────── moved away / ended
//! ```

pub mod ended;
pub mod leases;
pub mod proof;

use crate::keeper::acl::Identity;
use crate::keeper::request::{Connect, ConnectionId, Operation, SessionId, Xid};
use crate::keeper::sessions::proof::PASSWORD_BYTES;
use crate::keeper::time::Compact;
use crate::keeper::txn::LeaseId;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// The third part of a timeout after which a lease is renewed, so that it outlives its owner by
/// no less than the session's own deadline would.
const RENEWALS_A_TIMEOUT: u32 = 3;

/// Room for the way of a renewal to etcd, and for etcd's whole seconds.
const LEASE_MARGIN: Duration = Duration::from_secs(2);

/// How often the lease of a session is renewed.
pub fn renewal_interval(timeout: Duration) -> Duration {
    timeout / RENEWALS_A_TIMEOUT
}

/// The TTL class of a session's lease: the timeout, one interval and the margin, rounded up to
/// four to seven times a power of two seconds, so that leases can be used again.
pub fn lease_ttl(timeout: Duration) -> Duration {
    let least = timeout + renewal_interval(timeout) + LEASE_MARGIN;
    let seconds = least.as_secs() + u64::from(least.subsec_nanos() > 0);
    let step = (seconds.next_power_of_two() / 8).max(1);
    Duration::from_secs(seconds.div_ceil(step) * step)
}

/// The longest timeout that a lease of this TTL can carry.
pub fn timeout_held(ttl: Duration) -> Duration {
    ttl.saturating_sub(LEASE_MARGIN) * RENEWALS_A_TIMEOUT / (RENEWALS_A_TIMEOUT + 1)
}

/// Something that waits for its turn in a session.
#[derive(Debug)]
pub struct Pending {
    /// Where the answer goes; nowhere if the connection is gone by then.
    pub connection: ConnectionId,
    /// What the connection was when this came.
    pub identities: Arc<[Identity]>,
    /// What it is.
    pub work: Work,
    /// How often in a row its plan had become wrong.
    pub conflicts: u32,
    /// Since when a client waits for it.
    pub since: Duration,
}

impl Pending {
    /// Something that came just now.
    pub fn new(connection: ConnectionId, identities: Arc<[Identity]>, work: Work) -> Self {
        Self { connection, identities, work, conflicts: 0, since: Duration::ZERO }
    }
}

/// See [`Pending`].
#[derive(Debug)]
pub enum Work {
    /// A client's request.
    Request(Xid, Operation),
    /// The session's key is to be made.
    Open {
        /// Its client knows the session already.
        told: bool,
    },
    /// A client comes (back) with the session's id and password. `rewrite`: the key is written
    /// again, to move the session here or to fence off what is under way.
    Attach {
        /// See above.
        rewrite: bool,
    },
    /// The deadline has passed.
    Expire,
}

/// One stay of a session at this shim. A session that moves away and comes back begins another,
/// and nothing that was under way for the old one concerns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stay {
    /// Whose.
    pub session: SessionId,
    number: u64,
}

/// Whether a session has a key in etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// It has, or nobody is told of the session before it has.
    Written,
    /// Its client knows the session; the key is not written yet.
    Unwritten,
    /// Its client knows the session; the key is on its way.
    UnderWay,
}

/// A session that this shim serves.
#[derive(Debug)]
pub struct Local {
    /// What is needed until it is in etcd.
    without_key: Option<Box<WithoutKey>>,
    /// See [`KeyState`].
    pub key: KeyState,
    timeout: Compact,
    /// When it expires; moved by the client's traffic and by nothing else.
    deadline: Compact,
    /// The client's connection to this shim.
    pub connection: Option<ConnectionId>,
    /// The lease of its key and its ephemerals.
    pub lease: LeaseId,
    /// What waits for its turn, in order.
    pub queue: VecDeque<Pending>,
    /// The head of the queue, or what was before it, waits for an answer from outside: a batch, a
    /// barrier, a renewal.
    pub blocked: bool,
    /// It is blocked because the head waits for a renewal of the lease.
    pub renewing: bool,
    /// So many grants of a lease are asked for; the first one counts.
    pub granting: u8,
    /// So many batches under way hold writes of it, and more may leave before they come back.
    pub under_way: u32,
    /// It stands in the list of those that have a write to plan.
    pub scheduled: bool,
    /// Something that it wrote has an unknown outcome; the key must be written again before
    /// anything else is.
    pub unsettled: bool,
    /// Its end is under way.
    pub ending: bool,
    /// The bucket that it is in; it may still stand in others that it has left.
    bucket: Compact,
    stay: u64,
}

/// What a session has that is not in etcd yet.
#[derive(Debug, Default)]
struct WithoutKey {
    password: [u8; PASSWORD_BYTES],
    /// Who came back with the session before its key was written.
    parked: Vec<(ConnectionId, Connect)>,
}

impl Local {
    /// A session that has no lease yet.
    pub fn new(timeout: Duration, deadline: Duration) -> Self {
        Self {
            without_key: None,
            key: KeyState::Written,
            timeout: timeout.into(),
            deadline: deadline.into(),
            connection: None,
            lease: LeaseId::NONE,
            queue: VecDeque::new(),
            blocked: false,
            renewing: false,
            granting: 0,
            under_way: 0,
            scheduled: false,
            unsettled: false,
            ending: false,
            bucket: deadline.into(),
            stay: 0,
        }
    }

    /// The negotiated timeout.
    pub fn timeout(&self) -> Duration {
        self.timeout.get()
    }

    /// The session's client wants another timeout.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout.into();
    }

    /// When it expires.
    pub fn deadline(&self) -> Duration {
        self.deadline.get()
    }

    /// The password, for a session that is not in etcd yet; else zeros.
    pub fn password(&self) -> [u8; PASSWORD_BYTES] {
        self.without_key.as_ref().map_or([0; PASSWORD_BYTES], |without| without.password)
    }

    /// The password of a session that is not in etcd yet.
    pub fn set_password(&mut self, password: [u8; PASSWORD_BYTES]) {
        self.without_key.get_or_insert_default().password = password;
    }

    /// Somebody comes back with the session before its key is written.
    pub fn park(&mut self, connection: ConnectionId, connect: Connect) {
        self.without_key.get_or_insert_default().parked.push((connection, connect));
    }

    /// Somebody is.
    pub fn has_parked(&self) -> bool {
        self.without_key.as_ref().is_some_and(|without| !without.parked.is_empty())
    }

    /// Those who were parked.
    pub fn take_parked(&mut self) -> Vec<(ConnectionId, Connect)> {
        let without = self.without_key.as_mut();
        without.map(|without| std::mem::take(&mut without.parked)).unwrap_or_default()
    }

    /// It is in etcd now. Returns those who were parked.
    pub fn has_key(&mut self) -> Vec<(ConnectionId, Connect)> {
        self.key = KeyState::Written;
        self.give_back_room();
        self.without_key.take().map(|without| without.parked).unwrap_or_default()
    }

    /// Nothing stands between a read and its answer.
    pub fn is_clear(&self) -> bool {
        !self.blocked && self.under_way == 0 && self.queue.is_empty()
    }

    /// Its client may be silent for long now: room that nobody uses goes, and comes back with the
    /// next need.
    pub fn give_back_room(&mut self) {
        if self.queue.is_empty() {
            self.queue = VecDeque::new();
        }
    }

    /// Whether it can go on only with a lease, and has none yet.
    pub fn waits_for_lease(&self) -> bool {
        self.lease == LeaseId::NONE && self.blocked
    }
}

/// The sessions of this shim by id, and by when they may expire.
///
/// Every session is in exactly one bucket; the bucket is its deadline at some time in the past,
/// so it is looked at early, never late. Source: `ExpiryQueue`.
#[derive(Debug)]
pub struct Locals {
    /// In boxes: a table has room for a third more than it holds, and often for as many again.
    sessions: FxHashMap<SessionId, Box<Local>>,
    buckets: BTreeMap<Duration, Vec<SessionId>>,
    tick: Duration,
    stays: u64,
}

impl Locals {
    /// None yet.
    pub fn new(tick: Duration) -> Self {
        Self { sessions: FxHashMap::default(), buckets: BTreeMap::new(), tick, stays: 0 }
    }

    /// The deadline of a session whose client spoke `now`: the end of the tick in which the
    /// timeout ends. Source: `ExpiryQueue.roundToNextInterval`.
    pub fn deadline(&self, now: Duration, timeout: Duration) -> Duration {
        let tick = self.tick.as_millis().max(1);
        let ticks = (now + timeout).as_millis() / tick + 1;
        Duration::from_millis(u64::try_from(ticks * tick).unwrap_or(u64::MAX))
    }

    /// A session.
    pub fn find(&mut self, session: SessionId) -> Option<&mut Local> {
        self.sessions.get_mut(&session).map(|local| &mut **local)
    }

    /// A session, to look at.
    pub fn peek(&self, session: SessionId) -> Option<&Local> {
        self.sessions.get(&session).map(|local| &**local)
    }

    /// The present stay of a session.
    pub fn stay(&self, session: SessionId) -> Option<Stay> {
        let number = self.peek(session)?.stay;
        Some(Stay { session, number })
    }

    /// A session, if it is still the same stay.
    pub fn find_stay(&mut self, stay: Stay) -> Option<&mut Local> {
        self.find(stay.session).filter(|local| local.stay == stay.number)
    }

    /// What is under way of a session's stay concerns it no more.
    pub fn begin_stay(&mut self, session: SessionId) {
        self.stays += 1;
        let number = self.stays;
        if let Some(local) = self.find(session) {
            local.stay = number;
            local.under_way = 0;
        }
    }

    /// This shim serves a session from now on.
    pub fn insert(&mut self, session: SessionId, mut local: Local) -> &mut Local {
        self.stays += 1;
        local.stay = self.stays;
        self.buckets.entry(local.deadline()).or_default().push(session);
        self.sessions.entry(session).insert_entry(Box::new(local)).into_mut()
    }

    /// This shim does not serve a session any more.
    pub fn remove(&mut self, session: SessionId) -> Option<Local> {
        self.sessions.remove(&session).map(|local| *local)
    }

    /// The client of a session spoke.
    pub fn touch(&mut self, session: SessionId, now: Duration) {
        let Some(timeout) = self.peek(session).map(Local::timeout) else { return };
        let deadline = self.deadline(now, timeout);
        if let Some(local) = self.find(session) {
            local.deadline = deadline.into();
        }
    }

    /// No session expires before its whole timeout has passed once more: time during which
    /// nothing was served does not count.
    pub fn grant_full_timeouts(&mut self, now: Duration) {
        let sessions: Vec<SessionId> = self.sessions.keys().copied().collect();
        for session in sessions {
            self.touch(session, now);
        }
    }

    /// The sessions whose deadline has passed, in order. Each is told once until its next
    /// deadline.
    pub fn expired(&mut self, now: Duration) -> Vec<SessionId> {
        let mut expired = Vec::new();
        while let Some(entry) = self.buckets.first_entry() {
            let bucket = *entry.key();
            if bucket > now {
                break;
            }
            for session in entry.remove() {
                let Some(local) = self.sessions.get_mut(&session) else { continue };
                if local.bucket != bucket.into() {
                    continue;
                }
                if local.deadline() <= now {
                    expired.push(session);
                }
                local.give_back_room();
                let again = local.deadline().max(now + self.tick);
                local.bucket = again.into();
                self.buckets.entry(again).or_default().push(session);
            }
        }
        expired.sort_unstable();
        expired.dedup();
        expired
    }

    /// When [`Self::expired`] should be asked next.
    pub fn next_bucket(&self) -> Option<Duration> {
        self.buckets.keys().next().copied()
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (SessionId, &Local)> {
        self.sessions.iter().map(|(session, local)| (*session, &**local))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_secs(2);

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_session_is_small() {
        // There may be a hundred thousand.
        assert!(size_of::<Local>() <= 112, "{}", size_of::<Local>());
    }

    #[test]
    fn a_deadline_lies_at_the_end_of_its_tick() {
        let locals = Locals::new(TICK);
        assert_eq!(locals.deadline(seconds(0), seconds(4)), seconds(6));
        assert_eq!(locals.deadline(Duration::from_millis(1999), seconds(4)), seconds(6));
        assert_eq!(locals.deadline(seconds(2), seconds(4)), seconds(8));
    }

    #[test]
    fn a_session_that_was_touched_is_looked_at_again_later() {
        let mut locals = Locals::new(TICK);
        let id = SessionId(1);
        locals.insert(id, Local::new(seconds(4), seconds(6)));
        locals.touch(id, seconds(5));
        assert_eq!(locals.expired(seconds(6)), []);
        assert_eq!(locals.expired(seconds(9)), []);
        assert_eq!(locals.expired(seconds(10)), [id]);
        assert_eq!(locals.expired(seconds(11)), [], "told once");
        assert_eq!(locals.expired(seconds(12)), [id], "and again while it is still there");
        locals.remove(id);
        assert_eq!(locals.expired(seconds(99)), []);
    }

    #[test]
    fn a_session_that_comes_back_stands_in_one_bucket() {
        let mut locals = Locals::new(TICK);
        let id = SessionId(1);
        for deadline_s in [6, 8, 10] {
            locals.remove(id);
            locals.insert(id, Local::new(seconds(4), seconds(deadline_s)));
        }
        assert_eq!(locals.expired(seconds(8)), []);
        assert_eq!(locals.expired(seconds(10)), [id]);
        assert_eq!(locals.buckets.values().map(Vec::len).sum::<usize>(), 1);
    }

    #[test]
    fn a_lease_outlives_the_timeout_by_an_interval_and_the_margin() {
        for (timeout_s, ttl_s) in [(2, 5), (4, 8), (10, 16), (30, 48), (40, 56), (60, 96)] {
            let timeout = seconds(timeout_s);
            let ttl = lease_ttl(timeout);
            assert!(ttl >= timeout + renewal_interval(timeout) + LEASE_MARGIN, "{timeout:?}");
            assert!(timeout_held(ttl) >= timeout, "{timeout:?}");
            assert!(ttl <= seconds(ttl_s), "{timeout:?} gives {ttl:?}");
        }
    }
}
