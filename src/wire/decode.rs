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
