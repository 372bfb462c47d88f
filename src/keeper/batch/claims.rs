//! What batches under way keep others away from.

use crate::keeper::batch::Batch;
use crate::keeper::keyspace::{ShimId, Slot};
use crate::keeper::planner::Plan;
use crate::keeper::txn::Token;
use rustc_hash::FxHashMap;

/// The keys of all batches under way: what a new batch must keep away from.
#[derive(Debug, Default)]
pub struct Claims {
    written: FxHashMap<Slot, Token>,
    guarded: FxHashMap<Slot, Vec<Token>>,
}

impl Claims {
    /// A batch is sent.
    pub fn add<W>(&mut self, token: Token, batch: &Batch<W>) {
        for slot in batch.written().filter(|slot| is_claimed(slot)) {
            self.written.insert(slot.clone(), token);
        }
        for slot in batch.guarded().iter().filter(|slot| is_claimed(slot)) {
            self.guarded.entry(slot.clone()).or_default().push(token);
        }
    }

    /// A batch is settled or given up.
    pub fn remove<W>(&mut self, token: Token, batch: &Batch<W>) {
        for slot in batch.written() {
            if self.written.get(slot) == Some(&token) {
                self.written.remove(slot);
            }
        }
        for slot in batch.guarded().iter().filter(|slot| is_claimed(slot)) {
            if let Some(tokens) = self.guarded.get_mut(slot) {
                tokens.retain(|guarding| *guarding != token);
                if tokens.is_empty() {
                    self.guarded.remove(slot);
                }
            }
        }
    }

    /// A batch under way that a plan may not run beside.
    pub fn in_the_way(&self, plan: &Plan) -> Option<Token> {
        if self.written.is_empty() && self.guarded.is_empty() {
            return None;
        }
        let guards = plan.guards.iter().find_map(|guard| self.written.get(&guard.slot));
        let by_guard = guards.copied();
        by_guard.or_else(|| {
            plan.writes.keys().find_map(|slot| {
                let guarded = self.guarded.get(slot).and_then(|tokens| tokens.last());
                self.written.get(slot).or(guarded).copied()
            })
        })
    }
}

/// A session has one batch under way anyway, and `x` keys belong to one batch each.
fn is_claimed(slot: &Slot) -> bool {
    matches!(slot, Slot::Node(_) | Slot::Creates(_) | Slot::Acl(_) | Slot::Pzxid(_))
}

/// Claims in the store on the keys of a plan that other shims may be after as well.
pub fn claimable(plan: &Plan, shim: ShimId) -> Vec<Slot> {
    /// More would cost more than the conflicts.
    const CLAIMS_MAX: usize = 4;
    // What is written without a guard cannot be lost: a new znode has a name of its own.
    let contended = |slot: &&Slot| {
        matches!(slot, Slot::Node(_) | Slot::Creates(_) | Slot::Acl(_))
            && plan.guards.iter().any(|guard| guard.slot == **slot)
    };
    let claim = |slot: &Slot| Slot::Claim(Box::new(slot.clone()), shim);
    plan.writes.keys().filter(contended).map(claim).take(CLAIMS_MAX).collect()
}
