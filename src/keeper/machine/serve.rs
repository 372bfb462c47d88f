//! Requests: what is answered at once, and what waits for its turn.
//!
//! A session's requests take effect and are answered in the order in which they came. What waits
//! behind an unfinished write of the same session waits; other sessions do not.

use crate::keeper::acl;
use crate::keeper::error::ErrorCode;
use crate::keeper::machine::chain::{is_write, stands_alone};
use crate::keeper::machine::{Keeper, SILENCE_MAX, Waiter};
use crate::keeper::reader::Reader;
use crate::keeper::request::{
    Auth, Body, ConnectionId, Operation, Outgoing, Reply, Request, SessionId, Xid,
};
use crate::keeper::sessions::{KeyState, Pending, Stay, Work};
use crate::keeper::time::Now;
use crate::keeper::txn::LeaseId;
use crate::keeper::zxid::Zxid;
use std::sync::Arc;

/// What kind of turn an operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// The tree, or less, is enough.
    Read,
    /// A place in etcd's history.
    Write,
    /// A barrier.
    Sync,
}

/// What kind of turn a request needs; the one list of them.
pub(super) fn turn(operation: &Operation) -> Turn {
    match operation {
        Operation::Create(_)
        | Operation::Delete(_)
        | Operation::SetData(_)
        | Operation::SetAcl(_)
        | Operation::Multi(_)
        | Operation::CloseSession => Turn::Write,
        Operation::Sync(_) => Turn::Sync,
        Operation::Ping
        | Operation::Exists(_)
        | Operation::GetData(_)
        | Operation::GetAcl(_)
        | Operation::GetChildren(_)
        | Operation::GetChildren2(_)
        | Operation::MultiRead(_)
        | Operation::Reconfig
        | Operation::CheckWatches(_)
        | Operation::RemoveWatches(_)
        | Operation::AddWatch(_)
        | Operation::SetWatches(_)
        | Operation::Auth(_)
        | Operation::Sasl(_)
        | Operation::GetEphemerals(_)
        | Operation::GetAllChildrenNumber(_)
        | Operation::WhoAmI
        | Operation::Undecodable { .. }
        | Operation::Unknown { .. } => Turn::Read,
    }
}

/// It has seen more than the tree holds.
fn is_ahead(operation: &Operation, zxid: Zxid) -> bool {
    matches!(operation, Operation::SetWatches(set) if set.relative_zxid > zxid)
}

impl Keeper {
    /// What one read of a connection's socket brought, in order.
    pub fn handle_requests(
        &mut self,
        connection: ConnectionId,
        requests: impl IntoIterator<Item = Request>,
        now: Now,
    ) {
        self.now = now;
        if !self.may_answer(connection) {
            self.close(connection);
            return;
        }
        for request in requests {
            let Some(open) = self.connections.get(&connection).filter(|open| !open.closed) else {
                return;
            };
            match request.operation {
                Operation::Auth(auth) => self.authenticate(connection, request.xid, &auth),
                Operation::Sasl(token) => self.sasl(connection, request.xid, token.is_some()),
                operation => {
                    let (session, identities) = (open.session, open.identities.clone());
                    let Some(session) = session else { continue };
                    self.enqueue(session, connection, identities, request.xid, operation);
                }
            }
        }
    }

    /// Whether it is certain enough that the tree is up to date: within half of the session's
    /// timeout, so that a client that is cut off reaches another shim in time.
    pub(super) fn may_answer(&self, connection: ConnectionId) -> bool {
        let Some(open) = self.connections.get(&connection) else { return false };
        self.loaded && self.silence() < (open.timeout.get() / 2).min(SILENCE_MAX)
    }

    fn enqueue(
        &mut self,
        session: SessionId,
        connection: ConnectionId,
        identities: Arc<[acl::Identity]>,
        xid: Xid,
        operation: Operation,
    ) {
        self.locals.touch(session, self.now.monotonic);
        let ahead = is_ahead(&operation, self.zxid());
        let Some(local) = self.locals.find(session) else {
            // Requests that arrive after the session is gone are dropped.
            return;
        };
        if local.is_clear() && matches!(turn(&operation), Turn::Read) && !ahead {
            self.answer(session, connection, &identities, xid, operation);
            return;
        }
        let work = Work::Request(xid, operation);
        let since = self.now.monotonic;
        let pending = Pending { since, ..Pending::new(connection, identities, work) };
        local.queue.push_back(pending);
        self.outstanding += 1;
        if !local.blocked {
            self.proceed(session);
        }
    }

    /// Serve the head of a session's queue, and what comes after it, until something has to wait.
    pub(super) fn proceed(&mut self, session: SessionId) {
        loop {
            let Some(local) = self.locals.find(session) else { return };
            if local.blocked {
                return;
            }
            let unwritten = local.key == KeyState::Unwritten;
            let Some(head) = local.queue.front() else { return };
            if local.under_way > 0 && (!is_write(&head.work) || stands_alone(&head.work)) {
                return;
            }
            let needs = match &head.work {
                Work::Request(_, operation) => turn(operation),
                Work::Attach { .. } if !self.connections.contains_key(&head.connection) => {
                    // Its client may be served elsewhere by now, and is not to be taken from there.
                    local.queue.pop_front();
                    self.outstanding -= 1;
                    continue;
                }
                Work::Attach { .. } => {
                    if !self.lease_is_ready(session) {
                        return;
                    }
                    self.attach_turn(session)
                }
                Work::Open { .. } if local.lease == LeaseId::NONE => {
                    // Its lease has turned out to be gone while the key was on its way.
                    local.blocked = true;
                    return;
                }
                Work::Open { .. } | Work::Expire => Turn::Write,
            };
            match needs {
                Turn::Write if unwritten => {
                    self.write_or_end(session);
                    return;
                }
                Turn::Write => {
                    self.schedule(session);
                    return;
                }
                Turn::Sync => {
                    self.wait_for_barrier(session);
                    return;
                }
                Turn::Read => {
                    if self.waits_for_zxid(session) {
                        return;
                    }
                    self.serve_head(session);
                }
            }
        }
    }

    fn attach_turn(&mut self, session: SessionId) -> Turn {
        let Some(local) = self.locals.find(session) else { return Turn::Read };
        let unsettled = local.unsettled;
        match local.queue.front_mut().map(|head| &mut head.work) {
            Some(Work::Attach { rewrite }) => {
                *rewrite |= unsettled;
                if *rewrite { Turn::Write } else { Turn::Read }
            }
            _ => Turn::Read,
        }
    }

    fn wait_for_barrier(&mut self, session: SessionId) {
        let Some(stay) = self.locals.stay(session) else { return };
        if let Some(local) = self.locals.find_stay(stay) {
            local.blocked = true;
            self.barriers.wait(Waiter::Session(stay));
        }
    }

    /// The session has a write to plan.
    pub(super) fn schedule(&mut self, session: SessionId) {
        let Some(local) = self.locals.find(session) else { return };
        if !local.scheduled {
            local.scheduled = true;
            self.ready.push_back(session);
        }
    }

    /// A setWatches that has seen more than this tree waits until the tree has it too.
    fn waits_for_zxid(&mut self, session: SessionId) -> bool {
        let zxid = self.zxid();
        let Some(local) = self.locals.find(session) else { return false };
        let head = local.queue.front().map(|head| &head.work);
        if !matches!(head, Some(Work::Request(_, operation)) if is_ahead(operation, zxid)) {
            return false;
        }
        self.wait_for_barrier(session);
        true
    }

    /// A barrier that a session waited for has passed: its head is served whatever it is.
    pub(super) fn session_passed(&mut self, stay: Stay) {
        if let Some(local) = self.locals.find_stay(stay) {
            local.blocked = false;
            self.serve_head(stay.session);
            self.proceed(stay.session);
        }
    }

    fn serve_head(&mut self, session: SessionId) {
        let Some(local) = self.locals.find(session) else { return };
        let Some(pending) = local.queue.pop_front() else { return };
        self.outstanding -= 1;
        match pending.work {
            Work::Request(xid, operation) => {
                self.answer(session, pending.connection, &pending.identities, xid, operation);
            }
            Work::Attach { .. } => self.accept(session, pending.connection),
            Work::Open { .. } | Work::Expire => {}
        }
    }

    /// Answer what needs no place in etcd's history.
    fn answer(
        &mut self,
        session: SessionId,
        connection: ConnectionId,
        identities: &[acl::Identity],
        xid: Xid,
        operation: Operation,
    ) {
        let outcome = match operation {
            Operation::Ping => {
                self.reply(connection, Xid::PING, Ok(Body::Empty));
                return;
            }
            Operation::Sync(path) => Ok(Body::Path(path)),
            Operation::Undecodable { .. } => Err(ErrorCode::MarshallingError),
            Operation::Unknown { opcode } => {
                // A client can send as many as it likes: nobody needs to be told.
                tracing::debug!(opcode, "request of unknown type");
                let outcome = Err(ErrorCode::Unimplemented);
                let reply = Reply { xid, zxid: Zxid::NONE, outcome };
                self.send(connection, Outgoing::Reply(reply));
                self.close(connection);
                return;
            }
            Operation::Reconfig => Err(ErrorCode::ReconfigDisabled),
            Operation::AddWatch(add) => self.add_watch(connection, &add),
            Operation::CheckWatches(selection) => self.check_watches(connection, &selection),
            Operation::RemoveWatches(selection) => self.remove_watches(connection, &selection),
            Operation::SetWatches(set) => self.set_watches(connection, &set),
            read => {
                let reader = Reader {
                    session,
                    identities,
                    skip_acl: self.settings.skip_acl,
                    offset: self.settings.offset,
                };
                let answer = reader.read(&mut self.replica.tree, &read);
                if let Some((table, path)) = answer.watch {
                    self.leave_watch(connection, table, &path);
                }
                answer.outcome
            }
        };
        self.reply(connection, xid, outcome);
    }

    pub(super) fn reply(
        &mut self,
        connection: ConnectionId,
        xid: Xid,
        outcome: Result<Body, ErrorCode>,
    ) {
        let reply = Reply { xid, zxid: self.zxid(), outcome };
        self.send(connection, Outgoing::Reply(reply));
    }

    /// Outside the queue, with zxid 0, and no sign of life of the session. Source:
    /// `ZooKeeperServer.processPacket`.
    pub(super) fn authenticate(&mut self, connection: ConnectionId, xid: Xid, auth: &Auth) {
        let Some(open) = self.connections.get(&connection) else { return };
        let mut identities = open.identities.to_vec();
        let result = acl::authenticate(
            auth.scheme.as_deref(),
            auth.auth.as_deref(),
            self.options.super_digest.as_deref(),
            &mut identities,
        );
        if result.is_ok() {
            self.take_identities(connection, identities);
        }
        let failed = result.is_err();
        let outcome = result.map(|()| Body::Empty);
        self.send(connection, Outgoing::Reply(Reply { xid, zxid: Zxid(0), outcome }));
        if failed {
            self.close(connection);
        }
    }

    /// No SASL is configured: a client's token is answered by none.
    fn sasl(&mut self, connection: ConnectionId, xid: Xid, has_token: bool) {
        if has_token {
            let outcome = Ok(Body::Token(None));
            self.send(connection, Outgoing::Reply(Reply { xid, zxid: Zxid(0), outcome }));
        } else {
            self.close(connection);
        }
    }
}
