//! No session ends while its client speaks, and none lives on for long once it is silent.

use std::collections::BTreeMap;
use std::time::Duration;
use zkshim::keeper::keyspace::{NodeValue, Slot};
use zkshim::keeper::request::{ConnectionId, SessionId};
use zkshim::keeper::tree::record::Kind;
use zkshim::keeper::txn::{Change, KeyValue, RevisionChanges};

/// Where clocks are further apart, a session without a key may be refused at any time.
const SKEW_MAX: Duration = Duration::from_secs(1);

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
    /// Its key has been in etcd.
    written: bool,
    /// Its client was told that it is no more.
    refused: bool,
}

/// See the file's text.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    lives: BTreeMap<SessionId, Life>,
    /// What a session may live longer than its timeout, in a run without faults.
    pub(crate) late_max: Option<Duration>,
    /// How far two shims' wall clocks may be apart: a session without a key is judged by them.
    pub(crate) skew: Duration,
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
    ) -> Result<(), String> {
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
                written: false,
                refused: false,
            }
        });
        if connection < known.connection {
            // Its client has gone elsewhere since.
            return Ok(());
        }
        if known.refused {
            return Err(format!("session {session:?} lives on after it was refused"));
        }
        known.connection = connection;
        known.timeout = timeout;
        known.doomed = false;
        known.heard_at = now;
        known.touched_at = now;
        Ok(())
    }

    /// A shim says that a session is no more.
    pub(crate) fn refused(&mut self, session: SessionId, now: Duration) -> Result<(), String> {
        let Some(life) = self.lives.get_mut(&session) else { return Ok(()) };
        life.refused = true;
        let lived = life.heard_at + life.timeout;
        if !life.written && !life.closed_by_client && now + self.skew < lived {
            return Err(format!("session {session:?} was refused before its time: {life:?}"));
        }
        Ok(())
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

    /// No ephemeral is made for a session of which somebody was told that it is no more.
    fn check_alive(&self, path: &str, entry: &KeyValue) -> Result<(), String> {
        let value = NodeValue::decode(entry.value.clone()).ok_or("unreadable n")?;
        let Kind::Ephemeral(owner) = value.kind else { return Ok(()) };
        let Some(life) = self.lives.get(&owner) else { return Ok(()) };
        if life.ended_at.is_some() || (life.refused && self.skew <= SKEW_MAX) {
            return Err(format!("{path} was written after session {owner:?} ended: {life:?}"));
        }
        Ok(())
    }

    /// Its key is there.
    pub(crate) fn has_key(&mut self, session: SessionId) {
        if let Some(life) = self.lives.get_mut(&session) {
            life.written = true;
        }
    }

    /// Whether its key was ever there.
    pub(crate) fn is_written(&self, session: SessionId) -> bool {
        self.lives.get(&session).is_some_and(|life| life.written)
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
            let (key, put) = match change {
                Change::Put(entry) => (&entry.key, true),
                Change::Delete(key) => (key, false),
            };
            let session = match (Slot::parse(key), change) {
                (Some(Slot::Session(session)), _) => session,
                (Some(Slot::Node(path)), Change::Put(entry)) => {
                    self.check_alive(&path, entry)?;
                    continue;
                }
                _ => continue,
            };
            let Some(life) = self.lives.get_mut(&session) else { continue };
            if put {
                // A first key may come when the session has lived and ended elsewhere: it holds
                // nothing, and goes with its lease.
                life.written = true;
                continue;
            }
            if life.ended_at.is_some() {
                continue;
            }
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
            .filter(|(_, life)| life.written && life.ended_at.is_none())
            .filter(|(_, life)| life.touched_at + long < now)
            .map(|(session, _)| *session)
            .collect()
    }
}
