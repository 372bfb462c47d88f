//! A frame → records → what is asked.
//!
//! Only the form is checked here, and what breaks a multi as a whole. Values that stand for
//! themselves (paths, flags, modes, versions, ACLs) are passed on as the client sent them.

mod multi;

use bytes::Bytes;
use jute::{ConnectRequest, DecodeError, Input, Record, RequestHeader, Value};

use crate::keeper::request::{
    AddWatch, Auth, Connect, Create, CreateOpcode, Delete, Operation, Read, Request, SessionId,
    SetAcl, SetData, SetWatches, WatchSelection, Xid,
};
use crate::keeper::zxid::Zxid;
use crate::wire::decode::multi::{decode_multi, decode_multi_read};
use crate::wire::opcode;

/// A connection's first frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// What is asked.
    pub connect: Connect,
    /// The request has the readOnly byte, so the response must have it too.
    pub has_read_only_byte: bool,
    /// A read-only server will do.
    pub read_only: bool,
}

/// Decodes a connection's first frame.
///
/// # Errors
/// If a field other than readOnly is incomplete: the connection is closed without a reply.
pub fn decode_connect(frame: &Bytes) -> Result<Handshake, DecodeError> {
    let (record, has_read_only_byte) = decode_connect_request(frame)?;
    let connect = Connect {
        last_zxid_seen: Zxid(record.last_zxid_seen),
        timeout_ms: record.time_out,
        session: SessionId(record.session_id),
        password: record.passwd.unwrap_or_default(),
    };
    Ok(Handshake { connect, has_read_only_byte, read_only: record.read_only })
}

/// Clients up to 3.3, C clients up to 3.4 and several others leave the last field out
/// (`ProtocolManager.deserializeConnectRequest`). Was it there?
fn decode_connect_request(frame: &Bytes) -> Result<(ConnectRequest, bool), DecodeError> {
    const NAME: &str = ConnectRequest::NAME;
    let mut input = input(frame);
    let mut record = ConnectRequest {
        protocol_version: input.field(NAME, "protocolVersion")?,
        last_zxid_seen: input.field(NAME, "lastZxidSeen")?,
        time_out: input.field(NAME, "timeOut")?,
        session_id: input.field(NAME, "sessionId")?,
        passwd: input.field(NAME, "passwd")?,
        read_only: false,
    };
    let has_read_only_byte = input.left() > 0;
    if has_read_only_byte {
        record.read_only = input.field(NAME, "readOnly")?;
    }
    Ok((record, has_read_only_byte))
}

/// Decodes any later frame. Bytes after the record are ignored.
///
/// # Errors
/// If the header is incomplete, or the record of an auth or sasl packet: upstream reads those
/// two before it queues a request. The connection is closed without a reply.
pub fn decode_request(frame: &Bytes) -> Result<Request, DecodeError> {
    let mut input = input(frame);
    let header = RequestHeader::decode(&mut input)?;
    let operation = match header.type_ {
        opcode::AUTH => decode_auth(&mut input)?,
        opcode::SASL => decode_sasl(&mut input)?,
        opcode => decode_body(opcode, &mut input)
            .unwrap_or_else(|Undecodable| Operation::Undecodable { opcode }),
    };
    Ok(Request { xid: Xid(header.xid), operation })
}

/// A frame is never longer than `jute.maxbuffer`, so its own length does for the bound on its
/// fields.
fn input(frame: &Bytes) -> Input<'_> {
    Input::with_maxbuffer(frame, frame.len())
}

/// The request is answered with -5. There is no need to say why: no client is told.
struct Undecodable;

impl From<DecodeError> for Undecodable {
    fn from(_: DecodeError) -> Self {
        Self
    }
}

fn decode_auth(input: &mut Input<'_>) -> Result<Operation, DecodeError> {
    let jute::AuthPacket { type_: _, scheme, auth } = Value::decode(input)?;
    Ok(Operation::Auth(Auth { scheme, auth }))
}

fn decode_sasl(input: &mut Input<'_>) -> Result<Operation, DecodeError> {
    let jute::GetSaslRequest { token } = Value::decode(input)?;
    Ok(Operation::Sasl(token))
}

/// createSession (-10) and deleteContainer (20) are for servers among themselves, and check (13)
/// for multi: from a client they are unknown.
fn decode_body(opcode: i32, input: &mut Input<'_>) -> Result<Operation, Undecodable> {
    Ok(match opcode {
        opcode::PING => Operation::Ping,
        opcode::CLOSE_SESSION => Operation::CloseSession,
        opcode::WHO_AM_I => Operation::WhoAmI,
        opcode::EXISTS => Operation::Exists(decode_exists(input)?),
        opcode::GET_DATA => Operation::GetData(decode_get_data(input)?),
        opcode::GET_CHILDREN => Operation::GetChildren(decode_get_children(input)?),
        opcode::GET_CHILDREN2 => Operation::GetChildren2(decode_get_children2(input)?),
        opcode::GET_ACL => Operation::GetAcl(jute::GetAclRequest::decode(input)?.path),
        opcode::SYNC => Operation::Sync(jute::SyncRequest::decode(input)?.path),
        opcode::GET_EPHEMERALS => {
            Operation::GetEphemerals(jute::GetEphemeralsRequest::decode(input)?.prefix_path)
        }
        opcode::GET_ALL_CHILDREN_NUMBER => {
            Operation::GetAllChildrenNumber(jute::GetAllChildrenNumberRequest::decode(input)?.path)
        }
        opcode::DELETE => Operation::Delete(decode_delete(input)?),
        opcode::SET_DATA => Operation::SetData(decode_set_data(input)?),
        opcode::SET_ACL => Operation::SetAcl(decode_set_acl(input)?),
        opcode::MULTI => decode_multi(input)?,
        opcode::MULTI_READ => decode_multi_read(input)?,
        opcode::RECONFIG => {
            jute::ReconfigRequest::decode(input)?;
            Operation::Reconfig
        }
        opcode::CHECK_WATCHES => Operation::CheckWatches(decode_check_watches(input)?),
        opcode::REMOVE_WATCHES => Operation::RemoveWatches(decode_remove_watches(input)?),
        opcode::ADD_WATCH => Operation::AddWatch(decode_add_watch(input)?),
        opcode::SET_WATCHES => Operation::SetWatches(decode_set_watches(input)?),
        opcode::SET_WATCHES2 => Operation::SetWatches(decode_set_watches2(input)?),
        opcode => match create_opcode(opcode) {
            Some(create) => Operation::Create(decode_create(create, input)?),
            None => Operation::Unknown { opcode },
        },
    })
}

fn decode_exists(input: &mut Input<'_>) -> Result<Read, DecodeError> {
    let jute::ExistsRequest { path, watch } = Value::decode(input)?;
    Ok(Read { path, watch })
}

fn decode_get_data(input: &mut Input<'_>) -> Result<Read, DecodeError> {
    let jute::GetDataRequest { path, watch } = Value::decode(input)?;
    Ok(Read { path, watch })
}

fn decode_get_children(input: &mut Input<'_>) -> Result<Read, DecodeError> {
    let jute::GetChildrenRequest { path, watch } = Value::decode(input)?;
    Ok(Read { path, watch })
}

fn decode_get_children2(input: &mut Input<'_>) -> Result<Read, DecodeError> {
    let jute::GetChildren2Request { path, watch } = Value::decode(input)?;
    Ok(Read { path, watch })
}

fn create_opcode(opcode: i32) -> Option<CreateOpcode> {
    match opcode {
        opcode::CREATE => Some(CreateOpcode::Create),
        opcode::CREATE2 => Some(CreateOpcode::Create2),
        opcode::CREATE_CONTAINER => Some(CreateOpcode::CreateContainer),
        opcode::CREATE_TTL => Some(CreateOpcode::CreateTtl),
        _ => None,
    }
}

fn decode_create(opcode: CreateOpcode, input: &mut Input<'_>) -> Result<Create, DecodeError> {
    if opcode == CreateOpcode::CreateTtl {
        let jute::CreateTtlRequest { path, data, acl, flags, ttl } = Value::decode(input)?;
        return Ok(Create { opcode, path, data, acl, flags, ttl_ms: ttl });
    }
    let jute::CreateRequest { path, data, acl, flags } = Value::decode(input)?;
    Ok(Create { opcode, path, data, acl, flags, ttl_ms: -1 })
}

fn decode_delete(input: &mut Input<'_>) -> Result<Delete, DecodeError> {
    let jute::DeleteRequest { path, version } = Value::decode(input)?;
    Ok(Delete { path, version })
}

fn decode_set_data(input: &mut Input<'_>) -> Result<SetData, DecodeError> {
    let jute::SetDataRequest { path, data, version } = Value::decode(input)?;
    Ok(SetData { path, data, version })
}

fn decode_set_acl(input: &mut Input<'_>) -> Result<SetAcl, DecodeError> {
    let jute::SetAclRequest { path, acl, version } = Value::decode(input)?;
    Ok(SetAcl { path, acl, version })
}

fn decode_check_watches(input: &mut Input<'_>) -> Result<WatchSelection, DecodeError> {
    let jute::CheckWatchesRequest { path, type_: kind } = Value::decode(input)?;
    Ok(WatchSelection { path, kind })
}

fn decode_remove_watches(input: &mut Input<'_>) -> Result<WatchSelection, DecodeError> {
    let jute::RemoveWatchesRequest { path, type_: kind } = Value::decode(input)?;
    Ok(WatchSelection { path, kind })
}

fn decode_add_watch(input: &mut Input<'_>) -> Result<AddWatch, DecodeError> {
    let jute::AddWatchRequest { path, mode } = Value::decode(input)?;
    Ok(AddWatch { path, mode })
}

/// The persistent lists, which the record has not, are empty and not null: null is an error.
fn decode_set_watches(input: &mut Input<'_>) -> Result<SetWatches, DecodeError> {
    let record = jute::SetWatches::decode(input)?;
    Ok(SetWatches {
        relative_zxid: Zxid(record.relative_zxid),
        data: record.data_watches,
        exist: record.exist_watches,
        child: record.child_watches,
        persistent: Some(Vec::new()),
        persistent_recursive: Some(Vec::new()),
    })
}

fn decode_set_watches2(input: &mut Input<'_>) -> Result<SetWatches, DecodeError> {
    let record = jute::SetWatches2::decode(input)?;
    Ok(SetWatches {
        relative_zxid: Zxid(record.relative_zxid),
        data: record.data_watches,
        exist: record.exist_watches,
        child: record.child_watches,
        persistent: record.persistent_watches,
        persistent_recursive: record.persistent_recursive_watches,
    })
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut, BytesMut};
    use jute::{Acl, CreateRequest, Id};
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const NEW_SESSION: &[u8] = b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x27\x10\0\0\0\0\0\0\0\0";

    fn handshake(rest: &[u8]) -> Result<Handshake, DecodeError> {
        decode_connect(&Bytes::from([NEW_SESSION, rest].concat()))
    }

    fn password_and(rest: &[u8]) -> Vec<u8> {
        [&b"\0\0\0\x10"[..], &[0; 16], rest].concat()
    }

    fn frame(opcode: i32, body: &[u8]) -> Bytes {
        let mut out = BytesMut::new();
        RequestHeader { xid: 7, type_: opcode }.encode(&mut out);
        out.put_slice(body);
        out.freeze()
    }

    fn encoded(record: &impl Value) -> BytesMut {
        let mut out = BytesMut::new();
        record.encode(&mut out);
        out
    }

    fn check(opcode: i32, body: &[u8], expect: Operation) {
        let expect = Request { xid: Xid(7), operation: expect };
        assert_eq!(decode_request(&frame(opcode, body)), Ok(expect), "{opcode} {body:02x?}");
    }

    /// The record with surplus bytes is the operation; without its last byte it is undecodable.
    fn check_record(opcode: i32, record: &impl Value, expect: Operation) {
        let mut body = encoded(record);
        check(opcode, &body[..body.len() - 1], Operation::Undecodable { opcode });
        check(opcode, &[], Operation::Undecodable { opcode });
        body.put_slice(b"more");
        check(opcode, &body, expect);
    }

    fn path() -> Option<jute::Text> {
        Some("/a".into())
    }

    #[test]
    fn a_handshake_with_the_read_only_byte_is_decoded() {
        let connect = Connect {
            last_zxid_seen: Zxid(0),
            timeout_ms: 10_000,
            session: SessionId(0),
            password: Bytes::from_static(&[0; 16]),
        };
        let expect = Handshake { connect, has_read_only_byte: true, read_only: false };
        assert_eq!(handshake(&password_and(b"\0")), Ok(expect.clone()));
        assert_eq!(handshake(&password_and(b"\0surplus")), Ok(expect.clone()));
        assert_eq!(
            handshake(&password_and(b"\x02")),
            Ok(Handshake { read_only: true, ..expect.clone() })
        );
        assert_eq!(
            handshake(&password_and(b"")),
            Ok(Handshake { has_read_only_byte: false, ..expect })
        );
    }

    #[test]
    fn a_handshake_may_have_any_version_and_last_zxid() {
        let head = b"\0\0\0\x07\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFB\0\0\0\0\0\0\0\x09";
        let frame = Bytes::from([&head[..], &password_and(b"")].concat());
        let connect = decode_connect(&frame).expect("the frame is whole").connect;
        assert_eq!(connect.last_zxid_seen, Zxid(-1));
        assert_eq!(connect.timeout_ms, -5);
        assert_eq!(connect.session, SessionId(9));
    }

    #[test]
    fn a_handshake_may_have_any_password() {
        for (bytes, expect) in [
            (&b"\xFF\xFF\xFF\xFF\0"[..], &b""[..]),
            (b"\0\0\0\0\0", b""),
            (b"\0\0\0\x05abcde\0", b"abcde"),
        ] {
            let found = handshake(bytes).map(|it| (it.connect.password, it.has_read_only_byte));
            assert_eq!(found, Ok((Bytes::from_static(expect), true)));
        }
    }

    #[test]
    fn a_broken_handshake_closes_the_connection() {
        assert!(handshake(b"\xFF\xFF\xFF\xFE\0").is_err());
        assert!(handshake(b"\0\x2D\xC6\xC0\0\0\0\0").is_err());
        assert!(handshake(b"").is_err());
        assert!(decode_connect(&Bytes::new()).is_err());
        assert!(decode_connect(&Bytes::from_static(&[0; 10])).is_err());
    }

    #[test]
    fn a_broken_header_closes_the_connection() {
        for length in 0..8 {
            assert!(decode_request(&Bytes::from(vec![0; length])).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn a_second_handshake_is_an_unknown_operation() {
        let frame = Bytes::from([NEW_SESSION, &password_and(b"\0")].concat());
        let expect = Request { xid: Xid(0), operation: Operation::Unknown { opcode: 0 } };
        assert_eq!(decode_request(&frame), Ok(expect));
    }

    #[test]
    fn what_only_servers_send_and_what_nobody_serves_is_unknown() {
        for opcode in [-12, -10, -2, -1, 0, 10, 13, 20, 23, 99, 108, 200, 1000, i32::MIN] {
            check(opcode, b"\0\0\0\x02/a\xFF\xFF\xFF\xFF", Operation::Unknown { opcode });
        }
    }

    #[test]
    fn operations_without_a_record_ignore_their_body() {
        for body in [&b""[..], b"\xFF\xFF\xFF\xFErest"] {
            check(11, body, Operation::Ping);
            check(-11, body, Operation::CloseSession);
            check(107, body, Operation::WhoAmI);
        }
    }

    #[test]
    fn reads_are_decoded() {
        let read = || Read { path: path(), watch: true };
        let record = jute::ExistsRequest { path: path(), watch: true };
        check_record(3, &record, Operation::Exists(read()));
        check_record(4, &record, Operation::GetData(read()));
        check_record(8, &record, Operation::GetChildren(read()));
        check_record(12, &record, Operation::GetChildren2(read()));
        check_record(6, &path(), Operation::GetAcl(path()));
        check_record(9, &path(), Operation::Sync(path()));
        check_record(103, &path(), Operation::GetEphemerals(path()));
        check_record(104, &path(), Operation::GetAllChildrenNumber(path()));
    }

    #[test]
    fn creates_keep_the_opcode_they_came_with() {
        let id = Id { scheme: Some("world".into()), id: None };
        let acl = Some(vec![Acl { perms: -1, id }]);
        let record = CreateRequest { path: path(), data: None, acl: acl.clone(), flags: 77 };
        let opcodes = [
            (1, CreateOpcode::Create),
            (15, CreateOpcode::Create2),
            (19, CreateOpcode::CreateContainer),
        ];
        let create = |opcode, ttl_ms| {
            let (path, acl) = (path(), acl.clone());
            Operation::Create(Create { opcode, path, data: None, acl, flags: 77, ttl_ms })
        };
        for (number, opcode) in opcodes {
            check_record(number, &record, create(opcode, -1));
        }
        let mut body = encoded(&record);
        check(21, &body, Operation::Undecodable { opcode: 21 });
        body.put_i64(5000);
        check(21, &body, create(CreateOpcode::CreateTtl, 5000));
    }

    #[test]
    fn lengths_below_minus_one_are_undecodable_but_counts_are_not() {
        check(1, b"\xFF\xFF\xFF\xFE\0\0\0\0", Operation::Undecodable { opcode: 1 });
        let expect = Create {
            opcode: CreateOpcode::Create,
            path: path(),
            data: None,
            acl: Some(Vec::new()),
            flags: 0,
            ttl_ms: -1,
        };
        let body = b"\0\0\0\x02/a\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFB\0\0\0\0";
        check(1, body, Operation::Create(expect));
    }

    #[test]
    fn other_writes_are_decoded() {
        let version = -3;
        let record = jute::DeleteRequest { path: path(), version };
        check_record(2, &record, Operation::Delete(Delete { path: path(), version }));
        let data = Some(Bytes::from("x"));
        let record = jute::SetDataRequest { path: path(), data: data.clone(), version };
        check_record(5, &record, Operation::SetData(SetData { path: path(), data, version }));
        let record = jute::SetAclRequest { path: path(), acl: None, version };
        check_record(7, &record, Operation::SetAcl(SetAcl { path: path(), acl: None, version }));
        check_record(16, &jute::ReconfigRequest::default(), Operation::Reconfig);
    }

    #[test]
    fn watch_operations_are_decoded() {
        let record = jute::CheckWatchesRequest { path: path(), type_: 9 };
        let selection = || WatchSelection { path: path(), kind: 9 };
        check_record(17, &record, Operation::CheckWatches(selection()));
        check_record(18, &record, Operation::RemoveWatches(selection()));
        check_record(106, &record, Operation::AddWatch(AddWatch { path: path(), mode: 9 }));

        let data_watches = Some(vec![path(), None]);
        let record = jute::SetWatches { data_watches, ..jute::SetWatches::default() };
        let expect = SetWatches {
            data: Some(vec![path(), None]),
            persistent: Some(Vec::new()),
            persistent_recursive: Some(Vec::new()),
            ..SetWatches::default()
        };
        check_record(101, &record, Operation::SetWatches(expect));
        let record = jute::SetWatches2 { relative_zxid: 8, ..jute::SetWatches2::default() };
        let expect = SetWatches { relative_zxid: Zxid(8), ..SetWatches::default() };
        check_record(105, &record, Operation::SetWatches(expect));
    }

    #[test]
    fn a_broken_auth_or_sasl_packet_closes_the_connection() {
        let auth = Auth { scheme: Some("digest".into()), auth: Some(Bytes::from("u:p")) };
        check(100, b"\0\0\0\0\0\0\0\x06digest\0\0\0\x03u:p", Operation::Auth(auth));
        check(102, b"\0\0\0\x03abc", Operation::Sasl(Some(Bytes::from("abc"))));
        check(102, b"\xFF\xFF\xFF\xFF", Operation::Sasl(None));
        assert!(decode_request(&frame(100, b"\0\0\0\0\0\0\0\x06dig")).is_err());
        assert!(decode_request(&frame(102, b"")).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused(
            opcode in prop_oneof![-12..24, 99..109, any::<i32>()],
            body in vec(prop_oneof![3 => Just(0_u8), 1 => 1..9_u8, 1 => any::<u8>()], 0..150),
        ) {
            let _ = decode_connect(&Bytes::copy_from_slice(&body));
            let broken_is_closed = opcode == opcode::AUTH || opcode == opcode::SASL;
            prop_assert!(decode_request(&frame(opcode, &body)).is_ok() || broken_is_closed);
        }
    }
}
