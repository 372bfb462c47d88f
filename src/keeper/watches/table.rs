//! One table of watches: which connections are registered on which paths, and how.
//!
//! It knows nothing of events and kinds of changes. Everything costs as much as it touches: a
//! fire its watchers, a closed connection its own watches.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

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
    /// Pairs of a path and a connection.
    entries: usize,
    /// Pairs among them whose modes include [`Modes::RECURSIVE`].
    recursive: usize,
}

/// What one connection watches.
#[derive(Debug, Default)]
struct Watched {
    paths: FxHashSet<Arc<str>>,
    /// The length of the paths, and what each costs beside it.
    bytes: usize,
}

/// What a watch takes beside its path: its places in both maps.
const WATCH_BYTES: usize = 100;

impl WatchTable {
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
            unlink(&mut self.by_connection, connection, path);
            self.entries -= 1;
        }
        true
    }

    pub(super) fn remove_connection(&mut self, connection: ConnectionId) {
        let watched = self.by_connection.remove(&connection).unwrap_or_default();
        for path in watched.paths {
            let watchers = self.by_path.get_mut(&path).expect("both maps hold the same pairs");
            let modes = watchers.remove(&connection).expect("both maps hold the same pairs");
            if watchers.is_empty() {
                self.by_path.remove(&path);
            }
            self.entries -= 1;
            self.recursive -= usize::from(modes.intersects(Modes::RECURSIVE));
        }
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
                unlink(&mut self.by_connection, *connection, path);
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

    pub(super) fn iter(&self) -> impl Iterator<Item = (ConnectionId, &Arc<str>)> {
        let pairs = self.by_path.iter();
        pairs.flat_map(|(path, watchers)| watchers.keys().map(move |id| (*id, path)))
    }
}

/// Forgets that a connection watches a path. A free function, for `by_path` is borrowed where it
/// is called.
fn unlink(
    by_connection: &mut FxHashMap<ConnectionId, Watched>,
    connection: ConnectionId,
    path: &str,
) {
    let watched = by_connection.get_mut(&connection).expect("both maps hold the same pairs");
    watched.paths.remove(path);
    watched.bytes -= path.len() + WATCH_BYTES;
    if watched.paths.is_empty() {
        by_connection.remove(&connection);
    }
}
