//! What survives of the embedded store, in a redb database: keys with their revisions, the
//! revision, the leases, the store's identity. History and deadlines do not.

use crate::keeper::txn::{Change, Key, KeyValue, LeaseId, RevisionChanges};
use crate::keeper::zxid::Revision;
use crate::store::StoreError;
use crate::store::embedded::engine::State;
use bytes::Bytes;
use redb::{Database, DatabaseError, Durability, ReadableDatabase, ReadableTable, TableDefinition};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The open database.
#[derive(Debug)]
pub(super) struct Disk {
    database: Database,
    path: PathBuf,
}

/// What one write makes durable.
#[derive(Debug, Default)]
pub(super) struct Delta {
    /// New revisions, oldest first.
    pub(super) changes: Vec<RevisionChanges>,
    /// Leases granted and, with `None`, ended, in order.
    pub(super) leases: Vec<(LeaseId, Option<Duration>)>,
}

impl Delta {
    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.leases.is_empty()
    }
}

impl Disk {
    /// Opens or creates the database in a directory, which is created as well.
    ///
    /// # Errors
    /// The database is in use, damaged, of another layout, or the system refuses.
    pub(super) fn open(directory: &Path) -> Result<(Self, State), StoreError> {
        let path = directory.join(FILE);
        std::fs::create_dir_all(directory).map_err(|error| disk_error(&path, &error))?;
        let mut builder = Database::builder();
        // The engine holds everything in memory; this cache only serves writes. The check reads
        // the whole file, which the load does anyway, and turns damage into an error.
        builder.set_cache_size(CACHE_BYTES).set_check_integrity_on_open(true);
        let database = match builder.create(&path) {
            Ok(database) => database,
            Err(DatabaseError::DatabaseAlreadyOpen) => return Err(StoreError::InUse(path)),
            Err(error) => return Err(classify(&path, error.into())),
        };
        Self::load(database, path)
    }

    fn load(database: Database, path: PathBuf) -> Result<(Self, State), StoreError> {
        let disk = Self { database, path };
        let found = disk.read().map_err(|error| classify(&disk.path, error))?;
        let (layout, state) = match found {
            Some(found) => found,
            None => {
                let state = State { cluster: fresh_cluster(), ..State::default() };
                disk.create(&state).map_err(|error| classify(&disk.path, error))?;
                (LAYOUT, state)
            }
        };
        if layout != LAYOUT {
            let path = disk.path;
            return Err(StoreError::Layout { path, found: layout, expected: LAYOUT });
        }
        match state.damage() {
            Some(reason) => Err(StoreError::Damaged { path: disk.path, reason }),
            None => Ok((disk, state)),
        }
    }

    /// Writes a delta; it survives a power cut once this has returned.
    ///
    /// # Errors
    /// It is not known whether the delta survives; the database cannot be used any more.
    pub(super) fn write(&self, delta: &Delta) -> Result<(), StoreError> {
        self.try_write(delta).map_err(|error| classify(&self.path, error))
    }

    fn try_write(&self, delta: &Delta) -> Result<(), redb::Error> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        {
            let mut keys = transaction.open_table(KEYS)?;
            for change in delta.changes.iter().flat_map(|revision| &revision.changes) {
                match change {
                    Change::Put(entry) => {
                        keys.insert(&*entry.key, &*encode(entry))?;
                    }
                    Change::Delete(key) => {
                        keys.remove(&**key)?;
                    }
                }
            }
            let mut leases = transaction.open_table(LEASES)?;
            let mut meta = transaction.open_table(META)?;
            for (lease, ttl) in &delta.leases {
                match ttl {
                    Some(ttl) => {
                        leases.insert(lease.0, ttl.as_secs())?;
                        meta.insert("lease_last", lease.0 as u64)?;
                    }
                    None => {
                        leases.remove(lease.0)?;
                    }
                }
            }
            if let Some(last) = delta.changes.last() {
                meta.insert("revision", last.revision.0 as u64)?;
            }
        }
        transaction.commit()?;
        Ok(())
    }

    fn create(&self, state: &State) -> Result<(), redb::Error> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        {
            let mut meta = transaction.open_table(META)?;
            meta.insert("layout", LAYOUT)?;
            meta.insert("cluster", state.cluster)?;
            transaction.open_table(KEYS)?;
            transaction.open_table(LEASES)?;
        }
        transaction.commit()?;
        Ok(())
    }

    /// The layout and the content; `None` if the database is new.
    fn read(&self) -> Result<Option<(u64, State)>, redb::Error> {
        let transaction = self.database.begin_read()?;
        if transaction.list_tables()?.next().is_none() {
            return Ok(None);
        }
        let meta = transaction.open_table(META)?;
        let number = |name| meta.get(name).map(|found| found.map_or(0, |number| number.value()));
        let layout = number("layout")?;
        if layout != LAYOUT {
            return Ok(Some((layout, State::default())));
        }
        let mut state = State {
            cluster: number("cluster")?,
            revision: Revision(number("revision")? as i64),
            lease_last: LeaseId(number("lease_last")? as i64),
            ..State::default()
        };
        for entry in transaction.open_table(LEASES)?.iter()? {
            let (lease, seconds) = entry?;
            let ttl = Duration::from_secs(seconds.value());
            state.leases.push((LeaseId(lease.value()), ttl));
        }
        for entry in transaction.open_table(KEYS)?.iter()? {
            let (key, record) = entry?;
            let decoded = decode(key.value(), record.value()).ok_or_else(|| {
                redb::Error::Corrupted(format!("the record of {:?} is too short", key.value()))
            })?;
            state.entries.push(decoded);
        }
        Ok(Some((layout, state)))
    }
}

impl State {
    /// What cannot be true of a state that the engine made, if there is such a thing.
    fn damage(&self) -> Option<String> {
        let ids = self.leases.iter().map(|(lease, _)| *lease);
        let known: std::collections::BTreeSet<LeaseId> = ids.collect();
        if known.last().is_some_and(|last| *last > self.lease_last) {
            return Some("a lease has a number that was never granted".into());
        }
        self.entries.iter().find_map(|entry| {
            let ordered = Revision::NEVER < entry.create_revision
                && entry.create_revision <= entry.mod_revision
                && entry.mod_revision <= self.revision;
            if !ordered {
                Some(format!("{:?} has revisions that cannot be", entry.key))
            } else if entry.lease != LeaseId::NONE && !known.contains(&entry.lease) {
                Some(format!("{:?} is on a lease that does not exist", entry.key))
            } else {
                None
            }
        })
    }
}

const FILE: &str = "zkshim.redb";
const CACHE_BYTES: usize = 64 * 1024 * 1024;
const LAYOUT: u64 = 1;

const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
/// A lease's number and its time to live in seconds.
const LEASES: TableDefinition<'_, i64, u64> = TableDefinition::new("leases");
const KEYS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("keys");

/// A key's record: create revision, mod revision and lease, 8 bytes each with the highest
/// first, then the value.
fn encode(entry: &KeyValue) -> Vec<u8> {
    let mut record = Vec::with_capacity(24 + entry.value.len());
    record.extend_from_slice(&entry.create_revision.0.to_be_bytes());
    record.extend_from_slice(&entry.mod_revision.0.to_be_bytes());
    record.extend_from_slice(&entry.lease.0.to_be_bytes());
    record.extend_from_slice(&entry.value);
    record
}

fn decode(key: &[u8], record: &[u8]) -> Option<KeyValue> {
    let (create_revision, rest) = record.split_first_chunk()?;
    let (mod_revision, rest) = rest.split_first_chunk()?;
    let (lease, value) = rest.split_first_chunk()?;
    Some(KeyValue {
        key: Key::copy_from_slice(key),
        value: Bytes::copy_from_slice(value),
        create_revision: Revision(i64::from_be_bytes(*create_revision)),
        mod_revision: Revision(i64::from_be_bytes(*mod_revision)),
        lease: LeaseId(i64::from_be_bytes(*lease)),
    })
}

/// A number that no other store has. The standard library's hasher keys come from the system's
/// randomness; nothing secret hangs on it.
fn fresh_cluster() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id()).max(1)
}

fn classify(path: &Path, error: redb::Error) -> StoreError {
    let path = path.to_owned();
    match error {
        redb::Error::Corrupted(reason) => StoreError::Damaged { path, reason },
        redb::Error::Io(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            StoreError::Damaged { path, reason: "it is not a database of ours".into() }
        }
        other => disk_error(&path, &other),
    }
}

fn disk_error(path: &Path, error: &dyn std::error::Error) -> StoreError {
    StoreError::Disk { path: path.to_owned(), reason: error.to_string() }
}

#[cfg(test)]
pub(super) mod tests;
