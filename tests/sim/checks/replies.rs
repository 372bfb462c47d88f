//! A write's success is in the history at its zxid; a failure was right at some moment while the
//! request was under way.

use crate::checks::judge::judge;
use crate::checks::quotas::Usage;
use crate::checks::{Seen, Sent, reads};
use crate::model::Model;
use zkshim::keeper::error::ErrorCode;
use zkshim::keeper::keyspace::{Slot, StepKind};
use zkshim::keeper::path;
use zkshim::keeper::request::{Body, Create, MultiOperation, MultiResult, Operation, Reply};
use zkshim::keeper::txn::{Change, KeyValue};
use zkshim::keeper::zxid::{Revision, Zxid};

pub(crate) fn check(
    model: &Model,
    seen: &mut Seen,
    sent: &Sent,
    reply: &Reply,
    before: Zxid,
) -> Result<(), String> {
    let at = Revision(reply.zxid.0);
    match &sent.operation {
        Operation::SetWatches(set) => {
            let uncertain = seen.uncertain;
            seen.armed.set_watches(model, set, at, uncertain)
        }
        Operation::Sync(_) if at < sent.revision => {
            Err(format!("sync does not reach what was there: {sent:?} got {reply:?}"))
        }
        Operation::Create(_)
        | Operation::Delete(_)
        | Operation::SetData(_)
        | Operation::SetAcl(_)
        | Operation::Multi(_) => write(model, sent, reply, before),
        _ => reads::check(model, seen, sent, reply, at),
    }
}

/// The code of a failure, and which operation of a multi it is about.
pub(crate) fn failure(reply: &Reply) -> Option<(usize, ErrorCode)> {
    match &reply.outcome {
        Err(code) => Some((0, *code)),
        Ok(Body::Multi(results)) => results.iter().enumerate().find_map(|(index, result)| {
            let MultiResult::Error(Some(code)) = result else { return None };
            Some((index, *code))
        }),
        Ok(_) => None,
    }
}

fn write(model: &Model, sent: &Sent, reply: &Reply, before: Zxid) -> Result<(), String> {
    let at = Revision(reply.zxid.0);
    if reply.outcome == Err(ErrorCode::MarshallingError) && is_large(&sent.operation) {
        // Whatever the tree is like.
        return Ok(());
    }
    if at < sent.revision {
        return Err(format!("{:?} was answered by an older tree: {reply:?}", sent.operation));
    }
    let Some(failed) = failure(reply) else {
        check_quota(model, sent, at, Revision(sent.told.0.min(at.0 - 1)))?;
        return success(model, sent, reply, at);
    };
    // Requests that share a revision see the tree before it, and what those before them did.
    let from = sent.revision.max(Revision(before.0.min(at.0 - 1)));
    // What a quota's subtree holds is as the shim knew it, which may be older.
    let quota = failed.1 == ErrorCode::QuotaExceeded;
    let from = if quota { Revision(sent.told.0.min(from.0)) } else { from };
    let mut verdicts = (from.0..=at.0)
        .rev()
        .map(|at| judge(model, Revision(at), &sent.identities, &sent.operation));
    if verdicts.any(|verdict| verdict == Err(failed)) || stirred_inside(model, sent, at) {
        return Ok(());
    }
    Err(format!(
        "{failed:?} was wrong from {from} to {at}, now {:?}: {:?}",
        judge(model, at, &sent.identities, &sent.operation),
        sent.operation
    ))
}

/// What was done was within its quota at some moment that its shim knew, or all of it fits.
fn check_quota(model: &Model, sent: &Sent, at: Revision, from: Revision) -> Result<(), String> {
    let (path, length) = match &sent.operation {
        Operation::Create(create) => (create.path.as_deref(), create.data.as_ref()),
        Operation::SetData(set) => (set.path.as_deref(), set.data.as_ref()),
        _ => return Ok(()),
    };
    let (path, length) = (path.unwrap_or_default(), length.map_or(0, |data| data.len() as i64));
    let exceeds = |at: Revision| {
        let change = match &sent.operation {
            Operation::Create(_) => Usage { count: 1, bytes: length },
            _ => Usage { count: 0, bytes: length - model.length(path, at) },
        };
        model.exceeds(path, at, change)
    };
    // What was done in the same revision before this may have made room.
    let stirred = model.told(at).iter().any(|told| {
        told.kind == StepKind::Deleted || told.path.starts_with(zkshim::keeper::tree::QUOTA)
    });
    let fits = stirred
        || !model.is_exceeded(path, at)
        || (from.0..at.0).rev().any(|at| !exceeds(Revision(at)));
    if fits { Ok(()) } else { Err(format!("{sent:?} exceeds its quota at {at}")) }
}

/// It may be more than fits into a txn.
fn is_large(operation: &Operation) -> bool {
    matches!(operation, Operation::Multi(operations) if operations.len() > 40)
}

/// What the request looks at changed more than once in this very revision, so that a failure may
/// have been right between two of its changes.
fn stirred_inside(model: &Model, sent: &Sent, at: Revision) -> bool {
    let paths: Vec<&str> = match &sent.operation {
        Operation::Create(create) => create.path.as_deref().into_iter().collect(),
        Operation::Delete(delete) => delete.path.as_deref().into_iter().collect(),
        Operation::SetData(set) => set.path.as_deref().into_iter().collect(),
        Operation::SetAcl(set) => set.path.as_deref().into_iter().collect(),
        Operation::Multi(operations) => operations.iter().filter_map(multi_path).collect(),
        _ => Vec::new(),
    };
    let changes = model.moments.get(&at).map_or(&[][..], |moment| &moment.changes.changes);
    let near =
        |told: &str| paths.iter().any(|path| told == *path || path::parent_or_root(path) == told);
    let stirred = changes.iter().filter(|change| {
        let (Change::Put(KeyValue { key, .. }) | Change::Delete(key)) = change;
        match Slot::parse(key) {
            Some(Slot::Node(path) | Slot::Creates(path) | Slot::Acl(path) | Slot::Pzxid(path)) => {
                near(&path)
            }
            _ => false,
        }
    });
    stirred.count() > 1
}

pub(crate) fn multi_path(operation: &MultiOperation) -> Option<&str> {
    match operation {
        MultiOperation::Create(create) => create.path.as_deref(),
        MultiOperation::Delete(delete) => delete.path.as_deref(),
        MultiOperation::SetData(set) => set.path.as_deref(),
        MultiOperation::Check(check) => check.path.as_deref(),
    }
}

fn created(model: &Model, create: &Create, path: &str, at: Revision) -> Result<(), &'static str> {
    let asked = create.path.as_deref().unwrap_or_default();
    let told = model.told(at).iter();
    let born = told.filter(|told| told.kind == StepKind::Created).any(|told| told.path == path);
    if path.starts_with(asked) && born { Ok(()) } else { Err("not created in this revision") }
}

fn success(model: &Model, sent: &Sent, reply: &Reply, at: Revision) -> Result<(), String> {
    let fail = |what: &str| Err(format!("{what}: {:?} got {reply:?}", sent.operation));
    match (&sent.operation, &reply.outcome) {
        (Operation::Create(create), Ok(Body::Path(Some(path)))) => {
            created(model, create, path, at).or_else(fail)
        }
        (Operation::Create(create), Ok(Body::PathStat(path, stat))) => {
            if stat.czxid != at.0 || stat.mzxid != at.0 || stat.version != 0 {
                return fail("wrong stat of a new znode");
            }
            created(model, create, path, at).or_else(fail)
        }
        (Operation::Delete(delete), Ok(Body::Empty)) => {
            let path = delete.path.as_deref().unwrap_or_default();
            let before = Revision(at.0 - 1);
            let told = model.told(at).iter().any(|told| told.path == path);
            if !told && (model.exists(path, at) || !model.exists(path, before)) {
                return fail("not deleted in this revision");
            }
            Ok(())
        }
        (Operation::SetData(set), Ok(Body::Stat(stat))) => {
            let wrong = set.version != -1 && stat.version != set.version + 1;
            if wrong || stat.mzxid != at.0 {
                return fail("wrong version or mzxid");
            }
            Ok(())
        }
        (Operation::SetAcl(set), Ok(Body::Stat(stat))) => {
            let path = set.path.as_deref().unwrap_or_default();
            if model.acl(path, at).is_some_and(|acl| acl.0 != stat.aversion) {
                return fail("wrong aversion");
            }
            Ok(())
        }
        (Operation::Multi(operations), Ok(Body::Multi(results))) => {
            if results.len() != operations.len() {
                return fail("wrong number of results");
            }
            Ok(())
        }
        _ => fail("a reply of another kind"),
    }
}
