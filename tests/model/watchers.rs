//! Watches as one reads their rules (section 7): a list of registrations, and what a change
//! fires. A client is a number.

use std::collections::BTreeSet;

use jute::Acl;
use zkshim::keeper::request::EventKind;

use crate::zookeeper::{Told, parent, permits};

/// How a watch was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Standard,
    Persistent,
    Recursive,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Registration {
    client: usize,
    child_table: bool,
    path: String,
    mode: Mode,
}

/// A notification that a client must get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notification {
    pub(crate) client: usize,
    pub(crate) kind: EventKind,
    pub(crate) path: String,
    pub(crate) zxid: i64,
}

/// See the file's text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watchers {
    registered: Vec<Registration>,
    due: Vec<Notification>,
}

impl Watchers {
    pub(crate) fn add(&mut self, client: usize, child_table: bool, path: &str, mode: Mode) {
        let fresh = Registration { client, child_table, path: path.to_owned(), mode };
        if !self.registered.contains(&fresh) {
            self.registered.push(fresh);
        }
    }

    /// A connection is gone, and its watches with it.
    pub(crate) fn drop_client(&mut self, client: usize) {
        self.registered.retain(|known| known.client != client);
    }

    /// 7.3. `users` says what each client's connection has proved.
    pub(crate) fn tell(&mut self, told: &Told, zxid: i64, users: &[Vec<String>]) {
        let (kind, path) = (told.kind, told.path.as_str());
        let none = BTreeSet::new();
        let fired = self.fire(false, kind, path, &told.acl, &none, zxid, users);
        if kind == EventKind::NodeDeleted {
            self.fire(true, kind, path, &told.acl, &fired, zxid, users);
        }
        if kind != EventKind::NodeDataChanged {
            let kind = EventKind::NodeChildrenChanged;
            self.fire(true, kind, parent(path), &told.parent_acl, &none, zxid, users);
        }
    }

    /// 7.2.
    #[expect(clippy::too_many_arguments, reason = "it is the rule as it is written")]
    fn fire(
        &mut self,
        child_table: bool,
        kind: EventKind,
        path: &str,
        acl: &[Acl],
        skip: &BTreeSet<usize>,
        zxid: i64,
        users: &[Vec<String>],
    ) -> BTreeSet<usize> {
        let above = |ancestor: &str| {
            path != ancestor && (ancestor == "/" || path.starts_with(&format!("{ancestor}/")))
        };
        let concerns = |known: &Registration| {
            known.child_table == child_table
                && (known.path == path || (known.mode == Mode::Recursive && above(&known.path)))
        };
        let fired: BTreeSet<usize> =
            self.registered.iter().filter(|known| concerns(known)).map(|k| k.client).collect();
        self.registered.retain(|known| {
            !(known.child_table == child_table
                && known.path == path
                && known.mode == Mode::Standard)
        });
        for client in fired.difference(skip) {
            if permits(acl, 1, &users[*client]) {
                let path = path.to_owned();
                self.due.push(Notification { client: *client, kind, path, zxid });
            }
        }
        fired
    }

    /// What is due, in the order of one client.
    pub(crate) fn take(&mut self, client: usize) -> Vec<Notification> {
        let (due, others) =
            std::mem::take(&mut self.due).into_iter().partition(|due| due.client == client);
        self.due = others;
        due
    }
}
