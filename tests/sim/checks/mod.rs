//! The checks: what must hold after every step of a run, and once it is at rest.
//!
//! They see what clients send and are told, and etcd's history; nothing of the servers' insides.

pub(crate) mod history;
mod judge;
mod locks;
mod quotas;
mod reads;
mod replies;
mod rest;
mod sessions;
mod told;
mod watches;
mod writes;

pub(crate) use crate::checks::reads::decode_names;
pub(crate) use crate::checks::rest::{TTL_NAMES, check_tidy};

use crate::checks::history::History;
use crate::checks::locks::Locks;
use crate::checks::sessions::Sessions;
use crate::checks::told::Told;
use crate::checks::watches::{Armed, Reload};
use crate::checks::writes::Writes;
use crate::model::Model;
use crate::world::Start;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use zkshim::keeper::acl::Identity;
use zkshim::keeper::request::{
    Body, Connected, ConnectionId, Event, Operation, Reply, SessionId, Xid,
};
use zkshim::keeper::txn::RevisionChanges;
use zkshim::keeper::zxid::{Revision, Zxid};

/// A request on its way, as its client remembers it.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) xid: Xid,
    pub(crate) operation: Operation,
    /// etcd's revision when it was sent.
    pub(crate) revision: Revision,
    /// What its client had been told of by then: its shim knows no less.
    pub(crate) told: Revision,
    /// Who the client is to the shim by then.
    pub(crate) identities: Arc<[Identity]>,
}

/// What a reply answers.
#[derive(Debug)]
pub(crate) enum Answered {
    Ping,
    Auth,
    Request(Sent),
}

/// The number of auth packets (`ClientCnxn.AUTHPACKET_XID`).
pub(crate) const AUTH_XID: Xid = Xid(-4);

/// What the checks remember of a connection.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    session: SessionId,
    client: usize,
    waiting: VecDeque<Sent>,
    pings: usize,
    auths: usize,
    armed: Armed,
    /// A reply has come; before that nothing is watched.
    begun: bool,
    /// etcd's revision when its handshake was sent.
    came_at: Revision,
    /// Changes of children up to here may be unknown to the shim.
    uncertain: Revision,
}

impl Seen {
    fn begin(&mut self, at: Revision) {
        if !self.begun {
            self.armed.begin(at);
            self.begun = true;
        }
    }
}

/// All checks of a run.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    pub(crate) model: Model,
    history: History,
    pub(crate) sessions: Sessions,
    pub(crate) told: Told,
    writes: Writes,
    pub(crate) locks: Locks,
    connections: BTreeMap<ConnectionId, Seen>,
    /// The highest zxid that a client was told in a reply.
    zxids: BTreeMap<usize, Zxid>,
    /// How far the fastest wall clock has ever been ahead.
    clock_ahead_ms: i64,
    pub(crate) replies: u64,
    pub(crate) events: u64,
}

impl Checks {
    /// A shim's wall clock is so far ahead of the world's.
    pub(crate) fn clock_is_ahead(&mut self, skew_ms: i64) {
        self.clock_ahead_ms = self.clock_ahead_ms.max(skew_ms);
    }

    /// etcd has a new revision.
    pub(crate) fn revision(
        &mut self,
        changes: &RevisionChanges,
        now: Duration,
        unix_ms: i64,
    ) -> Result<(), String> {
        let told = self.model.add(changes, now);
        self.history.check(&self.model, changes, &told)?;
        rest::check_expired(&self.model, changes.revision, unix_ms + self.clock_ahead_ms)?;
        self.writes.revision(changes, &self.sessions)?;
        self.sessions.revision(changes, now, &self.told)
    }

    /// A client has a connection; its handshake is sent.
    pub(crate) fn opened(&mut self, connection: ConnectionId, client: usize, uncertain: Revision) {
        let came_at = self.model.last();
        let seen = Seen { client, uncertain, came_at, ..Seen::default() };
        self.connections.insert(connection, seen);
    }

    /// A client starts afresh: what it saw before counts no more.
    pub(crate) fn afresh(&mut self, client: usize) {
        self.zxids.remove(&client);
    }

    /// A shim takes a snapshot instead of the history.
    pub(crate) fn reloaded(
        &mut self,
        connections: &[ConnectionId],
        (from, to): (Revision, Revision),
        uncertain: Revision,
    ) {
        for connection in connections {
            if let Some(seen) = self.connections.get_mut(connection) {
                seen.armed.reloads.push_back(Reload { from, to });
                seen.uncertain = seen.uncertain.max(uncertain);
            }
        }
    }

    /// A client sends a request.
    pub(crate) fn sent(&mut self, connection: ConnectionId, sent: Sent) {
        let Some(seen) = self.connections.get_mut(&connection) else { return };
        if sent.operation == Operation::Ping {
            seen.pings += 1;
            return;
        }
        if let Operation::Auth(_) = sent.operation {
            seen.auths += 1;
            return;
        }
        self.writes.sent(seen.session, connection, &sent);
        if sent.operation == Operation::CloseSession {
            self.sessions.closed_by_client(seen.session);
        }
        seen.waiting.push_back(sent);
    }

    /// A shim whose tree is at a revision reads who a connection is.
    pub(crate) fn identified(
        &mut self,
        connection: ConnectionId,
        at: Revision,
        identities: Arc<[Identity]>,
    ) {
        if let Some(seen) = self.connections.get_mut(&connection) {
            seen.armed.identified(at, identities);
        }
    }

    /// A shim answers a handshake; `asked` is the session that was asked for.
    pub(crate) fn connected(
        &mut self,
        connection: ConnectionId,
        asked: SessionId,
        answer: &Connected,
        (start, now, in_touch): (Start, Duration, bool),
    ) -> Result<(), String> {
        let at = self.model.last();
        match answer {
            Connected::Refused => {
                // What the tree was when the client came, or since.
                let came = self.connections.get(&connection).map_or(at, |seen| seen.came_at);
                let mut since = (came.0..=at.0).map(Revision);
                let gone = since.any(|at| self.model.session(asked, at).is_none());
                if asked == SessionId(0) || !gone {
                    return Err(format!("session {asked:?} was refused, but it is there"));
                }
                self.sessions.refused(asked, now)
            }
            Connected::Accepted { timeout_ms, session, .. } => {
                let Some(seen) = self.connections.get_mut(&connection) else { return Ok(()) };
                seen.session = *session;
                if asked != SessionId(0) && asked != *session {
                    return Err(format!("{asked:?} was asked for, {session:?} given"));
                }
                let timeout = Duration::from_millis((*timeout_ms).unsigned_abs().into());
                let when = (start, now, in_touch);
                self.sessions.accepted(*session, connection, timeout, when, &self.told)?;
                self.locks.lenient = self.sessions.revived;
                let there = self.model.session(*session, at).is_some();
                if there {
                    self.sessions.has_key(*session);
                }
                if !there && self.sessions.is_written(*session) {
                    // Its shim stood still for so long that it does not know yet.
                    self.sessions.ended(*session, now);
                }
                Ok(())
            }
        }
    }

    /// A client gets an event.
    pub(crate) fn event(&mut self, connection: ConnectionId, event: &Event) -> Result<(), String> {
        self.events += 1;
        let seen = self.connections.get_mut(&connection).ok_or("event on no connection")?;
        seen.armed.event(&self.model, event)
    }

    /// A client gets a reply. Returns what it answers.
    pub(crate) fn reply(
        &mut self,
        connection: ConnectionId,
        reply: &Reply,
        now: Duration,
    ) -> Result<Answered, String> {
        self.replies += 1;
        let seen = self.connections.get_mut(&connection).ok_or("reply on no connection")?;
        if reply.xid == AUTH_XID {
            // Outside of the order, with no zxid.
            seen.auths = seen.auths.checked_sub(1).ok_or("reply to no auth packet")?;
            let right = reply.zxid == Zxid(0) && reply.outcome == Ok(Body::Empty);
            return right.then_some(Answered::Auth).ok_or(format!("auth got {reply:?}"));
        }
        let told = self.zxids.entry(seen.client).or_default();
        if reply.zxid < *told {
            return Err(format!("zxid {} after {told} was seen", reply.zxid));
        }
        if reply.zxid > Zxid(self.model.last().0) {
            return Err(format!("zxid {} is not in the history", reply.zxid));
        }
        let before = *told;
        // Clients take no zxid from the reply to a ping (`ClientCnxn.SendThread.readResponse`).
        if reply.xid == Xid::PING {
            seen.pings = seen.pings.checked_sub(1).ok_or("reply to no ping")?;
            seen.begin(Revision(reply.zxid.0));
            seen.armed.reply(&self.model, reply.zxid)?;
            return Ok(Answered::Ping);
        }
        *told = reply.zxid;
        let sent = seen.waiting.pop_front().ok_or("reply to no request")?;
        if sent.xid != reply.xid {
            return Err(format!("reply {:?} came, {:?} is next", reply.xid, sent.xid));
        }
        seen.begin(Revision(reply.zxid.0));
        seen.armed.reply(&self.model, reply.zxid)?;
        if sent.operation == Operation::CloseSession
            && let Some(start) = self.sessions.closed(seen.session, now)
        {
            self.told.ended(start, seen.session, now);
        }
        replies::check(&self.model, seen, &sent, reply, before)?;
        self.writes.answered(seen.session, &sent, reply)?;
        Ok(Answered::Request(sent))
    }

    /// Once nothing moves any more.
    pub(crate) fn at_rest(&self, alive: &[Start]) -> Result<(), String> {
        rest::check(&self.model, &self.told, alive)
    }
}
