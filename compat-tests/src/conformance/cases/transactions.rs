//! Section 10.5: multi and multiRead.

use anyhow::{Context as _, Result, bail};

use crate::conformance::case::{Case, case};
use crate::conformance::client::Client;
use crate::conformance::context::Context;
use crate::conformance::expect::{expect, expect_eq};
use crate::conformance::multi::{Operation, Outcome, outcomes, request, unfinished};
use crate::conformance::wire::{Stat, Writer, acl, code, hex, op, open_acl, record};

/// The cases of this section.
pub const CASES: &[Case] = &[
    case("M1", "an empty multi succeeds and consumes a zxid", empty).alone(),
    case("M2", "the bytes of a successful multi", success_bytes),
    case("M3", "the bytes of a failed multi, and nothing is applied", failure_bytes),
    case("M4", "two sets of one node share the zxid", two_sets),
    case("M5", "a parent and its child are made and removed in one multi", parent_and_child),
    case("M6", "a node deleted and created again is new", re_creation),
    case("M7", "sequential creates in one multi are consecutive", sequential),
    case("M8", "a failed multi takes no sequence number", sequence_not_taken),
    case("M9", "check of a missing node is -101, whatever the version", check_missing),
    case("M10", "check without READ is -102", check_unreadable),
    case("M11", "create2 gives its Stat", create2),
    case("M12", "create with flags 4 makes a container, type 15", container_by_flags),
    case("M13", "createTTL with flags 0 makes a plain node, type 1", ttl_without_ttl),
    case("M14", "what a multi cannot hold is -5 as a whole", refused_whole).breaks_ensemble(),
    case("M15", "an empty ACL list is -114 for its operation", empty_acl),
    case("M16", "a child of an ephemeral made before is -108", child_of_ephemeral),
    case("M17", "the same node twice is -110", same_node_twice),
    case("M18", "multiRead answers each read alone and consumes no zxid", multi_read).alone(),
    case("M19", "multiRead leaves no watch", multi_read_watch),
    case("M20", "done alone marks the end", odd_end),
    case("M21", "an end marker without done is -5", end_without_done),
    case("M22", "deleting /zookeeper is -8 for its operation", delete_reserved),
];

/// A multi whose operations must give these results.
fn expect_outcomes(
    client: &mut Client,
    operations: &[Operation],
    want: Vec<Outcome>,
) -> Result<()> {
    expect_eq("results", outcomes(&client.multi(operations)?)?, want)
}

/// The results of a multi that fails with these codes.
fn errors(codes: &[i32]) -> Vec<Outcome> {
    codes.iter().map(|code| Outcome::Error(*code)).collect()
}

/// The Stat of the only result, if it is one of type 15.
fn only_create2(client: &mut Client, operation: Operation) -> Result<(String, Stat, i64)> {
    let reply = client.multi(&[operation])?;
    match outcomes(&reply)?.as_slice() {
        [Outcome::Create2(path, stat)] => Ok((path.clone(), *stat, reply.zxid)),
        other => bail!("results: {other:?}, want one of type 15"),
    }
}

fn empty(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let before = client.create(&context.path("n"), b"")?;
    let reply = client.multi(&[])?;
    expect_eq("body", hex(&reply.ok()?.body), "ffffffff01ffffffff".to_owned())?;
    let after = client.exists("/", false)?.ok()?.zxid;
    if context.is_zookeeper() {
        expect_eq("zxid", reply.zxid, before + 1)?;
        return expect_eq("zxid of the next read", after, before + 1);
    }
    // A multi that changes nothing leaves no revision behind.
    expect("zxids do not fall", before <= reply.zxid && reply.zxid <= after)
}

fn success_bytes(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let (base, path) = (context.base(), context.path("k1"));
    let operations =
        [Operation::create(&path, 0), Operation::delete(&path, -1), Operation::check(&base, 0)];
    let reply = client.multi(&operations)?;
    let want = record().int(1).byte(0).int(0).string(&path);
    let want = want.int(2).byte(0).int(0).int(13).byte(0).int(0).int(-1).byte(1).int(-1);
    expect_eq("body", hex(&reply.ok()?.body), hex(&want.bytes()))
}

fn failure_bytes(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let (base, path) = (context.base(), context.path("k2"));
    let operations =
        [Operation::create(&path, 0), Operation::check(&base, 77), Operation::delete(&path, -1)];
    let reply = client.multi(&operations)?;
    let want = "ffffffff0000000000000000\
                00ffffffff00ffffff99ffffff99ffffffff00fffffffefffffffeffffffff01ffffffff";
    expect_eq("body", hex(&reply.ok()?.body), want.to_owned())?;
    client.exists(&path, false)?.fails(code::NO_NODE)?;
    expect_eq("cversion of the parent", client.stat(&base)?.cversion, 0)
}

fn two_sets(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let path = context.path("n");
    client.create(&path, b"")?;
    let operations = [Operation::set(&path, b"1", 0), Operation::set(&path, b"22", 1)];
    let reply = client.multi(&operations)?;
    let results = outcomes(&reply)?;
    let [Outcome::SetData(one), Outcome::SetData(two)] = results.as_slice() else {
        bail!("results: {results:?}");
    };
    expect_eq("mzxids", (one.mzxid, two.mzxid), (reply.zxid, reply.zxid))?;
    expect_eq("mtimes", one.mtime, two.mtime)?;
    expect_eq("versions", (one.version, two.version), (1, 2))?;
    expect_eq("lengths", (one.data_length, two.data_length), (1, 2))?;
    let (data, stat) = client.get_data(&path, false)?.data_and_stat()?;
    expect_eq("data", data, Some(b"22".to_vec()))?;
    expect_eq("Stat read", stat, *two)
}

fn parent_and_child(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let (parent, child) = (context.path("n"), context.path("n/c"));
    let made = vec![Outcome::Create(parent.clone()), Outcome::Create(child.clone())];
    let operations = [Operation::create(&parent, 0), Operation::create(&child, 0)];
    expect_outcomes(&mut client, &operations, made)?;
    let operations = [Operation::delete(&child, -1), Operation::delete(&parent, -1)];
    expect_outcomes(&mut client, &operations, vec![Outcome::Delete, Outcome::Delete])?;
    client.exists(&parent, false)?.fails(code::NO_NODE)?;
    Ok(())
}

fn re_creation(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let path = context.path("w");
    client.create(&path, b"old")?;
    client.set(&path, b"older")?;
    client.create(&context.path("w/c"), b"")?;
    client.remove(&context.path("w/c"))?;
    let operations = [Operation::delete(&path, 1), Operation::create(&path, 0)];
    let reply = client.multi(&operations)?;
    expect_eq("results", outcomes(&reply)?, vec![Outcome::Delete, Outcome::Create(path.clone())])?;
    let (zxid, stat) = (reply.zxid, client.stat(&path)?);
    let (ctime, mtime) = (stat.ctime, stat.mtime);
    let want = Stat { czxid: zxid, mzxid: zxid, pzxid: zxid, ctime, mtime, ..Stat::default() };
    expect_eq("Stat", stat, want)?;
    // Its creation counter starts again, too.
    let name = client.create_flags(&context.path("w/s-"), 2)?.text()?;
    expect_eq("sequential child", name, context.path("w/s-0000000000"))?;
    client.set(&path, b"x")?;
    expect_eq("czxid after a set", client.stat(&path)?.czxid, zxid)
}

fn sequential(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let prefix = context.path("s-");
    let operations = [0; 3].map(|_| Operation::create(&prefix, 2));
    let want = (0..3).map(|number| Outcome::Create(format!("{prefix}{number:010}"))).collect();
    expect_outcomes(&mut client, &operations, want)
}

fn sequence_not_taken(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let prefix = context.path("s-");
    let operations = [Operation::create(&prefix, 2), Operation::check(&context.base(), 77)];
    expect_outcomes(&mut client, &operations, errors(&[0, code::BAD_VERSION]))?;
    let path = client.create_flags(&prefix, 2)?.text()?;
    expect_eq("path", path, format!("{prefix}0000000000"))
}

fn check_missing(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let operations = [Operation::check(&context.path("missing"), -1)];
    expect_outcomes(&mut client, &operations, errors(&[code::NO_NODE]))
}

fn check_unreadable(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let path = context.path("n");
    // All but READ (1).
    client.create_as(&path, b"", &[acl(30, "world", "anyone")], 0)?.ok()?;
    let operations = [Operation::check(&path, -1)];
    expect_outcomes(&mut client, &operations, errors(&[code::NO_AUTH]))
}

fn create_body(path: &str, flags: i32) -> Writer {
    record().string(path).buffer(b"").acls(&open_acl()).int(flags)
}

fn create2(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let path = context.path("n");
    let operation = Operation::new(op::CREATE2, &create_body(&path, 0));
    let (made, stat, zxid) = only_create2(&mut client, operation)?;
    expect_eq("path", made, path.clone())?;
    expect_eq("czxid", stat.czxid, zxid)?;
    expect_eq("Stat read", client.stat(&path)?, stat)
}

fn container_by_flags(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let path = context.path("n");
    let (made, stat, _) = only_create2(&mut client, Operation::create(&path, 4))?;
    expect_eq("path", made, path)?;
    expect_eq("ephemeralOwner", stat.ephemeral_owner, 0)
}

fn ttl_without_ttl(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let path = context.path("n");
    let operation = Operation::new(op::CREATE_TTL, &create_body(&path, 0).long(5));
    expect_outcomes(&mut client, &[operation], vec![Outcome::Create(path)])
}

fn refused_whole(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let (base, path) = (context.base(), context.path("first"));
    let set_acl = record().string(&base).acls(&open_acl()).int(-1);
    let bad = [
        ("flags 5", Operation::create(&context.path("n"), 5)),
        ("flags 77", Operation::create(&context.path("n"), 77)),
        ("null ACL", Operation::new(op::CREATE, &record().string(&path).buffer(b"").null().int(0))),
        (
            "null path",
            Operation::new(op::CREATE, &record().null().buffer(b"").acls(&open_acl()).int(0)),
        ),
        ("getData", Operation::read(op::GET_DATA, &base, false)),
        ("setACL", Operation::new(op::SET_ACL, &set_acl)),
        ("exists", Operation::read(op::EXISTS, &base, false)),
        ("deleteContainer", Operation::new(op::DELETE_CONTAINER, &record().string(&base))),
    ];
    for (what, operation) in bad {
        let reply = client.multi(&[Operation::create(&path, 0), operation])?;
        reply.fails(code::MARSHALLING_ERROR).with_context(|| what.to_owned())?;
    }
    let body = unfinished(&[Operation::create(&path, 0)]);
    client.call(op::MULTI, body)?.fails(code::MARSHALLING_ERROR).context("no end marker")?;
    client.exists(&path, false)?.fails(code::NO_NODE)?;
    Ok(())
}

fn empty_acl(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let body = record().string(&context.path("n")).buffer(b"").acls(&[]).int(0);
    let operations = [Operation::new(op::CREATE, &body)];
    expect_outcomes(&mut client, &operations, errors(&[code::INVALID_ACL]))
}

fn child_of_ephemeral(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let operations =
        [Operation::create(&context.path("e"), 1), Operation::create(&context.path("e/c"), 0)];
    expect_outcomes(&mut client, &operations, errors(&[0, code::NO_CHILDREN_FOR_EPHEMERALS]))
}

fn same_node_twice(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let path = context.path("tw");
    let operations = [0; 2].map(|_| Operation::create(&path, 0));
    expect_outcomes(&mut client, &operations, errors(&[0, code::NODE_EXISTS]))
}

fn multi_read(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let path = context.path("m");
    client.create(&path, b"data")?;
    let zxid = client.create(&context.path("m/c"), b"")?;
    let stat = client.stat(&path)?;
    let operations = [
        Operation::read(op::GET_DATA, &path, false),
        Operation::read(op::GET_CHILDREN, &path, false),
        Operation::read(op::GET_DATA, &context.path("nope"), false),
    ];
    let reply = client.call(op::MULTI_READ, request(&operations))?;
    let want = vec![
        Outcome::Data(Some(b"data".to_vec()), stat),
        Outcome::Children(vec!["c".to_owned()]),
        Outcome::Error(code::NO_NODE),
    ];
    expect_eq("results", outcomes(&reply)?, want)?;
    expect_eq("zxid", reply.zxid, zxid)?;
    expect_eq("zxid of the next read", client.exists("/", false)?.zxid, zxid)
}

fn multi_read_watch(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let path = context.path("n");
    client.create(&path, b"")?;
    let operations = [
        Operation::read(op::GET_DATA, &path, true),
        Operation::read(op::GET_CHILDREN, &path, true),
    ];
    outcomes(&client.call(op::MULTI_READ, request(&operations))?)?;
    client.set(&path, b"x")?;
    client.create(&context.path("n/c"), b"")?;
    client.expect_no_event()
}

fn odd_end(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let path = context.path("n");
    let body = unfinished(&[Operation::create(&path, 0)]).int(1).byte(1).int(0);
    let results = outcomes(&client.call(op::MULTI, body)?)?;
    expect_eq("results", results, vec![Outcome::Create(path)])
}

fn end_without_done(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let path = context.path("n");
    let body = unfinished(&[Operation::create(&path, 0)]).int(-1).byte(0).int(-1);
    client.call(op::MULTI, body)?.fails(code::MARSHALLING_ERROR)?;
    client.exists(&path, false)?.fails(code::NO_NODE)?;
    Ok(())
}

fn delete_reserved(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let operations = [Operation::delete("/zookeeper", -1)];
    expect_outcomes(&mut client, &operations, errors(&[code::BAD_ARGUMENTS]))
}
