//! Requests as a script writes them.

use bytes::Bytes;
use jute::{Acl, Id, Text};
use zkshim::keeper::request::{
    AddWatch, Auth, Check, Create, CreateOpcode, Delete, MultiOperation, Operation, Read, SetAcl,
    SetData, SetWatches, WatchSelection,
};
use zkshim::keeper::zxid::Zxid;

/// `CreateMode.PERSISTENT_WITH_TTL`.
const TTL: i32 = 5;

/// The words of one request. `name=value` words may stand anywhere behind the first.
struct Words<'a> {
    plain: Vec<&'a str>,
    named: Vec<(&'a str, &'a str)>,
}

impl<'a> Words<'a> {
    fn new(text: &'a str) -> Self {
        let (named, plain): (Vec<&str>, Vec<&str>) =
            text.split_whitespace().partition(|word| word.contains('='));
        let named = named.into_iter().map(|word| word.split_once('=').expect("as filtered"));
        Self { plain, named: named.collect() }
    }

    fn at(&self, index: usize) -> Option<&'a str> {
        self.plain.get(index).copied()
    }

    fn has(&self, word: &str) -> bool {
        self.plain.iter().skip(1).any(|plain| *plain == word)
    }

    fn named(&self, name: &str) -> Option<&'a str> {
        self.named.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    fn number(&self, name: &str) -> i32 {
        self.named(name).map_or(-1, |value| value.parse().expect("a number"))
    }

    fn path(&self) -> Option<Text> {
        self.at(1).map(Text::from)
    }
}

/// Reads one request.
pub(crate) fn operation(text: &str) -> Operation {
    let words = Words::new(text);
    let verb = words.at(0).expect("a request has a verb");
    let read = || Read { path: words.path(), watch: words.has("watch") };
    match verb {
        "create" => Operation::Create(create(&words)),
        "delete" => Operation::Delete(delete(&words)),
        "set" => Operation::SetData(set(&words)),
        "setacl" => Operation::SetAcl(SetAcl {
            path: words.path(),
            acl: Some(acl(words.at(2).expect("an ACL"))),
            version: words.number("version"),
        }),
        "multi" => Operation::Multi(multi(text)),
        "get" => Operation::GetData(read()),
        "exists" => Operation::Exists(read()),
        "ls" => Operation::GetChildren(read()),
        "ls2" => Operation::GetChildren2(read()),
        "getacl" => Operation::GetAcl(words.path()),
        "ephemerals" => Operation::GetEphemerals(words.path()),
        "sync" => Operation::Sync(words.path()),
        "ping" => Operation::Ping,
        "close" => Operation::CloseSession,
        "whoami" => Operation::WhoAmI,
        "unknown" => Operation::Unknown { opcode: 99 },
        "auth" => Operation::Auth(Auth {
            scheme: Some("digest".into()),
            auth: words.at(1).map(|auth| Bytes::copy_from_slice(auth.as_bytes())),
        }),
        "addwatch" => Operation::AddWatch(AddWatch {
            path: words.path(),
            mode: i32::from(words.has("recursive")),
        }),
        "checkwatch" => Operation::CheckWatches(WatchSelection { path: words.path(), kind: 3 }),
        "setwatches" => Operation::SetWatches(set_watches(&words)),
        other => panic!("no such request: {other}"),
    }
}

fn create(words: &Words<'_>) -> Create {
    let flags = i32::from(words.has("ephemeral")) + 2 * i32::from(words.has("sequential"));
    let ttl_ms = words.named("ttl").map(|ttl| ttl.parse().expect("milliseconds"));
    let opcode = if ttl_ms.is_some() {
        CreateOpcode::CreateTtl
    } else if words.has("container") {
        CreateOpcode::CreateContainer
    } else if words.has("stat") {
        CreateOpcode::Create2
    } else {
        CreateOpcode::Create
    };
    Create {
        opcode,
        path: words.path(),
        data: Some(data(words.named("data"))),
        acl: Some(acl(words.named("acl").unwrap_or("world:cdrwa"))),
        flags: if ttl_ms.is_some() { TTL } else { flags },
        ttl_ms: ttl_ms.unwrap_or(-1),
    }
}

fn data(word: Option<&str>) -> Bytes {
    let word = word.unwrap_or_default();
    // `x*500` stands for five hundred times x.
    match word.split_once('*').and_then(|(text, times)| Some((text, times.parse().ok()?))) {
        Some((text, times)) => Bytes::from(text.repeat(times)),
        None => Bytes::copy_from_slice(word.as_bytes()),
    }
}

fn delete(words: &Words<'_>) -> Delete {
    Delete { path: words.path(), version: words.number("version") }
}

fn set(words: &Words<'_>) -> SetData {
    SetData { path: words.path(), data: Some(data(words.at(2))), version: words.number("version") }
}

fn multi(text: &str) -> Vec<MultiOperation> {
    let list = text.strip_prefix("multi").expect("as matched").trim();
    if list.is_empty() {
        return Vec::new();
    }
    list.split(" + ")
        .map(|text| {
            let words = Words::new(text);
            match words.at(0).expect("an operation has a verb") {
                "create" => MultiOperation::Create(create(&words)),
                "delete" => MultiOperation::Delete(delete(&words)),
                "set" => MultiOperation::SetData(set(&words)),
                "check" => MultiOperation::Check(Check {
                    path: words.path(),
                    version: words.number("version"),
                }),
                other => panic!("not in a multi: {other}"),
            }
        })
        .collect()
}

fn set_watches(words: &Words<'_>) -> SetWatches {
    let paths = |name: &str| {
        let list = words.named(name).unwrap_or_default();
        let paths = list.split(',').filter(|path| !path.is_empty());
        Some(paths.map(|path| (path != "null").then(|| Text::from(path))).collect())
    };
    SetWatches {
        relative_zxid: Zxid(words.number("seen").into()),
        data: paths("data"),
        exist: paths("exist"),
        child: paths("child"),
        persistent: paths("persistent"),
        persistent_recursive: paths("recursive"),
    }
}

/// `world:r,auth:cdrwa` and the like.
pub(crate) fn acl(text: &str) -> Vec<Acl> {
    let one = |entry: &str| {
        let (scheme, letters) = entry.rsplit_once(':').expect("scheme and permissions");
        let bits = letters.chars().map(|letter| match letter {
            'r' => 1,
            'w' => 2,
            'c' => 4,
            'd' => 8,
            'a' => 16,
            other => panic!("no such permission: {other}"),
        });
        let id = if scheme == "world" { "anyone" } else { "" };
        let id = Id { scheme: Some(scheme.into()), id: Some(id.into()) };
        Acl { perms: bits.sum(), id }
    };
    text.split(',').map(one).collect()
}
