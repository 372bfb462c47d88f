//! The lists of multi and multiRead, and what makes upstream refuse a list as a whole.
//!
//! Anything else that is wrong with one operation is that operation's own result.

use jute::{Acl, CheckVersionRequest, DecodeError, Input, MultiHeader, Text, Value};

use crate::keeper::request::{
    Check, Create, CreateOpcode, MultiOperation, MultiReadOperation, Operation,
};
use crate::wire::decode::{
    Undecodable, create_opcode, decode_create, decode_delete, decode_get_children, decode_get_data,
    decode_set_data,
};
use crate::wire::opcode;

/// The operations of a multi, with opcode and flags as they were sent.
///
/// A null path, which upstream trips over when it notes the parents
/// (`PrepRequestProcessor.getPendingChanges`), refuses the list, as do a type that is not served
/// here (reads among them) and a missing end.
pub(super) fn decode_multi(input: &mut Input<'_>) -> Result<Operation, Undecodable> {
    let mut operations = Vec::new();
    while let Some(opcode) = decode_opcode(input)? {
        let operation = match opcode {
            opcode::DELETE => MultiOperation::Delete(decode_delete(input)?),
            opcode::SET_DATA => MultiOperation::SetData(decode_set_data(input)?),
            opcode::CHECK => MultiOperation::Check(decode_check(input)?),
            opcode => {
                let opcode = create_opcode(opcode).ok_or(Undecodable)?;
                MultiOperation::Create(checked(decode_create(opcode, input)?)?)
            }
        };
        path(&operation).ok_or(Undecodable)?;
        operations.push(operation);
    }
    Ok(Operation::Multi(operations))
}

/// The operations of a multiRead. Their watch flags are ignored: no watch is left.
///
/// A null path breaks the whole reply upstream, wherever it stands.
pub(super) fn decode_multi_read(input: &mut Input<'_>) -> Result<Operation, Undecodable> {
    let mut operations = Vec::new();
    while let Some(opcode) = decode_opcode(input)? {
        let (operation, path) = match opcode {
            opcode::GET_DATA => {
                let path = decode_get_data(input)?.path;
                (MultiReadOperation::GetData(path.clone()), path)
            }
            opcode::GET_CHILDREN => {
                let path = decode_get_children(input)?.path;
                (MultiReadOperation::GetChildren(path.clone()), path)
            }
            _ => return Err(Undecodable),
        };
        path.ok_or(Undecodable)?;
        operations.push(operation);
    }
    Ok(Operation::MultiRead(operations))
}

/// The next operation's type; `None` at the end of the list. Only `done` ends it
/// (`MultiOperationRecord.deserialize`).
fn decode_opcode(input: &mut Input<'_>) -> Result<Option<i32>, DecodeError> {
    let header = MultiHeader::decode(input)?;
    Ok((!header.done).then_some(header.type_))
}

fn decode_check(input: &mut Input<'_>) -> Result<Check, DecodeError> {
    let CheckVersionRequest { path, version } = Value::decode(input)?;
    Ok(Check { path, version })
}

/// A create whose flags are no mode, or a TTL mode without a TTL, or whose ACL is null or has a
/// null id, refuses the list; the same create alone would get a code of its own.
fn checked(create: Create) -> Result<Create, Undecodable> {
    let flags_max = if create.opcode == CreateOpcode::CreateTtl { 6 } else { 4 };
    let acl = create.acl.as_ref().ok_or(Undecodable)?;
    if !(0..=flags_max).contains(&create.flags) || acl.iter().any(lacks_id) {
        return Err(Undecodable);
    }
    Ok(create)
}

/// The id of an `auth` entry is not looked at, and an entry without a scheme is an invalid ACL.
fn lacks_id(acl: &Acl) -> bool {
    let scheme = acl.id.scheme.as_ref();
    acl.id.id.is_none() && scheme.is_some_and(|scheme| *scheme != "auth")
}

fn path(operation: &MultiOperation) -> Option<&Text> {
    match operation {
        MultiOperation::Create(create) => create.path.as_ref(),
        MultiOperation::Delete(delete) => delete.path.as_ref(),
        MultiOperation::SetData(set_data) => set_data.path.as_ref(),
        MultiOperation::Check(check) => check.path.as_ref(),
    }
}
