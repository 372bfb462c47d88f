//! Reads: each shows the state of the zxid in its header, and nothing that a session has seen
//! goes back. This holds without a sync, too.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::check::facts::{Facts, Operation};
use crate::history::check::timeline::{Change, Timeline};
use crate::history::record::{Answer, Request};

/// Data and existence.
pub(crate) fn check_reads(
    facts: &Facts<'_>,
    timeline: &Timeline<'_>,
    violations: &mut Vec<String>,
) {
    let mut seen: BTreeMap<(i64, &str), i64> = BTreeMap::new();
    for operation in &facts.operations {
        let (Request::Get { path, .. } | Request::Exists { path, .. }) = operation.request else {
            if let (true, Request::Set { path, .. }) = (operation.is_ok(), operation.request) {
                seen.insert((operation.session, path), operation.zxid);
            }
            continue;
        };
        match operation.answer {
            Some(Answer::Data(_, stat) | Answer::Stat(stat)) => {
                if let Some((zxid, change)) = timeline.first(path, stat.mzxid, operation.zxid) {
                    violations.push(format!(
                        "{change:?} with zxid {zxid:#x} is not shown by {}",
                        operation.show()
                    ));
                }
                if stat.mzxid > operation.zxid {
                    violations.push(format!("newer than its header: {}", operation.show()));
                }
                let before = seen.insert((operation.session, path), stat.mzxid).unwrap_or(0);
                if stat.mzxid < before {
                    violations.push(format!(
                        "the session had seen {before:#x} before {}",
                        operation.show()
                    ));
                }
            }
            Some(Answer::Error(_)) => {
                let last = timeline.last(path, operation.zxid);
                let is_there = last.is_some_and(|(_, change)| change != Change::Deleted);
                if is_there && !timeline.is_fleeting(path) {
                    violations.push(format!("{last:?} is not shown by {}", operation.show()));
                }
            }
            _ => {}
        }
    }
}

/// Children.
pub(crate) fn check_lists(
    facts: &Facts<'_>,
    timeline: &Timeline<'_>,
    violations: &mut Vec<String>,
) {
    let mut lists: BTreeMap<&str, Vec<&Operation<'_>>> = BTreeMap::new();
    for operation in &facts.operations {
        if let (Request::Children { path, .. }, Some(Answer::Children(..))) =
            (operation.request, operation.answer)
        {
            lists.entry(path).or_default().push(operation);
        }
    }
    for (parent, mut lists) in lists {
        lists.sort_by_key(|list| list.zxid);
        let none = BTreeMap::new();
        let mut moments = timeline.children.get(parent).unwrap_or(&none).iter().peekable();
        let mut alive: BTreeSet<&str> = BTreeSet::new();
        for list in lists {
            while let Some((_, changes)) = moments.next_if(|(zxid, _)| **zxid <= list.zxid) {
                for (child, change) in changes {
                    match change {
                        Change::Deleted => alive.remove(child),
                        _ => alive.insert(child),
                    };
                }
            }
            check_list(parent, list, &alive, timeline, violations);
        }
    }
}

fn check_list(
    parent: &str,
    list: &Operation<'_>,
    alive: &BTreeSet<&str>,
    timeline: &Timeline<'_>,
    violations: &mut Vec<String>,
) {
    let Some(Answer::Children(names, stat)) = list.answer else { return };
    let listed: BTreeSet<String> = names.iter().map(|name| format!("{parent}/{name}")).collect();
    if listed.len() != names.len() || usize::try_from(stat.children) != Ok(names.len()) {
        violations.push(format!("the list is not what its Stat says: {}", list.show()));
    }
    let missing =
        alive.iter().find(|child| !listed.contains(**child) && !timeline.is_fleeting(child));
    let surplus =
        listed.iter().find(|child| !alive.contains(child.as_str()) && !timeline.is_fleeting(child));
    if let Some(child) = missing {
        violations.push(format!("{child} is missing in {}", list.show()));
    }
    if let Some(child) = surplus {
        violations.push(format!("{child} is not there: {}", list.show()));
    }
}
