//! A reply says what the tree was at its zxid; a failure was right at some moment while the
//! request was under way.

use crate::checks::judge::judge;
use crate::checks::{Seen, Sent};
use crate::model::{Model, Node};
use bytes::Bytes;
use jute::Stat;
use zkshim::keeper::error::ErrorCode;
use zkshim::keeper::keyspace::{Slot, StepKind};
use zkshim::keeper::path;
use zkshim::keeper::request::{
    Body, Create, MultiOperation, MultiResult, Names, Operation, Read, Reply,
};
use zkshim::keeper::tree;
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
    let fail = |what: &str| Err(format!("{what}: {:?} got {reply:?}", sent.operation));
    match &sent.operation {
        Operation::Exists(read) => exists(model, seen, read, reply, at),
        Operation::GetData(read) => {
            let expected = node(model, read, at).map(|(node, stat)| {
                Body::Data(node.map_or(Some(Bytes::new()), |node| node.value.data), stat)
            });
            if expected.is_ok() && read.watch {
                seen.armed.data(path_of(read));
            }
            same(&expected, reply, seen.uncertain)
        }
        Operation::GetChildren2(read) => {
            let (_, stat) = match node(model, read, at) {
                Ok(node) => node,
                Err(code) => return same(&Err(code), reply, seen.uncertain),
            };
            if read.watch {
                seen.armed.child(path_of(read));
            }
            let Ok(Body::NamesStat(names, came)) = &reply.outcome else {
                return fail("no children");
            };
            let children = model.children(path_of(read), at);
            let expected: Vec<&str> = children.iter().map(|child| path::name(child)).collect();
            let mut names = decode_names(names);
            names.sort_unstable();
            if names != expected {
                return fail("wrong children");
            }
            same_stat(&stat, came, seen.uncertain).or_else(|()| fail("wrong stat"))
        }
        Operation::GetAcl(_) | Operation::GetEphemerals(_) | Operation::GetAllChildrenNumber(_) => {
            read(model, seen, sent, reply, at)
        }
        Operation::AddWatch(add) => {
            seen.armed.persistent(add.path.as_deref().unwrap_or_default(), add.mode == 1);
            Ok(())
        }
        Operation::SetWatches(set) => {
            let uncertain = seen.uncertain;
            seen.armed.set_watches(model, set, at, uncertain)
        }
        Operation::Sync(_) if at < sent.revision => fail("sync does not reach what was there"),
        Operation::Create(_)
        | Operation::Delete(_)
        | Operation::SetData(_)
        | Operation::SetAcl(_)
        | Operation::Multi(_) => write(model, sent, reply, before),
        _ => Ok(()),
    }
}

/// Reads that leave no watch.
fn read(
    model: &Model,
    seen: &Seen,
    sent: &Sent,
    reply: &Reply,
    at: Revision,
) -> Result<(), String> {
    let fail = |what: &str| Err(format!("{what}: {:?} got {reply:?}", sent.operation));
    match &sent.operation {
        Operation::GetAcl(path) => {
            let path = path.as_deref().unwrap_or_default();
            let acl = model.acl(path, at).map_or_else(tree::open_acl, |acl| acl.1.to_vec());
            match (&reply.outcome, model.stat(path, at)) {
                (Err(ErrorCode::NoNode), None) => Ok(()),
                (Ok(Body::Acl(came, stat)), Some(expected)) if *came == acl => {
                    same_stat(&expected, stat, seen.uncertain).or_else(|()| fail("wrong stat"))
                }
                _ => fail("wrong ACL"),
            }
        }
        Operation::GetEphemerals(_) => match &reply.outcome {
            Ok(Body::Names(names)) => {
                let mut names = decode_names(names);
                names.sort_unstable();
                let owned = model.owned(seen.session, at);
                if names == owned { Ok(()) } else { fail("wrong ephemerals") }
            }
            _ => fail("no ephemerals"),
        },
        Operation::GetAllChildrenNumber(path) => {
            let path = path.as_deref().unwrap_or_default();
            let expected = match model.exists(path, at) {
                true => Ok(Body::Number(model.descendants(path, at))),
                false => Err(ErrorCode::NoNode),
            };
            same(&expected, reply, seen.uncertain)
        }
        _ => Ok(()),
    }
}

fn exists(
    model: &Model,
    seen: &mut Seen,
    read: &Read,
    reply: &Reply,
    at: Revision,
) -> Result<(), String> {
    let expected = node(model, read, at).map(|(_, stat)| Body::Stat(stat));
    if read.watch {
        seen.armed.data(path_of(read));
    }
    same(&expected, reply, seen.uncertain)
}

fn path_of(read: &Read) -> &str {
    read.path.as_deref().unwrap_or_default()
}

fn node(model: &Model, read: &Read, at: Revision) -> Result<(Option<Node>, Stat), ErrorCode> {
    let stat = model.stat(path_of(read), at).ok_or(ErrorCode::NoNode)?;
    Ok((model.node(path_of(read), at), stat))
}

fn same(
    expected: &Result<Body, ErrorCode>,
    reply: &Reply,
    uncertain: Revision,
) -> Result<(), String> {
    let alike = match (expected, &reply.outcome) {
        (Ok(Body::Stat(expected)), Ok(Body::Stat(came))) => {
            same_stat(expected, came, uncertain).is_ok()
        }
        (Ok(Body::Data(data, expected)), Ok(Body::Data(came_data, came))) => {
            data == came_data && same_stat(expected, came, uncertain).is_ok()
        }
        (expected, outcome) => expected == outcome,
    };
    if alike { Ok(()) } else { Err(format!("expected {expected:?}, got {reply:?}")) }
}

/// A shim that loaded after a compaction may not know that a child went with its lease.
fn same_stat(expected: &Stat, came: &Stat, uncertain: Revision) -> Result<(), ()> {
    let may_lag = came.pzxid < expected.pzxid && expected.pzxid <= uncertain.0;
    let came = Stat { pzxid: if may_lag { expected.pzxid } else { came.pzxid }, ..came.clone() };
    if came == *expected { Ok(()) } else { Err(()) }
}

pub(crate) fn decode_names(names: &Names) -> Vec<String> {
    #[derive(Debug)]
    struct Cursor<'a>(&'a [u8]);
    impl Cursor<'_> {
        fn int(&mut self) -> usize {
            let (int, rest) = self.0.split_first_chunk::<4>().expect("names are whole");
            self.0 = rest;
            u32::from_be_bytes(*int) as usize
        }
    }
    let mut cursor = Cursor(&names.0);
    let count = cursor.int();
    let mut decoded = Vec::new();
    for _ in 0..count {
        let length = cursor.int();
        let (name, rest) = cursor.0.split_at(length);
        decoded.push(String::from_utf8_lossy(name).into_owned());
        cursor.0 = rest;
    }
    decoded
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
    if at < sent.revision {
        return Err(format!("{:?} was answered by an older tree: {reply:?}", sent.operation));
    }
    let Some(failed) = failure(reply) else { return success(model, sent, reply, at) };
    // Requests that share a revision see the tree before it, and what those before them did.
    let from = sent.revision.max(Revision(before.0.min(at.0 - 1)));
    let mut verdicts = (from.0..=at.0).rev().map(|at| judge(model, Revision(at), &sent.operation));
    if verdicts.any(|verdict| verdict == Err(failed)) || stirred_inside(model, sent, at) {
        return Ok(());
    }
    Err(format!(
        "{failed:?} was wrong from {from} to {at}, now {:?}: {:?}",
        judge(model, at, &sent.operation),
        sent.operation
    ))
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
