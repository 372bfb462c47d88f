//! What the core tells a client → records → a frame.

use bytes::{BufMut, Bytes, BytesMut};
use jute::primitives::{put_length, put_null, put_ustring};
use jute::{
    Acl, ClientInfo, ConnectResponse, ErrorResponse, MultiHeader, ReplyHeader, Stat, Value,
    WatcherEvent,
};

use crate::keeper::request::{Body, Connected, Event, MultiResult, Outgoing, Reply, Xid};
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

    /// Appends bytes that may be passed on without a copy.
    fn share(&mut self, bytes: &Bytes);

    /// How many bytes have been passed on without a copy so far.
    fn shared_len(&self) -> usize;
}

impl Sink for BytesMut {
    fn plain(&mut self) -> &mut BytesMut {
        self
    }

    fn share(&mut self, bytes: &Bytes) {
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
        Body::Names(names) => out.share(&names.0),
        Body::NamesStat(names, stat) => {
            out.share(&names.0);
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
        MultiResult::GetChildren(names) => out.share(&names.0),
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

fn encode_data_stat(data: Option<&Bytes>, stat: &Stat, out: &mut impl Sink) {
    match data {
        Some(data) => {
            put_length(out.plain(), data.len());
            out.share(data);
        }
        None => put_null(out.plain()),
    }
    stat.encode(out.plain());
}

fn encode_vector<T: Value>(elements: &[T], out: &mut BytesMut) {
    put_length(out, elements.len());
    elements.iter().for_each(|element| element.encode(out));
}
