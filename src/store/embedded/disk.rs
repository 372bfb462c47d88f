//! What survives of the embedded store. History and deadlines do not.
//!
//! ```text
//! write ─▶ journal (fsync) ─▶ answered
//!             └─ when a file is full ─▶ pages, by a thread of their own
//! ```
//!
//! A database's commit rewrites and syncs pages from a leaf to the root; a record at the end of
//! a journal is one small write. And of a key that is set often, only the last value goes into
//! the pages.

use crate::store::StoreError;
use crate::store::embedded::delta::{Delta, Pending};
use crate::store::embedded::engine::State;
use crate::store::embedded::failure::{classify, disk_error};
use crate::store::embedded::journal::{File, Journal, Recovered};
use crate::store::embedded::pages::{Content, Pages};
use redb::backends::FileBackend;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// The open store of bytes.
#[derive(Debug)]
pub(super) struct Disk {
    journal: Journal,
    /// What is in the journal's current file.
    pending: Pending,
    saver: Saver,
    /// A write has failed, after which nothing is known for sure.
    is_broken: bool,
}

impl Disk {
    /// Opens or creates what is in a directory, which is created as well.
    ///
    /// # Errors
    /// The data is in use, damaged, of another layout, or the system refuses.
    pub(super) fn open(directory: &Path) -> Result<(Self, State), StoreError> {
        std::fs::create_dir_all(directory).map_err(|error| disk_error(directory, &error))?;
        // This one is locked, and stands for all.
        let (pages, content) = Pages::open(directory)?;
        let journal = JOURNALS.map(|name| open_file(directory.join(name)));
        let [first, second] = journal;
        let opened = Self::load(pages, content, [first?, second?], JOURNAL_BYTES)?;
        // So that the files themselves survive a power cut.
        let synced = std::fs::File::open(directory).and_then(|directory| directory.sync_all());
        synced.map_err(|error| disk_error(directory, &error))?;
        Ok(opened)
    }

    fn load(
        pages: Pages,
        content: Content,
        files: [File; 2],
        journal_bytes: u64,
    ) -> Result<(Self, State), StoreError> {
        let Content { mut state, saved } = content;
        let opened = Journal::open(files, state.cluster, saved, journal_bytes)?;
        let Recovered { deltas, mut journal } = opened;
        if !deltas.is_empty() {
            let mut pending = Pending::default();
            deltas.into_iter().for_each(|(number, delta)| pending.add(number, delta));
            pages.save(pending)?;
            state = pages.read()?;
        }
        journal.prepare()?;
        let saver = Saver::start(pages)?;
        Ok((Self { journal, pending: Pending::default(), saver, is_broken: false }, state))
    }

    /// Writes a delta; it survives a power cut once this has returned.
    ///
    /// # Errors
    /// It is not known whether the delta survives; the disk cannot be used any more.
    pub(super) fn write(&mut self, delta: &Delta) -> Result<(), StoreError> {
        let written = self.try_write(delta);
        self.is_broken |= written.is_err();
        written
    }

    fn try_write(&mut self, delta: &Delta) -> Result<(), StoreError> {
        let number = self.journal.append(delta)?;
        self.pending.add(number, delta.clone());
        let must_wait = self.journal.is_overfull();
        if self.journal.is_full() && self.saver.is_idle(must_wait)? {
            self.saver.save(std::mem::take(&mut self.pending));
            self.journal.turn()?;
        }
        Ok(())
    }
}

impl Drop for Disk {
    /// Leaves nothing in the journal, if it can, and waits until the files are closed.
    fn drop(&mut self) {
        if !self.is_broken && self.pending.last > 0 && matches!(self.saver.is_idle(true), Ok(true))
        {
            self.saver.save(std::mem::take(&mut self.pending));
        }
        self.saver.end();
    }
}

const JOURNALS: [&str; 2] = ["journal-0", "journal-1"];
/// A file of this size is read in no time at the start, and holds more than a second of the
/// heaviest load.
const JOURNAL_BYTES: u64 = 8 << 20;

fn open_file(path: PathBuf) -> Result<File, StoreError> {
    let mut options = OpenOptions::new();
    let opened = options.read(true).write(true).create(true).truncate(false).open(&path);
    let file = opened.map_err(|error| disk_error(&path, &error))?;
    let backend = FileBackend::new(file).map_err(|error| classify(&path, error.into()))?;
    Ok(File { path, backend: Box::new(backend) })
}

/// The thread that brings what is in the journal into the pages.
#[derive(Debug)]
struct Saver {
    /// `None` once it has been told to end.
    saves: Option<Sender<Pending>>,
    saved: Receiver<Result<(), StoreError>>,
    is_busy: bool,
    thread: Option<JoinHandle<()>>,
}

impl Saver {
    fn start(pages: Pages) -> Result<Self, StoreError> {
        let (saves, to_save) = channel::<Pending>();
        let (tell, saved) = channel();
        let path = pages.path().to_owned();
        let work = move || {
            for pending in to_save {
                if tell.send(pages.save(pending)).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("embedded-pages".into()).spawn(work);
        let thread = thread.map_err(|error| disk_error(&path, &error))?;
        Ok(Self { saves: Some(saves), saved, is_busy: false, thread: Some(thread) })
    }

    /// Whether all that was handed over is in the pages; waits for it if it must be.
    ///
    /// # Errors
    /// The pages cannot be written.
    fn is_idle(&mut self, wait: bool) -> Result<bool, StoreError> {
        if self.is_busy {
            let told = if wait { self.saved.recv().ok() } else { self.saved.try_recv().ok() };
            if let Some(saved) = told {
                self.is_busy = false;
                saved?;
            }
        }
        Ok(!self.is_busy)
    }

    fn save(&mut self, pending: Pending) {
        let saves = self.saves.as_ref().expect("it has not been told to end");
        // The thread ends only after this.
        let _ = saves.send(pending);
        self.is_busy = true;
    }

    fn end(&mut self) {
        self.saves = None;
        if let Some(thread) = self.thread.take() {
            // Whatever it panicked with is in the log.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
