//! Runs cases: first those that want the server for themselves, then the others side by side.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use crate::conformance::case::{Case, Profile, Section};
use crate::conformance::client::Client;
use crate::conformance::context::{Context, Settings, Target};
use crate::conformance::session::ConnectRequest;
use crate::conformance::wire::{op, record};

/// Which cases to run.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Section numbers; empty is all.
    pub sections: Vec<String>,
    /// Case numbers; empty is all.
    pub cases: Vec<String>,
    /// How the servers are set up.
    pub profile: Profile,
    /// Others used the server before, or use it now.
    pub shared: bool,
    /// How many cases run side by side.
    pub parallel: usize,
}

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As expected.
    Passed,
    /// Not as expected; the message says where.
    Failed(String),
    /// Not run against these servers; the message says what it needs.
    NotApplicable(String),
}

/// A case and how it ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The section's number.
    pub section: &'static str,
    /// The case's number.
    pub case: &'static str,
    /// What the case says.
    pub title: &'static str,
    /// How it ended.
    pub verdict: Verdict,
    /// How long it took.
    pub took: Duration,
}

/// Runs the selected cases; the outcomes come in the order of the sections.
#[must_use]
pub fn run(sections: &[Section], selection: &Selection, settings: &Settings) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    let mut work = Vec::new();
    for section in sections {
        for case in in_order(section) {
            if !is_selected(section, case, selection) {
                continue;
            }
            let slot = outcomes.len();
            let mut verdict = Verdict::Passed;
            match obstacle(case, selection, settings) {
                Some(reason) => verdict = Verdict::NotApplicable(reason),
                None => work.push((slot, case)),
            }
            let (section, took) = (section.number, Duration::ZERO);
            outcomes.push(Outcome { section, case: case.id, title: case.title, verdict, took });
        }
    }
    let (mut alone, mut together): (Vec<_>, Vec<_>) =
        work.into_iter().partition(|(_, case)| case.needs.alone);
    alone.sort_by_key(|(_, case)| !case.needs.fresh);
    together.sort_by_key(|(_, case)| std::cmp::Reverse(case.needs.seconds));
    let outcomes = Mutex::new(outcomes);
    run_queue(alone, 1, settings, &outcomes);
    run_queue(together, selection.parallel.max(1), settings, &outcomes);
    clean_up(settings);
    outcomes.into_inner().expect("a case's panic is caught before the lock is taken")
}

/// The cases of all parts, by letter and number.
fn in_order(section: &Section) -> Vec<&Case> {
    let mut cases: Vec<_> = section.parts.iter().flat_map(|part| part.iter()).collect();
    let letter = |case: &Case| case.id.chars().next();
    let letters: Vec<_> = cases.iter().map(|case| letter(case)).collect();
    cases.sort_by_key(|case| {
        let place = letters.iter().position(|one| *one == letter(case));
        (place, case.id.get(1..).and_then(|number| number.parse::<u32>().ok()))
    });
    cases
}

fn is_selected(section: &Section, case: &Case, selection: &Selection) -> bool {
    let named = |names: &[String], name: &str| {
        names.is_empty() || names.iter().any(|one| one.eq_ignore_ascii_case(name))
    };
    named(&selection.sections, section.number) && named(&selection.cases, case.id)
}

fn obstacle(case: &Case, selection: &Selection, settings: &Settings) -> Option<String> {
    let needs = &case.needs;
    if needs.profile != selection.profile {
        return Some(format!("needs profile {:?}", needs.profile));
    }
    if needs.two_servers && settings.servers.len() < 2 {
        return Some("needs two servers".to_owned());
    }
    if needs.fresh && selection.shared {
        return Some("needs a fresh server".to_owned());
    }
    if needs.breaks_zookeeper && settings.target == Target::Zookeeper {
        return Some("would stop a real ZooKeeper".to_owned());
    }
    let ensemble = settings.target == Target::Zookeeper && settings.servers.len() > 1;
    if needs.breaks_ensemble && ensemble {
        return Some("would stop a real ensemble".to_owned());
    }
    None
}

fn run_queue(
    work: Vec<(usize, &Case)>,
    workers: usize,
    settings: &Settings,
    outcomes: &Mutex<Vec<Outcome>>,
) {
    let work = Mutex::new(VecDeque::from(work));
    let next = || work.lock().expect("the queue's lock is held for a pop only").pop_front();
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some((slot, case)) = next() {
                    let (verdict, took) = run_case(case, settings);
                    let mut outcomes = outcomes.lock().expect("nothing panics under this lock");
                    if let Some(outcome) = outcomes.get_mut(slot) {
                        outcome.verdict = verdict;
                        outcome.took = took;
                    }
                }
            });
        }
    });
}

fn run_case(case: &Case, settings: &Settings) -> (Verdict, Duration) {
    let began = Instant::now();
    let context = Context::new(settings, case.id);
    let result = catch_unwind(AssertUnwindSafe(|| (case.run)(&context)));
    let verdict = match result {
        Ok(Ok(())) => Verdict::Passed,
        Ok(Err(error)) => Verdict::Failed(format!("{error:#}")),
        Err(_) => Verdict::Failed("the case itself panicked; see standard error".to_owned()),
    };
    (verdict, began.elapsed())
}

/// Deletes what the cases made, as far as their ACLs allow.
fn clean_up(settings: &Settings) {
    let Some(address) = settings.servers.first() else { return };
    let Ok(mut client) = Client::connect(*address, &ConnectRequest::default(), 0, None) else {
        return;
    };
    let quota = format!("/zookeeper/quota{}", settings.root);
    for root in [quota, settings.root.clone()] {
        let mut found = vec![root];
        let mut next = 0;
        while let Some(path) = found.get(next).cloned() {
            next += 1;
            let names = client.get_children(&path, false).and_then(|reply| reply.names());
            found.extend(names.unwrap_or_default().iter().map(|name| format!("{path}/{name}")));
        }
        let paths: Vec<_> = found.into_iter().rev().collect();
        for paths in paths.chunks(100) {
            let sent = paths
                .iter()
                .map_while(|path| client.send(op::DELETE, record().string(path).int(-1)).ok())
                .count();
            let answered = (0..sent).map_while(|_| client.reply().ok()).count();
            if answered < paths.len() {
                return;
            }
        }
    }
}
