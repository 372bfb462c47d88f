//! Rules that are broken on purpose must be noticed: what the checks are worth.

use crate::breaks::Break;
use crate::world::Trial;
use crate::{make_smaller, play};

/// Seeds that a broken rule is looked for in.
const SEEDS: u64 = 80;

fn trials(breaks: Break) -> impl Iterator<Item = Trial> {
    (0..SEEDS).map(move |seed| Trial { seed, breaks: Some(breaks), ..Trial::default() })
}

#[test]
fn a_failed_run_shrinks_to_what_matters_and_plays_again() {
    let trial = trials(Break::GuardsIgnored).find_map(|trial| {
        let failure = play(&trial).0.err()?;
        // An early one, to be quick.
        let early = failure.taken.len() < 200;
        early.then_some((trial, failure))
    });
    let (trial, failure) = trial.expect("a seed notices it");
    let all = failure.taken.len();
    let (smallest, told) = make_smaller(&trial, failure, 600);
    eprintln!("{}\n{told}", smallest.violation);
    assert!(smallest.taken.len() < all, "{all} decisions became {}", smallest.taken.len());
    let again = Trial { only: Some(smallest.taken), ..trial };
    let violation = play(&again).0.err().map(|failure| failure.violation);
    assert_eq!(violation, Some(smallest.violation));
}

/// Some seed among the first shows that a rule is broken, by this complaint.
fn check_noticed(breaks: Break, complaints: &[&str]) {
    let mut others = Vec::new();
    for trial in trials(breaks) {
        let Err(failure) = play(&trial).0 else { continue };
        if complaints.iter().any(|complaint| failure.violation.contains(complaint)) {
            return;
        }
        others.push(failure.violation);
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
fn writes_beside_those_of_other_shims_are_noticed() {
    check_noticed(
        Break::OthersIgnored,
        &[
            "without a parent",
            "was deleted above",
            "counter went",
            "version moved",
            "written again",
            "was wrong from",
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
fn sessions_that_expire_late_are_noticed() {
    check_noticed(Break::EndsLate, &["expired late", "lives on long after"]);
}

#[test]
fn sessions_of_dead_shims_that_expire_late_are_noticed() {
    check_noticed(Break::LeasesLast, &["expired late", "should have expired"]);
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

#[test]
fn events_that_come_twice_are_noticed() {
    check_noticed(Break::EventsTwice, &["came, expected", "was answered by"]);
}

#[test]
fn answers_before_etcd_has_it_are_noticed() {
    check_noticed(Break::AnswersEarly, &["is not in the history", "is in the history at None"]);
}

#[test]
fn a_write_that_is_sent_again_when_its_outcome_is_unknown_is_noticed() {
    check_noticed(
        Break::UnknownRepeated,
        &["was written again", "after the session was served", "for a session that is gone"],
    );
}

#[test]
fn a_sync_that_asks_a_member_that_is_behind_is_noticed() {
    check_noticed(Break::BarriersLie, &["sync does not reach"]);
}

#[test]
fn a_failure_that_is_proved_by_a_member_that_is_behind_is_noticed() {
    check_noticed(Break::ComparesLocal, &["was answered by an older tree", "was wrong from"]);
}

#[test]
fn a_shim_that_serves_on_without_etcd_is_noticed() {
    check_noticed(Break::BarriersLocal, &["without etcd since"]);
}

#[test]
fn an_end_of_which_no_other_shim_hears_is_noticed() {
    check_noticed(Break::EndsUntold, &["lives on after it was closed"]);
}

#[test]
fn a_close_that_is_confirmed_without_etcd_is_noticed() {
    check_noticed(Break::ClosesUnheard, &["lives on after it was closed"]);
}

#[test]
fn a_key_that_comes_after_a_refusal_is_noticed() {
    check_noticed(
        Break::RefusalsForgotten,
        &["comes after its end", "after it was refused", "after it was closed"],
    );
}

#[test]
fn a_claim_that_outlives_its_shim_is_noticed() {
    check_noticed(Break::ClaimsStay, &["are on the leases"]);
}

#[test]
fn steps_that_outlive_their_shim_are_noticed() {
    check_noticed(Break::StepsStay, &["are on the leases"]);
}

#[test]
fn a_zxid_without_the_offset_is_noticed() {
    check_noticed(Break::OffsetForgotten, &["was seen", "wrong stat", "expected Ok", "mzxid"]);
}

#[test]
fn a_quota_that_is_exceeded_is_noticed() {
    check_noticed(Break::QuotasForgotten, &["exceeds its quota"]);
}

#[test]
fn statistics_of_a_quota_that_stand_still_are_noticed() {
    check_noticed(Break::StatisticsStay, &["expected Ok(Data"]);
}

/// What the check of locks alone says, as if there were no other.
#[test]
fn a_lock_that_two_hold_is_noticed() {
    let heeded: &[&str] = &["was held by two"];
    let noticed = trials(Break::LeasesCut).any(|trial| {
        let trial = Trial { heeded: Some(heeded), ..trial };
        play(&trial).0.is_err_and(|failure| failure.violation.contains(heeded[0]))
    });
    assert!(noticed, "no seed has two holders");
}
