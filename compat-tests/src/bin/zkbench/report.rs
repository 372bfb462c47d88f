//! Results of several servers and rounds → one Markdown page: medians over the rounds, and ratios
//! to a reference server, taken within each round before the median.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::str::FromStr;

use anyhow::{Context, Result, ensure};

use crate::measure::{Figures, Measurement};
use crate::processes::Process;

/// What is measured in the same way on every server.
#[derive(Clone, Debug, PartialEq)]
struct Case {
    workload: String,
    connections: usize,
    in_flight: usize,
    rate: Option<f64>,
}

/// The servers' figures for one case, by round; servers in the order of the results.
#[derive(Debug)]
struct Comparison<'a> {
    case: Case,
    servers: Vec<(&'a str, BTreeMap<u32, &'a Figures>)>,
}

/// Reads a results file: a line of JSON a measurement.
pub(crate) fn parse(results: &str) -> Result<Vec<Measurement>> {
    let lines = results.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let parsed = lines.map(|(index, line)| {
        serde_json::from_str(line).with_context(|| format!("line {} of the results", index + 1))
    });
    parsed.collect()
}

/// Two servers that a table of its own compares: the first in terms of the second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pair(String, String);

impl FromStr for Pair {
    type Err = anyhow::Error;

    fn from_str(typed: &str) -> Result<Self> {
        let (ours, theirs) = typed.split_once('=').context("want LABEL=LABEL")?;
        Ok(Self(ours.into(), theirs.into()))
    }
}

/// The whole page: the conditions, an overview of ratios, a table a pair and a workload.
pub(crate) fn page(
    conditions: &str,
    results: &[Measurement],
    reference: &str,
    pairs: &[Pair],
) -> Result<String> {
    let known = results.iter().any(|measurement| measurement.target == reference);
    ensure!(known, "the results say nothing about {reference}");
    let comparisons = arrange(results);
    let mut page = conditions.trim_end().to_owned();
    page.push('\n');
    page.push_str(&overview(&comparisons, reference));
    for pair in pairs {
        page.push_str(&beside(&comparisons, pair));
    }
    let mut workload = "";
    for comparison in &comparisons {
        if workload != comparison.case.workload {
            workload = &comparison.case.workload;
            write!(page, "\n## {workload}\n\n{TABLE_HEAD}").expect("a string takes all");
        }
        for (name, rounds) in &comparison.servers {
            let against = comparison.server(reference).filter(|_| *name != reference);
            page.push_str(&row(&comparison.case, name, rounds, against));
        }
    }
    Ok(page)
}

fn arrange(results: &[Measurement]) -> Vec<Comparison<'_>> {
    let mut comparisons: Vec<Comparison<'_>> = Vec::new();
    for measurement in results {
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
    fn of(measurement: &Measurement) -> Self {
        Self {
            workload: measurement.workload.clone(),
            connections: measurement.connections,
            in_flight: measurement.in_flight,
            rate: measurement.rate,
        }
    }

    fn load(&self) -> String {
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

    fn server(&self, wanted: &str) -> Option<&BTreeMap<u32, &'a Figures>> {
        let found = self.servers.iter().find(|(name, _)| *name == wanted);
        found.map(|(_, rounds)| rounds)
    }
}

/// The servers that did at least half of what the reference did, in order.
fn main_servers<'a>(comparisons: &[Comparison<'a>], reference: &str) -> Vec<&'a str> {
    let did = |name: &str| comparisons.iter().filter(|case| case.server(name).is_some()).count();
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in comparisons.iter().flat_map(|comparison| &comparison.servers) {
        if *name != reference && !names.contains(name) && 2 * did(name) >= did(reference) {
            names.push(name);
        }
    }
    names
}

fn overview(comparisons: &[Comparison<'_>], reference: &str) -> String {
    let others = main_servers(comparisons, reference);
    if others.is_empty() {
        return String::new();
    }
    let heads = others.iter().map(|name| format!(" {name}: ops/s | p50 | CPU |"));
    let mut table = format!(
        "\n## Overview: ratios to {reference}\n\n| workload | load |{}\n",
        heads.collect::<String>()
    );
    table.push_str(&format!("|---|---|{}\n", "---:|".repeat(3 * others.len())));
    for comparison in comparisons {
        let (case, against) = (&comparison.case, comparison.server(reference));
        if !others.iter().any(|name| comparison.server(name).is_some()) {
            continue;
        }
        write!(table, "| {} | {} |", case.workload, case.load()).expect("a string takes all");
        for name in &others {
            let pair = comparison.server(name).zip(against);
            let cell = |of: Figure| {
                pair.map_or_else(String::new, |(rounds, against)| ratio(rounds, against, of))
            };
            let cells = [cell(ops), cell(p50), cell(cpu)].join(" | ");
            write!(table, " {cells} |").expect("a string takes all");
        }
        table.push('\n');
    }
    table
}

/// The ratios of two servers, for what both did.
fn beside(comparisons: &[Comparison<'_>], Pair(ours, theirs): &Pair) -> String {
    let mut rows = String::new();
    for comparison in comparisons {
        let both = comparison.server(ours).zip(comparison.server(theirs));
        let Some((rounds, against)) = both else { continue };
        let cells = [ops as Figure, p50, p99, cpu].map(|of| ratio(rounds, against, of));
        let (case, cells) = (&comparison.case, cells.join(" | "));
        rows.push_str(&format!("| {} | {} | {cells} |\n", case.workload, case.load()));
    }
    if rows.is_empty() {
        return rows;
    }
    format!(
        "\n## Ratios: {ours} to {theirs}\n\n\
         | workload | load | ops/s | p50 | p99 | CPU |\n|---|---|---:|---:|---:|---:|\n{rows}"
    )
}

const TABLE_HEAD: &str = "\
| connections × in flight | server | ops/s | ratio | p50 ms | p99 ms | CPU µs/op | ratio | of which |
|---|---|---:|---:|---:|---:|---:|---:|---|
";

type Figure = fn(&Figures) -> Option<f64>;

type Rounds<'a> = BTreeMap<u32, &'a Figures>;

fn row(case: &Case, name: &str, rounds: &Rounds<'_>, against: Option<&Rounds<'_>>) -> String {
    let ratio = |of| against.map_or_else(|| "1".into(), |against| ratio(rounds, against, of));
    let shown = |of: Figure, digits: usize| {
        let values = rounds.values().filter_map(|figures| of(figures)).collect();
        median(values).map_or_else(String::new, |value| format!("{value:.digits$}"))
    };
    format!(
        "| {} | {name} | {} | {} | {} | {} | {} | {} | {} |\n",
        case.load(),
        shown(ops, 0),
        ratio(ops),
        shown(p50, 3),
        shown(p99, 3),
        shown(cpu, 1),
        ratio(cpu),
        shares(rounds),
    )
}

/// Each server process' part of the processor time, if there are several.
fn shares(rounds: &Rounds<'_>) -> String {
    let own = Process::own().name;
    let mut by_name: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for spent in rounds.values().flat_map(|figures| &figures.processes) {
        if spent.name != own {
            by_name.entry(&spent.name).or_default().push(spent.cpu_us_per_op);
        }
    }
    if by_name.len() < 2 {
        return String::new();
    }
    let share = |(name, values)| Some(format!("{name} {:.1}", median(values)?));
    by_name.into_iter().filter_map(share).collect::<Vec<_>>().join(", ")
}

fn ops(figures: &Figures) -> Option<f64> {
    Some(figures.ops_per_second)
}

fn p50(figures: &Figures) -> Option<f64> {
    Some(figures.latency.p50_us / 1e3)
}

fn p99(figures: &Figures) -> Option<f64> {
    Some(figures.latency.p99_us / 1e3)
}

fn cpu(figures: &Figures) -> Option<f64> {
    figures.servers_cpu_us_per_op()
}

/// Median of the ratios within each round that both have, with two digits.
fn ratio(rounds: &Rounds<'_>, against: &Rounds<'_>, of: Figure) -> String {
    let pairs = rounds.iter().filter_map(|(round, figures)| {
        let (ours, theirs) = (of(figures)?, of(against.get(round)?)?);
        (theirs > 0.0).then(|| ours / theirs)
    });
    median(pairs.collect()).map_or_else(String::new, |ratio| format!("{ratio:.2}"))
}

fn median(mut values: Vec<f64>) -> Option<f64> {
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
    use crate::measure::Latency;
    use crate::processes::Spent;

    fn measured(target: &str, round: u32, ops_per_second: f64, cpu: &[(&str, f64)]) -> Measurement {
        let spent = |&(name, cpu_us_per_op): &(&str, f64)| Spent {
            name: name.into(),
            cpu_us: 1,
            cpu_us_per_op,
            resident_kib: 1,
        };
        let latency = Latency { p50_us: 1000.0, p99_us: 2000.0, ..Latency::default() };
        Measurement {
            target: target.into(),
            round,
            workload: "set".into(),
            connections: 8,
            in_flight: 4,
            rate: None,
            figures: Figures {
                seconds: 1.0,
                ops: 1,
                ops_per_second,
                latency,
                processes: cpu.iter().map(spent).collect(),
            },
        }
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        let results = [
            measured("ZooKeeper", 1, 100.0, &[("zookeeper", 40.0), ("zkbench", 9.0)]),
            measured("zkshim", 1, 200.0, &[("etcd", 15.0), ("zkshim", 5.0), ("zkbench", 9.0)]),
            measured("ZooKeeper", 2, 1000.0, &[("zookeeper", 40.0)]),
            measured("zkshim", 2, 2000.0, &[("etcd", 25.0), ("zkshim", 15.0)]),
        ];
        let pair = "ZooKeeper=zkshim".parse().expect("it has both");
        let page = page("# Title\n", &results, "ZooKeeper", &[pair]).expect("complete results");
        let overview = "| set | 8 × 4 | 2.00 | 1.00 | 0.75 |";
        assert!(page.contains(overview), "{page}");
        let reference = "| 8 × 4 | ZooKeeper | 550 | 1 | 1.000 | 2.000 | 40.0 | 1 |  |";
        assert!(page.contains(reference), "{page}");
        let ours = "| 8 × 4 | zkshim | 1100 | 2.00 | 1.000 | 2.000 | 30.0 | 0.75 | \
                    etcd 20.0, zkshim 10.0 |";
        assert!(page.contains(ours), "{page}");
        let pair = "## Ratios: ZooKeeper to zkshim";
        assert!(page.contains(pair), "{page}");
        assert!(page.contains("| set | 8 × 4 | 0.50 | 1.00 | 1.00 | 1.50 |"), "{page}");
    }

    #[test]
    fn results_survive_the_file() {
        let result = measured("zkshim", 1, 200.0, &[("etcd", 15.0)]);
        let line = serde_json::to_string(&result).expect("plain data");
        assert_eq!(parse(&format!("{line}\n\n")).expect("our own line"), [result]);
        let told = parse("{}").expect_err("no measurement").to_string();
        assert_eq!(told, "line 1 of the results");
    }

    #[test]
    fn median_of_an_even_number_is_between_the_middle_two() {
        assert_eq!(median(vec![4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(vec![5.0, 1.0, 3.0]), Some(3.0));
        assert_eq!(median(Vec::new()), None);
    }

    #[test]
    fn a_missing_reference_is_an_error() {
        let results = [measured("zkshim", 1, 1.0, &[])];
        assert!(page("", &results, "ZooKeeper", &[]).is_err());
    }
}
