//! The watches of one connection as the rules have them: which events must come, in which order,
//! before which reply.

use crate::model::{Model, Told};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use zkshim::keeper::acl::{self, Identity, perms};
use zkshim::keeper::keyspace::StepKind;
use zkshim::keeper::path;
use zkshim::keeper::request::{Event, EventKind, SetWatches};
use zkshim::keeper::watches::WatchKind;
use zkshim::keeper::zxid::{Revision, Zxid};

/// The shim dropped its tree and took a snapshot: what lies between comes as one step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reload {
    pub(crate) from: Revision,
    pub(crate) to: Revision,
}

/// An event that must come.
#[derive(Debug)]
struct Expected {
    kind: EventKind,
    path: String,
    revision: Revision,
    /// The ACL changed in the same revision, so that it may as well not be for this client.
    optional: bool,
}

/// See the file's text.
#[derive(Debug, Default)]
pub(crate) struct Armed {
    told_to: Revision,
    data: BTreeSet<String>,
    child: BTreeSet<String>,
    persistent: BTreeSet<String>,
    recursive: BTreeSet<String>,
    expected: VecDeque<Expected>,
    /// Who the connection is to its shim, and from which revision of the shim's tree on.
    identities: Vec<(Revision, Arc<[Identity]>)>,
    pub(crate) reloads: VecDeque<Reload>,
    /// Events that answer a setWatches, until its reply.
    caught_up: Vec<Event>,
}

impl Armed {
    pub(crate) fn data(&mut self, path: &str) {
        self.data.insert(path.to_owned());
    }

    pub(crate) fn child(&mut self, path: &str) {
        self.child.insert(path.to_owned());
    }

    pub(crate) fn persistent(&mut self, path: &str, recursive: bool) {
        let kind = if recursive { &mut self.recursive } else { &mut self.persistent };
        kind.insert(path.to_owned());
    }

    /// The shim, whose tree is at a revision, knows from now on who the connection is.
    pub(crate) fn identified(&mut self, after: Revision, identities: Arc<[Identity]>) {
        self.identities.push((after, identities));
    }

    /// An event has come.
    pub(crate) fn event(&mut self, model: &Model, event: &Event) -> Result<(), String> {
        if event.zxid == Zxid::NONE {
            self.caught_up.push(event.clone());
            return Ok(());
        }
        let revision = Revision(event.zxid.0);
        self.advance(model, revision);
        loop {
            let expected = self.expected.pop_front();
            let same = expected.as_ref().is_some_and(|expected| {
                expected.kind == event.kind
                    && *expected.path == *event.path
                    && expected.revision == revision
            });
            if same {
                return Ok(());
            }
            if !expected.as_ref().is_some_and(|expected| expected.optional) {
                return Err(format!("event {event:?} came, expected {expected:?}"));
            }
        }
    }

    /// A reply has come: all events up to its zxid must have come before.
    pub(crate) fn reply(&mut self, model: &Model, zxid: Zxid) -> Result<(), String> {
        self.advance(model, Revision(zxid.0));
        self.expected.retain(|expected| !expected.optional);
        match self.expected.front() {
            Some(missing) => Err(format!("reply with {zxid} came before event {missing:?}")),
            None => Ok(()),
        }
    }

    /// Whether such a watch is there.
    pub(crate) fn contains(&self, path: &str, kind: WatchKind) -> bool {
        match kind {
            WatchKind::Children => self.child.contains(path),
            WatchKind::Data => self.data.contains(path),
            WatchKind::Persistent => self.persistent.contains(path),
            WatchKind::Recursive => self.recursive.contains(path),
            WatchKind::Any => [&self.child, &self.data, &self.persistent, &self.recursive]
                .iter()
                .any(|paths| paths.contains(path)),
        }
    }

    /// Takes such watches away. Says whether one was there.
    pub(crate) fn remove(&mut self, path: &str, kind: WatchKind) -> bool {
        let was_there = self.contains(path, kind);
        let tables = [
            (WatchKind::Children, &mut self.child),
            (WatchKind::Data, &mut self.data),
            (WatchKind::Persistent, &mut self.persistent),
            (WatchKind::Recursive, &mut self.recursive),
        ];
        for (table, paths) in tables {
            if kind == table || kind == WatchKind::Any {
                paths.remove(path);
            }
        }
        was_there
    }

    /// The reply to a setWatches that told `seen` has come at a revision.
    pub(crate) fn set_watches(
        &mut self,
        model: &Model,
        set: &SetWatches,
        at: Revision,
        uncertain: Revision,
    ) -> Result<(), String> {
        let seen = Revision(set.relative_zxid.0);
        let mut came: VecDeque<Event> = std::mem::take(&mut self.caught_up).into();
        let mut take = |kind: EventKind, path: &str| {
            let hit = came.front().is_some_and(|event| event.kind == kind && &*event.path == path);
            hit && came.pop_front().is_some()
        };
        for path in listed(&set.data) {
            let kind = match model.stat(path, at) {
                None => Some(EventKind::NodeDeleted),
                Some(stat) if stat.mzxid > seen.0 => Some(EventKind::NodeDataChanged),
                Some(_) => None,
            };
            match kind {
                Some(kind) if !take(kind, path) => return Err(format!("no {kind:?} of {path}")),
                Some(_) => {}
                None => self.data(path),
            }
        }
        for path in listed(&set.exist) {
            match model.exists(path, at) {
                true if !take(EventKind::NodeCreated, path) => {
                    return Err(format!("no NodeCreated of {path}"));
                }
                true => {}
                false => self.data(path),
            }
        }
        for path in listed(&set.child) {
            let (changed, kind) = match model.stat(path, at) {
                None => (true, EventKind::NodeDeleted),
                Some(stat) => (stat.pzxid > seen.0, EventKind::NodeChildrenChanged),
            };
            let fired = take(kind, path);
            if changed && !fired {
                return Err(format!("no {kind:?} of {path} by setWatches"));
            }
            if fired && !changed && seen >= uncertain {
                return Err(format!("{kind:?} of {path}, where nothing changed after {seen}"));
            }
            if !fired {
                self.child(path);
            }
        }
        for (list, recursive) in [(&set.persistent, false), (&set.persistent_recursive, true)] {
            listed(list).for_each(|path| self.persistent(path, recursive));
        }
        match came.front() {
            Some(event) => Err(format!("setWatches was answered by {event:?} too")),
            None => Ok(()),
        }
    }

    fn advance(&mut self, model: &Model, to: Revision) {
        while self.told_to < to {
            if let Some(reload) = self.reloads.front().copied()
                && reload.from <= self.told_to
            {
                self.reloads.pop_front();
                if reload.to > self.told_to {
                    let (told, stirred) = difference(model, reload);
                    for told in told {
                        self.fire(model, &told, reload);
                    }
                    for parent in stirred {
                        self.fire_child(model, &parent, reload);
                    }
                    self.told_to = reload.to;
                }
                continue;
            }
            // Nothing that a connection could be told lies between.
            let step = Reload { from: self.told_to, to: Revision(self.told_to.0 + 1) };
            self.told_to = step.to;
            for told in model.told(step.to) {
                self.fire(model, told, step);
            }
        }
    }

    /// The connection's reads begin here.
    pub(crate) fn begin(&mut self, at: Revision) {
        self.told_to = self.told_to.max(at);
    }

    fn fire(&mut self, model: &Model, told: &Told, step: Reload) {
        let path = told.path.as_str();
        let kind = match told.kind {
            StepKind::Created => EventKind::NodeCreated,
            StepKind::Deleted => EventKind::NodeDeleted,
            StepKind::DataChanged => EventKind::NodeDataChanged,
        };
        let mut hit = self.data.remove(path)
            | self.persistent.contains(path)
            | self.recursive.contains(path)
            | path::ancestors(path).any(|above| self.recursive.contains(above));
        if told.kind == StepKind::Deleted {
            hit |= self.child.remove(path);
        }
        if hit {
            self.expect(model, kind, path, told.acl.as_deref(), step);
        }
        if told.kind != StepKind::DataChanged {
            self.fire_child(model, path::parent_or_root(path), step);
        }
    }

    fn fire_child(&mut self, model: &Model, parent: &str, step: Reload) {
        if self.child.remove(parent) | self.persistent.contains(parent) {
            self.expect(model, EventKind::NodeChildrenChanged, parent, None, step);
        }
    }

    /// An event for who may read the znode: by the ACL that it had when the change was made, which
    /// is the one before it or the one after.
    fn expect(
        &mut self,
        model: &Model,
        kind: EventKind,
        path: &str,
        known: Option<&[jute::Acl]>,
        step: Reload,
    ) {
        let who = self.identities.iter().rev().find(|(after, _)| *after < step.to);
        let who = who.map_or(&[][..], |(_, who)| who);
        let mut verdicts = BTreeSet::new();
        if let Some(acl) = known {
            verdicts.insert(acl::permits(acl, perms::READ, who));
        } else {
            for at in [step.from, step.to] {
                let acl = model.permissions(path, at);
                verdicts.extend(acl.map(|acl| acl::permits(&acl, perms::READ, who)));
            }
            let changed = model.acl(path, step.to).is_some_and(|(aversion, _)| aversion > 0);
            if changed && !model.exists(path, step.from) {
                // Born with another ACL than the one that the revision leaves.
                verdicts.extend([false, true]);
            }
        }
        if verdicts.iter().eq([&false]) {
            return;
        }
        let (optional, path) = (verdicts.len() > 1, path.to_owned());
        self.expected.push_back(Expected { kind, path, revision: step.to, optional });
    }
}

/// What a reload tells: deletions deepest first, creations from the top, then changes of data; and
/// the parents whose children came and went meanwhile.
fn difference(model: &Model, reload: Reload) -> (Vec<Told>, Vec<String>) {
    let touched: BTreeSet<&str> = model
        .moments
        .range(Revision(reload.from.0 + 1)..=reload.to)
        .flat_map(|(_, moment)| moment.told.iter().map(|told| told.path.as_str()))
        .collect();
    let (mut gone, mut born_now, mut changed) = (Vec::new(), Vec::new(), Vec::new());
    for &path in &touched {
        let stat = |at| model.stat(path, at).map(|stat| (stat.czxid, stat.mzxid));
        let told = |kind| Told { kind, path: path.to_owned(), acl: None };
        match (stat(reload.from), stat(reload.to)) {
            (None, None) => {}
            (None, Some(_)) => born_now.push(told(StepKind::Created)),
            (Some(_), None) => gone.push(told(StepKind::Deleted)),
            (Some(was), Some(is)) if was.0 != is.0 => {
                gone.push(told(StepKind::Deleted));
                born_now.push(told(StepKind::Created));
            }
            (Some(was), Some(is)) if was.1 != is.1 => changed.push(told(StepKind::DataChanged)),
            (Some(_), Some(_)) => {}
        }
    }
    gone.reverse();
    let parents = touched.iter().map(|path| path::parent_or_root(path)).collect::<BTreeSet<_>>();
    let stirred = parents.into_iter().filter(|parent| {
        let born = |at| model.stat(parent, at).map(|stat| stat.czxid);
        let same = born(reload.from).is_some() && born(reload.from) == born(reload.to);
        let told = |told: &Told| path::parent_or_root(&told.path) == *parent;
        same && model.creates(parent, reload.from) != model.creates(parent, reload.to)
            && !gone.iter().chain(&born_now).any(told)
    });
    let stirred = stirred.map(str::to_owned).collect();
    (gone.iter().chain(&born_now).chain(&changed).cloned().collect(), stirred)
}

fn listed(list: &Option<Vec<Option<jute::Text>>>) -> impl Iterator<Item = &str> {
    list.iter().flatten().map(|path| path.as_deref().unwrap_or_default())
}
