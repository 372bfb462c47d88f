//! Section 10.3, second part: deleting nodes, setting data and ACLs.

use anyhow::{Context as _, Result};

use crate::conformance::case::{Case, Profile, case};
use crate::conformance::context::Context;
use crate::conformance::expect::expect_eq;
use crate::conformance::wire::{acl, code, op, open_acl, record};

/// The cases of this part.
pub const CASES: &[Case] = &[
    case("D1", "delete checks the version before the children", delete_not_empty),
    case("D2", "deleting reserved nodes and bad paths is -8", delete_reserved),
    case("D3", "deleting what has no parent or no node is -101", delete_missing),
    case("D4", "without DELETE on the parent everything is -102", delete_no_auth),
    case("D5", "a node's own ACL does not matter for delete", delete_own_acl),
    case("D6", "another session's ephemeral can be deleted", delete_ephemeral),
    case("S1", "setData with version -2 is -103", version_minus_two),
    case("S2", "versions wrap, and -1 is any", version_wrap).profile(Profile::VersionMax),
    case("S3", "setData of a null or bad path is -8", set_bad_paths),
    case("S4", "setACL moves aversion only and fires nothing", set_acl),
    case("S5", "setACL checks the path, then the ACL, then the node", set_acl_order),
    case("S6", "setData of /zookeeper/config is -102", set_config),
    case("S7", "setData with null makes the data null", set_null),
];

fn delete_not_empty(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let path = context.path("n");
    client.create(&path, b"")?;
    client.create(&context.path("n/c"), b"")?;
    client.delete(&path, 7)?.fails(code::BAD_VERSION).context("wrong version")?;
    client.delete(&path, 0)?.fails(code::NOT_EMPTY).context("right version")?;
    Ok(())
}

fn delete_reserved(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let reserved = ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config", "", "zz", "/a\0b"];
    for path in reserved {
        let reply = client.delete(path, -1)?;
        reply.fails(code::BAD_ARGUMENTS).with_context(|| path.escape_debug().to_string())?;
    }
    Ok(())
}

fn delete_missing(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    client.create(&context.path("d"), b"")?;
    let (inner, slash) = (context.path("dd/x"), context.path("d/"));
    let control = context.path("d\u{1}");
    for path in [inner.as_str(), slash.as_str(), "foo/bar", control.as_str()] {
        let reply = client.delete(path, -1)?;
        reply.fails(code::NO_NODE).with_context(|| path.escape_debug().to_string())?;
    }
    Ok(())
}

fn delete_no_auth(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let parent = context.path("p");
    // All but DELETE (8).
    client.create_as(&parent, b"", &[acl(31 - 8, "world", "anyone")], 0)?.ok()?;
    client.create(&context.path("p/c"), b"")?;
    client.delete(&context.path("p/x"), -1)?.fails(code::NO_AUTH).context("missing child")?;
    client.delete(&context.path("p/c"), 7)?.fails(code::NO_AUTH).context("wrong version")?;
    client.set_acl(&parent, &open_acl(), -1)?.stat()?;
    client.remove(&context.path("p/c"))?;
    Ok(())
}

fn delete_own_acl(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let path = context.path("n");
    client.create_as(&path, b"", &[acl(0, "world", "anyone")], 0)?.ok()?;
    client.get_data(&path, false)?.fails(code::NO_AUTH)?;
    client.remove(&path)?;
    Ok(())
}

fn delete_ephemeral(context: &Context<'_>) -> Result<()> {
    let (mut a, mut b) = (context.client()?, context.client()?);
    let path = context.path("e");
    a.create_ephemeral(&path)?;
    expect_eq(
        "before",
        a.call(op::GET_EPHEMERALS, record().string("/"))?.names()?,
        vec![path.clone()],
    )?;
    b.remove(&path)?;
    expect_eq("after", a.call(op::GET_EPHEMERALS, record().string("/"))?.names()?, vec![])
}

fn version_minus_two(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let path = context.path("n");
    client.create(&path, b"")?;
    client.set_data(&path, b"x", -2)?.fails(code::BAD_VERSION)?;
    Ok(())
}

fn version_wrap(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let (top, low) = ("/version-max", "/version-minus-two");
    expect_eq("the prepared node", client.stat(top)?.version, i32::MAX)?;
    let wrapped = client.set_data(top, b"", i32::MAX)?.stat()?.version;
    expect_eq("after 2147483647", wrapped, i32::MIN)?;
    expect_eq("after -2", client.set_data(low, b"", -2)?.stat()?.version, -1)?;
    client.set_data(low, b"", 0)?.fails(code::BAD_VERSION).context("0 expected at -1")?;
    expect_eq("after -1", client.set_data(low, b"", -1)?.stat()?.version, 0)
}

fn set_bad_paths(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let null = record().null().buffer(b"").int(-1);
    client.call(op::SET_DATA, null)?.fails(code::BAD_ARGUMENTS).context("null path")?;
    client.set_data("zzz", b"", -1)?.fails(code::BAD_ARGUMENTS).context("zzz")?;
    client.set_data(&context.path("zzz/"), b"", -1)?.fails(code::BAD_ARGUMENTS).context("slash")?;
    client.set_data(&context.path("zzz"), b"", -1)?.fails(code::NO_NODE).context("missing")?;
    Ok(())
}

fn set_acl(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let path = context.path("n");
    client.create(&path, b"data")?;
    client.get_data(&path, true)?.ok()?;
    client.get_children(&path, true)?.ok()?;
    client.exists(&path, true)?.ok()?;
    let before = client.stat(&path)?;
    for aversion in [1, 2] {
        let stat = client.set_acl(&path, &open_acl(), aversion - 1)?.stat()?;
        let mut want = before;
        want.aversion = aversion;
        expect_eq("Stat in the reply", stat, want)?;
        expect_eq("Stat read", client.stat(&path)?, want)?;
    }
    client.set_acl(&path, &open_acl(), 0)?.fails(code::BAD_VERSION).context("old aversion")?;
    client.expect_no_event()
}

fn set_acl_order(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    client.set_acl(&context.path("nope"), &[], -1)?.fails(code::INVALID_ACL)?;
    client.set_acl(&context.path("nope/"), &[], -1)?.fails(code::BAD_ARGUMENTS)?;
    client.set_acl(&context.path("nope"), &open_acl(), -1)?.fails(code::NO_NODE)?;
    Ok(())
}

fn set_config(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    client.set_data("/zookeeper/config", b"x", -1)?.fails(code::NO_AUTH)?;
    Ok(())
}

fn set_null(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let path = context.path("n");
    client.create(&path, b"data")?;
    let stat = client.call(op::SET_DATA, record().string(&path).null().int(0))?.stat()?;
    expect_eq("dataLength", stat.data_length, 0)?;
    expect_eq("version", stat.version, 1)?;
    let (data, read) = client.get_data(&path, false)?.data_and_stat()?;
    expect_eq("data", data, None)?;
    expect_eq("Stat read", read, stat)
}
