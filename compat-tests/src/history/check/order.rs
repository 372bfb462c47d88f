//! zxids: they never fall for a session, and they are in the order in which writes took effect.

use std::collections::BTreeMap;

use crate::history::check::facts::{Facts, NEVER, seconds};
use crate::history::record::{History, Request, What};

/// Along a session no zxid falls, on whatever server; along a connection an event comes before
/// every answer with its zxid.
pub(crate) fn check_zxids(history: &History, facts: &Facts<'_>, violations: &mut Vec<String>) {
    for (client, log) in history.logs.iter().enumerate() {
        // What the session has seen, and on this connection answers and events have shown.
        let (mut session_now, mut seen, mut answered, mut told) = (0, 0, 0, 0);
        for entry in &log.entries {
            let at = seconds(entry.at);
            match &entry.what {
                What::Opened { session, .. } => {
                    if *session != session_now {
                        (session_now, seen) = (*session, 0);
                    }
                    (answered, told) = (0, 0);
                }
                What::Answered { xid, zxid, .. } if *xid != -2 => {
                    if *zxid < seen {
                        violations.push(format!(
                            "client {client} at {at}: an answer with zxid {zxid:#x} after one \
                             with {seen:#x}"
                        ));
                    }
                    seen = seen.max(*zxid);
                    answered = answered.max(*zxid);
                }
                What::Event { zxid, path, .. } if *zxid >= 0 => {
                    if *zxid <= answered || *zxid < told {
                        violations.push(format!(
                            "client {client} at {at}: the event of {path} with zxid {zxid:#x} \
                             came after an answer with {answered:#x} or an event with {told:#x}"
                        ));
                    }
                    told = told.max(*zxid);
                }
                _ => {}
            }
        }
    }
    check_writes_of_sessions(facts, violations);
}

/// The writes of a session have zxids in their order.
fn check_writes_of_sessions(facts: &Facts<'_>, violations: &mut Vec<String>) {
    let mut last: BTreeMap<i64, i64> = BTreeMap::new();
    for operation in facts.operations.iter().filter(|each| each.is_ok()) {
        if !operation.request.is_write() {
            continue;
        }
        let seen = last.entry(operation.session).or_default();
        if operation.zxid < *seen {
            violations.push(format!("a write before {seen:#x}: {}", operation.show()));
        }
        *seen = operation.zxid;
    }
}

/// What begins when a write is over comes after it: writes have higher zxids, and what is proved
/// or synced has seen it.
///
/// A ZooKeeper ensemble does not always keep to this: its leader takes a sync of a client of its
/// own for a read (the `matchSyncs` of `LeaderZooKeeperServer`'s `CommitProcessor` is false), and
/// may answer it before it has applied what a follower has answered already. zkshim does.
pub(crate) fn check_real_time(facts: &Facts<'_>, violations: &mut Vec<String>) {
    let mut over: Vec<(u64, i64)> = facts
        .operations
        .iter()
        .filter(|each| each.request.is_write() && each.is_ok())
        .map(|each| (each.answered, each.zxid))
        .collect();
    over.sort_unstable();
    let mut highest = 0;
    for (_, zxid) in &mut over {
        highest = highest.max(*zxid);
        *zxid = highest;
    }
    for operation in &facts.operations {
        let is_sync = matches!(operation.request, Request::Sync { .. });
        if operation.answered == NEVER || !(operation.request.is_write() || is_sync) {
            continue;
        }
        let before = over.partition_point(|(answered, _)| *answered < operation.sent);
        let Some((_, seen)) = before.checked_sub(1).and_then(|index| over.get(index)) else {
            continue;
        };
        let is_later = if operation.request.is_write() && operation.is_ok() {
            operation.zxid > *seen
        } else {
            operation.zxid >= *seen
        };
        if !is_later {
            violations
                .push(format!("{seen:#x} was answered before this was sent: {}", operation.show()));
        }
    }
}
