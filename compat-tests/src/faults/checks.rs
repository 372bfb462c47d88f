//! The judge: what the clients were told, beside what the servers hold in the end.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::conformance::multi::{Operation, Outcome, outcomes, request};
use crate::conformance::wire::{op, record};
use crate::faults::record::{Hold, Record, Told};
use crate::faults::roamer::Roamer;

/// What the servers hold in the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    /// The version of the shared counter.
    pub count: i32,
    /// Sequential nodes and what is in them.
    pub numbered: Vec<(String, String)>,
    /// Ephemerals that are left, though every session has ended.
    pub left: Vec<String>,
}

const READS_AT_ONCE: usize = 500;

/// Reads it from one server.
///
/// # Errors
/// The server cannot be read.
pub fn read(server: SocketAddr) -> Result<Ending> {
    let mut roamer = Roamer::new(vec![server], 0, Duration::from_secs(10));
    let deadline = Instant::now() + Duration::from_secs(60);
    while !matches!(roamer.connect(), Ok(true)) {
        ensure!(Instant::now() < deadline, "{server} takes no client");
    }
    let mut ask = |opcode, body| {
        roamer.call(opcode, body).map_err(|trouble| anyhow!("read the ending: {trouble:?}"))
    };
    let of = |path: &str| record().string(path).flag(false);
    ask(op::SYNC, record().string("/"))?.ok()?;
    let count = ask(op::EXISTS, of("/faults/counter"))?.stat()?.version;
    let mut ending = Ending { count, ..Ending::default() };
    let names = ask(op::GET_CHILDREN, of("/faults/numbers"))?.names()?;
    let paths: Vec<String> = names.iter().map(|name| format!("/faults/numbers/{name}")).collect();
    for some in paths.chunks(READS_AT_ONCE) {
        let reads: Vec<_> =
            some.iter().map(|path| Operation::read(op::GET_DATA, path, false)).collect();
        let found = outcomes(&ask(op::MULTI_READ, request(&reads))?)?;
        for (path, outcome) in some.iter().zip(found) {
            let Outcome::Data(data, _) = outcome else { bail!("read {path}: {outcome:?}") };
            let text = String::from_utf8(data.unwrap_or_default()).context("read a number")?;
            ending.numbered.push((path.clone(), text));
        }
    }
    ending.left = ask(op::GET_CHILDREN, of("/faults/here"))?.names()?;
    let lock = ask(op::EXISTS, of("/faults/lock"))?;
    if lock.error == 0 {
        ending.left.push("lock".to_owned());
    }
    let _ = roamer.close();
    Ok(ending)
}

/// Adds to the record what the ending shows to be wrong.
pub fn judge(record: &Record, ending: &Ending) {
    let found = record.with(|told| {
        [counts(told, ending), numbers(told, ending), locks(&mut told.holds)].concat()
    });
    found.into_iter().for_each(|text| record.violation(text));
    if !ending.left.is_empty() {
        record.violation(format!("{:?} outlived their sessions", ending.left));
    }
}

fn counts(told: &Told, ending: &Ending) -> Vec<String> {
    let mut found = Vec::new();
    let made = i32::try_from(told.counted.len()).unwrap_or(i32::MAX);
    let unknown = i32::try_from(told.counts_unknown).unwrap_or(i32::MAX);
    if ending.count < made || ending.count > made.saturating_add(unknown) {
        found.push(format!(
            "the counter is at {} after {made} acknowledged counts and {unknown} in doubt",
            ending.count
        ));
    }
    if let Some((version, (client, _))) = told.counted.iter().next_back()
        && *version > ending.count
    {
        found.push(format!("version {version} of client {client} is lost"));
    }
    found
}

fn numbers(told: &Told, ending: &Ending) -> Vec<String> {
    let mut found = Vec::new();
    let held: BTreeSet<_> = ending.numbered.iter().collect();
    for (path, (text, _)) in &told.numbered {
        if !held.contains(&(path.clone(), text.clone())) {
            found.push(format!("{path}, made as {text}, is lost"));
        }
    }
    let mut texts = BTreeSet::new();
    for (path, text) in &ending.numbered {
        if !texts.insert(text) {
            found.push(format!("{text} was made twice, at last as {path}"));
        }
        let maker = told.numbered.get(path).map(|(made, _)| made);
        if maker != Some(text) && !told.numbered_unknown.contains(text) {
            found.push(format!("nobody made {path} as {text}"));
        }
    }
    found
}

fn locks(holds: &mut [Hold]) -> Vec<String> {
    holds.sort_by_key(|hold| hold.from);
    let mut found = Vec::new();
    let mut last: Option<Hold> = None;
    for hold in holds.iter() {
        if let Some(last) = last
            && last.client != hold.client
            && hold.from < last.to
        {
            found.push(format!(
                "clients {} and {} held the lock at once for {:?}",
                last.client,
                hold.client,
                last.to - hold.from
            ));
        }
        if last.is_none_or(|last| last.to < hold.to) {
            last = Some(*hold);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(told: Told, ending: &Ending) -> Vec<String> {
        let record = Record::default();
        record.with(|empty| *empty = told);
        judge(&record, ending);
        record.with(|told| std::mem::take(&mut told.violations))
    }

    #[test]
    fn a_record_that_fits_is_accepted() {
        let told = Told {
            counted: [(1, (0, 11)), (3, (1, 13))].into(),
            counts_unknown: 1,
            numbered: [("a".to_owned(), ("1".to_owned(), 12))].into(),
            numbered_unknown: vec!["2".to_owned(), "3".to_owned()],
            ..Told::default()
        };
        let numbered = vec![("a".to_owned(), "1".to_owned()), ("b".to_owned(), "3".to_owned())];
        let ending = Ending { count: 3, numbered, left: Vec::new() };
        assert_eq!(judged(told, &ending), Vec::<String>::new());
    }

    #[test]
    fn what_was_acknowledged_and_is_lost_is_found() {
        let numbered = [("a".to_owned(), ("1".to_owned(), 12))].into();
        let told =
            Told { counted: [(1, (0, 11)), (2, (1, 13))].into(), numbered, ..Told::default() };
        let ending = Ending { count: 1, ..Ending::default() };
        assert_eq!(judged(told, &ending).len(), 3);
    }

    #[test]
    fn what_was_applied_twice_or_left_is_found() {
        let told = Told { numbered_unknown: vec!["1".to_owned()], ..Told::default() };
        let numbered = vec![("a".to_owned(), "1".to_owned()), ("b".to_owned(), "1".to_owned())];
        let ending = Ending { count: 1, numbered, left: vec!["x".to_owned()] };
        assert_eq!(judged(told, &ending).len(), 3);
    }

    #[test]
    fn what_a_restore_took_must_be_gone_and_the_rest_must_be_there() {
        let told = || {
            let told = Told {
                counted: [(1, (0, 11)), (2, (1, 13))].into(),
                numbered: [("a".to_owned(), ("1".to_owned(), 12))].into(),
                ..Told::default()
            };
            let record = Record::default();
            record.with(|empty| *empty = told);
            record.restored(12);
            record.with(std::mem::take)
        };
        let numbered = vec![("a".to_owned(), "1".to_owned())];
        let ending = Ending { count: 1, numbered: numbered.clone(), left: Vec::new() };
        assert_eq!(judged(told(), &ending), Vec::<String>::new());
        assert_eq!(judged(told(), &Ending { count: 2, numbered, ..Ending::default() }).len(), 1);
        assert_eq!(judged(told(), &Ending { count: 1, ..Ending::default() }).len(), 1);
    }

    #[test]
    fn a_lock_that_two_held_is_found() {
        let start = Instant::now();
        let hold = |client, from, to| Hold {
            client,
            from: start + Duration::from_millis(from),
            to: start + Duration::from_millis(to),
        };
        let apart = vec![hold(1, 0, 10), hold(2, 10, 20), hold(1, 30, 40)];
        assert_eq!(judged(Told { holds: apart, ..Told::default() }, &Ending::default()).len(), 0);
        let overlapping = vec![hold(1, 0, 10), hold(2, 9, 20)];
        let told = Told { holds: overlapping, ..Told::default() };
        assert_eq!(judged(told, &Ending::default()).len(), 1);
    }
}
