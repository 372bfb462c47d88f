//! Watches: who is told of which change.
//!
//! A watch belongs to a connection, not to a session. What an event says, and whether a
//! connection may read it (the ACL filter), is up to the caller: a standard watch is used up by
//! its first event, delivered or not. Paths are exact strings, and need not be valid.

#[cfg(test)]
mod model;
mod table;
#[cfg(test)]
mod tests;

use crate::keeper::path;
use crate::keeper::request::ConnectionId;
use crate::keeper::watches::table::{Modes, WatchTable};

pub use crate::keeper::watches::table::Paths;

/// All watches of this shim's connections (`DataTree`'s two `WatchManager`s).
///
/// What a change fires, in this order:
///
/// | change | calls |
/// |---|---|
/// | znode created | `fire(Data, path)`: NodeCreated; `fire(Child, parent)`: NodeChildrenChanged |
/// | znode deleted | `fire_deleted(path)`: NodeDeleted; `fire(Child, parent)`: NodeChildrenChanged |
/// | data set | `fire(Data, path)`: NodeDataChanged |
/// | ACL set | nothing |
///
/// The parent of a top-level znode is `/` here. A connection is told once in each call, however
/// many of its watches match. The lists of connections are sorted, so that the same state and
/// input give the same output whatever came before.
#[derive(Debug, Default)]
pub struct Watches {
    data: WatchTable,
    child: WatchTable,
}

/// One of the two tables that a standard watch can be in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Table {
    /// Watches left by exists and getData.
    Data,
    /// Watches left by getChildren.
    Child,
}

/// What checkWatches and removeWatches are about (`Watcher.WatcherType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WatchKind {
    /// 1: standard watches in the child table.
    Children,
    /// 2: standard watches in the data table, from exists and getData alike.
    Data,
    /// 3: every watch.
    Any,
    /// 4: persistent watches.
    Persistent,
    /// 5: persistent recursive watches.
    Recursive,
}

impl WatchKind {
    /// The kind with this number on the wire, if there is one.
    pub fn from_number(number: i32) -> Option<Self> {
        match number {
            1 => Some(Self::Children),
            2 => Some(Self::Data),
            3 => Some(Self::Any),
            4 => Some(Self::Persistent),
            5 => Some(Self::Recursive),
            _ => None,
        }
    }
}

impl Watches {
    /// Leaves a standard watch, which is used up by its first event. Leaving it twice is leaving
    /// it once; that holds for the other kinds too.
    pub fn add(&mut self, table: Table, path: &str, connection: ConnectionId) {
        match table {
            Table::Data => self.data.insert(path, connection, Modes::STANDARD),
            Table::Child => self.child.insert(path, connection, Modes::STANDARD),
        }
    }

    /// Leaves a persistent watch: it fires as getData's and getChildren's together would, and
    /// stays.
    pub fn add_persistent(&mut self, path: &str, connection: ConnectionId) {
        self.data.insert(path, connection, Modes::PERSISTENT);
        self.child.insert(path, connection, Modes::PERSISTENT);
    }

    /// Leaves a persistent recursive watch: it fires for the data of the znode and of everything
    /// below it, never for children lists, and stays.
    pub fn add_recursive(&mut self, path: &str, connection: ConnectionId) {
        self.data.insert(path, connection, Modes::RECURSIVE);
    }

    /// Fills `fired` with the connections that a change of `path` concerns, and uses up their
    /// standard watches on it. What was in `fired` before is cleared away; its memory is used
    /// again.
    pub fn fire(&mut self, table: Table, path: &str, fired: &mut Vec<ConnectionId>) {
        fired.clear();
        match table {
            Table::Data => self.fire_data(path, fired),
            Table::Child => self.child.fire(path, fired),
        }
    }

    /// As [`Self::fire`] for both tables at once: the watches on a deleted znode itself. A
    /// connection in both tables is told once (`DataTree.deleteNode` passes the first table's
    /// watchers to the second as those to leave out).
    pub fn fire_deleted(&mut self, path: &str, fired: &mut Vec<ConnectionId>) {
        fired.clear();
        self.fire_data(path, fired);
        let told_by_data = fired.len();
        self.child.fire(path, fired);
        if told_by_data > 0 && fired.len() > told_by_data {
            sort_and_deduplicate(fired);
        }
    }

    /// Whether such a watch is there (checkWatches).
    pub fn contains(&self, connection: ConnectionId, path: &str, kind: WatchKind) -> bool {
        let data = self.data.modes(path, connection);
        match kind {
            WatchKind::Children => self.child.modes(path, connection).intersects(Modes::STANDARD),
            WatchKind::Data => data.intersects(Modes::STANDARD),
            WatchKind::Any => {
                data.intersects(Modes::ALL)
                    || self.child.modes(path, connection).intersects(Modes::ALL)
            }
            WatchKind::Persistent => data.intersects(Modes::PERSISTENT),
            WatchKind::Recursive => data.intersects(Modes::RECURSIVE),
        }
    }

    /// Takes such watches away, without an event (removeWatches). Says whether one was there.
    pub fn remove(&mut self, connection: ConnectionId, path: &str, kind: WatchKind) -> bool {
        let (from_data, from_child) = match kind {
            WatchKind::Children => (Modes::NONE, Modes::STANDARD),
            WatchKind::Data => (Modes::STANDARD, Modes::NONE),
            WatchKind::Any => (Modes::ALL, Modes::ALL),
            WatchKind::Persistent => (Modes::PERSISTENT, Modes::PERSISTENT),
            WatchKind::Recursive => (Modes::RECURSIVE, Modes::NONE),
        };
        let in_data = self.data.remove(path, connection, from_data);
        let in_child = self.child.remove(path, connection, from_child);
        in_data || in_child
    }

    /// The connection is gone, or as good as gone: no watch may be left for it any more. Those
    /// that it has go with [`Self::remove_gone`]; until then it is told of changes, which nobody
    /// hears, and they are counted.
    pub fn connection_gone(&mut self, connection: ConnectionId) {
        self.data.connection_gone(connection);
        self.child.connection_gone(connection);
    }

    /// Takes away watches of connections that are gone, so many at most.
    pub fn remove_gone(&mut self, most: usize) {
        let left = self.data.remove_gone(most);
        self.child.remove_gone(left);
    }

    /// Whether there are watches of connections that are gone.
    pub fn has_gone(&self) -> bool {
        self.data.has_gone() || self.child.has_gone()
    }

    /// About how much memory the watches of a connection take.
    pub fn bytes(&self, connection: ConnectionId) -> usize {
        self.data.bytes(connection) + self.child.bytes(connection)
    }

    /// About how much memory the watches of all connections take that are not gone.
    pub fn total_bytes(&self) -> usize {
        self.data.total_bytes() + self.child.total_bytes()
    }

    /// The number of watches as ZooKeeper counts them (`watch_count`): pairs of a path and a
    /// connection in either table, so that a persistent watch counts twice and a recursive one
    /// once.
    pub fn total(&self) -> usize {
        self.data.entries() + self.child.entries()
    }

    /// Pairs of a path and a connection in the data table.
    pub fn data_entries(&self) -> usize {
        self.data.entries()
    }

    /// Paths in the data table.
    pub fn data_paths(&self) -> usize {
        self.data.paths()
    }

    /// Connections in the data table.
    pub fn data_connections(&self) -> usize {
        self.data.connections()
    }

    /// The connections in the data table, in no order that means anything.
    pub fn data_watchers(&self) -> impl Iterator<Item = ConnectionId> {
        self.data.watchers()
    }

    /// The paths of a connection in the data table. What goes is replaced by the last, and what
    /// comes is the last.
    pub fn data_paths_of(&self, connection: ConnectionId) -> Option<&Paths> {
        self.data.paths_of(connection)
    }

    /// Recursive watches are in the data table only, so only data events look at the ancestors,
    /// and only while there is such a watch at all.
    fn fire_data(&mut self, path: &str, fired: &mut Vec<ConnectionId>) {
        self.data.fire(path, fired);
        if self.data.recursive() == 0 {
            return;
        }
        let on_path = fired.len();
        for ancestor in path::ancestors(path) {
            self.data.collect_recursive(ancestor, fired);
        }
        if fired.len() > on_path {
            sort_and_deduplicate(fired);
        }
    }
}

fn sort_and_deduplicate(fired: &mut Vec<ConnectionId>) {
    fired.sort_unstable();
    fired.dedup();
}
