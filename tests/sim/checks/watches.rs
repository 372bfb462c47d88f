//! The watches of one connection as the rules have them: which events must come, in which order,
//! before which reply.

use crate::model::{Model, Told};
use std::collections::{BTreeSet, VecDeque};
use zkshim::keeper::keyspace::StepKind;
use zkshim::keeper::path;
use zkshim::keeper::request::{Event, EventKind, SetWatches};
use zkshim::keeper::zxid::{Revision, Zxid};

/// The shim dropped its tree and took a snapshot: what lies between comes as one step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reload {
    pub(crate) from: Revision,
    pub(crate) to: Revision,
}

/// See the file's text.
#[derive(Debug, Default)]
pub(crate) struct Armed {
    told_to: Revision,
    data: BTreeSet<String>,
    child: BTreeSet<String>,
    persistent: BTreeSet<String>,
    recursive: BTreeSet<String>,
    expected: VecDeque<(EventKind, String, Revision)>,
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

    /// An event has come.
    pub(crate) fn event(&mut self, model: &Model, event: &Event) -> Result<(), String> {
        if event.zxid == Zxid::NONE {
            self.caught_up.push(event.clone());
            return Ok(());
        }
        self.advance(model, Revision(event.zxid.0));
        let expected = self.expected.pop_front();
        let came = (event.kind, event.path.to_string(), Revision(event.zxid.0));
        if expected.as_ref() != Some(&came) {
            return Err(format!("event {came:?} came, expected {expected:?}"));
        }
        Ok(())
    }

    /// A reply has come: all events up to its zxid must have come before.
    pub(crate) fn reply(&mut self, model: &Model, zxid: Zxid) -> Result<(), String> {
        self.advance(model, Revision(zxid.0));
        match self.expected.front() {
            Some(missing) => Err(format!("reply with {zxid} came before event {missing:?}")),
            None => Ok(()),
        }
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
                    for told in difference(model, reload) {
                        self.fire(&told, reload.to);
                    }
                    self.told_to = reload.to;
                }
                continue;
            }
            // Nothing that a connection could be told lies between.
            self.told_to = Revision(self.told_to.0 + 1);
            for told in model.told(self.told_to) {
                self.fire(told, self.told_to);
            }
        }
    }

    /// The connection's reads begin here.
    pub(crate) fn begin(&mut self, at: Revision) {
        self.told_to = self.told_to.max(at);
    }

    fn fire(&mut self, told: &Told, revision: Revision) {
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
            self.expected.push_back((kind, path.to_owned(), revision));
        }
        if told.kind != StepKind::DataChanged {
            let parent = path::parent_or_root(path);
            if self.child.remove(parent) | self.persistent.contains(parent) {
                let kind = EventKind::NodeChildrenChanged;
                self.expected.push_back((kind, parent.to_owned(), revision));
            }
        }
    }
}

/// What a reload tells: deletions deepest first, creations from the top, then changes of data.
fn difference(model: &Model, reload: Reload) -> Vec<Told> {
    let touched: BTreeSet<&str> = model
        .moments
        .range(Revision(reload.from.0 + 1)..=reload.to)
        .flat_map(|(_, moment)| moment.told.iter().map(|told| told.path.as_str()))
        .collect();
    let (mut gone, mut born, mut changed) = (Vec::new(), Vec::new(), Vec::new());
    for path in touched {
        let stat = |at| model.stat(path, at).map(|stat| (stat.czxid, stat.mzxid));
        let told = |kind| Told { kind, path: path.to_owned() };
        match (stat(reload.from), stat(reload.to)) {
            (None, None) => {}
            (None, Some(_)) => born.push(told(StepKind::Created)),
            (Some(_), None) => gone.push(told(StepKind::Deleted)),
            (Some(was), Some(is)) if was.0 != is.0 => {
                gone.push(told(StepKind::Deleted));
                born.push(told(StepKind::Created));
            }
            (Some(was), Some(is)) if was.1 != is.1 => changed.push(told(StepKind::DataChanged)),
            (Some(_), Some(_)) => {}
        }
    }
    gone.reverse();
    gone.into_iter().chain(born).chain(changed).collect()
}

fn listed(list: &Option<Vec<Option<jute::Text>>>) -> impl Iterator<Item = &str> {
    list.iter().flatten().map(|path| path.as_deref().unwrap_or_default())
}
