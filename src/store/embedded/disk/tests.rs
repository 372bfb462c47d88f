//! What is on disk after a power cut, after damage, and for a second process.

use super::*;
use crate::keeper::txn::{Key, LeaseId, Op, Txn};
use crate::keeper::zxid::Revision;
use crate::store::embedded::engine::Engine;
use crate::store::embedded::limits::Limits;
use bytes::Bytes;
use redb::{Database, StorageBackend};
use std::io::{Error, ErrorKind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A file in memory that may lose its power: only what was synced is left then.
#[derive(Clone, Debug, Default)]
struct Plate(Arc<Mutex<Sides>>);

#[derive(Debug, Default)]
struct Sides {
    written: Vec<u8>,
    synced: Vec<u8>,
    broken: bool,
}

impl Plate {
    fn after_power_cut(&self) -> Self {
        let synced = self.sides().synced.clone();
        Self(Arc::new(Mutex::new(Sides { written: synced.clone(), synced, broken: false })))
    }

    fn sides(&self) -> std::sync::MutexGuard<'_, Sides> {
        self.0.lock().expect("nothing panics while it is held")
    }
}

/// A disk of such files: the pages, then the journal's two.
#[derive(Clone, Debug, Default)]
pub(in crate::store::embedded) struct Platter([Plate; 3]);

impl Platter {
    /// A disk as it is after a power cut.
    fn after_power_cut(&self) -> Self {
        // The pages first: what a thread brings into them later is in the journal as well, and
        // the journal is written by the test alone.
        Self(self.0.each_ref().map(Plate::after_power_cut))
    }

    /// From now on nothing can be synced.
    pub(in crate::store::embedded) fn break_down(&self) {
        self.0.iter().for_each(|plate| plate.sides().broken = true);
    }

    pub(in crate::store::embedded) fn open(&self) -> Result<(Disk, State), StoreError> {
        let [pages, first, second] = &self.0;
        let path = PathBuf::from("platter");
        let database = Database::builder().create_with_backend(pages.clone());
        let database = database.map_err(|error| classify(&path, error.into()))?;
        let (pages, content) = Pages::load(database, path.clone())?;
        let file = |plate: &Plate| File { path: path.clone(), backend: Box::new(plate.clone()) };
        Disk::load(pages, content, [file(first), file(second)], 4096)
    }
}

impl StorageBackend for Plate {
    fn len(&self) -> Result<u64, Error> {
        Ok(self.sides().written.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        let from = offset as usize;
        out.copy_from_slice(&self.sides().written[from..from + out.len()]);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), Error> {
        self.sides().written.resize(len as usize, 0);
        Ok(())
    }

    fn sync_data(&self) -> Result<(), Error> {
        let mut sides = self.sides();
        if sides.broken {
            return Err(Error::from(ErrorKind::StorageFull));
        }
        sides.synced = sides.written.clone();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        let from = offset as usize;
        self.sides().written[from..from + data.len()].copy_from_slice(data);
        Ok(())
    }
}

fn key(number: u64) -> Key {
    Key::from(format!("key {number}"))
}

/// Some change of the engine, with the delta that makes it durable.
fn step(engine: &mut Engine, number: u64) -> Delta {
    let before = engine.revision();
    let mut delta = Delta::default();
    match number % 5 {
        0 => {
            let ttl = Duration::from_secs(number + 2);
            let (lease, ttl) = engine.grant(ttl, Duration::ZERO).expect("it is short");
            delta.leases.push((lease, Some(ttl)));
        }
        4 if number.is_multiple_of(3) => {
            let lease = LeaseId(number as i64 / 10);
            if engine.revoke(lease) {
                delta.leases.push((lease, None));
            }
        }
        kind => {
            let (value, lease) = (key(number * 7), engine.lease_last());
            let lease = engine.lease_ttl(lease).map_or(LeaseId::NONE, |_| lease);
            let put = Op::Put { key: key(number % 11), value, lease };
            let other = if kind == 3 { Op::Delete(key(number % 7 + 11)) } else { put.clone() };
            let then = if other == put { vec![put] } else { vec![put, other] };
            engine.commit(&Txn { then, ..Txn::default() }).expect("it is small");
        }
    }
    let history = engine.changes_after(before).expect("it is kept");
    delta.changes.extend(history.cloned());
    delta
}

fn state(engine: &Engine) -> State {
    let granted = (1..=engine.lease_last().0).map(LeaseId);
    State {
        cluster: engine.cluster(),
        revision: engine.revision(),
        lease_last: engine.lease_last(),
        leases: granted.filter_map(|id| engine.lease_ttl(id).map(|ttl| (id, ttl))).collect(),
        entries: engine.snapshot().entries,
    }
}

#[test]
fn whatever_was_answered_survives_a_power_cut() {
    let platter = Platter::default();
    let (mut disk, fresh) = platter.open().expect("a new disk is fine");
    let mut engine = Engine::restore(Limits::default(), fresh, Duration::ZERO);
    for number in 0..400 {
        let delta = step(&mut engine, number);
        disk.write(&delta).expect("the disk works");
        if number % 20 == 19 {
            let (_, survived) = platter.after_power_cut().open().expect("it is not damaged");
            assert_eq!(survived, state(&engine), "after step {number}");
        }
    }
    assert!(engine.revision() > Revision(100));
    drop(disk);
    let turned = platter.0.iter().all(|plate| plate.sides().synced.iter().any(|byte| *byte > 0));
    assert!(turned, "both files of the journal were used");
}

#[test]
fn a_store_keeps_its_identity_and_goes_on_counting() {
    let directory = tempfile::tempdir().expect("the system gives one");
    let (mut disk, fresh) = Disk::open(directory.path()).expect("a new directory is fine");
    let mut engine = Engine::restore(Limits::default(), fresh.clone(), Duration::ZERO);
    for number in 0..20 {
        disk.write(&step(&mut engine, number)).expect("the disk works");
    }
    drop(disk);
    let (_, survived) = Disk::open(directory.path()).expect("it was closed");
    assert_eq!(survived, state(&engine));
    assert_eq!(survived.cluster, fresh.cluster);
    assert_ne!(survived.cluster, 0);
}

#[test]
fn a_second_user_of_the_directory_is_refused() {
    let directory = tempfile::tempdir().expect("the system gives one");
    let _first = Disk::open(directory.path()).expect("a new directory is fine");
    let second = Disk::open(directory.path()).map(|(_, state)| state);
    assert!(matches!(second, Err(StoreError::InUse(path)) if path.ends_with("zkshim.redb")));
}

#[test]
fn damage_is_reported() {
    let directory = tempfile::tempdir().expect("the system gives one");
    let path = directory.path().join("zkshim.redb");
    std::fs::write(&path, "this is no database, and long enough not to be an empty one")
        .expect("it is ours");
    let opened = Disk::open(directory.path()).map(|(_, state)| state);
    assert!(matches!(opened, Err(StoreError::Damaged { .. })), "{opened:?}");
}

#[test]
fn a_flipped_bit_is_found_when_the_file_is_opened() {
    let directory = tempfile::tempdir().expect("the system gives one");
    let (mut disk, fresh) = Disk::open(directory.path()).expect("a new directory is fine");
    let mut engine = Engine::restore(Limits::default(), fresh, Duration::ZERO);
    let value = Bytes::from_static(b"something to look for in the file");
    let put = Op::Put { key: key(1), value: value.clone(), lease: LeaseId::NONE };
    engine.commit(&Txn { then: vec![put], ..Txn::default() }).expect("it is small");
    let changes = engine.changes_after(Revision(1)).expect("it is kept").cloned().collect();
    disk.write(&Delta { changes, leases: vec![] }).expect("the disk works");
    drop(disk);

    let path = directory.path().join("zkshim.redb");
    let mut file = std::fs::read(&path).expect("it is ours");
    let at = file.windows(value.len()).position(|part| part == value).expect("it was written");
    file[at] ^= 1;
    std::fs::write(&path, file).expect("it is ours");
    let opened = Disk::open(directory.path()).map(|(_, state)| state);
    assert!(matches!(opened, Err(StoreError::Damaged { .. })), "{opened:?}");
}

#[test]
fn what_was_only_in_the_journal_is_there_after_one_more_power_cut() {
    let platter = Platter::default();
    let (mut disk, fresh) = platter.open().expect("a new disk is fine");
    let mut engine = Engine::restore(Limits::default(), fresh, Duration::ZERO);
    for number in 0..10 {
        disk.write(&step(&mut engine, number)).expect("the disk works");
    }
    let cut = platter.after_power_cut();
    let (mut disk, survived) = cut.open().expect("it is not damaged");
    assert_eq!(survived, state(&engine));
    for number in 10..12 {
        disk.write(&step(&mut engine, number)).expect("the disk works");
    }
    let (_, survived) = cut.after_power_cut().open().expect("it is not damaged");
    assert_eq!(survived, state(&engine));
}

#[test]
fn a_closed_store_has_everything_in_its_pages() {
    let platter = Platter::default();
    let (mut disk, fresh) = platter.open().expect("a new disk is fine");
    let mut engine = Engine::restore(Limits::default(), fresh, Duration::ZERO);
    for number in 0..10 {
        disk.write(&step(&mut engine, number)).expect("the disk works");
    }
    drop(disk);
    let pages_alone = Platter([platter.0[0].clone(), Plate::default(), Plate::default()]);
    let (_, survived) = pages_alone.open().expect("it is not damaged");
    assert_eq!(survived, state(&engine));
}
