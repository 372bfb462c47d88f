//! No session ends while its client speaks, and none lives on for long once it is silent.

use crate::checks::told::{End, Told};
use crate::world::Start;
use std::collections::BTreeMap;
use std::time::Duration;
use zkshim::keeper::keyspace::{NodeValue, Slot, own};
use zkshim::keeper::request::{ConnectionId, SessionId};
use zkshim::keeper::tree::record::Kind;
use zkshim::keeper::txn::{Change, KeyValue, LeaseId, RevisionChanges};
use zkshim::keeper::zxid::Revision;

/// What went wrong so long ago has no effect any more.
const QUIET: Duration = Duration::from_secs(10);

/// The key of a session is written before its client is told, or a little later.
const SETTLED: Duration = Duration::from_secs(5);

/// A shim tells the others so soon of a session that has ended without a key.
const WORD_WITHIN: Duration = Duration::from_secs(1);

/// Passwords tell when a session was opened by steps of this length.
const GRAIN: Duration = Duration::from_millis(100);

/// For so long a shim confirms such an end without knowing that it has lost etcd.
const LOST_UNNOTICED: Duration = Duration::from_millis(500);

#[derive(Debug)]
struct Life {
    connection: ConnectionId,
    opened_at: Duration,
    /// Which shim served it last, and since when.
    served_by: Start,
    served_since: Duration,
    /// When its key was written last.
    put_at: Duration,
    /// When its client came to a shim with it, and on which connection it came last.
    brought_at: Duration,
    brought_on: ConnectionId,
    timeout: Duration,
    /// What its password says of its timeout.
    promised: Duration,
    /// When a shim that was in touch with etcd last heard its client.
    heard_at: Duration,
    /// When any shim last heard its client.
    touched_at: Duration,
    /// Its client was silent for so long that its end may have begun.
    doomed: bool,
    closed_by_client: bool,
    ended_at: Option<Duration>,
    /// When its key went.
    key_gone: Option<Revision>,
    /// When other shims were told of its end, which had no key to go.
    said: Option<Revision>,
    /// Its client was told that it is closed.
    closed_at: Option<Duration>,
    /// Word of its end may be lost: something went wrong just then.
    end_may_be_lost: bool,
    /// It had never had a key then.
    closed_unwritten: bool,
    /// Its key has been in etcd.
    written: bool,
    /// Its client was told that it is no more.
    refused: bool,
}

impl Life {
    fn new(connection: ConnectionId, timeout: Duration, start: Start, now: Duration) -> Self {
        Self {
            connection,
            opened_at: now,
            served_by: start,
            served_since: now,
            put_at: now,
            brought_at: now,
            brought_on: connection,
            timeout,
            promised: timeout,
            heard_at: now,
            touched_at: now,
            doomed: false,
            closed_by_client: false,
            ended_at: None,
            key_gone: None,
            said: None,
            closed_at: None,
            end_may_be_lost: false,
            closed_unwritten: false,
            written: false,
            refused: false,
        }
    }

    /// Its client closed it, and came again with it before it could have expired. Nobody keeps
    /// that from a shim which cannot know of the end: the password says that it may live.
    fn was_closed_young(&self, skew: Duration) -> bool {
        self.closed_by_client && self.brought_at < self.opened_at + self.promised + skew + GRAIN
    }

    /// How the history tells of its end.
    fn end(&self) -> Option<End> {
        let unsaid = || self.closed_at.filter(|_| self.closed_unwritten).map(End::Unsaid);
        self.key_gone.map(End::Key).or(self.said.map(End::Word)).or_else(unsaid)
    }

    /// It was believed again, and is as if it were new, but for its password.
    fn begin_again(&mut self) {
        (self.ended_at, self.key_gone, self.said) = (None, None, None);
        (self.closed_by_client, self.closed_at) = (false, None);
    }
}

/// See the file's text.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    lives: BTreeMap<SessionId, Life>,
    /// What a session may live longer than its timeout if nothing goes wrong.
    pub(crate) late_max: Duration,
    /// When something last went wrong for a shim, or for all.
    disturbed: BTreeMap<Option<Start>, Duration>,
    /// How far two shims' wall clocks may be apart: a session without a key is judged by them.
    pub(crate) skew: Duration,
    /// Where clocks are further apart, sessions are believed or refused without reason.
    pub(crate) clocks_agree: bool,
    /// A session was believed again whose end its shim could not know.
    pub(crate) revived: bool,
    pub(crate) expired: u64,
    pub(crate) opened: u64,
}

impl Sessions {
    /// A shim answers that a session is there; `in_touch` with etcd, or by what it knew before.
    pub(crate) fn accepted(
        &mut self,
        session: SessionId,
        connection: ConnectionId,
        timeout: Duration,
        (start, now, in_touch): (Start, Duration, bool),
        told: &Told,
    ) -> Result<(), String> {
        let opened = &mut self.opened;
        let known = self.lives.entry(session).or_insert_with(|| {
            *opened += 1;
            Life::new(connection, timeout, start, now)
        });
        if connection < known.brought_on {
            // Its client has gone elsewhere since, and does not hear of it.
            return Ok(());
        }
        if known.refused {
            return Err(format!("session {session:?} lives on after it was refused"));
        }
        if known.ended_at.is_some_and(|ended_at| ended_at < known.brought_at) {
            // By its clock the session is young, and the history that tells of its end is gone.
            let end = known.key_gone.map(End::Key);
            let unknown = end.is_some_and(|end| told.cannot_know(start, session, end));
            let closed = known.was_closed_young(self.skew);
            if !unknown || (self.clocks_agree && !closed) {
                return Err(format!("session {session:?} is given to a client after its end"));
            }
            // Who has closed it believes in no lock.
            self.revived |= !closed;
            known.begin_again();
        }
        if known.closed_at.is_some() && !known.end_may_be_lost {
            let cannot_know = |end| told.cannot_know(start, session, end);
            if !known.was_closed_young(self.skew) || !known.end().is_some_and(cannot_know) {
                return Err(format!("session {session:?} lives on after it was closed: {known:?}"));
            }
            known.begin_again();
        }
        if let Some(due) = late(&self.disturbed, self.late_max, known)
            && self.clocks_agree
            && now > due + self.skew
        {
            return Err(format!("session {session:?} lives on long after {due:?}: {known:?}"));
        }
        (known.served_by, known.served_since) = (start, now);
        known.connection = connection;
        known.timeout = timeout;
        known.touched_at = now;
        if in_touch {
            known.doomed = false;
            known.heard_at = now;
        }
        Ok(())
    }

    /// A shim says that a session is no more. Of one without a key shims know only when it was
    /// opened.
    pub(crate) fn refused(&mut self, session: SessionId, now: Duration) -> Result<(), String> {
        let Some(life) = self.lives.get_mut(&session) else { return Ok(()) };
        life.refused = true;
        let lived = life.opened_at + life.timeout;
        if self.clocks_agree && !life.written && !life.closed_by_client && now + self.skew < lived {
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

    /// A client that comes back asks for its session.
    pub(crate) fn touched(&mut self, session: SessionId, on: ConnectionId, now: Duration) {
        if let Some(life) = self.lives.get_mut(&session) {
            life.brought_on = life.brought_on.max(on);
            life.doomed |= now >= life.touched_at + life.timeout;
            (life.touched_at, life.brought_at) = (now, now);
        }
    }

    /// Something went wrong for a shim, or was mended; for all of them, if none is named.
    pub(crate) fn disturbed(&mut self, start: Option<Start>, now: Duration) {
        self.disturbed.insert(start, now);
        for life in self.lives.values_mut().filter(|life| !life.written) {
            let there = start.is_none_or(|start| start == life.served_by);
            let just_then = life.closed_at.is_none_or(|closed_at| now < closed_at + WORD_WITHIN);
            life.end_may_be_lost |= there && life.closed_at.is_some() && just_then;
        }
    }

    /// Its client is told that it is closed. Says by whom.
    pub(crate) fn closed(&mut self, session: SessionId, now: Duration) -> Option<Start> {
        let disturbed = &self.disturbed;
        let of = |who| disturbed.get(&who).copied().unwrap_or_default();
        let life = self.lives.get_mut(&session)?;
        let last = of(None).max(of(Some(life.served_by)));
        life.end_may_be_lost = !life.written && now < last + LOST_UNNOTICED;
        life.closed_unwritten = !life.written;
        life.closed_at = Some(now);
        Some(life.served_by)
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
        if life.ended_at.is_some() || life.refused {
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
        told: &Told,
    ) -> Result<(), String> {
        for change in &changes.changes {
            let key = match change {
                Change::Put(entry) => &entry.key,
                Change::Delete(key) => key,
            };
            let session = match (Slot::parse(key), change) {
                (Some(Slot::Session(session)), _) => session,
                (Some(Slot::Node(path)), Change::Put(entry)) => {
                    self.check_alive(&path, entry)?;
                    continue;
                }
                (Some(Slot::Ended(_)), Change::Put(entry)) => {
                    self.said(entry, changes.revision)?;
                    continue;
                }
                _ => continue,
            };
            if let Change::Put(entry) = change {
                self.key_put(session, entry.lease, changes, now, told)?;
                continue;
            }
            let Some(life) = self.lives.get_mut(&session) else { continue };
            if life.ended_at.is_some() {
                continue;
            }
            life.ended_at = Some(now);
            life.key_gone = Some(changes.revision);
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
            if late(&self.disturbed, self.late_max, life).is_some_and(|due| now > due) {
                return Err(format!(
                    "session {session:?} expired late, at {now:?}: touched at {:?}, timeout {:?}",
                    life.touched_at, life.timeout
                ));
            }
        }
        Ok(())
    }

    /// A session's key is written, for the first time or again.
    fn key_put(
        &mut self,
        session: SessionId,
        lease: LeaseId,
        changes: &RevisionChanges,
        now: Duration,
        told: &Told,
    ) -> Result<(), String> {
        let Some(life) = self.lives.get_mut(&session) else { return Ok(()) };
        let writer = told.writer(changes);
        if life.refused || (self.clocks_agree && life.ended_at.is_some()) {
            let unknown = writer
                .zip(life.end())
                .is_some_and(|(start, end)| !life.refused && told.cannot_know(start, session, end));
            if !unknown || !life.was_closed_young(self.skew) {
                return Err(format!("the key of session {session:?} comes after its end"));
            }
            life.begin_again();
        }
        let forgot = |start| told.has_forgotten(start, session, now);
        if !self.clocks_agree && life.ended_at.is_some() && writer.is_some_and(forgot) {
            // Once it is told of this key, nothing shows any more that it was told of the end.
            self.revived |= !life.was_closed_young(self.skew);
            life.begin_again();
        }
        if lease == LeaseId::NONE {
            return Err(format!("session {session:?} is on no lease"));
        }
        life.written = true;
        life.put_at = now;
        Ok(())
    }

    /// Other shims are told of ends.
    fn said(&mut self, entry: &KeyValue, at: Revision) -> Result<(), String> {
        for session in own::decode_ended(entry.value.clone()).ok_or("unreadable e")? {
            if let Some(life) = self.lives.get_mut(&session) {
                life.said.get_or_insert(at);
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

/// When a session must have ended whose client has been silent since it was last heard: at its
/// moment if all is well with its shim, else by its lease. `None` if another shim may have it.
fn late(
    disturbed: &BTreeMap<Option<Start>, Duration>,
    late_max: Duration,
    life: &Life,
) -> Option<Duration> {
    if life.put_at > life.served_since + SETTLED || life.brought_at > life.served_since {
        return None;
    }
    let of = |who| disturbed.get(&who).copied().unwrap_or_default();
    let last = of(None).max(of(Some(life.served_by)));
    let heard = life.touched_at.max(life.put_at);
    if last + QUIET <= heard {
        return Some(heard + life.timeout + late_max);
    }
    // Twice the timeout and four seconds: no lease is longer. What was under way may renew it.
    Some(last.max(heard) + 2 * life.timeout + Duration::from_secs(4) + QUIET + late_max)
}

#[cfg(test)]
mod tests;
