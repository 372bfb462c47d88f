//! What a write makes durable, as the journal holds it, and many of them in one, as the pages
//! take them over.

use crate::keeper::txn::{Change, Key, KeyValue, LeaseId, RevisionChanges};
use crate::keeper::zxid::Revision;
use bytes::{Buf, BufMut, Bytes};
use rustc_hash::FxHashMap;
use std::time::Duration;

/// What one write makes durable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Delta {
    /// New revisions, oldest first.
    pub(super) changes: Vec<RevisionChanges>,
    /// Leases granted and, with `None`, ended, in order.
    pub(super) leases: Vec<(LeaseId, Option<Duration>)>,
}

/// The sum of many deltas: only the last state of each key and lease counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pending {
    /// The number of the last delta in it.
    pub(super) last: u64,
    /// Keys that were written and, with `None`, deleted.
    pub(super) keys: FxHashMap<Key, Option<KeyValue>>,
    /// Leases that were granted and, with `None`, ended.
    pub(super) leases: FxHashMap<LeaseId, Option<Duration>>,
    /// The highest lease that was granted, even if it has ended since.
    pub(super) lease_last: Option<LeaseId>,
    /// The last revision.
    pub(super) revision: Option<Revision>,
}

impl Pending {
    /// Adds the delta with this number, the next one.
    pub(super) fn add(&mut self, number: u64, delta: Delta) {
        self.last = number;
        for RevisionChanges { revision, changes } in delta.changes {
            self.revision = Some(revision);
            for change in changes {
                match change {
                    Change::Put(entry) => self.keys.insert(entry.key.clone(), Some(entry)),
                    Change::Delete(key) => self.keys.insert(key, None),
                };
            }
        }
        for (lease, ttl) in delta.leases {
            self.lease_last = self.lease_last.max(ttl.map(|_| lease));
            self.leases.insert(lease, ttl);
        }
    }
}

impl Delta {
    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.leases.is_empty()
    }

    /// Appends its bytes: numbers are big endian, and lists and texts have their length first.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.changes.len() as u64);
        for RevisionChanges { revision, changes } in &self.changes {
            out.put_i64(revision.0);
            out.put_u64(changes.len() as u64);
            for change in changes {
                match change {
                    Change::Put(entry) => {
                        out.put_u8(PUT);
                        put_text(out, &entry.key);
                        out.put_i64(entry.create_revision.0);
                        out.put_i64(entry.mod_revision.0);
                        out.put_i64(entry.lease.0);
                        put_text(out, &entry.value);
                    }
                    Change::Delete(key) => {
                        out.put_u8(DELETE);
                        put_text(out, key);
                    }
                }
            }
        }
        out.put_u64(self.leases.len() as u64);
        for (lease, ttl) in &self.leases {
            out.put_i64(lease.0);
            out.put_u64(ttl.map_or(ENDED, |ttl| ttl.as_secs()));
        }
    }

    /// Reads what [`Self::encode`] wrote; bytes after it are ignored. `None`: it was not us.
    pub(super) fn decode(mut bytes: &[u8]) -> Option<Self> {
        let input = &mut bytes;
        let mut delta = Self::default();
        for _ in 0..input.try_get_u64().ok()? {
            let revision = Revision(input.try_get_i64().ok()?);
            let mut changes = Vec::new();
            for _ in 0..input.try_get_u64().ok()? {
                changes.push(take_change(input)?);
            }
            delta.changes.push(RevisionChanges { revision, changes });
        }
        for _ in 0..input.try_get_u64().ok()? {
            let lease = LeaseId(input.try_get_i64().ok()?);
            let seconds = input.try_get_u64().ok()?;
            delta.leases.push((lease, (seconds != ENDED).then(|| Duration::from_secs(seconds))));
        }
        Some(delta)
    }
}

const PUT: u8 = 1;
const DELETE: u8 = 2;
/// Instead of a time to live: the lease has ended.
const ENDED: u64 = u64::MAX;

fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    out.put_u64(text.len() as u64);
    out.put_slice(text);
}

fn take_change(input: &mut &[u8]) -> Option<Change> {
    match input.try_get_u8().ok()? {
        PUT => {
            let key = take_text(input)?;
            let create_revision = Revision(input.try_get_i64().ok()?);
            let mod_revision = Revision(input.try_get_i64().ok()?);
            let lease = LeaseId(input.try_get_i64().ok()?);
            let value = take_text(input)?;
            Some(Change::Put(KeyValue { key, value, create_revision, mod_revision, lease }))
        }
        DELETE => take_text(input).map(Change::Delete),
        _ => None,
    }
}

fn take_text(input: &mut &[u8]) -> Option<Bytes> {
    let length = usize::try_from(input.try_get_u64().ok()?).ok()?;
    let (text, rest) = input.split_at_checked(length)?;
    *input = rest;
    Some(Bytes::copy_from_slice(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &'static str, revision: i64) -> Change {
        Change::Put(KeyValue {
            key: Key::from_static(key.as_bytes()),
            value: Bytes::from_static(b"value"),
            create_revision: Revision(1),
            mod_revision: Revision(revision),
            lease: LeaseId(7),
        })
    }

    fn delta(revision: i64, changes: Vec<Change>) -> Delta {
        Delta {
            changes: vec![RevisionChanges { revision: Revision(revision), changes }],
            leases: vec![],
        }
    }

    #[test]
    fn a_delta_comes_back_as_it_was_and_a_part_of_it_does_not() {
        let mut written = delta(5, vec![put("a", 5), Change::Delete(Key::from_static(b"b"))]);
        written.leases = vec![(LeaseId(7), Some(Duration::from_secs(9))), (LeaseId(6), None)];
        let mut bytes = Vec::new();
        written.encode(&mut bytes);
        assert_eq!(Delta::decode(&bytes), Some(written));
        for length in 0..bytes.len() {
            assert_eq!(Delta::decode(&bytes[..length]), None, "{length} bytes");
        }
    }

    #[test]
    fn of_many_deltas_the_last_state_of_a_key_and_a_lease_counts() {
        let mut pending = Pending::default();
        let granted = vec![(LeaseId(3), Some(Duration::from_secs(9)))];
        pending.add(1, Delta { leases: granted, ..delta(2, vec![put("a", 2), put("b", 2)]) });
        let ended = vec![(LeaseId(3), None)];
        let deleted = Change::Delete(Key::from_static(b"b"));
        pending.add(2, Delta { leases: ended, ..delta(3, vec![put("a", 3), deleted]) });
        let revisions: Vec<_> = ["a", "b"]
            .map(|key| pending.keys[key.as_bytes()].as_ref().map(|entry| entry.mod_revision))
            .to_vec();
        assert_eq!(revisions, [Some(Revision(3)), None]);
        assert_eq!(pending.leases[&LeaseId(3)], None);
        assert_eq!((pending.last, pending.lease_last), (2, Some(LeaseId(3))));
        assert_eq!(pending.revision, Some(Revision(3)));
    }
}
