//! What the core tells a client → records → a frame.

use bytes::{BufMut, Bytes, BytesMut};
use jute::primitives::{put_length, put_null, put_ustring};
use jute::{
    Acl, ClientInfo, ConnectResponse, ErrorResponse, MultiHeader, ReplyHeader, Stat, Value,
    WatcherEvent,
};

use crate::keeper::request::{
    Body, Connected, Data, Event, MultiResult, Names, Outgoing, Reply, Xid,
};
use crate::wire::opcode;

/// Appends one frame, its prefix included. `has_read_only_byte` is what
/// [`crate::wire::decode::Handshake`] said; it matters to the first frame only.
pub fn encode(outgoing: &Outgoing, has_read_only_byte: bool, out: &mut BytesMut) {
    encode_frame(outgoing, has_read_only_byte, out);
}

/// Where a frame goes.
pub(super) trait Sink {
    /// What is written out in full is appended here.
    fn plain(&mut self) -> &mut BytesMut;

    /// Appends bytes that may be passed on without a copy, as what `whole` gives.
    fn share(&mut self, bytes: &[u8], whole: impl FnOnce() -> Bytes);

    /// How many bytes have been passed on without a copy so far.
    fn shared_len(&self) -> usize;
}

impl Sink for BytesMut {
    fn plain(&mut self) -> &mut BytesMut {
        self
    }

    fn share(&mut self, bytes: &[u8], _: impl FnOnce() -> Bytes) {
        self.put_slice(bytes);
    }

    fn shared_len(&self) -> usize {
        0
    }
}

pub(super) fn encode_frame(outgoing: &Outgoing, has_read_only_byte: bool, out: &mut impl Sink) {
    let start = out.plain().len();
    let shared_before = out.shared_len();
    put_length(out.plain(), 0);
    let body_start = out.plain().len();
    match outgoing {
        Outgoing::Connected(connected) => {
            encode_connected(connected, has_read_only_byte, out.plain());
        }
        Outgoing::Reply(reply) => encode_reply(reply, out),
        Outgoing::Event(event) => encode_event(event, out.plain()),
    }
    let length = out.plain().len() - body_start + out.shared_len() - shared_before;
    let length = i32::try_from(length).expect("a frame is shorter than 2 GiB");
    out.plain()[start..body_start].copy_from_slice(&length.to_be_bytes());
}

/// The byte that old clients do not know is the record's last
/// (`ProtocolManager.serializeConnectResponse`).
fn encode_connected(connected: &Connected, has_read_only_byte: bool, out: &mut BytesMut) {
    let record = match connected {
        Connected::Accepted { timeout_ms, session, password } => ConnectResponse {
            protocol_version: 0,
            time_out: *timeout_ms,
            session_id: session.0,
            passwd: Some(password.clone()),
            read_only: false,
        },
        Connected::Refused => {
            ConnectResponse { passwd: Some(NO_PASSWORD), ..ConnectResponse::default() }
        }
    };
    record.encode(out);
    if !has_read_only_byte {
        out.truncate(out.len() - record.read_only.encoded_len());
    }
}

/// What a refused session gets for a password.
const NO_PASSWORD: Bytes = Bytes::from_static(&[0; 16]);

/// An error is a header without a record.
fn encode_reply(reply: &Reply, out: &mut impl Sink) {
    let err = reply.outcome.as_ref().map_or_else(|code| code.code(), |_| 0);
    ReplyHeader { xid: reply.xid.0, zxid: reply.zxid.0, err }.encode(out.plain());
    if let Ok(body) = &reply.outcome {
        encode_body(body, out);
    }
}

/// The state is always 3, connected (`WatchedEvent`).
fn encode_event(event: &Event, out: &mut BytesMut) {
    ReplyHeader { xid: Xid::NOTIFICATION.0, zxid: event.zxid.0, err: 0 }.encode(out);
    let path = Some(event.path.clone());
    WatcherEvent { type_: event.kind as i32, state: 3, path }.encode(out);
}

fn encode_body(body: &Body, out: &mut impl Sink) {
    match body {
        Body::Empty => {}
        Body::Path(path) => path.encode(out.plain()),
        Body::PathStat(path, stat) => encode_path_stat(path, stat, out),
        Body::Stat(stat) => stat.encode(out.plain()),
        Body::Data(data, stat) => encode_data_stat(data.as_ref(), stat, out),
        Body::Names(names) => share_names(names, out),
        Body::NamesStat(names, stat) => {
            share_names(names, out);
            stat.encode(out.plain());
        }
        Body::Acl(acl, stat) => {
            encode_vector::<Acl>(acl, out.plain());
            stat.encode(out.plain());
        }
        Body::Multi(results) => {
            results.iter().for_each(|result| encode_result(result, out));
            encode_multi_header(opcode::ERROR, true, opcode::ERROR, out);
        }
        Body::Number(number) => number.encode(out.plain()),
        Body::Watched => ErrorResponse { err: 0 }.encode(out.plain()),
        Body::Identities(identities) => encode_vector::<ClientInfo>(identities, out.plain()),
        Body::Token(token) => token.encode(out.plain()),
    }
}

/// One result: its header, then its record (`MultiResponse.serialize`).
fn encode_result(result: &MultiResult, out: &mut impl Sink) {
    encode_multi_header(result_type(result), false, result_err(result), out);
    match result {
        MultiResult::Create(path) => put_ustring(out.plain(), path),
        MultiResult::Create2(path, stat) => encode_path_stat(path, stat, out),
        MultiResult::Delete | MultiResult::Check => {}
        MultiResult::SetData(stat) => stat.encode(out.plain()),
        MultiResult::GetData(data, stat) => encode_data_stat(data.as_ref(), stat, out),
        MultiResult::GetChildren(names) => share_names(names, out),
        MultiResult::Error(_) => ErrorResponse { err: result_err(result) }.encode(out.plain()),
    }
}

fn result_type(result: &MultiResult) -> i32 {
    match result {
        MultiResult::Create(_) => opcode::CREATE,
        MultiResult::Create2(..) => opcode::CREATE2,
        MultiResult::Delete => opcode::DELETE,
        MultiResult::SetData(_) => opcode::SET_DATA,
        MultiResult::Check => opcode::CHECK,
        MultiResult::GetData(..) => opcode::GET_DATA,
        MultiResult::GetChildren(_) => opcode::GET_CHILDREN,
        MultiResult::Error(_) => opcode::ERROR,
    }
}

fn result_err(result: &MultiResult) -> i32 {
    match result {
        MultiResult::Error(Some(code)) => code.code(),
        _ => 0,
    }
}

fn encode_multi_header(type_: i32, done: bool, err: i32, out: &mut impl Sink) {
    MultiHeader { type_, done, err }.encode(out.plain());
}

fn encode_path_stat(path: &str, stat: &Stat, out: &mut impl Sink) {
    put_ustring(out.plain(), path);
    stat.encode(out.plain());
}

fn share_names(names: &Names, out: &mut impl Sink) {
    out.share(&names.0, || names.0.clone());
}

fn encode_data_stat(data: Option<&Data>, stat: &Stat, out: &mut impl Sink) {
    match data {
        Some(data) => {
            put_length(out.plain(), data.len());
            out.share(data, || Bytes::from_owner(data.clone()));
        }
        None => put_null(out.plain()),
    }
    stat.encode(out.plain());
}

fn encode_vector<T: Value>(elements: &[T], out: &mut BytesMut) {
    put_length(out, elements.len());
    elements.iter().for_each(|element| element.encode(out));
}

#[cfg(test)]
mod tests {
    use jute::primitives::put_buffer;

    use crate::keeper::error::ErrorCode;
    use crate::keeper::request::{EventKind, SessionId};
    use crate::keeper::zxid::Zxid;

    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u32> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
        digits.chunks(2).map(|pair| pair.iter().fold(0, |sum, it| sum * 16 + *it as u8)).collect()
    }

    /// The frame is these bytes after a length, and stands behind what was there.
    fn check_frame(outgoing: &Outgoing, has_read_only_byte: bool, hex: &str) {
        let mut expect = BytesMut::from(&b"before"[..]);
        put_buffer(&mut expect, &bytes(hex));
        let mut out = BytesMut::from(&b"before"[..]);
        encode(outgoing, has_read_only_byte, &mut out);
        assert_eq!(out, expect, "{outgoing:?}");
    }

    fn check(xid: i32, zxid: i64, outcome: Result<Body, ErrorCode>, hex: &str) {
        let reply = Reply { xid: Xid(xid), zxid: Zxid(zxid), outcome };
        check_frame(&Outgoing::Reply(reply), true, hex);
    }

    /// The body alone, behind a header that is checked elsewhere.
    fn check_body(body: Body, hex: &str) {
        check(1, 2, Ok(body), &format!("00000001 0000000000000002 00000000 {hex}"));
    }

    fn stat() -> Stat {
        Stat {
            czxid: 0x3a4,
            mzxid: 0x3a4,
            ctime: 0x01a2_2924_6408,
            mtime: 0x01a2_2924_6408,
            data_length: 2,
            pzxid: 0x3a4,
            ..Stat::default()
        }
    }

    const STAT: &str = "00000000000003a4 00000000000003a4 000001a229246408 000001a229246408 \
                        00000000 00000000 00000000 0000000000000000 00000002 00000000 \
                        00000000000003a4";

    fn names() -> Names {
        Names(Bytes::from(bytes("00000001 00000001 78")))
    }

    #[test]
    fn an_accepted_handshake_has_the_byte_if_the_request_had_it() {
        let password = "cda2bce3d6b02619f35aa2b90f547d0f";
        let accepted = Outgoing::Connected(Connected::Accepted {
            timeout_ms: 10_000,
            session: SessionId(0x0100_0008_95b9_0000),
            password: bytes(password).into(),
        });
        let hex = format!("00000000 00002710 0100000895b90000 00000010 {password}");
        check_frame(&accepted, true, &format!("{hex} 00"));
        check_frame(&accepted, false, &hex);
    }

    #[test]
    fn a_refused_handshake_is_all_zeros_but_for_the_password_s_length() {
        let zeros = "00".repeat(16);
        let hex = format!("00000000 00000000 0000000000000000 00000010 {zeros}");
        check_frame(&Outgoing::Connected(Connected::Refused), true, &format!("{hex} 00"));
        check_frame(&Outgoing::Connected(Connected::Refused), false, &hex);
    }

    #[test]
    fn an_error_is_a_header_only() {
        check(17, 0x3a4, Err(ErrorCode::NoNode), "00000011 00000000000003a4 ffffff9b");
        check(1, -1, Err(ErrorCode::Unimplemented), "00000001 ffffffffffffffff fffffffa");
    }

    #[test]
    fn a_reply_without_a_record_is_a_header_only() {
        check(-2, 0x3a3, Ok(Body::Empty), "fffffffe 00000000000003a3 00000000");
        check(-4, 0, Ok(Body::Empty), "fffffffc 0000000000000000 00000000");
    }

    #[test]
    fn replies_to_reads_are_as_on_the_wire() {
        let data = Body::Data(Some("hi".into()), stat());
        check_body(data, &format!("00000002 6869 {STAT}"));
        check_body(Body::Data(None, stat()), &format!("ffffffff {STAT}"));
        check_body(Body::Stat(stat()), STAT);
        check_body(Body::Names(names()), "00000001 00000001 78");
        check_body(Body::NamesStat(names(), stat()), &format!("00000001 00000001 78 {STAT}"));
        let id = jute::Id { scheme: Some("world".into()), id: Some("anyone".into()) };
        let hex = "00000001 0000001f 00000005 776f726c64 00000006 616e796f6e65";
        check_body(Body::Acl(vec![Acl { perms: 31, id }], stat()), &format!("{hex} {STAT}"));
        check_body(Body::Number(3), "00000003");
        check_body(Body::Watched, "00000000");
        check_body(Body::Token(None), "ffffffff");
        let ip = ClientInfo { auth_scheme: Some("ip".into()), user: Some("127.0.0.1".into()) };
        let hex = "00000001 00000002 6970 00000009 3132372e302e302e31";
        check_body(Body::Identities(vec![ip]), hex);
    }

    #[test]
    fn replies_to_creates_and_sync_are_as_on_the_wire() {
        check_body(Body::Path(Some("/a".into())), "00000002 2f61");
        check_body(Body::Path(Some("\u{1f600}".into())), "00000006 eda0bd edb880");
        check_body(Body::Path(None), "ffffffff");
        check_body(Body::PathStat("/a".into(), stat()), &format!("00000002 2f61 {STAT}"));
    }

    #[test]
    fn a_successful_multi_is_as_on_the_wire() {
        let create = MultiResult::Create("/m/k1".into());
        let hex = "00000001 00 00000000 00000005 2f6d2f6b31 00000002 00 00000000 \
                   0000000d 00 00000000 ffffffff 01 ffffffff";
        check_body(Body::Multi(vec![create, MultiResult::Delete, MultiResult::Check]), hex);
        check_body(Body::Multi(Vec::new()), "ffffffff 01 ffffffff");
    }

    #[test]
    fn results_with_a_stat_or_names_are_as_on_the_wire() {
        let create2 = MultiResult::Create2("/a".into(), stat());
        let data = MultiResult::GetData(Some("hi".into()), stat());
        let names = MultiResult::GetChildren(names());
        let hex = format!(
            "0000000f 00 00000000 00000002 2f61 {STAT} 00000005 00 00000000 {STAT} \
             00000004 00 00000000 00000002 6869 {STAT} \
             00000008 00 00000000 00000001 00000001 78 ffffffff 01 ffffffff"
        );
        check_body(Body::Multi(vec![create2, MultiResult::SetData(stat()), data, names]), &hex);
    }

    #[test]
    fn a_failed_multi_is_as_on_the_wire() {
        let codes = [None, Some(ErrorCode::BadVersion), Some(ErrorCode::RuntimeInconsistency)];
        let hex = "ffffffff 00 00000000 00000000 ffffffff 00 ffffff99 ffffff99 \
                   ffffffff 00 fffffffe fffffffe ffffffff 01 ffffffff";
        check_body(Body::Multi(codes.map(MultiResult::Error).into()), hex);
    }

    #[test]
    fn a_notification_is_as_on_the_wire() {
        let (kind, zxid) = (EventKind::NodeDataChanged, Zxid(0xcf));
        let event = Event { kind, path: "/w/n".into(), zxid };
        let hex = "ffffffff 00000000000000cf 00000000 00000003 00000003 00000004 2f772f6e";
        check_frame(&Outgoing::Event(event), true, hex);
    }
}
