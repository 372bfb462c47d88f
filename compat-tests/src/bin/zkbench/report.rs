//! A comparison of servers → one Markdown page: an overview of ratios with plots, and a table a
//! workload.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::str::FromStr;

use anyhow::{Context, Result, ensure};

use crate::comparison::{
    Case, Comparison, Figure, Rounds, cpu, main_servers, median, ops, p50, p99, ratio,
};
use crate::growth::{self, short};
use crate::measure::Measurement;
use crate::model::Modelled;
use crate::plots::Plot;
use crate::processes::Process;
use crate::sized::{self, Sized};
use crate::{costs, targets};

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

/// What a page is made of.
#[derive(Debug)]
pub(crate) struct Page<'a> {
    /// Text put before all else.
    pub(crate) conditions: &'a str,
    /// What the words mean, put before the tables of each workload.
    pub(crate) terms: &'a str,
    /// The measurements that the comparisons were made of.
    pub(crate) results: &'a [Measurement],
    /// Measurements of how costs grow.
    pub(crate) growth: &'a [Measurement],
    /// What servers take when they are full.
    pub(crate) sizes: &'a [Sized],
    /// Results of simulations.
    pub(crate) modelled: &'a [Modelled],
    /// The figures.
    pub(crate) comparisons: &'a [Comparison<'a>],
    /// The server that the others are compared with.
    pub(crate) reference: &'a str,
    /// Servers with a table of ratios of their own.
    pub(crate) pairs: &'a [Pair],
    /// The plots.
    pub(crate) plots: &'a [Plot],
    /// Where the plots are, seen from the page.
    pub(crate) plots_dir: &'a str,
}

/// The whole page.
pub(crate) fn page(parts: &Page<'_>) -> Result<String> {
    let (comparisons, reference) = (parts.comparisons, parts.reference);
    let known = comparisons.iter().any(|comparison| comparison.server(reference).is_some());
    ensure!(known, "the results say nothing about {reference}");
    let mut page = parts.conditions.trim_end().to_owned();
    page.push('\n');
    page.push_str(&runs(parts));
    page.push_str(&targets::section(comparisons, parts.sizes));
    page.push_str(&overview(comparisons, reference));
    for Plot { file, shows, .. } in parts.plots {
        page.push_str(&format!("\n![{shows}]({}/{file})\n", parts.plots_dir));
    }
    for pair in parts.pairs {
        page.push_str(&beside(comparisons, pair));
    }
    page.push_str(&sized::section(parts.sizes));
    page.push_str(&costs_of_etcd(comparisons));
    page.push_str(&growth::sections(parts.growth, comparisons, parts.modelled));
    if !parts.terms.is_empty() {
        write!(page, "\n{}\n", parts.terms.trim_end()).expect("a string takes all");
    }
    let mut workload = "";
    for comparison in comparisons {
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

/// Which run each part is of: more than one if some were measured again.
fn runs(parts: &Page<'_>) -> String {
    let mut runs: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let workloads = parts.results.iter().map(|one| (one.run.as_str(), one.workload.as_str()));
    let sizes = parts.sizes.iter().map(|one| (one.run.as_str(), "memory and start"));
    let growth = parts.growth.iter().map(|one| (one.run.as_str(), "growth"));
    let modelled = parts.modelled.iter().map(|one| match one {
        Modelled::Idle { run, .. } | Modelled::Writes { run, .. } => (run.as_str(), "simulations"),
    });
    for (run, what) in workloads.chain(sizes).chain(growth).chain(modelled) {
        let all = runs.entry(run).or_default();
        if !all.contains(&what) {
            all.push(what);
        }
    }
    let only = runs.len() == 1;
    let line = |(run, what): (&str, Vec<&str>)| {
        let what = if only { String::new() } else { format!(": {}", what.join(", ")) };
        let run = if run.is_empty() { "unknown" } else { run };
        format!("- Code: {run}{what}.\n")
    };
    runs.into_iter().map(line).collect()
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
                pair.map_or_else(String::new, |(rounds, against)| shown(ratio(rounds, against, of)))
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
        let cells = [ops as Figure, p50, p99, cpu].map(|of| shown(ratio(rounds, against, of)));
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

/// What etcd counted for an operation, for all who have one.
fn costs_of_etcd(comparisons: &[Comparison<'_>]) -> String {
    let mut rows = String::new();
    for comparison in comparisons {
        for (server, rounds) in &comparison.servers {
            let cell = |name: &str| {
                let counts = rounds.values().filter_map(|figures| figures.etcd_per_op.as_ref());
                median(counts.filter_map(|counts| counts.get(name).copied()).collect())
            };
            let cells: Option<Vec<f64>> = costs::names().map(cell).collect();
            let Some(cells) = cells else { continue };
            let cells: String = cells.iter().map(|value| format!(" {} |", short(*value))).collect();
            let case = &comparison.case;
            rows.push_str(&format!("| {} | {} | {server} |{cells}\n", case.workload, case.load()));
        }
    }
    if rows.is_empty() {
        return rows;
    }
    let heads: String = costs::names().map(|name| format!(" {name} |")).collect();
    let lines = "---:|".repeat(costs::names().count());
    format!(
        "\n## What an operation costs etcd\n\n\
         | workload | load | server |{heads}\n|---|---|---|{lines}\n{rows}"
    )
}

const TABLE_HEAD: &str = "\
| connections × in flight | server | ops/s | ratio | p50 ms | p99 ms | CPU µs/op | ratio | of which |
|---|---|---:|---:|---:|---:|---:|---:|---|
";

fn row(case: &Case, name: &str, rounds: &Rounds<'_>, against: Option<&Rounds<'_>>) -> String {
    let ratio =
        |of| against.map_or_else(|| "1".into(), |against| shown(ratio(rounds, against, of)));
    let figure = |of: Figure, digits: usize| {
        let values = rounds.values().filter_map(|figures| of(figures)).collect();
        median(values).map_or_else(String::new, |value| format!("{value:.digits$}"))
    };
    format!(
        "| {} | {name} | {} | {} | {} | {} | {} | {} | {} |\n",
        case.load(),
        figure(ops, 0),
        ratio(ops),
        figure(p50, 3),
        figure(p99, 3),
        figure(cpu, 1),
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

/// A ratio with two digits.
fn shown(ratio: Option<f64>) -> String {
    ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::{arrange, latest, parse};
    use crate::measure::{Figures, Latency};
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
            run: "now".into(),
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
                etcd_per_op: None,
                etcd_start_per_session: None,
            },
        }
    }

    fn made(conditions: &str, results: &[Measurement], pairs: &[Pair]) -> Result<String> {
        page(&Page {
            conditions,
            terms: "",
            results,
            growth: &[],
            sizes: &[],
            modelled: &[],
            comparisons: &arrange(results),
            reference: "ZooKeeper",
            pairs,
            plots: &[],
            plots_dir: "",
        })
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
        let page = made("# Title\n", &results, &[pair]).expect("complete results");
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
    fn a_round_in_which_nothing_was_finished_does_not_count() {
        let mut nothing = measured("zkshim", 1, 0.0, &[("zkshim", 7.0)]);
        nothing.figures.ops = 0;
        let mut results = vec![nothing];
        for round in 1..=2 {
            results.push(measured("ZooKeeper", round, 100.0, &[("zookeeper", 40.0)]));
        }
        results.push(measured("zkshim", 2, 300.0, &[("zkshim", 20.0)]));
        let page = made("", &results, &[]).expect("complete results");
        assert!(page.contains("| set | 8 × 4 | 3.00 | 1.00 | 0.50 |"), "{page}");
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
    fn what_etcd_counted_is_shown_for_an_operation() {
        let mut result = measured("ZooKeeper", 1, 1.0, &[]);
        let counts = costs::names().map(|name| (name.to_owned(), 0.125)).collect();
        result.figures.etcd_per_op = Some(counts);
        let page = made("", &[result, measured("x", 1, 1.0, &[])], &[]).expect("complete results");
        assert!(page.contains("| set | 8 × 4 | ZooKeeper | 0.1250 | 0.1250 |"), "{page}");
        assert!(!page.contains("| set | 8 × 4 | x |"), "{page}");
    }

    #[test]
    fn what_was_measured_again_replaces_all_rounds_of_before() {
        let of = |run: &str, one: Measurement| Measurement { run: run.into(), ..one };
        let reference = |round| measured("ZooKeeper", round, 100.0, &[("zookeeper", 1.0)]);
        let ours = |round, ops| measured("zkshim", round, ops, &[("zkshim", 1.0)]);
        let results = latest(vec![
            of("old", reference(1)),
            of("old", reference(2)),
            of("old", ours(1, 100.0)),
            of("old", ours(2, 100.0)),
            of("old", Measurement { workload: "get".into(), ..ours(1, 100.0) }),
            of("new", reference(1)),
            of("new", ours(1, 300.0)),
        ]);
        let page = made("", &results, &[]).expect("complete results");
        assert!(page.contains("| set | 8 × 4 | 3.00 | 1.00 | 1.00 |"), "{page}");
        assert!(page.contains("- Code: new: set.\n- Code: old: get.\n"), "{page}");
    }

    #[test]
    fn a_missing_reference_is_an_error() {
        let results = [measured("zkshim", 1, 1.0, &[])];
        assert!(made("", &results, &[]).is_err());
    }
}
