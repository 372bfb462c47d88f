//! The core against the embedded engine, as transcripts: what clients, links and clocks do, and
//! what comes of it.
//!
//! Each file of `scenarios/` is one rule and names it. `ZKSHIM_REWRITE=1` writes what came out
//! into the files, to be reviewed as a diff.

#[path = "scenarios/ask.rs"]
mod ask;
#[path = "scenarios/script.rs"]
mod script;
#[path = "scenarios/show.rs"]
mod show;
#[path = "scenarios/world.rs"]
mod world;

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::script::{Script, parse, print};

/// The environment variable that says that transcripts are to be written anew.
const REWRITE: &str = "ZKSHIM_REWRITE";

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios")
}

fn check(name: &str) {
    let path = folder().join(format!("{name}.txt"));
    let text = std::fs::read_to_string(&path).expect("the transcript is there");
    let mut steps = parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut script = Script::new();
    for step in &mut steps {
        step.output = script.run(&step.commands);
    }
    let came_out = print(&steps);
    if std::env::var_os(REWRITE).is_some() {
        std::fs::write(&path, came_out).expect("the transcript can be written");
        return;
    }
    assert!(came_out == text, "{}", difference(name, &text, &came_out));
}

fn difference(name: &str, expected: &str, came_out: &str) -> String {
    let pairs = expected.lines().zip(came_out.lines());
    let same = pairs.take_while(|(left, right)| left == right).count();
    let from = |text: &str| {
        let begin = same.saturating_sub(6);
        text.lines().skip(begin).take(14).collect::<Vec<_>>().join("\n    ")
    };
    format!(
        "{name}.txt, line {}: expected\n    {}\n  but it came out as\n    {}\n  \
         ({REWRITE}=1 writes the files anew)",
        same + 1,
        from(expected),
        from(came_out)
    )
}

macro_rules! transcripts {
    ($($name:ident,)*) => {
        $(#[test]
        fn $name() {
            check(stringify!($name));
        })*

        #[test]
        fn every_transcript_is_run() {
            let listed: BTreeSet<String> = [$(stringify!($name)),*].map(String::from).into();
            let entries = std::fs::read_dir(folder()).expect("the folder is there");
            let names = entries.map(|entry| entry.expect("it can be read").file_name());
            let there: BTreeSet<String> = names
                .filter_map(|name| name.to_str()?.strip_suffix(".txt").map(String::from))
                .collect();
            assert_eq!(listed, there);
        }
    };
}

transcripts! {
    a_client_is_told_of_its_session_before_what_it_asks_is_served,
    a_shim_that_starts_hears_the_last_words_of_the_others,
    the_word_of_an_end_waits_for_no_batch,
    the_word_of_an_end_waits_for_no_failure,
    a_store_of_the_layout_before_is_taken_over,
    a_failure_that_overtakes_a_write_waits_for_it,
    what_nobody_else_writes_is_guarded_as_a_whole,
    a_batch_that_fails_takes_those_behind_it_along,
    a_child_that_came_and_went_unseen_is_told_as_a_change,
    a_child_watch_fires_when_nobody_knows_whether_a_child_went,
    a_close_leaves_alone_what_somebody_else_created_anew,
    a_close_that_does_not_fit_goes_by_the_lease,
    a_container_goes_after_its_last_child,
    a_dead_lease_of_one_session_harms_no_other,
    a_deadline_is_moved_by_the_clients_traffic_alone,
    a_failure_is_planned_once_more_on_the_present_tree,
    a_failure_is_proved_like_a_success,
    a_history_that_is_another_one_is_not_gone_on_with_though_it_is_ahead,
    a_key_that_comes_too_late_brings_no_write,
    a_lost_grant_is_asked_for_again,
    a_lost_race_is_planned_again,
    a_move_that_takes_effect_late_gives_the_whole_timeout,
    a_moved_sessions_old_owner_writes_nothing,
    a_multi_leaves_no_key_that_an_earlier_request_of_its_batch_wrote,
    a_multi_that_changes_a_znode_twice_fires_every_step,
    a_multi_with_steps_under_a_parent_made_in_the_same_txn,
    a_null_path_breaks_setwatches_where_it_stands,
    a_ping_does_not_wait_for_a_slow_write,
    a_refused_txn_is_sent_again_later,
    a_restarted_server_of_ones_own_keeps_its_sessions,
    a_resumed_session_waits_for_what_it_has_under_way,
    a_session_and_its_ephemerals_go_in_one_revision,
    a_session_begins_only_with_a_fresh_lease,
    a_session_is_cut_when_nobody_can_tell_what_became_of_its_write,
    a_session_is_moved_only_with_a_fresh_lease,
    a_session_is_never_refused_before_a_barrier,
    a_session_lives_on_when_its_client_or_its_shim_goes,
    a_session_lives_on_when_its_key_gets_no_lease,
    a_session_that_ended_before_a_shim_started_is_not_believed,
    a_session_that_ended_without_a_key_is_refused_everywhere,
    a_session_that_is_being_believed_is_not_refused,
    a_session_that_is_too_old_gets_no_key,
    a_session_that_was_refused_gets_no_key,
    a_session_that_was_refused_is_not_believed_when_the_clock_goes_back,
    a_session_whose_lease_is_gone_waits_for_another,
    a_session_whose_key_cannot_be_written_goes_on_elsewhere,
    a_session_without_a_key_is_believed_by_another_shim,
    a_session_without_a_key_is_not_unknown,
    a_session_without_a_key_is_resumed_on_its_own_shim,
    a_sessions_requests_take_effect_in_order,
    a_shim_that_has_lost_etcd_answers_no_ping_that_waits,
    a_shim_that_is_cut_off_cuts_its_clients_within_half_their_timeout,
    a_shim_that_loses_again_and_again_goes_first,
    a_shim_that_loses_its_own_lease_goes_on_under_a_new_number,
    a_shim_that_never_got_a_session_does_not_end_it,
    a_short_session_costs_the_store_nothing,
    a_stat_in_a_multi_has_what_another_shim_did,
    a_ttl_node_that_is_set_while_its_end_waits_stays,
    a_txn_that_is_lost_is_fenced_off_and_sent_again,
    a_write_on_the_old_connection_fails_when_the_session_has_moved,
    a_zxid_never_falls,
    an_end_is_given_up_when_the_session_has_moved_away,
    an_end_without_a_key_is_not_confirmed_while_etcd_is_silent,
    an_end_without_a_key_is_not_confirmed_without_a_lease,
    an_etcd_that_was_restored_from_a_backup_is_not_served_as_if_nothing_had_happened,
    an_event_leaves_before_a_reply_with_its_zxid,
    an_idle_lease_that_has_died_is_replaced,
    an_unknown_layout_is_not_served,
    an_unknown_outcome_is_decided_by_the_stream,
    an_unsettled_session_that_nobody_resumes_ends_by_its_lease,
    another_user_of_etcd_takes_revisions,
    batches_follow_one_another_before_they_come_back,
    in_another_history_no_lease_is_free_because_it_was_in_the_one_before,
    leases_are_pooled,
    no_two_requests_change_a_znodes_data_in_one_revision,
    raising_the_offset_moves_every_zxid,
    set_watches_with_a_later_zxid_waits_for_the_tree,
    sync_shows_what_others_have_written,
    time_not_served_does_not_count_against_sessions,
    what_a_session_left_behind_when_it_moved_is_not_done_when_it_comes_back,
    what_happened_while_the_history_was_compacted_is_told_in_one_step,
    what_one_txn_held_too_much_of_is_sent_in_parts,
    what_went_while_no_shim_lived_is_written_down,
    when_a_lease_took_a_child_is_written_down,
    who_comes_back_while_a_session_is_taken_over_waits_for_it,
    whoever_meets_a_closing_session_waits_for_its_end,
    word_of_an_end_goes_again_at_once_when_it_failed_with_others,
}
