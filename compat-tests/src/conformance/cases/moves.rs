//! Section 10.7, second part: sessions that move between two servers of one tree.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::conformance::case::{Case, case};
use crate::conformance::client::Client;
use crate::conformance::context::Context;
use crate::conformance::expect::{expect, expect_eq};
use crate::conformance::message::Message;
use crate::conformance::session::{ConnectRequest, ConnectResponse};
use crate::conformance::socket::{Incoming, Socket};
use crate::conformance::wire::{code, hex, op, open_acl, record};

/// The cases of this part.
pub const CASES: &[Case] = &[
    case("X12", "a moved session never sees an older state", never_older).two_servers(),
    case("X13", "a write on the connection left behind is not done", old_write).two_servers(),
    case("X15", "closeSession on the connection left behind", old_close).two_servers(),
    case("X16", "a wrong password elsewhere disturbs nobody", wrong_elsewhere).two_servers(),
];

/// A's first connection, with an ephemeral, and its second one on the other server.
fn moved(context: &Context<'_>) -> Result<(Client, Client)> {
    let mut old = context.client()?;
    old.create_ephemeral(&context.path("e"))?;
    let new = resume_on(context, 1, &ConnectRequest::resume(&old.session))?;
    expect_eq("session", new.session.session, old.session.session)?;
    old.keep_session();
    Ok((old, new))
}

/// A server that lags behind may close instead of answering: then the client tries again.
fn resume_on(context: &Context<'_>, server: usize, request: &ConnectRequest) -> Result<Client> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let mut socket = Socket::open(context.address(server))?;
        socket.send_frame(&request.bytes())?;
        match socket.receive(Duration::from_secs(20))? {
            Incoming::Frame(frame) => {
                let response = ConnectResponse::decode(&frame)?;
                response.expect_accepted().context("resume on the other server")?;
                drop(socket);
                return context.client_on(server, request);
            }
            Incoming::Closed if Instant::now() < deadline => sleep(Duration::from_millis(50)),
            other => bail!("resume on the other server: {other:?}"),
        }
    }
}

fn never_older(context: &Context<'_>) -> Result<()> {
    let mut a = context.client()?;
    let path = context.path("counter");
    let mut last_zxid = a.create(&path, b"")?;
    for round in 1..=20 {
        let version = a.set_data(&path, format!("{round}").as_bytes(), -1)?;
        last_zxid = last_zxid.max(version.ok()?.zxid);
        let request = ConnectRequest { last_zxid, ..ConnectRequest::resume(&a.session) };
        a.keep_session();
        a = resume_on(context, round, &request).with_context(|| format!("round {round}"))?;
        a.send(op::GET_DATA, record().string(&path).flag(false))?;
        let reply = a.reply()?;
        let (_, stat) = reply.data_and_stat()?;
        expect("the reply is not older than what was seen", reply.zxid >= last_zxid)?;
        expect_eq("version", usize::try_from(stat.version)?, round)?;
    }
    Ok(())
}

fn old_write(context: &Context<'_>) -> Result<()> {
    let (mut old, mut new) = moved(context)?;
    let path = context.path("stale");
    let body = record().string(&path).buffer(b"").acls(&open_acl()).int(0).bytes();
    let create = record().int(9).int(op::CREATE).raw(&body).bytes();
    old.socket.send_provoking(&record().buffer(&create).bytes());
    old.socket.expect_close().context("the old connection")?;
    new.expect_no_event()?;
    new.exists(&path, false)?.fails(code::NO_NODE).context("the write was done")?;
    new.stat(&context.path("e")).context("the session lives")?;
    Ok(())
}

fn old_close(context: &Context<'_>) -> Result<()> {
    let (mut old, mut new) = moved(context)?;
    let close = record().int(9).int(op::CLOSE_SESSION).bytes();
    old.socket.send_provoking(&record().buffer(&close).bytes());
    match old.socket.receive(Duration::from_secs(20))? {
        Incoming::Frame(frame) => {
            let Message::Reply(reply) = Message::decode(&frame)? else {
                bail!("an event: {}", hex(&frame));
            };
            expect_eq("xid", reply.ok_empty()?.xid, 9)?;
            old.socket.expect_close().context("the old connection")?;
            new.keep_session();
            new.socket.expect_close().context("the new connection")
        }
        // The old connection may be cut as soon as the move is known: then nothing happens.
        Incoming::Closed if !context.is_zookeeper() => {
            new.stat(&context.path("e")).context("the session lives")?;
            Ok(())
        }
        other => bail!("closeSession on the old connection: {other:?}"),
    }
}

fn wrong_elsewhere(context: &Context<'_>) -> Result<()> {
    let mut a = context.client()?;
    a.create_ephemeral(&context.path("e"))?;
    let request = ConnectRequest::resume(&a.session);
    let wrong = ConnectRequest { password: Some(vec![1; 16]), ..request };
    let mut socket = Socket::open(context.address(1))?;
    socket.send_frame(&wrong.bytes())?;
    let response = ConnectResponse::decode(&socket.frame()?)?;
    expect_eq("answer", response, ConnectResponse::rejected(Some(0)))?;
    socket.expect_close()?;
    a.stat(&context.path("e")).context("the live connection goes on")?;
    Ok(())
}
