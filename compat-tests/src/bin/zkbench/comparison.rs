//! Results of several servers and rounds, arranged for comparison: medians over the rounds, and
//! ratios to a reference server, taken within each round before the median.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use crate::measure::{Figures, Measurement};

/// Reads a results file: a line of JSON a measurement.
pub(crate) fn parse(results: &str) -> Result<Vec<Measurement>> {
    let lines = results.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let parsed = lines.map(|(index, line)| {
        serde_json::from_str(line).with_context(|| format!("line {} of the results", index + 1))
    });
    parsed.collect()
}

/// Without what was measured again later: of each server and case the last run counts, with all its
/// rounds.
pub(crate) fn latest(results: Vec<Measurement>) -> Vec<Measurement> {
    let of = |one: &Measurement| {
        let Case { workload, connections, in_flight, rate } = Case::of(one);
        (one.target.clone(), workload, connections, in_flight, rate.map(f64::to_bits))
    };
    let last: BTreeMap<_, String> = results.iter().map(|one| (of(one), one.run.clone())).collect();
    results.into_iter().filter(|one| last.get(&of(one)) == Some(&one.run)).collect()
}

/// Reads one figure.
pub(crate) type Figure = fn(&Figures) -> Option<f64>;

/// The figures of one server by round.
pub(crate) type Rounds<'a> = BTreeMap<u32, &'a Figures>;

/// What is measured in the same way on every server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Case {
    /// The workload's name.
    pub(crate) workload: String,
    /// How many connections.
    pub(crate) connections: usize,
    /// Requests under way on each.
    pub(crate) in_flight: usize,
    /// The rate of an open loop.
    pub(crate) rate: Option<f64>,
}

/// The servers' figures for one case, by round; servers in the order of the results.
#[derive(Debug)]
pub(crate) struct Comparison<'a> {
    /// What was measured.
    pub(crate) case: Case,
    /// By whom, in the order of the results.
    pub(crate) servers: Vec<(&'a str, Rounds<'a>)>,
}

/// Puts together what is measured in the same way; a workload's cases stand together. A
/// measurement in which nothing was finished says nothing, and is left out.
pub(crate) fn arrange(results: &[Measurement]) -> Vec<Comparison<'_>> {
    let mut comparisons: Vec<Comparison<'_>> = Vec::new();
    for measurement in results.iter().filter(|measurement| measurement.figures.ops > 0) {
        let case = Case::of(measurement);
        let known = comparisons.iter().position(|comparison| comparison.case == case);
        let at = known.unwrap_or_else(|| {
            comparisons.push(Comparison { case, servers: Vec::new() });
            comparisons.len() - 1
        });
        comparisons[at].add(measurement);
    }
    // A later round may be the first to measure a case; keep a workload's tables together.
    let order: Vec<String> = results.iter().map(|result| result.workload.clone()).collect();
    comparisons.sort_by_key(|comparison| {
        let first = order.iter().position(|name| *name == comparison.case.workload);
        (first, comparison.case.connections, comparison.case.in_flight)
    });
    comparisons
}

impl Case {
    /// What a measurement is one of.
    pub(crate) fn of(measurement: &Measurement) -> Self {
        Self {
            workload: measurement.workload.clone(),
            connections: measurement.connections,
            in_flight: measurement.in_flight,
            rate: measurement.rate,
        }
    }

    /// The load, as the tables name it.
    pub(crate) fn load(&self) -> String {
        let rate = self.rate.map(|rate| format!(" at {rate}/s")).unwrap_or_default();
        format!("{} × {}{rate}", self.connections, self.in_flight)
    }
}

impl<'a> Comparison<'a> {
    fn add(&mut self, measurement: &'a Measurement) {
        let target = measurement.target.as_str();
        let known = self.servers.iter().position(|(name, _)| *name == target);
        let at = known.unwrap_or_else(|| {
            self.servers.push((target, BTreeMap::new()));
            self.servers.len() - 1
        });
        self.servers[at].1.insert(measurement.round, &measurement.figures);
    }

    /// The figures of one server.
    pub(crate) fn server(&self, wanted: &str) -> Option<&Rounds<'a>> {
        let found = self.servers.iter().find(|(name, _)| *name == wanted);
        found.map(|(_, rounds)| rounds)
    }
}

/// The servers that did at least half of what the reference did, in order.
pub(crate) fn main_servers<'a>(comparisons: &[Comparison<'a>], reference: &str) -> Vec<&'a str> {
    let did = |name: &str| comparisons.iter().filter(|case| case.server(name).is_some()).count();
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in comparisons.iter().flat_map(|comparison| &comparison.servers) {
        if *name != reference && !names.contains(name) && 2 * did(name) >= did(reference) {
            names.push(name);
        }
    }
    names
}

/// Operations a second.
pub(crate) fn ops(figures: &Figures) -> Option<f64> {
    Some(figures.ops_per_second)
}

/// The median latency in milliseconds.
pub(crate) fn p50(figures: &Figures) -> Option<f64> {
    Some(figures.latency.p50_us / 1e3)
}

/// The 99th percentile of the latency in milliseconds.
pub(crate) fn p99(figures: &Figures) -> Option<f64> {
    Some(figures.latency.p99_us / 1e3)
}

/// The servers' processor time for an operation in microseconds.
pub(crate) fn cpu(figures: &Figures) -> Option<f64> {
    figures.servers_cpu_us_per_op()
}

/// Median of the ratios within each round that both have.
pub(crate) fn ratio(rounds: &Rounds<'_>, against: &Rounds<'_>, of: Figure) -> Option<f64> {
    let pairs = rounds.iter().filter_map(|(round, figures)| {
        let (ours, theirs) = (of(figures)?, of(against.get(round)?)?);
        (theirs > 0.0).then(|| ours / theirs)
    });
    median(pairs.collect())
}

/// The middle value, or what is between the middle two.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    if values.len() % 2 == 1 {
        return Some(upper);
    }
    values.get(values.len() / 2 - 1).map(|lower| (lower + upper) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_an_even_number_is_between_the_middle_two() {
        assert_eq!(median(vec![4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(vec![5.0, 1.0, 3.0]), Some(3.0));
        assert_eq!(median(Vec::new()), None);
    }
}
