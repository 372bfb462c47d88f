//! One table of watches: which connections are registered on which paths, and how.
//!
//! It knows nothing of events and kinds of changes. Everything costs as much as it touches: a
//! fire its watchers. A connection that is gone is forgotten at once, and its watches go by and
//! by, since there may be a million.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::keeper::request::ConnectionId;

/// A set of registrations of one connection on one path. They do not depend on each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Modes(u8);

impl Modes {
    pub(super) const NONE: Self = Self(0);
    pub(super) const STANDARD: Self = Self(1);
    pub(super) const PERSISTENT: Self = Self(2);
    pub(super) const RECURSIVE: Self = Self(4);
    pub(super) const ALL: Self = Self(7);

    pub(super) fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// A table of watches (`WatchManager`).
///
/// A path is copied when it is first watched: text from a request shares its buffer with the
/// whole read of the socket, which a watch must not keep alive.
#[derive(Debug, Default)]
pub(super) struct WatchTable {
    /// Never an empty map, never [`Modes::NONE`]. Sorted by connection, which makes the order of
    /// events independent of how the watches came about.
    by_path: FxHashMap<Arc<str>, BTreeMap<ConnectionId, Modes>>,
    /// The same pairs the other way round; never an empty set.
    by_connection: FxHashMap<ConnectionId, Watched>,
    /// Connections that are gone, and those of their paths that are still in `by_path`.
    gone: VecDeque<(ConnectionId, Paths)>,
    /// Pairs of a path and a connection.
    entries: usize,
    /// What all of them take, but for those of connections that are gone.
    bytes: usize,
    /// Pairs among them whose modes include [`Modes::RECURSIVE`].
    recursive: usize,
}

/// What one connection watches.
pub type Paths = IndexSet<Arc<str>, FxBuildHasher>;

/// What one connection watches.
#[derive(Debug, Default)]
struct Watched {
    paths: Paths,
    /// The length of the paths, and what each costs beside it.
    bytes: usize,
}

/// What a watch takes beside its path: its places in both maps, which are half empty at worst,
/// and a node of the inner one.
const WATCH_BYTES: usize = 250;

impl WatchTable {
    /// About how much memory all watches take.
    pub(super) fn total_bytes(&self) -> usize {
        self.bytes
    }

    /// About how much memory the watches of a connection take.
    pub(super) fn bytes(&self, connection: ConnectionId) -> usize {
        self.by_connection.get(&connection).map_or(0, |watched| watched.bytes)
    }

    pub(super) fn insert(&mut self, path: &str, connection: ConnectionId, modes: Modes) {
        let key = match self.by_path.get_key_value(path) {
            Some((key, _)) => Arc::clone(key),
            None => Arc::from(path),
        };
        let watchers = self.by_path.entry(Arc::clone(&key)).or_default();
        let present = watchers.entry(connection).or_insert(Modes::NONE);
        let added = modes.without(*present);
        if *present == Modes::NONE {
            let watched = self.by_connection.entry(connection).or_default();
            watched.bytes += key.len() + WATCH_BYTES;
            self.bytes += key.len() + WATCH_BYTES;
            watched.paths.insert(key);
            self.entries += 1;
        }
        *present = present.with(added);
        self.recursive += usize::from(added.intersects(Modes::RECURSIVE));
    }

    /// Takes away those of `modes` that are there. Says whether any was.
    pub(super) fn remove(&mut self, path: &str, connection: ConnectionId, modes: Modes) -> bool {
        let Some(watchers) = self.by_path.get_mut(path) else { return false };
        let Some(present) = watchers.get_mut(&connection) else { return false };
        let removed = present.and(modes);
        if removed == Modes::NONE {
            return false;
        }
        self.recursive -= usize::from(removed.intersects(Modes::RECURSIVE));
        *present = present.without(removed);
        if *present == Modes::NONE {
            watchers.remove(&connection);
            if watchers.is_empty() {
                self.by_path.remove(path);
            }
            self.bytes -= unlink(&mut self.by_connection, connection, path);
            self.entries -= 1;
        }
        true
    }

    /// The connection is gone, or as good as gone: nothing may be registered for it any more.
    /// What it watches goes with [`Self::remove_gone`].
    pub(super) fn connection_gone(&mut self, connection: ConnectionId) {
        if let Some(watched) = self.by_connection.remove(&connection) {
            self.bytes -= watched.bytes;
            self.gone.push_back((connection, watched.paths));
        }
    }

    /// Takes away watches of connections that are gone, so many at most. Returns how many more
    /// it might have taken away.
    pub(super) fn remove_gone(&mut self, most: usize) -> usize {
        let mut left = most;
        while let Some((connection, paths)) = self.gone.front_mut() {
            let connection = *connection;
            while left > 0 {
                let Some(path) = paths.pop() else { break };
                left -= 1;
                // It may have fired meanwhile.
                let Some(watchers) = self.by_path.get_mut(&path) else { continue };
                let Some(modes) = watchers.remove(&connection) else { continue };
                if watchers.is_empty() {
                    self.by_path.remove(&path);
                }
                self.entries -= 1;
                self.recursive -= usize::from(modes.intersects(Modes::RECURSIVE));
            }
            if !paths.is_empty() {
                break;
            }
            self.gone.pop_front();
        }
        left
    }

    /// Whether there are watches of connections that are gone.
    pub(super) fn has_gone(&self) -> bool {
        !self.gone.is_empty()
    }

    pub(super) fn modes(&self, path: &str, connection: ConnectionId) -> Modes {
        let modes = self.by_path.get(path).and_then(|watchers| watchers.get(&connection));
        modes.copied().unwrap_or(Modes::NONE)
    }

    /// Appends the connections registered on exactly this path, in order, and takes away their
    /// standard registrations.
    pub(super) fn fire(&mut self, path: &str, fired: &mut Vec<ConnectionId>) {
        let Some(watchers) = self.by_path.get_mut(path) else { return };
        fired.extend(watchers.keys());
        watchers.retain(|connection, modes| {
            *modes = modes.without(Modes::STANDARD);
            let stays = *modes != Modes::NONE;
            if !stays {
                self.bytes -= unlink(&mut self.by_connection, *connection, path);
                self.entries -= 1;
            }
            stays
        });
        if watchers.is_empty() {
            self.by_path.remove(path);
        }
    }

    /// Appends the connections that are registered recursively on exactly this path, in order.
    pub(super) fn collect_recursive(&self, path: &str, fired: &mut Vec<ConnectionId>) {
        let Some(watchers) = self.by_path.get(path) else { return };
        let recursive = watchers.iter().filter(|(_, modes)| modes.intersects(Modes::RECURSIVE));
        fired.extend(recursive.map(|(connection, _)| *connection));
    }

    pub(super) fn recursive(&self) -> usize {
        self.recursive
    }

    pub(super) fn entries(&self) -> usize {
        self.entries
    }

    pub(super) fn paths(&self) -> usize {
        self.by_path.len()
    }

    pub(super) fn connections(&self) -> usize {
        self.by_connection.len()
    }

    pub(super) fn watchers(&self) -> impl Iterator<Item = ConnectionId> {
        self.by_connection.keys().copied()
    }

    pub(super) fn paths_of(&self, connection: ConnectionId) -> Option<&Paths> {
        self.by_connection.get(&connection).map(|watched| &watched.paths)
    }
}

/// Forgets that a connection watches a path, unless it is gone. Returns what that took. A free
/// function, for `by_path` is borrowed where it is called.
fn unlink(
    by_connection: &mut FxHashMap<ConnectionId, Watched>,
    connection: ConnectionId,
    path: &str,
) -> usize {
    let Some(watched) = by_connection.get_mut(&connection) else { return 0 };
    let bytes = path.len() + WATCH_BYTES;
    watched.paths.swap_remove(path);
    watched.bytes -= bytes;
    if watched.paths.is_empty() {
        by_connection.remove(&connection);
    }
    bytes
}
