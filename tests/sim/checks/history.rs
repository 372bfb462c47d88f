//! What must hold of etcd's history at every revision, whatever clients were told.

use crate::model::{Model, Told, is_system};
use std::collections::{BTreeMap, BTreeSet};
use zkshim::keeper::keyspace::{NodeValue, Slot, StepKind};
use zkshim::keeper::path;
use zkshim::keeper::request::SessionId;
use zkshim::keeper::tree::record::Kind;
use zkshim::keeper::txn::{Change, RevisionChanges};
use zkshim::keeper::zxid::Revision;

/// The ephemerals of the sessions, kept along.
#[derive(Debug, Default)]
pub(crate) struct History {
    owned: BTreeMap<SessionId, BTreeSet<String>>,
}

impl History {
    /// The model has the revision already.
    pub(crate) fn check(
        &mut self,
        model: &Model,
        changes: &RevisionChanges,
        told: &[Told],
    ) -> Result<(), String> {
        let revision = changes.revision;
        let mut ended = Vec::new();
        for change in &changes.changes {
            let (key, entry) = match change {
                Change::Put(entry) => (&entry.key, Some(entry)),
                Change::Delete(key) => (key, None),
            };
            match (Slot::parse(key), entry) {
                (Some(Slot::Node(path)), Some(entry)) => {
                    let value = NodeValue::decode(entry.value.clone()).ok_or("unreadable n")?;
                    self.forget(&path);
                    if let Kind::Ephemeral(owner) = value.kind {
                        self.owned.entry(owner).or_default().insert(path.to_string());
                        check_owner(model, &path, owner, revision)?;
                    }
                    check_place(model, &path, revision)?;
                }
                (Some(Slot::Node(path)), None) => {
                    self.forget(&path);
                    let orphans = model.children(&path, revision);
                    if !orphans.is_empty() && !is_system(&path) {
                        return Err(format!("{path} was deleted above {orphans:?}"));
                    }
                }
                (Some(Slot::Session(session)), None) => ended.push(session),
                _ => {}
            }
        }
        for session in ended {
            if let Some(left) = self.owned.get(&session).filter(|left| !left.is_empty()) {
                return Err(format!("{left:?} outlive session {session:?} at {revision}"));
            }
        }
        check_counters(model, told, revision)
    }

    fn forget(&mut self, path: &str) {
        for paths in self.owned.values_mut() {
            paths.remove(path);
        }
        self.owned.retain(|_, paths| !paths.is_empty());
    }
}

fn check_owner(
    model: &Model,
    path: &str,
    owner: SessionId,
    revision: Revision,
) -> Result<(), String> {
    let session = model.key(&Slot::Session(owner), revision);
    let session = session.ok_or(format!("{path} was written for a session that is gone"))?;
    let lease = model.node(path, revision).map(|node| node.lease);
    if lease != Some(session.lease) {
        return Err(format!("{path} is on {lease:?}, its session on {:?}", session.lease));
    }
    Ok(())
}

fn check_place(model: &Model, path: &str, revision: Revision) -> Result<(), String> {
    let parent = path::parent_or_root(path);
    if !model.exists(parent, revision) {
        return Err(format!("{path} was written at {revision} without a parent"));
    }
    let node = model.node(parent, revision);
    if node.is_some_and(|node| matches!(node.value.kind, Kind::Ephemeral(_))) {
        return Err(format!("{path} was created below an ephemeral"));
    }
    Ok(())
}

/// A parent's counter moves with every child that is born, a version with every change of data.
fn check_counters(model: &Model, told: &[Told], revision: Revision) -> Result<(), String> {
    let before = Revision(revision.0 - 1);
    let mut births: BTreeMap<&str, i32> = BTreeMap::new();
    let mut sets: BTreeMap<&str, i32> = BTreeMap::new();
    for told in told {
        match told.kind {
            StepKind::Created => {
                *births.entry(path::parent_or_root(&told.path)).or_default() += 1;
            }
            StepKind::DataChanged => *sets.entry(&told.path).or_default() += 1,
            StepKind::Deleted => {}
        }
    }
    let same = |path: &str| {
        let born = |at| model.node(path, at).map(|node| node.born);
        is_system(path) || (born(before).is_some() && born(before) == born(revision))
    };
    for (parent, count) in births.into_iter().filter(|(parent, _)| same(parent)) {
        let (was, is) = (model.creates(parent, before), model.creates(parent, revision));
        if is != was + count {
            return Err(format!("{parent} got {count} children; its counter went {was} to {is}"));
        }
    }
    for (path, count) in sets.into_iter().filter(|(path, _)| same(path)) {
        let version = |at| model.stat(path, at).map_or(0, |stat| stat.version);
        if version(revision) != version(before) + count {
            return Err(format!("{path} was set {count} times; its version moved otherwise"));
        }
    }
    Ok(())
}
