//! Sessions that their clients know before etcd does.
//!
//! Most short sessions read a little and close. Such a one costs etcd nothing: its client is told
//! of it at once, with a password that proves it, and its key is written when it first writes, or
//! after a while. If its shim dies before that, any other believes the password.

use crate::keeper::acl::Identity;
use crate::keeper::keyspace::Slot;
use crate::keeper::machine::timers::NOBODY;
use crate::keeper::machine::{Internal, Keeper, Registration, Waiter};
use crate::keeper::request::{Body, Connect, ConnectionId, Operation, SessionId};
use crate::keeper::sessions::proof::Proof;
use crate::keeper::sessions::{KeyState, Local, Pending, Stay, Work};
use crate::keeper::txn::{Deletion, PastDeletions, Snapshot};
use rand_chacha::rand_core::RngCore;
use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

/// A key is written before this part of the timeout has passed.
const PARTS_OF_A_TIMEOUT: u32 = 4;

/// When a key is tried again for which no lease was granted.
const KEY_AGAIN: Duration = Duration::from_millis(500);

/// When a session that is busy is looked at again.
const BUSY_AGAIN: Duration = Duration::from_millis(50);

/// How long sessions that ended without a key are gathered before other shims are told.
const SAY_AFTER: Duration = Duration::from_millis(100);

/// How long a shim that meets a session without a key waits for word of its end.
const ADOPT_AFTER: Duration = Duration::from_millis(400);

/// How long a shim that was just loaded waits for what etcd's history tells of the time before.
const PAST_KNOWN_WITHIN: Duration = Duration::from_secs(5);

/// An end is told only afterwards if etcd was heard of so lately.
const HEARD_WITHIN: Duration = Duration::from_millis(400);

/// A client is told of its session before the barrier if etcd was heard of so lately. Else it is
/// better off with another shim.
const TOLD_AT_ONCE_WITHIN: Duration = Duration::from_secs(1);

/// Sessions that are told in one put.
const SAID_AT_ONCE: usize = 4096;

/// Sessions that wait to be told at most.
const UNSAID_MAX: usize = 1 << 16;

impl Keeper {
    /// Passwords can prove nothing before there is something to make them from.
    pub(super) fn want_secret(&mut self) {
        if self.replica.secret.is_none() && !self.options.session_key_delay.is_zero() {
            let mut secret = [0; 32];
            self.random.fill_bytes(&mut secret);
            self.internal.push_back(Internal::Secret(secret));
        }
    }

    /// A new session whose client is told before it has a key. A ZooKeeper that opens a session
    /// has applied all that was done before; so what a client asks first waits for a barrier.
    pub(super) fn open_unwritten(&mut self, session: SessionId, connection: ConnectionId) {
        let Some(stay) = self.locals.stay(session) else { return };
        let Some(local) = self.locals.find_stay(stay) else { return };
        local.key = KeyState::Unwritten;
        let delay = self.options.session_key_delay.min(local.timeout() / PARTS_OF_A_TIMEOUT);
        self.unwritten.push(Reverse((self.now.monotonic + delay, session)));
        if self.options.sole {
            self.accept(session, connection);
            return;
        }
        local.blocked = true;
        if self.silence() <= TOLD_AT_ONCE_WITHIN {
            self.accept(session, connection);
            self.barriers.wait(Waiter::Told(stay));
        } else {
            self.barriers.wait(Waiter::Opened(stay, connection));
        }
    }

    /// The barrier has passed of a new session whose client knows it already.
    pub(super) fn told(&mut self, stay: Stay) {
        let Some(local) = self.locals.find_stay(stay) else { return };
        local.blocked = false;
        if local.has_parked() {
            self.write_key(stay.session);
        } else {
            self.proceed(stay.session);
        }
    }

    /// The barrier of a new session has passed.
    pub(super) fn opened(&mut self, stay: Stay, connection: ConnectionId) {
        let open = self.connections.get(&connection).is_some_and(|open| !open.closed);
        let (secret, unix_ms) = (self.replica.secret, self.now.unix_ms);
        let Some(local) = self.locals.find_stay(stay) else { return };
        if open {
            local.blocked = false;
            if let Some(secret) = secret {
                // It lives from when its client is told of it.
                local.set_password(secret.password(stay.session, unix_ms, local.timeout()));
            }
            self.accept(stay.session, connection);
        } else {
            // Nobody knows of it.
            self.locals.remove(stay.session);
        }
    }

    /// A session without a key has a write at the head of its queue. Only its end needs no key,
    /// and only while etcd is there to take word of it, and this shim has a lease for that; else
    /// its client waits for a key and for its deletion, for another shim may be asked for the
    /// session before this one is heard.
    pub(super) fn write_or_end(&mut self, session: SessionId) {
        let can_tell = matches!(self.registration, Registration::Done(_));
        let heard = self.options.sole || (can_tell && self.silence() <= HEARD_WITHIN);
        let Some(local) = self.locals.find(session) else { return };
        let closing = match local.queue.front() {
            Some(Pending { connection, work: Work::Request(xid, operation), .. })
                if heard && *operation == Operation::CloseSession =>
            {
                Some((*connection, *xid))
            }
            _ => None,
        };
        let Some((connection, xid)) = closing else {
            self.write_key(session);
            return;
        };
        local.queue.pop_front();
        self.outstanding -= 1;
        self.ended_unwritten(session);
        self.reply(connection, xid, Ok(Body::Empty));
        self.drop_local(session);
        self.forget_ended();
    }

    /// Nobody need be woken for a session that has ended.
    fn forget_ended(&mut self) {
        while let Some(Reverse((_, session))) = self.unwritten.peek()
            && self.locals.peek(*session).is_none_or(|local| local.key != KeyState::Unwritten)
        {
            self.unwritten.pop();
        }
    }

    /// A session without a key gets one, before anything else is done for it.
    pub(super) fn write_key(&mut self, session: SessionId) {
        let Some(local) = self.locals.find(session) else { return };
        if local.key != KeyState::Unwritten || local.blocked {
            return;
        }
        let (password, timeout) = (local.password(), local.timeout());
        if self.is_too_old(session, &password, timeout) {
            // Another shim may have told its client that it is gone, or is about to. Its client may
            // still be believed when it comes back.
            self.drop_local(session);
            return;
        }
        let Some(local) = self.locals.find(session) else { return };
        local.key = KeyState::UnderWay;
        local.blocked = true;
        let identities: Arc<[Identity]> = Arc::from([]);
        let connection = local.connection.unwrap_or(NOBODY);
        let open = Pending::new(connection, identities, Work::Open { told: true });
        local.queue.push_front(open);
        self.outstanding += 1;
        let timeout = local.timeout();
        self.find_lease(session, timeout);
    }

    /// No lease was granted. A session that its client knows already lives on without its key,
    /// which is written when etcd grants one again, if the session is not too old by then.
    /// Says whether it is such a session.
    pub(super) fn key_waits(&mut self, session: SessionId) -> bool {
        let Some(local) = self.locals.find(session) else { return false };
        if !matches!(local.queue.front(), Some(Pending { work: Work::Open { told: true }, .. })) {
            return false;
        }
        local.queue.pop_front();
        local.key = KeyState::Unwritten;
        local.blocked = false;
        self.outstanding -= 1;
        self.unwritten.push(Reverse((self.now.monotonic + KEY_AGAIN, session)));
        true
    }

    /// Whether other shims may soon refuse a session without a key, by its age alone. What writes
    /// the key takes a while.
    fn is_too_old(&self, session: SessionId, password: &[u8], timeout: Duration) -> bool {
        let while_written = (timeout / PARTS_OF_A_TIMEOUT).as_millis();
        let by_then = self.now.unix_ms + i64::try_from(while_written).unwrap_or(i64::MAX / 2);
        self.proof(session, password).is_some_and(|proof| !proof.is_fresh(by_then))
    }

    /// What a password says, if it was made from the tree's secret.
    pub(super) fn proof(&self, session: SessionId, password: &[u8]) -> Option<Proof> {
        self.replica.secret?.check(session, password)
    }

    /// Whether this shim has a session, or cannot rule out that another has it.
    pub(super) fn may_be_known(&self, connect: &Connect) -> bool {
        self.replica.sessions.contains_key(&connect.session)
            || self.locals.peek(connect.session).is_some()
            || self.may_be_unwritten(connect)
    }

    /// A session that its client knew already has a key now: who came back meanwhile may go on.
    pub(super) fn key_written(&mut self, session: SessionId) {
        let Some(local) = self.locals.find(session) else { return };
        for (connection, connect) in local.has_key() {
            self.connect_again(connection, connect);
        }
    }

    /// A client comes back with a session of this shim that has no key yet.
    pub(super) fn attach_unwritten(&mut self, connection: ConnectionId, connect: Connect) {
        let session = connect.session;
        let Some(local) = self.locals.find(session) else { return };
        local.park(connection, connect);
        self.write_key(session);
    }

    /// Whether a session of which etcd knows nothing may be one that has no key yet.
    pub(super) fn may_be_unwritten(&self, connect: &Connect) -> bool {
        let proof = self.proof(connect.session, &connect.password);
        proof.is_some_and(|proof| proof.is_fresh(self.now.unix_ms))
            && !self.ended.contains(connect.session)
            && !self.replica.spent.contains_key(&connect.session)
            && self.locals.peek(connect.session).is_none()
            && !self.replica.sessions.contains_key(&connect.session)
    }

    /// Its own shim may have ended it a moment ago.
    pub(super) fn wait_to_adopt(&mut self, connection: ConnectionId, connect: Connect) {
        if self.options.sole {
            self.adopt(connection, &connect);
        } else {
            let due = self.now.monotonic + ADOPT_AFTER;
            self.adoptions.push((due, connection, connect));
        }
    }

    /// The time to wait for word of a session's end is over, and a barrier has passed.
    pub(super) fn adopt_after_barrier(&mut self, connection: ConnectionId, connect: Connect) {
        if self.connections.contains_key(&connection) && self.may_be_unwritten(&connect) {
            self.adopt(connection, &connect);
        } else {
            self.connect_again(connection, connect);
        }
    }

    fn adopt(&mut self, connection: ConnectionId, connect: &Connect) {
        let Ok(password) = connect.password[..].try_into() else { return };
        let timeout = self.negotiated(connect);
        let mut local = Local::new(timeout, self.locals.deadline(self.now.monotonic, timeout));
        local.set_password(password);
        // Whoever comes back with it meanwhile waits for the key.
        local.key = KeyState::UnderWay;
        self.begin_opening(connection, connect.session, local);
    }

    /// A session has ended without ever having had a key.
    fn ended_unwritten(&mut self, session: SessionId) {
        self.has_ended(session);
        if !self.options.sole && self.unsaid.len() < UNSAID_MAX {
            self.unsaid.push(session);
            self.say_at.get_or_insert(self.now.monotonic + SAY_AFTER);
        }
    }

    /// A session has ended, here or elsewhere.
    pub(super) fn has_ended(&mut self, session: SessionId) {
        let now = self.now.monotonic;
        self.ended.insert(session, now, now + self.options.session_timeout_max);
    }

    /// Sessions that ended before this shim followed the history, as far as it tells.
    pub(super) fn have_ended(&mut self, deletions: &[Deletion]) {
        for deletion in deletions {
            if let Some(Slot::Session(session)) = Slot::parse(&deletion.key) {
                self.has_ended(session);
            }
        }
    }

    /// After a load etcd's history is read, in which sessions may have ended: nobody is believed
    /// before. It may be too long to be waited for.
    pub(super) fn past_is_to_come(&mut self, snapshot: &Snapshot) {
        let nothing = snapshot.deletions_since >= snapshot.revision;
        let wait = if nothing { PAST_KNOWN_WITHIN } else { Duration::ZERO };
        self.past_known_at = self.now.monotonic + wait;
    }

    /// It has been read, if this is about the last load.
    pub(super) fn past_is_known(&mut self, past: &PastDeletions) {
        if past.until == self.replica.uncertain_until {
            self.past_known_at = self.now.monotonic;
        }
    }

    /// What is due of all this.
    pub(super) fn unwritten_due(&mut self) {
        let now = self.now.monotonic;
        while let Some(Reverse((due, session))) = self.unwritten.peek().copied() {
            if due > now {
                break;
            }
            self.unwritten.pop();
            let local = self.locals.peek(session);
            let Some(local) = local.filter(|local| local.key == KeyState::Unwritten) else {
                continue;
            };
            if local.blocked {
                self.unwritten.push(Reverse((now + BUSY_AGAIN, session)));
            } else {
                self.write_key(session);
            }
        }
        self.forget_ended();
        let adoptions = std::mem::take(&mut self.adoptions);
        for (due, connection, connect) in adoptions {
            if due.max(self.past_known_at) <= now {
                self.barriers.wait(Waiter::Adopt(connection, connect));
            } else {
                self.adoptions.push((due, connection, connect));
            }
        }
        if self.say_at.is_some_and(|at| at <= now) {
            self.say_at = None;
            let unsaid = std::mem::take(&mut self.unsaid);
            for said in unsaid.chunks(SAID_AT_ONCE) {
                self.words.push_back(said.to_vec());
            }
        }
    }

    /// When [`Self::unwritten_due`] should be asked next.
    pub(super) fn next_unwritten(&self) -> Option<Duration> {
        let key = self.unwritten.peek().map(|Reverse((due, _))| *due);
        let adoption = self.adoptions.iter().map(|(due, ..)| *due).min();
        let adoption = adoption.map(|due| due.max(self.past_known_at));
        [key, adoption, self.say_at].into_iter().flatten().min()
    }
}
