//! The words of the scripts: paths, data, ACLs and versions, mostly sound and now and then odd.

use crate::conformance::wire::{Acl, Writer, acl, open_acl, record};
use crate::differential::chance::Chance;

/// Names of nodes; few, so that requests meet.
const NAMES: [&str; 6] = ["a", "b", "c", "d", "e-", "ü"];

/// Legal and illegal names that are rarely tried.
const ODD_NAMES: [&str; 14] = [
    "..",
    ".",
    "...",
    ".a",
    "a b",
    "\u{1}",
    "\u{7f}",
    "\u{a0}",
    "\u{d7ff}",
    "\u{e000}",
    "\u{f900}",
    "\u{ffef}",
    "\u{fff0}",
    "\u{1f600}",
];

/// Whole paths that stand for themselves. Nothing directly under `/zookeeper/quota`: names of the
/// quota machinery there stop the real server.
const ODD_PATHS: [&str; 15] = [
    "",
    "/",
    "//",
    "a",
    "foo/bar",
    "/.",
    "/..",
    "/./x",
    "//x",
    "/nope",
    "/nope/x",
    "/zookeeper",
    "/zookeeper/config",
    "/zookeeper/quota",
    "/nope\0x",
];

/// Sequence numbers a parent may have given.
const NUMBERS: [&str; 4] = ["0000000000", "0000000001", "0000000002", "0000000003"];

/// The users of digest authentication, with the ids that ACLs hold. The last one is super.
pub const USERS: [(&str, &str); 3] = [
    ("u:p", "u:Jq7wMyA/w2Vd5WIDAKdu4OIIFEQ="),
    ("bob:secret", "bob:fyVmFCwVbTJYrznoSu1koqYEYF0="),
    ("super:test", "super:D/InIHSb7yEEbrWz8b9l71RjZJU="),
];

/// How the text of a request names an ACL of which a part is null.
pub const ENTRY_WITH_NULLS: &str = "an entry with nulls";

/// A path of bytes, which may be null.
pub type Path = Option<Vec<u8>>;

/// A path, now and then an odd one.
pub fn path(chance: &mut Chance, root: &str) -> Path {
    match chance.below(100) {
        0..88 => Some(node(chance, root).into_bytes()),
        88..93 => {
            let node = node(chance, root);
            let name = chance.pick(&ODD_NAMES);
            Some(format!("{node}/{name}").into_bytes())
        }
        93..95 => {
            let tail: &[u8] = chance.pick(&[b"/".as_slice(), b"//x", b"\0", b"/\xff", b"\xc3"]);
            Some([node(chance, root).as_bytes(), tail].concat())
        }
        95..99 => Some(chance.pick(&ODD_PATHS).as_bytes().to_vec()),
        _ => None,
    }
}

/// The path of a node that may well be there.
pub fn node(chance: &mut Chance, root: &str) -> String {
    let depth = chance.weighted(&[(2, 0), (40, 1), (40, 2), (16, 3)]);
    let mut path = root.to_owned();
    for _ in 0..depth {
        path.push('/');
        path.push_str(chance.pick(&NAMES));
        if chance.percent(8) {
            path.push_str(chance.pick(&NUMBERS));
        }
    }
    path
}

/// Writes a path into a record.
pub fn put(record: Writer, path: &Path) -> Writer {
    match path {
        Some(path) => record.buffer(path),
        None => record.null(),
    }
}

/// A path as people read it.
#[must_use]
pub fn show(path: &Path) -> String {
    match path {
        Some(path) => format!("{:?}", String::from_utf8_lossy(path)),
        None => "null".to_owned(),
    }
}

/// Data of a node: null, empty, short, now and then long.
pub fn data(chance: &mut Chance) -> Option<Vec<u8>> {
    match chance.below(20) {
        0..2 => None,
        2..5 => Some(Vec::new()),
        5..19 => {
            let length = chance.below(12) + 1;
            Some((0..length).map(|_| chance.pick(b"xyz\0\xff")).collect())
        }
        _ => Some(vec![b'l'; chance.below(3000)]),
    }
}

/// A version to expect: any, low, or absurd.
pub fn version(chance: &mut Chance) -> i32 {
    chance.weighted(&[(8, -1), (4, 0), (3, 1), (2, 2), (1, 3), (1, -2), (1, i32::MAX)])
}

/// An ACL as bytes of a record, and as people read it.
pub fn acls(chance: &mut Chance) -> (Vec<u8>, String) {
    let list = match chance.below(100) {
        0..70 => open_acl(),
        70..95 => (0..chance.below(4)).map(|_| entry(chance)).collect(),
        95..97 => return (record().null().bytes(), "null".to_owned()),
        97..98 => return (record().int(-5).bytes(), "-5 entries".to_owned()),
        _ => {
            let nulls = [
                record().int(1).int(31).null().string("x"),
                record().int(1).int(31).string("world").null(),
                record().int(1).int(31).null().null(),
                record().int(1).int(31).string("digest").null(),
            ];
            let chosen = chance.below(nulls.len());
            let bytes = nulls.get(chosen).cloned().unwrap_or_default().bytes();
            return (bytes, format!("{ENTRY_WITH_NULLS} ({chosen})"));
        }
    };
    let text = list.iter().map(|acl| format!("{}:{}:{}", acl.perms, acl.scheme, acl.id));
    let text = format!("[{}]", text.collect::<Vec<_>>().join(" "));
    (record().acls(&list).bytes(), text)
}

fn entry(chance: &mut Chance) -> Acl {
    let perms = chance.pick(&[31, 31, 31, 1, 2, 4, 8, 16, 27, 15, 30, 5, 0, 255, -1]);
    let (_, user) = chance.pick(&USERS);
    let pairs = [
        ("world", "anyone"),
        ("world", "anyone"),
        ("auth", ""),
        ("auth", "x"),
        ("digest", user),
        ("digest", user),
        ("digest", "nobody:x"),
        ("ip", "127.0.0.1"),
        ("ip", "127.0.0.0/8"),
        ("ip", "10.0.0.1"),
        ("ip", "::1"),
    ];
    let bad = [
        ("digest", "a"),
        ("digest", "a:"),
        ("digest", ":a"),
        ("digest", "a:b:c"),
        ("digest", ""),
        ("ip", "localhost"),
        ("ip", "127.0.0.1/33"),
        ("ip", "127.0.0.1/"),
        ("ip", ""),
        ("world", "foo"),
        ("sasl", "x"),
        ("x509", "CN=x"),
        ("super", ""),
        ("", ""),
        ("nope", "x"),
    ];
    let (scheme, id) = if chance.percent(88) { chance.pick(&pairs) } else { chance.pick(&bad) };
    acl(perms, scheme, id)
}
