//! etcd's history applied to the tree: the only place where the tree changes.
//!
//! Our own writes come this way too. What clients must be told of a revision comes out as a list
//! in the order in which it happened.

mod load;
mod revision;

use crate::keeper::keyspace::{SessionValue, ShimId, Slot, StepKind, own};
use crate::keeper::request::SessionId;
use crate::keeper::sessions::proof::Secret;
use crate::keeper::tree::{self, Path, Tree};
use crate::keeper::txn::{Change, LeaseId, RevisionChanges};
use crate::keeper::zxid::{Revision, Zxid, ZxidOffset};
use jute::Acl;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The state that all shims share, as of one revision.
#[derive(Debug)]
pub struct Replica {
    /// The znodes.
    pub tree: Tree,
    /// The sessions of all shims.
    pub sessions: FxHashMap<SessionId, SessionRecord>,
    /// The last revision that was applied whole.
    pub applied: Revision,
    /// Sessions of which nobody writes the first key, and the revisions that say so.
    pub spent: FxHashMap<SessionId, Revision>,
    /// How revisions become zxids.
    pub offset: ZxidOffset,
    /// Claims on keys that somebody has lost too often, with the revisions of their creation.
    pub claims: FxHashMap<Slot, BTreeMap<ShimId, Revision>>,
    /// The store says that it has the present layout.
    pub has_meta: bool,
    /// When it last said which layout it has.
    pub meta: Revision,
    /// The last batch that wrote anything, whose and which, as the key `l` tells.
    pub last: Option<(ShimId, u64)>,
    /// What sessions' passwords are made from, if the store has it.
    pub secret: Option<Secret>,
    /// Deletions up to here may be missing from a parent's pzxid: they came from leases that
    /// ended while nobody was there to write them down.
    pub uncertain_until: Revision,
    /// The numbers that this shim has had, the present one last.
    shims: Vec<ShimId>,
}

/// Numbers that are remembered: a batch may be named by the one that it was sent under.
const SHIM_NUMBERS_MAX: usize = 8;

/// What etcd holds of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRecord {
    /// The key's value.
    pub value: SessionValue,
    /// The key's mod_revision.
    pub revision: Revision,
    /// The session's lease.
    pub lease: LeaseId,
}

/// A change of a znode as watches are told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fired {
    /// What happened.
    pub kind: StepKind,
    /// Where.
    pub path: Path,
    /// The znode's ACL at that moment: who may read the event. `None` is everybody.
    pub acl: Option<Arc<[Acl]>>,
    /// The parent's ACL: who may read that its children changed.
    pub parent_acl: Option<Arc<[Acl]>>,
}

/// What the application of a revision brought.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// For the watches, in order.
    pub fired: Vec<Fired>,
    /// Parents whose children came and went between two loads, of which no child is left to tell:
    /// for the watches after `fired`.
    pub stirred: Vec<Path>,
    /// Sessions whose key changed; `None` in the replica's table says that it is gone.
    pub sessions: Vec<SessionId>,
    /// Sessions that ended at other shims and never had a key.
    pub ended: Vec<SessionId>,
    /// Sessions of which nobody writes the first key from now on.
    pub spent: Vec<SessionId>,
    /// The numbers of this shim's batches that this revision holds.
    pub batches: Vec<u64>,
    /// Another shim has written something.
    pub by_another: bool,
    /// Claims that came.
    pub claimed: Vec<(Slot, ShimId)>,
    /// Claims went.
    pub released: bool,
    /// Parents whose child went without their `p` key being written.
    pub bereft: Vec<Path>,
    /// Parents that lost a child before a load, and when, of which no key tells.
    pub learnt: Vec<(Path, Revision)>,
}

impl Replica {
    /// An empty tree at the beginning of time.
    pub fn new(shim: ShimId) -> Self {
        Self::empty(vec![shim])
    }

    fn empty(shims: Vec<ShimId>) -> Self {
        Self {
            tree: Tree::new(),
            sessions: FxHashMap::default(),
            spent: FxHashMap::default(),
            applied: Revision::NEVER,
            offset: ZxidOffset::default(),
            claims: FxHashMap::default(),
            has_meta: false,
            meta: Revision::NEVER,
            last: None,
            secret: None,
            uncertain_until: Revision::NEVER,
            shims,
        }
    }

    /// The shim's number changes, since its lease was lost. What was sent under the old one may
    /// still be on its way.
    pub fn rename_shim(&mut self, shim: ShimId) {
        self.shims.push(shim);
        if self.shims.len() > SHIM_NUMBERS_MAX {
            self.shims.remove(0);
        }
    }

    /// Whether a number is this shim's, or was.
    pub fn is_own(&self, shim: ShimId) -> bool {
        self.shims.contains(&shim)
    }

    /// The number of this shim's batch that a revision holds, if it is one of its own.
    pub fn batch_in(&self, changes: &RevisionChanges) -> Option<u64> {
        // Each batch ends with its number.
        changes.changes.iter().rev().find_map(|change| {
            let Change::Put(entry) = change else { return None };
            let slot = entry.key.starts_with(b"x").then(|| Slot::parse(&entry.key)).flatten()?;
            let own = matches!(slot, Slot::Batch(shim) if self.is_own(shim));
            own.then(|| own::decode_number(entry.value.clone())).flatten()
        })
    }

    /// The zxid that clients know of.
    pub fn zxid(&self) -> Zxid {
        self.offset.zxid(self.applied)
    }

    /// Whether a child of a znode may have come or gone after `seen`, as far as is known.
    pub fn children_changed_since(&self, path: &str, seen: Zxid) -> bool {
        let Some(node) = self.tree.find(path) else { return true };
        let record = &node.record;
        // The znodes that nobody creates are children that were never counted.
        let given = match path {
            "" | tree::ROOT => 1,
            tree::ZOOKEEPER => 2,
            _ => 0,
        };
        let lost_some = record.creates() > record.children() - given;
        self.offset.zxid(record.pzxid()) > seen
            || (lost_some && seen < self.offset.zxid(self.uncertain_until))
    }
}

#[cfg(test)]
mod tests;
