//! Random requests, for the server and for the model alike.

use bytes::Bytes;
use jute::{Acl, Id, Stat, Text};
use proptest::prelude::*;
use zkshim::keeper::error::ErrorCode;
use zkshim::keeper::request::{
    Body, Check, Create, CreateOpcode, Delete, MultiOperation, MultiResult, Operation, Read,
    SetAcl, SetData,
};

use crate::zookeeper::{self, Caller, ZooKeeper};

/// A request.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    Write(Write),
    SetAcl(String, Vec<Acl>, i32),
    Multi(Vec<Write>),
    Get(String, bool),
    Exists(String, bool),
    List(String, bool),
}

/// What may stand in a multi.
#[derive(Clone, Debug)]
pub(crate) enum Write {
    Create {
        ask: zookeeper::Create,
        with_stat: bool,
    },
    Delete(String, i32),
    Set(String, Option<Bytes>, i32),
    /// Only in a multi.
    Check(String, i32),
}

/// An answer without the order of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Empty,
    Path(String),
    PathStat(String, Stat),
    Stat(Stat),
    Data(Option<Bytes>, Stat),
    Names(Vec<String>, Stat),
    Multi(Vec<MultiResult>),
}

impl Answer {
    /// What a server's reply says.
    pub(crate) fn of(body: Body) -> Self {
        match body {
            Body::Empty => Self::Empty,
            Body::Path(path) => Self::Path(path.as_deref().unwrap_or("null").to_owned()),
            Body::PathStat(path, stat) => Self::PathStat(path.as_str().to_owned(), stat),
            Body::Stat(stat) => Self::Stat(stat),
            Body::Data(data, stat) => Self::Data(data.map(|data| data.to_vec().into()), stat),
            Body::NamesStat(names, stat) => Self::Names(crate::show::names(&names.0), stat),
            Body::Multi(results) => Self::Multi(results),
            other => panic!("not asked for: {other:?}"),
        }
    }
}

impl Ask {
    pub(crate) fn operation(&self) -> Operation {
        let read = |path: &str, watch: bool| Read { path: Some(path.into()), watch };
        match self {
            Self::Write(write) => match write.operation() {
                MultiOperation::Create(create) => Operation::Create(create),
                MultiOperation::Delete(delete) => Operation::Delete(delete),
                MultiOperation::SetData(set) => Operation::SetData(set),
                MultiOperation::Check(_) => Operation::Multi(vec![write.operation()]),
            },
            Self::SetAcl(path, acl, version) => Operation::SetAcl(SetAcl {
                path: Some(path.as_str().into()),
                acl: Some(acl.clone()),
                version: *version,
            }),
            Self::Multi(writes) => Operation::Multi(writes.iter().map(Write::operation).collect()),
            Self::Get(path, watch) => Operation::GetData(read(path, *watch)),
            Self::Exists(path, watch) => Operation::Exists(read(path, *watch)),
            Self::List(path, watch) => Operation::GetChildren2(read(path, *watch)),
        }
    }

    /// What the model says.
    pub(crate) fn answer(
        &self,
        model: &mut ZooKeeper,
        caller: &Caller,
    ) -> Result<Answer, ErrorCode> {
        match self {
            Self::Write(check @ Write::Check(..)) => {
                Ok(multi(model, std::slice::from_ref(check), caller))
            }
            Self::Write(write) => write.run(model, caller).map(|result| match result {
                MultiResult::Create(path) => Answer::Path(path.as_str().to_owned()),
                MultiResult::Create2(path, stat) => {
                    Answer::PathStat(path.as_str().to_owned(), stat)
                }
                MultiResult::SetData(stat) => Answer::Stat(stat),
                _ => Answer::Empty,
            }),
            Self::SetAcl(path, acl, version) => {
                model.set_acl(path, acl, *version, caller).map(Answer::Stat)
            }
            Self::Multi(writes) => Ok(multi(model, writes, caller)),
            Self::Get(path, _) => {
                model.read(path, caller)?;
                let (data, _) = model.content(root(path)).ok_or(ErrorCode::NoNode)?;
                Ok(Answer::Data(data, model.stat(root(path)).ok_or(ErrorCode::NoNode)?))
            }
            Self::Exists(path, _) if path.contains('\0') => Err(ErrorCode::BadArguments),
            Self::Exists(path, _) => {
                model.read(path, caller)?;
                Ok(Answer::Stat(model.stat(root(path)).ok_or(ErrorCode::NoNode)?))
            }
            Self::List(path, _) => {
                model.read(path, caller)?;
                let stat = model.stat(root(path)).ok_or(ErrorCode::NoNode)?;
                Ok(Answer::Names(model.children(root(path)), stat))
            }
        }
    }

    /// The path and whether it is the child table, if it leaves a watch with this answer.
    pub(crate) fn watch<T>(&self, answer: &Result<T, ErrorCode>) -> Option<(&str, bool)> {
        match (self, answer) {
            (Self::Get(path, true), Ok(_)) => Some((path, false)),
            (Self::Exists(path, true), Ok(_) | Err(ErrorCode::NoNode)) => Some((path, false)),
            (Self::List(path, true), Ok(_)) => Some((path, true)),
            _ => None,
        }
    }
}

impl Write {
    fn operation(&self) -> MultiOperation {
        let text = |path: &str| Some(Text::from(path));
        match self {
            Self::Create { ask, with_stat } => MultiOperation::Create(Create {
                opcode: if *with_stat { CreateOpcode::Create2 } else { CreateOpcode::Create },
                path: text(&ask.path),
                data: ask.data.clone(),
                acl: Some(ask.acl.clone()),
                flags: i32::from(ask.ephemeral) + 2 * i32::from(ask.sequential),
                ttl_ms: -1,
            }),
            Self::Delete(path, version) => {
                MultiOperation::Delete(Delete { path: text(path), version: *version })
            }
            Self::Set(path, data, version) => MultiOperation::SetData(SetData {
                path: text(path),
                data: data.clone(),
                version: *version,
            }),
            Self::Check(path, version) => {
                MultiOperation::Check(Check { path: text(path), version: *version })
            }
        }
    }

    fn run(&self, model: &mut ZooKeeper, caller: &Caller) -> Result<MultiResult, ErrorCode> {
        Ok(match self {
            Self::Create { ask, with_stat } => {
                let path = model.create(ask, caller)?;
                let stat = model.stat(&path).ok_or(ErrorCode::NoNode)?;
                let path = Text::from(path);
                if *with_stat {
                    MultiResult::Create2(path, stat)
                } else {
                    MultiResult::Create(path)
                }
            }
            Self::Delete(path, version) => {
                model.delete(path, *version, caller)?;
                MultiResult::Delete
            }
            Self::Set(path, data, version) => {
                MultiResult::SetData(model.set_data(path, data.clone(), *version, caller)?)
            }
            Self::Check(path, version) => {
                model.check(path, *version, caller)?;
                MultiResult::Check
            }
        })
    }
}

/// 6.3 and 6.6: all or nothing.
fn multi(model: &mut ZooKeeper, writes: &[Write], caller: &Caller) -> Answer {
    let before = model.clone();
    let mut results = Vec::new();
    for (index, write) in writes.iter().enumerate() {
        match write.run(model, caller) {
            Ok(result) => results.push(result),
            Err(code) => {
                *model = before;
                let mut failed = vec![MultiResult::Error(None); index];
                failed.push(MultiResult::Error(Some(code)));
                let skipped = MultiResult::Error(Some(ErrorCode::RuntimeInconsistency));
                failed.resize(writes.len(), skipped);
                return Answer::Multi(failed);
            }
        }
    }
    Answer::Multi(results)
}

/// The empty path names the root for reads (4.1).
fn root(path: &str) -> &str {
    if path.is_empty() { "/" } else { path }
}

const PATHS: [&str; 12] = [
    "/a",
    "/a",
    "/b",
    "/a/x",
    "/a/x",
    "/a/y",
    "/a/x/z",
    "/b/s-0000000000",
    "/a/s-0000000001",
    "/",
    "/zookeeper",
    "/zookeeper/config",
];

const ODD_PATHS: [&str; 9] = ["", "rel", "rel/x", "/a/", "//", "/a//b", "/a/.", "/..", "/a\0"];

fn path() -> impl Strategy<Value = String> {
    let usual = prop::sample::select(&PATHS[..]);
    let odd = prop::sample::select(&ODD_PATHS[..]);
    prop_oneof![20 => usual, 1 => odd].prop_map(str::to_owned)
}

fn version() -> impl Strategy<Value = i32> {
    prop_oneof![6 => Just(-1), 4 => 0..3, 1 => Just(-2)]
}

fn data() -> impl Strategy<Value = Option<Bytes>> {
    let texts = prop::sample::select(&["", "x", "yy"][..]);
    prop_oneof![1 => Just(None), 6 => texts.prop_map(|text| Some(Bytes::from_static(text.as_bytes())))]
}

fn entry(scheme: &'static str, perms: i32) -> Acl {
    let id = if scheme == "world" { "anyone" } else { "" };
    Acl { perms, id: Id { scheme: Some(scheme.into()), id: Some(id.into()) } }
}

fn acl() -> impl Strategy<Value = Vec<Acl>> {
    prop_oneof![
        12 => Just(vec![entry("world", 31)]),
        1 => Just(vec![entry("world", 1)]),
        1 => Just(vec![entry("world", 1 + 2 + 4)]),
        1 => Just(vec![entry("auth", 31), entry("world", 4 + 8)]),
        1 => Just(vec![entry("auth", 31), entry("auth", 31), entry("world", 1 + 16)]),
        1 => Just(Vec::new()),
    ]
}

fn write() -> impl Strategy<Value = Write> {
    let create = (path(), data(), acl(), prop::bool::weighted(0.25), prop::bool::weighted(0.2));
    let create = (create, any::<bool>()).prop_map(|(create, with_stat)| {
        let (mut path, data, acl, ephemeral, sequential) = create;
        if sequential && path.len() > 1 {
            path.push_str("/s-");
        }
        let ask = zookeeper::Create { path, data, acl, ephemeral, sequential };
        Write::Create { ask, with_stat }
    });
    prop_oneof![
        8 => create,
        5 => (path(), version()).prop_map(|(path, version)| Write::Delete(path, version)),
        4 => (path(), data(), version())
            .prop_map(|(path, data, version)| Write::Set(path, data, version)),
        1 => (path(), version()).prop_map(|(path, version)| Write::Check(path, version)),
    ]
}

/// A multi that creates a znode anew, and then some.
fn again() -> impl Strategy<Value = Vec<Write>> {
    let around = || prop::collection::vec(write(), 0..3);
    (path(), data(), acl(), any::<bool>(), around(), around()).prop_map(
        |(path, data, acl, ephemeral, before, after)| {
            let delete = Write::Delete(path.clone(), -1);
            let ask = zookeeper::Create { path, data, acl, ephemeral, sequential: false };
            let create = Write::Create { ask, with_stat: true };
            before.into_iter().chain([delete, create]).chain(after).collect()
        },
    )
}

/// Any request.
pub(crate) fn ask() -> impl Strategy<Value = Ask> {
    prop_oneof![
        10 => write().prop_map(Ask::Write),
        1 => (path(), acl(), version())
            .prop_map(|(path, acl, version)| Ask::SetAcl(path, acl, version)),
        4 => prop::collection::vec(write(), 0..6).prop_map(Ask::Multi),
        3 => again().prop_map(Ask::Multi),
        2 => (path(), any::<bool>()).prop_map(|(path, watch)| Ask::Get(path, watch)),
        2 => (path(), any::<bool>()).prop_map(|(path, watch)| Ask::Exists(path, watch)),
        2 => (path(), any::<bool>()).prop_map(|(path, watch)| Ask::List(path, watch)),
    ]
}
