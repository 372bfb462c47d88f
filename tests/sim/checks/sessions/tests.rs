//! What may be believed again, by what its shim was told.

use super::*;
use zkshim::keeper::keyspace::ShimId;
use zkshim::keeper::txn::{Snapshot, StoreEvent};

const SESSION: SessionId = SessionId(7);
const BEFORE: Start = Start { shim: 0, number: 1 };
const AFTER: Start = Start { shim: 0, number: 2 };
const TIMEOUT: Duration = Duration::from_secs(10);

const fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The only shim of an embedded store begins anew at a time.
fn started(told: &mut Told, start: Start, now: Duration) {
    told.sole = true;
    let nothing = Snapshot {
        revision: Revision(1),
        entries: Vec::new(),
        deletions: Vec::new(),
        deletions_since: Revision(1),
        cluster: 0,
        is_another_history: false,
    };
    told.event(start, &StoreEvent::Loaded(nothing), now);
}

/// A session that a shim opened at 1 s; its client closed it at 2 s if that is wanted, and
/// came to the shim's next start with it.
fn brought_again(closed: bool, now: Duration) -> (Sessions, Told) {
    let mut sessions = Sessions { clocks_agree: true, ..Sessions::default() };
    let mut told = Told::default();
    started(&mut told, BEFORE, at(0));
    let opened = sessions.accepted(SESSION, ConnectionId(1), TIMEOUT, (BEFORE, at(1), true), &told);
    assert_eq!(opened, Ok(()));
    if closed {
        sessions.closed_by_client(SESSION);
        let by = sessions.closed(SESSION, at(2)).expect("it is known");
        told.ended(by, SESSION, at(2));
    }
    sessions.touched(SESSION, ConnectionId(2), now);
    (sessions, told)
}

#[test]
fn a_closed_session_is_believed_only_by_who_cannot_know_and_while_it_is_young() {
    let believed = |start, now| {
        let (mut sessions, mut told) = brought_again(true, now);
        started(&mut told, AFTER, at(3));
        let when = (start, now, true);
        let accepted = sessions.accepted(SESSION, ConnectionId(2), TIMEOUT, when, &told);
        assert!(!sessions.revived, "its client believes in no lock");
        accepted.is_ok()
    };
    assert!(believed(AFTER, at(4)));
    assert!(!believed(BEFORE, at(4)), "it closed it itself");
    assert!(!believed(AFTER, at(12)), "it is too old to be alive");
}

#[test]
fn word_of_an_end_that_was_to_be_heard_is_missed_by_nobody() {
    let (mut sessions, mut told) = brought_again(true, at(4));
    started(&mut told, AFTER, at(3));
    let entry = KeyValue {
        key: Slot::Ended(ShimId(1)).key(),
        value: own::encode_ended(&[SESSION]),
        create_revision: Revision(9),
        mod_revision: Revision(9),
        lease: LeaseId(1),
    };
    let changes = RevisionChanges { revision: Revision(9), changes: vec![Change::Put(entry)] };
    assert_eq!(sessions.revision(&changes, at(3), &told), Ok(()));
    let when = (AFTER, at(4), true);
    let accepted = sessions.accepted(SESSION, ConnectionId(2), TIMEOUT, when, &told);
    assert!(accepted.is_err(), "it came after the snapshot");
}

/// The session's key is written, by the shim that has a lease.
fn key_by(lease: LeaseId) -> RevisionChanges {
    let at = Revision(9);
    let key = |slot: Slot, value, lease| {
        let key = slot.key();
        Change::Put(KeyValue { key, value, create_revision: at, mod_revision: at, lease })
    };
    let changes = vec![
        key(Slot::Session(SESSION), bytes::Bytes::new(), LeaseId(2)),
        key(Slot::Batch(ShimId(1)), own::encode_number(1), lease),
    ];
    RevisionChanges { revision: at, changes }
}

#[test]
fn with_wide_clocks_a_session_may_be_believed_by_who_has_forgotten_its_end() {
    let believed = |now| {
        let (mut sessions, mut told) = brought_again(false, at(50));
        sessions.clocks_agree = false;
        told.remembered = at(40);
        told.granted(BEFORE, LeaseId(1));
        let gone = vec![Change::Delete(Slot::Session(SESSION).key())];
        let gone = RevisionChanges { revision: Revision(8), changes: gone };
        let steps = [(gone, at(12)), (key_by(LeaseId(1)), now)];
        for (changes, at) in steps {
            assert_eq!(sessions.revision(&changes, at, &told), Ok(()));
            told.event(BEFORE, &StoreEvent::Changed(changes), at);
        }
        let when = (BEFORE, now, true);
        sessions.accepted(SESSION, ConnectionId(2), TIMEOUT, when, &told).is_ok()
    };
    assert!(believed(at(53)));
    assert!(!believed(at(52)), "it remembers");
}

#[test]
fn a_key_that_comes_after_an_end_is_noticed_unless_its_writer_cannot_know() {
    let written = |closed, forgotten: bool| {
        let (mut sessions, mut told) = brought_again(closed, at(4));
        let gone = Change::Delete(Slot::Session(SESSION).key());
        let revision = Revision(if forgotten { 1 } else { 2 });
        let changes = RevisionChanges { revision, changes: vec![gone] };
        assert_eq!(sessions.revision(&changes, at(12), &told), Ok(()));
        started(&mut told, AFTER, at(3));
        told.granted(AFTER, LeaseId(1));
        sessions.revision(&key_by(LeaseId(1)), at(13), &told).is_ok()
    };
    assert!(written(true, true));
    assert!(!written(true, false), "the history from then tells of it");
    assert!(!written(false, true), "its client did not close it: it has expired");
}

#[test]
fn an_answer_to_a_client_that_has_gone_elsewhere_is_heard_by_nobody() {
    let (mut sessions, told) = brought_again(false, at(4));
    sessions.touched(SESSION, ConnectionId(4), at(20));
    assert_eq!(sessions.refused(SESSION, at(20)), Ok(()));
    let mut answered = |connection| {
        let when = (BEFORE, at(21), true);
        sessions.accepted(SESSION, ConnectionId(connection), TIMEOUT, when, &told)
    };
    assert_eq!(answered(3), Ok(()), "its shim stood still until then");
    assert!(answered(4).is_err());
}
