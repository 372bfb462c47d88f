//! Section 10.6, third part: persistent watches, recursive ones, and taking watches away.

use anyhow::{Context as _, Result};

use crate::conformance::case::{Case, case};
use crate::conformance::client::Client;
use crate::conformance::context::Context;
use crate::conformance::expect::{expect, expect_eq};
use crate::conformance::message::Event;
use crate::conformance::multi::Operation;
use crate::conformance::wire::{acl, code, event, hex, op, open_acl, record};

/// The cases of this part.
pub const CASES: &[Case] = &[
    case("W9", "a persistent watch shows its node and its children's coming and going", persistent),
    case("W10", "a recursive watch shows the subtree, never a change of children", recursive),
    case("W11", "a recursive and a child watch side by side", recursive_and_child),
    case("W12", "all modes at once give one event", all_modes).alone(),
    case("W13", "one delete event for a recursive watch above and a child watch", delete_below),
    case("W15", "a multi fires persistent and recursive watches per operation", multi_events),
    case("W17", "a recursive watch on the root shows everything", whole_tree).alone(),
    case("W19", "a recursive watch with a trailing slash never fires", trailing_slash),
    case("W20", "addWatch checks the mode and nothing else", add_watch_arguments),
    case("W21", "removing data watches leaves the persistent one", remove_data),
    case("W22", "checkWatches by type", check_types),
    case("W23", "removeWatches of an unknown type is -5", remove_unknown),
    case("W30", "a recursive watch shows only what may be read", unreadable),
    case("W35", "a close shows each ephemeral to both kinds of watch", closed_ephemerals),
];

const PERSISTENT: i32 = 0;
const RECURSIVE: i32 = 1;

/// One session changes the tree step by step, another watches; each step shows these events.
struct Steps<'a> {
    watcher: &'a mut Client,
    changer: &'a mut Client,
}

impl Steps<'_> {
    fn check(&mut self, what: &str, done: Result<i64>, want: &[(i32, &str)]) -> Result<()> {
        let zxid = done.with_context(|| what.to_owned())?;
        let events = self.watcher.expect_events(want).with_context(|| what.to_owned())?;
        expect(&format!("{what}: events have the change's zxid"), all_have(&events, zxid))
    }

    fn create(&mut self, path: &str, want: &[(i32, &str)]) -> Result<()> {
        let done = self.changer.create(path, b"");
        self.check(&format!("create {path}"), done, want)
    }

    fn set(&mut self, path: &str, want: &[(i32, &str)]) -> Result<()> {
        let done = self.changer.set(path, b"x");
        self.check(&format!("set {path}"), done, want)
    }

    fn remove(&mut self, path: &str, want: &[(i32, &str)]) -> Result<()> {
        let done = self.changer.remove(path);
        self.check(&format!("delete {path}"), done, want)
    }

    fn set_acl(&mut self, path: &str, want: &[(i32, &str)]) -> Result<()> {
        let done = self.changer.set_acl(path, &open_acl(), -1).map(|reply| reply.zxid);
        self.check(&format!("setACL {path}"), done, want)
    }
}

fn all_have(events: &[Event], zxid: i64) -> bool {
    events.iter().all(|event| event.zxid == zxid)
}

fn persistent(context: &Context<'_>) -> Result<()> {
    let (mut a, mut b) = (context.client()?, context.client()?);
    let [pp, child, deep] = ["pp", "pp/c", "pp/c/g"].map(|name| context.path(name));
    a.add_watch(&pp, PERSISTENT)?;
    let mut steps = Steps { watcher: &mut a, changer: &mut b };
    let children = [(event::CHILDREN_CHANGED, pp.as_str())];
    steps.create(&pp, &[(event::CREATED, &pp)])?;
    steps.set(&pp, &[(event::DATA_CHANGED, &pp)])?;
    steps.create(&child, &children)?;
    steps.set(&child, &[])?;
    steps.create(&deep, &[])?;
    steps.remove(&deep, &[])?;
    steps.remove(&child, &children)?;
    steps.set_acl(&pp, &[])?;
    steps.remove(&pp, &[(event::DELETED, &pp)])?;
    steps.create(&pp, &[(event::CREATED, &pp)])
}

fn recursive(context: &Context<'_>) -> Result<()> {
    let (mut a, mut b) = (context.client()?, context.client()?);
    let [rr, child, deep, other] = ["rr", "rr/a", "rr/a/b", "rrx"].map(|name| context.path(name));
    a.add_watch(&rr, RECURSIVE)?;
    let mut steps = Steps { watcher: &mut a, changer: &mut b };
    for path in [&rr, &child] {
        steps.create(path, &[(event::CREATED, path)])?;
        steps.set(path, &[(event::DATA_CHANGED, path)])?;
    }
    steps.create(&deep, &[(event::CREATED, &deep)])?;
    steps.remove(&deep, &[(event::DELETED, &deep)])?;
    steps.remove(&child, &[(event::DELETED, &child)])?;
    steps.set_acl(&rr, &[])?;
    steps.create(&other, &[])?;
    steps.remove(&rr, &[(event::DELETED, &rr)])?;
    steps.create(&rr, &[(event::CREATED, &rr)])
}

fn recursive_and_child(context: &Context<'_>) -> Result<()> {
    let (mut a, mut b) = (context.client()?, context.client()?);
    let [rr, one, two] = ["rr", "rr/a", "rr/b"].map(|name| context.path(name));
    b.create(&rr, b"")?;
    a.add_watch(&rr, RECURSIVE)?;
    a.get_children(&rr, true)?.names()?;
    let mut steps = Steps { watcher: &mut a, changer: &mut b };
    steps.create(&one, &[(event::CREATED, &one), (event::CHILDREN_CHANGED, &rr)])?;
    steps.create(&two, &[(event::CREATED, &two)])
}

fn all_modes(context: &Context<'_>) -> Result<()> {
    let (mut a, mut b) = (context.client()?, context.client()?);
    let path = context.path("x");
    b.create(&path, b"")?;
    a.get_data(&path, true)?.ok()?;
    a.add_watch(&path, PERSISTENT)?;
    a.add_watch(&path, RECURSIVE)?;
    a.add_watch("/", RECURSIVE)?;
    let mut steps = Steps { watcher: &mut a, changer: &mut b };
    steps.set(&path, &[(event::DATA_CHANGED, &path)])
}

fn delete_below(context: &Context<'_>) -> Result<()> {
    let (mut a, mut b) = (context.client()?, context.client()?);
    let [rr, child] = ["rr", "rr/a"].map(|name| context.path(name));
    b.create(&rr, b"")?;
    b.create(&child, b"")?;
    a.add_watch(&rr, RECURSIVE)?;
    a.get_children(&child, true)?.names()?;
    let mut steps = Steps { watcher: &mut a, changer: &mut b };
    steps.remove(&child, &[(event::DELETED, &child)])?;
    a.check_watches(&child, 1)?.fails(code::NO_WATCHER)?;
    Ok(())
}

fn multi_events(context: &Context<'_>) -> Result<()> {
    let (mut a, mut b) = (context.client()?, context.client()?);
    let [mw, c] = ["mw", "mw/c"].map(|name| context.path(name));
    b.create(&mw, b"")?;
    a.add_watch(&mw, PERSISTENT)?;
    a.add_watch(&mw, RECURSIVE)?;
    let operations =
        [Operation::create(&c, 0), Operation::set(&c, b"x", -1), Operation::delete(&c, -1)];
    let zxid = b.multi(&operations)?.ok()?.zxid;
    let want = [
        (event::CREATED, c.as_str()),
        (event::CHILDREN_CHANGED, &mw),
        (event::DATA_CHANGED, &c),
        (event::DELETED, &c),
        (event::CHILDREN_CHANGED, &mw),
    ];
    let events = a.expect_events(&want)?;
    expect("all events have the multi's zxid", all_have(&events, zxid))
}

fn whole_tree(context: &Context<'_>) -> Result<()> {
    let (mut a, mut b) = (context.client()?, context.client()?);
    let path = context.path("k");
    a.add_watch("/", RECURSIVE)?;
    let mut steps = Steps { watcher: &mut a, changer: &mut b };
    steps.create(&path, &[(event::CREATED, &path)])?;
    for path in ["/zookeeper", "/"] {
        let (data, _) = steps.changer.get_data(path, false)?.data_and_stat()?;
        let done = steps.changer.set(path, &data.unwrap_or_default());
        steps.check(&format!("set {path}"), done, &[(event::DATA_CHANGED, path)])?;
    }
    Ok(())
}

fn trailing_slash(context: &Context<'_>) -> Result<()> {
    let (mut a, mut b) = (context.client()?, context.client()?);
    let path = context.path("dw");
    b.create(&path, b"")?;
    a.add_watch(&format!("{path}/"), RECURSIVE)?;
    let mut steps = Steps { watcher: &mut a, changer: &mut b };
    steps.set(&path, &[])?;
    steps.create(&context.path("dw/c"), &[])
}

fn add_watch_arguments(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    for mode in [2, -1] {
        let reply = client.call(op::ADD_WATCH, record().string("/").int(mode))?;
        reply.fails(code::MARSHALLING_ERROR).with_context(|| format!("mode {mode}"))?;
    }
    client.add_watch("x//", PERSISTENT)?;
    let reply = client.call(op::ADD_WATCH, record().null().int(PERSISTENT))?;
    expect_eq("body for a null path", hex(&reply.ok()?.body), "00000000".to_owned())
}

fn remove_data(context: &Context<'_>) -> Result<()> {
    let (mut a, mut b) = (context.client()?, context.client()?);
    let path = context.path("n");
    b.create(&path, b"")?;
    a.add_watch(&path, PERSISTENT)?;
    a.get_data(&path, true)?.ok()?;
    a.remove_watches(&path, 2)?.ok_empty()?;
    let mut steps = Steps { watcher: &mut a, changer: &mut b };
    steps.set(&path, &[(event::DATA_CHANGED, &path)])?;
    a.remove_watches(&path, 2)?.fails(code::NO_WATCHER)?;
    Ok(())
}

fn check_types(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let path = context.path("n");
    client.add_watch(&path, PERSISTENT)?;
    client.add_watch(&path, RECURSIVE)?;
    for kind in [3, 4, 5] {
        let reply = client.check_watches(&path, kind)?;
        reply.ok_empty().with_context(|| format!("type {kind}"))?;
    }
    for kind in [2, 1] {
        let reply = client.check_watches(&path, kind)?;
        reply.fails(code::NO_WATCHER).with_context(|| format!("type {kind}"))?;
    }
    Ok(())
}

fn remove_unknown(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    for kind in [9, 0] {
        let reply = client.remove_watches("/", kind)?;
        reply.fails(code::MARSHALLING_ERROR).with_context(|| format!("type {kind}"))?;
    }
    Ok(())
}

fn unreadable(context: &Context<'_>) -> Result<()> {
    let (mut a, mut b) = (context.client()?, context.client()?);
    b.auth_digest("b:secret")?;
    let [path, child] = ["n", "n/c"].map(|name| context.path(name));
    b.create_as(&path, b"", &[acl(31, "auth", "")], 0)?.ok()?;
    a.add_watch(&path, RECURSIVE)?;
    let mut steps = Steps { watcher: &mut a, changer: &mut b };
    steps.set(&path, &[])?;
    steps.create(&child, &[(event::CREATED, &child)])?;
    // Only B could clean up later.
    steps.remove(&child, &[(event::DELETED, &child)])
}

fn closed_ephemerals(context: &Context<'_>) -> Result<()> {
    let (mut a, mut b) = (context.client()?, context.client()?);
    let parent = context.path("p");
    b.create(&parent, b"")?;
    let mut paths = vec!["p/1", "p/2", "p/3"];
    for name in &paths {
        b.create_ephemeral(&context.path(name))?;
    }
    a.add_watch(&parent, PERSISTENT)?;
    a.add_watch(&parent, RECURSIVE)?;
    let zxid = b.close()?;
    let mut order = Vec::new();
    for _ in 0..3 {
        let (deleted, changed) = (a.event()?, a.event()?);
        expect(
            "both events have the close's zxid",
            all_have(&[deleted.clone(), changed.clone()], zxid),
        )?;
        expect_eq("first of a pair", deleted.kind, event::DELETED)?;
        expect_eq(
            "second of a pair",
            (changed.kind, changed.path),
            (event::CHILDREN_CHANGED, parent.clone()),
        )?;
        order.push(deleted.path);
    }
    a.expect_no_event()?;
    order.sort();
    paths.sort_unstable();
    expect_eq("deleted nodes", order, paths.iter().map(|name| context.path(name)).collect())
}
