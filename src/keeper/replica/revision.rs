//! One revision, applied whole.

use crate::keeper::keyspace::{
    self, Birth, LAYOUT, NodeValue, SessionValue, ShimId, Slot, Step, StepKind, own,
};
use crate::keeper::path;
use crate::keeper::replica::{Applied, Fired, Replica, SessionRecord};
use crate::keeper::request::Data;
use crate::keeper::sessions::proof::Secret;
use crate::keeper::tree::record::Record;
use crate::keeper::tree::{self, Path, Tree};
use crate::keeper::txn::{Change, KeyValue, RevisionChanges};
use crate::keeper::zxid::{Revision, ZxidOffset};
use jute::Acl;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// What is remembered while the changes of one revision are gone through.
#[derive(Default)]
struct Pass {
    applied: Applied,
    /// ACLs of znodes whose own change is yet to come.
    acls: FxHashMap<Path, (i32, Arc<[Acl]>)>,
    /// Keys that went beside their znode, or without it.
    lost: Vec<Slot>,
    /// Parents whose `p` was written.
    written_down: FxHashSet<Path>,
    /// The multis whose events come from their steps, in order.
    stepped: Vec<Stepped>,
    /// Which of them a znode belongs to: one at most, for no two requests of a revision write a
    /// znode.
    of_path: FxHashMap<Path, usize>,
}

/// A multi that changes a znode more than once.
#[derive(Default)]
struct Stepped {
    slot: Option<Slot>,
    steps: Vec<Step>,
    /// The net changes of its znodes, taken out of their order; none once they are made.
    changes: Vec<(Slot, Option<KeyValue>)>,
}

impl Replica {
    /// Apply a revision. One that is applied already changes nothing.
    pub fn apply(&mut self, changes: RevisionChanges) -> Applied {
        let revision = changes.revision;
        if revision <= self.applied {
            return Applied::default();
        }
        let mut pass = Pass::default();
        note_steps(&changes, &mut pass);
        for change in changes.changes {
            let (key, put) = match change {
                Change::Put(entry) => (entry.key.clone(), Some(entry)),
                Change::Delete(key) => (key, None),
            };
            match Slot::parse(&key) {
                Some(slot) => self.apply_key(slot, put, revision, &mut pass),
                None => tracing::debug!(?key, "foreign key under the prefix"),
            }
        }
        self.forget_lost(revision, &pass.lost);
        self.applied = revision;
        let mut applied = pass.applied;
        let mut told = pass.written_down;
        applied.bereft.retain(|parent| told.insert(parent.clone()));
        applied
    }

    fn apply_key(
        &mut self,
        slot: Slot,
        put: Option<KeyValue>,
        revision: Revision,
        pass: &mut Pass,
    ) {
        if let Some(index) = pass.of_path_of(&slot) {
            if let Slot::Node(path) = &slot {
                if put.is_none() {
                    pass.bereft(path::parent_or_root(path));
                }
                self.make_stepped(index, revision, pass);
            }
            return;
        }
        match (slot, put) {
            (Slot::Node(path), Some(entry)) => self.put_node(path, entry, pass),
            (Slot::Node(path), None) => self.delete_node(&path, revision, pass),
            (Slot::Acl(path), Some(entry)) => self.put_acl(path, entry, pass),
            (Slot::Creates(path), Some(entry)) => self.put_creates(&path, &entry),
            (Slot::Pzxid(path), Some(entry)) => {
                self.put_pzxid(&path, &entry);
                pass.written_down.insert(path);
            }
            (slot @ (Slot::Acl(_) | Slot::Creates(_) | Slot::Pzxid(_)), None) => {
                pass.lost.push(slot);
            }
            (Slot::Session(session), put) => {
                let record = put.and_then(|entry| session_record(&entry));
                match record {
                    Some(record) => self.sessions.insert(session, record),
                    None => self.sessions.remove(&session),
                };
                pass.applied.sessions.push(session);
            }
            (Slot::Spent(session), Some(entry)) => {
                self.spent.insert(session, entry.mod_revision);
                pass.applied.spent.push(session);
            }
            (Slot::Spent(session), None) => {
                self.spent.remove(&session);
            }
            (Slot::Batch(shim), Some(entry)) if self.is_own(shim) => {
                pass.applied.batches.extend(own::decode_number(entry.value));
            }
            (Slot::Last, put) => {
                self.last = put.and_then(|entry| own::decode_last(entry.value));
                pass.applied.by_another |= self.last.is_some_and(|(shim, _)| !self.is_own(shim));
            }
            (slot @ Slot::Steps(..), Some(_)) => self.tell_steps(&slot, pass),
            (Slot::Claim(slot, shim), Some(entry)) => {
                self.put_claim(&slot, shim, entry.create_revision);
                pass.applied.claimed.push((*slot, shim));
            }
            (Slot::Claim(slot, shim), None) => {
                pass.applied.released |= self.drop_claim(&slot, shim);
            }
            (Slot::Meta, Some(entry)) => self.put_meta(entry),
            (Slot::Secret, Some(entry)) => {
                self.secret = own::decode_secret(&entry.value).map(Secret);
            }
            (Slot::Ended(shim), Some(entry)) if !self.is_own(shim) => {
                pass.applied.ended.extend(own::decode_ended(entry.value).unwrap_or_default());
            }
            (Slot::Batch(_) | Slot::Steps(..) | Slot::Ended(_) | Slot::Secret | Slot::Meta, _) => {}
        }
    }

    /// The net result of a multi with steps, where its first znode stands among the changes: what
    /// earlier requests made is there, and the order among its own znodes is found anew, for a
    /// key that is written twice stands where it was written first.
    fn make_stepped(&mut self, index: usize, revision: Revision, pass: &mut Pass) {
        let Some(stepped) = pass.stepped.get_mut(index) else { return };
        let changes = std::mem::take(&mut stepped.changes);
        let mut gone: Vec<&Path> = Vec::new();
        let mut put: Vec<(&Path, &KeyValue)> = Vec::new();
        for (slot, entry) in &changes {
            let Slot::Node(path) = slot else { continue };
            match entry {
                None => gone.push(path),
                Some(entry) => {
                    if self.is_birth(path, entry) && self.tree.find(path).is_some() {
                        gone.push(path);
                    }
                    put.push((path, entry));
                }
            }
        }
        // A descendant's path is longer than its ancestor's.
        gone.sort_by_key(|path| std::cmp::Reverse(path.len()));
        put.sort_by_key(|(path, _)| path.len());
        for path in gone {
            self.remove(path, revision);
        }
        for (path, entry) in put {
            self.place(path.clone(), entry, None);
        }
        for (slot, entry) in changes {
            match (slot, entry) {
                (Slot::Node(_), _) => {}
                (Slot::Acl(path), Some(entry)) => self.put_acl(path, entry, pass),
                (Slot::Creates(path), Some(entry)) => self.put_creates(&path, &entry),
                (Slot::Pzxid(path), Some(entry)) => {
                    self.put_pzxid(&path, &entry);
                    pass.written_down.insert(path);
                }
                (slot, _) => pass.lost.push(slot),
            }
        }
    }

    fn put_meta(&mut self, entry: KeyValue) {
        self.meta = entry.mod_revision;
        if let Some((layout, offset)) = own::decode_meta(entry.value) {
            self.has_meta = layout == LAYOUT;
            self.offset = ZxidOffset(offset);
        }
    }

    fn tell_steps(&self, slot: &Slot, pass: &mut Pass) {
        let told = pass.stepped.iter().find(|stepped| stepped.slot.as_ref() == Some(slot));
        let steps = told.map(|stepped| stepped.steps.as_slice()).unwrap_or_default();
        pass.applied.fired.extend(steps.iter().map(|step| self.fired_step(step)));
    }

    fn put_node(&mut self, path: Path, entry: KeyValue, pass: &mut Pass) {
        let born = self.is_birth(&path, &entry);
        let acl = pass.acls.remove(&path);
        if !self.place(path.clone(), &entry, acl) {
            return;
        }
        let kind = if born { StepKind::Created } else { StepKind::DataChanged };
        let fired = self.fired(kind, path);
        pass.applied.fired.push(fired);
    }

    fn is_birth(&self, path: &str, entry: &KeyValue) -> bool {
        let Some(node) = self.tree.find(path) else { return true };
        if path::is_reserved(path) {
            return false;
        }
        let known = node.record.keys().node_created;
        let here = NodeValue::decode(entry.value.clone());
        known != entry.create_revision || here.is_some_and(|value| value.birth == Birth::Here)
    }

    /// Put a znode's new state into the tree. `false` if it cannot be understood.
    fn place(&mut self, path: Path, entry: &KeyValue, acl: Option<(i32, Arc<[Acl]>)>) -> bool {
        let Some(value) = NodeValue::decode(entry.value.clone()) else {
            tracing::error!(%path, "value of a znode cannot be read");
            return false;
        };
        if self.is_birth(&path, entry) {
            self.remove(&path, entry.mod_revision);
            let mut record = new_record(&path, &value, entry);
            if let Some((aversion, acl)) = acl {
                let acl = (!tree::is_open(&acl)).then_some(acl);
                record.set_acl(acl, aversion, entry.mod_revision);
            }
            return self.insert(path, record, entry.mod_revision);
        }
        self.tree.update(&path, |record| {
            record.data = value.data.as_deref().map(Data::from);
            record.set_times(value.ctime, value.mtime);
            record.version = value.version;
            record.change_keys(|keys| {
                keys.node = entry.mod_revision;
                keys.node_created = entry.create_revision;
                keys.lease = entry.lease;
            });
        })
    }

    /// Insert a znode; without its parent it is left out, for then somebody else has changed the
    /// store.
    pub(super) fn insert(&mut self, path: Path, record: Record, revision: Revision) -> bool {
        let parent = path::parent_or_root(&path);
        if self.tree.find(parent).is_none() || parent == &*path {
            tracing::error!(%path, "znode without a parent in the store");
            return false;
        }
        self.tree.update(parent, |parent| parent.raise_pzxid(revision));
        self.tree.insert(&path, record);
        true
    }

    fn delete_node(&mut self, path: &Path, revision: Revision, pass: &mut Pass) {
        // A session may end with a hundred thousand ephemerals: nothing is looked up in vain.
        let Some(node) = self.tree.find(path) else { return };
        if path::is_reserved(path) {
            self.reset_node(path, pass);
            return;
        }
        let (acl, has_children) = (node.record.acl().cloned(), node.record.children() > 0);
        if has_children {
            // There is something below only if somebody else has changed the store.
            while let Some(child) = self.first_child(path) {
                self.delete_node(&child, revision, pass);
            }
        }
        let parent = path::parent_or_root(path);
        let parent_acl = self.tree.find(parent).and_then(|node| node.record.acl().cloned());
        let fired = Fired { kind: StepKind::Deleted, acl, parent_acl, path: path.clone() };
        self.take_out(path, revision);
        pass.applied.fired.push(fired);
        pass.bereft(parent);
    }

    /// Somebody else has deleted the key of a znode that is always there: it is as at the start.
    fn reset_node(&mut self, path: &Path, pass: &mut Pass) {
        let fresh = Tree::new();
        let Some(initial) = fresh.find(path).map(|node| node.record.clone()) else { return };
        self.tree.update(path, |record| {
            record.set_times(initial.ctime(), initial.mtime());
            record.data = initial.data;
            record.version = initial.version;
            record.change_keys(|keys| {
                keys.node = Revision::NEVER;
                keys.node_created = Revision::NEVER;
            });
        });
        let fired = self.fired(StepKind::DataChanged, path.clone());
        pass.applied.fired.push(fired);
    }

    fn first_child(&self, path: &str) -> Option<Path> {
        self.tree.children(path).next()
    }

    /// Take a znode out, and what is below it: there is something only if somebody else has
    /// changed the store.
    fn remove(&mut self, path: &str, revision: Revision) {
        while let Some(child) = self.first_child(path) {
            tracing::error!(%child, "znode below one that is deleted");
            self.remove(&child, revision);
        }
        self.take_out(path, revision);
    }

    /// Take a znode out that has no children.
    fn take_out(&mut self, path: &str, revision: Revision) {
        if self.tree.remove(path).is_some() {
            let parent = path::parent_or_root(path);
            self.tree.update(parent, |parent| parent.raise_pzxid(revision));
        }
    }

    fn put_acl(&mut self, path: Path, entry: KeyValue, pass: &mut Pass) {
        let revision = entry.mod_revision;
        let Some((aversion, acl)) = keyspace::decode_acl(entry.value) else {
            tracing::error!(%path, "ACL of a znode cannot be read");
            return;
        };
        let stored = (!tree::is_open(&acl)).then(|| acl.clone());
        let known = self.tree.update(&path, |record| {
            record.set_acl(stored, aversion, revision);
        });
        if !known {
            pass.acls.insert(path, (aversion, acl));
        }
    }

    pub(super) fn put_creates(&mut self, path: &str, entry: &KeyValue) {
        let Some(creates) = keyspace::decode_creates(entry.value.clone()) else { return };
        self.tree.update(path, |record| {
            record.more().creates = creates;
            record.change_keys(|keys| keys.creates = entry.mod_revision);
            record.raise_pzxid(entry.mod_revision);
        });
    }

    pub(super) fn put_pzxid(&mut self, path: &str, entry: &KeyValue) {
        let Some(written) = keyspace::decode_pzxid(entry.value.clone()) else { return };
        self.tree.update(path, |record| {
            record.change_keys(|keys| keys.pzxid = entry.mod_revision);
            record.raise_pzxid(written.unwrap_or(entry.mod_revision));
        });
    }

    /// Keys that went while their znode stayed, as after a re-creation.
    fn forget_lost(&mut self, revision: Revision, lost: &[Slot]) {
        for slot in lost {
            match slot {
                Slot::Acl(path) => {
                    let (acl, aversion) = initial_acl(path);
                    self.tree.update(path, |record| {
                        if record.keys().acl != revision {
                            record.set_acl(acl, aversion, Revision::NEVER);
                        }
                    })
                }
                Slot::Creates(path) => self.tree.update(path, |record| {
                    if record.keys().creates != revision {
                        record.change_keys(|keys| keys.creates = Revision::NEVER);
                        record.more().creates = 0;
                    }
                }),
                Slot::Pzxid(path) => self.tree.update(path, |record| {
                    if record.keys().pzxid != revision {
                        record.change_keys(|keys| keys.pzxid = Revision::NEVER);
                    }
                }),
                _ => false,
            };
        }
    }

    pub(super) fn put_claim(&mut self, slot: &Slot, shim: ShimId, created: Revision) {
        self.claims.entry(slot.clone()).or_default().insert(shim, created);
    }

    fn drop_claim(&mut self, slot: &Slot, shim: ShimId) -> bool {
        let Some(claims) = self.claims.get_mut(slot) else { return false };
        let dropped = claims.remove(&shim).is_some();
        if claims.is_empty() {
            self.claims.remove(slot);
        }
        dropped
    }

    pub(super) fn fired(&self, kind: StepKind, path: Path) -> Fired {
        let acl = |path: &str| self.tree.find(path).and_then(|node| node.record.acl().cloned());
        let parent_acl = acl(path::parent_or_root(&path));
        Fired { kind, acl: acl(&path), parent_acl, path }
    }

    fn fired_step(&self, step: &Step) -> Fired {
        let parent = self.tree.find(path::parent_or_root(&step.path));
        let parent_acl = parent.and_then(|node| node.record.acl().cloned());
        Fired { kind: step.kind, path: step.path.clone(), acl: step.acl.clone(), parent_acl }
    }
}

impl Pass {
    /// A parent has lost a child. One that has lost thousands often stands here once already.
    fn bereft(&mut self, parent: &str) {
        if self.applied.bereft.last().is_none_or(|last| **last != *parent) {
            self.applied.bereft.push(parent.into());
        }
    }

    /// The multi whose znode a key belongs to.
    fn of_path_of(&self, slot: &Slot) -> Option<usize> {
        let path = znode_of(slot).filter(|_| !self.of_path.is_empty())?;
        self.of_path.get(path).copied()
    }
}

/// Find the multis with steps, and take the changes of their znodes together.
fn note_steps(changes: &RevisionChanges, pass: &mut Pass) {
    for change in &changes.changes {
        let Change::Put(entry) = change else { continue };
        if !entry.key.starts_with(b"x") {
            continue;
        }
        let Some(slot @ Slot::Steps(..)) = Slot::parse(&entry.key) else { continue };
        let steps = keyspace::decode_steps(entry.value.clone()).unwrap_or_default();
        let index = pass.stepped.len();
        pass.of_path.extend(steps.iter().map(|step| (step.path.clone(), index)));
        pass.stepped.push(Stepped { slot: Some(slot), steps, changes: Vec::new() });
    }
    if pass.stepped.is_empty() {
        return;
    }
    for change in &changes.changes {
        let (key, put) = match change {
            Change::Put(entry) => (&entry.key, Some(entry.clone())),
            Change::Delete(key) => (key, None),
        };
        let Some(slot) = Slot::parse(key) else { continue };
        if let Some(index) = pass.of_path_of(&slot) {
            pass.stepped[index].changes.push((slot, put));
        }
    }
}

/// What a znode without an `a` key has.
fn initial_acl(path: &str) -> (Option<Arc<[Acl]>>, i32) {
    if !path::is_reserved(path) {
        return (None, 0);
    }
    let fresh = Tree::new();
    fresh.find(path).map_or((None, 0), |node| (node.record.acl().cloned(), node.record.aversion()))
}

fn znode_of(slot: &Slot) -> Option<&Path> {
    match slot {
        Slot::Node(path) | Slot::Creates(path) | Slot::Acl(path) | Slot::Pzxid(path) => Some(path),
        _ => None,
    }
}

pub(super) fn session_record(entry: &KeyValue) -> Option<SessionRecord> {
    let value = SessionValue::decode(entry.value.clone());
    if value.is_none() {
        tracing::error!(key = ?entry.key, "session cannot be read");
    }
    Some(SessionRecord { value: value?, revision: entry.mod_revision, lease: entry.lease })
}

/// A znode that is new to the tree.
pub(super) fn new_record(path: &str, value: &NodeValue, entry: &KeyValue) -> Record {
    let created = match value.birth {
        _ if path::is_reserved(path) => Revision::NEVER,
        Birth::Key => entry.create_revision,
        Birth::Here => entry.mod_revision,
        Birth::At(revision) => revision,
    };
    let mut record = Record::born(value.kind, created);
    record.data = value.data.as_deref().map(Data::from);
    record.set_times(value.ctime, value.mtime);
    record.version = value.version;
    record.change_keys(|keys| {
        keys.node_created = entry.create_revision;
        keys.node = entry.mod_revision;
        keys.lease = entry.lease;
    });
    record
}
