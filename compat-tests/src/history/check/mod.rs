//! What must hold in a history. Each rule is a file of its own, and says in sentences what broke
//! it.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use crate::history::check::facts::Facts;
use crate::history::check::timeline::Timeline;
use crate::history::record::{History, Request, What};

mod facts;
pub mod linear;
mod locks;
mod order;
mod reads;
mod sequence;
mod sessions;
mod stats;
mod timeline;
mod watches;
mod znodes;

/// At most so many violations of one rule are told.
const TOLD_MAX: usize = 5;

/// What the checks have to say of a history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Requests, without pings.
    pub requests: usize,
    /// Those that were not answered.
    pub unanswered: usize,
    /// Objects whose operations were put in order.
    pub objects: usize,
    /// Sessions that began.
    pub sessions: usize,
    /// Connections that were lost or dropped.
    pub cuts: usize,
    /// Notifications that came.
    pub events: usize,
    /// How often a lock was held.
    pub holds: usize,
    /// The longest that a client has waited for any answer.
    pub longest_unserved: Duration,
    /// For how long after the timeout of a silent session its ephemerals were still read.
    pub longest_outlived: Duration,
    /// What is wrong, each with the rule that is broken.
    pub violations: Vec<Violation>,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule.
    pub rule: &'static str,
    /// What happened.
    pub text: String,
}

impl Verdict {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }

    fn judge(&mut self, rule: &'static str, check: impl FnOnce(&mut Vec<String>)) {
        let mut found = Vec::new();
        check(&mut found);
        let more = found.len().saturating_sub(TOLD_MAX);
        found.truncate(TOLD_MAX);
        if more > 0 {
            found.push(format!("and {more} more"));
        }
        self.violations.extend(found.into_iter().map(|text| Violation { rule, text }));
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            out,
            "{} requests ({} unanswered) on {} objects, {} sessions, {} cuts, {} events, {} holds \
             of locks, unserved for {:?} and ephemerals late by {:?} at most: {} violations",
            self.requests,
            self.unanswered,
            self.objects,
            self.sessions,
            self.cuts,
            self.events,
            self.holds,
            self.longest_unserved,
            self.longest_outlived,
            self.violations.len()
        )?;
        for violation in &self.violations {
            writeln!(out, "{}: {}", violation.rule, violation.text)?;
        }
        Ok(())
    }
}

/// Judges a history by all rules.
#[must_use]
pub fn check(history: &History) -> Verdict {
    let facts = Facts::of(history);
    let timeline = Timeline::of(&facts);
    let entries = || history.logs.iter().flat_map(|log| &log.entries);
    let count = |is: fn(&What) -> bool| entries().filter(|entry| is(&entry.what)).count();
    let mut verdict = Verdict {
        requests: facts.operations.len(),
        unanswered: facts.operations.iter().filter(|each| each.answer.is_none()).count(),
        objects: 0,
        sessions: facts.sessions.len(),
        cuts: count(|what| matches!(what, What::Cut { .. })),
        events: count(|what| matches!(what, What::Event { .. })),
        holds: count(|what| matches!(what, What::Taken { .. })),
        longest_unserved: sessions::longest_unserved(history),
        longest_outlived: sessions::longest_outlived(&facts),
        violations: Vec::new(),
    };
    let mut objects = 0;
    verdict.judge("linearizability", |found| objects = znodes::check_znodes(&facts, found));
    verdict.objects = objects;
    verdict.judge("frames", |found| {
        for entry in entries() {
            if let What::Nonsense { text } = &entry.what {
                found.push(text.clone());
            }
        }
    });
    verdict.judge("order of zxids", |found| order::check_zxids(history, &facts, found));
    verdict.judge("order in real time", |found| order::check_real_time(&facts, found));
    verdict.judge("reads", |found| reads::check_reads(&facts, &timeline, found));
    verdict.judge("lists", |found| reads::check_lists(&facts, &timeline, found));
    verdict.judge("Stat", |found| stats::check_stats(&facts, found));
    verdict.judge("sequence", |found| sequence::check_sequences(&facts, found));
    verdict.judge("locks", |found| locks::check_locks(history, &facts, found));
    verdict.judge("sessions", |found| sessions::check_sessions(history, &facts, found));
    verdict.judge("watches", |found| watches::check_watches(history, &timeline, found));
    verdict
}

/// The parents of znodes whose names the server completes.
fn sequential_parents<'a>(facts: &Facts<'a>) -> BTreeSet<&'a str> {
    let parents = facts.operations.iter().filter_map(|operation| match operation.request {
        Request::Create { path, mode, .. } if mode.is_sequential() => Some(znodes::parent(path)),
        _ => None,
    });
    parents.collect()
}

#[cfg(test)]
mod tests;
