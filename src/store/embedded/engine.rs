//! etcd's model of data as a pure value: revisions, compares, nested txns, leases, history.
//!
//! No clock, no I/O: time comes in as an argument. It is driven by the embedded store and by
//! the simulator. It refuses what etcd refuses; a suite runs the same txns against both.

use crate::keeper::txn::{
    Change, CommitError, Compare, Deletion, Key, KeyValue, LeaseId, Op, RevisionChanges, Snapshot,
    Txn, TxnAnswer,
};
use crate::keeper::zxid::Revision;
use crate::store::embedded::leases::Leases;
use crate::store::embedded::limits::Limits;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The key space with its history.
///
/// **Invariant:** `history` holds every revision after `compacted` that changed something, in
/// order and without gaps: each revision after the first is made by exactly one such change.
#[derive(Clone, Debug)]
pub struct Engine {
    limits: Limits,
    cluster: u64,
    revision: Revision,
    compacted: Revision,
    entries: BTreeMap<Key, Entry>,
    leases: Leases,
    lease_last: LeaseId,
    history: VecDeque<RevisionChanges>,
}

/// What outlives the process. Deadlines do not: leases start afresh.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The store's identity.
    pub cluster: u64,
    /// The revision of the last change.
    pub revision: Revision,
    /// The highest lease number that was ever granted.
    pub lease_last: LeaseId,
    /// The leases with their times to live.
    pub leases: Vec<(LeaseId, Duration)>,
    /// All keys.
    pub entries: Vec<KeyValue>,
}

/// The history that was asked for is gone; it begins after the revision named here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compacted(pub Revision);

#[derive(Clone, Debug)]
struct Entry {
    value: Bytes,
    create_revision: Revision,
    mod_revision: Revision,
    lease: LeaseId,
}

impl Engine {
    /// An empty key space. Its revision is 1, as that of a new etcd is.
    pub fn new(limits: Limits, cluster: u64) -> Self {
        let state = State { cluster, revision: FIRST, ..State::default() };
        Self::restore(limits, state, Duration::ZERO)
    }

    /// The key space as it was, without history; every lease has its whole time again.
    pub fn restore(limits: Limits, state: State, now: Duration) -> Self {
        let mut leases = Leases::default();
        for (lease, ttl) in state.leases {
            leases.insert(lease, ttl, now);
        }
        let mut entries = BTreeMap::new();
        for KeyValue { key, value, create_revision, mod_revision, lease } in state.entries {
            leases.attach(lease, key.clone());
            entries.insert(key, Entry { value, create_revision, mod_revision, lease });
        }
        let (cluster, revision) = (state.cluster, state.revision.max(FIRST));
        let (lease_last, history) = (state.lease_last, VecDeque::new());
        Self {
            limits,
            cluster,
            revision,
            compacted: revision,
            entries,
            leases,
            lease_last,
            history,
        }
    }

    /// The revision of the last change.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The store's identity.
    pub fn cluster(&self) -> u64 {
        self.cluster
    }

    /// The highest lease number that was ever granted.
    pub fn lease_last(&self) -> LeaseId {
        self.lease_last
    }

    /// A lease's time to live; `None` if there is no such lease.
    pub fn lease_ttl(&self, lease: LeaseId) -> Option<Duration> {
        self.leases.ttl(lease)
    }

    /// A key with all that is known of it.
    pub fn get(&self, key: &Key) -> Option<KeyValue> {
        self.entries.get(key).map(|entry| key_value(key, entry))
    }

    /// Runs a txn.
    ///
    /// # Errors
    /// What etcd refuses; nothing has happened then. Never [`CommitError::Unknown`].
    pub fn commit(&mut self, txn: &Txn) -> Result<TxnAnswer, CommitError> {
        self.limits.check(txn)?;
        let mut plan = Vec::new();
        let succeeded = self.plan(txn, &mut plan);
        for op in &plan {
            let Op::Put { lease, .. } = op else { continue };
            if *lease != LeaseId::NONE && !self.leases.contains(*lease) {
                return Err(CommitError::LeaseNotFound);
            }
        }
        let nested = branch(txn, succeeded)
            .iter()
            .filter_map(|op| match op {
                Op::Txn(nested) => Some(self.holds(nested)),
                Op::Put { .. } | Op::Delete(_) => None,
            })
            .collect();
        self.apply(plan);
        Ok(TxnAnswer { revision: self.revision, succeeded, nested })
    }

    /// Grants a lease, in whole seconds as etcd does.
    ///
    /// # Errors
    /// The time is longer than any lease may have.
    pub fn grant(&mut self, ttl: Duration, now: Duration) -> Result<(LeaseId, Duration), String> {
        let whole = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
        let ttl = Duration::from_secs(whole).max(self.limits.lease_ttl_min);
        if ttl > self.limits.lease_ttl_max {
            return Err("etcdserver: too large lease TTL".into());
        }
        self.lease_last = LeaseId(self.lease_last.0 + 1);
        self.leases.insert(self.lease_last, ttl, now);
        Ok((self.lease_last, ttl))
    }

    /// Gives a lease its whole time again; `None` if there is no such lease.
    pub fn renew(&mut self, lease: LeaseId, now: Duration) -> Option<Duration> {
        self.leases.renew(lease, now)
    }

    /// Ends a lease and deletes its keys, sorted, in one revision. Returns whether it existed.
    pub fn revoke(&mut self, lease: LeaseId) -> bool {
        let Some(keys) = self.leases.remove(lease) else { return false };
        self.apply(keys.into_iter().map(Op::Delete).collect());
        true
    }

    /// Ends every lease whose time is over, each in a revision of its own; returns which.
    pub fn expire(&mut self, now: Duration) -> Vec<LeaseId> {
        let mut ended = Vec::new();
        while let Some((deadline, lease)) = self.leases.first_deadline()
            && deadline <= now
        {
            self.revoke(lease);
            ended.push(lease);
        }
        ended
    }

    /// When [`Self::expire`] has something to do next.
    pub fn next_expiry(&self) -> Option<Duration> {
        self.leases.first_deadline().map(|(deadline, _)| deadline)
    }

    /// Everything there is now, with the deletions that the history still knows.
    pub fn snapshot(&self) -> Snapshot {
        let mut deletions = Vec::new();
        for RevisionChanges { revision, changes } in &self.history {
            for change in changes {
                if let Change::Delete(key) = change {
                    deletions.push(Deletion { key: key.clone(), revision: *revision });
                }
            }
        }
        Snapshot {
            revision: self.revision,
            entries: self.entries.iter().map(|(key, entry)| key_value(key, entry)).collect(),
            deletions,
            deletions_since: self.compacted,
            cluster: self.cluster,
            is_another_history: false,
        }
    }

    /// The changes after a revision, oldest first.
    ///
    /// # Errors
    /// Some of them are compacted.
    pub fn changes_after(
        &self,
        revision: Revision,
    ) -> Result<impl Iterator<Item = &RevisionChanges>, Compacted> {
        if revision < self.compacted {
            return Err(Compacted(self.compacted));
        }
        let begin = self.history.partition_point(|changes| changes.revision <= revision);
        Ok(self.history.range(begin..))
    }

    /// Forgets the history up to and including a revision.
    pub fn compact(&mut self, revision: Revision) {
        let revision = revision.min(self.revision);
        self.compacted = self.compacted.max(revision);
        let forgotten = self.history.partition_point(|changes| changes.revision <= revision);
        self.history.drain(..forgotten);
    }

    /// Whether a txn's compares hold now. An absent key has revisions 0 and no lease.
    fn holds(&self, txn: &Txn) -> bool {
        txn.compares.iter().all(|compare| match compare {
            Compare::ModRevision(key, revision) => {
                self.entries.get(key).map_or(Revision::NEVER, |e| e.mod_revision) == *revision
            }
            Compare::CreateRevision(key, revision) => {
                self.entries.get(key).map_or(Revision::NEVER, |e| e.create_revision) == *revision
            }
            Compare::Lease(key, lease) => {
                self.entries.get(key).map_or(LeaseId::NONE, |e| e.lease) == *lease
            }
            // Source: `compareToPath` in etcd's `txn.go`: of an absent key no value holds.
            Compare::Value(key, value) => self.entries.get(key).is_some_and(|e| e.value == *value),
        })
    }

    /// Flattens the branches that are taken. Every compare sees the state before the txn.
    fn plan(&self, txn: &Txn, plan: &mut Vec<Op>) -> bool {
        let holds = self.holds(txn);
        for op in branch(txn, holds) {
            match op {
                Op::Txn(nested) => {
                    self.plan(nested, plan);
                }
                Op::Put { .. } | Op::Delete(_) => plan.push(op.clone()),
            }
        }
        holds
    }

    /// Does all of it in the next revision; where nothing changes there is none.
    fn apply(&mut self, plan: Vec<Op>) {
        let revision = Revision(self.revision.0 + 1);
        let mut changes = Vec::with_capacity(plan.len());
        for op in plan {
            match op {
                Op::Put { key, value, lease } => {
                    changes.push(Change::Put(self.put(key, value, lease, revision)));
                }
                Op::Delete(key) => {
                    if let Some(entry) = self.entries.remove(&key) {
                        self.leases.detach(entry.lease, &key);
                        changes.push(Change::Delete(key));
                    }
                }
                Op::Txn(_) => unreachable!("a plan is flat"),
            }
        }
        if !changes.is_empty() {
            self.revision = revision;
            self.history.push_back(RevisionChanges { revision, changes });
        }
    }

    fn put(&mut self, key: Key, value: Bytes, lease: LeaseId, revision: Revision) -> KeyValue {
        let before = self.entries.get(&key);
        let create_revision = before.map_or(revision, |entry| entry.create_revision);
        if let Some(before) = before {
            self.leases.detach(before.lease, &key);
        }
        self.leases.attach(lease, key.clone());
        let entry = Entry { value, create_revision, mod_revision: revision, lease };
        let told = key_value(&key, &entry);
        self.entries.insert(key, entry);
        told
    }
}

/// The revision of a key space in which nothing was ever changed.
const FIRST: Revision = Revision(1);

fn branch(txn: &Txn, succeeded: bool) -> &[Op] {
    if succeeded { &txn.then } else { &txn.otherwise }
}

fn key_value(key: &Key, entry: &Entry) -> KeyValue {
    KeyValue {
        key: key.clone(),
        value: entry.value.clone(),
        create_revision: entry.create_revision,
        mod_revision: entry.mod_revision,
        lease: entry.lease,
    }
}

#[cfg(test)]
mod tests;
