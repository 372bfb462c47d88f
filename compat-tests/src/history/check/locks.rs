//! No lock is held by two sessions at a time, by what its holders may believe.
//!
//! A client may believe to hold a lock until it gives it up, or until its session's timeout has
//! passed since it last sent something that was answered.

use std::collections::BTreeMap;

use crate::history::check::facts::{End, Facts, NEVER, seconds};
use crate::history::record::{History, What};

#[derive(Clone, Debug)]
struct Hold {
    from: u64,
    until: u64,
    client: usize,
    session: i64,
}

/// See the file's text.
pub(crate) fn check_locks(history: &History, facts: &Facts<'_>, violations: &mut Vec<String>) {
    let mut holds: BTreeMap<&str, Vec<Hold>> = BTreeMap::new();
    for (client, log) in history.logs.iter().enumerate() {
        let mut session_now = 0;
        let mut held: BTreeMap<&str, u64> = BTreeMap::new();
        let mut end = |lock, session, from, until: u64| {
            let alive = facts.sessions.get(&session).map_or(until, |known| match known.end {
                End::Closed(sent, _) => known.alive_until().min(sent),
                End::Refused(at) => known.alive_until().min(at),
                End::Open | End::Abandoned => known.alive_until(),
            });
            let hold = Hold { from, until: until.min(alive), client, session };
            holds.entry(lock).or_default().push(hold);
        };
        for entry in &log.entries {
            match &entry.what {
                What::Opened { session, .. } => session_now = *session,
                What::Taken { lock } => drop(held.insert(lock, entry.at)),
                What::Given { lock } => {
                    if let Some(from) = held.remove(lock.as_str()) {
                        end(lock, session_now, from, entry.at);
                    }
                }
                _ => {}
            }
        }
        for (lock, from) in held {
            end(lock, session_now, from, NEVER);
        }
    }
    for (lock, mut holds) in holds {
        holds.sort_by_key(|hold| hold.from);
        let mut longest: Option<Hold> = None;
        for hold in holds {
            if let Some(other) = &longest
                && other.until > hold.from
                && other.session != hold.session
            {
                let show = |hold: &Hold| {
                    let (from, until) = (seconds(hold.from), seconds(hold.until));
                    format!("client {} session {:#x} [{from}..{until}]", hold.client, hold.session)
                };
                violations.push(format!(
                    "{lock} was held by {} and by {}",
                    show(other),
                    show(&hold)
                ));
            }
            if longest.as_ref().is_none_or(|other| hold.until > other.until) {
                longest = Some(hold);
            }
        }
    }
}
