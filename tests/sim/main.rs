//! Deterministic simulation: several cores on one etcd, with clients and faults, under one seed and
//! one clock.
//!
//! `SIM_SEED=7 cargo test --test sim` runs one seed and prints what happens; `SIM_SEEDS=5000`
//! runs so many, from `SIM_FROM` on.

mod breaks;
mod checks;
mod client;
mod ending;
mod etcd;
mod faults;
mod model;
mod plan;
mod random;
mod shim;
mod workload;
mod world;

use crate::breaks::Break;
use crate::world::{Report, World};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Seeds that every run of the tests goes through.
const SEEDS: u64 = 100;

/// The lines of a failed seed's trace that are shown.
const LOG_LINES: usize = 400;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}

fn run(seed: u64) -> Result<Report, String> {
    let run = AssertUnwindSafe(|| World::new(seed, None, 0).run());
    catch_unwind(run).unwrap_or_else(|_| Err("a core panicked".into()))
}

/// Run a seed again with a trace, for somebody to read.
fn show(seed: u64, lines: usize) {
    let mut world = World::new(seed, None, lines);
    let outcome = catch_unwind(AssertUnwindSafe(|| world.run()));
    for line in world.log() {
        eprintln!("{line}");
    }
    eprintln!("seed {seed}: {outcome:?}");
}

#[test]
fn nothing_that_was_promised_is_lost() {
    let one = number("SIM_SEED");
    let from = one.or(number("SIM_FROM")).unwrap_or(0);
    let seeds = if one.is_some() { 1 } else { number("SIM_SEEDS").unwrap_or(SEEDS) };
    let mut total = Report::default();
    let mut failed = Vec::new();
    for seed in from..from + seeds {
        match run(seed) {
            Ok(report) => total.add(&report),
            Err(violation) => {
                eprintln!("seed {seed}: {violation}");
                failed.push(seed);
            }
        }
    }
    if let Some(seed) = one.or(failed.first().copied()) {
        show(seed, if one.is_some() { usize::MAX } else { LOG_LINES });
    }
    eprintln!("{seeds} seeds: {total:?}");
    assert!(failed.is_empty(), "failed seeds: {failed:?}");
    assert!(total.replies > 100 * seeds, "clients got nothing done: {total:?}");
    assert!(one.is_some() || (total.events > seeds && total.locks > 0), "{total:?}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = || {
        let mut world = World::new(5, None, LOG_LINES);
        let report = world.run();
        (format!("{report:?}"), world.log().cloned().collect::<Vec<_>>())
    };
    assert_eq!(run(), run());
}

/// Some seed among the first shows that a rule is broken, by this complaint.
fn check_noticed(breaks: Break, complaints: &[&str]) {
    let mut others = Vec::new();
    for seed in 0..20 {
        let Err(violation) = World::new(seed, Some(breaks), 0).run() else { continue };
        if complaints.iter().any(|complaint| violation.contains(complaint)) {
            return;
        }
        others.push(violation);
    }
    panic!("nobody noticed {breaks:?}; noticed was {others:#?}");
}

#[test]
fn lost_events_are_noticed() {
    check_noticed(Break::EventsLost, &["before event", "expected", "by setWatches", "no Node"]);
}

#[test]
fn replies_before_their_events_are_noticed() {
    check_noticed(Break::RepliesFirst, &["came before event"]);
}

#[test]
fn replies_out_of_turn_are_noticed() {
    check_noticed(Break::RepliesSwapped, &["is next"]);
}

#[test]
fn writes_of_sessions_that_moved_or_ended_are_noticed() {
    check_noticed(
        Break::FenceIgnored,
        &["after the session was served", "for a session that is gone", "outlive"],
    );
}

#[test]
fn writes_on_changed_ground_are_noticed() {
    check_noticed(
        Break::GuardsIgnored,
        &[
            "without a parent",
            "was deleted above",
            "counter went",
            "version moved",
            "written again",
        ],
    );
}

#[test]
fn sessions_that_expire_early_are_noticed() {
    check_noticed(Break::LeasesCut, &["expired at"]);
}

#[test]
fn ephemerals_that_outlive_their_session_are_noticed() {
    check_noticed(Break::SessionFirst, &["outlive session"]);
}

#[test]
fn a_zxid_that_falls_is_noticed() {
    check_noticed(Break::ZxidsFall, &["was seen"]);
}

#[test]
fn a_write_done_twice_is_noticed() {
    check_noticed(Break::WrittenTwice, &["was written again"]);
}

#[test]
fn a_refusal_of_a_living_session_is_noticed() {
    check_noticed(Break::Refusals, &["was refused, but it is there"]);
}

#[test]
fn sessions_that_never_expire_are_noticed() {
    check_noticed(Break::SilenceKept, &["should have expired", "a session is left"]);
}

#[test]
fn a_write_that_is_lost_is_noticed() {
    check_noticed(
        Break::WritesLost,
        &["is in the history at None", "not created in this revision"],
    );
}

#[test]
fn a_tree_that_differs_is_noticed() {
    check_noticed(Break::DataGarbled, &["expected Ok(Data"]);
}

#[test]
fn failures_that_are_not_right_are_noticed() {
    check_noticed(Break::FailuresInvented, &["was wrong from"]);
}
