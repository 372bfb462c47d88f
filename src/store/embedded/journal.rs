//! What is answered is first appended here, which takes one write in place and one fsync. There
//! are two files that are used in turn: one is filled while what is in the other goes into the
//! pages.
//!
//! A file is a row of records, each with the next number; behind them may be older ones, of the
//! last time that the file was used.

use crate::store::StoreError;
use crate::store::embedded::delta::Delta;
use crate::store::embedded::failure::disk_error;
use redb::StorageBackend;
use std::path::PathBuf;

/// One of the two files.
#[derive(Debug)]
pub(super) struct File {
    /// What it is called in errors.
    pub(super) path: PathBuf,
    /// Its bytes.
    pub(super) backend: Box<dyn StorageBackend>,
}

/// The open journal.
///
/// **Invariant:** all records up to `last` are durable, and the file that is not the current one
/// has none that the pages lack, unless the caller is just saving them.
#[derive(Debug)]
pub(super) struct Journal {
    files: [File; 2],
    /// The store's identity, so that no foreign record is read.
    cluster: u64,
    current: usize,
    /// Where the next record goes in the current file, and how long that file is.
    end: u64,
    allocated: u64,
    last: u64,
    file_bytes: u64,
    record: Vec<u8>,
}

/// What was read from a journal.
#[derive(Debug)]
pub(super) struct Recovered {
    /// What the pages lack, with the numbers of the records, oldest first.
    pub(super) deltas: Vec<(u64, Delta)>,
    /// To be prepared once that is in the pages.
    pub(super) journal: Journal,
}

impl Journal {
    /// Reads the records after the one with the number `saved`. Nothing is written yet.
    ///
    /// # Errors
    /// A record that had been made durable cannot be read, or the system refuses.
    pub(super) fn open(
        files: [File; 2],
        cluster: u64,
        saved: u64,
        file_bytes: u64,
    ) -> Result<Recovered, StoreError> {
        let mut contents = Vec::new();
        for file in &files {
            contents.push(file.read().map_err(|error| disk_error(&file.path, &error))?);
        }
        let deltas = recover(&contents, cluster, saved).map_err(|reason| {
            let path = files[0].path.clone();
            StoreError::Damaged { path, reason }
        })?;
        let last = deltas.last().map_or(saved, |(number, _)| *number);
        let journal = Self {
            files,
            cluster,
            current: 0,
            end: 0,
            allocated: 0,
            last,
            file_bytes,
            record: Vec::new(),
        };
        Ok(Recovered { deltas, journal })
    }

    /// Makes room for new records, where those may have been that were recovered: they are in
    /// the pages by now. To be called once, before the first append.
    ///
    /// # Errors
    /// The system refuses.
    pub(super) fn prepare(&mut self) -> Result<(), StoreError> {
        for file in &self.files {
            let allocated = file.allocate(self.file_bytes);
            allocated.map_err(|error| disk_error(&file.path, &error))?;
        }
        self.allocated = self.file_bytes;
        Ok(())
    }

    /// Appends a delta; it survives a power cut once this has returned its number.
    ///
    /// # Errors
    /// It is not known whether the delta survives; the journal cannot be used any more.
    pub(super) fn append(&mut self, delta: &Delta) -> Result<u64, StoreError> {
        let number = self.last + 1;
        encode(self.cluster, number, delta, &mut self.record);
        let file = &self.files[self.current];
        self.write().map_err(|error| disk_error(&file.path, &error))?;
        self.end += self.record.len() as u64;
        self.allocated = self.allocated.max(self.end);
        self.last = number;
        Ok(number)
    }

    fn write(&self) -> std::io::Result<()> {
        let backend = &self.files[self.current].backend;
        let end = self.end + self.record.len() as u64;
        if end > self.allocated {
            backend.set_len(end)?;
        }
        backend.write(self.end, &self.record)?;
        backend.sync_data()
    }

    /// Whether the current file has had enough.
    pub(super) fn is_full(&self) -> bool {
        self.end >= self.file_bytes
    }

    /// Whether it has had far too much.
    pub(super) fn is_overfull(&self) -> bool {
        self.end >= self.file_bytes * FILES_MAX
    }

    /// Goes on at the start of the other file, all of whose records are in the pages.
    ///
    /// # Errors
    /// The system refuses.
    pub(super) fn turn(&mut self) -> Result<(), StoreError> {
        self.current = 1 - self.current;
        self.end = 0;
        let file = &self.files[self.current];
        let length = file.backend.len().map_err(|error| disk_error(&file.path, &error));
        self.allocated = length?;
        Ok(())
    }
}

/// A file may have so many times its usual size before appends wait for the pages.
const FILES_MAX: u64 = 8;

impl File {
    fn read(&self) -> std::io::Result<Vec<u8>> {
        let length = usize::try_from(self.backend.len()?).map_err(std::io::Error::other)?;
        let mut bytes = vec![0; length];
        self.backend.read(0, &mut bytes)?;
        Ok(bytes)
    }

    /// Gives the file its size for good: an fsync after a write in place has no sizes and blocks
    /// to write, only data. What the file grows beyond this it loses again.
    fn allocate(&self, file_bytes: u64) -> std::io::Result<()> {
        let length = self.backend.len()?;
        if length != file_bytes {
            self.backend.set_len(file_bytes)?;
        }
        let mut at = length;
        while at < file_bytes {
            let part = (file_bytes - at).min(ZEROS.len() as u64);
            self.backend.write(at, &ZEROS[..part as usize])?;
            at += part;
        }
        self.backend.sync_data()
    }
}

static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// A record: checksum of all that follows, length of the delta, the store's identity, the
/// record's number, the delta, and zeros up to a whole number of units.
fn encode(cluster: u64, number: u64, delta: &Delta, record: &mut Vec<u8>) {
    record.clear();
    record.resize(HEAD_BYTES, 0);
    delta.encode(record);
    let length = (record.len() - HEAD_BYTES) as u64;
    record.resize(record.len().next_multiple_of(UNIT_BYTES), 0);
    record[8..16].copy_from_slice(&length.to_be_bytes());
    record[16..24].copy_from_slice(&cluster.to_be_bytes());
    record[24..32].copy_from_slice(&number.to_be_bytes());
    let checksum = u64::from(crc32fast::hash(&record[8..]));
    record[..8].copy_from_slice(&checksum.to_be_bytes());
}

const HEAD_BYTES: usize = 32;
/// Records begin at multiples of this.
const UNIT_BYTES: usize = 8;

/// A record's number, its delta's bytes, and what comes behind it. `None`: here is no record.
fn decode(bytes: &[u8], cluster: u64) -> Option<(u64, &[u8], &[u8])> {
    let word = |index: usize| {
        let word = bytes.get(index * 8..index * 8 + 8)?;
        Some(u64::from_be_bytes(word.try_into().expect("it has eight bytes")))
    };
    if word(2)? != cluster {
        return None;
    }
    let length = usize::try_from(word(1)?).ok()?;
    let whole = length.checked_add(HEAD_BYTES)?.checked_next_multiple_of(UNIT_BYTES)?;
    let (record, rest) = bytes.split_at_checked(whole)?;
    let is_whole = u64::from(crc32fast::hash(&record[8..])) == word(0)?;
    is_whole.then_some((word(3)?, &record[HEAD_BYTES..HEAD_BYTES + length], rest))
}

/// The deltas after `saved`, without a gap, or why there cannot be such a journal.
fn recover(contents: &[Vec<u8>], cluster: u64, saved: u64) -> Result<Vec<(u64, Delta)>, String> {
    let mut runs: Vec<_> = contents.iter().map(|bytes| run(bytes, cluster)).collect();
    runs.sort_by_key(|run| run.first().map(|(number, _)| *number));
    let mut deltas: Vec<(u64, Delta)> = Vec::new();
    let mut last = saved;
    for (number, bytes) in runs.into_iter().flatten().filter(|(number, _)| *number > saved) {
        if number != last + 1 {
            return Err(format!("there is a record {number} of the journal, but none before it"));
        }
        let delta = Delta::decode(bytes);
        let delta =
            delta.ok_or_else(|| format!("record {number} of the journal makes no sense"))?;
        deltas.push((number, delta));
        last = number;
    }
    // An append that was not finished is the last one: it was waited for before the next.
    let numbers = contents.iter().flat_map(|bytes| numbers_anywhere(bytes, cluster));
    match numbers.max().filter(|highest| *highest > last) {
        Some(highest) => Err(format!(
            "record {} of the journal cannot be read, and there are others up to {highest}",
            last + 1
        )),
        None => Ok(deltas),
    }
}

/// The records at the start of a file whose numbers follow each other.
fn run(mut bytes: &[u8], cluster: u64) -> Vec<(u64, &[u8])> {
    let mut run: Vec<(u64, &[u8])> = Vec::new();
    while let Some((number, delta, rest)) = decode(bytes, cluster) {
        if run.last().is_some_and(|(last, _)| number != last + 1) {
            break;
        }
        run.push((number, delta));
        bytes = rest;
    }
    run
}

/// The numbers of all whole records, wherever they are.
fn numbers_anywhere(bytes: &[u8], cluster: u64) -> impl Iterator<Item = u64> {
    let starts = (0..bytes.len()).step_by(UNIT_BYTES);
    starts.filter_map(move |start| decode(&bytes[start..], cluster).map(|(number, ..)| number))
}

#[cfg(test)]
mod tests;
