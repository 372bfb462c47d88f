//! What each start of a shim was told of ended sessions, and whose lease is whose: the facts that
//! decide what a shim may not know.

use crate::world::Start;
use std::collections::BTreeMap;
use std::time::Duration;
use zkshim::keeper::keyspace::{Slot, own};
use zkshim::keeper::request::SessionId;
use zkshim::keeper::txn::{Change, Deletion, KeyValue, LeaseId, RevisionChanges, StoreEvent};
use zkshim::keeper::zxid::Revision;

/// What a shim was told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// And when.
    ends: BTreeMap<SessionId, Duration>,
    /// Its last snapshot, and when that was.
    loaded: (Revision, Duration),
    /// Of deletions up to here it was told only some, or none.
    forgotten: Revision,
}

/// The end of a session, as the history has it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    /// Its key went.
    Key(Revision),
    /// It had no key; this is the first word of it.
    Word(Revision),
    /// It had no key, and no word of it is in the history; its client was told of it then.
    Unsaid(Duration),
}

/// See the file's text.
#[derive(Debug, Default)]
pub(crate) struct Told {
    known: BTreeMap<Start, Known>,
    leases: BTreeMap<LeaseId, Start>,
    /// There is one shim, which tells nobody.
    pub(crate) sole: bool,
    /// What ended is remembered for so long.
    pub(crate) remembered: Duration,
}

impl Told {
    /// etcd has granted a shim a lease.
    pub(crate) fn granted(&mut self, start: Start, lease: LeaseId) {
        self.leases.insert(lease, start);
    }

    /// Who asked for a lease.
    pub(crate) fn holder(&self, lease: LeaseId) -> Option<Start> {
        self.leases.get(&lease).copied()
    }

    /// Who has made a revision: it has its batch's number there, on its lease.
    pub(crate) fn writer(&self, changes: &RevisionChanges) -> Option<Start> {
        changes.changes.iter().find_map(|change| match change {
            Change::Put(entry) if matches!(Slot::parse(&entry.key), Some(Slot::Batch(_))) => {
                self.holder(entry.lease)
            }
            _ => None,
        })
    }

    /// A shim has itself ended a session.
    pub(crate) fn ended(&mut self, start: Start, session: SessionId, now: Duration) {
        self.known.entry(start).or_default().ends.insert(session, now);
    }

    /// A shim is handed something from its store.
    pub(crate) fn event(&mut self, start: Start, event: &StoreEvent, now: Duration) {
        let known = self.known.entry(start).or_default();
        match event {
            StoreEvent::Loaded(snapshot) => {
                known.loaded = (snapshot.revision, now);
                known.forgotten = snapshot.deletions_since;
                known.deleted(&snapshot.deletions, now);
                snapshot.entries.iter().for_each(|entry| known.put(entry, now));
            }
            StoreEvent::Deleted(past) => {
                known.forgotten = past.since;
                known.deleted(&past.deletions, now);
            }
            StoreEvent::Changed(changes) => {
                for change in &changes.changes {
                    match change {
                        Change::Put(entry) => known.put(entry, now),
                        Change::Delete(key) => known.gone(key, now),
                    }
                }
            }
            _ => {}
        }
    }

    /// Whether a shim cannot know how a session ended: nothing that it was told says so, and the
    /// end is older than its snapshot, in which the history of then is not.
    pub(crate) fn cannot_know(&self, start: Start, session: SessionId, end: End) -> bool {
        let Some(known) = self.known.get(&start) else { return false };
        let (loaded, loaded_at) = known.loaded;
        let missed = match end {
            End::Key(gone) => gone <= known.forgotten,
            // Another word has taken its place since, or its shim has died.
            End::Word(said) => said <= loaded,
            End::Unsaid(closed_at) => self.sole && closed_at < loaded_at,
        };
        missed && !known.ends.contains_key(&session)
    }

    /// Whether a shim was told of a session's end so long ago that it remembers it no more.
    pub(crate) fn has_forgotten(&self, start: Start, session: SessionId, now: Duration) -> bool {
        let told_at = self.known.get(&start).and_then(|known| known.ends.get(&session));
        told_at.is_some_and(|told_at| now > *told_at + self.remembered)
    }
}

impl Known {
    fn put(&mut self, entry: &KeyValue, now: Duration) {
        match Slot::parse(&entry.key) {
            Some(Slot::Ended(_)) => {
                let sessions = own::decode_ended(entry.value.clone()).unwrap_or_default();
                self.ends.extend(sessions.into_iter().map(|session| (session, now)));
            }
            // It lives, whatever was before.
            Some(Slot::Session(session)) => drop(self.ends.remove(&session)),
            _ => {}
        }
    }

    fn gone(&mut self, key: &[u8], now: Duration) {
        if let Some(Slot::Session(session)) = Slot::parse(key) {
            self.ends.insert(session, now);
        }
    }

    fn deleted(&mut self, deletions: &[Deletion], now: Duration) {
        deletions.iter().for_each(|deletion| self.gone(&deletion.key, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zkshim::keeper::keyspace::ShimId;
    use zkshim::keeper::txn::Snapshot;

    const START: Start = Start { shim: 0, number: 2 };
    const SESSION: SessionId = SessionId(7);

    fn key(slot: Slot, value: bytes::Bytes) -> KeyValue {
        let (at, lease) = (Revision(5), LeaseId(1));
        KeyValue { key: slot.key(), value, create_revision: at, mod_revision: at, lease }
    }

    fn loaded(entries: Vec<KeyValue>, deletions: Vec<Deletion>, since: i64) -> Told {
        let mut told = Told::default();
        let snapshot = Snapshot {
            revision: Revision(9),
            entries,
            deletions,
            deletions_since: Revision(since),
            cluster: 0,
            is_another_history: false,
        };
        told.event(START, &StoreEvent::Loaded(snapshot), Duration::from_secs(9));
        told
    }

    #[test]
    fn an_end_is_unknown_only_where_nothing_tells_of_it() {
        let unknown = |told: &Told, end| told.cannot_know(START, SESSION, end);
        let nothing = loaded(Vec::new(), Vec::new(), 4);
        assert!(unknown(&nothing, End::Key(Revision(4))));
        assert!(!unknown(&nothing, End::Key(Revision(5))), "the history from then was there");
        assert!(unknown(&nothing, End::Word(Revision(9))));
        assert!(!unknown(&nothing, End::Word(Revision(10))), "it came in the stream");
        assert!(!unknown(&nothing, End::Unsaid(Duration::ZERO)), "others are told");
        let alone = Told { sole: true, ..loaded(Vec::new(), Vec::new(), 4) };
        assert!(unknown(&alone, End::Unsaid(Duration::ZERO)));
        assert!(!unknown(&alone, End::Unsaid(Duration::from_secs(9))), "it did it itself");
        let word = own::encode_ended(&[SESSION]);
        let word = key(Slot::Ended(ShimId(3)), word);
        assert!(!unknown(&loaded(vec![word], Vec::new(), 4), End::Word(Revision(5))));
        let gone = Deletion { key: Slot::Session(SESSION).key(), revision: Revision(5) };
        assert!(!unknown(&loaded(Vec::new(), vec![gone], 4), End::Key(Revision(4))));
    }

    #[test]
    fn a_session_that_was_written_again_has_not_ended() {
        let mut told = loaded(Vec::new(), Vec::new(), 4);
        let at = Duration::from_secs;
        told.remembered = at(40);
        told.ended(START, SESSION, at(10));
        assert!(!told.cannot_know(START, SESSION, End::Key(Revision(4))));
        assert!(!told.has_forgotten(START, SESSION, at(50)));
        assert!(told.has_forgotten(START, SESSION, at(51)));
        let changes = vec![Change::Put(key(Slot::Session(SESSION), bytes::Bytes::new()))];
        let changes = RevisionChanges { revision: Revision(10), changes };
        told.event(START, &StoreEvent::Changed(changes), Duration::from_secs(10));
        assert!(told.cannot_know(START, SESSION, End::Key(Revision(4))));
    }
}
