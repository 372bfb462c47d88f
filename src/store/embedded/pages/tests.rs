//! What is in the database: its layouts, and what cannot be true of it.

use super::*;
use crate::keeper::txn::Change;
use crate::keeper::txn::RevisionChanges;
use crate::store::embedded::delta::Delta;

fn key(number: u64) -> Key {
    Key::from(format!("key {number}"))
}

fn entry(revision: i64) -> KeyValue {
    KeyValue {
        key: key(1),
        value: Bytes::from_static(b"value"),
        create_revision: Revision(2),
        mod_revision: Revision(revision),
        lease: LeaseId::NONE,
    }
}

/// Pages that hold one entry and say that they have this layout.
fn pages_of_layout(path: &Path, layout: u64) {
    let database = Database::create(path).expect("the directory is ours");
    let (pages, _) = Pages::load(database, path.into()).expect("it is new");
    let changes = vec![Change::Put(entry(3))];
    let mut pending = Pending::default();
    let changes = vec![RevisionChanges { revision: Revision(3), changes }];
    pending.add(0, Delta { changes, leases: vec![] });
    pages.save(pending).expect("the disk works");
    let transaction = pages.database.begin_write().expect("the disk works");
    let mut meta = transaction.open_table(META).expect("the table is there");
    meta.insert("layout", layout).expect("the disk works");
    meta.remove("journal").expect("the disk works");
    drop(meta);
    transaction.commit().expect("the disk works");
}

fn open(path: &Path) -> Result<Content, StoreError> {
    let database = Database::create(path).expect("the directory is ours");
    Pages::load(database, path.into()).map(|(_, content)| content)
}

#[test]
fn what_a_version_without_a_journal_left_is_taken_over_and_kept_from_it() {
    let directory = tempfile::tempdir().expect("the system gives one");
    let path = directory.path().join(FILE);
    pages_of_layout(&path, WITHOUT_JOURNAL);
    for _ in 0..2 {
        let content = open(&path).expect("it can be read");
        assert_eq!((content.state.entries, content.saved), (vec![entry(3)], 0));
        assert_ne!(content.state.cluster, 0);
    }
    let database = Database::create(&path).expect("the directory is ours");
    let reading = database.begin_read().expect("it is open");
    let meta = reading.open_table(META).expect("it is there");
    let layout = meta.get("layout").expect("it can be read").map(|number| number.value());
    assert_eq!(layout, Some(LAYOUT));
}

#[test]
fn another_layout_is_refused() {
    let directory = tempfile::tempdir().expect("the system gives one");
    let path = directory.path().join(FILE);
    pages_of_layout(&path, LAYOUT + 1);
    assert!(matches!(open(&path), Err(StoreError::Layout { found: 3, expected: 2, .. })));
}

#[test]
fn a_state_that_no_engine_made_is_damage() {
    let entry = KeyValue {
        key: key(1),
        value: Bytes::new(),
        create_revision: Revision(2),
        mod_revision: Revision(3),
        lease: LeaseId::NONE,
    };
    let with = |entry: KeyValue| State {
        revision: Revision(3),
        lease_last: LeaseId(1),
        leases: vec![(LeaseId(1), Duration::from_secs(5))],
        entries: vec![entry],
        ..State::default()
    };
    assert_eq!(with(entry.clone()).damage(), None);
    assert!(with(KeyValue { lease: LeaseId(2), ..entry.clone() }).damage().is_some());
    assert!(with(KeyValue { mod_revision: Revision(4), ..entry.clone() }).damage().is_some());
    assert!(with(KeyValue { create_revision: Revision(0), ..entry }).damage().is_some());
}

#[test]
fn records_come_back_as_they_were() {
    let entry = KeyValue {
        key: key(1),
        value: Bytes::from_static(b"value"),
        create_revision: Revision(2),
        mod_revision: Revision(300),
        lease: LeaseId(i64::MAX),
    };
    assert_eq!(decode(&entry.key, &encode(&entry)), Some(entry.clone()));
    assert_eq!(decode(&entry.key, &encode(&entry)[..23]), None);
}
