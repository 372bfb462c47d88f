//! Time: what is due, and when to be asked again.

use crate::keeper::acl::Identity;
use crate::keeper::machine::{Keeper, Registration, SILENCE_MAX};
use crate::keeper::request::{Body, ConnectionId, Operation, SessionId, Xid};
use crate::keeper::sessions::{KeyState, Pending, Work};
use crate::keeper::time::Now;
use crate::keeper::txn::{StoreCommand, Token};
use std::sync::Arc;
use std::time::Duration;

/// How often etcd is asked for a sign of life when no batch brings one.
const HEARTBEAT: Duration = Duration::from_millis(500);

/// How often the stream is asked how far it is while somebody waits for it.
const PROGRESS_EVERY: Duration = Duration::from_millis(50);

/// No session is expired unless etcd was heard of so lately.
const SILENCE_MAX_TO_EXPIRE: Duration = Duration::from_secs(2);

/// The connection of things that no client asked for.
pub(super) const NOBODY: ConnectionId = ConnectionId(u64::MAX);

impl Keeper {
    /// Time has passed; call it when [`Self::poll_timeout`] is reached.
    pub fn handle_timeout(&mut self, now: Now) {
        self.now = now;
        let at = now.monotonic;
        if matches!(self.registration, Registration::RetryAt(due) if due <= at) && self.loaded {
            self.register();
        }
        if at >= self.heartbeat_at {
            self.heartbeat();
        }
        if self.barriers.needs_progress() && at >= self.progress_at {
            self.progress_at = at + PROGRESS_EVERY;
            self.command(StoreCommand::Progress);
        }
        let mut late: Vec<Token> =
            self.unknown.iter().filter(|(_, due)| **due <= at).map(|(token, _)| *token).collect();
        late.sort_unstable();
        late.into_iter().for_each(|token| self.give_up(token));
        self.fence_again();
        self.renew_leases();
        if self.silence() < SILENCE_MAX_TO_EXPIRE {
            for session in self.locals.expired(at) {
                self.expire(session);
            }
        }
        self.unwritten_due();
        self.spent_due();
        self.internal_due();
        self.release_held(at);
        if at >= self.nodes_checked_at + self.options.container_check_interval {
            self.nodes_checked_at = at;
            self.check_nodes();
        }
    }

    /// When to call [`Self::handle_timeout`] at the latest
    /// ([`Now::monotonic`](crate::keeper::time::Now)).
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        let registration = match self.registration {
            Registration::RetryAt(due) if self.loaded => Some(due),
            _ => None,
        };
        let progress = self.barriers.needs_progress().then_some(self.progress_at);
        let held = (!self.ready.is_empty() && self.hold_until > self.now.monotonic)
            .then_some(self.hold_until);
        let words = (!self.words.is_empty() && self.words_hold_until > self.now.monotonic)
            .then_some(self.words_hold_until);
        let waits = !self.ready.is_empty() || !self.internal.is_empty();
        let follow = self.chain.follow_at().filter(|at| waits && *at > self.now.monotonic);
        let expiry =
            if self.silence() < SILENCE_MAX_TO_EXPIRE { self.locals.next_bucket() } else { None };
        [
            Some(self.heartbeat_at),
            Some(self.nodes_checked_at + self.options.container_check_interval),
            registration,
            progress,
            held,
            words,
            expiry,
            self.barriers.retry_at().filter(|at| *at > self.now.monotonic),
            self.unknown.values().min().copied(),
            self.next_fence(),
            self.leases.next_due(),
            self.next_internal(),
            self.next_unwritten(),
            self.next_spent(),
            follow,
            self.next_held(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn heartbeat(&mut self) {
        self.heartbeat_at = self.now.monotonic + HEARTBEAT;
        if self.loaded && self.silence() >= HEARTBEAT {
            self.barriers.want();
        }
        self.fence_off_lost();
        self.ask_for_lost_leases();
        self.cut_off_in_silence();
        self.help_the_stuck();
    }

    /// Without word from etcd clients are cut off, to reach another shim in time.
    fn cut_off_in_silence(&mut self) {
        if self.silence() < self.options.session_timeout_min / 2 {
            return;
        }
        let silence = self.silence();
        let mut cut: Vec<ConnectionId> = self
            .connections
            .iter()
            .filter(|(_, open)| !open.closed)
            .filter(|(_, open)| silence >= (open.timeout.get() / 2).min(SILENCE_MAX))
            .map(|(connection, _)| *connection)
            .collect();
        cut.sort_unstable();
        if !cut.is_empty() {
            tracing::warn!(?silence, clients = cut.len(), "no word from etcd: cutting clients off");
        }
        cut.into_iter().for_each(|connection| self.close(connection));
    }

    /// A ping that stands behind a write that takes long is answered all the same: the client
    /// counts the silence. A lease whose renewal was not answered is renewed again.
    fn help_the_stuck(&mut self) {
        let stuck: Vec<SessionId> = self
            .locals
            .iter()
            .filter(|(_, local)| !local.queue.is_empty())
            .map(|(session, _)| session)
            .collect();
        let mut waiting_for_lease = Vec::new();
        let now = self.now.monotonic;
        for session in stuck {
            let Some(local) = self.locals.find(session) else { continue };
            let is_ping = |pending: &Pending| {
                matches!(pending.work, Work::Request(_, Operation::Ping))
                    && now.saturating_sub(pending.since) >= HEARTBEAT
            };
            let attaches = |head: &Pending| matches!(head.work, Work::Attach { .. });
            if local.renewing || local.queue.front().is_some_and(attaches) {
                waiting_for_lease.push(local.lease);
            }
            let pings: Vec<ConnectionId> = local
                .queue
                .iter()
                .filter(|pending| is_ping(pending))
                .map(|p| p.connection)
                .collect();
            local.queue.retain(|pending| !is_ping(pending));
            self.outstanding -= pings.len();
            for connection in pings {
                self.reply(connection, Xid::PING, Ok(Body::Empty));
            }
        }
        for lease in waiting_for_lease {
            self.leases.asked(lease, self.now.monotonic);
            self.command(StoreCommand::Renew(lease));
        }
    }

    fn renew_leases(&mut self) {
        let now = self.now.monotonic;
        let locals = &self.locals;
        let due = self
            .leases
            .due(now, |session| locals.peek(session).is_some_and(|local| now < local.deadline()));
        for lease in due {
            self.leases.asked(lease, now);
            self.command(StoreCommand::Renew(lease));
        }
    }

    fn expire(&mut self, session: SessionId) {
        let Some(local) = self.locals.find(session) else { return };
        if local.ending {
            return;
        }
        if local.key == KeyState::Unwritten && !local.blocked {
            // Its key could not be written in time; it never had anything to lose.
            self.drop_local(session);
            self.has_ended(session);
            return;
        }
        let record = self.replica.sessions.get(&session);
        let is_own = |shim| self.options.sole || self.replica.is_own(shim);
        if !record.is_some_and(|record| is_own(record.value.owner)) {
            // It never came to be, or was never moved here: another shim may be serving it.
            if local.queue.is_empty() && !local.blocked {
                let lease = local.lease;
                self.locals.remove(session);
                self.leases.forget(lease);
            }
            return;
        }
        self.end_owned(session);
    }

    fn end_owned(&mut self, session: SessionId) {
        let Some(local) = self.locals.find(session) else { return };
        local.ending = true;
        let identities: Arc<[Identity]> = Arc::from([]);
        local.queue.push_back(Pending::new(NOBODY, identities, Work::Expire));
        self.outstanding += 1;
        self.proceed(session);
    }
}
