//! What a transcript prints: short, and without what differs from run to run.

use std::collections::BTreeMap;

use jute::{Acl, Stat};
use zkshim::keeper::error::ErrorCode;
use zkshim::keeper::keyspace::Slot;
use zkshim::keeper::request::{Body, EventKind, MultiResult, SessionId};
use zkshim::keeper::txn::{Change, Compare, Key, KeyValue, LeaseId, Op, RevisionChanges, Txn};

/// The names that a script gave.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) sessions: BTreeMap<SessionId, String>,
}

impl Names {
    pub(crate) fn session(&self, id: SessionId) -> String {
        self.sessions.get(&id).cloned().unwrap_or_else(|| "?".to_owned())
    }

    pub(crate) fn outcome(&self, outcome: &Result<Body, ErrorCode>) -> String {
        match outcome {
            Ok(body) => self.body(body),
            Err(code) => format!("{code:?}"),
        }
    }

    fn body(&self, body: &Body) -> String {
        match body {
            Body::Empty | Body::Watched => "ok".to_owned(),
            Body::Path(path) => path.as_deref().unwrap_or("null").to_owned(),
            Body::PathStat(path, stat) => format!("{} {}", &**path, self.stat(stat)),
            Body::Stat(stat) => self.stat(stat),
            Body::Data(data, stat) => format!("{} {}", text(data.as_deref()), self.stat(stat)),
            Body::Names(names) => list(&names.0),
            Body::NamesStat(names, stat) => format!("{} {}", list(&names.0), self.stat(stat)),
            Body::Acl(acl, stat) => format!("{} {}", acls(acl), self.stat(stat)),
            Body::Multi(results) => {
                let results: Vec<String> = results.iter().map(|r| self.multi(r)).collect();
                format!("[{}]", results.join(" | "))
            }
            Body::Number(number) => number.to_string(),
            Body::Identities(list) => format!("{} identities", list.len()),
            Body::Token(token) => format!("token {}", text(token.as_deref())),
        }
    }

    fn multi(&self, result: &MultiResult) -> String {
        match result {
            MultiResult::Create(path) => format!("created {}", &**path),
            MultiResult::Create2(path, stat) => {
                format!("created {} {}", &**path, self.stat(stat))
            }
            MultiResult::Delete => "deleted".to_owned(),
            MultiResult::SetData(stat) => format!("set {}", self.stat(stat)),
            MultiResult::Check => "checked".to_owned(),
            MultiResult::GetData(data, stat) => {
                format!("{} {}", text(data.as_deref()), self.stat(stat))
            }
            MultiResult::GetChildren(names) => list(&names.0),
            MultiResult::Error(None) => "0".to_owned(),
            MultiResult::Error(Some(code)) => format!("{code:?}"),
        }
    }

    /// The zxids, and of the rest what is not 0. Times are left out.
    pub(crate) fn stat(&self, stat: &Stat) -> String {
        let mut out = format!("{{c{} m{} p{}", stat.czxid, stat.mzxid, stat.pzxid);
        for (name, value) in [
            ("version", stat.version),
            ("cversion", stat.cversion),
            ("aversion", stat.aversion),
            ("length", stat.data_length),
            ("children", stat.num_children),
        ] {
            if value != 0 {
                out.push_str(&format!(" {name}={value}"));
            }
        }
        if stat.ephemeral_owner != 0 {
            out.push_str(&format!(" owner={}", self.session(SessionId(stat.ephemeral_owner))));
        }
        out.push('}');
        out
    }

    /// A key; shims and claims without their numbers.
    pub(crate) fn key(&self, key: &Key) -> String {
        match Slot::parse(key) {
            Some(Slot::Session(session)) => format!("s{}", self.session(session)),
            Some(Slot::Spent(session)) => format!("u{}", self.session(session)),
            Some(Slot::Batch(_)) => "x".to_owned(),
            Some(Slot::Steps(..)) => "x/steps".to_owned(),
            Some(Slot::Ended(_)) => "e".to_owned(),
            _ if key.starts_with(b"w") => "w".to_owned(),
            _ => String::from_utf8_lossy(key).into_owned(),
        }
    }

    /// A revision: what it put and deleted, the number of the batch left out.
    pub(crate) fn revision(&self, changes: &RevisionChanges) -> String {
        let shown: Vec<String> = changes
            .changes
            .iter()
            .filter_map(|change| match change {
                Change::Put(KeyValue { key, lease, .. }) => {
                    let key = self.key(key);
                    let leased = if *lease == LeaseId::NONE { "" } else { "*" };
                    (!is_number(&key)).then(|| format!("+{key}{leased}"))
                }
                Change::Delete(key) => Some(format!("-{}", self.key(key))),
            })
            .collect();
        format!("{}: {}", changes.revision, shown.join(" "))
    }

    /// How a txn is built, in a word, and what it would change.
    pub(crate) fn txn(&self, txn: &Txn) -> String {
        let nested = txn.then.iter().filter(|op| matches!(op, Op::Txn(_))).count();
        let shape = if nested > 0 { format!("nested in {nested}") } else { "flat".to_owned() };
        let compared = |compare: &Compare| {
            let (Compare::ModRevision(key, _)
            | Compare::CreateRevision(key, _)
            | Compare::Lease(key, _)
            | Compare::Value(key, _)) = compare;
            self.key(key)
        };
        let compares: Vec<String> = txn.compares.iter().map(compared).collect();
        let shape = match compares.iter().any(|key| key == "l") {
            true => format!("{shape} on {}", compares.join(" ")),
            false => shape,
        };
        let mut changes = Vec::new();
        self.ops(&txn.then, &mut changes);
        format!("{shape}: {}", changes.join(" ")).trim_end().to_owned()
    }

    fn ops(&self, ops: &[Op], changes: &mut Vec<String>) {
        for op in ops {
            match op {
                Op::Put { key, .. } => {
                    let key = self.key(key);
                    changes.extend((!is_number(&key)).then(|| format!("+{key}")));
                }
                Op::Delete(key) => changes.push(format!("-{}", self.key(key))),
                Op::Txn(nested) => self.ops(&nested.then, changes),
            }
        }
    }
}

/// Each batch that writes puts these two.
fn is_number(key: &str) -> bool {
    matches!(key, "x" | "l")
}

pub(crate) fn event(kind: EventKind) -> &'static str {
    match kind {
        EventKind::NodeCreated => "NodeCreated",
        EventKind::NodeDeleted => "NodeDeleted",
        EventKind::NodeDataChanged => "NodeDataChanged",
        EventKind::NodeChildrenChanged => "NodeChildrenChanged",
    }
}

fn text(data: Option<&[u8]>) -> String {
    match data {
        None => "null".to_owned(),
        Some(data) => format!("{:?}", String::from_utf8_lossy(data)),
    }
}

fn acls(acl: &[Acl]) -> String {
    let one = |entry: &Acl| {
        let part = |text: &Option<jute::Text>| text.as_deref().unwrap_or("null").to_owned();
        format!("{}:{}:{}", part(&entry.id.scheme), part(&entry.id.id), entry.perms)
    };
    acl.iter().map(one).collect::<Vec<_>>().join(",")
}

/// The names in a `vector<ustring>`, sorted: their order means nothing.
pub(crate) fn names(wire: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    let mut rest = wire.get(4..).unwrap_or_default();
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let length = usize::try_from(u32::from_be_bytes(*length)).expect("it was encoded");
        let (name, after) = after.split_at(length);
        names.push(String::from_utf8_lossy(name).into_owned());
        rest = after;
    }
    names.sort_unstable();
    names
}

fn list(wire: &[u8]) -> String {
    format!("[{}]", names(wire).join(" "))
}
