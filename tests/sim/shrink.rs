//! A failed run made small: decisions are left out as long as the same rule is still broken.

use crate::script::Decision;
use std::cell::Cell;
use std::time::Duration;

/// A run that broke a rule.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) violation: String,
    pub(crate) at: Duration,
    /// What was decided up to then.
    pub(crate) taken: Vec<Decision>,
}

/// The smallest failure found, after so many runs at most. `run` plays these decisions alone, up
/// to this time.
pub(crate) fn shrink(
    first: Failure,
    runs_max: usize,
    mut run: impl FnMut(&[Decision], Duration) -> Option<Failure>,
) -> (Failure, usize) {
    let rule = rule_of(&first.violation);
    let mut smallest = first;
    let runs = Cell::new(0);
    let mut attempt = |smallest: &mut Failure, kept: Vec<Decision>| {
        if runs.get() == runs_max || kept.len() >= smallest.taken.len() {
            return false;
        }
        runs.set(runs.get() + 1);
        let until = smallest.at + Duration::from_secs(30);
        match run(&kept, until).filter(|failure| rule_of(&failure.violation) == rule) {
            Some(failure) => {
                *smallest = failure;
                true
            }
            None => false,
        }
    };
    for class in CLASSES {
        let kept = smallest.taken.iter().copied().filter(|decision| !class(decision)).collect();
        attempt(&mut smallest, kept);
    }
    let mut size = smallest.taken.len().div_ceil(2).max(1);
    loop {
        let mut gained = false;
        let mut end = smallest.taken.len();
        while end > 0 {
            let from = end.saturating_sub(size);
            let mut kept = smallest.taken.clone();
            kept.drain(from..end);
            gained |= attempt(&mut smallest, kept);
            end = from.min(smallest.taken.len());
        }
        if size == 1 && !gained {
            return (smallest, runs.get());
        }
        size = size.div_ceil(2);
    }
}

/// What may be left out at once.
const CLASSES: [fn(&Decision) -> bool; 6] = [
    |decision| matches!(decision, Decision::Call(..)),
    |decision| matches!(decision, Decision::Fault(_)),
    |decision| matches!(decision, Decision::Net),
    |decision| matches!(decision, Decision::Far),
    |decision| matches!(decision, Decision::Lag),
    |decision| matches!(decision, Decision::Behind),
];

/// Which rule it is: the first words of a violation that name nothing of this run.
fn rule_of(violation: &str) -> String {
    let plain = |word: &&str| word.bytes().all(|byte| byte.is_ascii_lowercase());
    violation.split_whitespace().filter(plain).take(4).collect::<Vec<_>>().join(" ")
}

#[test]
fn what_does_not_matter_is_left_out() {
    let faults = |numbers: &[u64]| numbers.iter().copied().map(Decision::Fault).collect::<Vec<_>>();
    let mut all = faults(&(0..200).collect::<Vec<_>>());
    all.extend([Decision::Net, Decision::Call(0, 1)]);
    let failure = |taken: Vec<Decision>, path: &str| Failure {
        violation: format!("{path} outlives session 17 at {}", taken.len()),
        at: Duration::ZERO,
        taken,
    };
    let matters = faults(&[3, 77, 198]);
    let run = |kept: &[Decision], _| {
        let fails = matters.iter().all(|decision| kept.contains(decision));
        fails.then(|| failure(kept.to_vec(), "/b"))
    };
    let (smallest, runs) = shrink(failure(all.clone(), "/a"), 1000, run);
    assert_eq!(smallest.taken, matters);
    assert!(runs < 200, "{runs}");
    // Another rule is another matter.
    let other = |kept: &[Decision], _| {
        let failure = failure(kept.to_vec(), "/b");
        Some(Failure { violation: "the shim spins".into(), ..failure })
    };
    assert_eq!(shrink(failure(all.clone(), "/a"), 50, other).0.taken, all);
}
