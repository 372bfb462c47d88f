//! The lists of multi and multiRead, and what makes upstream refuse a list as a whole.
//!
//! Anything else that is wrong with one operation is that operation's own result.

use jute::{CheckVersionRequest, DecodeError, Input, MultiHeader, Text, Value};

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

/// A create whose flags are no mode, or a TTL mode without a TTL, or whose ACL is null, refuses
/// the list; the same create alone would get a code of its own, and so does a createTTL here.
///
/// A null id in an ACL is not looked for: upstream trips over it only when it comes to that
/// operation, and not if one before it has failed.
fn checked(create: Create) -> Result<Create, Undecodable> {
    let is_sound = (0..=4).contains(&create.flags) && create.acl.is_some();
    if is_sound || create.opcode == CreateOpcode::CreateTtl { Ok(create) } else { Err(Undecodable) }
}

fn path(operation: &MultiOperation) -> Option<&Text> {
    match operation {
        MultiOperation::Create(create) => create.path.as_ref(),
        MultiOperation::Delete(delete) => delete.path.as_ref(),
        MultiOperation::SetData(set_data) => set_data.path.as_ref(),
        MultiOperation::Check(check) => check.path.as_ref(),
    }
}

#[cfg(test)]
mod tests {
    use bytes::{Bytes, BytesMut};
    use jute::{
        Acl, CreateRequest, CreateTtlRequest, DeleteRequest, GetDataRequest, Id, SetDataRequest,
    };

    use super::*;

    /// The list under construction.
    #[derive(Default)]
    struct List(BytesMut);

    impl List {
        fn with(mut self, type_: i32, record: &impl Value) -> Self {
            MultiHeader { type_, done: false, err: -1 }.encode(&mut self.0);
            record.encode(&mut self.0);
            self
        }

        fn end(mut self) -> Bytes {
            MultiHeader { type_: -1, done: true, err: -1 }.encode(&mut self.0);
            self.0.freeze()
        }
    }

    fn path() -> Option<Text> {
        Some("/m".into())
    }

    fn acl(scheme: Option<&str>, id: Option<&str>) -> Vec<Acl> {
        vec![Acl { perms: 31, id: Id { scheme: scheme.map(Text::from), id: id.map(Text::from) } }]
    }

    fn create() -> CreateRequest {
        let acl = Some(acl(Some("world"), Some("anyone")));
        CreateRequest { path: path(), data: None, acl, flags: 0 }
    }

    fn delete() -> DeleteRequest {
        DeleteRequest { path: path(), version: 4 }
    }

    fn multi(list: &Bytes) -> Option<Vec<MultiOperation>> {
        match decode_multi(&mut Input::new(list)) {
            Ok(Operation::Multi(operations)) => Some(operations),
            _ => None,
        }
    }

    fn multi_read(list: &Bytes) -> Option<Vec<MultiReadOperation>> {
        match decode_multi_read(&mut Input::new(list)) {
            Ok(Operation::MultiRead(operations)) => Some(operations),
            _ => None,
        }
    }

    fn check_refused(type_: i32, record: &impl Value) {
        let list = List::default().with(2, &delete()).with(type_, record).end();
        assert_eq!(multi(&list), None, "type {type_}");
    }

    fn check_taken(type_: i32, record: &impl Value) {
        let list = List::default().with(2, &delete()).with(type_, record).end();
        assert_eq!(multi(&list).map(|it| it.len()), Some(2), "type {type_}");
    }

    #[test]
    fn a_list_is_decoded_in_order() {
        let set_data = SetDataRequest { path: path(), data: None, version: 4 };
        let list = List::default().with(1, &create()).with(2, &delete());
        let operations = multi(&list.with(5, &set_data).with(13, &delete()).end());
        let Some(
            [
                MultiOperation::Create(create),
                MultiOperation::Delete(delete),
                MultiOperation::SetData(set_data),
                MultiOperation::Check(check),
            ],
        ) = operations.as_deref()
        else {
            panic!("not the operations of the list: {operations:?}");
        };
        assert_eq!((create.opcode, create.ttl_ms), (CreateOpcode::Create, -1));
        assert_eq!((delete.version, set_data.version, check.version), (4, 4, 4));
    }

    #[test]
    fn an_empty_list_is_taken() {
        assert_eq!(multi(&List::default().end()), Some(Vec::new()));
        assert_eq!(multi_read(&List::default().end()), Some(Vec::new()));
    }

    #[test]
    fn only_done_ends_a_list() {
        let list = List::default().with(2, &delete()).0;
        assert_eq!(multi(&list.clone().freeze()), None);
        let ended = |header: MultiHeader| {
            let mut list = list.clone();
            header.encode(&mut list);
            multi(&list.freeze()).map(|operations| operations.len())
        };
        assert_eq!(ended(MultiHeader { type_: 1, done: true, err: 0 }), Some(1));
        assert_eq!(ended(MultiHeader { type_: -1, done: false, err: -1 }), None);
    }

    #[test]
    fn a_type_that_multi_does_not_serve_refuses_the_list() {
        let read = GetDataRequest { path: path(), watch: false };
        for type_ in [3, 4, 8, 12, 6, 9, 7, 20, 14, 0, -1, 1000] {
            check_refused(type_, &read);
        }
    }

    #[test]
    fn a_null_path_refuses_the_list() {
        check_refused(1, &CreateRequest { path: None, ..create() });
        check_refused(2, &DeleteRequest { path: None, version: -1 });
        check_refused(5, &SetDataRequest { path: None, data: None, version: -1 });
        check_refused(13, &DeleteRequest { path: None, version: -1 });
    }

    #[test]
    fn flags_that_are_no_mode_of_the_type_refuse_the_list() {
        for type_ in [1, 15, 19] {
            for flags in 0..=4 {
                check_taken(type_, &CreateRequest { flags, ..create() });
            }
            for flags in [-1, 5, 6, 7, 77] {
                check_refused(type_, &CreateRequest { flags, ..create() });
            }
        }
        let CreateRequest { path, data, acl, .. } = create();
        let mut record = CreateTtlRequest { path, data, acl, flags: 0, ttl: 5 };
        for flags in -1..=7 {
            record.flags = flags;
            check_taken(21, &record);
        }
        record.acl = None;
        check_taken(21, &record);
    }

    #[test]
    fn a_null_acl_refuses_the_list_but_one_that_is_only_invalid_does_not() {
        let with = |acl| CreateRequest { acl, ..create() };
        check_refused(1, &with(None));
        check_taken(1, &with(Some(Vec::new())));
        check_taken(1, &with(Some(acl(Some("world"), None))));
        check_taken(1, &with(Some(acl(None, None))));
        check_taken(1, &with(Some(acl(Some("nosuch"), Some("")))));
    }

    #[test]
    fn a_multi_read_has_reads_only() {
        let read = GetDataRequest { path: path(), watch: true };
        let list = || List::default().with(4, &read).with(8, &read);
        let expect = [MultiReadOperation::GetData(path()), MultiReadOperation::GetChildren(path())];
        assert_eq!(multi_read(&list().end()).as_deref(), Some(&expect[..]));
        assert_eq!(multi_read(&list().with(2, &delete()).end()), None);
        assert_eq!(multi_read(&list().with(3, &read).end()), None);
        assert_eq!(multi_read(&list().with(8, &GetDataRequest::default()).end()), None);
        assert_eq!(multi_read(&list().0.freeze()), None);
    }
}
