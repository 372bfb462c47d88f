//! What the store tells: the stream, and the ends of what was asked.
//!
//! Revisions are applied one at a time, each whole: the tree changes, the events that it fires
//! are put out, then the replies to our own requests in it and the reads that these release.

use crate::keeper::batch::Shape;
use crate::keeper::keyspace::Slot;
use crate::keeper::machine::stats::Stats;
use crate::keeper::machine::{Internal, Keeper, Probe, Registration, Waiter};
use crate::keeper::request::{Body, ConnectionId, SessionId};
use crate::keeper::sessions::leases::Holder;
use crate::keeper::sessions::{Local, renewal_interval};
use crate::keeper::time::Now;
use crate::keeper::txn::{
    Change, CommitError, Compare, Key, LeaseId, RevisionChanges, Snapshot, StoreCommand,
    StoreEvent, Token, Txn, TxnAnswer,
};
use crate::keeper::zxid::Revision;
use rand_chacha::rand_core::RngCore;
use rustc_hash::FxHashSet;
use std::time::Duration;

/// Values of etcd's `--max-txn-ops` that are tried, beside the default of 128.
const PROBES: [usize; 3] = [2048, 1024, 512];

/// What a store of one's own is tried with first: a request of a mebibyte does not ask for more.
const PROBE_OF_ONES_OWN: usize = 1 << 17;

/// The TTL of the lease that a shim's own keys are on.
const SHIM_TTL: Duration = Duration::from_secs(60);

/// When something that the store could not do is asked again.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// When a failed barrier is sent again.
const BARRIER_AGAIN: Duration = Duration::from_millis(100);

/// A silence from which on sessions get their whole timeout again.
const SILENCE_NOTED: Duration = Duration::from_secs(2);

impl Keeper {
    /// Something from the store.
    pub fn handle_store(&mut self, event: StoreEvent, now: Now) {
        self.now = now;
        match event {
            StoreEvent::Loaded(snapshot) => self.load(snapshot),
            StoreEvent::Deleted(past) => {
                self.past_is_known(&past);
                self.have_ended(&past.deletions);
                let learnt = self.replica.learn(past);
                self.write_down_learnt(learnt);
            }
            StoreEvent::Changed(changes) => self.changed(changes),
            StoreEvent::Progress(revision) => {
                if self.loaded {
                    self.replica.applied = self.replica.applied.max(revision);
                    self.release();
                }
            }
            StoreEvent::Committed(token, result) => match self.probe {
                Probe::UnderWay(probe, size) if probe == token => self.probed(size, &result),
                _ => self.committed(token, result),
            },
            StoreEvent::TxnBytesMax(bytes_max) => self.room.bytes_known(bytes_max),
            StoreEvent::BarrierPassed(token, Ok(revision)) => {
                self.barriers.answered(token, revision);
                self.release();
            }
            StoreEvent::BarrierPassed(token, Err(error)) => {
                tracing::debug!(%error, "barrier failed");
                self.barriers.failed(token, now.monotonic + BARRIER_AGAIN);
            }
            StoreEvent::Granted(token, granted) => self.granted(token, granted),
            StoreEvent::Revoked(token, result) => self.revoked(token, result),
            StoreEvent::Renewed(lease, ttl) => self.renewed(lease, ttl),
        }
    }

    fn load(&mut self, snapshot: Snapshot) {
        let first = !self.loaded;
        let revision = snapshot.revision;
        self.have_ended(&snapshot.deletions);
        self.past_is_to_come(&snapshot);
        let is_another = snapshot.is_another_history || revision < self.replica.applied;
        if is_another {
            tracing::error!(
                %revision,
                applied = %self.replica.applied,
                "etcd has not all that was applied: was it restored from a backup?"
            );
        }
        let applied = match self.replica.load(snapshot) {
            Ok(applied) => applied,
            Err(layout) => {
                tracing::error!(?layout, "the store has an unknown layout; nothing is served");
                self.loaded = false;
                return;
            }
        };
        self.settings.offset = self.replica.offset;
        if self.options.sole {
            // Sessions end by txns, which say when a parent lost a child.
            self.replica.uncertain_until = Revision::NEVER;
        }
        self.loaded = true;
        tracing::info!(%revision, znodes = self.replica.tree.len(), "loaded");
        // The history that would have decided these is gone.
        let mut under_way: Vec<Token> = self.batches.keys().copied().collect();
        under_way.sort_unstable();
        if !first {
            let zxid = self.zxid();
            self.fire(&applied.fired, zxid);
            self.fire_stirred(&applied.stirred, zxid);
            under_way.into_iter().for_each(|token| self.give_up(token));
            self.sessions_changed(&applied.sessions);
        } else if self.options.sole {
            self.adopt_all();
        }
        self.spent_changed(&applied.spent);
        if is_another {
            self.begin_anew();
        }
        applied.ended.iter().for_each(|session| self.has_ended(*session));
        self.write_down_learnt(applied.learnt);
        if !self.replica.has_meta {
            self.internal.push_back(Internal::Meta);
        }
        self.want_secret();
        self.barriers.want();
        self.release();
    }

    /// The history is another one: whoever has seen what is not in it must know that something
    /// has happened, and nobody who has seen more may be shown less.
    fn begin_anew(&mut self) {
        let mut all: Vec<ConnectionId> = self.connections.keys().copied().collect();
        all.sort_unstable();
        all.into_iter().for_each(|connection| self.close(connection));
        // A lease that is free, or has a session without a key, may be another session's here.
        self.leases.forget_idle();
        let sessions = self.locals.iter().map(|(session, _)| session);
        let mut gone: Vec<SessionId> =
            sessions.filter(|session| !self.replica.sessions.contains_key(session)).collect();
        gone.sort_unstable();
        for session in gone {
            if let Some(local) = self.drop_local(session) {
                self.leases.forget(local.lease);
            }
        }
    }

    /// How many compares a txn may hold is known only by trying: a txn of compares alone is a
    /// read, and costs etcd next to nothing. Sizes are tried when something does not fit.
    pub(super) fn send_first_probe(&mut self) {
        self.send_probe(if self.options.sole { PROBE_OF_ONES_OWN } else { PROBES[0] });
    }

    fn send_probe(&mut self, size: usize) {
        let token = self.next_token();
        let key = Slot::Batch(self.settings.shim).key();
        let compares = vec![Compare::ModRevision(key, Revision::NEVER); size];
        self.probe = Probe::UnderWay(token, size);
        let txn = Txn { compares, ..Txn::default() };
        self.command(StoreCommand::Commit(token, txn));
    }

    fn probed(&mut self, size: usize, result: &Result<TxnAnswer, CommitError>) {
        let smaller = PROBES.into_iter().find(|probe| *probe < size);
        match (result, smaller) {
            (Err(CommitError::TooLarge(_)), Some(smaller)) => {
                self.send_probe(smaller);
                return;
            }
            (Ok(_), _) => {
                tracing::info!(size, "the store takes larger txns than by default");
                self.room.operations_proved(size);
                self.probe = Probe::Done;
            }
            (Err(CommitError::TooLarge(_)), None) => self.probe = Probe::Done,
            // Nothing was learnt; whoever comes next tries again.
            (Err(_), _) => self.probe = Probe::NotYet,
        }
        for session in std::mem::take(&mut self.behind_probe) {
            self.unblock(session);
        }
    }

    /// The sessions of before a restart are all ours, and get their whole timeout again. Source:
    /// `ZooKeeperServer.createSessionTracker`.
    fn adopt_all(&mut self) {
        let now = self.now.monotonic;
        let mut known: Vec<(SessionId, Duration, LeaseId, bool)> = self
            .replica
            .sessions
            .iter()
            .map(|(session, record)| {
                (*session, record.value.timeout(), record.lease, record.value.closing)
            })
            .collect();
        known.sort_unstable_by_key(|known| known.0);
        for (session, timeout, lease, closing) in known {
            let mut local = Local::new(timeout, self.locals.deadline(now, timeout));
            local.lease = lease;
            self.locals.insert(session, local);
            let interval = renewal_interval(timeout);
            self.leases.adopt(lease, Holder::Session(session), interval, now);
            if closing {
                self.internal.push_back(Internal::Revoke(session));
            }
        }
    }

    fn changed(&mut self, changes: RevisionChanges) {
        if !self.loaded || changes.revision <= self.replica.applied {
            return;
        }
        let named = self.replica.batch_in(&changes).and_then(|number| self.numbers.get(&number));
        let batch = named.and_then(|token| self.batches.get(token));
        // Only the groups of a nested batch have fates of their own.
        let keys: FxHashSet<Key> = if batch.is_some_and(|batch| batch.shape == Shape::Nested) {
            changes.changes.iter().map(|change| changed_key(change).clone()).collect()
        } else {
            FxHashSet::default()
        };
        let mut stats = batch.map(|batch| Stats::before(batch, &self.replica.tree));
        let applied = self.replica.apply(changes);
        if self.settings.offset != self.replica.offset {
            self.settings.offset = self.replica.offset;
        }
        if applied.by_another {
            self.alone_from = self.now.monotonic.saturating_add(self.options.alone_after);
        }
        let zxid = self.zxid();
        self.fire(&applied.fired, zxid);
        for number in &applied.batches {
            let stats = stats.take().unwrap_or_default();
            self.batch_named(*number, stats, |key| keys.contains(key));
        }
        self.sessions_changed(&applied.sessions);
        self.spent_changed(&applied.spent);
        applied.ended.iter().for_each(|session| self.has_ended(*session));
        self.claims_changed(&applied);
        self.write_down_later(&applied);
        self.release();
    }

    /// Sessions that ended or moved away, here or elsewhere.
    fn sessions_changed(&mut self, sessions: &[SessionId]) {
        for session in sessions {
            let session = *session;
            match self.replica.sessions.get(&session) {
                None => {
                    self.has_ended(session);
                    if let Some(Some((connection, xid))) = self.ending.remove(&session) {
                        self.reply(connection, xid, Ok(Body::Empty));
                    }
                    for connection in self.refusals.remove(&session).unwrap_or_default() {
                        self.refuse(connection);
                    }
                    if let Some(local) = self.drop_local(session) {
                        self.leases.forget(local.lease);
                    }
                }
                Some(record) if !self.replica.is_own(record.value.owner) && !self.options.sole => {
                    if let Some(local) = self.drop_local(session) {
                        tracing::debug!(session = session.0, "session moved away");
                        self.leases.forget(local.lease);
                    }
                    for connection in self.refusals.remove(&session).unwrap_or_default() {
                        self.close(connection);
                    }
                }
                Some(record) => {
                    // A move that nobody waits for any more has taken effect all the same: what
                    // its client said to the owner before is not known here.
                    if !record.value.closing {
                        self.locals.touch(session, self.now.monotonic);
                    }
                }
            }
            self.ask_again(session);
        }
    }

    /// Whoever waited for what the tree has now may go on.
    pub(super) fn release(&mut self) {
        for (sent_at, waiters) in self.barriers.reached(self.replica.applied) {
            self.confirm(sent_at);
            for waiter in waiters {
                match waiter {
                    Waiter::Session(stay) => self.session_passed(stay),
                    Waiter::Connect(connection, connect) => {
                        self.connect_after_barrier(connection, connect);
                    }
                    Waiter::Opened(stay, connection) => self.opened(stay, connection),
                    Waiter::Told(stay) => self.told(stay),
                    Waiter::Adopt(connection, connect) => {
                        self.adopt_after_barrier(connection, connect);
                    }
                    Waiter::Proved(token) => self.batch_proved(token),
                    Waiter::Again(token) => self.refused(token),
                    Waiter::Fence => self.fence_passed(),
                }
            }
        }
    }

    /// The tree has all that etcd had at this time.
    pub(super) fn confirm(&mut self, at: Duration) {
        if at <= self.confirmed_at {
            return;
        }
        let silence = self.silence();
        self.confirmed_at = at;
        if silence > SILENCE_NOTED {
            // Time not served does not count against sessions.
            self.locals.grant_full_timeouts(self.now.monotonic);
        }
    }

    fn granted(&mut self, token: Token, granted: Result<(LeaseId, Duration), String>) {
        let Registration::Granting(asked) = &mut self.registration else {
            self.session_granted(token, granted);
            return;
        };
        let Some(index) = asked.iter().position(|asked| *asked == token) else {
            self.session_granted(token, granted);
            return;
        };
        asked.swap_remove(index);
        let others = !asked.is_empty();
        let now = self.now.monotonic;
        match granted {
            Ok((lease, ttl)) => {
                self.leases.add(lease, Holder::Shim, ttl, ttl / 3, now);
                self.settings.shim_lease = lease;
                self.registration = Registration::Done(lease);
            }
            Err(error) => {
                tracing::warn!(%error, "no lease for this shim");
                if !others {
                    self.registration = Registration::RetryAt(now + RETRY_AFTER);
                }
            }
        }
    }

    /// The shim has no lease, or has lost it: a new number and a new lease.
    pub(super) fn register(&mut self) {
        let token = self.next_token();
        match &mut self.registration {
            Registration::Granting(asked) => asked.push(token),
            other => *other = Registration::Granting(vec![token]),
        }
        self.command(StoreCommand::Grant(token, SHIM_TTL));
    }

    fn revoked(&mut self, token: Token, result: Result<(), String>) {
        if self.fence_revoked(token, &result) {
            return;
        }
        let Some(session) = self.revokes.remove(&token) else { return };
        if let Err(error) = result {
            tracing::warn!(%error, "lease of an ended session could not be revoked");
            self.retry_internal(Internal::Revoke(session));
        }
    }

    fn renewed(&mut self, lease: LeaseId, ttl: Option<Duration>) {
        self.leases.renewed(lease, ttl.filter(|ttl| *ttl > Duration::ZERO));
        let gone = ttl == Some(Duration::ZERO);
        match self.leases.holder(lease) {
            Some(Holder::Shim) if gone => {
                tracing::warn!("the lease of this shim is gone");
                self.leases.forget(lease);
                self.rename_shim();
                self.register();
            }
            Some(Holder::Idle { .. }) if gone => self.leases.forget(lease),
            // Nothing was learnt: whoever waits asks again with the next heartbeat.
            Some(Holder::Session(session)) if ttl.is_some() => self.session_renewed(session, gone),
            _ => {}
        }
    }

    /// A session may wait for this to be attached, or opened.
    fn session_renewed(&mut self, session: SessionId, gone: bool) {
        let Some(local) = self.locals.find(session) else { return };
        if gone && !self.replica.sessions.contains_key(&session) {
            // An idle lease that had died: the session is opened on another one.
            let (lease, timeout) = (local.lease, local.timeout());
            local.blocked = true;
            local.lease = LeaseId::NONE;
            local.renewing = false;
            self.leases.forget(lease);
            self.find_lease(session, timeout);
            return;
        }
        if local.renewing && !gone {
            local.renewing = false;
            self.unblock(session);
        }
    }

    fn rename_shim(&mut self) {
        let shim = crate::keeper::keyspace::ShimId(self.random.next_u64());
        self.settings.shim = shim;
        self.replica.rename_shim(shim);
    }

    /// The last applied revision, for those who look from outside.
    pub fn applied(&self) -> Revision {
        self.replica.applied
    }
}

fn changed_key(change: &Change) -> &Key {
    match change {
        Change::Put(entry) => &entry.key,
        Change::Delete(key) => key,
    }
}
