//! Histories of a register that are known to be right or wrong, and random ones against a checker
//! that simply tries every order.

use proptest::prelude::*;

use super::*;

/// What is done to a register that starts with 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    /// It is read, and has this value.
    Read(u8),
    /// It gets this value.
    Write(u8),
    /// It is read and made one more; it had this value, or nobody knows what it had.
    Increment(Option<u8>),
}

fn apply(state: &u8, op: &Op) -> Option<u8> {
    match op {
        Op::Read(value) => (value == state).then_some(*state),
        Op::Write(value) => Some(*value),
        Op::Increment(before) => {
            before.is_none_or(|before| before == *state).then(|| state.wrapping_add(1))
        }
    }
}

fn call(op: Op, from: u64, until: u64) -> Call<Op> {
    let only_shows = matches!(op, Op::Read(_));
    Call { op, from, until, is_certain: true, only_shows, after: None }
}

fn maybe(op: Op, from: u64, until: u64) -> Call<Op> {
    Call { is_certain: false, ..call(op, from, until) }
}

fn is_linear(calls: &[Call<Op>]) -> bool {
    match check(0, calls, apply) {
        Ok(()) => true,
        Err(Fault::Unexplained(..)) => false,
        Err(Fault::TooHard(at)) => panic!("gave up at {at}"),
    }
}

#[test]
fn operations_that_overlap_may_have_either_order() {
    for value in [0, 1] {
        assert!(is_linear(&[call(Op::Write(1), 0, 10), call(Op::Read(value), 5, 6)]));
    }
    assert!(is_linear(&[
        call(Op::Write(1), 0, 10),
        call(Op::Read(0), 1, 2),
        call(Op::Read(1), 3, 4),
    ]));
}

#[test]
fn a_write_that_changes_nothing_has_its_place_too() {
    assert!(is_linear(&[call(Op::Write(0), 0, 1)]));
    // It may still undo another that is under way.
    assert!(is_linear(&[
        call(Op::Write(0), 0, 10),
        call(Op::Write(1), 0, 10),
        call(Op::Read(1), 1, 2),
        call(Op::Read(0), 3, 4),
    ]));
}

#[test]
fn a_stale_read_is_noticed() {
    let calls = [call(Op::Write(1), 0, 1), call(Op::Read(0), 2, 3)];
    assert_eq!(check(0, &calls, apply), Err(Fault::Unexplained(1, vec![1])));
    // Once a new value was read, nobody may read the old one, although the write goes on.
    assert!(!is_linear(&[
        call(Op::Write(1), 0, 10),
        call(Op::Read(1), 1, 2),
        call(Op::Read(0), 3, 4),
    ]));
}

#[test]
fn a_lost_update_is_noticed() {
    assert!(!is_linear(
        &[call(Op::Increment(Some(0)), 0, 10), call(Op::Increment(Some(0)), 1, 9),]
    ));
    assert!(!is_linear(&[call(Op::Write(1), 0, 1), call(Op::Read(0), 2, 3)]));
}

#[test]
fn a_write_that_was_not_answered_takes_effect_once_or_never_and_not_too_late() {
    let unknown = |until| maybe(Op::Increment(None), 0, until);
    assert!(is_linear(&[unknown(100), call(Op::Read(0), 10, 11)]));
    assert!(is_linear(&[unknown(100), call(Op::Read(0), 10, 11), call(Op::Read(1), 12, 13)]));
    assert!(!is_linear(&[unknown(100), call(Op::Read(1), 10, 11), call(Op::Read(2), 12, 13)]));
    assert!(!is_linear(&[unknown(5), call(Op::Read(0), 10, 11), call(Op::Read(1), 12, 13)]));
}

#[test]
fn what_was_sent_later_takes_effect_later_and_not_alone() {
    let first = maybe(Op::Write(1), 0, 100);
    let second = Call { after: Some(0), ..maybe(Op::Write(2), 1, 100) };
    let calls = |values: &[u8]| {
        let mut calls = vec![first.clone(), second.clone()];
        for (at, value) in (10..).step_by(2).zip(values) {
            calls.push(call(Op::Read(*value), at, at + 1));
        }
        calls
    };
    for right in [&[0][..], &[1], &[2], &[0, 1, 2]] {
        assert!(is_linear(&calls(right)), "{right:?}");
    }
    assert!(!is_linear(&calls(&[2, 1])));
    // Without the first the second may not be.
    let after = |value| {
        let increment = Call { after: Some(0), ..maybe(Op::Increment(None), 1, 100) };
        is_linear(&[maybe(Op::Write(5), 0, 100), increment, call(Op::Read(value), 10, 11)])
    };
    assert!(after(0) && after(5) && after(6));
    assert!(!after(1));
}

#[test]
fn a_write_that_changes_nothing_may_make_room_for_one_that_is_sent_later() {
    let write = maybe(Op::Write(0), 0, 6);
    let increment = Call { after: Some(1), ..maybe(Op::Increment(None), 5, 6) };
    assert!(is_linear(&[call(Op::Write(1), 0, 4), write, increment, call(Op::Read(2), 5, 6)]));
}

/// Tries every order of every set of the operations that may have happened.
fn tries_all(state: u8, left: &[(usize, Call<Op>)], gone: &[usize]) -> bool {
    if left.iter().all(|(_, call)| !call.is_certain) {
        return true;
    }
    left.iter().enumerate().any(|(place, (index, next))| {
        let others = || left.iter().enumerate().filter(|(other, _)| *other != place);
        // One that was over before this began comes before it, or never did.
        let is_early = others().any(|(_, (_, call))| call.is_certain && call.until < next.from);
        let waits = next.after.is_some_and(|before| !gone.contains(&before));
        let Some(state) = apply(&state, &next.op).filter(|_| !is_early && !waits) else {
            return false;
        };
        let rest: Vec<_> = others()
            .filter(|(_, (_, call))| call.until >= next.from)
            .map(|(_, pair)| pair.clone())
            .collect();
        tries_all(state, &rest, &[gone, &[*index]].concat())
    })
}

/// Operations of a few clients, with the results that one order gives, some of them spoilt.
fn histories() -> impl Strategy<Value = Vec<Call<Op>>> {
    let operation = (0..3_u8, 0..3_u8, 0..14_u64, 1..8_u64, 0..10_u8, 0..12_u8);
    prop::collection::vec(operation, 1..7).prop_map(|mut drawn| {
        drawn.sort_by_key(|(_, _, from, ..)| *from);
        let mut state = 0;
        let mut calls = Vec::new();
        for (kind, value, from, length, doubt, spoil) in drawn {
            let told = if spoil == 0 { value } else { state };
            let is_certain = kind == 0 || doubt < 7;
            let op = match kind {
                0 => Op::Read(told),
                1 => Op::Write(value),
                _ => Op::Increment(is_certain.then_some(told)),
            };
            if is_certain || doubt < 9 {
                state = match op {
                    Op::Read(_) => state,
                    Op::Write(value) => value,
                    Op::Increment(_) => state.wrapping_add(1),
                };
            }
            let until = from + length;
            calls.push(Call { is_certain, ..call(op, from, until) });
        }
        chain(&mut calls);
        calls
    })
}

/// Two that were cut off together, as the requests of one connection are.
fn chain(calls: &mut [Call<Op>]) {
    let unknown: Vec<usize> =
        (0..calls.len()).filter(|index| !calls[*index].is_certain).take(2).collect();
    if let [first, second] = unknown[..] {
        let until = calls[first].until.max(calls[second].until);
        calls[first].until = until;
        calls[second].until = until;
        calls[second].after = Some(first);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn agrees_with_a_checker_that_tries_every_order(calls in histories()) {
        let all: Vec<_> = calls.iter().cloned().enumerate().collect();
        prop_assert_eq!(is_linear(&calls), tries_all(0, &all, &[]));
    }
}
