//! Section 10.4: reads, and what the Stat says.

use anyhow::{Context as _, Result};

use crate::conformance::case::{Case, case};
use crate::conformance::context::Context;
use crate::conformance::expect::{expect, expect_eq};
use crate::conformance::session::ConnectRequest;
use crate::conformance::wire::{Acl, Stat, acl, code, hex, op, open_acl, record};

/// The cases of this section.
pub const CASES: &[Case] = &[
    case("R1", "the nodes of a fresh server have their Stats and ACLs", fresh_nodes).fresh(),
    case("R2", "the empty path reads the root", empty_path),
    case("R3", "NUL is -8 for exists only; an ill-formed path is not found", odd_paths),
    case("R4", "a null path is -5 for reads", null_paths),
    case("R5", "without READ every read is -102", no_auth),
    case("R6", "a parent's Stat follows its children", parent_stat),
    case("R7", "getAllChildrenNumber counts descendants", all_children_number).fresh(),
    case("R8", "getEphemerals takes a plain string prefix", ephemerals),
    case("R9", "whoAmI of an anonymous connection is its address", who_am_i),
    case("R10", "whoAmI after digest has two entries", who_am_i_digest),
    case("R11", "getACL hides digests from those without ADMIN", hidden_digest),
    case("R12", "sync echoes any path", sync_echo),
    case("R13", "sync echoes characters above U+FFFF as surrogates", sync_surrogates),
    case("R14", "a closed session's ephemerals count as deletes", closed_ephemerals),
];

fn fresh_nodes(context: &Context<'_>) -> Result<()> {
    let mut client = context.client_on(0, &ConnectRequest::default())?;
    let zero = Stat::default();
    let root = Stat { cversion: -1, num_children: 1, ..zero };
    let zookeeper = Stat { cversion: -2, num_children: 2, ..zero };
    let config = Stat { aversion: -1, ..zero };
    let rows = [
        ("/", root, 31),
        ("/zookeeper", zookeeper, 31),
        ("/zookeeper/quota", zero, 31),
        ("/zookeeper/config", config, 1),
    ];
    for (path, mut want, perms) in rows {
        let (data, stat) = client.get_data(path, false)?.data_and_stat()?;
        let data = data.with_context(|| format!("null data of {path}"))?;
        if !data.is_empty() && path == "/zookeeper/config" {
            // A member of an ensemble publishes the configuration there.
            let (mzxid, mtime, data_length) = (stat.mzxid, stat.mtime, stat.data_length);
            want = Stat { mzxid, mtime, data_length, version: -1, ..want };
            expect("the configuration names servers", data.starts_with(b"server."))?;
        } else {
            expect_eq(path, hex(&data), String::new())?;
        }
        expect_eq(path, stat, want)?;
        let (acls, stat) = client.get_acl(path)?.acls_and_stat()?;
        expect_eq(&format!("ACL of {path}"), acls, vec![acl(perms, "world", "anyone")])?;
        expect_eq(&format!("Stat of getACL {path}"), stat, want)?;
    }
    Ok(())
}

fn empty_path(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let (_, stat) = client.get_data("", false)?.data_and_stat()?;
    let root = client.stat("/")?;
    expect_eq("czxid", stat.czxid, root.czxid)?;
    expect_eq("ctime", stat.ctime, root.ctime)?;
    expect(
        "the root's children",
        client.get_children("", false)?.names()?.contains(&"zookeeper".to_owned()),
    )?;
    client.exists("", false)?.stat()?;
    client.get_acl("")?.acls_and_stat()?;
    Ok(())
}

fn odd_paths(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    client.exists("/a\0", false)?.fails(code::BAD_ARGUMENTS).context("exists with NUL")?;
    client.get_data("/a\0", false)?.fails(code::NO_NODE).context("getData with NUL")?;
    client.exists("rel", false)?.fails(code::NO_NODE).context("exists rel")?;
    Ok(())
}

fn null_paths(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    for opcode in [op::EXISTS, op::GET_DATA, op::GET_CHILDREN, op::GET_CHILDREN2] {
        let reply = client.call(opcode, record().null().flag(false))?;
        reply.fails(code::MARSHALLING_ERROR).with_context(|| format!("opcode {opcode}"))?;
    }
    client.call(op::GET_ACL, record().null())?.fails(code::MARSHALLING_ERROR).context("getACL")?;
    Ok(())
}

fn no_auth(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let path = context.path("n");
    client.create_as(&path, b"", &[acl(0, "world", "anyone")], 0)?.ok()?;
    client.exists(&path, false)?.fails(code::NO_AUTH).context("exists")?;
    client.get_data(&path, false)?.fails(code::NO_AUTH).context("getData")?;
    client.get_children(&path, false)?.fails(code::NO_AUTH).context("getChildren")?;
    client.get_acl(&path)?.fails(code::NO_AUTH).context("getACL")?;
    client.exists(&context.path("missing"), false)?.fails(code::NO_NODE).context("missing")?;
    Ok(())
}

fn parent_stat(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let [p, a, b] = ["p", "p/a", "p/b"].map(|name| context.path(name));
    let z1 = client.create(&p, b"four")?;
    let born = client.stat(&p)?;
    expect_eq("ctime and mtime at birth", born.ctime, born.mtime)?;
    let want = Stat {
        czxid: z1,
        mzxid: z1,
        pzxid: z1,
        data_length: 4,
        ctime: born.ctime,
        mtime: born.ctime,
        ..Stat::default()
    };
    expect_eq("Stat at birth", born, want)?;
    client.create(&a, b"")?;
    client.create(&b, b"")?;
    let z4 = client.remove(&a)?;
    let z5 = client.set(&b, b"x")?;
    let want = Stat { pzxid: z4, cversion: 3, num_children: 1, ..want };
    expect_eq("Stat of the parent", client.stat(&p)?, want)?;
    let child = client.stat(&b)?;
    expect_eq("mzxid of the set child", child.mzxid, z5)?;
    expect_eq("version of the set child", child.version, 1)
}

fn all_children_number(context: &Context<'_>) -> Result<()> {
    let mut client = context.client_on(0, &ConnectRequest::default())?;
    for (path, number) in [("/", 3), ("/zookeeper", 2), ("/zookeeper/quota", 0)] {
        let reply = client.call(op::GET_ALL_CHILDREN_NUMBER, record().string(path))?;
        expect_eq(path, hex(&reply.ok()?.body), hex(&record().int(number).bytes()))?;
    }
    let reply = client.call(op::GET_ALL_CHILDREN_NUMBER, record().string("/missing"))?;
    reply.fails(code::NO_NODE)?;
    Ok(())
}

fn ephemerals(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let mut other = context.client()?;
    let [e, a, ae] = ["e1", "a", "a/e"].map(|name| context.path(name));
    client.create(&a, b"")?;
    client.create_ephemeral(&e)?;
    client.create_ephemeral(&ae)?;
    other.create_ephemeral(&context.path("other"))?;
    let both = vec![ae.clone(), e.clone()];
    let null = client.call(op::GET_EPHEMERALS, record().null())?.names()?;
    expect_eq("null", null, both.clone())?;
    let prefix = context.path("e");
    let rows = [("/", both.clone()), ("  ", both), (a.as_str(), vec![ae]), (&prefix, vec![e])];
    for (prefix, want) in rows {
        let names = client.call(op::GET_EPHEMERALS, record().string(prefix))?.names()?;
        expect_eq(prefix, names, want)?;
    }
    Ok(())
}

fn who_am_i(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let reply = client.call(op::WHO_AM_I, record())?;
    let address = client.address().ip().to_string();
    let want = record().int(1).string("ip").string(&address).bytes();
    expect_eq("body", hex(&reply.ok()?.body), hex(&want))
}

fn who_am_i_digest(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    client.auth_digest("u:p")?;
    let reply = client.call(op::WHO_AM_I, record())?;
    let mut reader = reply.reader()?;
    let count = reader.int()?;
    let mut entries = Vec::new();
    for _ in 0..count {
        entries.push((reader.string()?, reader.string()?));
    }
    reader.end()?;
    entries.sort();
    let address = client.address().ip().to_string();
    let want = [("digest", "u"), ("ip", address.as_str())];
    expect_eq("entries", entries, want.map(|(s, u)| (s.to_owned(), u.to_owned())).to_vec())
}

fn hidden_digest(context: &Context<'_>) -> Result<()> {
    let (mut owner, mut stranger) = (context.client()?, context.client()?);
    owner.auth_digest("u:p")?;
    let path = context.path("n");
    owner.create_as(&path, b"", &[acl(1, "world", "anyone"), acl(31, "auth", "")], 0)?.ok()?;
    // user:base64(sha1("u:p")), from DigestAuthenticationProvider.generateDigest.
    let full = acl(31, "digest", "u:Jq7wMyA/w2Vd5WIDAKdu4OIIFEQ=");
    let read = |acls: (Vec<Acl>, Stat)| acls.0.into_iter().nth(1);
    let shown = stranger.get_acl(&path)?.acls_and_stat().map(read)?;
    expect_eq("second entry for a stranger", shown, Some(acl(31, "digest", "u:x")))?;
    let shown = owner.get_acl(&path)?.acls_and_stat().map(read)?;
    expect_eq("second entry for the owner", shown, Some(full))
}

fn sync_echo(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    for path in ["/nonode", "x//"] {
        expect_eq("echo", client.call(op::SYNC, record().string(path))?.text()?, path.to_owned())?;
    }
    let reply = client.call(op::SYNC, record().null())?;
    expect_eq("echo of null", hex(&reply.ok()?.body), "ffffffff".to_owned())
}

fn sync_surrogates(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let reply = client.call(op::SYNC, record().string("/\u{1f600}"))?;
    expect_eq("echo", hex(&reply.ok()?.body), "000000072feda0bdedb880".to_owned())
}

fn closed_ephemerals(context: &Context<'_>) -> Result<()> {
    let (mut owner, mut reader) = (context.client()?, context.client()?);
    let parent = context.path("p");
    owner.create(&parent, b"")?;
    for name in ["p/1", "p/2", "p/3"] {
        owner.create_as(&context.path(name), b"", &open_acl(), 1)?.text()?;
    }
    let zxid = owner.close()?;
    let stat = reader.stat(&parent)?;
    expect_eq("cversion", stat.cversion, 6)?;
    expect_eq("pzxid", stat.pzxid, zxid)?;
    expect_eq("numChildren", stat.num_children, 0)
}
