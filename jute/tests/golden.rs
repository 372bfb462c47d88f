//! Bytes that were captured from ZooKeeper 3.9.5.
//!
//! `golden/upstream.txt` holds what its own classes make of every record of the schema
//! (`golden/Upstream.java`); the others were seen on the wire.

use bytes::{Bytes, BytesMut};
use jute::{
    Acl, AuthPacket, ClientInfo, ConnectRequest, ConnectResponse, GetAclResponse,
    GetChildrenResponse, GetDataResponse, Id, Input, Record, ReplyHeader, RequestHeader, Stat,
    Text, Value, WatcherEvent, WhoAmIResponse,
};

include!(concat!(env!("OUT_DIR"), "/record_list.rs"));

const UPSTREAM: &str = include_str!("golden/upstream.txt");

fn bytes(hex: &str) -> Bytes {
    let digits: Vec<u32> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| pair.iter().fold(0, |sum, digit| sum * 16 + *digit as u8)).collect()
}

/// The bytes are the value, and the value is the bytes.
fn check<T: Value + PartialEq + std::fmt::Debug>(hex: &str, value: T) {
    let bytes = bytes(hex);
    let mut out = BytesMut::new();
    value.encode(&mut out);
    assert_eq!(out, bytes, "{value:?}");
    assert_eq!(value.encoded_len(), bytes.len(), "{value:?}");
    let mut input = Input::new(&bytes);
    assert_eq!(T::decode(&mut input), Ok(value));
    assert_eq!(input.left(), 0);
}

/// A value made from a field's name, as `Upstream.java` does it.
trait Named: Sized {
    fn named(name: &'static str) -> Self;
}

impl Named for i32 {
    fn named(name: &'static str) -> Self {
        name.bytes().fold(0, |hash: Self, byte| hash.wrapping_mul(31).wrapping_add(byte.into()))
    }
}

impl Named for i64 {
    fn named(name: &'static str) -> Self {
        Self::from(i32::named(name)).wrapping_mul(0x1_0000_0001)
    }
}

impl Named for bool {
    fn named(_: &'static str) -> Self {
        true
    }
}

impl Named for Option<Text> {
    fn named(name: &'static str) -> Self {
        Some(Text::from_static(name))
    }
}

impl Named for Option<Bytes> {
    fn named(name: &'static str) -> Self {
        Some(Bytes::from_static(name.as_bytes()))
    }
}

impl<T: Named> Named for Option<Vec<T>> {
    fn named(name: &'static str) -> Self {
        Some(vec![T::named(name)])
    }
}

macro_rules! check_against_upstream {
    ($($record:ident { $($field:ident $name:literal),* })*) => {
        $(impl Named for jute::$record {
            fn named(_: &'static str) -> Self {
                Self { $($field: Named::named($name)),* }
            }
        })*

        #[test]
        fn every_record_is_encoded_as_upstream_does() {
            let mut lines = UPSTREAM.lines();
            $(
                let line = lines.next().expect("there is a line for each record");
                let (name, hex) = line.split_once(' ').expect("a line is a name and bytes");
                assert_eq!(name, <jute::$record as Record>::NAME);
                check(hex, jute::$record::named(""));
            )*
            assert_eq!(lines.next(), None);
        }
    };
}

each_record!(check_against_upstream);

#[test]
fn a_handshake_is_as_on_the_wire() {
    let request = ConnectRequest {
        time_out: 10_000,
        passwd: Some(Bytes::from_static(&[0; 16])),
        ..ConnectRequest::default()
    };
    let zeros = "00000000000000000000000000000000";
    check(
        &format!("000000000000000000000000000027100000000000000000 00000010 {zeros} 00"),
        request,
    );
    let password = "cda2bce3d6b02619f35aa2b90f547d0f";
    let response = ConnectResponse {
        time_out: 10_000,
        session_id: 0x0100_0008_95b9_0000,
        passwd: Some(bytes(password)),
        ..ConnectResponse::default()
    };
    check(&format!("00000000 00002710 0100000895b90000 00000010 {password} 00"), response);
}

#[test]
fn headers_are_as_on_the_wire() {
    check("fffffffe 0000000b", RequestHeader { xid: -2, type_: 11 });
    check("fffffffe 00000000000003a3 00000000", ReplyHeader { xid: -2, zxid: 0x3a3, err: 0 });
    check("00000011 00000000000003a4 ffffff9b", ReplyHeader { xid: 17, zxid: 0x3a4, err: -101 });
    check("00000001 ffffffffffffffff fffffffa", ReplyHeader { xid: 1, zxid: -1, err: -6 });
}

#[test]
fn bodies_are_as_on_the_wire() {
    let scheme = Some(Text::from("digest"));
    let auth = Some(Bytes::from("u:p"));
    check("00000000 00000006 646967657374 00000003 753a70", AuthPacket { type_: 0, scheme, auth });

    let stat = Stat {
        czxid: 0x3a4,
        mzxid: 0x3a4,
        ctime: 0x01a2_2924_6408,
        mtime: 0x01a2_2924_6408,
        data_length: 2,
        pzxid: 0x3a4,
        ..Stat::default()
    };
    let stat_hex = "00000000000003a4 00000000000003a4 000001a229246408 000001a229246408 \
                    00000000 00000000 00000000 0000000000000000 00000002 00000000 \
                    00000000000003a4";
    let data = Some(Bytes::from("hi"));
    check(&format!("00000002 6869 {stat_hex}"), GetDataResponse { data, stat: stat.clone() });

    let world = Id { scheme: Some("world".into()), id: Some("anyone".into()) };
    let acl = Some(vec![Acl { perms: 31, id: world }]);
    let hex = "00000001 0000001f 00000005 776f726c64 00000006 616e796f6e65";
    check(&format!("{hex} {stat_hex}"), GetAclResponse { acl, stat });

    let children = Some(vec![Some("x".into())]);
    check("00000001 00000001 78", GetChildrenResponse { children });

    let path = Some(Text::from("/w/n"));
    check("00000003 00000003 00000004 2f772f6e", WatcherEvent { type_: 3, state: 3, path });

    let ip = ClientInfo { auth_scheme: Some("ip".into()), user: Some("127.0.0.1".into()) };
    let hex = "00000001 00000002 6970 00000009 3132372e302e302e31";
    check(hex, WhoAmIResponse { client_info: Some(vec![ip]) });
}
