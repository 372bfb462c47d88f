//! Section 10.3, first part: creating nodes.

use anyhow::{Context as _, Result};

use crate::conformance::case::{Case, Profile, case};
use crate::conformance::client::Client;
use crate::conformance::context::Context;
use crate::conformance::expect::{expect, expect_eq};
use crate::conformance::message::Reply;
use crate::conformance::wire::{acl, code, event, op, open_acl, record};

/// The cases of this part.
pub const CASES: &[Case] = &[
    case("C1", "bad paths are -8, the root is -110", bad_paths),
    case("C2", "odd names that are legal succeed", odd_names),
    case("C3", "create foo/bar is -101: the parent comes first", relative_path),
    case("C4", "a trailing slash is -8 under a node, -101 without it", trailing_slash),
    case("C5", "a sequential create of /a/ makes /a/0000000000", sequential_slash),
    case("C6", "flags outside 0 to 6 are -8", bad_flags),
    case("C7", "a null ACL is -114 before the parent, -8 for the path first", null_acl),
    case("C8", "ACLs of unknown or unusable schemes are -114", bad_acls),
    case("C9", "duplicates in an ACL are dropped", duplicate_acls),
    case("C10", "null data stays null", null_data),
    case("C11", "an ephemeral has its owner and no children", ephemeral),
    case("C12", "opcode 1 with flags 4 makes a plain node", plain_by_flags)
        .profile(Profile::Ttl)
        .slow(3),
    case("C13", "a container goes after its last child", container).profile(Profile::Ttl).slow(2),
    case("C14", "createContainer with flags 2 has a suffix and a Stat", container_sequential),
    case("C15", "TTL nodes are -6 where they are off, and the connection stays", ttl_off),
    case("C16", "TTLs out of range are -8, the largest succeeds", ttl_range).profile(Profile::Ttl),
    case("C17", "createTTL with flags 0 and ttl -1 is -8", ttl_without_ttl).breaks_zookeeper(),
    case("C18", "the suffix counts plain children too", suffix_counts_plain),
    case("C19", "the suffix counts creations only", suffix_counts_creations),
    case("C20", "without WRITE a wrong version is -102", auth_before_version),
];

fn create_bytes(client: &mut Client, path: &[u8]) -> Result<Reply> {
    client.call(op::CREATE, record().buffer(path).buffer(b"").acls(&open_acl()).int(0))
}

fn bad_paths(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    client.create_flags("/", 0)?.fails(code::NODE_EXISTS).context("the root")?;
    let paths: [&[u8]; 11] = [
        b"",
        b"b",
        b"/.",
        b"/..",
        b"//x",
        b"/q\x01",
        b"/q\x7f",
        "/q\u{e000}".as_bytes(),
        "/q\u{fffd}".as_bytes(),
        "/q\u{1f600}".as_bytes(),
        b"/q\xff",
    ];
    for path in paths {
        let reply = create_bytes(&mut client, path)?;
        reply.fails(code::BAD_ARGUMENTS).with_context(|| path.escape_ascii().to_string())?;
    }
    Ok(())
}

fn odd_names(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    for name in ["...", ".a", "a.", "q q", "\u{a0}", "\u{d7ff}", "\u{f900}", "\u{ffef}"] {
        client.create(&context.path(name), b"").with_context(|| name.escape_debug().to_string())?;
    }
    let names = client.get_children(&context.base(), false)?.names()?;
    expect_eq("number of children", names.len(), 8)
}

fn relative_path(context: &Context<'_>) -> Result<()> {
    context.client()?.create_flags("foo/bar", 0)?.fails(code::NO_NODE)?;
    Ok(())
}

fn trailing_slash(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    client.create(&context.path("a"), b"")?;
    client
        .create_flags(&context.path("a/"), 0)?
        .fails(code::BAD_ARGUMENTS)
        .context("/a is there")?;
    client.create_flags(&context.path("b/"), 0)?.fails(code::NO_NODE).context("no /b")?;
    Ok(())
}

fn sequential_slash(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    client.create(&context.path("a"), b"")?;
    let path = client.create_flags(&context.path("a/"), 2)?.text()?;
    expect_eq("path", path, context.path("a/0000000000"))
}

fn bad_flags(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    for flags in [7, -1, 8] {
        let reply = client.create_flags(&context.path("n"), flags)?;
        reply.fails(code::BAD_ARGUMENTS).with_context(|| format!("flags {flags}"))?;
    }
    Ok(())
}

fn null_acl(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let missing = context.path("missing/n");
    let body = |path: &str| record().string(path).buffer(b"").null().int(0);
    client.call(op::CREATE, body(&missing))?.fails(code::INVALID_ACL)?;
    client.call(op::CREATE, body("b"))?.fails(code::BAD_ARGUMENTS)?;
    Ok(())
}

fn bad_acls(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let path = context.path("n");
    for (scheme, id) in [("world", "foo"), ("bogus", "x"), ("auth", "")] {
        let reply = client.create_as(&path, b"", &[acl(31, scheme, id)], 0)?;
        reply.fails(code::INVALID_ACL).with_context(|| format!("{scheme}:{id}"))?;
    }
    let null_scheme = record().string(&path).buffer(b"").int(1).int(31).null().string("x").int(0);
    client.call(op::CREATE, null_scheme)?.fails(code::INVALID_ACL).context("null scheme")?;
    client.exists(&path, false)?.fails(code::NO_NODE)?;
    Ok(())
}

fn duplicate_acls(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let path = context.path("n");
    let world = |perms| acl(perms, "world", "anyone");
    client.create_as(&path, b"", &[world(31), world(31), world(1)], 0)?.ok()?;
    let (acls, _) = client.get_acl(&path)?.acls_and_stat()?;
    expect_eq("ACL", acls, vec![world(31), world(1)])
}

fn null_data(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let path = context.path("n");
    client.call(op::CREATE, record().string(&path).null().acls(&open_acl()).int(0))?.ok()?;
    let (data, stat) = client.get_data(&path, false)?.data_and_stat()?;
    expect_eq("data", data, None)?;
    expect_eq("dataLength", stat.data_length, 0)
}

fn ephemeral(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let path = context.path("e");
    client.create_ephemeral(&path)?;
    let child = client.create_flags(&context.path("e/x"), 0)?;
    child.fails(code::NO_CHILDREN_FOR_EPHEMERALS)?;
    let owner = client.stat(&path)?.ephemeral_owner;
    expect_eq("ephemeralOwner", owner, client.session.session)
}

/// Makes a container that had a child, so that the next check removes it.
fn used_container(client: &mut Client, path: &str) -> Result<()> {
    let body = record().string(path).buffer(b"").acls(&open_acl()).int(0);
    client.call(op::CREATE_CONTAINER, body)?.text_and_stat()?;
    client.create(&format!("{path}/child"), b"")?;
    client.remove(&format!("{path}/child"))?;
    Ok(())
}

fn plain_by_flags(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let path = context.path("c");
    client.create_flags(&path, 4)?.text()?;
    client.create(&context.path("c/child"), b"")?;
    client.remove(&context.path("c/child"))?;
    // Two real containers, one after the other, show that two checks have passed.
    for name in ["first", "second"] {
        let container = context.path(name);
        used_container(&mut client, &container)?;
        if client.exists(&container, true)?.error == 0 {
            client.expect_events(&[(event::DELETED, &container)])?;
        }
    }
    expect_eq("ephemeralOwner", client.stat(&path)?.ephemeral_owner, 0)
}

fn container(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let path = context.path("c");
    let body = record().string(&path).buffer(b"").acls(&open_acl()).int(0);
    let (_, stat) = client.call(op::CREATE_CONTAINER, body)?.text_and_stat()?;
    expect_eq("ephemeralOwner of a container", stat.ephemeral_owner, 0)?;
    client.create(&context.path("c/child"), b"")?;
    client.exists(&path, true)?.stat()?;
    client.get_children(&context.base(), true)?.names()?;
    client.remove(&context.path("c/child"))?;
    let base = context.base();
    let want = [(event::DELETED, path.as_str()), (event::CHILDREN_CHANGED, base.as_str())];
    let events = client.expect_events(&want)?;
    expect(
        "both events have one zxid",
        events.windows(2).all(|two| matches!(two, [a, b] if a.zxid == b.zxid)),
    )?;
    client.exists(&path, false)?.fails(code::NO_NODE)?;
    Ok(())
}

fn container_sequential(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let body = record().string(&context.path("c-")).buffer(b"").acls(&open_acl()).int(2);
    let reply = client.call(op::CREATE_CONTAINER, body)?;
    let (path, stat) = reply.text_and_stat()?;
    expect_eq("path", path, context.path("c-0000000000"))?;
    expect_eq("czxid", stat.czxid, reply.zxid)?;
    expect_eq("ephemeralOwner", stat.ephemeral_owner, 0)
}

fn create_ttl(client: &mut Client, path: &str, flags: i32, ttl: i64) -> Result<Reply> {
    let body = record().string(path).buffer(b"").acls(&open_acl()).int(flags).long(ttl);
    client.call(op::CREATE_TTL, body)
}

fn ttl_off(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let path = context.path("n");
    create_ttl(&mut client, &path, 5, 1000)?.fails(code::UNIMPLEMENTED).context("createTTL")?;
    client.create_flags(&path, 5)?.fails(code::UNIMPLEMENTED).context("create")?;
    client.exists(&path, false)?.fails(code::NO_NODE)?;
    Ok(())
}

fn ttl_range(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let path = context.path("n");
    for (flags, ttl) in [(5, 0), (5, -1), (5, 1 << 40), (0, 5)] {
        let reply = create_ttl(&mut client, &path, flags, ttl)?;
        reply.fails(code::BAD_ARGUMENTS).with_context(|| format!("flags {flags}, ttl {ttl}"))?;
    }
    client.create_flags(&path, 5)?.fails(code::BAD_ARGUMENTS).context("create with flags 5")?;
    let (_, stat) = create_ttl(&mut client, &path, 5, (1 << 40) - 1)?.text_and_stat()?;
    expect_eq("ephemeralOwner", stat.ephemeral_owner, 0)
}

fn ttl_without_ttl(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    // EphemeralType.validateTTL lets it pass and toEphemeralOwner throws in the request thread.
    create_ttl(&mut client, &context.path("n"), 0, -1)?.fails(code::BAD_ARGUMENTS)?;
    client.create(&context.path("n"), b"").context("the server goes on")?;
    Ok(())
}

fn suffix_counts_plain(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    client.create(&context.path("p"), b"")?;
    client.create(&context.path("p/plain"), b"")?;
    let path = client.create_flags(&context.path("p/s-"), 2)?.text()?;
    expect_eq("path", path, context.path("p/s-0000000001"))
}

fn suffix_counts_creations(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    client.create(&context.path("p"), b"")?;
    client.create(&context.path("p/a"), b"")?;
    client.remove(&context.path("p/a"))?;
    let path = client.create_flags(&context.path("p/s-"), 2)?.text()?;
    expect_eq("after a create and a delete", path, context.path("p/s-0000000001"))?;
    let exists = client.create_flags(&context.path("p/s-0000000001"), 0)?;
    exists.fails(code::NODE_EXISTS)?;
    let path = client.create_flags(&context.path("p/s-"), 3)?.text()?;
    expect_eq("after a failed create", path, context.path("p/s-0000000002"))
}

fn auth_before_version(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let path = context.path("n");
    client.create_as(&path, b"", &[acl(1, "world", "anyone")], 0)?.ok()?;
    client.set_data(&path, b"x", 5)?.fails(code::NO_AUTH)?;
    Ok(())
}
