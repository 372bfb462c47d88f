//! Znodes as objects whose operations must have an order: data, versions, owners and zxids.
//!
//! Znodes that a multi changes together are one object; all others are objects of their own,
//! since objects that are linearizable each are linearizable together.

use std::collections::BTreeMap;

use crate::conformance::wire::code;
use crate::history::check::facts::{End, Facts, NEVER, Operation, seconds};
use crate::history::check::linear::{Call, Fault, check};
use crate::history::check::sequential_parents;
use crate::history::record::{Answer, Request, Stat};

/// Nothing was done, whatever the state: the session had ended or moved.
const OUT_OF_SESSION: [i32; 2] = [-112, -118];
/// So many operations are shown before the one that has no place.
const SHOWN: usize = 12;

/// What is known of a znode; 0 is a zxid that nobody has seen yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Znode<'a> {
    data: &'a str,
    version: i32,
    czxid: i64,
    mzxid: i64,
    owner: i64,
}

type State<'a> = BTreeMap<&'a str, Znode<'a>>;

/// An operation on the znodes of an object.
enum Op<'a> {
    /// A request and all that became of it.
    Request(&'a Operation<'a>),
    /// The end of a session.
    End(i64),
}

/// Checks all znodes; gives how many objects there were.
pub(crate) fn check_znodes(facts: &Facts<'_>, violations: &mut Vec<String>) -> usize {
    let objects = objects(facts);
    for (path, operations) in &objects {
        let calls = calls(facts, operations);
        let fault = match check(State::new(), &calls, apply) {
            Ok(()) => continue,
            Err(fault) => fault,
        };
        violations.push(match fault {
            Fault::TooHard(at) => format!(
                "{path}: too many orders are possible to find out whether one is right, at {}",
                show(&calls, at)
            ),
            Fault::Unexplained(at, states) => {
                let mut text = format!(
                    "{path}: no order of all operations gives this its result:\n    {}\n  \
                     the state may have been {states:?}\n  before it ended:",
                    show(&calls, at)
                );
                let until = calls[at].until;
                let mut near: Vec<usize> =
                    (0..calls.len()).filter(|other| calls[*other].from <= until).collect();
                near.sort_by_key(|other| calls[*other].until);
                let end = near.iter().position(|other| *other == at).unwrap_or(0);
                for other in &near[end.saturating_sub(SHOWN)..] {
                    text += &format!("\n    {}", show(&calls, *other));
                }
                text
            }
        });
    }
    objects.len()
}

fn show(calls: &[Call<Op<'_>>], index: usize) -> String {
    let call = &calls[index];
    match &call.op {
        Op::Request(operation) => operation.show(),
        Op::End(session) => format!(
            "the end of session {session:#x} [{}..{}]",
            seconds(call.from),
            seconds(call.until)
        ),
    }
}

/// The operations of each object, by the first of its paths.
fn objects<'a>(facts: &'a Facts<'_>) -> BTreeMap<&'a str, Vec<&'a Operation<'a>>> {
    let sequential = sequential_parents(facts);
    let judged = |operation: &Operation<'_>| {
        let counts = match operation.request {
            Request::Get { .. } | Request::Exists { .. } => operation.synced.is_some(),
            request => request.is_write(),
        };
        counts && (operation.answer.is_some() || operation.request.is_write())
    };
    let mut first_of: BTreeMap<&str, &str> = BTreeMap::new();
    let mut kept: Vec<(&str, &Operation<'_>)> = Vec::new();
    for operation in facts.operations.iter().filter(|operation| judged(operation)) {
        let mut paths: Vec<&str> =
            operation.request.steps().iter().filter_map(changed_path).collect();
        paths.sort_unstable();
        let Some(first) = paths.first() else { continue };
        if sequential.contains(parent(first)) {
            continue;
        }
        kept.push((*first, operation));
        for path in &paths {
            // Objects are few and fixed, so that one step up is enough.
            let known = first_of.entry(*path).or_insert(*first);
            if *first < *known {
                *known = *first;
            }
        }
    }
    let mut objects: BTreeMap<&str, Vec<&Operation<'_>>> = BTreeMap::new();
    for (path, operation) in kept {
        let first = first_of.get(path).copied().unwrap_or(path);
        objects.entry(first).or_default().push(operation);
    }
    objects
}

fn changed_path(request: &Request) -> Option<&str> {
    match request {
        Request::Create { mode, .. } if mode.is_sequential() => None,
        Request::Create { path, .. }
        | Request::Delete { path, .. }
        | Request::Set { path, .. }
        | Request::Check { path, .. }
        | Request::Get { path, .. }
        | Request::Exists { path, .. } => Some(path),
        _ => None,
    }
}

/// The parent of a path.
pub(crate) fn parent(path: &str) -> &str {
    match path.rfind('/') {
        Some(0) | None => "/",
        Some(end) => &path[..end],
    }
}

fn calls<'a>(facts: &Facts<'_>, operations: &[&'a Operation<'a>]) -> Vec<Call<Op<'a>>> {
    let mut last: BTreeMap<usize, usize> = BTreeMap::new();
    let mut calls: Vec<Call<Op<'a>>> = Vec::new();
    let mut owners = Vec::new();
    for (index, operation) in operations.iter().enumerate() {
        calls.push(Call {
            op: Op::Request(operation),
            from: operation.synced.unwrap_or(operation.sent),
            until: operation.over,
            is_certain: operation.answer.is_some(),
            only_shows: !operation.request.is_write() || !operation.is_ok(),
            after: last.insert(operation.connection, index),
        });
        let is_ephemeral =
            |step: &Request| matches!(step, Request::Create { mode, .. } if mode.is_ephemeral());
        if operation.request.steps().iter().any(is_ephemeral) {
            owners.push(operation.session);
        }
    }
    owners.sort_unstable();
    owners.dedup();
    for owner in owners {
        let Some(session) = facts.sessions.get(&owner) else { continue };
        let alone = session.alive_until();
        let (from, until, is_certain) = match session.end {
            End::Closed(sent, answered) => (sent, answered, answered != NEVER),
            End::Refused(at) => (alone.min(at), at, true),
            End::Open | End::Abandoned => (alone, NEVER, false),
        };
        let (op, only_shows) = (Op::End(owner), false);
        calls.push(Call { op, from, until, is_certain, only_shows, after: None });
    }
    calls
}

fn apply<'a>(state: &State<'a>, op: &Op<'a>) -> Option<State<'a>> {
    let operation = match op {
        Op::Request(operation) => *operation,
        Op::End(session) => {
            let mut state = state.clone();
            state.retain(|_, znode| znode.owner != *session);
            return Some(state);
        }
    };
    match operation.answer {
        Some(Answer::Error(code)) if OUT_OF_SESSION.contains(code) => return Some(state.clone()),
        Some(Answer::Error(code)) => {
            let failed = step(state, operation.request, None, operation).err()?;
            return (failed == *code).then(|| state.clone());
        }
        _ => {}
    }
    let mut next = state.clone();
    let steps = operation.request.steps();
    for (index, request) in steps.iter().enumerate() {
        let answer = match (operation.request, operation.answer) {
            (Request::Multi(_), Some(Answer::Results(results))) if operation.is_ok() => {
                results.get(index)
            }
            // What a multi that fails says of the operations before the failing one is known.
            (Request::Multi(_), _) => None,
            (_, answer) => answer,
        };
        match step(&next, request, answer, operation) {
            Ok(stepped) => next = stepped?,
            // A multi that fails changes nothing, and tells which of its operations failed.
            Err(_) if operation.answer.is_none() => return Some(state.clone()),
            Err(failed) => return is_failure(operation, index, failed).then(|| state.clone()),
        }
    }
    Some(next)
}

/// Whether the answer to a multi says that just this operation failed: those before it are then
/// answered with 0, those after it with −2.
fn is_failure(operation: &Operation<'_>, failed_at: usize, failed: i32) -> bool {
    let Some(Answer::Results(results)) = operation.answer else { return false };
    results.iter().enumerate().all(|(index, result)| {
        let expected = match index.cmp(&failed_at) {
            std::cmp::Ordering::Less => 0,
            std::cmp::Ordering::Equal => failed,
            std::cmp::Ordering::Greater => code::RUNTIME_INCONSISTENCY,
        };
        *result == Answer::Error(expected)
    })
}

/// One step: the state after it, `None` if it would have been answered in another way; or the
/// error that it fails with.
fn step<'a>(
    state: &State<'a>,
    request: &'a Request,
    answer: Option<&'a Answer>,
    operation: &Operation<'a>,
) -> Result<Option<State<'a>>, i32> {
    let zxid = if operation.is_ok() { operation.zxid } else { 0 };
    let found = |path: &str, wanted: i32| {
        let znode = state.get(path).ok_or(code::NO_NODE)?;
        let fits = wanted == -1 || wanted == znode.version;
        if fits { Ok(znode.clone()) } else { Err(code::BAD_VERSION) }
    };
    let mut next = state.clone();
    let is_right = match request {
        Request::Create { path, data, mode } => {
            if state.contains_key(path.as_str()) {
                return Err(code::NODE_EXISTS);
            }
            let owner = if mode.is_ephemeral() { operation.session } else { 0 };
            let znode = Znode { data, version: 0, czxid: zxid, mzxid: zxid, owner };
            next.insert(path, znode);
            answer.is_none_or(|answer| matches!(answer, Answer::Path(told) if told == path))
        }
        Request::Delete { path, version } => {
            found(path, *version)?;
            next.remove(path.as_str());
            answer.is_none_or(|answer| *answer == Answer::Done)
        }
        Request::Check { path, version } => {
            found(path, *version)?;
            answer.is_none_or(|answer| *answer == Answer::Done)
        }
        Request::Set { path, data, version } => {
            let mut znode = found(path, *version)?;
            (znode.data, znode.mzxid) = (data, zxid);
            znode.version = znode.version.wrapping_add(1);
            let is_right = match answer {
                Some(Answer::Stat(stat)) => stat.mzxid == zxid && learn(&mut znode, stat),
                answer => answer.is_none(),
            };
            next.insert(path, znode);
            is_right
        }
        Request::Get { path, .. } | Request::Exists { path, .. } => {
            let mut znode = found(path, -1)?;
            let is_right = match answer {
                Some(Answer::Data(data, stat)) => *data == znode.data && learn(&mut znode, stat),
                Some(Answer::Stat(stat)) => learn(&mut znode, stat),
                answer => answer.is_none(),
            };
            next.insert(path, znode);
            is_right
        }
        _ => true,
    };
    Ok(is_right.then_some(next))
}

/// Whether a Stat is this znode's; what was not known of it is known then.
fn learn(znode: &mut Znode<'_>, stat: &Stat) -> bool {
    let fits = |known: i64, told: i64| known == 0 || known == told;
    let is_right = znode.version == stat.version
        && znode.owner == stat.owner
        && fits(znode.czxid, stat.czxid)
        && fits(znode.mzxid, stat.mzxid);
    (znode.czxid, znode.mzxid) = (stat.czxid, stat.mzxid);
    is_right
}
