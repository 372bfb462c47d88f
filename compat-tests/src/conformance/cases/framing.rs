//! Section 10.1: frames, the handshake, and what is wrong with them.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::conformance::case::{Case, case};
use crate::conformance::client::Client;
use crate::conformance::context::Context;
use crate::conformance::expect::{expect, expect_eq};
use crate::conformance::session::{ConnectRequest, ConnectResponse, connect};
use crate::conformance::socket::{Incoming, Socket, frame};
use crate::conformance::wire::{Reader, code, hex, op, open_acl, record};

/// The cases of this section.
pub const CASES: &[Case] = &[
    case("F1", "a new session is answered by 37 bytes", new_session),
    case("F2", "without the readOnly byte the answer has none", without_read_only),
    case("F3", "readOnly 0x02 is accepted and answered by 0", odd_read_only),
    case("F4", "surplus bytes after the ConnectRequest are ignored", surplus_in_connect),
    case("F5", "a new session may send any password", any_password),
    case("F6", "a broken password length is closed without a reply", broken_password),
    case("F7", "a first frame of 0 or 10 bytes is closed without a reply", short_first_frame),
    case("F8", "any protocol version is accepted, 0 is answered", protocol_version),
    case("F9", "the timeout is clamped to 2 and 20 ticks", timeout_clamp),
    case("F10", "lastZxidSeen equal to the current zxid is accepted", last_zxid_equal).alone(),
    case("F11", "lastZxidSeen in the future is closed without a reply", last_zxid_ahead).alone(),
    case("F12", "lastZxidSeen -1 is accepted", last_zxid_negative),
    case("F13", "a request behind the ConnectRequest is answered after it", pipelined_connect),
    case("F14", "an absurd length after the handshake is closed", absurd_length),
    case("F15", "lengths -1, 0 and 4 after the handshake are closed", too_short_frames),
    case("F16", "a frame of exactly jute.maxbuffer is served", largest_frame),
    case("F17", "more than 1 MB of children comes in one frame", large_answer),
    case("F18", "ruok as the first bytes is answered raw, later it is a length", four_letters),
    case("F19", "an unknown word as the first bytes is closed", unknown_word),
    case("F20", "a second ConnectRequest is an unknown opcode", second_connect),
    case("F21", "a connection without ConnectRequest is closed after 10 to 20 s", silent).slow(20),
    case("F22", "a create without its flags is -5 and consumes no zxid", create_cut)
        .alone()
        .breaks_ensemble(),
    case("F23", "surplus bytes after a request are ignored", surplus_in_request),
    case("F24", "a string length -2 is -5, an ACL count -5 is -114", negative_lengths)
        .breaks_ensemble(),
];

fn handshake(context: &Context<'_>, request: &[u8]) -> Result<(Socket, Vec<u8>)> {
    let mut socket = context.socket()?;
    socket.send_frame(request)?;
    let answer = socket.frame()?;
    Ok((socket, answer))
}

fn exists_root(socket: &mut Socket, xid: i32) -> Result<()> {
    let request = record().int(xid).int(op::EXISTS).string("/").flag(false).bytes();
    socket.send_frame(&request)?;
    expect_exists_answer(socket, xid)
}

fn expect_exists_answer(socket: &mut Socket, xid: i32) -> Result<()> {
    let answer = socket.frame()?;
    let mut reader = Reader::new(&answer);
    expect_eq("xid", reader.int()?, xid)?;
    reader.long()?;
    expect_eq("error code", reader.int()?, 0)?;
    reader.stat()?;
    reader.end()
}

fn new_session(context: &Context<'_>) -> Result<()> {
    let bytes = "0000002d0000000000000000000000000000271000000000000000000000001000000000000000\
                 00000000000000000000";
    let sent = frame(&ConnectRequest::default().bytes());
    expect_eq("the suite's own ConnectRequest", hex(&sent), bytes.to_owned())?;
    let mut socket = context.socket()?;
    socket.send(&sent)?;
    let answer = socket.frame()?;
    expect_eq("length", answer.len(), 0x25)?;
    let response = ConnectResponse::decode(&answer)?;
    response.expect_accepted()?;
    expect_eq("timeout", response.timeout_ms, 10_000)?;
    expect_eq("readOnly", response.read_only, Some(0))
}

fn without_read_only(context: &Context<'_>) -> Result<()> {
    let request = ConnectRequest { read_only: None, ..ConnectRequest::default() }.bytes();
    expect_eq("length of the request", request.len(), 0x2c)?;
    let (mut socket, answer) = handshake(context, &request)?;
    expect_eq("length", answer.len(), 0x24)?;
    ConnectResponse::decode(&answer)?.expect_accepted()?;
    exists_root(&mut socket, 1)
}

fn odd_read_only(context: &Context<'_>) -> Result<()> {
    let request = ConnectRequest { read_only: Some(2), ..ConnectRequest::default() };
    let (_, response) = connect(context.address(0), &request)?;
    response.expect_accepted()?;
    expect_eq("readOnly", response.read_only, Some(0))
}

fn surplus_in_connect(context: &Context<'_>) -> Result<()> {
    let request = [ConnectRequest::default().bytes(), vec![0xab; 7]].concat();
    let (mut socket, answer) = handshake(context, &request)?;
    expect_eq("length", answer.len(), 0x25)?;
    ConnectResponse::decode(&answer)?.expect_accepted()?;
    exists_root(&mut socket, 1)
}

fn any_password(context: &Context<'_>) -> Result<()> {
    for password in [None, Some(Vec::new()), Some(vec![7; 5])] {
        let request = ConnectRequest { password: password.clone(), ..ConnectRequest::default() };
        let (mut socket, response) =
            connect(context.address(0), &request).with_context(|| format!("{password:?}"))?;
        response.expect_accepted()?;
        exists_root(&mut socket, 1)?;
    }
    Ok(())
}

fn broken_password(context: &Context<'_>) -> Result<()> {
    for length in [-2, 3_000_000] {
        let head = record().int(0).long(0).int(10_000).long(0);
        let mut socket = context.socket()?;
        socket.send_frame(&head.int(length).raw(&[0; 17]).bytes())?;
        socket.expect_close().with_context(|| format!("password length {length}"))?;
    }
    Ok(())
}

fn short_first_frame(context: &Context<'_>) -> Result<()> {
    for length in [0, 10] {
        let mut socket = context.socket()?;
        socket.send_frame(&vec![0; length])?;
        socket.expect_close().with_context(|| format!("a frame of {length} bytes"))?;
    }
    Ok(())
}

fn protocol_version(context: &Context<'_>) -> Result<()> {
    let request = ConnectRequest { protocol: 7, ..ConnectRequest::default() };
    connect(context.address(0), &request)?.1.expect_accepted()
}

fn timeout_clamp(context: &Context<'_>) -> Result<()> {
    let (least, most) = (2 * context.tick_ms(), 20 * context.tick_ms());
    let pairs = [
        (0, least),
        (-5, least),
        (least - 1, least),
        (least, least),
        (least + 1, least + 1),
        (most, most),
        (most + 1, most),
        (i32::MAX, most),
    ];
    for (wanted, negotiated) in pairs {
        let request = ConnectRequest { timeout_ms: wanted, ..ConnectRequest::default() };
        let (_, response) = connect(context.address(0), &request)?;
        expect_eq(&format!("timeout {wanted}"), response.timeout_ms, negotiated)?;
    }
    Ok(())
}

/// The zxid that the first server has reached.
fn current_zxid(context: &Context<'_>) -> Result<(Client, i64)> {
    let mut client = context.client()?;
    let zxid = client.exists("/", false)?.ok()?.zxid;
    Ok((client, zxid))
}

fn last_zxid_equal(context: &Context<'_>) -> Result<()> {
    let (_client, zxid) = current_zxid(context)?;
    let request = ConnectRequest { last_zxid: zxid, ..ConnectRequest::default() };
    connect(context.address(0), &request)?.1.expect_accepted()
}

fn last_zxid_ahead(context: &Context<'_>) -> Result<()> {
    let (_client, zxid) = current_zxid(context)?;
    // A store that others write to moves on its own: be far enough ahead of it.
    let ahead = if context.is_zookeeper() { 1 } else { 100_000 };
    let request = ConnectRequest { last_zxid: zxid + ahead, ..ConnectRequest::default() };
    let mut socket = context.socket()?;
    socket.send_frame(&request.bytes())?;
    socket.expect_close()
}

fn last_zxid_negative(context: &Context<'_>) -> Result<()> {
    let request = ConnectRequest { last_zxid: -1, ..ConnectRequest::default() };
    connect(context.address(0), &request)?.1.expect_accepted()
}

fn pipelined_connect(context: &Context<'_>) -> Result<()> {
    let exists = record().int(1).int(op::EXISTS).string("/").flag(false).bytes();
    let mut socket = context.socket()?;
    socket.send(&[frame(&ConnectRequest::default().bytes()), frame(&exists)].concat())?;
    ConnectResponse::decode(&socket.frame()?)?.expect_accepted()?;
    expect_exists_answer(&mut socket, 1)
}

/// Sends bytes after a handshake; the server must close without a reply.
fn expect_close_after(context: &Context<'_>, bytes: &[u8]) -> Result<()> {
    let mut client = context.client()?;
    client.keep_session();
    client.socket.send(bytes)?;
    client.socket.expect_close().with_context(|| format!("after {}", hex(bytes)))
}

fn absurd_length(context: &Context<'_>) -> Result<()> {
    expect_close_after(context, &[0x00, 0x10, 0x00, 0x00])
}

fn too_short_frames(context: &Context<'_>) -> Result<()> {
    expect_close_after(context, &[0xff, 0xff, 0xff, 0xff])?;
    expect_close_after(context, &[0, 0, 0, 0])?;
    expect_close_after(context, &frame(&[0, 0, 0, 1]))
}

fn largest_frame(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let path = context.path("big");
    let empty = record().int(1).int(op::CREATE).string(&path).buffer(b"").acls(&open_acl()).int(0);
    let data = vec![b'x'; 1_048_575 - empty.bytes().len()];
    client.create(&path, &data)?;
    let (read, stat) = client.get_data(&path, false)?.data_and_stat()?;
    expect("the data comes back", read.as_ref() == Some(&data))?;
    expect_eq("dataLength", usize::try_from(stat.data_length)?, data.len())?;
    client.keep_session();
    client.socket.send_provoking(&1_048_576_i32.to_be_bytes());
    client.socket.expect_close().context("a frame one byte larger")
}

fn large_answer(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let names: Vec<String> = (0..600).map(|n| format!("{n:03}{}", "n".repeat(2000))).collect();
    for names in names.chunks(100) {
        for name in names {
            let body = record().string(&context.path(name)).buffer(b"").acls(&open_acl()).int(0);
            client.send(op::CREATE, body)?;
        }
        for _ in names {
            client.reply()?.ok()?;
        }
    }
    let reply = client.get_children(&context.base(), false)?;
    expect_eq("length of the body", reply.body.len(), 4 + 600 * 2007)?;
    expect("all names are there", reply.names()? == names)
}

fn four_letters(context: &Context<'_>) -> Result<()> {
    let mut socket = context.socket()?;
    socket.send(b"ruok")?;
    expect_eq("answer to ruok", String::from_utf8(socket.raw_until_close()?)?, "imok".to_owned())?;
    expect_close_after(context, b"ruok")
}

fn unknown_word(context: &Context<'_>) -> Result<()> {
    let mut socket = context.socket()?;
    socket.send(b"zzzz")?;
    socket.expect_close()
}

fn second_connect(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    client.keep_session();
    client.socket.send_frame(&ConnectRequest::default().bytes())?;
    let answer = hex(&client.socket.frame()?);
    expect_eq("answer", answer, "00000000fffffffffffffffffffffffa".to_owned())?;
    client.socket.expect_close()
}

fn silent(context: &Context<'_>) -> Result<()> {
    let began = Instant::now();
    let mut sockets = [context.socket()?, context.socket()?];
    let [_, half] = &mut sockets;
    half.send(&[0, 0])?;
    for socket in &mut sockets {
        let incoming = socket.receive(Duration::from_secs(25).saturating_sub(began.elapsed()))?;
        expect_eq("what the server does", incoming, Incoming::Closed)?;
        let after = began.elapsed();
        // Loaded machines are late, never early.
        expect(
            &format!("closed after 10 to 20 s ({after:?})"),
            after > Duration::from_millis(9_800) && after < Duration::from_secs(23),
        )?;
    }
    Ok(())
}

fn create_cut(context: &Context<'_>) -> Result<()> {
    let (mut client, zxid) = current_zxid(context)?;
    let body = record().string(&context.path("n")).buffer(b"").acls(&open_acl());
    let reply = client.call(op::CREATE, body)?;
    reply.fails(code::MARSHALLING_ERROR)?;
    expect_eq("zxid", reply.zxid, zxid)?;
    client.create(&context.path("n"), b"")?;
    Ok(())
}

fn surplus_in_request(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let path = context.path("n");
    let body = record().string(&path).buffer(b"").acls(&open_acl()).int(0).raw(&[1, 2, 3, 4]);
    expect_eq("created path", client.call(op::CREATE, body)?.text()?, path)
}

fn negative_lengths(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let body = record().int(-2).buffer(b"").acls(&open_acl()).int(0);
    client.call(op::CREATE, body)?.fails(code::MARSHALLING_ERROR).context("path length -2")?;
    let body = record().string(&context.path("n")).buffer(b"").int(-5).int(0);
    client.call(op::CREATE, body)?.fails(code::INVALID_ACL).context("ACL count -5")?;
    Ok(())
}
