//! Section 10.2: the headers of requests and replies.

use anyhow::{Context as _, Result};

use crate::conformance::case::{Case, case};
use crate::conformance::client::PING_XID;
use crate::conformance::context::Context;
use crate::conformance::expect::{expect, expect_eq};
use crate::conformance::message::Message;
use crate::conformance::session::ConnectRequest;
use crate::conformance::wire::{code, event, hex, op, open_acl, record};

/// The cases of this section.
pub const CASES: &[Case] = &[
    case("H1", "a ping is answered by a bare header with the last zxid", ping).alone(),
    case("H2", "the reply to a ping has xid -2, whatever the ping had", ping_xid),
    case("H3", "xids are echoed: negative, 0, repeated", odd_xids),
    case("H4", "an unknown opcode is -6 and a close, the session stays", unknown_opcodes),
    case("H5", "a failed write consumes a zxid", failed_write_zxid).alone(),
    case("H6", "a failed read consumes no zxid", failed_read_zxid).alone(),
    case("H7", "a pipelined mix is answered in order, auth anywhere", pipelined_mix),
    case("H8", "auth is answered with its own xid and zxid 0", auth_header),
    case("H9", "auth with an unknown scheme is -115 and a close", auth_unknown),
    case("H10", "sasl without configuration is answered by a null token", sasl),
    case("H11", "empty setWatches is a bare header, xid echoed", empty_set_watches),
];

fn ping(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let zxid = client.create(&context.path("n"), b"")?;
    client.send_as(PING_XID, op::PING, record())?;
    let want = record().int(PING_XID).long(zxid).int(0).bytes();
    expect_eq("answer", hex(&client.socket.frame()?), hex(&want))
}

fn ping_xid(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    client.send_as(77, op::PING, record())?;
    let reply = client.reply()?;
    reply.ok_empty()?;
    expect_eq("xid", reply.xid, PING_XID)
}

fn odd_xids(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    for xid in [-17, 0, 5, 5] {
        client.send_as(xid, op::EXISTS, record().string("/").flag(false))?;
        let reply = client.reply()?;
        reply.stat()?;
        expect_eq("xid", reply.xid, xid)?;
    }
    Ok(())
}

fn unknown_opcodes(context: &Context<'_>) -> Result<()> {
    let mut session = context.client()?.abandon();
    for opcode in [op::CHECK, 0, 99, 200, -12] {
        let mut client = context
            .client_on(0, &ConnectRequest::resume(&session))
            .with_context(|| format!("resume before opcode {opcode}"))?;
        session = client.session.clone();
        client.keep_session();
        client.send_as(1, opcode, record())?;
        let answer = hex(&client.socket.frame()?);
        let want = "00000001fffffffffffffffffffffffa".to_owned();
        expect_eq(&format!("answer to opcode {opcode}"), answer, want)?;
        client.socket.expect_close().with_context(|| format!("after opcode {opcode}"))?;
    }
    let resumed = context.client_on(0, &ConnectRequest::resume(&session))?;
    expect_eq("session", resumed.session.session, session.session)
}

fn failed_write_zxid(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let path = context.path("n");
    let before = client.create(&path, b"")?;
    let failed = client.create_flags(&path, 0)?;
    failed.fails(code::NODE_EXISTS)?;
    let after = client.exists("/", false)?.ok()?.zxid;
    if context.is_zookeeper() {
        expect_eq("zxid of the failed write", failed.zxid, before + 1)?;
        expect_eq("zxid of the next read", after, failed.zxid)
    } else {
        // A failed write leaves no revision behind; its reply carries the tree's zxid.
        expect("zxids do not fall", before <= failed.zxid && failed.zxid <= after)
    }
}

fn failed_read_zxid(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let before = client.create(&context.path("n"), b"")?;
    let failed = client.exists(&context.path("missing"), false)?;
    failed.fails(code::NO_NODE)?;
    expect_eq("zxid", failed.zxid, before)
}

fn pipelined_mix(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let path = context.path("n");
    let requests = [
        (1, op::CREATE, record().string(&path).buffer(b"").acls(&open_acl()).int(0)),
        (PING_XID, op::PING, record()),
        (2, op::GET_DATA, record().string(&path).flag(true)),
        (3, op::SET_DATA, record().string(&path).buffer(b"x").int(-1)),
        (-4, op::AUTH, record().int(0).string("digest").string("u:p")),
        (4, op::EXISTS, record().string(&path).flag(false)),
        (PING_XID, op::PING, record()),
        (5, op::DELETE, record().string(&path).int(-1)),
        (6, op::EXISTS, record().string(&path).flag(false)),
        (7, op::SYNC, record().string(&path)),
    ];
    let mut bytes = Vec::new();
    for (xid, opcode, body) in requests {
        let body = body.bytes();
        bytes.extend(record().count(body.len() + 8).int(xid).int(opcode).raw(&body).bytes());
    }
    client.socket.send(&bytes)?;
    let (mut order, mut auth) = (Vec::new(), None);
    let mut zxids = Vec::new();
    for _ in 0..11 {
        match client.message()? {
            Message::Reply(reply) if reply.xid == -4 => auth = Some(reply),
            Message::Reply(reply) => {
                order.push((reply.xid, reply.error));
                zxids.push(reply.zxid);
            }
            Message::Event(event) => {
                expect_eq("event", (event.kind, event.path), (event::DATA_CHANGED, path.clone()))?;
                order.push((-1, 0));
                zxids.push(event.zxid);
            }
        }
    }
    let missing = code::NO_NODE;
    let (ping, event) = (PING_XID, -1);
    let want = [(1, 0), (ping, 0), (2, 0), (event, 0), (3, 0), (4, 0), (ping, 0), (5, 0)];
    expect_eq("order", order, [&want[..], &[(6, missing), (7, 0)]].concat())?;
    expect("zxids do not fall", zxids.is_sorted())?;
    let auth = auth.context("no answer to auth")?;
    expect_eq("zxid of auth", auth.ok_empty()?.zxid, 0)
}

fn auth_header(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    for (xid, want) in [(-4, "fffffffc"), (9, "00000009")] {
        client.send_as(xid, op::AUTH, record().int(0).string("digest").string("u:p"))?;
        let answer = hex(&client.socket.frame()?);
        expect_eq("answer", answer, format!("{want}{}", "0".repeat(24)))?;
    }
    Ok(())
}

fn auth_unknown(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    client.keep_session();
    client.send_as(-4, op::AUTH, record().int(0).string("nosuch").string("u:p"))?;
    let reply = client.reply()?;
    expect_eq("zxid", reply.fails(code::AUTH_FAILED)?.zxid, 0)?;
    client.socket.expect_close()
}

fn sasl(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    client.send_as(1, op::SASL, record().buffer(b"abc"))?;
    let answer = hex(&client.socket.frame()?);
    expect_eq("answer", answer, format!("00000001{}ffffffff", "0".repeat(24)))
}

fn empty_set_watches(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    for xid in [-8, 5] {
        let body = record().long(0).strings(&[]).strings(&[]).strings(&[]);
        client.send_as(xid, op::SET_WATCHES, body)?;
        let reply = client.reply()?;
        reply.ok_empty()?;
        expect_eq("xid", reply.xid, xid)?;
    }
    Ok(())
}
