//! What the shim does by itself: containers and TTL nodes that may go, parents that lost a child
//! without a trace, sessions whose end a lease must bring.

use crate::keeper::keyspace::SessionValue;
use crate::keeper::machine::commit::Desk;
use crate::keeper::machine::{Internal, Keeper};
use crate::keeper::overlay::RequestIndex;
use crate::keeper::planner::change::has_expired;
use crate::keeper::planner::{Plan, Planner, SessionFence, Writer};
use crate::keeper::replica::Applied;
use crate::keeper::request::SessionId;
use crate::keeper::tree::Path;
use crate::keeper::zxid::Revision;
use rand_chacha::rand_core::RngCore;
use std::collections::BTreeMap;
use std::time::Duration;

/// The longest time that a shim lets pass before it writes down what all shims saw; drawn at
/// random, so that mostly one of them does.
const WRITE_DOWN_WITHIN_MS: u64 = 500;

/// When something that did not work is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Things to do by itself that are remembered at most; what is more is found again later.
const INTERNAL_MAX: usize = 100_000;

/// What is to be done later, by when.
#[derive(Debug, Default)]
pub(super) struct Later {
    due: BTreeMap<(Duration, u64), Internal>,
    /// So that what is due at the same time is done in the order in which it came.
    number: u64,
}

impl Later {
    fn push(&mut self, due: Duration, internal: Internal) {
        self.number += 1;
        self.due.insert((due, self.number), internal);
    }

    fn pop_due(&mut self, now: Duration) -> Option<Internal> {
        let first = self.due.first_entry().filter(|first| first.key().0 <= now)?;
        Some(first.remove())
    }

    fn next(&self) -> Option<Duration> {
        self.due.first_key_value().map(|((due, _), _)| *due)
    }

    fn len(&self) -> usize {
        self.due.len()
    }
}

impl Keeper {
    /// Deletions that touched no key of the parent.
    pub(super) fn write_down_later(&mut self, applied: &Applied) {
        let revision = self.replica.applied;
        for parent in &applied.bereft {
            if self.internal_later.len() >= INTERNAL_MAX {
                return;
            }
            self.write_down(parent.clone(), revision);
        }
    }

    /// Deletions before a load of which no key tells.
    pub(super) fn write_down_learnt(&mut self, learnt: Vec<(Path, Revision)>) {
        let room = INTERNAL_MAX.saturating_sub(self.internal_later.len());
        for (parent, revision) in learnt.into_iter().take(room) {
            self.write_down(parent, revision);
        }
    }

    fn write_down(&mut self, parent: Path, revision: Revision) {
        let within = if self.options.sole { 1 } else { WRITE_DOWN_WITHIN_MS };
        let delay = Duration::from_millis(self.random.next_u64() % within);
        let due = self.now.monotonic + delay;
        self.internal_later.push(due, Internal::Pzxid(parent, revision));
    }

    pub(super) fn internal_due(&mut self) {
        while let Some(internal) = self.internal_later.pop_due(self.now.monotonic) {
            self.internal.push_back(internal);
        }
    }

    /// Claims of other shims hold this shim's writes back for a while from when they are seen.
    pub(super) fn claims_changed(&mut self, applied: &Applied) {
        let now = self.now.monotonic;
        for (slot, shim) in &applied.claimed {
            if *shim != self.settings.shim {
                self.claims_seen.entry((slot.clone(), *shim)).or_insert(now);
            }
        }
        if applied.released {
            let claims = &self.replica.claims;
            self.claims_seen.retain(|(slot, shim), _| {
                claims.get(slot).is_some_and(|claims| claims.contains_key(shim))
            });
            self.release_held(Duration::MAX);
        }
    }

    /// Sessions that were held back until `now` have another try.
    pub(super) fn release_held(&mut self, now: Duration) {
        let held = std::mem::take(&mut self.held);
        let (due, later): (Vec<_>, Vec<_>) = held.into_iter().partition(|(until, _)| *until <= now);
        self.held = later;
        due.into_iter().for_each(|(_, session)| self.proceed(session));
    }

    pub(super) fn next_held(&self) -> Option<Duration> {
        self.held.iter().map(|(until, _)| *until).min()
    }

    pub(super) fn next_internal(&self) -> Option<Duration> {
        self.internal_later.next()
    }

    /// Look through the containers and TTL nodes.
    pub(super) fn check_nodes(&mut self) {
        let unix_ms = self.now.unix_ms;
        let tree = &self.replica.tree;
        let due: Vec<Path> = tree.expirable(|record| has_expired(record, unix_ms)).collect();
        for path in due {
            if self.internal.len() >= INTERNAL_MAX {
                return;
            }
            self.internal.push_back(Internal::ExpireNode(path));
        }
    }

    /// Whether this shim has begun to end a session, and may: it may have moved away since.
    pub(super) fn ends_here(&self, session: SessionId) -> bool {
        let Some(record) = self.replica.sessions.get(&session) else { return false };
        let here = self.options.sole || self.replica.is_own(record.value.owner);
        let begun = self.locals.peek(session).is_some_and(|local| local.ending);
        here && (begun || self.ending.contains_key(&session))
    }

    pub(super) fn finish_internal(&mut self, internal: Internal) {
        if let Internal::Revoke(session) = internal {
            let record = self.replica.sessions.get(&session);
            if let Some(lease) = record.filter(|record| record.value.closing) {
                let lease = lease.lease;
                self.revoke(session, lease);
            }
        }
    }

    /// A plan for something of the shim's own had become wrong. Nodes are looked through again
    /// anyway; the rest is tried again.
    pub(super) fn retry_internal(&mut self, internal: Internal) {
        match internal {
            Internal::ExpireNode(_) | Internal::Meta | Internal::Secret(_) => {}
            // It rests on nothing, so only others can have made it fail; and it is waited for.
            Internal::Ended(sessions) => self.words.push_back(sessions),
            Internal::Spend(session) => self.ask_again(session),
            Internal::Pzxid(..) | Internal::Revoke(_) | Internal::Forget(_) => {
                self.internal_later.push(self.now.monotonic + RETRY_AFTER, internal);
            }
        }
    }
}

impl Desk<'_, '_> {
    /// What the shim does by itself; `None` if there is nothing to do any more.
    pub(super) fn plan_internal(
        &mut self,
        internal: &Internal,
        request: RequestIndex,
    ) -> Option<Plan> {
        let writer = Writer { session: None, identities: &[], unix_ms: self.unix_ms };
        match internal {
            Internal::ExpireNode(path) => {
                Planner::new(&mut self.overlay, self.settings, writer, request).plan_expiry(path)
            }
            Internal::Pzxid(path, deleted) => {
                let record = &self.replica.tree.find(path)?.record;
                // What an earlier incarnation lost is no matter of this one.
                let other = record.created() > *deleted;
                let keys = record.keys();
                if other || keys.pzxid > *deleted || keys.creates > *deleted {
                    return None;
                }
                let planner = Planner::new(&mut self.overlay, self.settings, writer, request);
                planner.plan_pzxid(path, *deleted)
            }
            Internal::Meta => {
                if self.replica.has_meta {
                    return None;
                }
                let planner = Planner::new(&mut self.overlay, self.settings, writer, request);
                Some(planner.plan_meta(self.replica.meta))
            }
            Internal::Secret(secret) => {
                if self.replica.secret.is_some() {
                    return None;
                }
                let planner = Planner::new(&mut self.overlay, self.settings, writer, request);
                Some(planner.plan_secret(*secret))
            }
            Internal::Ended(sessions) => {
                let planner = Planner::new(&mut self.overlay, self.settings, writer, request);
                Some(planner.plan_ended(sessions))
            }
            Internal::Spend(session) => {
                let known = self.replica.sessions.contains_key(session);
                if known || self.replica.spent.contains_key(session) {
                    return None;
                }
                let planner = Planner::new(&mut self.overlay, self.settings, writer, request);
                Some(planner.plan_spend(*session))
            }
            Internal::Forget(session) => {
                let spent = *self.replica.spent.get(session)?;
                let planner = Planner::new(&mut self.overlay, self.settings, writer, request);
                Some(planner.plan_forget(*session, spent))
            }
            Internal::Revoke(session) => {
                let record = self.replica.sessions.get(session)?;
                let fence = SessionFence {
                    session: *session,
                    revision: record.revision,
                    lease: record.lease,
                };
                let value = SessionValue { closing: true, ..record.value.clone() };
                let writer = Writer { session: Some(fence), ..writer };
                let planner = Planner::new(&mut self.overlay, self.settings, writer, request);
                Some(planner.plan_rewrite(&value))
            }
        }
    }
}
