//! Values of keys that no znode has: the layout, and what shims tell one another of sessions
//! without a key.

use crate::keeper::keyspace::{LAYOUT, RECORD, ShimId};
use crate::keeper::request::SessionId;
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The value of `meta`.
pub fn encode_meta(offset: i64) -> Bytes {
    let mut out = BytesMut::with_capacity(13);
    out.put_u8(RECORD);
    out.put_u32(LAYOUT);
    out.put_i64(offset);
    out.freeze()
}

/// Read `meta`: the layout and the zxid offset.
pub fn decode_meta(mut value: Bytes) -> Option<(u32, i64)> {
    (value.try_get_u8().ok()? == RECORD).then_some(())?;
    Some((value.try_get_u32().ok()?, value.try_get_i64().ok()?))
}

/// The value of an `x` key.
pub fn encode_number(number: u64) -> Bytes {
    let mut out = BytesMut::with_capacity(9);
    out.put_u8(RECORD);
    out.put_u64(number);
    out.freeze()
}

/// Read an `x` key's value.
pub fn decode_number(mut value: Bytes) -> Option<u64> {
    (value.try_get_u8().ok()? == RECORD).then_some(())?;
    value.try_get_u64().ok()
}

/// The value of `l`: a batch, by its shim and its number.
pub fn encode_last(shim: ShimId, number: u64) -> Bytes {
    let mut out = BytesMut::with_capacity(17);
    out.put_u8(RECORD);
    out.put_u64(shim.0);
    out.put_u64(number);
    out.freeze()
}

/// Read `l`.
pub fn decode_last(mut value: Bytes) -> Option<(ShimId, u64)> {
    (value.try_get_u8().ok()? == RECORD).then_some(())?;
    Some((ShimId(value.try_get_u64().ok()?), value.try_get_u64().ok()?))
}

/// The value of `e<shim>`.
pub fn encode_ended(sessions: &[SessionId]) -> Bytes {
    let mut out = BytesMut::with_capacity(1 + 8 * sessions.len());
    out.put_u8(RECORD);
    sessions.iter().for_each(|session| out.put_i64(session.0));
    out.freeze()
}

/// Read `e<shim>`.
pub fn decode_ended(mut value: Bytes) -> Option<Vec<SessionId>> {
    (value.try_get_u8().ok()? == RECORD).then_some(())?;
    let mut sessions = Vec::with_capacity(value.len() / 8);
    while let Ok(session) = value.try_get_i64() {
        sessions.push(SessionId(session));
    }
    value.is_empty().then_some(sessions)
}

/// The value of `u<session>`.
pub fn encode_spent() -> Bytes {
    Bytes::from_static(&[RECORD])
}

/// The value of `k`.
pub fn encode_secret(secret: [u8; 32]) -> Bytes {
    let mut out = BytesMut::with_capacity(33);
    out.put_u8(RECORD);
    out.put_slice(&secret);
    out.freeze()
}

/// Read `k`.
pub fn decode_secret(value: &[u8]) -> Option<[u8; 32]> {
    let (record, secret) = value.split_first()?;
    (*record == RECORD).then_some(())?;
    secret.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        assert_eq!(decode_meta(encode_meta(-2)), Some((LAYOUT, -2)));
        assert_eq!(decode_number(encode_number(9)), Some(9));
        assert_eq!(decode_last(encode_last(ShimId(3), 9)), Some((ShimId(3), 9)));
        let sessions = vec![SessionId(1), SessionId(i64::MAX)];
        assert_eq!(decode_ended(encode_ended(&sessions)), Some(sessions));
        assert_eq!(decode_ended(encode_ended(&[])), Some(Vec::new()));
        assert_eq!(decode_secret(&encode_secret([9; 32])), Some([9; 32]));
    }

    #[test]
    fn what_is_cut_short_or_of_another_form_is_not_read() {
        let ended = encode_ended(&[SessionId(1)]);
        assert_eq!(decode_ended(ended.slice(..5)), None);
        assert_eq!(decode_ended(Bytes::new()), None);
        assert_eq!(decode_secret(&encode_secret([9; 32])[..32]), None);
        assert_eq!(decode_secret(&[2; 33]), None);
        assert_eq!(decode_secret(&[]), None);
    }
}
