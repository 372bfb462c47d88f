//! No session ends while its client speaks, and none lives on for long once it is silent.

use std::collections::BTreeMap;
use std::time::Duration;
use zkshim::keeper::keyspace::Slot;
use zkshim::keeper::request::{ConnectionId, SessionId};
use zkshim::keeper::txn::{Change, RevisionChanges};

#[derive(Debug)]
struct Life {
    connection: ConnectionId,
    timeout: Duration,
    /// When a shim that was in touch with etcd last heard its client.
    heard_at: Duration,
    /// When any shim last heard its client.
    touched_at: Duration,
    /// Its client was silent for so long that its end may have begun.
    doomed: bool,
    closed_by_client: bool,
    ended_at: Option<Duration>,
}

/// See the file's text.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    lives: BTreeMap<SessionId, Life>,
    /// What a session may live longer than its timeout, in a run without faults.
    pub(crate) late_max: Option<Duration>,
    pub(crate) expired: u64,
    pub(crate) opened: u64,
}

impl Sessions {
    /// A shim answers that a session is there.
    pub(crate) fn accepted(
        &mut self,
        session: SessionId,
        connection: ConnectionId,
        timeout: Duration,
        now: Duration,
    ) {
        let opened = &mut self.opened;
        let known = self.lives.entry(session).or_insert_with(|| {
            *opened += 1;
            Life {
                connection,
                timeout,
                heard_at: now,
                touched_at: now,
                doomed: false,
                closed_by_client: false,
                ended_at: None,
            }
        });
        if connection < known.connection {
            // Its client has gone elsewhere since.
            return;
        }
        known.connection = connection;
        known.timeout = timeout;
        known.doomed = false;
        known.heard_at = now;
        known.touched_at = now;
    }

    /// A shim is handed a client's request; `steady` says that it has been in touch with etcd.
    pub(crate) fn heard(
        &mut self,
        session: SessionId,
        connection: ConnectionId,
        now: Duration,
        steady: bool,
    ) {
        let Some(life) = self.lives.get_mut(&session) else { return };
        life.doomed |= now >= life.touched_at + life.timeout;
        life.touched_at = now;
        if steady && !life.doomed && life.connection == connection {
            life.heard_at = now;
        }
    }

    pub(crate) fn ended(&mut self, session: SessionId, now: Duration) {
        if let Some(life) = self.lives.get_mut(&session) {
            life.ended_at.get_or_insert(now);
        }
    }

    pub(crate) fn closed_by_client(&mut self, session: SessionId) {
        if let Some(life) = self.lives.get_mut(&session) {
            life.closed_by_client = true;
        }
    }

    pub(crate) fn timeout(&self, session: SessionId) -> Duration {
        self.lives.get(&session).map_or(Duration::ZERO, |life| life.timeout)
    }

    /// The connection on which the session is served now, if it is a later one.
    pub(crate) fn later_connection(
        &self,
        session: SessionId,
        connection: ConnectionId,
    ) -> Option<ConnectionId> {
        let life = self.lives.get(&session)?;
        (life.connection > connection).then_some(life.connection)
    }

    pub(crate) fn revision(
        &mut self,
        changes: &RevisionChanges,
        now: Duration,
    ) -> Result<(), String> {
        for change in &changes.changes {
            let Change::Delete(key) = change else { continue };
            let Some(Slot::Session(session)) = Slot::parse(key) else { continue };
            let Some(life) = self.lives.get_mut(&session) else { continue };
            life.ended_at = Some(now);
            if life.closed_by_client {
                continue;
            }
            self.expired += 1;
            // A clock may be a little fast.
            if now + life.timeout / 500 < life.heard_at + life.timeout {
                return Err(format!(
                    "session {session:?} expired at {now:?}: heard at {:?}, timeout {:?}",
                    life.heard_at, life.timeout
                ));
            }
            if let Some(late_max) = self.late_max
                && now > life.touched_at + life.timeout + late_max
            {
                return Err(format!(
                    "session {session:?} expired late, at {now:?}: touched at {:?}, timeout {:?}",
                    life.touched_at, life.timeout
                ));
            }
        }
        Ok(())
    }

    /// Sessions that should have ended by now: whose clients have been silent for `long`.
    pub(crate) fn overdue(&self, now: Duration, long: Duration) -> Vec<SessionId> {
        self.lives
            .iter()
            .filter(|(_, life)| life.ended_at.is_none() && life.touched_at + long < now)
            .map(|(session, _)| *session)
            .collect()
    }
}
