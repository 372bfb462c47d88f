//! Watches: leaving, checking, catching up after a reconnect, and firing.

use crate::keeper::acl;
use crate::keeper::error::ErrorCode;
use crate::keeper::keyspace::StepKind;
use crate::keeper::machine::{Keeper, event_of};
use crate::keeper::path;
use crate::keeper::replica::Fired;
use crate::keeper::request::{
    AddWatch, Body, ConnectionId, Event, EventKind, Outgoing, SetWatches, WatchSelection,
};
use crate::keeper::tree::Path;
use crate::keeper::watches::{Table, WatchKind};
use crate::keeper::zxid::Zxid;
use jute::{Acl, Text};

/// `AddWatchMode`.
const MODE_PERSISTENT: i32 = 0;
const MODE_PERSISTENT_RECURSIVE: i32 = 1;

impl Keeper {
    pub(super) fn leave_watch(&mut self, connection: ConnectionId, table: Table, path: &str) {
        if self.is_open(connection) {
            self.watches.add(table, path, connection);
            self.bound_kept();
        }
    }

    /// A null path is accepted and never fires; it is kept as the empty one, which does not
    /// either.
    pub(super) fn add_watch(
        &mut self,
        connection: ConnectionId,
        add: &AddWatch,
    ) -> Result<Body, ErrorCode> {
        let path = add.path.as_deref().unwrap_or_default();
        let open = self.is_open(connection);
        match add.mode {
            MODE_PERSISTENT if open => self.watches.add_persistent(path, connection),
            MODE_PERSISTENT_RECURSIVE if open => self.watches.add_recursive(path, connection),
            MODE_PERSISTENT | MODE_PERSISTENT_RECURSIVE => {}
            _ => return Err(ErrorCode::MarshallingError),
        }
        self.bound_kept();
        Ok(Body::Watched)
    }

    pub(super) fn check_watches(
        &self,
        connection: ConnectionId,
        selection: &WatchSelection,
    ) -> Result<Body, ErrorCode> {
        let kind = WatchKind::from_number(selection.kind).ok_or(ErrorCode::MarshallingError)?;
        let path = selection.path.as_deref().ok_or(ErrorCode::NoWatcher)?;
        let there = self.watches.contains(connection, path, kind);
        if there { Ok(Body::Empty) } else { Err(ErrorCode::NoWatcher) }
    }

    pub(super) fn remove_watches(
        &mut self,
        connection: ConnectionId,
        selection: &WatchSelection,
    ) -> Result<Body, ErrorCode> {
        let kind = WatchKind::from_number(selection.kind).ok_or(ErrorCode::MarshallingError)?;
        let path = selection.path.as_deref().ok_or(ErrorCode::NoWatcher)?;
        let there = self.watches.remove(connection, path, kind);
        if there { Ok(Body::Empty) } else { Err(ErrorCode::NoWatcher) }
    }

    /// The events that the client missed go out before the reply; what was not missed is watched
    /// again. A null list, and a null path in the first three, is an error once what stands before
    /// it has taken effect. Source: `DataTree.setWatches`.
    pub(super) fn set_watches(
        &mut self,
        connection: ConnectionId,
        set: &SetWatches,
    ) -> Result<Body, ErrorCode> {
        let seen = set.relative_zxid;
        for path in listed(set.data.as_ref())? {
            let path = path.as_ref().ok_or(ErrorCode::MarshallingError)?;
            match self.replica.tree.find(path).map(|node| node.record.modified()) {
                None => self.catch_up(connection, EventKind::NodeDeleted, path),
                Some(changed) if self.replica.offset.zxid(changed) > seen => {
                    self.catch_up(connection, EventKind::NodeDataChanged, path);
                }
                Some(_) => self.leave_watch(connection, Table::Data, path),
            }
        }
        for path in listed(set.exist.as_ref())? {
            let path = path.as_ref().ok_or(ErrorCode::MarshallingError)?;
            match self.replica.tree.find(path) {
                Some(_) => self.catch_up(connection, EventKind::NodeCreated, path),
                None => self.leave_watch(connection, Table::Data, path),
            }
        }
        for path in listed(set.child.as_ref())? {
            let path = path.as_ref().ok_or(ErrorCode::MarshallingError)?;
            if self.replica.tree.find(path).is_none() {
                self.catch_up(connection, EventKind::NodeDeleted, path);
            } else if self.replica.children_changed_since(path, seen) {
                self.catch_up(connection, EventKind::NodeChildrenChanged, path);
            } else {
                self.leave_watch(connection, Table::Child, path);
            }
        }
        for path in listed(set.persistent.as_ref())?.iter().flatten() {
            if self.is_open(connection) {
                self.watches.add_persistent(path, connection);
                self.bound_kept();
            }
        }
        for path in listed(set.persistent_recursive.as_ref())?.iter().flatten() {
            if self.is_open(connection) {
                self.watches.add_recursive(path, connection);
                self.bound_kept();
            }
        }
        Ok(Body::Empty)
    }

    fn catch_up(&mut self, connection: ConnectionId, kind: EventKind, path: &Text) {
        let event = Event { kind, path: path.clone(), zxid: Zxid::NONE };
        self.send(connection, Outgoing::Event(event));
    }

    /// Tell the watches of what a revision brought. Source: `DataTree.createNode`, `deleteNode`,
    /// `setData`.
    pub(super) fn fire(&mut self, fired: &[Fired], zxid: Zxid) {
        if self.watches.total() == 0 {
            return;
        }
        for change in fired {
            let acl = change.acl.as_deref();
            let kind = event_of(change.kind);
            match change.kind {
                StepKind::Deleted => self.watches.fire_deleted(&change.path, &mut self.fired),
                StepKind::Created | StepKind::DataChanged => {
                    self.watches.fire(Table::Data, &change.path, &mut self.fired);
                }
            }
            self.notify(kind, &change.path, zxid, acl);
            if change.kind != StepKind::DataChanged {
                let parent = path::parent_or_root(&change.path);
                self.watches.fire(Table::Child, parent, &mut self.fired);
                let acl = change.parent_acl.as_deref();
                self.notify(EventKind::NodeChildrenChanged, parent, zxid, acl);
            }
        }
    }

    /// Tell the watches of parents whose children came and went while the history was not seen.
    pub(super) fn fire_stirred(&mut self, parents: &[Path], zxid: Zxid) {
        for parent in parents {
            self.watches.fire(Table::Child, parent, &mut self.fired);
            let acl = self.replica.tree.find(parent).and_then(|node| node.record.acl().cloned());
            self.notify(EventKind::NodeChildrenChanged, parent, zxid, acl.as_deref());
        }
    }

    /// One event to all that were fired; who may not read it gets nothing.
    fn notify(&mut self, kind: EventKind, path: &str, zxid: Zxid, acl: Option<&[Acl]>) {
        if self.fired.is_empty() {
            return;
        }
        let event = Event { kind, path: Text::from(path), zxid };
        let fired = std::mem::take(&mut self.fired);
        for connection in &fired {
            if self.may_read(*connection, acl) {
                self.send(*connection, Outgoing::Event(event.clone()));
            }
        }
        self.fired = fired;
    }

    fn may_read(&self, connection: ConnectionId, acl: Option<&[Acl]>) -> bool {
        let Some(acl) = acl else { return true };
        let identities = self.connections.get(&connection).map(|open| &open.identities);
        self.settings.skip_acl
            || identities.is_some_and(|identities| acl::permits(acl, acl::perms::READ, identities))
    }
}

fn listed(list: Option<&Vec<Option<Text>>>) -> Result<&[Option<Text>], ErrorCode> {
    list.map(Vec::as_slice).ok_or(ErrorCode::MarshallingError)
}
