//! A change of the history that was told, by which that history is known again.
//!
//! A restore keeps etcd's cluster id, as a rule. One that was set back and has grown since has
//! all the revisions that it had, with other changes in them.

use crate::keeper::txn::{Change, KeyValue};
use crate::keeper::zxid::Revision;

/// A put that was told. Deletions are no good: a compaction takes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Witness(KeyValue);

impl Witness {
    /// A put of a revision, if it has one.
    pub(super) fn of(changes: &[Change]) -> Option<Self> {
        changes.iter().rev().find_map(|change| match change {
            Change::Put(entry) => Some(Self(entry.clone())),
            Change::Delete(_) => None,
        })
    }

    /// The last put of those that have left something.
    pub(super) fn among(entries: &[KeyValue]) -> Option<Self> {
        entries.iter().max_by_key(|entry| entry.mod_revision).cloned().map(Self)
    }

    /// Where in the history it is.
    pub(super) fn revision(&self) -> Revision {
        self.0.mod_revision
    }

    /// Whether these are the changes of the revision that it was told in.
    pub(super) fn is_in(&self, revision: Revision, changes: &[Change]) -> bool {
        let is_it = |change: &Change| matches!(change, Change::Put(entry) if *entry == self.0);
        revision == self.revision() && changes.iter().any(is_it)
    }
}
