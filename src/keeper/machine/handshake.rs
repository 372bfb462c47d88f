//! How a connection gets its session. Source: `ZooKeeperServer.processConnectRequest`.
//!
//! A session is refused only after a barrier: the "expired" of a tree that lags would be final.

use crate::keeper::machine::fence::UNANSWERED_MAX;
use crate::keeper::machine::{GrantFor, Internal, Keeper, Waiter};
use crate::keeper::request::{Connect, Connected, ConnectionId, Outgoing, SessionId};
use crate::keeper::sessions::leases::Holder;
use crate::keeper::sessions::proof::PASSWORD_BYTES;
use crate::keeper::sessions::{
    KeyState, Local, Pending, Work, lease_ttl, renewal_interval, timeout_held,
};
use crate::keeper::time::Now;
use crate::keeper::txn::{LeaseId, StoreCommand, Token};
use bytes::Bytes;
use rand_chacha::rand_core::RngCore;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::time::Duration;

/// What is known of the session that a client comes back with.
enum Claim {
    /// It may be moved here: that is proved by the txn that does it.
    Good,
    /// It is here already, unless this tree lags: another shim may have served it since.
    Maybe,
    /// It is here, and has no key yet.
    Unwritten,
    Unknown,
    Closing,
}

impl Keeper {
    /// The first frame of a connection. Answered by [`Outgoing::Connected`], or by a close.
    pub fn handle_connect(&mut self, connection: ConnectionId, connect: Connect, now: Now) {
        self.now = now;
        if !self.is_serving() || !self.connections.contains_key(&connection) {
            self.close(connection);
            return;
        }
        if connect.last_zxid_seen > self.zxid() {
            self.barriers.wait(Waiter::Connect(connection, connect));
            return;
        }
        self.connect(connection, connect, false);
    }

    /// A barrier has passed: what the tree says now is certain.
    pub(super) fn connect_after_barrier(&mut self, connection: ConnectionId, connect: Connect) {
        if !self.connections.contains_key(&connection) {
            return;
        }
        if connect.last_zxid_seen <= self.zxid() {
            self.connect(connection, connect, true);
        } else if connect.session != SessionId(0) && !self.may_be_known(&connect) {
            // It comes from another history, of a ZooKeeper that was replaced: starting afresh
            // is the only way on for it.
            self.refuse_unknown(connection, connect);
        } else {
            tracing::info!(
                seen = %connect.last_zxid_seen,
                ours = %self.zxid(),
                "refusing a client that has seen a later zxid"
            );
            self.close(connection);
        }
    }

    /// What the tree says is certain, and has changed for this client.
    pub(super) fn connect_again(&mut self, connection: ConnectionId, connect: Connect) {
        if self.connections.contains_key(&connection) {
            self.connect(connection, connect, true);
        }
    }

    pub(super) fn negotiated(&self, connect: &Connect) -> Duration {
        crate::keeper::planner::clamp_timeout(
            connect.timeout_ms,
            self.options.session_timeout_min,
            self.options.session_timeout_max,
        )
    }

    fn connect(&mut self, connection: ConnectionId, connect: Connect, certain: bool) {
        let timeout = self.negotiated(&connect);
        if connect.session == SessionId(0) {
            self.open(connection, timeout);
            return;
        }
        // Also before a wrong password, as the real server does.
        let old = self.locals.find(connect.session).and_then(|local| local.connection.take());
        if let Some(old) = old {
            self.close(old);
        }
        match self.check_claim(&connect) {
            Claim::Good => self.attach(connection, connect.session, timeout),
            Claim::Maybe | Claim::Unknown | Claim::Closing if !certain => {
                self.barriers.wait(Waiter::Connect(connection, connect));
            }
            Claim::Maybe => self.attach(connection, connect.session, timeout),
            Claim::Unwritten => self.attach_unwritten(connection, connect),
            Claim::Unknown if self.may_be_unwritten(&connect) => {
                self.wait_to_adopt(connection, connect);
            }
            Claim::Unknown => self.refuse_unknown(connection, connect),
            Claim::Closing => {
                // Whoever meets a session whose end has begun sees to the end of it, and says so
                // only then.
                self.internal.push_back(Internal::Revoke(connect.session));
                self.refusals.entry(connect.session).or_default().push(connection);
            }
        }
    }

    fn check_claim(&self, connect: &Connect) -> Claim {
        let Some(record) = self.replica.sessions.get(&connect.session) else {
            let local = self.locals.peek(connect.session);
            let here = local.is_some_and(|local| {
                local.key != KeyState::Written
                    && same_password(&local.password(), &connect.password)
            });
            return if here { Claim::Unwritten } else { Claim::Unknown };
        };
        if !same_password(&record.value.password, &connect.password) {
            return Claim::Unknown;
        }
        let ending = self.locals.peek(connect.session).is_some_and(|local| local.ending);
        if record.value.closing || ending {
            Claim::Closing
        } else if self.options.sole || record.value.owner != self.settings.shim {
            Claim::Good
        } else {
            Claim::Maybe
        }
    }

    fn open(&mut self, connection: ConnectionId, timeout: Duration) {
        let session = self.new_session_id();
        let mut local = Local::new(timeout, self.locals.deadline(self.now.monotonic, timeout));
        let delayed = !self.options.session_key_delay.is_zero();
        let Some(secret) = self.replica.secret.filter(|_| delayed) else {
            let mut password = [0; PASSWORD_BYTES];
            self.random.fill_bytes(&mut password);
            local.set_password(password);
            self.begin_opening(connection, session, local);
            return;
        };
        local.set_password(secret.password(session, self.now.unix_ms, timeout));
        if self.take_in(connection, session, local).is_some() {
            self.open_unwritten(session, connection);
        }
    }

    /// A session of this shim from now on, for this connection.
    fn take_in(
        &mut self,
        connection: ConnectionId,
        session: SessionId,
        mut local: Local,
    ) -> Option<&mut Local> {
        let open = self.connections.get_mut(&connection)?;
        open.session = Some(session);
        open.timeout = local.timeout().into();
        local.connection = Some(connection);
        Some(self.locals.insert(session, local))
    }

    /// A session whose client is told of it once it has its key.
    pub(super) fn begin_opening(
        &mut self,
        connection: ConnectionId,
        session: SessionId,
        local: Local,
    ) {
        let timeout = local.timeout();
        let Some(local) = self.take_in(connection, session, local) else { return };
        let work = Work::Open { told: false };
        local.queue.push_back(Pending::new(connection, Arc::from([]), work));
        local.blocked = true;
        self.outstanding += 1;
        self.find_lease(session, timeout);
    }

    /// Random, positive, never 0: the sign bit is left free and no upper byte of upstream's
    /// special owners (`EphemeralType`) can occur.
    fn new_session_id(&mut self) -> SessionId {
        loop {
            let id = SessionId((self.random.next_u64() >> 1) as i64);
            let known = self.locals.peek(id).is_some() || self.replica.sessions.contains_key(&id);
            if id != SessionId(0) && !known {
                return id;
            }
        }
    }

    /// A lease for a session that is being opened: an idle one, or a new one.
    pub(super) fn find_lease(&mut self, session: SessionId, timeout: Duration) {
        let (ttl, interval) = (lease_ttl(timeout), renewal_interval(timeout));
        match self.leases.take(ttl, session, interval, self.now.monotonic) {
            Some(lease) => self.lease_found(session, lease),
            None => self.ask_for_lease(session, ttl),
        }
    }

    fn ask_for_lease(&mut self, session: SessionId, ttl: Duration) {
        let Some(local) = self.locals.find(session) else { return };
        local.granting = local.granting.saturating_add(1);
        let token = self.next_token();
        let asked_at = self.now.monotonic;
        self.grants.insert(token, GrantFor { session, ttl, asked_at });
        self.command(StoreCommand::Grant(token, ttl));
    }

    /// etcd loses a grant with its leader, and says so only after seven seconds: if it has
    /// answered since, it is asked again. A lease too many is kept for others.
    pub(super) fn ask_for_lost_leases(&mut self) {
        let mut asked: FxHashMap<SessionId, (Duration, Duration)> = FxHashMap::default();
        for grant in self.grants.values() {
            let (last, _) = asked.entry(grant.session).or_insert((grant.asked_at, grant.ttl));
            *last = (*last).max(grant.asked_at);
        }
        let mut lost: Vec<(SessionId, Duration)> = asked
            .into_iter()
            .filter(|(_, (last, _))| self.confirmed_at >= *last + UNANSWERED_MAX)
            .map(|(session, (_, ttl))| (session, ttl))
            .collect();
        lost.sort_unstable();
        for (session, ttl) in lost {
            if self.locals.peek(session).is_some_and(Local::waits_for_lease) {
                self.ask_for_lease(session, ttl);
            }
        }
    }

    /// The end of a grant for a session.
    pub(super) fn session_granted(
        &mut self,
        token: Token,
        granted: Result<(LeaseId, Duration), String>,
    ) {
        let Some(GrantFor { session, ttl, asked_at }) = self.grants.remove(&token) else { return };
        if let Some(local) = self.locals.find(session) {
            local.granting = local.granting.saturating_sub(1);
        }
        let local = self.locals.peek(session);
        let waits = local.is_some_and(Local::waits_for_lease);
        match granted {
            Ok((lease, held)) => {
                let interval = local.map_or(ttl / 4, |local| renewal_interval(local.timeout()));
                // Filed under the class that was asked for, so that it is found again.
                self.leases.add(lease, Holder::Session(session), held.max(ttl), interval, asked_at);
                if waits {
                    self.lease_found(session, lease);
                } else {
                    self.leases.give_back(lease, self.now.monotonic);
                }
            }
            Err(error) => {
                tracing::warn!(%error, "no lease for a session");
                if !waits
                    || local.is_some_and(|local| local.granting > 0)
                    || self.key_waits(session)
                {
                    return;
                }
                // It never had a key, so nobody waits to be attached to it.
                self.drop_local(session);
            }
        }
    }

    fn lease_found(&mut self, session: SessionId, lease: LeaseId) {
        let Some(local) = self.locals.find(session) else { return };
        local.lease = lease;
        if !self.leases.is_fresh(lease, self.now.monotonic) {
            // Word of it came late: it could end before a session's timeout has passed.
            local.renewing = true;
            self.leases.asked(lease, self.now.monotonic);
            self.command(StoreCommand::Renew(lease));
            return;
        }
        local.blocked = false;
        self.proceed(session);
    }

    /// A client comes back with a session that exists.
    fn attach(&mut self, connection: ConnectionId, session: SessionId, timeout: Duration) {
        let Some(record) = self.replica.sessions.get(&session) else { return };
        let (lease, moved) = (record.lease, record.value.owner != self.settings.shim);
        let rewrite = moved && !self.options.sole;
        let now = self.now.monotonic;
        let deadline = self.locals.deadline(now, timeout);
        if self.locals.peek(session).is_none() {
            let mut local = Local::new(timeout, deadline);
            local.lease = lease;
            self.locals.insert(session, local);
            let interval = renewal_interval(timeout);
            self.leases.adopt(lease, Holder::Session(session), interval, now);
        }
        let Some(local) = self.locals.find(session) else { return };
        local.connection = Some(connection);
        local.set_timeout(timeout);
        let rewrite = rewrite || local.unsettled;
        let Some(open) = self.connections.get_mut(&connection) else { return };
        open.session = Some(session);
        open.timeout = timeout.into();
        let identities = open.identities.clone();
        let work = Work::Attach { rewrite };
        local.queue.push_back(Pending::new(connection, identities, work));
        self.outstanding += 1;
        self.locals.touch(session, now);
        self.proceed(session);
    }

    /// The lease of a session that is to be attached was renewed lately; if not, a renewal is
    /// sent and the session waits for it. What the lease cannot carry is taken off the timeout.
    pub(super) fn lease_is_ready(&mut self, session: SessionId) -> bool {
        let now = self.now.monotonic;
        let Some(local) = self.locals.find(session) else { return false };
        let (lease, timeout) = (local.lease, local.timeout());
        self.leases.change_interval(lease, renewal_interval(timeout));
        if !self.leases.is_fresh(lease, now) {
            local.blocked = true;
            local.renewing = true;
            self.leases.asked(lease, now);
            self.command(StoreCommand::Renew(lease));
            return false;
        }
        if let Some(ttl) = self.leases.ttl(lease) {
            let held = timeout.min(timeout_held(ttl)).max(self.options.session_timeout_min);
            local.set_timeout(held);
        }
        true
    }

    /// A session that a client may use: its answer.
    pub(super) fn accept(&mut self, session: SessionId, connection: ConnectionId) {
        let known = self.replica.sessions.get(&session).map(|record| record.value.password);
        let Some(local) = self.locals.find(session) else { return };
        let unwritten = (local.key != KeyState::Written).then_some(local.password());
        let Some(password) = known.or(unwritten) else { return };
        let password = Bytes::copy_from_slice(&password);
        let timeout = local.timeout();
        if let Some(open) = self.connections.get_mut(&connection) {
            open.timeout = timeout.into();
        }
        let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        let accepted = Connected::Accepted { timeout_ms, session, password };
        self.send(connection, Outgoing::Connected(accepted));
        self.locals.touch(session, self.now.monotonic);
    }

    pub(super) fn refuse(&mut self, connection: ConnectionId) {
        self.send(connection, Outgoing::Connected(Connected::Refused));
        self.close(connection);
    }
}

/// Compare without telling by the time it takes where they differ.
fn same_password(known: &[u8; 16], given: &[u8]) -> bool {
    given.len() == known.len()
        && known.iter().zip(given).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}
