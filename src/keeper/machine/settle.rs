//! What became of the batches: replies, or another plan.

use crate::keeper::batch::{Batch, Entry, Fate};
use crate::keeper::error::ErrorCode;
use crate::keeper::machine::chain::stands_alone;
use crate::keeper::machine::stats::Stats;
use crate::keeper::machine::{Carried, Internal, Keeper, Probe, Waiter};
use crate::keeper::overlay::{Overlay, RequestIndex};
use crate::keeper::planner::{Planner, SessionFence, Writer};
use crate::keeper::request::{Body, ConnectionId, Operation, SessionId, Xid};
use crate::keeper::sessions::{Local, Pending, Stay, Work};
use crate::keeper::txn::{CommitError, Key, LeaseId, StoreCommand, Token, TxnAnswer};
use rustc_hash::{FxHashMap, FxHashSet};
use std::time::Duration;

/// Batches stay nested until so many have gone through after a conflict.
const NESTED_AFTER_CONFLICT: u32 = 32;

/// How long the stream, or a fence, may take to decide a batch whose answer was lost.
const UNKNOWN_FOR: Duration = Duration::from_secs(3);

/// How long nothing is sent after the store refused for a reason of its own.
const HOLD_AFTER_REFUSAL: Duration = Duration::from_millis(500);

/// How long nothing is sent after a lease was found dead, so that the stream can say whose.
const HOLD_AFTER_DEAD_LEASE: Duration = Duration::from_millis(50);

/// How often the log says that a request was refused for its size.
const REFUSALS_LOGGED_EVERY: Duration = Duration::from_secs(10);

impl Keeper {
    /// The answer to a batch. Success comes from the stream; the answer tells only what the
    /// stream cannot.
    pub(super) fn committed(&mut self, token: Token, result: Result<TxnAnswer, CommitError>) {
        let Some(batch) = self.batches.get(&token) else { return };
        let now = self.now.monotonic;
        match result {
            Ok(answer) if !answer.succeeded => {
                self.chain.refused(token, answer.revision);
                self.barriers.wait_for(answer.revision, batch.sent_at, Waiter::Again(token));
                self.release();
            }
            Ok(answer) if !batch.writes_anything => {
                self.barriers.wait_for(answer.revision, batch.sent_at, Waiter::Proved(token));
                self.release();
            }
            Ok(_) => {}
            Err(CommitError::TooLarge(reason)) => self.too_large(token, &reason),
            Err(CommitError::LeaseNotFound) => {
                self.hold_all_until(now + HOLD_AFTER_DEAD_LEASE);
                self.check_leases(token);
                self.plan_again(token, true);
            }
            Err(CommitError::Refused(error)) => {
                tracing::warn!(%error, "etcd refused a txn");
                self.hold_all_until(now + HOLD_AFTER_REFUSAL);
                self.plan_again(token, true);
            }
            Err(CommitError::Unknown(error)) => {
                tracing::warn!(%error, "outcome of a txn is unknown");
                if batch.writes_anything {
                    self.unknown.insert(token, now + UNKNOWN_FOR);
                    self.fence_off_lost();
                } else {
                    // Again, but not as fast as a store that is away can refuse. Word of ends
                    // goes meanwhile: one that is lost is fenced off.
                    self.hold_until = now + HOLD_AFTER_REFUSAL;
                    self.plan_again(token, true);
                }
            }
        }
    }

    /// The stream has named a batch. `stats` is from just before its revision was applied.
    pub(super) fn batch_named(
        &mut self,
        number: u64,
        stats: Stats,
        contains: impl Fn(&Key) -> bool,
    ) {
        let Some(token) = self.numbers.remove(&number) else { return };
        let Some(batch) = self.take_batch(token) else { return };
        self.chain.landed(self.replica.applied);
        self.confirm(batch.sent_at);
        self.room.taken();
        self.nested_left = self.nested_left.saturating_sub(1);
        let fates = batch.fates(contains);
        if fates.contains(&Fate::Conflict) {
            self.nested_left = NESTED_AFTER_CONFLICT;
        }
        self.settle(token, batch, &fates, stats);
    }

    /// A batch without writes: its guards held at a revision that the tree has reached.
    pub(super) fn batch_proved(&mut self, token: Token) {
        let Some(batch) = self.take_batch(token) else { return };
        self.confirm(batch.sent_at);
        let fates = vec![Fate::NoTrace; batch.entries.len()];
        self.settle(token, batch, &fates, Stats::default());
    }

    fn take_batch(&mut self, token: Token) -> Option<Batch<Carried>> {
        self.unknown.remove(&token);
        let batch = self.batches.remove(&token)?;
        self.numbers.remove(&batch.number);
        self.claims.remove(token, &batch);
        self.leave_chain(token, &batch);
        Some(batch)
    }

    fn settle(&mut self, token: Token, batch: Batch<Carried>, fates: &[Fate], mut stats: Stats) {
        let (entries, chained) = (batch.entries, batch.chained);
        // Where a session's writes end that have taken effect: what it asked before them cannot
        // be planned again.
        let mut effective = FxHashMap::default();
        for (index, (entry, fate)) in entries.iter().zip(fates).enumerate() {
            if let (Some(session), Fate::Done, true) = (stay_of(entry), fate, entry.writes) {
                effective.insert(session, index);
            }
        }
        let mut stays = Vec::new();
        let mut done = Vec::new();
        let mut again = Vec::new();
        let mut behind = FxHashSet::default();
        for (index, (entry, fate)) in entries.into_iter().zip(fates).enumerate() {
            let stay = stay_of(&entry);
            let settled = stay.and_then(|stay| effective.get(&stay));
            let holds = match fate {
                Fate::Conflict => false,
                Fate::Done if entry.writes => true,
                Fate::Done | Fate::NoTrace => {
                    let in_turn = stay.is_none_or(|stay| !behind.contains(&stay));
                    let goes_on = chained && may_go_on(&entry);
                    let followed = goes_on && stay.is_some_and(|stay| self.is_followed(stay));
                    settled.is_some_and(|last| index < *last)
                        || (followed && *fate == Fate::Done)
                        || (in_turn && self.still_holds(&entry))
                }
            };
            let goes_on = chained && may_go_on(&entry);
            if holds {
                done.push(entry);
            } else {
                behind.extend(stay);
                again.push(entry.work);
            }
            stays.extend(stay.map(|stay| (stay, goes_on)));
        }
        done.into_iter().for_each(|entry| self.finish(entry, &mut stats));
        again.reverse();
        self.put_back(again, true);
        // Those who waited behind the batch come first: else a session that always has another
        // write would take a hot key again and again, and they would wait as long as it goes on.
        self.batch_out_of_the_way(token);
        self.unblock_all(stays);
    }

    /// The sessions of a batch that is settled go on, where they are still served.
    /// Those that were not held up by it may be held up by another.
    pub(super) fn unblock_all(&mut self, mut stays: Vec<(Stay, bool)>) {
        stays.dedup();
        for (stay, goes_on) in stays {
            if self.locals.find_stay(stay).is_none() {
                continue;
            }
            if goes_on {
                self.proceed(stay.session);
            } else {
                self.unblock(stay.session);
            }
        }
    }

    /// Whether batches under way hold more of a session that could go on: it is held up only by
    /// one that writes nothing.
    fn is_followed(&mut self, stay: Stay) -> bool {
        self.locals.find_stay(stay).is_some_and(|local| local.under_way > 0 || local.blocked)
    }

    /// Whoever waited for a batch to be out of the way has another try.
    pub(super) fn batch_out_of_the_way(&mut self, token: Token) {
        for session in self.behind.remove(&token).unwrap_or_default() {
            self.proceed(session);
        }
    }

    pub(super) fn unblock(&mut self, session: SessionId) {
        let Some(local) = self.locals.find(session) else { return };
        if !self.ending.contains_key(&session) {
            local.blocked = false;
            self.proceed(session);
        }
    }

    /// Put requests back where they were, the last one first. What had become wrong has `lost`
    /// once more.
    fn put_back(&mut self, works: Vec<Carried>, lost: bool) {
        for work in works {
            match work {
                Carried::Session(stay, mut pending) => match self.locals.find_stay(stay) {
                    Some(local) => {
                        pending.conflicts = pending.conflicts.saturating_add(u32::from(lost));
                        local.queue.push_front(pending);
                    }
                    None => self.drop_pending(stay.session, pending),
                },
                Carried::Internal(internal) if lost => self.retry_internal(internal),
                Carried::Internal(internal) => self.internal.push_back(internal),
            }
        }
    }

    /// A request that writes nothing leaves no trace: it is planned once more, on the present
    /// tree, and answered if that gives the same.
    fn still_holds(&self, entry: &Entry<Carried>) -> bool {
        let Carried::Session(Stay { session, .. }, pending) = &entry.work else { return true };
        let Work::Request(_, operation) = &pending.work else { return true };
        let Some(record) = self.replica.sessions.get(session) else { return false };
        let fence =
            SessionFence { session: *session, revision: record.revision, lease: record.lease };
        let writer = Writer {
            session: Some(fence),
            identities: &pending.identities,
            unix_ms: self.now.unix_ms,
        };
        let mut overlay = Overlay::new(&self.replica.tree);
        let planner = Planner::new(&mut overlay, &self.settings, writer, RequestIndex(0));
        let plan = planner.plan(operation);
        plan.writes.is_empty() && plan.outcome == entry.plan.outcome
    }

    fn finish(&mut self, entry: Entry<Carried>, stats: &mut Stats) {
        let outcome = stats.settle(entry.plan, self.replica.applied, self.settings.offset);
        let (session, pending) = match entry.work {
            Carried::Session(stay, pending) => (stay.session, pending),
            Carried::Internal(internal) => {
                self.finish_internal(internal);
                return;
            }
        };
        self.outstanding -= 1;
        match pending.work {
            Work::Open { told: true } => self.key_written(session),
            Work::Open { told: false } => {
                self.accept(session, pending.connection);
                self.key_written(session);
            }
            Work::Attach { .. } => {
                if let Some(local) = self.locals.find(session) {
                    local.unsettled = false;
                    local.give_back_room();
                }
                self.accept(session, pending.connection);
            }
            Work::Expire => self.finish_end(session, None),
            Work::Request(xid, Operation::CloseSession) => {
                self.finish_end(session, Some((pending.connection, xid)));
            }
            Work::Request(xid, _) => {
                self.reply(pending.connection, xid, outcome);
            }
        }
    }

    /// The session's key is gone, or its end is marked and the lease must do the rest.
    fn finish_end(&mut self, session: SessionId, closer: Option<(ConnectionId, Xid)>) {
        if let Some(record) = self.replica.sessions.get(&session) {
            if record.value.closing {
                let lease = record.lease;
                self.ending.insert(session, closer);
                self.revoke(session, lease);
            }
            return;
        }
        if let Some((connection, xid)) = closer {
            self.reply(connection, xid, Ok(Body::Empty));
        } else {
            tracing::info!(session = format_args!("0x{:x}", session.0), "session expired");
        }
        if let Some(local) = self.drop_local(session) {
            self.leases.give_back(local.lease, self.now.monotonic);
        }
    }

    /// This shim serves a session no more: its connection is closed without a frame, and who
    /// waits to be attached to it is refused.
    pub(super) fn drop_local(&mut self, session: SessionId) -> Option<Local> {
        self.let_go(session);
        self.locals.remove(session)
    }

    /// Nothing that was asked for a session is done any more, and its clients are cut off.
    pub(super) fn let_go(&mut self, session: SessionId) {
        let Some(local) = self.locals.find(session) else { return };
        let queue = std::mem::take(&mut local.queue);
        let connection = local.connection.take();
        let parked = local.take_parked();
        queue.into_iter().for_each(|pending| self.drop_pending(session, pending));
        connection.into_iter().for_each(|connection| self.close(connection));
        parked.into_iter().for_each(|(connection, _)| self.close(connection));
    }

    fn drop_pending(&mut self, session: SessionId, pending: Pending) {
        self.outstanding -= 1;
        let ended = !self.replica.sessions.contains_key(&session);
        match pending.work {
            Work::Attach { .. } if ended => self.refuse(pending.connection),
            Work::Attach { .. } => self.close(pending.connection),
            Work::Open { .. } | Work::Request(..) => self.close(pending.connection),
            Work::Expire => {}
        }
    }

    pub(super) fn revoke(&mut self, session: SessionId, lease: LeaseId) {
        let token = self.next_token();
        self.revokes.insert(token, session);
        self.leases.forget(lease);
        self.command(StoreCommand::Revoke(token, lease));
    }

    /// Plan the requests of a batch again: nothing of it has happened.
    pub(super) fn plan_again(&mut self, token: Token, same_shape: bool) {
        if !self.fails_alone(token, same_shape) {
            return;
        }
        if !same_shape && self.batches.contains_key(&token) {
            self.conflicted();
        }
        let stays = self.take_apart(token, true);
        self.unblock_all(stays.into_iter().map(|stay| (stay, false)).collect());
        self.batch_out_of_the_way(token);
    }

    /// Another shim writes the same keys.
    pub(super) fn conflicted(&mut self) {
        self.nested_left = NESTED_AFTER_CONFLICT;
    }

    /// Put all requests of a batch back: whose they are.
    pub(super) fn take_apart(&mut self, token: Token, lost: bool) -> Vec<Stay> {
        let Some(batch) = self.take_batch(token) else { return Vec::new() };
        let stays = batch.entries.iter().filter_map(stay_of).collect();
        self.put_back(batch.entries.into_iter().rev().map(|entry| entry.work).collect(), lost);
        stays
    }

    fn too_large(&mut self, token: Token, reason: &str) {
        let Some(batch) = self.batches.get(&token) else { return };
        if batch.entries.len() > 1 {
            if self.room.refused() {
                tracing::warn!(reason, limits = ?self.room.gathers(), "etcd takes less in a txn");
            }
            self.plan_again(token, true);
            return;
        }
        let session = batch.entries.first().and_then(session_of);
        self.plan_again(token, true);
        if self.batches.contains_key(&token) {
            // It waits for those before it, and will be tried again.
            return;
        }
        session.into_iter().for_each(|session| self.refuse_head(session, reason));
    }

    /// The head of a session's queue does not fit: is there room for more than by default?
    pub(super) fn find_more_room(&mut self, session: SessionId) {
        if self.probe == Probe::Done {
            self.refuse_head(session, "it rests on too many keys");
            return;
        }
        if let Some(local) = self.locals.find(session) {
            local.blocked = true;
            self.behind_probe.push(session);
        }
        if self.probe == Probe::NotYet {
            self.send_first_probe();
        }
    }

    /// The head of a session's queue does not fit into any txn.
    fn refuse_head(&mut self, session: SessionId, reason: &str) {
        let Some(local) = self.locals.find(session) else { return };
        let Some(pending) = local.queue.pop_front() else { return };
        self.outstanding -= 1;
        match pending.work {
            Work::Request(xid, operation) if operation != Operation::CloseSession => {
                self.log_refusal(session, reason);
                let outcome = Err(ErrorCode::MarshallingError);
                self.reply(pending.connection, xid, outcome);
                self.proceed(session);
            }
            work => {
                let closer = match work {
                    Work::Request(xid, _) => Some((pending.connection, xid)),
                    _ => None,
                };
                local.blocked = true;
                self.ending.insert(session, closer);
                self.internal.push_back(Internal::Revoke(session));
            }
        }
    }

    /// A client can be refused as often as it likes: the log says it now and then.
    fn log_refusal(&mut self, session: SessionId, reason: &str) {
        let now = self.now.monotonic;
        let session = format_args!("{:#x}", session.0);
        if now < self.refusal_logged_at + REFUSALS_LOGGED_EVERY {
            tracing::debug!(session, reason, "a request does not fit into one txn: refused");
            return;
        }
        self.refusal_logged_at = now;
        tracing::warn!(session, reason, "a request does not fit into one txn: refused");
    }

    /// Some put named a dead lease, and etcd does not say which.
    fn check_leases(&mut self, token: Token) {
        let Some(batch) = self.batches.get(&token) else { return };
        let sessions: Vec<SessionId> = batch.entries.iter().filter_map(session_of).collect();
        let mut leases = vec![self.settings.shim_lease];
        for session in sessions {
            leases.extend(self.locals.peek(session).map(|local| local.lease));
        }
        leases.dedup();
        for lease in leases {
            self.leases.asked(lease, self.now.monotonic);
            self.command(StoreCommand::Renew(lease));
        }
    }

    /// The stream has not decided in time: whoever is concerned is cut off, and fenced before
    /// anything else is written for it.
    pub(super) fn give_up(&mut self, token: Token) {
        let Some(batch) = self.take_batch(token) else { return };
        self.abandon_chain();
        for entry in batch.entries {
            match entry.work {
                Carried::Session(stay, pending) => self.cut_off(stay, pending),
                Carried::Internal(internal) => self.retry_internal(internal),
            }
        }
        self.batch_out_of_the_way(token);
    }

    fn cut_off(&mut self, stay: Stay, pending: Pending) {
        let session = stay.session;
        let Some(local) = self.locals.find_stay(stay) else {
            self.drop_pending(session, pending);
            return;
        };
        local.unsettled = true;
        local.blocked = false;
        let followed = local.under_way > 0;
        let connection = local.connection.take();
        let opening = matches!(pending.work, Work::Open { .. });
        let parked = local.take_parked();
        let (keep, gone): (Vec<Pending>, Vec<Pending>) = std::iter::once(pending)
            .chain(local.queue.drain(..))
            .partition(|pending| matches!(pending.work, Work::Expire));
        local.queue.extend(keep);
        let lease = local.lease;
        for pending in gone {
            self.outstanding -= 1;
            self.close(pending.connection);
        }
        connection.into_iter().for_each(|connection| self.close(connection));
        parked.into_iter().for_each(|(connection, _)| self.close(connection));
        if opening {
            // If its key comes to be, its lease ends it, or its client comes back.
            self.locals.remove(session);
            self.leases.forget(lease);
            return;
        }
        if followed {
            // What is under way behind this must not be done for whoever comes next.
            self.locals.begin_stay(session);
        }
        self.proceed(session);
    }
}

fn session_of(entry: &Entry<Carried>) -> Option<SessionId> {
    stay_of(entry).map(|stay| stay.session)
}

/// Its session was not held up by it.
fn may_go_on(entry: &Entry<Carried>) -> bool {
    matches!(&entry.work, Carried::Session(_, pending) if !stands_alone(&pending.work))
}

fn stay_of(entry: &Entry<Carried>) -> Option<Stay> {
    match &entry.work {
        Carried::Session(stay, _) => Some(*stay),
        Carried::Internal(_) => None,
    }
}
