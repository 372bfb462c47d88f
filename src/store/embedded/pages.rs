//! The content of the embedded store in a redb database: keys with their revisions, the
//! revision, the leases, the store's identity. It may be behind the journal, and says how far.

use crate::keeper::txn::{Key, KeyValue, LeaseId};
use crate::keeper::zxid::Revision;
use crate::store::StoreError;
use crate::store::embedded::delta::Pending;
use crate::store::embedded::engine::State;
use crate::store::embedded::failure::classify;
use bytes::Bytes;
use redb::{Database, DatabaseError, Durability, ReadableDatabase, ReadableTable, TableDefinition};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The open database.
#[derive(Debug)]
pub(super) struct Pages {
    database: Database,
    path: PathBuf,
}

/// What the database holds.
#[derive(Debug)]
pub(super) struct Content {
    /// All but what is only in the journal.
    pub(super) state: State,
    /// The number of the last record of the journal that is in it.
    pub(super) saved: u64,
}

impl Pages {
    /// Opens or creates the database in a directory.
    ///
    /// # Errors
    /// The database is in use, damaged, of another layout, or the system refuses.
    pub(super) fn open(directory: &Path) -> Result<(Self, Content), StoreError> {
        let path = directory.join(FILE);
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

    /// Reads a database; a new one gets its identity.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(super) fn load(database: Database, path: PathBuf) -> Result<(Self, Content), StoreError> {
        let pages = Self { database, path };
        let found = pages.try_read().map_err(|error| classify(&pages.path, error))?;
        let (layout, content) = match found {
            Some(found) => found,
            None => {
                let state = State { cluster: fresh_cluster(), ..State::default() };
                (NONE, Content { state, saved: 0 })
            }
        };
        match layout {
            LAYOUT => {}
            // Without a journal, which is like an empty one. From now on there is one, so that
            // a version that knows of none must not read this any more.
            NONE | WITHOUT_JOURNAL => {
                let created = pages.create(&content.state);
                created.map_err(|error| classify(&pages.path, error))?;
            }
            found => {
                return Err(StoreError::Layout { path: pages.path, found, expected: LAYOUT });
            }
        }
        match content.state.damage() {
            Some(reason) => Err(StoreError::Damaged { path: pages.path, reason }),
            None => Ok((pages, content)),
        }
    }

    /// Its file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads everything again.
    ///
    /// # Errors
    /// The database cannot be read, or makes no sense.
    pub(super) fn read(&self) -> Result<State, StoreError> {
        let found = self.try_read().map_err(|error| classify(&self.path, error))?;
        let (_, Content { state, .. }) = found.expect("it was loaded before");
        match state.damage() {
            Some(reason) => Err(StoreError::Damaged { path: self.path.clone(), reason }),
            None => Ok(state),
        }
    }

    /// Takes over what is in the journal; it survives a power cut once this has returned.
    ///
    /// # Errors
    /// The database cannot be used any more.
    pub(super) fn save(&self, pending: Pending) -> Result<(), StoreError> {
        self.try_save(pending).map_err(|error| classify(&self.path, error))
    }

    fn try_save(&self, pending: Pending) -> Result<(), redb::Error> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        {
            let mut keys = transaction.open_table(KEYS)?;
            // In order, neighbours are written while their page is at hand.
            let mut entries: Vec<_> = pending.keys.into_iter().collect();
            entries.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
            for (key, entry) in entries {
                match entry {
                    Some(entry) => drop(keys.insert(&*key, &*encode(&entry))?),
                    None => drop(keys.remove(&*key)?),
                }
            }
            let mut leases = transaction.open_table(LEASES)?;
            for (lease, ttl) in pending.leases {
                match ttl {
                    Some(ttl) => drop(leases.insert(lease.0, ttl.as_secs())?),
                    None => drop(leases.remove(lease.0)?),
                }
            }
            let mut meta = transaction.open_table(META)?;
            meta.insert("journal", pending.last)?;
            if let Some(lease) = pending.lease_last {
                meta.insert("lease_last", lease.0 as u64)?;
            }
            if let Some(revision) = pending.revision {
                meta.insert("revision", revision.0 as u64)?;
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
    fn try_read(&self) -> Result<Option<(u64, Content)>, redb::Error> {
        let transaction = self.database.begin_read()?;
        if transaction.list_tables()?.next().is_none() {
            return Ok(None);
        }
        let meta = transaction.open_table(META)?;
        let number = |name| meta.get(name).map(|found| found.map_or(0, |number| number.value()));
        let layout = number("layout")?;
        if !matches!(layout, LAYOUT | WITHOUT_JOURNAL) {
            return Ok(Some((layout, Content { state: State::default(), saved: 0 })));
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
        Ok(Some((layout, Content { state, saved: number("journal")? })))
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
const LAYOUT: u64 = 2;
/// The layout before there was a journal.
const WITHOUT_JOURNAL: u64 = 1;
/// A database without content.
const NONE: u64 = 0;

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

#[cfg(test)]
mod tests;
