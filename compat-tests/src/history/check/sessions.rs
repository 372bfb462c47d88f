//! Sessions: none ends while its client talks, and its ephemerals go in one step.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::conformance::wire::event;
use crate::history::check::facts::{End, Facts, seconds};
use crate::history::record::{Answer, History, Log, Request, What};

/// See the file's text.
pub(crate) fn check_sessions(history: &History, facts: &Facts<'_>, violations: &mut Vec<String>) {
    for (id, session) in &facts.sessions {
        if let End::Refused(at) = session.end
            && at < session.alive_until()
        {
            violations.push(format!(
                "client {} was told at {} that session {id:#x} is over, and was heard after {}",
                session.client,
                seconds(at),
                seconds(session.spoke)
            ));
        }
    }
    check_ghosts(history, violations);
    check_ends(history, facts, violations);
}

/// A session that was closed, or said to be over, is served by nobody.
fn check_ghosts(history: &History, violations: &mut Vec<String>) {
    for (client, log) in history.logs.iter().enumerate() {
        let mut over: BTreeMap<i64, u64> = BTreeMap::new();
        let (mut session_now, mut close) = (0, None);
        for entry in &log.entries {
            match &entry.what {
                What::Opened { session, server, .. } => {
                    (session_now, close) = (*session, None);
                    if let Some(at) = over.get(session) {
                        violations.push(format!(
                            "client {client} at {}: server {server} serves session {session:#x}, \
                             which was over at {}",
                            seconds(entry.at),
                            seconds(*at)
                        ));
                    }
                }
                What::Sent { xid, request: Request::Close } => close = Some(*xid),
                What::Answered { xid, .. } if close == Some(*xid) => {
                    over.insert(session_now, entry.at);
                }
                What::Refused => drop(over.insert(session_now, entry.at)),
                _ => {}
            }
        }
    }
}

/// For how long after the timeout of a silent session its ephemerals were still read.
pub(crate) fn longest_outlived(facts: &Facts<'_>) -> Duration {
    let outlived = facts.operations.iter().filter_map(|operation| {
        let (Answer::Data(_, stat) | Answer::Stat(stat)) = operation.answer? else { return None };
        let session = facts.sessions.get(&stat.owner)?;
        Some(operation.synced?.saturating_sub(session.alive_until()))
    });
    Duration::from_nanos(outlived.max().unwrap_or_default())
}

/// The longest that a client has waited for any answer.
pub(crate) fn longest_unserved(history: &History) -> Duration {
    let gap = |log: &Log| {
        let served = log
            .entries
            .iter()
            .filter(|entry| matches!(entry.what, What::Answered { .. } | What::Opened { .. }));
        let times: Vec<u64> = served.map(|entry| entry.at).collect();
        times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
    };
    // The auditor does nothing most of the time.
    let clients = history.logs.len().saturating_sub(1);
    Duration::from_nanos(history.logs.iter().take(clients).map(gap).max().unwrap_or_default())
}

/// Deletions that nobody asked for are ends of sessions: all those of one session have one zxid.
fn check_ends(history: &History, facts: &Facts<'_>, violations: &mut Vec<String>) {
    let mut lives: BTreeMap<&str, BTreeMap<i64, i64>> = BTreeMap::new();
    let mut deleted: BTreeSet<&str> = BTreeSet::new();
    for operation in &facts.operations {
        for request in operation.request.steps() {
            match (request, operation.answer) {
                (Request::Create { mode, .. }, Some(Answer::Path(path))) if mode.is_ephemeral() => {
                    let owners = lives.entry(path).or_default();
                    owners.insert(operation.zxid, operation.session);
                }
                // One whose answer was lost may have deleted it as well.
                (Request::Delete { path, .. }, answer) if answer.is_none_or(Answer::is_ok) => {
                    deleted.insert(path);
                }
                _ => {}
            }
        }
    }
    let mut ends: BTreeMap<i64, (i64, &str)> = BTreeMap::new();
    for entry in history.logs.iter().flat_map(|log| &log.entries) {
        let What::Event { kind: event::DELETED, path, zxid } = &entry.what else { continue };
        if *zxid < 0 || deleted.contains(path.as_str()) {
            continue;
        }
        let owner = lives.get(path.as_str()).and_then(|owners| owners.range(..zxid).next_back());
        let Some((_, session)) = owner else { continue };
        let (first, other) = ends.entry(*session).or_insert((*zxid, path));
        if first != zxid {
            violations.push(format!(
                "session {session:#x} ended twice: {other} went with {first:#x}, {path} with \
                 {zxid:#x}"
            ));
        }
    }
}
