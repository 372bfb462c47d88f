//! What we want to reach, as data, and what was reached: a table of the page. A goal is missed if
//! one of its figures is, and then the table says by how much.

use std::fmt::Write;

use crate::comparison::{Case, Comparison, Figure, cpu, median, ops, p50, p99, ratio};
use crate::sized::Sized;

/// The servers, as `tools/bench` calls them.
pub(crate) const ZOOKEEPER: &str = "ZooKeeper";
pub(crate) const ON_ETCD: &str = "zkshim on etcd";
const EMBEDDED: &str = "zkshim embedded";
pub(crate) const BARE: &str = "etcd, one txn an operation";
pub(crate) const SEVERAL: [&str; 2] = ["2 zkshims on one etcd", "3 zkshims on one etcd"];

/// A line of the table.
struct Goal {
    what: &'static str,
    ours: &'static str,
    against: &'static str,
    cases: fn(&Case) -> bool,
    wants: &'static [Want],
}

/// One figure of a goal: for each load.
struct Want {
    name: &'static str,
    of: Measure,
    bound: Bound,
}

#[derive(Clone, Copy)]
enum Measure {
    /// The median of the ratios within the rounds.
    Ratio(Figure),
    /// What etcd counted for an operation of ours.
    EtcdPerOp(&'static str),
}

#[derive(Clone, Copy, Debug)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}
use Bound::{AtLeast, AtMost};

const fn ratio_of(name: &'static str, figure: Figure, bound: Bound) -> Want {
    Want { name, of: Measure::Ratio(figure), bound }
}

const READS: &[Want] = &[
    ratio_of("ops/s", ops, AtLeast(4.0)),
    ratio_of("p99", p99, AtMost(1.0)),
    ratio_of("CPU", cpu, AtMost(0.25)),
];
const MANY_TIMES_BARE: &[Want] = &[ratio_of("ops/s", ops, AtLeast(5.0))];
const AHEAD: &[Want] = &[ratio_of("ops/s", ops, AtLeast(1.0))];
const NEAR_BARE: &[Want] = &[ratio_of("p50", p50, AtMost(1.3))];
const NO_COLLAPSE: &[Want] = &[ratio_of("ops/s", ops, AtLeast(0.7))];

fn is_pipelined(case: &Case) -> bool {
    [8, 64].contains(&case.connections) && case.in_flight == 16
}

fn is_alone(case: &Case) -> bool {
    case.connections == 1 && case.in_flight == 1
}

fn is_lock(case: &Case) -> bool {
    case.workload == "lock"
}

fn is_write(case: &Case) -> bool {
    ["set", "create", "eseq"].contains(&case.workload.as_str())
}

const GOALS: &[Goal] = &[
    Goal {
        what: "getData, pipelined",
        ours: ON_ETCD,
        against: ZOOKEEPER,
        cases: |case| case.workload == "get" && is_pipelined(case),
        wants: READS,
    },
    Goal {
        what: "exists, pipelined",
        ours: ON_ETCD,
        against: ZOOKEEPER,
        cases: |case| case.workload == "exists" && is_pipelined(case),
        wants: READS,
    },
    Goal {
        what: "getChildren of 100, pipelined",
        ours: ON_ETCD,
        against: ZOOKEEPER,
        cases: |case| case.workload == "children" && is_pipelined(case),
        wants: READS,
    },
    Goal {
        what: "setData, pipelined",
        ours: ON_ETCD,
        against: ZOOKEEPER,
        cases: |case| case.workload == "set" && is_pipelined(case),
        wants: &[ratio_of("ops/s", ops, AtLeast(1.0)), ratio_of("CPU", cpu, AtMost(1.0))],
    },
    Goal {
        what: "create, pipelined",
        ours: ON_ETCD,
        against: ZOOKEEPER,
        cases: |case| case.workload == "create" && is_pipelined(case),
        wants: &[ratio_of("ops/s", ops, AtLeast(1.2)), ratio_of("CPU", cpu, AtMost(1.0))],
    },
    Goal {
        what: "create of ephemeral-sequentials, pipelined",
        ours: ON_ETCD,
        against: ZOOKEEPER,
        cases: |case| case.workload == "eseq" && is_pipelined(case),
        wants: &[ratio_of("ops/s", ops, AtLeast(1.3)), ratio_of("CPU", cpu, AtMost(1.0))],
    },
    Goal {
        what: "setData, pipelined",
        ours: ON_ETCD,
        against: BARE,
        cases: |case| case.workload == "set" && is_pipelined(case),
        wants: MANY_TIMES_BARE,
    },
    Goal {
        what: "create, pipelined",
        ours: ON_ETCD,
        against: BARE,
        cases: |case| case.workload == "create" && is_pipelined(case),
        wants: MANY_TIMES_BARE,
    },
    Goal {
        what: "one client with one setData in flight",
        ours: ON_ETCD,
        against: BARE,
        cases: |case| case.workload == "set" && is_alone(case),
        wants: NEAR_BARE,
    },
    Goal {
        what: "one client with one create in flight",
        ours: ON_ETCD,
        against: BARE,
        cases: |case| case.workload == "create" && is_alone(case),
        wants: NEAR_BARE,
    },
    Goal {
        what: "short sessions",
        ours: ON_ETCD,
        against: ZOOKEEPER,
        cases: |case| case.workload == "session",
        wants: &[
            ratio_of("ops/s", ops, AtLeast(3.0)),
            Want {
                name: "leases granted an operation",
                of: Measure::EtcdPerOp("leases granted"),
                bound: AtMost(0.0),
            },
            Want {
                name: "leases revoked an operation",
                of: Measure::EtcdPerOp("leases revoked"),
                bound: AtMost(0.0),
            },
        ],
    },
    Goal {
        what: "one setData until the last of many watchers has its event",
        ours: ON_ETCD,
        against: ZOOKEEPER,
        cases: |case| case.workload == "watch" && case.connections >= 1000,
        wants: &[ratio_of("p50", p50, AtMost(0.5))],
    },
    Goal {
        what: "lock cycle",
        ours: SEVERAL[0],
        against: ON_ETCD,
        cases: is_lock,
        wants: NO_COLLAPSE,
    },
    Goal {
        what: "lock cycle",
        ours: SEVERAL[1],
        against: ON_ETCD,
        cases: is_lock,
        wants: NO_COLLAPSE,
    },
    Goal {
        what: "nine reads to a write, 64 connections",
        ours: ON_ETCD,
        against: ZOOKEEPER,
        cases: |case| case.workload == "mixed" && case.connections == 64,
        wants: &[ratio_of("ops/s", ops, AtLeast(2.0))],
    },
    Goal {
        what: "writes (setData, create, ephemeral-sequential), all loads",
        ours: EMBEDDED,
        against: ZOOKEEPER,
        cases: is_write,
        wants: &[ratio_of("ops/s", ops, AtLeast(2.0))],
    },
    Goal {
        what: "all else but pings",
        ours: EMBEDDED,
        against: ZOOKEEPER,
        cases: |case| !is_write(case) && !case.workload.starts_with("idle"),
        wants: AHEAD,
    },
];

/// The section of the page.
pub(crate) fn section(comparisons: &[Comparison<'_>], sizes: &[Sized]) -> String {
    let mut rows: String = GOALS.iter().map(|goal| goal.row(comparisons)).collect();
    rows.push_str(&sizes_rows(sizes));
    format!(
        "\n## Targets\n\n\
         What zkshim is meant to reach, and what these results show: ratios of one server to \
         another (of *CPU*, the processor time for an operation), medians of the rounds.\n\n\
         | workload | ratio of | target | measured | |\n|---|---|---|---|---|\n{rows}"
    )
}

/// One figure at one load.
struct Found {
    load: String,
    want: &'static str,
    bound: Bound,
    value: f64,
}

impl Goal {
    fn row(&self, comparisons: &[Comparison<'_>]) -> String {
        let found: Vec<Found> = comparisons
            .iter()
            .filter(|comparison| (self.cases)(&comparison.case))
            .flat_map(|comparison| self.wants.iter().filter_map(|want| self.find(comparison, want)))
            .collect();
        let wants = self.wants.iter().map(|want| format!("{} {}", want.name, want.bound.shown()));
        let wants = wants.collect::<Vec<_>>().join(", ");
        line(self.what, &format!("{} to {}", self.ours, self.against), &wants, &found)
    }

    fn find(&self, comparison: &Comparison<'_>, want: &Want) -> Option<Found> {
        let rounds = comparison.server(self.ours)?;
        let value = match want.of {
            Measure::Ratio(figure) => ratio(rounds, comparison.server(self.against)?, figure)?,
            Measure::EtcdPerOp(name) => {
                let counts = rounds.values().filter_map(|figures| figures.etcd_per_op.as_ref());
                median(counts.filter_map(|counts| counts.get(name).copied()).collect())?
            }
        };
        let Case { workload, .. } = &comparison.case;
        let load = format!("{workload} {}", comparison.case.load());
        Some(Found { load, want: want.name, bound: want.bound, value })
    }
}

impl Bound {
    fn shown(self) -> String {
        match self {
            AtLeast(bound) => format!("≥ {bound}"),
            AtMost(bound) => format!("≤ {bound}"),
        }
    }

    /// By which part of the bound it is missed, if it is. What is shown as the bound meets it.
    fn missed_by(self, value: f64) -> Option<f64> {
        let value = (value * 1000.0).round() / 1000.0;
        match self {
            AtLeast(bound) => (value < bound).then(|| 1.0 - value / bound),
            AtMost(bound) => (value > bound).then(|| value / bound - 1.0),
        }
    }
}

/// More figures than this are summed up.
const SHOWN_EACH_MAX: usize = 9;

fn line(what: &str, server: &str, target: &str, found: &[Found]) -> String {
    let verdict = if found.is_empty() { "not measured".to_owned() } else { verdict(found) };
    format!("| {what} | {server} | {target} | {} | {verdict} |\n", measured(found))
}

fn measured(found: &[Found]) -> String {
    let mut text = String::new();
    if found.len() > SHOWN_EACH_MAX {
        let by_value = |a: &&Found, b: &&Found| a.value.total_cmp(&b.value);
        let ends = found.iter().min_by(by_value).zip(found.iter().max_by(by_value));
        let (least, most) = ends.expect("there are many");
        return format!(
            "{} {:.2} ({}) to {:.2} ({})",
            least.want, least.value, least.load, most.value, most.load
        );
    }
    let mut load = "";
    for one in found {
        let between = if load.is_empty() { "" } else { "; " };
        if load == one.load {
            text.push_str(", ");
        } else {
            write!(text, "{between}{}: ", one.load).expect("a string takes all");
        }
        load = &one.load;
        write!(text, "{} {:.2}", one.want, one.value).expect("a string takes all");
    }
    text
}

fn verdict(found: &[Found]) -> String {
    let misses = found.iter().filter_map(|one| {
        let part = one.bound.missed_by(one.value)?;
        let by = match one.bound {
            _ if !part.is_finite() => "more than none".to_owned(),
            AtLeast(_) => format!("{} short", percent(part)),
            AtMost(_) => format!("{} over", percent(part)),
        };
        Some(format!("{} {} {:.2} ({by})", one.load, one.want, one.value))
    });
    let misses: Vec<String> = misses.collect();
    match misses.len() {
        0 => "**met**".into(),
        _ if found.len() == 1 => format!("missed: {}", misses.join("; ")),
        count => format!("missed in {count} of {}: {}", found.len(), misses.join("; ")),
    }
}

fn percent(part: f64) -> String {
    let digits = usize::from(part < 0.01);
    format!("{:.digits$} %", part * 100.0)
}

/// Memory of our own processes beside ZooKeeper's live heap, and the time of a start.
fn sizes_rows(sizes: &[Sized]) -> String {
    let find = |name: &str| sizes.iter().find(|one| one.server == name);
    let both = find(ON_ETCD).zip(find(ZOOKEEPER));
    let mut rows = String::new();
    let mut row =
        |what: &'static str, of_what: &str, (target, bound), load: String, value: Option<f64>| {
            let want = what.split([' ', ',']).next().expect("a first word");
            let found = value.map(|value| Found { load, want, bound, value });
            rows.push_str(&line(what, of_what, target, found.as_slice()));
        };
    let of = |of: fn(&Sized) -> u64, load: &str| {
        (both.map(|(ours, _)| format!("{} {load}", of(ours)))).unwrap_or_default()
    };
    let heap = format!("{ON_ETCD} to {ZOOKEEPER}'s heap in use");
    let half = ("≤ 0.5", AtMost(0.5));
    let filled = both.map(|(ours, theirs)| ours.filled_kib as f64 / theirs.filled_kib as f64);
    row("memory, full of znodes of 100 bytes", &heap, half, of(|one| one.znodes, "znodes"), filled);
    let each = both.map(|(ours, theirs)| ours.session_bytes() / theirs.session_bytes());
    row("memory of idle sessions", &heap, half, of(|one| one.sessions, "sessions"), each);
    let seconds = find(ON_ETCD).map(|ours| ours.start_ms as f64 / 1e3);
    let limit = ("under 10 s", AtMost(10.0));
    row(
        "seconds of a start from a full etcd",
        ON_ETCD,
        limit,
        of(|one| one.znodes, "znodes"),
        seconds,
    );
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sized::tests::sized;

    fn found(load: &str, bound: Bound, value: f64) -> Found {
        Found { load: load.into(), want: "ops/s", bound, value }
    }

    #[test]
    fn what_is_missed_is_told_with_how_much() {
        let both = [found("a", AtLeast(2.0), 1.5), found("b", AtLeast(2.0), 2.0)];
        assert_eq!(verdict(&both), "missed in 1 of 2: a ops/s 1.50 (25 % short)");
        assert_eq!(verdict(&both[1..]), "**met**");
        let over = [found("a", AtMost(0.5), 0.75)];
        assert_eq!(verdict(&over), "missed: a ops/s 0.75 (50 % over)");
        assert_eq!(verdict(&[found("a", AtMost(0.0), 0.0004)]), "**met**");
        let some = verdict(&[found("a", AtMost(0.0), 0.1)]);
        assert_eq!(some, "missed: a ops/s 0.10 (more than none)");
    }

    #[test]
    fn memory_and_start_have_their_lines() {
        let sizes = [sized(ZOOKEEPER, 400_000), sized(ON_ETCD, 250_000)];
        let text = section(&[], &sizes);
        let filled = "| ≤ 0.5 | 1000000 znodes: memory 0.62 | missed: 1000000 znodes memory 0.62 \
                      (25 % over) |";
        assert!(text.contains(filled), "{text}");
        assert!(text.contains("| under 10 s | 1000000 znodes: seconds 2.50 | **met** |"), "{text}");
    }

    #[test]
    fn a_goal_without_results_is_not_met() {
        let text = section(&[], &[]);
        assert_eq!(text.matches("| not measured |").count(), GOALS.len() + 3, "{text}");
        assert!(!text.contains("met**"), "{text}");
    }

    #[test]
    fn many_loads_are_summed_up_in_the_table_but_each_miss_is_named() {
        let many: Vec<Found> =
            (0..10).map(|n| found(&format!("l{n}"), AtLeast(1.0), 0.9 + f64::from(n))).collect();
        assert_eq!(measured(&many), "ops/s 0.90 (l0) to 9.90 (l9)");
        assert_eq!(verdict(&many), "missed in 1 of 10: l0 ops/s 0.90 (10 % short)");
        assert_eq!(measured(&many[..2]), "l0: ops/s 0.90; l1: ops/s 1.90");
    }
}
