//! Section 10.7, first part: sessions on one server.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::conformance::case::{Case, case};
use crate::conformance::client::{Client, PING_XID};
use crate::conformance::context::Context;
use crate::conformance::expect::{expect, expect_eq};
use crate::conformance::session::{ConnectRequest, ConnectResponse, connect};
use crate::conformance::socket::{ANSWER_TIMEOUT, Incoming};
use crate::conformance::wire::{Reader, code, event, hex, op, record};

/// The cases of this part.
pub const CASES: &[Case] = &[
    case("X1", "a resumed session has its id, a new timeout, its ephemerals", resume).alone(),
    case("X2", "a wrong password is rejected and closes the live connection", wrong_password),
    case("X3", "an unknown or closed session is rejected", unknown_session),
    case("X4", "without the readOnly byte a rejection has none", rejected_short),
    case("X5", "closeSession is answered, closed, and takes the ephemerals", close),
    case("X6", "what stands behind a closeSession is not answered", behind_close),
    case("X7", "an idle session ends between timeout and a tick later", idle).slow(7),
    case("X8", "auth packets do not keep a session", kept_by_auth).slow(7),
    case("X9", "pings and reads keep a session", kept_by_requests).slow(9),
    case("X10", "a lost connection costs nothing within the timeout", lost_connection).slow(3),
    case("X11", "the password of a session", password),
    case("X14", "an ephemeral that another session set goes with its owner", set_by_other),
];

/// The frame that rejects a session, and nothing behind it.
fn expect_rejected(context: &Context<'_>, request: &ConnectRequest) -> Result<()> {
    let mut socket = context.socket()?;
    socket.send_frame(&request.bytes())?;
    let want = record().int(0).int(0).long(0).buffer(&[0; 16]);
    let want = request.read_only.iter().fold(want, |want, _| want.byte(0)).bytes();
    expect_eq("answer", hex(&socket.frame()?), hex(&want))?;
    socket.expect_close().context("after the rejection")
}

/// A resume is no write. Between it and the answers before and after it a server may have written
/// something of its own, but not each time.
fn resume(context: &Context<'_>) -> Result<()> {
    let (mut before, mut after) = resume_once(context, "e")?;
    for name in ["f", "g"] {
        if before != after {
            sleep(Duration::from_millis(300));
            (before, after) = resume_once(context, name)?;
        }
    }
    expect_eq("zxid after the resume", after, before)
}

/// Returns the zxids of the ephemeral and of the first answer after the resume.
fn resume_once(context: &Context<'_>, name: &str) -> Result<(i64, i64)> {
    let mut a = context.client()?;
    let path = context.path(name);
    let zxid = a.create_ephemeral(&path)?;
    let request = ConnectRequest { timeout_ms: 7000, ..ConnectRequest::resume(&a.session) };
    let mut again = context.client_on(0, &request)?;
    let want = ConnectResponse { timeout_ms: 7000, ..a.session.clone() };
    expect_eq("response", again.session.clone(), want)?;
    a.keep_session();
    a.socket.expect_close().context("the old connection")?;
    let reply = again.exists(&path, false)?;
    expect_eq("owner", reply.stat()?.ephemeral_owner, again.session.session)?;
    Ok((zxid, reply.zxid))
}

fn wrong_password(context: &Context<'_>) -> Result<()> {
    let mut a = context.client()?;
    let path = context.path("e");
    a.create_ephemeral(&path)?;
    let request = ConnectRequest::resume(&a.session);
    expect_rejected(context, &ConnectRequest { password: Some(vec![1; 16]), ..request.clone() })?;
    a.keep_session();
    a.socket.expect_close().context("the live connection")?;
    let mut again = context.client_on(0, &request).context("resume with the right password")?;
    expect_eq("session", again.session.session, a.session.session)?;
    again.stat(&path)?;
    Ok(())
}

fn unknown_session(context: &Context<'_>) -> Result<()> {
    let (_, session) = connect(context.address(0), &ConnectRequest::default())?;
    let mut request = ConnectRequest::resume(&session);
    request.session ^= 0x0055_aa55_aa55;
    expect_rejected(context, &request).context("unknown id")?;
    let mut a = context.client()?;
    let request = ConnectRequest::resume(&a.session);
    a.call(op::CLOSE_SESSION, record())?.ok_empty()?;
    a.keep_session();
    expect_rejected(context, &request).context("closed session")
}

fn rejected_short(context: &Context<'_>) -> Result<()> {
    let request =
        ConnectRequest { session: 0x1234_5678, read_only: None, ..ConnectRequest::default() };
    expect_rejected(context, &request)
}

fn close(context: &Context<'_>) -> Result<()> {
    let (mut a, mut b) = (context.client()?, context.client()?);
    let (parent, path) = (context.path("p"), context.path("p/e"));
    a.create(&parent, b"")?;
    a.create_ephemeral(&path)?;
    let zxid = a.close()?;
    expect_eq("pzxid of the parent", b.stat(&parent)?.pzxid, zxid)?;
    b.exists(&path, false)?.fails(code::NO_NODE)?;
    Ok(())
}

fn behind_close(context: &Context<'_>) -> Result<()> {
    let mut a = context.client()?;
    a.keep_session();
    let close = record().int(5).int(op::CLOSE_SESSION).raw(b"a body").bytes();
    let exists = record().int(6).int(op::EXISTS).string("/").flag(false).bytes();
    let frames = record().buffer(&close).buffer(&exists).bytes();
    a.socket.send(&frames)?;
    let reply = a.reply()?;
    expect_eq("xid", reply.ok_empty()?.xid, 5)?;
    // A real server may refuse (-112) or even answer the second request before it closes.
    match a.socket.receive(ANSWER_TIMEOUT)? {
        Incoming::Frame(frame) if context.is_zookeeper() => {
            expect_eq("xid of what follows", Reader::new(&frame).int()?, 6)?;
            a.socket.expect_close()
        }
        other => expect_eq("what follows the close", other, Incoming::Closed),
    }
}

/// A session of the least timeout, two ticks, and the moment of its last packet.
fn short_session(context: &Context<'_>) -> Result<(Client, Duration)> {
    let timeout_ms = 2 * context.tick_ms();
    let request = ConnectRequest { timeout_ms, ..ConnectRequest::default() };
    let a = context.client_with(&request)?;
    expect_eq("negotiated timeout", a.session.timeout_ms, timeout_ms)?;
    Ok((a, Duration::from_millis(u64::try_from(timeout_ms)?)))
}

/// The end of a session came no earlier than its timeout and at most a tick later.
fn expect_on_time(context: &Context<'_>, timeout: Duration, took: Duration) -> Result<()> {
    let tick = Duration::from_millis(u64::try_from(context.tick_ms())?);
    // Loaded machines are late, never early.
    let slack = Duration::from_secs(2);
    expect(
        &format!("ended within {timeout:?} and a tick ({took:?})"),
        timeout <= took && took < timeout + tick + slack,
    )
}

fn idle(context: &Context<'_>) -> Result<()> {
    let (mut a, timeout) = short_session(context)?;
    let mut b = context.client()?;
    let paths = ["1", "2"].map(|name| context.path(name));
    for path in &paths {
        a.create_ephemeral(path)?;
    }
    for path in &paths {
        b.exists(path, true)?.stat()?;
    }
    // Before the last packet is sent: the server can't have it earlier.
    let began = Instant::now();
    a.stat("/")?;
    a.keep_session();
    let incoming = a.socket.receive(timeout * 4)?;
    expect_on_time(context, timeout, began.elapsed())?;
    expect_eq("what the idle client sees", incoming, Incoming::Closed)?;
    let (first, second) = (b.event()?, b.event()?);
    let mut seen = [&first, &second].map(|event| (event.kind, event.path.clone()));
    seen.sort();
    expect_eq("events", seen, paths.map(|path| (event::DELETED, path)))?;
    expect_eq("zxids of both events", first.zxid, second.zxid)
}

fn kept_by_auth(context: &Context<'_>) -> Result<()> {
    let (mut a, timeout) = short_session(context)?;
    a.keep_session();
    let began = Instant::now();
    a.stat("/")?;
    loop {
        let body = record().int(0).string("digest").string("u:p").bytes();
        let auth = record().int(-4).int(op::AUTH).raw(&body).bytes();
        a.socket.send_provoking(&record().buffer(&auth).bytes());
        let pause = Instant::now();
        while pause.elapsed() < Duration::from_millis(900) {
            match a.socket.receive(Duration::from_millis(900).saturating_sub(pause.elapsed()))? {
                Incoming::Closed => return expect_on_time(context, timeout, began.elapsed()),
                Incoming::Frame(_) | Incoming::Silence => {}
            }
        }
        expect("the session ends at last", began.elapsed() < timeout * 5)?;
    }
}

fn kept_by_requests(context: &Context<'_>) -> Result<()> {
    let (mut pinging, timeout) = short_session(context)?;
    let (mut reading, _) = short_session(context)?;
    let began = Instant::now();
    while began.elapsed() < timeout * 2 {
        pinging.send_as(PING_XID, op::PING, record())?;
        pinging.reply().context("ping")?.ok_empty()?;
        reading.send(op::EXISTS, record().string("/").flag(false))?;
        reading.reply().context("exists")?.stat()?;
        sleep(Duration::from_millis(900));
    }
    Ok(())
}

fn lost_connection(context: &Context<'_>) -> Result<()> {
    let mut a = context.client()?;
    let path = context.path("e");
    a.create_ephemeral(&path)?;
    let session = a.abandon();
    sleep(Duration::from_secs(2));
    let mut again = context.client_on(0, &ConnectRequest::resume(&session))?;
    expect_eq("owner", again.stat(&path)?.ephemeral_owner, session.session)
}

/// `SessionTrackerImpl`'s password of an id: four numbers of `java.util.Random`, little-endian.
fn java_password(session: i64) -> Vec<u8> {
    const MASK: u64 = (1 << 48) - 1;
    let seed = session.cast_unsigned() ^ 0xB341_5C00;
    let mut state = (seed ^ 0x5_DEEC_E66D) & MASK;
    let mut password = Vec::new();
    for _ in 0..4 {
        state = state.wrapping_mul(0x5_DEEC_E66D).wrapping_add(0xB) & MASK;
        password.extend(state.to_be_bytes().into_iter().skip(2).take(4).rev());
    }
    password
}

fn password(context: &Context<'_>) -> Result<()> {
    let vector = hex(&java_password(0x0100_0008_95b9_0000));
    expect_eq("known password", vector, "cda2bce3d6b02619f35aa2b90f547d0f".to_owned())?;
    let (one, two) = (context.client()?, context.client()?);
    if context.is_zookeeper() {
        return expect_eq(
            "password",
            hex(&one.session.password),
            hex(&java_password(one.session.session)),
        );
    }
    // ZooKeeper's can be computed from the id, so it protects nothing; ours is random.
    for session in [&one.session, &two.session] {
        expect(
            "the password does not follow from the id",
            session.password != java_password(session.session),
        )?;
    }
    expect("two sessions have two passwords", one.session.password != two.session.password)
}

fn set_by_other(context: &Context<'_>) -> Result<()> {
    let (mut a, mut b) = (context.client()?, context.client()?);
    let path = context.path("e");
    a.create_ephemeral(&path)?;
    b.set(&path, b"x")?;
    expect_eq("owner after the set", b.stat(&path)?.ephemeral_owner, a.session.session)?;
    a.close()?;
    b.exists(&path, false)?.fails(code::NO_NODE)?;
    Ok(())
}
