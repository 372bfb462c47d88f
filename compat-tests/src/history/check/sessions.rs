//! Sessions: none ends while its client talks, and its ephemerals go in one step.

use std::collections::{BTreeMap, BTreeSet};

use crate::conformance::wire::event;
use crate::history::check::facts::{End, Facts, seconds};
use crate::history::record::{Answer, History, Request, What};

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
    check_ends(history, facts, violations);
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
