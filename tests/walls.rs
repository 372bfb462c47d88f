//! The rules of the house that a program can check: who may know whom, and how files look.
//!
//! The tables below are the rules. Change one in the same commit as the code that needs another
//! rule, and say why.

#[path = "walls/source.rs"]
mod source;

use std::collections::{BTreeMap, BTreeSet};

use source::{Name, Source};

const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;
const COLUMNS_MAX: usize = 100;

/// A room and what its production code may name: parts of our own crate, and other crates. std
/// is allowed to all, but for what [`IMPURE`] keeps from the rooms that are pure.
struct Room {
    name: &'static str,
    ours: &'static [&'static str],
    crates: &'static [&'static str],
}

const ROOMS: &[Room] = &[
    Room {
        name: "keeper",
        ours: &["keeper"],
        crates: &[
            "jute",
            "bytes",
            "tracing",
            "rustc_hash",
            "hashbrown",
            "indexmap",
            "hmac",
            "sha1",
            "sha2",
            "base64",
            "rand_chacha",
            "triomphe",
        ],
    },
    Room {
        name: "wire",
        ours: &["wire", "keeper::request", "keeper::path", "keeper::zxid", "keeper::error"],
        crates: &["jute", "bytes", "thiserror"],
    },
    Room {
        name: "store",
        ours: &["store", "keeper::txn", "keeper::zxid"],
        crates: &[
            "bytes",
            "crc32fast",
            "etcd_client",
            "hyper_util",
            "redb",
            "thiserror",
            "tokio",
            "tokio_stream",
            "tokio_util",
            "tonic",
            "tonic_prost",
            "tower",
            "tracing",
            "rustc_hash",
            "rand_chacha",
            "triomphe",
        ],
    },
    Room {
        name: "driver",
        ours: &["driver", "keeper", "store"],
        // rustix for the clock that goes on while the machine sleeps.
        crates: &[
            "thiserror",
            "tokio",
            "tokio_stream",
            "tokio_util",
            "tracing",
            "rustc_hash",
            "rustix",
        ],
    },
    Room {
        name: "server",
        // The core's figures are what the four-letter words show.
        ours: &["server", "wire", "keeper::request", "keeper::zxid", "keeper::output", "driver"],
        crates: &["bytes", "dashmap", "socket2", "thiserror", "tokio", "tokio_util", "tracing"],
    },
    Room {
        name: "telemetry",
        ours: &["telemetry"],
        crates: &["clap", "tracing", "tracing_subscriber"],
    },
];

/// The rooms that start the others know of each what it is given and how it is run.
const STARTERS: &[&str] = &["config", "main"];

/// Beside `*Options` and `run`: what a starter may name of a room.
const ENTRANCES: &[&str] = &[
    "driver::Clock",
    "driver::Driver",
    "driver::Handle",
    "driver::Input",
    "server::Shown",
    "store::Store",
    "store::StoreError",
    "wire::four_letter::AllowList",
];

/// The floors of `keeper`, from the ground up. A part may name what stands below it or beside
/// it, but not in a circle; `mod` stands for the face of the room.
const FLOORS: &[&[&str]] = &[
    &["path", "zxid", "error", "time", "options"],
    &["request", "tree", "txn", "acl"],
    &["reader", "watches", "sessions", "keyspace", "ahead", "overlay", "barriers", "output"],
    &["planner", "replica"],
    &["batch"],
    &["machine"],
    &["mod"],
];

/// The rooms without I/O, clocks, chance, threads, locks and unordered maps.
const PURE: &[&str] = &["keeper", "wire"];

const IMPURE: &[&str] = &[
    "std::collections::HashMap",
    "std::collections::HashSet",
    "std::collections::hash_map",
    "std::collections::hash_set",
    "std::env",
    "std::fs",
    "std::hash::RandomState",
    "std::io::BufRead",
    "std::io::Read",
    "std::io::Write",
    "std::io::stderr",
    "std::io::stdin",
    "std::io::stdout",
    "std::net::TcpListener",
    "std::net::TcpStream",
    "std::net::ToSocketAddrs",
    "std::net::UdpSocket",
    "std::process",
    "std::sync::Condvar",
    "std::sync::Mutex",
    "std::sync::RwLock",
    "std::sync::atomic",
    "std::sync::mpsc",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
    "std::time::UNIX_EPOCH",
];

const IMPURE_WORDS: &[&str] =
    &["async", "await", "OsRng", "ThreadRng", "from_os_rng", "from_entropy", "getrandom"];

const WORDS_OF_UNFINISHED_CODE: &[&str] = &["unwrap", "todo", "unimplemented", "dbg"];

const NAMES_THAT_SAY_NOTHING: &[&str] =
    &["util", "utils", "helper", "helpers", "common", "misc", "types"];

#[test]
fn rooms_name_only_what_their_row_allows() {
    let crates = dependencies();
    let mut broken = Vec::new();
    for source in source::below("src") {
        let room = room_of(&source);
        let Some(row) = ROOMS.iter().find(|row| row.name == room) else {
            let is_known = STARTERS.contains(&room.as_str()) || room == "lib";
            broken.extend((!is_known).then(|| format!("{}: no row in the table", source.file)));
            continue;
        };
        for Name { line, path } in source.names(&crates) {
            let is_allowed = match path[0].as_str() {
                "std" => true,
                "crate" => row.ours.iter().any(|ours| is_within(&path[1..], ours)),
                other => row.crates.contains(&other),
            };
            if !is_allowed {
                broken.push(format!("{}:{line}: {room} names {}", source.file, path.join("::")));
            }
        }
    }
    assert_none(&broken);
}

#[test]
fn starters_name_options_and_entrances_only() {
    let crates = dependencies();
    let mut broken = Vec::new();
    for source in source::below("src") {
        if !STARTERS.contains(&room_of(&source).as_str()) {
            continue;
        }
        for Name { line, path } in source.names(&crates) {
            let is_ours = path[0] == "crate" && path.len() > 2;
            let inside = is_ours && !matches!(path[1].as_str(), "config" | "telemetry");
            let is_entrance = path.iter().any(|part| part.ends_with("Options") || part == "run")
                || ENTRANCES.iter().any(|entrance| is_within(&path[1..], entrance));
            if inside && !is_entrance {
                broken.push(format!("{}:{line}: {}", source.file, path.join("::")));
            }
        }
    }
    assert_none(&broken);
}

#[test]
fn the_floors_of_the_keeper_name_downward_only() {
    let floor_of = |part: &str| FLOORS.iter().position(|floor| floor.contains(&part));
    let (imports, unknown) = parts_of_the_keeper();
    let mut broken = unknown;
    for (part, targets) in &imports {
        let Some(floor) = floor_of(part) else {
            broken.push(format!("keeper/{part} stands on no floor"));
            continue;
        };
        for (target, place) in targets {
            if floor_of(target).is_none_or(|target| target > floor) {
                broken.push(format!("{place}: {part} names {target}, which stands above it"));
            }
        }
    }
    assert_none(&broken);
}

#[test]
fn the_parts_of_the_keeper_name_each_other_in_no_circle() {
    let (mut imports, _) = parts_of_the_keeper();
    // Takes away what names nothing that is left, until nothing more can be taken away.
    while let Some(part) = imports
        .iter()
        .find(|(_, targets)| !targets.keys().any(|target| imports.contains_key(target)))
        .map(|(part, _)| part.clone())
    {
        imports.remove(&part);
    }
    assert!(imports.is_empty(), "in a circle, or above one: {:#?}", imports);
}

#[test]
fn pure_rooms_name_no_clock_no_chance_and_no_io() {
    let crates = dependencies();
    let mut broken = Vec::new();
    for source in source::below("src") {
        if !PURE.contains(&room_of(&source).as_str()) {
            continue;
        }
        for Name { line, path } in source.names(&crates) {
            if IMPURE.iter().any(|impure| is_within(&path, impure)) {
                broken.push(format!("{}:{line}: {}", source.file, path.join("::")));
            }
        }
        let words = source.lines_with(IMPURE_WORDS).into_iter();
        broken.extend(words.map(|(line, word)| format!("{}:{line}: {word}", source.file)));
    }
    assert_none(&broken);
}

#[test]
fn the_root_re_exports_nothing() {
    let sources = source::below("src");
    let root = sources.iter().find(|source| source.file == "src/lib.rs");
    let root = root.expect("the crate has a root");
    let broken = root.lines_with(&["use", "fn", "struct", "enum", "trait", "macro_rules"]);
    assert!(broken.is_empty(), "src/lib.rs is more than a list of rooms: {broken:?}");
}

#[test]
fn every_file_opens_with_what_it_is_for() {
    let is_silent = |source: &&Source| !source.text.starts_with("//!");
    let sources = everything();
    let broken = sources.iter().filter(is_silent).map(|source| source.file.clone());
    assert_none(&broken.collect::<Vec<_>>());
}

#[test]
fn files_functions_and_lines_are_short() {
    let mut broken = Vec::new();
    for source in everything() {
        let file = &source.file;
        let lines = source.text.lines().count();
        if lines > FILE_LINES_MAX {
            broken.push(format!("{file}: {lines} lines"));
        }
        let functions = source.long_functions(FUNCTION_LINES_MAX).into_iter();
        broken.extend(functions.map(|(line, length)| format!("{file}:{line}: {length} lines")));
        for (line, text) in source.text.lines().enumerate() {
            // rustfmt sees to the code; a table in a comment cannot be broken.
            let is_prose = text.trim_start().starts_with("//") && !text.ends_with('|');
            if is_prose && text.chars().count() > COLUMNS_MAX {
                broken.push(format!("{file}:{}: longer than {COLUMNS_MAX} columns", line + 1));
            }
        }
    }
    assert_none(&broken);
}

#[test]
fn production_code_is_finished_and_says_why_it_holds() {
    let mut broken = Vec::new();
    for source in source::below("src").into_iter().chain(source::below("jute")) {
        let words = source.lines_with(WORDS_OF_UNFINISHED_CODE).into_iter();
        broken.extend(words.map(|(line, word)| format!("{}:{line}: {word}", source.file)));
    }
    assert_none(&broken);
}

#[test]
fn no_test_is_ignored_or_meant_to_panic() {
    let mut broken = Vec::new();
    for source in everything() {
        for (line, text) in source.code.lines().enumerate() {
            if text.contains("#[ignore") || text.contains("#[should_panic") {
                broken.push(format!("{}:{}", source.file, line + 1));
            }
        }
    }
    assert_none(&broken);
}

#[test]
fn files_are_named_after_what_they_hold() {
    let says_nothing = |source: &&Source| {
        let mut parts = source.file.trim_end_matches(".rs").split('/');
        parts.any(|part| NAMES_THAT_SAY_NOTHING.contains(&part))
    };
    let sources = everything();
    let broken = sources.iter().filter(says_nothing).map(|source| source.file.clone());
    assert_none(&broken.collect::<Vec<_>>());
}

#[test]
fn names_are_read_through_trees_aliases_and_relative_paths() {
    let text = r##"
        //! use crate::comment::Name;
        use crate::{wire::{self, frame as f}, keeper::*};
        use std::time::{Duration, Instant as Clock};
        mod inner;
        const TEXT: &str = "use crate::string::Name;"; /* crate::block /* nested */ ::Name */
        const RAW: &str = r#"crate::raw::"Name"#; const CHARACTER: char = '"';
        fn body<'a>(argument: &'a super::Sibling) { f::read(); inner::call(); tokio::spawn(); }
        #[cfg(test)]
        mod tests { use crate::tested::Name; fn braces() { if true {} } }
        fn after() { Clock::now(); u64::MAX; unknown::call(); }
    "##;
    let source = Source::new("src/keeper/tree.rs", text);
    let names = source.names(&BTreeSet::from(["tokio".to_owned()]));
    let found: BTreeSet<(usize, String)> =
        names.into_iter().map(|name| (name.line, name.path.join("::"))).collect();
    let expected = [
        (3, "crate::keeper"),
        (3, "crate::wire"),
        (3, "crate::wire::frame"),
        (4, "std::time::Duration"),
        (4, "std::time::Instant"),
        (8, "crate::keeper::Sibling"),
        (8, "crate::keeper::tree::inner::call"),
        (8, "crate::wire::frame::read"),
        (8, "tokio::spawn"),
        (11, "std::time::Instant::now"),
    ];
    assert_eq!(found, expected.map(|(line, path)| (line, path.to_owned())).into());
}

#[test]
fn modules_for_tests_only_are_found() {
    let text = "mod a;\n#[cfg(test)]\nmod b;\nmod c;\n#[cfg(test)]\npub(super) mod d;\n\
        #[cfg(test)]\nmod e { mod f; }\n#[cfg(test)]\nuse crate::g;\n";
    let found = Source::new("src/keeper/mod.rs", text).test_modules();
    assert_eq!(
        found.iter().map(|path| path.join("::")).collect::<Vec<_>>(),
        ["crate::keeper::b", "crate::keeper::d"]
    );
}

#[test]
fn functions_are_measured_from_head_to_brace() {
    let text = "fn short() {}\nfn long() {\n    if x {\n    }\n}\ntrait T {\n    fn head();\n}\n";
    let source = Source::new("src/a.rs", text);
    assert_eq!(source.long_functions(3), [(2, 4)]);
    assert_eq!(source.long_functions(4), []);
}

fn everything() -> Vec<Source> {
    source::below("")
}

/// The crates that the server's manifest names, as they are written in code.
fn dependencies() -> BTreeSet<String> {
    let manifest = include_str!("../Cargo.toml");
    let (_, listed) = manifest.split_once("\n[dependencies]\n").expect("there are dependencies");
    let lines = listed.lines().take_while(|line| *line != "[lints]");
    let names = lines.filter_map(|line| line.split(['.', ' ', '=']).next());
    let names = names.filter(|name| !name.is_empty() && !name.starts_with('['));
    names.map(|name| name.replace('-', "_")).collect()
}

/// The room of a file: its first part below `src`.
fn room_of(source: &Source) -> String {
    let inside = source.file.trim_start_matches("src/").trim_end_matches(".rs");
    inside.split('/').next().unwrap_or_default().to_owned()
}

fn is_within(path: &[String], prefix: &str) -> bool {
    let mut parts = path.iter();
    prefix.split("::").all(|expected| parts.next().is_some_and(|part| part == expected))
}

/// Of each part of `keeper`: which other parts it names, and one place where it does. Then the
/// places that name all of `keeper` at once.
fn parts_of_the_keeper() -> (BTreeMap<String, BTreeMap<String, String>>, Vec<String>) {
    let sources = source::below("src/keeper");
    let part_of = |source: &Source| source.module().get(2).cloned().unwrap_or("mod".to_owned());
    let parts: BTreeSet<String> = sources.iter().map(part_of).collect();
    let mut imports: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    let mut unknown = Vec::new();
    for source in &sources {
        let part = part_of(source);
        let targets = imports.entry(part.clone()).or_default();
        for Name { line, path } in source.names(&BTreeSet::new()) {
            if !is_within(&path, "crate::keeper") {
                continue;
            }
            let place = format!("{}:{line}", source.file);
            match path.get(2) {
                None => unknown.push(format!("{place}: names all of keeper")),
                Some(target) => {
                    let target = if parts.contains(target) { target } else { "mod" };
                    if target != part {
                        targets.insert(target.to_owned(), place);
                    }
                }
            }
        }
    }
    (imports, unknown)
}

fn assert_none(broken: &[String]) {
    assert!(broken.is_empty(), "\n{}\n", broken.join("\n"));
}
