//! etcd's whole history, and the tree that it means, at any revision: what the checks compare
//! with. It is derived from the keys alone, and shares only their encoding with the server.

use bytes::Bytes;
use jute::{Acl, Stat};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use zkshim::keeper::keyspace::{self, Birth, NodeValue, SessionValue, Slot, StepKind};
use zkshim::keeper::path;
use zkshim::keeper::request::SessionId;
use zkshim::keeper::tree;
use zkshim::keeper::tree::record::Kind;
use zkshim::keeper::txn::{Change, Compare, Key, KeyValue, LeaseId, RevisionChanges};
use zkshim::keeper::zxid::Revision;

/// The znodes that are there without keys, with their children.
const SYSTEM: [(&str, &[&str]); 4] = [
    ("/", &["/zookeeper"]),
    ("/zookeeper", &["/zookeeper/config", "/zookeeper/quota"]),
    ("/zookeeper/config", &[]),
    ("/zookeeper/quota", &[]),
];

/// A key from a revision on.
#[derive(Clone, Debug)]
struct Version {
    revision: Revision,
    entry: Option<KeyValue>,
    /// For `n`: when the znode's present incarnation was born.
    born: Revision,
}

/// What a watch could be told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) kind: StepKind,
    pub(crate) path: String,
    /// The znode's ACL then, if the history says it by itself.
    pub(crate) acl: Option<Vec<Acl>>,
}

/// A revision as it happened.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    pub(crate) at: Duration,
    pub(crate) changes: RevisionChanges,
    pub(crate) told: Vec<Told>,
}

/// A znode at a revision.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) value: NodeValue,
    pub(crate) born: Revision,
    pub(crate) revision: Revision,
    pub(crate) lease: LeaseId,
}

/// See the file's text.
#[derive(Debug, Default)]
pub(crate) struct Model {
    /// Hard limits of quotas hold.
    pub(crate) enforces_quotas: bool,
    pub(crate) moments: BTreeMap<Revision, Moment>,
    keys: BTreeMap<Key, Vec<Version>>,
    /// Every child that a path ever had, and from when on it was there or not.
    family: BTreeMap<String, BTreeMap<String, Vec<(Revision, bool)>>>,
    /// When a path's children came or went.
    stirred: BTreeMap<String, Vec<Revision>>,
}

impl Model {
    /// The next revision. Returns what watches could be told.
    pub(crate) fn add(&mut self, changes: &RevisionChanges, at: Duration) -> Vec<Told> {
        let revision = changes.revision;
        let mut stepped = BTreeSet::new();
        let mut steps_told = BTreeMap::new();
        for change in &changes.changes {
            let Change::Put(entry) = change else { continue };
            if let Some(slot @ Slot::Steps(..)) = Slot::parse(&entry.key) {
                let steps = keyspace::decode_steps(entry.value.clone()).expect("steps are ours");
                stepped.extend(steps.iter().map(|step| step.path.to_string()));
                steps_told.insert(slot.key(), steps);
            }
        }
        let mut told = Vec::new();
        for change in &changes.changes {
            let (key, entry) = match change {
                Change::Put(entry) => (entry.key.clone(), Some(entry.clone())),
                Change::Delete(key) => (key.clone(), None),
            };
            for step in steps_told.get(&key).into_iter().flatten() {
                let acl = step.acl.as_ref().map_or_else(tree::open_acl, |acl| acl.to_vec());
                told.push(Told { kind: step.kind, path: step.path.to_string(), acl: Some(acl) });
                if step.kind != StepKind::DataChanged {
                    self.stir(&step.path, revision);
                }
            }
            let kind = self.add_key(&key, entry, revision);
            if let (Some(kind), Some(Slot::Node(path))) = (kind, Slot::parse(&key))
                && !stepped.contains(&*path)
            {
                told.push(Told { kind, path: path.to_string(), acl: None });
            }
        }
        let moment = Moment { at, changes: changes.clone(), told: told.clone() };
        self.moments.insert(revision, moment);
        told
    }

    /// What happened to the znode, if the key is an `n`.
    fn add_key(
        &mut self,
        key: &Key,
        entry: Option<KeyValue>,
        revision: Revision,
    ) -> Option<StepKind> {
        let before = self.keys.get(key).and_then(|versions| versions.last()).cloned();
        let lived = before.as_ref().is_some_and(|version| version.entry.is_some());
        let mut born = before.map_or(Revision::NEVER, |version| version.born);
        let mut kind = None;
        if let Some(Slot::Node(path)) = Slot::parse(key) {
            let here = entry.as_ref().is_some_and(|entry| {
                NodeValue::decode(entry.value.clone()).expect("ours").birth == Birth::Here
            });
            kind = Some(match &entry {
                None => StepKind::Deleted,
                Some(_) if is_system(&path) => StepKind::DataChanged,
                Some(_) if !lived || here => StepKind::Created,
                Some(_) => StepKind::DataChanged,
            });
            if kind == Some(StepKind::Created) {
                born = revision;
            }
            let parent = path::parent_or_root(&path).to_owned();
            let siblings = self.family.entry(parent).or_default();
            let times = siblings.entry(path.to_string()).or_default();
            times.push((revision, entry.is_some()));
            if kind != Some(StepKind::DataChanged) {
                self.stir(&path, revision);
            }
        }
        self.keys.entry(key.clone()).or_default().push(Version { revision, entry, born });
        kind
    }

    fn stir(&mut self, path: &str, revision: Revision) {
        let parent = path::parent_or_root(path).to_owned();
        self.stirred.entry(parent).or_default().push(revision);
    }

    pub(crate) fn last(&self) -> Revision {
        self.moments.keys().next_back().copied().unwrap_or(Revision(1))
    }

    /// The last revision that was there at a time.
    pub(crate) fn last_at(&self, at: Duration) -> Revision {
        let before = self.moments.iter().rev().find(|(_, moment)| moment.at <= at);
        before.map_or(Revision(1), |(revision, _)| *revision)
    }

    fn version(&self, slot: &Slot, at: Revision) -> Option<&Version> {
        let versions = self.keys.get(&slot.key())?;
        let after = versions.partition_point(|version| version.revision <= at);
        versions.get(after.checked_sub(1)?)
    }

    pub(crate) fn key(&self, slot: &Slot, at: Revision) -> Option<&KeyValue> {
        self.version(slot, at)?.entry.as_ref()
    }

    /// Whether a compare held at a revision.
    pub(crate) fn holds(&self, compare: &Compare, at: Revision) -> bool {
        let find = |key: &Key| {
            let versions = self.keys.get(key)?;
            let after = versions.partition_point(|version| version.revision <= at);
            versions.get(after.checked_sub(1)?)?.entry.as_ref()
        };
        match compare {
            Compare::ModRevision(key, revision) => {
                find(key).map_or(Revision::NEVER, |entry| entry.mod_revision) == *revision
            }
            Compare::CreateRevision(key, revision) => {
                find(key).map_or(Revision::NEVER, |entry| entry.create_revision) == *revision
            }
            Compare::Lease(key, lease) => {
                find(key).map_or(LeaseId::NONE, |entry| entry.lease) == *lease
            }
            Compare::Value(key, value) => find(key).is_some_and(|entry| entry.value == *value),
        }
    }

    /// The znode's key at a revision; `None` also for a system znode that nobody has set.
    pub(crate) fn node(&self, path: &str, at: Revision) -> Option<Node> {
        let version = self.version(&Slot::Node(path.into()), at)?;
        let entry = version.entry.as_ref()?;
        Some(Node {
            value: NodeValue::decode(entry.value.clone()).expect("values are ours"),
            born: if is_system(path) { Revision::NEVER } else { version.born },
            revision: entry.mod_revision,
            lease: entry.lease,
        })
    }

    pub(crate) fn exists(&self, path: &str, at: Revision) -> bool {
        is_system(path) || self.key(&Slot::Node(path.into()), at).is_some()
    }

    /// How many children were ever created under a path.
    pub(crate) fn creates(&self, path: &str, at: Revision) -> i32 {
        let entry = self.key(&Slot::Creates(path.into()), at);
        entry.and_then(|entry| keyspace::decode_creates(entry.value.clone())).unwrap_or(0)
    }

    pub(crate) fn acl(&self, path: &str, at: Revision) -> Option<(i32, Arc<[Acl]>)> {
        let entry = self.key(&Slot::Acl(path.into()), at)?;
        keyspace::decode_acl(entry.value.clone())
    }

    /// The ACL of a znode that exists.
    pub(crate) fn permissions(&self, path: &str, at: Revision) -> Option<Vec<Acl>> {
        if !self.exists(path, at) {
            return None;
        }
        let stored = self.acl(path, at).map(|acl| acl.1.to_vec());
        let mut initial = tree::open_acl();
        if path == "/zookeeper/config" {
            initial[0].perms = 1;
        }
        Some(stored.unwrap_or(initial))
    }

    fn alive(&self, path: &str, at: Revision) -> impl Iterator<Item = &str> {
        let system = SYSTEM.iter().find(|known| known.0 == path).map_or(&[][..], |known| known.1);
        let ever = self.family.get(path).into_iter().flatten();
        let there = move |times: &[(Revision, bool)]| {
            let after = times.partition_point(|time| time.0 <= at);
            after.checked_sub(1).is_some_and(|last| times[last].1)
        };
        ever.filter(move |(child, times)| !is_system(child) && there(times))
            .map(|(child, _)| child.as_str())
            .chain(system.iter().copied())
    }

    pub(crate) fn children(&self, path: &str, at: Revision) -> Vec<String> {
        let mut children: Vec<String> = self.alive(path, at).map(str::to_owned).collect();
        children.sort_unstable();
        children
    }

    /// The last time that a child came or went, as of a revision.
    pub(crate) fn stirred(&self, path: &str, at: Revision) -> Revision {
        let Some(times) = self.stirred.get(path) else { return Revision::NEVER };
        let after = times.partition_point(|time| *time <= at);
        after.checked_sub(1).map_or(Revision::NEVER, |last| times[last])
    }

    pub(crate) fn stat(&self, path: &str, at: Revision) -> Option<Stat> {
        let blank = NodeValue {
            data: Some(Bytes::new()),
            kind: Kind::Persistent,
            ctime: 0,
            mtime: 0,
            version: 0,
            birth: Birth::Key,
        };
        let (value, born, revision) = match self.node(path, at) {
            Some(node) => (node.value, node.born, node.revision),
            None if is_system(path) => (blank, Revision::NEVER, Revision::NEVER),
            None => return None,
        };
        let children = self.alive(path, at).count() as i32;
        let initial = if path == "/zookeeper/config" { -1 } else { 0 };
        Some(Stat {
            czxid: born.0,
            mzxid: revision.0,
            ctime: value.ctime,
            mtime: value.mtime,
            version: value.version,
            cversion: self.creates(path, at) * 2 - children,
            aversion: self.acl(path, at).map_or(initial, |acl| acl.0),
            ephemeral_owner: match value.kind {
                Kind::Ephemeral(session) => session.0,
                _ => 0,
            },
            data_length: self
                .statistics(path, at)
                .or(value.data)
                .map_or(0, |data| data.len() as i32),
            num_children: children,
            pzxid: self.stirred(path, at).0.max(born.0),
        })
    }

    pub(crate) fn session(&self, session: SessionId, at: Revision) -> Option<SessionValue> {
        let entry = self.key(&Slot::Session(session), at)?;
        SessionValue::decode(entry.value.clone())
    }

    /// Every path that exists at a revision, system znodes included.
    pub(crate) fn paths(&self, at: Revision) -> Vec<String> {
        let mut paths: Vec<String> = SYSTEM.iter().map(|known| known.0.to_owned()).collect();
        for parent in self.family.keys() {
            let children = self.alive(parent, at).filter(|path| !is_system(path));
            paths.extend(children.map(str::to_owned));
        }
        paths.sort_unstable();
        paths
    }

    /// The ephemerals of a session, sorted.
    pub(crate) fn owned(&self, session: SessionId, at: Revision) -> Vec<String> {
        let owner = |path: &String| self.stat(path, at).map(|stat| stat.ephemeral_owner);
        let paths = self.paths(at).into_iter();
        paths.filter(|path| owner(path) == Some(session.0)).collect()
    }

    /// How many znodes are below a path.
    pub(crate) fn descendants(&self, path: &str, at: Revision) -> i32 {
        let below = |child: &str| 1 + self.descendants(child, at);
        self.alive(path, at).map(below).sum()
    }

    /// Every key that exists now.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &KeyValue> {
        self.keys.values().filter_map(|versions| versions.last()?.entry.as_ref())
    }

    /// What watches could be told of a revision.
    pub(crate) fn told(&self, revision: Revision) -> &[Told] {
        self.moments.get(&revision).map_or(&[], |moment| &moment.told)
    }
}

pub(crate) fn is_system(path: &str) -> bool {
    SYSTEM.iter().any(|known| known.0 == path)
}
