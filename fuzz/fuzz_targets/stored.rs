//! What a store may hold: keys and values that somebody else has written are read or refused, and
//! what is read and written again stays the same.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use zkshim::keeper::keyspace::{
    NodeValue, SessionValue, Slot, decode_acl, decode_creates, decode_meta, decode_number,
    decode_pzxid, decode_steps, encode_acl, encode_steps,
};

fuzz_target!(|data: &[u8]| {
    let value = Bytes::copy_from_slice(data);
    if let Some(slot) = Slot::parse(data) {
        assert_eq!(Slot::parse(&slot.key()), Some(slot));
    }
    if let Some(node) = NodeValue::decode(value.clone()) {
        assert_eq!(NodeValue::decode(node.encode()), Some(node));
    }
    if let Some(session) = SessionValue::decode(value.clone()) {
        assert_eq!(SessionValue::decode(session.encode()), Some(session));
    }
    if let Some((aversion, acl)) = decode_acl(value.clone()) {
        assert_eq!(decode_acl(encode_acl(aversion, &acl)), Some((aversion, acl)));
    }
    if let Some(steps) = decode_steps(value.clone()) {
        assert_eq!(decode_steps(encode_steps(&steps)), Some(steps));
    }
    let _ = decode_creates(value.clone());
    let _ = decode_pzxid(value.clone());
    let _ = decode_number(value.clone());
    let _ = decode_meta(value);
});
