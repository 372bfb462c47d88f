//! How what zkshim costs etcd grows with sessions, watchers, znodes and shims: sections of the
//! page, from measurements and from simulations.

use crate::comparison::{Case, Comparison, median};
use crate::costs::Counts;
use crate::measure::Measurement;
use crate::model::{Modelled, TIMEOUT, Work};
use crate::targets::{ON_ETCD, SEVERAL};

/// All sections, for what there is.
pub(crate) fn sections(
    growth: &[Measurement],
    comparisons: &[Comparison<'_>],
    modelled: &[Modelled],
) -> String {
    let parts = [
        idle(growth),
        starts(growth),
        watchers(comparisons),
        znodes(growth),
        shims(growth),
        simulated_sessions(modelled),
        simulated_writes(modelled),
    ];
    if parts.iter().all(String::is_empty) {
        return String::new();
    }
    format!("\n## What etcd is asked for, and how it grows\n{}", parts.concat())
}

/// A section, if it has rows: its title and text, the heads of its columns, and the rows.
fn table(text: &str, heads: &[&str], rows: &str) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let lines = "---:|".repeat(heads.len());
    format!("\n{text}\n\n| {} |\n|{lines}\n{rows}", heads.join(" | "))
}

/// How many shims a server has.
fn shim_count(target: &str) -> Option<usize> {
    let all = [ON_ETCD, SEVERAL[0], SEVERAL[1]];
    all.iter().position(|name| *name == target).map(|index| index + 1)
}

fn is_idle(one: &Measurement) -> bool {
    one.workload.starts_with("idle")
}

/// Processor time of the processes whose names begin so, as thousandths of one processor.
fn cpu_permille(one: &Measurement, name: &str) -> f64 {
    let spent = one.figures.processes.iter().filter(|spent| spent.name.starts_with(name));
    let us: u64 = spent.map(|spent| spent.cpu_us).sum();
    us as f64 / one.figures.seconds / 1e3
}

const STEADY: [&str; 6] =
    ["Raft entries", "WAL fsyncs", "WAL bytes", "puts", "leases renewed", "bytes sent"];

fn idle(growth: &[Measurement]) -> String {
    let rows = growth.iter().filter(|one| is_idle(one)).filter_map(|one| {
        let shims = shim_count(&one.target)?;
        let per_second: Option<Vec<f64>> =
            STEADY.iter().map(|name| one.figures.etcd_per_second(name)).collect();
        let cells: Vec<String> = per_second?.into_iter().map(short).collect();
        let renewals = one.figures.etcd_per_op.as_ref()?.get("leases renewed")?;
        Some(format!(
            "| {} | {shims} | {} | {} | {:.0} | {:.0} |\n",
            sessions(one),
            cells.join(" | "),
            short(*renewals),
            cpu_permille(one, "etcd"),
            cpu_permille(one, "zkshim"),
        ))
    });
    let text = "### Idle sessions\n\n\
                In a second, once all have their keys: sessions with a timeout of 20 s that ping \
                three times within it, alone or each with an ephemeral.\n\
                CPU is in thousandths of one processor.";
    let mut heads = vec!["sessions", "shims"];
    heads.extend(STEADY);
    heads.extend(["renewals a ping", "etcd's CPU", "zkshim's CPU"]);
    table(text, &heads, &rows.collect::<String>())
}

fn sessions(one: &Measurement) -> String {
    let owns = if one.workload == "idle-own" { " with an ephemeral" } else { "" };
    format!("{}{owns}", one.connections)
}

const STARTS: [&str; 5] = ["Raft entries", "WAL fsyncs", "puts", "leases granted", "bytes sent"];

fn starts(growth: &[Measurement]) -> String {
    let rows = growth.iter().filter(|one| is_idle(one)).filter_map(|one| {
        let shims = shim_count(&one.target)?;
        let cells = cells(one.figures.etcd_start_per_session.as_ref()?, &STARTS)?;
        Some(format!("| {} | {shims} | {cells} |\n", sessions(one)))
    });
    let text = "### Sessions that begin\n\n\
                For each session, from its connect until it has its key, which it gets after a \
                second or when it first writes, and none if it ends before; all began as fast as \
                they could, on a fresh zkshim.\n\
                Of sessions that end, zkshim keeps the leases for the next ones.";
    table(text, &[&["sessions", "shims"][..], &STARTS].concat(), &rows.collect::<String>())
}

const OPERATION: [&str; 5] = ["Raft entries", "WAL fsyncs", "WAL bytes", "puts", "bytes sent"];

fn watchers(comparisons: &[Comparison<'_>]) -> String {
    let rows = comparisons.iter().filter_map(|comparison| {
        let Case { workload, connections, .. } = &comparison.case;
        let rounds = comparison.server(ON_ETCD).filter(|_| workload == "watch")?;
        let cell = |name: &&str| {
            let counts = rounds.values().filter_map(|figures| figures.etcd_per_op.as_ref());
            let each = median(counts.filter_map(|counts| counts.get(*name).copied()).collect())?;
            Some(short(each * *connections as f64))
        };
        let cells: Option<Vec<String>> = OPERATION.iter().map(cell).collect();
        Some(format!("| {connections} | {} |\n", cells?.join(" | ")))
    });
    let text = "### Watchers\n\n\
                For one setData that all of them watch; they set their watches again in between.";
    table(text, &[&["watchers"][..], &OPERATION].concat(), &rows.collect::<String>())
}

fn znodes(growth: &[Measurement]) -> String {
    let rows = growth.iter().filter_map(|one| {
        let znodes =
            one.target.strip_prefix(ON_ETCD)?.strip_prefix(", ")?.strip_suffix(" znodes")?;
        Some(format!("| {znodes} | {}", operation(one)?))
    });
    let text = "### Znodes\n\nFor one operation, beside so many znodes.";
    let heads = [&["znodes", "workload", "load", "ops/s"][..], &OPERATION, &CPU].concat();
    table(text, &heads, &rows.collect::<String>())
}

const CPU: [&str; 2] = ["etcd's CPU µs", "zkshim's CPU µs"];

fn shims(growth: &[Measurement]) -> String {
    let rows = growth
        .iter()
        .filter(|one| !is_idle(one))
        .filter_map(|one| Some(format!("| {} | {}", shim_count(&one.target)?, operation(one)?)));
    let text = "### Shims under load\n\nFor one operation, with the clients spread over the shims.";
    let heads = [&["shims", "workload", "load", "ops/s"][..], &OPERATION, &CPU].concat();
    table(text, &heads, &rows.collect::<String>())
}

/// What an operation cost: the rest of a row.
fn operation(one: &Measurement) -> Option<String> {
    let figures = &one.figures;
    let cells = cells(figures.etcd_per_op.as_ref()?, &OPERATION)?;
    let each = |name| cpu_permille(one, name) * 1e3 / figures.ops_per_second.max(1.0);
    let (etcd, zkshim) = (each("etcd"), each("zkshim"));
    let (load, ops) = (Case::of(one).load(), figures.ops_per_second);
    Some(format!("{} | {load} | {ops:.0} | {cells} | {etcd:.1} | {zkshim:.1} |\n", one.workload))
}

const ASKED: [&str; 6] = [
    "Raft entries",
    "puts",
    "leases granted",
    "leases renewed",
    "linearizable reads",
    "progress requests",
];

fn simulated_sessions(modelled: &[Modelled]) -> String {
    let rows = modelled.iter().filter_map(|one| {
        let Modelled::Idle { shims, sessions, start_per_session, per_second, .. } = one else {
            return None;
        };
        let starts = cells(start_per_session, &["Raft entries", "leases granted"])?;
        let cells = cells(per_second, &ASKED)?;
        let each = per_second["leases renewed"] * (TIMEOUT / 3).as_secs_f64() / *sessions as f64;
        Some(format!("| {sessions} | {shims} | {cells} | {} | {starts} |\n", short(each)))
    });
    let text = "### Beyond this machine: simulated sessions\n\n\
                The server's own core in simulated time: idle sessions as above, on a store that \
                answers at once; what it asks etcd for in a second. Where above and here have the \
                same sizes, the figures should agree.";
    let heads = [
        &["sessions", "shims"][..],
        &ASKED,
        &[
            "renewals a session in a third of its timeout",
            "Raft entries for a session that begins",
            "leases granted for it",
        ],
    ];
    table(text, &heads.concat(), &rows.collect::<String>())
}

fn simulated_writes(modelled: &[Modelled]) -> String {
    let names = ["Raft entries", "puts", "failed txns", "changes sent"];
    let rows = modelled.iter().filter_map(|one| {
        let Modelled::Writes { work, shims, clients, per_op, .. } = one else { return None };
        let work = match work {
            Work::Set => "set a znode of their own",
            Work::Create => "create under one parent",
        };
        Some(format!("| {clients} that {work} | {shims} | {} |\n", cells(per_op, &names)?))
    });
    let text = "### Beyond this machine: simulated writes\n\n\
                The same for clients with one write under way each; for one write. \
                The store answers after 0.4 ms whatever it is given, so how fast it \
                went says nothing. A txn fails if another shim came between; what is in it is \
                planned again.";
    table(text, &[&["clients", "shims"][..], &names].concat(), &rows.collect::<String>())
}

fn cells(counts: &Counts, names: &[&str]) -> Option<String> {
    let values: Option<Vec<String>> =
        names.iter().map(|name| counts.get(*name).copied().map(short)).collect();
    Some(values?.join(" | "))
}

/// Three digits that matter.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        large if large >= 100.0 => format!("{value:.0}"),
        medium if medium >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs;
    use crate::measure::{Figures, Latency};
    use crate::processes::Spent;

    fn measured(target: &str, workload: &str) -> Measurement {
        let counts = |count: f64| costs::names().map(|name| (name.to_owned(), count)).collect();
        let spent = |name: &str, cpu_us| Spent {
            name: name.into(),
            cpu_us,
            cpu_us_per_op: 0.0,
            resident_kib: 1,
        };
        Measurement {
            run: "now".into(),
            target: target.into(),
            round: 1,
            workload: workload.into(),
            connections: 100,
            in_flight: 1,
            rate: None,
            figures: Figures {
                seconds: 2.0,
                ops: 400,
                ops_per_second: 200.0,
                latency: Latency::default(),
                processes: vec![
                    spent("etcd", 100_000),
                    spent("zkshim", 40_000),
                    spent("zkshim-2", 4000),
                ],
                etcd_per_op: Some(counts(0.5)),
                etcd_start_per_session: workload.starts_with("idle").then(|| counts(1.5)),
            },
        }
    }

    #[test]
    fn each_measurement_is_in_the_section_that_it_is_of() {
        let all = [
            measured(ON_ETCD, "idle"),
            measured(SEVERAL[0], "idle-own"),
            measured("zkshim on etcd, 1000 znodes", "set"),
            measured(SEVERAL[1], "set"),
        ];
        let page = sections(&all, &[], &[]);
        // 0.5 an operation, at 200 a second.
        let idle = "| 100 | 1 | 100 | 100 | 100 | 100 | 100 | 100 | 0.5000 | 50 | 22 |";
        assert!(page.contains(idle), "{page}");
        assert!(page.contains("| 100 with an ephemeral | 2 | 1.50 | 1.50 |"), "{page}");
        let znodes = "| 1000 | set | 100 × 1 | 200 | 0.5000 | 0.5000 |";
        assert!(page.contains(znodes), "{page}");
        assert!(page.contains("| 3 | set | 100 × 1 | 200 |"), "{page}");
        assert!(!page.contains("### Watchers"), "{page}");
        assert_eq!(sections(&[], &[], &[]), "");
    }
}
