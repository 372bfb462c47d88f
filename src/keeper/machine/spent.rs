//! Sessions of which nobody writes the first key.
//!
//! A shim that refuses a session by its age cannot know whether another one is just writing its
//! key: a txn can be on its way for long. So it first says in etcd that there will be no key, and
//! each first key is guarded by the absence of that word. A shim that has believed a password says
//! so together with the key that it writes: whatever the session's own shim still has on its way
//! must not come to be when the session has lived and ended elsewhere. A server of one's own says
//! it to itself: when it starts again, by a clock that is late, it knows nothing else of the end.

use crate::keeper::machine::{Internal, Keeper};
use crate::keeper::planner::session::FirstKey;
use crate::keeper::request::{Connect, ConnectionId, SessionId};
use crate::keeper::sessions::KeyState;
use std::time::Duration;

/// How much longer than the longest session this is remembered: a txn that is on its way for
/// longer rests on the lease of a shim (60 s) that can neither renew it nor fence the txn off.
const REMEMBERED_FOR: Duration = Duration::from_secs(120);

/// Sessions that wait to be refused at most; who comes beyond that is cut off and comes again.
const WAITING_MAX: usize = 1 << 16;

/// Who else may write a first key: see [`FirstKey`].
pub(super) fn first_key(key: KeyState, told: bool) -> FirstKey {
    match key {
        _ if told => FirstKey::Own,
        KeyState::Written => FirstKey::Only,
        KeyState::Unwritten | KeyState::UnderWay => FirstKey::Foreign,
    }
}

impl Keeper {
    /// A client's session is not there. If its password is good, that is said only once nobody
    /// can write its key any more.
    pub(super) fn refuse_unknown(&mut self, connection: ConnectionId, connect: Connect) {
        let session = connect.session;
        let may_come = self.proof(session, &connect.password).is_some()
            && !self.replica.spent.contains_key(&session)
            && !self.replica.sessions.contains_key(&session);
        if !may_come {
            self.refuse(connection);
            return;
        }
        if self.spending.len() >= WAITING_MAX && !self.spending.contains_key(&session) {
            self.close(connection);
            return;
        }
        let waiting = self.spending.entry(session).or_default();
        if waiting.is_empty() {
            self.internal.push_back(Internal::Spend(session));
        }
        waiting.push((connection, connect));
    }

    /// Those who wait to be refused are looked at again: the session has a key now, or it could
    /// not be said that it gets none.
    pub(super) fn ask_again(&mut self, session: SessionId) {
        for (connection, connect) in self.spending.remove(&session).unwrap_or_default() {
            self.connect_again(connection, connect);
        }
    }

    /// It was said that sessions get no key from now on; they may have one.
    pub(super) fn spent_changed(&mut self, sessions: &[SessionId]) {
        let due = self.now.monotonic + self.options.session_timeout_max + REMEMBERED_FOR;
        for session in sessions {
            let session = *session;
            self.spent.push_back((due, session));
            if self.replica.sessions.contains_key(&session) {
                continue;
            }
            self.has_ended(session);
            for (connection, _) in self.spending.remove(&session).unwrap_or_default() {
                self.refuse(connection);
            }
            let unwritten = |key| key != KeyState::Written;
            if self.locals.peek(session).is_some_and(|local| unwritten(local.key))
                && let Some(local) = self.drop_local(session)
            {
                self.leases.forget(local.lease);
            }
        }
    }

    /// Each shim forgets after a while; the first one does it for all.
    pub(super) fn spent_due(&mut self) {
        while let Some((due, session)) = self.spent.front().copied()
            && due <= self.now.monotonic
        {
            self.spent.pop_front();
            self.internal.push_back(Internal::Forget(session));
        }
    }

    /// When [`Self::spent_due`] should be asked next.
    pub(super) fn next_spent(&self) -> Option<Duration> {
        self.spent.front().map(|(due, _)| *due)
    }
}
