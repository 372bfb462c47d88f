//! Deterministic simulation: several cores on one etcd, with clients and faults, under one seed and
//! one clock.
//!
//! `SIM_SEED=7 cargo test --test sim` runs one seed and prints what happens; `SIM_SEEDS=5000`
//! runs so many, from `SIM_FROM` on. A seed that fails is played again and again with less and
//! less in it, and the command that plays the rest is printed; `SIM_ONLY` names what it takes.
//! `SIM_CLOCKS=wide` lets the shims' clocks be seconds or an hour apart.

mod breaks;
mod calls;
mod checks;
mod client;
mod ending;
mod etcd;
mod faults;
mod lock;
mod model;
mod mutants;
mod offset;
mod plan;
mod queue;
mod random;
mod script;
mod shim;
mod shrink;
mod stream;
mod workload;
mod world;

use crate::breaks::Break;
use crate::script::Decision;
use crate::shrink::{Failure, shrink};
use crate::world::{Report, Stop, Trial, World};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Seeds that every run of the tests goes through.
const SEEDS: u64 = 100;

/// The lines of a failed seed's trace that are shown.
const LOG_LINES: usize = 400;

/// How often a failed seed is played again to make it smaller.
const SHRINK_RUNS: usize = 500;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}

/// What the environment says of the trial: `SIM_ONLY` and `SIM_BREAK`.
fn asked(seed: u64) -> Trial {
    let only = std::env::var("SIM_ONLY").ok().map(|names| {
        let decisions = names.split_whitespace().map(str::parse::<Decision>);
        decisions.collect::<Result<Vec<_>, _>>().unwrap_or_else(|error| panic!("{error}"))
    });
    let breaks = std::env::var("SIM_BREAK").ok().map(|name| {
        let known = Break::ALL.into_iter().find(|known| format!("{known:?}") == name);
        known.unwrap_or_else(|| panic!("SIM_BREAK is one of {:?}", Break::ALL))
    });
    let wide_clocks = std::env::var_os("SIM_CLOCKS").is_some_and(|clocks| clocks == "wide");
    Trial { seed, only, breaks, wide_clocks, ..Trial::default() }
}

/// A run to its end, with the trace that was asked for.
fn play(trial: &Trial) -> (Result<Report, Failure>, Vec<String>) {
    let mut world = World::new(trial);
    let outcome = catch_unwind(AssertUnwindSafe(|| world.run()));
    let outcome = outcome.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or(panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(Stop::Violation(format!("a core panicked: {}", text.unwrap_or_default())))
    });
    let (at, taken) = (world.now, world.script.taken().to_vec());
    let outcome = match outcome {
        Ok(report) => Ok(report),
        Err(Stop::Over) => Ok(Report::default()),
        Err(Stop::Violation(violation)) => Err(Failure { violation, at, taken }),
    };
    (outcome, world.log().cloned().collect())
}

/// Plays a failure with less and less in it; the smallest, and how to play that.
fn make_smaller(trial: &Trial, failure: Failure, runs_max: usize) -> (Failure, String) {
    let before = failure.taken.len();
    let (smallest, runs) = shrink(failure, runs_max, |kept, until| {
        let only = Some(kept.to_vec());
        play(&Trial { only, until: Some(until), ..trial.clone() }).0.err()
    });
    let names: Vec<String> = smallest.taken.iter().map(Decision::to_string).collect();
    let breaks = trial.breaks.map(|breaks| format!("SIM_BREAK={breaks:?} ")).unwrap_or_default();
    let told = format!(
        "{} of {before} decisions are left after {runs} runs; to play them:\n  {breaks}SIM_SEED={} \
         SIM_ONLY='{}' cargo test --test sim nothing_that_was_promised",
        names.len(),
        trial.seed,
        names.join(" ")
    );
    (smallest, told)
}

/// Make a failed seed small, and run that with a trace, for somebody to read.
fn show(trial: &Trial, failure: Failure) {
    let (failure, told) = make_smaller(trial, failure, SHRINK_RUNS);
    let only = Some(failure.taken.clone());
    let (_, log) = play(&Trial { only, log_lines_max: LOG_LINES, ..trial.clone() });
    log.iter().for_each(|line| eprintln!("{line}"));
    eprintln!("seed {}: {}\n{told}", trial.seed, failure.violation);
}

#[test]
fn nothing_that_was_promised_is_lost() {
    if let Some(seed) = number("SIM_SEED") {
        let trial = asked(seed);
        let (outcome, log) = play(&Trial { log_lines_max: usize::MAX, ..trial.clone() });
        log.iter().for_each(|line| eprintln!("{line}"));
        if let Err(failure) = &outcome
            && trial.only.is_none()
        {
            show(&trial, failure.clone());
        }
        assert!(outcome.is_ok(), "{:?}", outcome.map_err(|failure| failure.violation));
        return;
    }
    let (from, seeds) = (number("SIM_FROM").unwrap_or(0), number("SIM_SEEDS").unwrap_or(SEEDS));
    let mut total = Report::default();
    let mut failed = Vec::new();
    for seed in from..from + seeds {
        match play(&asked(seed)).0 {
            Ok(report) => total.add(&report),
            Err(failure) => {
                eprintln!("seed {seed}: {}", failure.violation);
                failed.push((seed, failure));
            }
        }
    }
    eprintln!("{seeds} seeds: {total:?}");
    if let Some((seed, failure)) = failed.first() {
        show(&asked(*seed), failure.clone());
    }
    let failed: Vec<u64> = failed.into_iter().map(|(seed, _)| seed).collect();
    assert!(failed.is_empty(), "failed seeds: {failed:?}");
    assert!(total.replies > 100 * seeds, "clients got nothing done: {total:?}");
    assert!(total.events > seeds && total.locks > 0, "{total:?}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let trial = Trial { seed: 5, log_lines_max: LOG_LINES, ..Trial::default() };
    let run = || {
        let (outcome, log) = play(&trial);
        (format!("{outcome:?}"), log)
    };
    assert_eq!(run(), run());
}
