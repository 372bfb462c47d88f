//! The embedded store from outside: what it tells, in which order, and after a failure.

use super::*;
use crate::keeper::txn::{Change, CommitError, Key, LeaseId, Op, Snapshot, Token, Txn};
use crate::keeper::zxid::Revision;
use crate::store::embedded::disk::tests::Platter;

fn put(name: &str, lease: LeaseId) -> Txn {
    let key = Key::copy_from_slice(name.as_bytes());
    let op = Op::Put { value: key.clone(), key, lease };
    Txn { then: vec![op], ..Txn::default() }
}

async fn open(directory: &Path) -> (Embedded, mpsc::Receiver<StoreEvent>, Snapshot) {
    let (events, mut told) = mpsc::channel(16);
    let options = Options::at(directory.join("data"));
    let store = Embedded::open(options, events).await.expect("the directory is ours");
    let Some(StoreEvent::Loaded(snapshot)) = told.recv().await else { panic!("not loaded") };
    (store, told, snapshot)
}

async fn next(told: &mut mpsc::Receiver<StoreEvent>) -> StoreEvent {
    told.recv().await.expect("the store is open")
}

#[tokio::test]
async fn a_change_is_told_before_its_answer() {
    let directory = tempfile::tempdir().expect("the system gives one");
    let (store, mut told, snapshot) = open(directory.path()).await;
    assert_eq!((snapshot.revision, snapshot.entries.len()), (Revision(1), 0));
    store.send(StoreCommand::Commit(Token(1), put("a", LeaseId::NONE)));
    let StoreEvent::Changed(changed) = next(&mut told).await else { panic!("not changed") };
    assert_eq!(changed.revision, Revision(2));
    let StoreEvent::Committed(Token(1), Ok(answer)) = next(&mut told).await else {
        panic!("not committed")
    };
    assert_eq!((answer.revision, answer.succeeded), (Revision(2), true));
    store.send(StoreCommand::Barrier(Token(2)));
    assert_eq!(next(&mut told).await, StoreEvent::BarrierPassed(Token(2), Ok(Revision(2))));
    store.send(StoreCommand::Progress);
    assert_eq!(next(&mut told).await, StoreEvent::Progress(Revision(2)));
}

#[tokio::test]
async fn what_was_answered_is_there_after_a_restart() {
    let directory = tempfile::tempdir().expect("the system gives one");
    let (store, mut told, before) = open(directory.path()).await;
    store.send(StoreCommand::Grant(Token(1), Duration::from_secs(60)));
    let StoreEvent::Granted(Token(1), Ok((lease, _))) = next(&mut told).await else {
        panic!("not granted")
    };
    for name in ["b", "a"] {
        store.send(StoreCommand::Commit(Token(2), put(name, lease)));
    }
    store.close().await;
    let (store, mut told, after) = open(directory.path()).await;
    assert_eq!((after.revision, after.cluster), (Revision(3), before.cluster));
    assert_eq!(after.deletions_since, after.revision);
    assert_eq!(after.deletions, []);
    let keys: Vec<_> = after.entries.iter().map(|entry| (&*entry.key, entry.lease)).collect();
    assert_eq!(keys, [(&b"a"[..], lease), (b"b", lease)]);
    store.send(StoreCommand::Revoke(Token(3), lease));
    let StoreEvent::Changed(changed) = next(&mut told).await else { panic!("not changed") };
    let deleted = ["a", "b"].map(|name| Change::Delete(Key::from_static(name.as_bytes())));
    assert_eq!((changed.revision, changed.changes), (Revision(4), deleted.to_vec()));
    assert_eq!(next(&mut told).await, StoreEvent::Revoked(Token(3), Ok(())));
}

#[tokio::test]
async fn a_lease_ends_by_itself_and_its_renewal_says_so() {
    let directory = tempfile::tempdir().expect("the system gives one");
    let (disk, state) = Disk::open(directory.path()).expect("the directory is ours");
    let limits = Limits { lease_ttl_min: Duration::ZERO, ..Limits::default() };
    let engine = Engine::restore(limits, state, Duration::ZERO);
    let (events, mut told) = mpsc::channel(16);
    let store = Embedded::start(engine, disk, events, "data".into()).expect("threads are free");
    assert!(matches!(next(&mut told).await, StoreEvent::Loaded(_)));
    store.send(StoreCommand::Grant(Token(1), Duration::from_secs(1)));
    store.send(StoreCommand::Commit(Token(2), put("a", LeaseId(1))));
    store.send(StoreCommand::Renew(LeaseId(1)));
    let granted = StoreEvent::Granted(Token(1), Ok((LeaseId(1), Duration::from_secs(1))));
    let renewed = StoreEvent::Renewed(LeaseId(1), Some(Duration::from_secs(1)));
    let mut early = Vec::new();
    while early.last() != Some(&renewed) {
        early.push(next(&mut told).await);
    }
    assert!(early.contains(&granted), "{early:?}");
    let StoreEvent::Changed(changed) = next(&mut told).await else { panic!("not changed") };
    assert_eq!(changed.changes, [Change::Delete(Key::from_static(b"a"))]);
    store.send(StoreCommand::Renew(LeaseId(1)));
    let gone = StoreEvent::Renewed(LeaseId(1), Some(Duration::ZERO));
    assert_eq!(next(&mut told).await, gone);
}

#[tokio::test]
async fn a_disk_that_fails_ends_the_store() {
    let platter = Platter::default();
    let (disk, state) = platter.open().expect("a new disk is fine");
    let engine = Engine::restore(Limits::default(), state, Duration::ZERO);
    let (events, mut told) = mpsc::channel(16);
    let store = Embedded::start(engine, disk, events, "data".into()).expect("threads are free");
    assert!(matches!(next(&mut told).await, StoreEvent::Loaded(_)));
    platter.break_down();
    store.send(StoreCommand::Commit(Token(1), put("a", LeaseId::NONE)));
    let unknown = next(&mut told).await;
    assert!(matches!(unknown, StoreEvent::Committed(Token(1), Err(CommitError::Unknown(_)))));
    store.send(StoreCommand::Commit(Token(2), put("b", LeaseId::NONE)));
    let refused = next(&mut told).await;
    assert!(matches!(refused, StoreEvent::Committed(Token(2), Err(CommitError::Refused(_)))));
    store.send(StoreCommand::Barrier(Token(3)));
    assert!(matches!(next(&mut told).await, StoreEvent::BarrierPassed(Token(3), Err(_))));
    assert!(matches!(store.failed().await, StoreError::Disk { .. }));
}

#[tokio::test]
async fn every_command_is_answered_once_however_many_share_a_write() {
    let directory = tempfile::tempdir().expect("the system gives one");
    let (store, mut told, _) = open(directory.path()).await;
    for number in 0..500 {
        store.send(StoreCommand::Commit(Token(number), put("a", LeaseId::NONE)));
    }
    let (mut revisions, mut tokens) = (Vec::new(), Vec::new());
    while tokens.len() < 500 {
        match next(&mut told).await {
            StoreEvent::Changed(changed) => revisions.push(changed.revision.0),
            StoreEvent::Committed(token, Ok(answer)) => {
                assert_eq!(answer.revision.0, token.0 as i64 + 2);
                assert!(revisions.contains(&answer.revision.0));
                tokens.push(token.0);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(revisions, (2..502).collect::<Vec<_>>());
    assert_eq!(tokens, (0..500).collect::<Vec<_>>());
}

#[tokio::test]
async fn data_that_somebody_is_just_leaving_is_waited_for() {
    let directory = tempfile::tempdir().expect("the system gives one");
    let first = Disk::open(&directory.path().join("data")).expect("the directory is ours");
    let opening = open(directory.path());
    let leaving = async {
        tokio::task::yield_now().await;
        drop(first);
    };
    let ((_, _, snapshot), ()) = tokio::join!(opening, leaving);
    assert_eq!(snapshot.revision, Revision(1));
}
