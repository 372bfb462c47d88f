//! A read says what the tree was at its reply's zxid.

use crate::checks::{Seen, Sent};
use crate::model::Model;
use bytes::Bytes;
use jute::Stat;
use zkshim::keeper::acl::{self, perms};
use zkshim::keeper::error::ErrorCode;
use zkshim::keeper::path;
use zkshim::keeper::request::{
    Body, Data, MultiReadOperation, MultiResult, Names, Operation, Read, Reply, WatchSelection,
};
use zkshim::keeper::watches::WatchKind;
use zkshim::keeper::zxid::Revision;

/// What a read is checked with.
struct Look<'l> {
    model: &'l Model,
    sent: &'l Sent,
    at: Revision,
    uncertain: Revision,
}

/// Checks the reply to a read, and takes note of the watch that it leaves.
pub(crate) fn check(
    model: &Model,
    seen: &mut Seen,
    sent: &Sent,
    reply: &Reply,
    at: Revision,
) -> Result<(), String> {
    let look = Look { model, sent, at, uncertain: seen.uncertain };
    let ok = reply.outcome.is_ok();
    match &sent.operation {
        Operation::Exists(read) => {
            let expected = look.stat(path_of(read)).map(Body::Stat);
            if read.watch && !matches!(expected, Err(ErrorCode::NoAuth)) {
                seen.armed.data(path_of(read));
            }
            look.same(&expected, reply)
        }
        Operation::GetData(read) => {
            if read.watch && ok {
                seen.armed.data(path_of(read));
            }
            look.same(&look.data(path_of(read)), reply)
        }
        Operation::GetChildren(read) | Operation::GetChildren2(read) => {
            if read.watch && ok {
                seen.armed.child(path_of(read));
            }
            look.children(path_of(read), reply)
        }
        Operation::AddWatch(add) => {
            seen.armed.persistent(add.path.as_deref().unwrap_or_default(), add.mode == 1);
            look.same(&Ok(Body::Watched), reply)
        }
        Operation::CheckWatches(selection) => {
            let there = kind_of(selection).is_some_and(|kind| {
                seen.armed.contains(selection.path.as_deref().unwrap_or_default(), kind)
            });
            look.same(&there.then_some(Body::Empty).ok_or(ErrorCode::NoWatcher), reply)
        }
        Operation::RemoveWatches(selection) => {
            let there = kind_of(selection).is_some_and(|kind| {
                seen.armed.remove(selection.path.as_deref().unwrap_or_default(), kind)
            });
            look.same(&there.then_some(Body::Empty).ok_or(ErrorCode::NoWatcher), reply)
        }
        Operation::GetAcl(path) => look.acl(path.as_deref().unwrap_or_default(), reply),
        Operation::GetEphemerals(_) => match &reply.outcome {
            Ok(Body::Names(names)) if sorted(names) == model.owned(seen.session, at) => Ok(()),
            _ => look.fail("wrong ephemerals", reply),
        },
        Operation::GetAllChildrenNumber(path) => {
            let path = path.as_deref().unwrap_or_default();
            let number = look.stat(path).map(|_| Body::Number(model.descendants(path, at)));
            look.same(&number, reply)
        }
        Operation::MultiRead(operations) => look.multi(operations, reply),
        _ => Ok(()),
    }
}

fn path_of(read: &Read) -> &str {
    read.path.as_deref().unwrap_or_default()
}

fn kind_of(selection: &WatchSelection) -> Option<WatchKind> {
    WatchKind::from_number(selection.kind)
}

impl Look<'_> {
    fn fail(&self, what: &str, reply: &Reply) -> Result<(), String> {
        Err(format!("{what}: {:?} got {reply:?}", self.sent.operation))
    }

    fn may(&self, path: &str, wanted: i32) -> Result<(), ErrorCode> {
        let acl = self.model.permissions(path, self.at).ok_or(ErrorCode::NoNode)?;
        let may = acl::permits(&acl, wanted, &self.sent.identities);
        if may { Ok(()) } else { Err(ErrorCode::NoAuth) }
    }

    /// The Stat of a znode that the client may read.
    fn stat(&self, path: &str) -> Result<Stat, ErrorCode> {
        self.may(path, perms::READ)?;
        self.model.stat(path, self.at).ok_or(ErrorCode::NoNode)
    }

    fn data(&self, path: &str) -> Result<Body, ErrorCode> {
        let stat = self.stat(path)?;
        let node = self.model.node(path, self.at);
        let data = node.map_or(Some(Bytes::new()), |node| node.value.data);
        let data = self.model.statistics(path, self.at).or(data);
        Ok(Body::Data(data.as_deref().map(Data::from), stat))
    }

    fn children(&self, path: &str, reply: &Reply) -> Result<(), String> {
        let stat = match self.stat(path) {
            Ok(stat) => stat,
            Err(code) => return self.same(&Err(code), reply),
        };
        let (names, came) = match &reply.outcome {
            Ok(Body::NamesStat(names, came)) => (names, came),
            Ok(Body::Names(names)) => (names, &stat),
            _ => return self.fail("no children", reply),
        };
        if sorted(names) != self.names(path) {
            return self.fail("wrong children", reply);
        }
        if self.is_same_stat(&stat, came) { Ok(()) } else { self.fail("wrong stat", reply) }
    }

    fn names(&self, path: &str) -> Vec<String> {
        let children = self.model.children(path, self.at);
        children.iter().map(|child| path::name(child).to_owned()).collect()
    }

    fn acl(&self, path: &str, reply: &Reply) -> Result<(), String> {
        if let Err(code) = self.may(path, perms::READ | perms::ADMIN) {
            return self.same(&Err(code), reply);
        }
        let mut acl = self.model.permissions(path, self.at).unwrap_or_default();
        if self.may(path, perms::ADMIN).is_err() {
            acl = acl::masked(&acl);
        }
        let stat = self.model.stat(path, self.at).unwrap_or_default();
        match &reply.outcome {
            Ok(Body::Acl(came, told)) if *came == acl && self.is_same_stat(&stat, told) => Ok(()),
            _ => self.fail("wrong ACL", reply),
        }
    }

    fn multi(&self, operations: &[MultiReadOperation], reply: &Reply) -> Result<(), String> {
        let Ok(Body::Multi(results)) = &reply.outcome else {
            return self.fail("no results", reply);
        };
        if results.len() != operations.len() {
            return self.fail("another number of results", reply);
        }
        for (operation, result) in operations.iter().zip(results) {
            let right = match operation {
                MultiReadOperation::GetData(path) => {
                    match (self.data(path.as_deref().unwrap_or_default()), result) {
                        (Ok(Body::Data(data, stat)), MultiResult::GetData(came, told)) => {
                            data == *came && self.is_same_stat(&stat, told)
                        }
                        (Err(code), MultiResult::Error(Some(came))) => code == *came,
                        _ => false,
                    }
                }
                MultiReadOperation::GetChildren(path) => {
                    let path = path.as_deref().unwrap_or_default();
                    match (self.stat(path), result) {
                        (Ok(_), MultiResult::GetChildren(names)) => {
                            sorted(names) == self.names(path)
                        }
                        (Err(code), MultiResult::Error(Some(came))) => code == *came,
                        _ => false,
                    }
                }
            };
            if !right {
                return self.fail("a wrong result", reply);
            }
        }
        Ok(())
    }

    fn same(&self, expected: &Result<Body, ErrorCode>, reply: &Reply) -> Result<(), String> {
        let alike = match (expected, &reply.outcome) {
            (Ok(Body::Stat(expected)), Ok(Body::Stat(came))) => self.is_same_stat(expected, came),
            (Ok(Body::Data(data, expected)), Ok(Body::Data(came_data, came))) => {
                data == came_data && self.is_same_stat(expected, came)
            }
            (expected, outcome) => expected == outcome,
        };
        if alike {
            return Ok(());
        }
        Err(format!("expected {expected:?}, got {reply:?} for {:?}", self.sent.operation))
    }

    /// A shim that loaded after a compaction may not know that a child went with its lease.
    fn is_same_stat(&self, expected: &Stat, came: &Stat) -> bool {
        let may_lag = came.pzxid < expected.pzxid && expected.pzxid <= self.uncertain.0;
        let pzxid = if may_lag { expected.pzxid } else { came.pzxid };
        Stat { pzxid, ..came.clone() } == *expected
    }
}

/// The names of a list in the wire's form, sorted.
fn sorted(names: &Names) -> Vec<String> {
    let mut names = decode_names(names);
    names.sort_unstable();
    names
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
