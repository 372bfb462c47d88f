//! Watches: each that is armed fires once, for the first change after the state that armed it,
//! before any answer that shows the change; and so across a change of server by setWatches.

use std::collections::{BTreeMap, VecDeque};

use crate::conformance::wire::{code, event};
use crate::history::check::facts::seconds;
use crate::history::check::timeline::{Change, Timeline};
use crate::history::record::{Answer, History, Request, What};

/// See the file's text.
pub(crate) fn check_watches(
    history: &History,
    timeline: &Timeline<'_>,
    violations: &mut Vec<String>,
) {
    for (client, log) in history.logs.iter().enumerate() {
        let mut armed = Armed::new(timeline);
        for entry in &log.entries {
            armed.entry(&entry.what);
            for text in armed.wrong.drain(..) {
                violations.push(format!("client {client} at {}: {text}", seconds(entry.at)));
            }
        }
    }
}

/// The watches of one connection, each with the zxid of the state that armed it.
struct Armed<'a> {
    timeline: &'a Timeline<'a>,
    data: BTreeMap<&'a str, i64>,
    child: BTreeMap<&'a str, i64>,
    /// Events that answer a setWatches, until its answer comes.
    caught_up: Vec<(i32, &'a str)>,
    unanswered: VecDeque<&'a Request>,
    wrong: Vec<String>,
}

impl<'a> Armed<'a> {
    fn new(timeline: &'a Timeline<'a>) -> Self {
        Self {
            timeline,
            data: BTreeMap::new(),
            child: BTreeMap::new(),
            caught_up: Vec::new(),
            unanswered: VecDeque::new(),
            wrong: Vec::new(),
        }
    }

    fn entry(&mut self, what: &'a What) {
        match what {
            // Watches belong to a connection.
            What::Opened { .. } => {
                let wrong = std::mem::take(&mut self.wrong);
                *self = Self { wrong, ..Self::new(self.timeline) };
            }
            What::Sent { request: Request::Ping, .. } | What::Answered { xid: -2, .. } => {}
            What::Sent { request, .. } => self.unanswered.push_back(request),
            What::Answered { zxid, answer, .. } => {
                if let Some(request) = self.unanswered.pop_front() {
                    self.overdue(*zxid);
                    self.arm(request, *zxid, answer);
                }
            }
            What::Event { kind, path, zxid: -1 } => self.caught_up.push((*kind, path)),
            What::Event { kind, path, zxid } => self.fire(*kind, path, *zxid),
            _ => {}
        }
    }

    /// An answer shows the state of this zxid: whatever happened up to there has been told.
    fn overdue(&mut self, zxid: i64) {
        let timeline = self.timeline;
        let wrong = &mut self.wrong;
        self.data.retain(|path, since| {
            let Some((missed, change)) = timeline.first(path, *since, zxid) else { return true };
            wrong.push(format!(
                "no event of {path} ({change:?} with {missed:#x}, armed at {since:#x}) before an \
                 answer with {zxid:#x}"
            ));
            false
        });
        self.child.retain(|path, since| {
            let Some(missed) = timeline.first_child(path, *since, zxid) else { return true };
            wrong.push(format!(
                "no event of the children of {path} ({missed:#x}, armed at {since:#x}) before an \
                 answer with {zxid:#x}"
            ));
            false
        });
    }

    fn arm(&mut self, request: &'a Request, zxid: i64, answer: &'a Answer) {
        let (path, list) = match (request, answer) {
            (Request::Get { path, watch: true }, Answer::Data(..))
            | (Request::Exists { path, watch: true }, Answer::Stat(_)) => (path, &mut self.data),
            (Request::Exists { path, watch: true }, Answer::Error(code::NO_NODE)) => {
                (path, &mut self.data)
            }
            (Request::Children { path, watch: true }, Answer::Children(..)) => {
                (path, &mut self.child)
            }
            (Request::SetWatches { zxid: seen, data, exist, child }, Answer::Done) => {
                return self.take_over(*seen, zxid, [data, exist, child]);
            }
            _ => return,
        };
        list.entry(path).or_insert(zxid);
    }

    fn fire(&mut self, kind: i32, path: &'a str, zxid: i64) {
        let is_data = kind != event::CHILDREN_CHANGED;
        let data = if is_data { self.data.remove(path) } else { None };
        let is_child = matches!(kind, event::CHILDREN_CHANGED | event::DELETED);
        let child = if is_child { self.child.remove(path) } else { None };
        let what = format!("event {kind} of {path} with {zxid:#x}");
        let Some(since) = data.or(child) else {
            self.wrong.push(format!("{what}, and nothing was armed"));
            return;
        };
        let timeline = self.timeline;
        if zxid <= since {
            self.wrong.push(format!("{what}, which was there when it was armed at {since:#x}"));
        }
        if is_data {
            let missed = data.and_then(|since| timeline.first(path, since, zxid - 1));
            if let Some((missed, change)) = missed {
                self.wrong.push(format!("{what}, and not for {change:?} with {missed:#x} before"));
            }
            let fits = match timeline.at(path, zxid) {
                Some(change) => kind_of(change) == kind,
                None => timeline.is_uncertain(path),
            };
            if !fits {
                self.wrong.push(format!("{what}, and {:?} happened", timeline.at(path, zxid)));
            }
        }
        if kind == event::CHILDREN_CHANGED {
            if let Some(missed) = timeline.first_child(path, since, zxid - 1) {
                self.wrong.push(format!("{what}, and not for {missed:#x} before"));
            }
            let is_known = timeline.first_child(path, zxid - 1, zxid).is_some();
            if !is_known && !timeline.has_uncertain_children(path) {
                self.wrong.push(format!("{what}, and nothing happened"));
            }
        }
    }

    /// A setWatches was answered: what had changed since the zxid that it named has been told,
    /// and the rest is armed (`DataTree.setWatches`).
    fn take_over(&mut self, seen: i64, now: i64, lists: [&'a Vec<String>; 3]) {
        let timeline = self.timeline;
        let [data, exist, child] = lists;
        for path in data {
            let is_due = timeline.first(path, seen, now).is_some();
            let may_come = is_due || timeline.is_uncertain(path);
            let last = timeline.last(path, now).map(|(_, change)| change);
            let expected =
                if last == Some(Change::Deleted) { event::DELETED } else { event::DATA_CHANGED };
            let other = event::DELETED + event::DATA_CHANGED - expected;
            let fired = self.caught(expected, path)
                || timeline.is_uncertain(path) && self.caught(other, path);
            self.settle(path, now, (is_due, may_come, fired), false);
        }
        for path in exist {
            let last = timeline.last(path, now).map(|(_, change)| change);
            let is_there = last.is_some_and(|change| change != Change::Deleted);
            let is_due = is_there && !timeline.is_uncertain(path);
            let may_come = is_there || timeline.is_uncertain(path);
            let fired = self.caught(event::CREATED, path);
            self.settle(path, now, (is_due, may_come, fired), false);
        }
        for path in child {
            let is_due = timeline.first_child(path, seen, now).is_some();
            let may_come = is_due || timeline.has_uncertain_children(path);
            let fired = self.caught(event::CHILDREN_CHANGED, path);
            self.settle(path, now, (is_due, may_come, fired), true);
        }
        for (kind, path) in std::mem::take(&mut self.caught_up) {
            self.wrong.push(format!("setWatches was answered with event {kind} of {path}, too"));
        }
    }

    fn caught(&mut self, kind: i32, path: &str) -> bool {
        let Some(index) = self.caught_up.iter().position(|event| *event == (kind, path)) else {
            return false;
        };
        self.caught_up.remove(index);
        true
    }

    /// What came of one watch that was taken over: whether its event was due, whether it might
    /// have come, and whether it did.
    fn settle(&mut self, path: &'a str, now: i64, outcome: (bool, bool, bool), is_child: bool) {
        match outcome {
            (true, _, false) => {
                self.wrong.push(format!("no event of {path} before the answer to setWatches"));
            }
            (_, false, true) => {
                self.wrong.push(format!("an event of {path} by setWatches for no reason"));
            }
            (_, _, true) => {}
            (false, _, false) => {
                let list = if is_child { &mut self.child } else { &mut self.data };
                list.insert(path, now);
            }
        }
    }
}

fn kind_of(change: Change) -> i32 {
    match change {
        Change::Created => event::CREATED,
        Change::Set => event::DATA_CHANGED,
        Change::Deleted => event::DELETED,
    }
}
