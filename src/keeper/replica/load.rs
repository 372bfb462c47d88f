//! The whole content at once: at the start, and when the history that was needed is gone.

use crate::keeper::keyspace::{self, LAYOUT, LAYOUT_WITHOUT_LAST, NodeValue, Slot, StepKind, own};
use crate::keeper::path;
use crate::keeper::replica::revision::{new_record, session_record};
use crate::keeper::replica::{Applied, Fired, Replica};
use crate::keeper::request::SessionId;
use crate::keeper::sessions::proof::Secret;
use crate::keeper::tree::{self, Path};
use crate::keeper::txn::{KeyValue, PastDeletions, Snapshot};
use crate::keeper::zxid::{Revision, ZxidOffset};
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;

/// Why a snapshot cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownLayout(pub u32);

impl Replica {
    /// Replace everything by a snapshot. What differs from before comes out as if it had happened
    /// in one step; on the first load, all of it is dropped by the caller, for nobody watches.
    ///
    /// # Errors
    /// If the store was written by a program with another layout; nothing is changed then.
    pub fn load(&mut self, snapshot: Snapshot) -> Result<Applied, UnknownLayout> {
        let mut fresh = Self::empty(self.shims.clone());
        let mut later: Vec<(Slot, KeyValue)> = Vec::new();
        let mut ended = Vec::new();
        for entry in snapshot.entries {
            match Slot::parse(&entry.key) {
                Some(Slot::Node(path)) => fresh.load_node(path, &entry),
                Some(Slot::Meta) => {
                    fresh.meta = entry.mod_revision;
                    if let Some((layout, offset)) = own::decode_meta(entry.value) {
                        if !matches!(layout, LAYOUT | LAYOUT_WITHOUT_LAST) {
                            return Err(UnknownLayout(layout));
                        }
                        fresh.has_meta = layout == LAYOUT;
                        fresh.offset = ZxidOffset(offset);
                    }
                }
                Some(Slot::Ended(shim)) if !self.is_own(shim) => {
                    ended.extend(own::decode_ended(entry.value).unwrap_or_default());
                }
                Some(Slot::Secret) => {
                    fresh.secret = own::decode_secret(&entry.value).map(Secret);
                }
                Some(slot) => later.push((slot, entry)),
                None => tracing::debug!(key = ?entry.key, "foreign key under the prefix"),
            }
        }
        for (slot, entry) in later {
            fresh.load_beside(slot, entry);
        }
        fresh.applied = snapshot.revision;
        fresh.uncertain_until = snapshot.revision;
        let learnt = fresh.learn(PastDeletions {
            until: snapshot.revision,
            deletions: snapshot.deletions,
            since: snapshot.deletions_since,
        });
        // Nobody has seen anything before the first load.
        let seen = self.applied != Revision::NEVER;
        let difference = if seen { self.difference(&fresh) } else { Applied::default() };
        let known = |session: &SessionId| self.spent.contains_key(session);
        let mut spent: Vec<SessionId> =
            fresh.spent.keys().copied().filter(|session| !known(session)).collect();
        spent.sort_unstable();
        let applied = Applied { learnt, spent, ended, ..difference };
        *self = fresh;
        Ok(applied)
    }

    /// Deletions before the load: when parents last lost a child, as far as no key says it.
    pub fn learn(&mut self, past: PastDeletions) -> Vec<(Path, Revision)> {
        if past.until != self.uncertain_until {
            // Of a load before the last one.
            return Vec::new();
        }
        let mut learnt = BTreeMap::new();
        for deletion in past.deletions {
            let Some(Slot::Node(path)) = Slot::parse(&deletion.key) else { continue };
            let parent = path::parent_or_root(&path);
            self.tree.update(parent, |record| {
                if deletion.revision > record.pzxid() {
                    record.raise_pzxid(deletion.revision);
                    learnt.insert(Path::from(parent), deletion.revision);
                }
            });
        }
        self.uncertain_until = past.since;
        learnt.into_iter().collect()
    }

    fn load_node(&mut self, path: Path, entry: &KeyValue) {
        let Some(value) = NodeValue::decode(entry.value.clone()) else {
            tracing::error!(%path, "value of a znode cannot be read");
            return;
        };
        let record = new_record(&path, &value, entry);
        if path::is_reserved(&path) {
            let keys = record.keys();
            self.tree.update(&path, |known| {
                known.set_times(record.ctime(), record.mtime());
                known.data = record.data;
                known.version = record.version;
                known.change_keys(|known| *known = keys);
            });
        } else {
            self.insert(path, record, Revision::NEVER);
        }
    }

    fn load_beside(&mut self, slot: Slot, entry: KeyValue) {
        match slot {
            Slot::Creates(path) => self.put_creates(&path, &entry),
            Slot::Pzxid(path) => self.put_pzxid(&path, &entry),
            Slot::Acl(path) => {
                let Some((aversion, acl)) = keyspace::decode_acl(entry.value) else {
                    tracing::error!(%path, "ACL of a znode cannot be read");
                    return;
                };
                self.tree.update(&path, |record| {
                    let acl = (!tree::is_open(&acl)).then_some(acl);
                    record.set_acl(acl, aversion, entry.mod_revision);
                });
            }
            Slot::Session(session) => {
                if let Some(record) = session_record(&entry) {
                    self.sessions.insert(session, record);
                }
            }
            Slot::Claim(slot, shim) => self.put_claim(&slot, shim, entry.create_revision),
            Slot::Last => self.last = own::decode_last(entry.value),
            Slot::Spent(session) => {
                self.spent.insert(session, entry.mod_revision);
            }
            Slot::Node(_)
            | Slot::Steps(..)
            | Slot::Batch(_)
            | Slot::Ended(_)
            | Slot::Secret
            | Slot::Meta => {}
        }
    }

    /// What must be told to somebody who knew `self` and now gets `fresh`: deletions deepest
    /// first, then creations from the top, then changes of data, then of children that nobody
    /// has seen.
    fn difference(&self, fresh: &Self) -> Applied {
        let mut applied = Applied::default();
        for session in self.sessions.keys().chain(fresh.sessions.keys()) {
            if self.sessions.get(session) != fresh.sessions.get(session) {
                applied.sessions.push(*session);
            }
        }
        applied.sessions.sort_unstable();
        applied.sessions.dedup();
        let incarnation = |path: &str| self.tree.find(path).map(|node| node.record.created());
        let mut gone: Vec<Path> = Vec::new();
        let mut changed: Vec<Path> = Vec::new();
        let mut stirred: Vec<Path> = Vec::new();
        for (path, node) in self.tree.iter() {
            let before = &node.record;
            match fresh.tree.find(&path).map(|node| &node.record) {
                Some(now) if now.created() == before.created() => {
                    // No child comes without being counted, nor goes unless it came.
                    if now.creates() != before.creates() {
                        stirred.push(path.clone());
                    }
                    if now.modified() != before.modified() {
                        changed.push(path);
                    }
                }
                _ => gone.push(path),
            }
        }
        let mut born: Vec<Path> = fresh
            .tree
            .iter()
            .filter(|(path, node)| incarnation(path) != Some(node.record.created()))
            .map(|(path, _)| path)
            .collect();
        gone.sort_unstable_by(|a, b| b.cmp(a));
        born.sort_unstable();
        changed.sort_unstable();
        let told: FxHashSet<&str> =
            gone.iter().chain(&born).map(|path| path::parent_or_root(path)).collect();
        stirred.retain(|path| !told.contains(&**path));
        stirred.sort_unstable();
        applied.stirred = stirred;
        let tell = |replica: &Self, kind, paths: Vec<Path>| -> Vec<Fired> {
            paths.into_iter().map(|path| replica.fired(kind, path)).collect()
        };
        applied.fired = tell(self, StepKind::Deleted, gone);
        applied.fired.extend(tell(fresh, StepKind::Created, born));
        applied.fired.extend(tell(fresh, StepKind::DataChanged, changed));
        applied
    }
}
