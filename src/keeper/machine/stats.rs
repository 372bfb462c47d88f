//! The Stats in the replies to writes: each as of its own place in the history.
//!
//! What a Stat says of a znode's data and ACL is as planned, for the write was guarded by them.
//! Its children may have come and gone since, and a guard would make a conflict of each of them.
//! So they are counted anew when the revision is applied: from the tree as it was just before,
//! through what the batch's requests did, in their order.

use crate::keeper::batch::Batch;
use crate::keeper::error::ErrorCode;
use crate::keeper::path;
use crate::keeper::planner::{Effect, Plan};
use crate::keeper::request::{Body, MultiResult};
use crate::keeper::tree::{Path, Tree};
use crate::keeper::zxid::{Revision, Zxid, ZxidOffset};
use jute::Stat;
use rustc_hash::FxHashMap;

/// What a Stat says of a znode's children.
#[derive(Clone, Copy, Debug)]
struct Children {
    creates: i32,
    children: i32,
    pzxid: Revision,
}

/// The children of the znodes whose Stats a batch tells, as they are at one place of it.
#[derive(Debug, Default)]
pub(super) struct Stats {
    of: FxHashMap<Path, Children>,
}

impl Stats {
    /// As the tree has them before a batch's revision is applied.
    pub(super) fn before<W>(batch: &Batch<W>, tree: &Tree) -> Self {
        let told = batch.entries.iter().flat_map(|entry| &entry.plan.told);
        let count = |path: &Path| {
            let record = tree.find(path).map(|node| &node.record);
            record.map_or(Children::NONE, |record| Children {
                creates: record.creates(),
                children: record.children(),
                pzxid: record.pzxid(),
            })
        };
        Self { of: told.map(|told| (told.path.clone(), count(&told.path))).collect() }
    }

    /// The outcome of the batch's next request that took effect, once its revision is applied.
    pub(super) fn settle(
        &mut self,
        plan: Plan,
        revision: Revision,
        offset: ZxidOffset,
    ) -> Result<Body, ErrorCode> {
        let mut effects = plan.effects.iter();
        let mut done = 0;
        let mut told = Vec::with_capacity(plan.told.len());
        for stat in &plan.told {
            effects.by_ref().take(stat.after - done).for_each(|effect| self.pass(effect, revision));
            done = stat.after;
            told.push(self.of.get(&stat.path).copied());
        }
        effects.for_each(|effect| self.pass(effect, revision));
        let mut told = told.into_iter().flatten();
        let mut body = plan.outcome?;
        let settle = |stat: &mut Stat| settle_zxids(stat, revision, plan.offset, offset);
        match &mut body {
            Body::PathStat(_, stat) => settle(stat),
            Body::Stat(stat) => {
                settle(stat);
                told.next().into_iter().for_each(|children| children.tell(stat, offset));
            }
            Body::Multi(results) => {
                for result in results {
                    match result {
                        MultiResult::Create2(_, stat) => settle(stat),
                        MultiResult::SetData(stat) => {
                            settle(stat);
                            told.next().into_iter().for_each(|c| c.tell(stat, offset));
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
        Ok(body)
    }

    fn pass(&mut self, effect: &Effect, revision: Revision) {
        if self.of.is_empty() {
            return;
        }
        let (path, creates, children) = match effect {
            Effect::Created(path) => (path, 1, 1),
            Effect::Deleted(path) => (path, 0, -1),
        };
        if let Some(parent) = self.of.get_mut(path::parent_or_root(path)) {
            parent.creates = parent.creates.wrapping_add(creates);
            parent.children += children;
            parent.pzxid = revision;
        }
        if let Some(own) = self.of.get_mut(path) {
            *own = Children { pzxid: revision, ..Children::NONE };
        }
    }
}

impl Children {
    const NONE: Self = Self { creates: 0, children: 0, pzxid: Revision::NEVER };

    fn tell(self, stat: &mut Stat, offset: ZxidOffset) {
        stat.cversion = self.creates.wrapping_mul(2).wrapping_sub(self.children);
        stat.num_children = self.children;
        stat.pzxid = offset.zxid(self.pzxid).0;
    }
}

/// The zxid of the txn itself is known now; others were planned with an offset that may have been
/// raised since.
fn settle_zxids(stat: &mut Stat, revision: Revision, planned: ZxidOffset, offset: ZxidOffset) {
    for field in [&mut stat.czxid, &mut stat.mzxid, &mut stat.pzxid] {
        *field = match Zxid(*field) {
            Zxid::PENDING => offset.zxid(revision).0,
            Zxid(0) => 0,
            Zxid(zxid) => zxid - planned.0 + offset.0,
        };
    }
}
