//! Sequential znodes: no number is given twice, numbers and zxids grow together and in real time,
//! and a number that nobody has was given to somebody who was not told.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::check::facts::{Facts, Operation};
use crate::history::check::znodes::parent;
use crate::history::record::{Answer, Request};

/// See the file's text.
pub(crate) fn check_sequences(facts: &Facts<'_>, violations: &mut Vec<String>) {
    let mut named: BTreeMap<&str, Vec<(i64, &Operation<'_>)>> = BTreeMap::new();
    let mut untold: BTreeMap<&str, usize> = BTreeMap::new();
    for operation in &facts.operations {
        let Request::Create { path, mode, .. } = operation.request else { continue };
        if !mode.is_sequential() {
            continue;
        }
        match operation.answer {
            Some(Answer::Path(told)) => match number(path, told) {
                Some(number) => named.entry(parent(path)).or_default().push((number, operation)),
                None => violations.push(format!("not the name asked for: {}", operation.show())),
            },
            None => *untold.entry(parent(path)).or_default() += 1,
            Some(_) => {}
        }
    }
    for (parent, mut created) in named {
        // The root's other children are not ours to count.
        if parent != "/" {
            let untold = untold.get(parent).copied().unwrap_or_default();
            check_numbers(parent, &mut created, untold, violations);
        }
    }
    check_values(facts, violations);
}

fn number(asked: &str, told: &str) -> Option<i64> {
    told.strip_prefix(asked)?.parse().ok()
}

fn check_numbers(
    parent: &str,
    created: &mut [(i64, &Operation<'_>)],
    untold: usize,
    violations: &mut Vec<String>,
) {
    created.sort_by_key(|(number, _)| *number);
    // The earliest answer among those with higher numbers, from the end.
    let mut earliest: Option<&Operation<'_>> = None;
    for (_, operation) in created.iter().rev() {
        if let Some(other) = earliest.filter(|other| other.answered < operation.sent) {
            violations.push(format!(
                "the lower number came later: {} and {}",
                operation.show(),
                other.show()
            ));
        }
        if earliest.is_none_or(|other| operation.answered < other.answered) {
            earliest = Some(operation);
        }
    }
    for pair in created.windows(2) {
        let [(first, one), (second, other)] = pair else { continue };
        if first == second {
            violations.push(format!("one number twice: {} and {}", one.show(), other.show()));
        }
        // Requests that share a zxid were carried out in the order of their numbers.
        if one.zxid > other.zxid {
            violations.push(format!("numbers against zxids: {} and {}", one.show(), other.show()));
        }
    }
    let numbers: BTreeSet<i64> = created.iter().map(|(number, _)| *number).collect();
    let highest = numbers.last().copied().unwrap_or(-1);
    let missing = usize::try_from(highest + 1).unwrap_or(0).saturating_sub(numbers.len());
    if missing > untold {
        violations.push(format!(
            "{missing} numbers below {highest} of {parent} are nobody's, and only {untold} \
             creates were not answered"
        ));
    }
}

/// Every value is written by one request, so it is in at most one sequential znode.
fn check_values(facts: &Facts<'_>, violations: &mut Vec<String>) {
    let parents = super::sequential_parents(facts);
    let mut places: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    for operation in &facts.operations {
        let (path, data) = match (operation.request, operation.answer) {
            (Request::Create { data, mode, .. }, Some(Answer::Path(path)))
                if mode.is_sequential() =>
            {
                (path, data)
            }
            (Request::Get { path, .. }, Some(Answer::Data(data, _)))
                if parents.contains(parent(path)) =>
            {
                (path, data)
            }
            _ => continue,
        };
        let place = places.entry((parent(path), data)).or_insert(path);
        if *place != path && parent(path) != "/" {
            violations.push(format!("{data} was created as {place} and as {path}"));
        }
    }
}
