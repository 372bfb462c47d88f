//! Batches that nobody answers: etcd loses what was on its way to a leader that died, and says so
//! only after seven seconds.
//!
//! Each batch that writes puts its number on this shim's lease, so none can take effect once that
//! lease is gone. Its revoke is a fence: a batch that the stream has not named by then is dead,
//! and its requests are planned again under a new lease. Nobody is cut.

use crate::keeper::machine::{Keeper, Registration, Waiter};
use crate::keeper::txn::{LeaseId, StoreCommand, Token};
use std::time::Duration;

/// A batch, or a grant, is lost if etcd has answered a read that was sent so long after it.
pub(super) const UNANSWERED_MAX: Duration = Duration::from_secs(1);

/// A revoke or a grant may be lost in the same way, and is then asked for again.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// A fence that is being put up.
#[derive(Debug)]
pub(super) struct Fence {
    /// What the batches write on.
    lease: LeaseId,
    /// Batches with larger numbers write on another lease.
    number_max: u64,
    /// The revokes that were asked for.
    revokes: Vec<Token>,
    asked_at: Duration,
    revoked: bool,
}

impl Keeper {
    /// Begin a fence if there are batches that need one.
    pub(super) fn fence_off_lost(&mut self) {
        let Registration::Done(lease) = self.registration else { return };
        if self.fence.is_some() {
            return;
        }
        let confirmed_at = self.confirmed_at;
        let is_lost = |token: &Token| {
            let batch = self.batches.get(token);
            self.unknown.contains_key(token)
                || batch.is_some_and(|batch| confirmed_at >= batch.sent_at + UNANSWERED_MAX)
        };
        let lost = self.batches.keys().filter(|token| is_lost(token)).count();
        if lost == 0 {
            return;
        }
        tracing::info!(lost, "txns may be lost: fencing them off");
        self.leases.forget(lease);
        self.fence = Some(Fence {
            lease,
            number_max: self.batch_number,
            revokes: Vec::new(),
            asked_at: self.now.monotonic,
            revoked: false,
        });
        self.register();
        self.ask_for_fence();
    }

    /// What was asked for may be lost, too.
    pub(super) fn fence_again(&mut self) {
        let Some(fence) = &mut self.fence else { return };
        if self.now.monotonic < fence.asked_at + ASK_AGAIN {
            return;
        }
        fence.asked_at = self.now.monotonic;
        if !fence.revoked {
            self.ask_for_fence();
        }
        if matches!(self.registration, Registration::Granting(_)) {
            // The lease of a grant that comes too late lapses.
            self.register();
        }
    }

    /// When to call [`Self::fence_again`].
    pub(super) fn next_fence(&self) -> Option<Duration> {
        self.fence.as_ref().map(|fence| fence.asked_at + ASK_AGAIN)
    }

    fn ask_for_fence(&mut self) {
        let token = self.next_token();
        let Some(fence) = &mut self.fence else { return };
        fence.revokes.push(token);
        let lease = fence.lease;
        self.command(StoreCommand::Revoke(token, lease));
    }

    /// Whether this was the answer to a fence's revoke.
    pub(super) fn fence_revoked(&mut self, token: Token, result: &Result<(), String>) -> bool {
        let Some(fence) = &mut self.fence else { return false };
        if !fence.revokes.contains(&token) {
            return false;
        }
        if result.is_ok() && !fence.revoked {
            fence.revoked = true;
            self.barriers.wait(Waiter::Fence);
        }
        true
    }

    /// The tree has all that was before the fence.
    pub(super) fn fence_passed(&mut self) {
        let Some(fence) = self.fence.take() else { return };
        let is_behind = |number: u64| number <= fence.number_max;
        let behind = self.batches.iter().filter(|(_, batch)| is_behind(batch.number));
        let mut dead: Vec<Token> = behind.map(|(token, _)| *token).collect();
        dead.sort_unstable();
        dead.into_iter().for_each(|token| self.plan_again(token, true));
    }
}
