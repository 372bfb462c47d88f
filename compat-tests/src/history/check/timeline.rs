//! What is certain about the past: which change of which znode had which zxid, by what clients
//! were told. Reads name the zxid of the state that they show, so they can be held against it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Included, Unbounded};

use crate::history::check::facts::{Facts, Operation};
use crate::history::check::znodes::parent;
use crate::history::record::{Answer, Request, Stat};

/// What a change did to a znode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Change {
    /// It came.
    Created,
    /// It has other data.
    Set,
    /// It went.
    Deleted,
}

/// A znode that came or went.
pub(crate) type Moment<'a> = (&'a str, Change);

/// See the file's text.
#[derive(Debug, Default)]
pub(crate) struct Timeline<'a> {
    changes: BTreeMap<&'a str, BTreeMap<i64, Change>>,
    /// Children that came and went, by parent and zxid.
    pub(crate) children: BTreeMap<&'a str, BTreeMap<i64, Vec<Moment<'a>>>>,
    /// Changes of these may have happened that nobody was told of: an answer was lost, or the
    /// end of a session deletes them.
    uncertain: BTreeSet<&'a str>,
    /// These may have come or gone so.
    fleeting: BTreeSet<&'a str>,
    /// Their parents.
    unsure: BTreeSet<&'a str>,
    /// It is known when these came.
    born: BTreeSet<&'a str>,
    /// Parents of sequential znodes of which nobody was told the names.
    unnamed: BTreeSet<&'a str>,
}

impl<'a> Timeline<'a> {
    pub(crate) fn of(facts: &Facts<'a>) -> Self {
        let mut timeline = Self::default();
        for operation in &facts.operations {
            timeline.operation(operation);
        }
        timeline
    }

    fn operation(&mut self, operation: &Operation<'a>) {
        let steps = operation.request.steps();
        for (index, request) in steps.iter().enumerate() {
            let answer = match operation.answer {
                Some(Answer::Results(results)) => results.get(index),
                answer => answer,
            };
            let (path, change) = match request {
                Request::Create { path, mode, .. } => {
                    let told = match answer {
                        Some(Answer::Path(told)) => told,
                        _ if mode.is_sequential() => {
                            if operation.answer.is_none() {
                                self.unnamed.insert(parent(path));
                                self.unsure.insert(parent(path));
                            }
                            continue;
                        }
                        _ => path,
                    };
                    if mode.is_ephemeral() {
                        self.doubt(told);
                    }
                    (told.as_str(), Change::Created)
                }
                Request::Delete { path, .. } => (path.as_str(), Change::Deleted),
                Request::Set { path, .. } => (path.as_str(), Change::Set),
                Request::Get { path, .. } | Request::Exists { path, .. } => {
                    if let Some(Answer::Data(_, stat) | Answer::Stat(stat)) = answer {
                        self.told(path, stat);
                    }
                    continue;
                }
                _ => continue,
            };
            if operation.is_ok() {
                self.add(path, operation.zxid, change);
            } else if operation.answer.is_none() {
                match change {
                    Change::Set => drop(self.uncertain.insert(path)),
                    Change::Created | Change::Deleted => self.doubt(path),
                }
            }
        }
    }

    fn doubt(&mut self, path: &'a str) {
        self.uncertain.insert(path);
        self.fleeting.insert(path);
        self.unsure.insert(parent(path));
    }

    fn told(&mut self, path: &'a str, stat: &Stat) {
        if stat.owner != 0 && !self.born.contains(path) {
            self.doubt(path);
        }
        self.add(path, stat.czxid, Change::Created);
        if stat.mzxid != stat.czxid {
            self.add(path, stat.mzxid, Change::Set);
        }
    }

    fn add(&mut self, path: &'a str, zxid: i64, change: Change) {
        if change == Change::Created {
            self.born.insert(path);
        }
        let before = self.changes.entry(path).or_default().insert(zxid, change);
        if before.is_none() && change != Change::Set {
            let moments = self.children.entry(parent(path)).or_default();
            moments.entry(zxid).or_default().push((path, change));
        }
    }

    /// Whether a znode may have changed, come or gone without anybody being told.
    pub(crate) fn is_uncertain(&self, path: &str) -> bool {
        self.uncertain.contains(path) || self.is_fleeting(path)
    }

    /// Whether a znode may have come or gone without anybody being told.
    pub(crate) fn is_fleeting(&self, path: &str) -> bool {
        let is_named = || self.born.contains(path);
        self.fleeting.contains(path) || self.unnamed.contains(parent(path)) && !is_named()
    }

    /// The first change after one zxid, and up to another.
    pub(crate) fn first(&self, path: &str, after: i64, until: i64) -> Option<(i64, Change)> {
        if after >= until {
            return None;
        }
        let range = (Excluded(after), Included(until));
        let mut found = self.changes.get(path)?.range(range);
        found.next().map(|(zxid, change)| (*zxid, *change))
    }

    /// The last change up to a zxid.
    pub(crate) fn last(&self, path: &str, until: i64) -> Option<(i64, Change)> {
        let mut found = self.changes.get(path)?.range((Unbounded, Included(until)));
        found.next_back().map(|(zxid, change)| (*zxid, *change))
    }

    /// The change with just this zxid.
    pub(crate) fn at(&self, path: &str, zxid: i64) -> Option<Change> {
        self.changes.get(path)?.get(&zxid).copied()
    }

    /// The first time after one zxid, and up to another, at which a child came or went.
    pub(crate) fn first_child(&self, path: &str, after: i64, until: i64) -> Option<i64> {
        if after >= until {
            return None;
        }
        let mut found = self.children.get(path)?.range((Excluded(after), Included(until)));
        found.next().map(|(zxid, _)| *zxid)
    }

    /// Whether children of it may have come or gone without anybody being told.
    pub(crate) fn has_uncertain_children(&self, path: &str) -> bool {
        self.unsure.contains(path)
    }
}
