//! How long clients were without service, for each kind of fault, as a table.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::faults::kind::Kind;
use crate::faults::record::{Life, Record};

/// What one fault did to the clients.
#[derive(Clone, Debug)]
pub struct Recovery {
    /// The kind.
    pub kind: Kind,
    /// For each writer, how long after the fault (or its mending) a write was acknowledged that
    /// was begun after it.
    pub works_again: Vec<Duration>,
    /// The longest that a write took which was under way.
    pub longest_write: Duration,
    /// How many clients lost a connection.
    pub cut: usize,
    /// How many of these have a timeout of a minute.
    pub cut_long: usize,
    /// How many clients there are.
    pub clients: usize,
    /// Of the clients of the struck shim: their timeout, and how long after the fault they were
    /// cut.
    pub cut_after: Vec<(Duration, Duration)>,
    /// How many sessions expired.
    pub expired: usize,
}

impl Recovery {
    /// Reads it from the record: what was between the fault and `until`, with recovery counted
    /// from `since`.
    #[must_use]
    pub fn read(
        record: &Record,
        kind: Kind,
        (at, since, until): (Instant, Instant, Instant),
        on_struck: &[usize],
    ) -> Self {
        record.with(|told| {
            let lives: Vec<(&usize, &Life)> = told.lives.iter().collect();
            let writers = lives.iter().map(|(_, life)| life).filter(|life| life.writes);
            let cut = |life: &Life| !life.losses_within(at, until).is_empty();
            let first_cut = |life: &Life| {
                let first = life.losses_within(at, until).first().map(|loss| loss.at - at)?;
                Some((life.timeout, first))
            };
            let long = Duration::from_secs(60);
            let cuts = lives.iter().filter(|(_, life)| cut(life));
            Self {
                kind,
                works_again: writers.clone().filter_map(|life| life.works_again(since)).collect(),
                longest_write: writers
                    .map(|life| life.longest_write(at, until))
                    .max()
                    .unwrap_or_default(),
                cut: cuts.clone().count(),
                cut_long: cuts.filter(|(_, life)| life.timeout >= long).count(),
                clients: lives.len(),
                cut_after: lives
                    .iter()
                    .filter(|(number, _)| on_struck.contains(number))
                    .filter_map(|(_, life)| first_cut(life))
                    .collect(),
                expired: lives
                    .iter()
                    .flat_map(|(_, life)| &life.expiries)
                    .filter(|expiry| at <= **expiry && **expiry <= until)
                    .count(),
            }
        })
    }
}

/// The clients that are connected to a server now.
#[must_use]
pub fn clients_of(record: &Record, server: SocketAddr) -> Vec<usize> {
    record.with(|told| {
        let on_it = told.lives.iter().filter(|(_, life)| life.server == Some(server));
        on_it.map(|(number, _)| *number).collect()
    })
}

/// A table in Markdown, a line for each kind.
#[must_use]
pub fn table(recoveries: &[Recovery]) -> String {
    let mut kinds: BTreeMap<Kind, Vec<&Recovery>> = BTreeMap::new();
    for recovery in recoveries {
        kinds.entry(recovery.kind).or_default().push(recovery);
    }
    let mut text = String::from(
        "| fault | times | a write works again after: median | worst | goal | longest write \
         | clients cut, of 12 | of these with 60 s | sessions expired |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for (kind, all) in kinds {
        let mut again: Vec<Duration> =
            all.iter().flat_map(|recovery| recovery.works_again.iter().copied()).collect();
        again.sort_unstable();
        let median = again.get(again.len() / 2).copied().unwrap_or_default();
        let worst = again.last().copied().unwrap_or_default();
        let goal = kind.goal().map_or_else(String::new, |goal| format!("{} s", goal.as_secs()));
        let longest = all.iter().map(|recovery| recovery.longest_write).max().unwrap_or_default();
        let sum = |count: fn(&Recovery) -> usize| all.iter().map(|one| count(one)).sum::<usize>();
        let cut = sum(|one| one.cut) as f64 / all.len() as f64;
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} | {goal} | {} | {cut:.1} | {} | {} |",
            kind.name(),
            all.len(),
            seconds(median),
            seconds(worst),
            seconds(longest),
            sum(|one| one.cut_long),
            sum(|one| one.expired),
        );
    }
    text
}

/// A time as tables show it.
#[must_use]
pub fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_the_median_and_the_worst_of_all_clients() {
        let recovery = |ms: [u64; 3]| Recovery {
            kind: Kind::ShimKill,
            works_again: ms.map(Duration::from_millis).into(),
            longest_write: Duration::from_millis(70),
            cut: 4,
            cut_long: 1,
            clients: 12,
            cut_after: Vec::new(),
            expired: 0,
        };
        let text = table(&[recovery([10, 20, 900]), recovery([30, 40, 50])]);
        let line = "| `shim-kill` | 2 | 0.04 s | 0.90 s | 3 s | 0.07 s | 4.0 | 2 | 0 |";
        assert!(text.lines().any(|found| found == line), "{text}");
    }
}
