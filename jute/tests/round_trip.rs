//! Properties of all records, and the rules for lengths, one by one.

use bytes::{BufMut, Bytes, BytesMut};
use jute::primitives::{field_bytes_max, put_ustring, ustring_len};
use jute::{Acl, CreateRequest, Fault, Id, Input, Text, Value};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

include!(concat!(env!("OUT_DIR"), "/record_list.rs"));

/// Any value that is read back as it was written: text without characters above U+FFFF, which
/// are written as surrogates and read as replacements.
trait Any: Sized + std::fmt::Debug + 'static {
    fn any() -> BoxedStrategy<Self>;
}

impl Any for i32 {
    fn any() -> BoxedStrategy<Self> {
        any::<Self>().boxed()
    }
}

impl Any for i64 {
    fn any() -> BoxedStrategy<Self> {
        any::<Self>().boxed()
    }
}

impl Any for bool {
    fn any() -> BoxedStrategy<Self> {
        any::<Self>().boxed()
    }
}

impl Any for Option<Text> {
    fn any() -> BoxedStrategy<Self> {
        let text = vec(proptest::char::range('\0', '\u{FFFF}'), 0..12);
        option::of(text.prop_map(|text| Text::from(text.into_iter().collect::<String>()))).boxed()
    }
}

impl Any for Option<Bytes> {
    fn any() -> BoxedStrategy<Self> {
        option::of(vec(any::<u8>(), 0..40).prop_map(Bytes::from)).boxed()
    }
}

impl<T: Any> Any for Option<Vec<T>> {
    fn any() -> BoxedStrategy<Self> {
        option::of(vec(T::any(), 0..5)).boxed()
    }
}

fn encoded<T: Value>(value: &T) -> Bytes {
    let mut out = BytesMut::new();
    value.encode(&mut out);
    out.freeze()
}

/// `decode(encode(x)) = x`, the length is exact, and no shorter input will do.
fn check_round_trip<T: Value + PartialEq + std::fmt::Debug>(value: T) {
    let bytes = encoded(&value);
    assert_eq!(value.encoded_len(), bytes.len(), "{value:?}");
    let mut input = Input::new(&bytes);
    assert_eq!(T::decode(&mut input).as_ref(), Ok(&value));
    assert_eq!(input.left(), 0);
    for cut in [0, bytes.len() / 2, bytes.len() - 1] {
        assert!(T::decode(&mut Input::new(&bytes.slice(..cut))).is_err(), "{value:?} cut at {cut}");
    }
}

/// What decodes can be written again.
fn check_any_bytes<T: Value + PartialEq + std::fmt::Debug>(bytes: &Bytes) {
    if let Ok(value) = T::decode(&mut Input::new(bytes)) {
        assert_eq!(encoded(&value).len(), value.encoded_len(), "{value:?}");
    }
}

macro_rules! check_all {
    ($($record:ident { $($field:ident $name:literal),* })*) => {
        $(impl Any for jute::$record {
            fn any() -> BoxedStrategy<Self> {
                $(let $field = Any::any();)*
                ($($field,)*).prop_map(|($($field,)*)| Self { $($field),* }).boxed()
            }
        })*

        #[test]
        fn every_record_round_trips() {
            $(proptest!(ProptestConfig::with_cases(64), |(record in jute::$record::any())| {
                check_round_trip(record);
            });)*
        }

        #[test]
        fn any_bytes_decode_or_fail() {
            proptest!(|(bytes in vec(any::<u8>(), 0..120), zeros in 0..40_usize)| {
                let mut sparse = vec![0; zeros];
                sparse.extend_from_slice(&bytes);
                for bytes in [Bytes::from(bytes), Bytes::from(sparse)] {
                    $(check_any_bytes::<jute::$record>(&bytes);)*
                }
            });
        }

        #[test]
        fn the_least_length_is_that_of_the_empty_record() {
            $(assert_eq!(jute::$record::default().encoded_len(), jute::$record::LEN_MIN);)*
        }
    };
}

each_record!(check_all);

fn check<T: Value + PartialEq + std::fmt::Debug>(bytes: &[u8], expect: Result<T, Fault>) {
    let bytes = Bytes::copy_from_slice(bytes);
    let found = T::decode(&mut Input::new(&bytes)).map_err(|error| error.fault());
    assert_eq!(found, expect, "{bytes:02x?}");
}

#[test]
fn any_byte_but_zero_is_true() {
    check(&[0], Ok(false));
    check(&[1], Ok(true));
    check(&[2], Ok(true));
    check(&[0xFF], Ok(true));
}

#[test]
fn the_length_minus_one_is_null() {
    check::<Option<Bytes>>(b"\xFF\xFF\xFF\xFF", Ok(None));
    check::<Option<Text>>(b"\xFF\xFF\xFF\xFF", Ok(None));
    check::<Option<Vec<i32>>>(b"\xFF\xFF\xFF\xFF", Ok(None));
    check::<Option<Bytes>>(b"\0\0\0\0", Ok(Some(Bytes::new())));
}

#[test]
fn any_other_negative_count_is_an_empty_vector() {
    check::<Option<Vec<i32>>>(b"\xFF\xFF\xFF\xFB", Ok(Some(Vec::new())));
    check::<Option<Vec<i32>>>(b"\x80\0\0\0", Ok(Some(Vec::new())));
    check::<Option<Vec<i32>>>(b"\0\0\0\0", Ok(Some(Vec::new())));
}

#[test]
fn a_negative_length_is_a_fault() {
    let max = 2_097_150;
    check::<Option<Bytes>>(b"\xFF\xFF\xFF\xFE", Err(Fault::Length { length: -2, max }));
    check::<Option<Text>>(b"\x80\0\0\0", Err(Fault::Length { length: i32::MIN, max }));
}

#[test]
fn a_length_above_the_bound_is_a_fault_of_its_own() {
    let max = 2_097_150;
    check::<Option<Bytes>>(b"\0\x1F\xFF\xFF", Err(Fault::Length { length: 2_097_151, max }));
    let needed = 2_097_150;
    check::<Option<Text>>(b"\0\x1F\xFF\xFE", Err(Fault::Truncated { needed, left: 0 }));
}

#[test]
fn the_bound_follows_the_maxbuffer() {
    assert_eq!(field_bytes_max(0xF_FFFF), 2_097_150);
    assert_eq!(field_bytes_max(100), 1124);
    let bytes = Bytes::from_static(b"\0\0\x04\x65");
    let found = Option::<Bytes>::decode(&mut Input::with_maxbuffer(&bytes, 100));
    assert_eq!(found, Err(Fault::Length { length: 1125, max: 1124 }.into()));
}

#[test]
fn a_count_beyond_the_input_is_refused_before_anything_is_allocated() {
    let needed = 0x7FFF_FFFF * 12;
    check::<Option<Vec<Acl>>>(b"\x7F\xFF\xFF\xFF\0\0", Err(Fault::Truncated { needed, left: 2 }));
}

#[test]
fn text_and_buffers_share_the_frame() {
    let frame = Bytes::from(b"\0\0\0\x02/a\0\0\0\x03xyz\xFF\xFF\xFF\xFF\0\0\0\0".to_vec());
    let record = CreateRequest::decode(&mut Input::new(&frame)).expect("the bytes are a record");
    let path = record.path.expect("the path is not null");
    let data = record.data.expect("the data is not null");
    assert_eq!(path.as_bytes().as_ptr(), frame.slice(4..).as_ptr());
    assert_eq!(data.as_ptr(), frame.slice(10..).as_ptr());
}

#[test]
fn surplus_bytes_are_left_alone() {
    let bytes = Bytes::from_static(b"\0\0\0\x07more");
    let mut input = Input::new(&bytes);
    assert_eq!(i32::decode(&mut input), Ok(7));
    assert_eq!(input.left(), 4);
}

#[test]
fn an_error_names_the_way_to_the_fault() {
    let mut bytes = BytesMut::new();
    put_ustring(&mut bytes, "/a");
    bytes.put_slice(b"\0\0\0\0\0\0\0\x01\0\0\0\x1F\0\0\0\x05world\xFF\xFF\xFF");
    let error = CreateRequest::decode(&mut Input::new(&bytes.freeze()));
    let expect = "CreateRequest.acl: ACL.id: Id.id: 4 bytes needed, 3 left";
    assert_eq!(error.map_err(|error| error.to_string()), Err(expect.into()));
}

#[test]
fn a_list_of_names_can_be_written_by_hand() {
    let names = ["a", "caf\u{e9}", "\u{1f600}"];
    let record: Option<Vec<Option<Text>>> =
        Some(names.iter().map(|name| Some(Text::from(*name))).collect());
    let mut out = BytesMut::new();
    jute::primitives::put_length(&mut out, names.len());
    names.iter().for_each(|name| put_ustring(&mut out, name));
    assert_eq!(out, encoded(&record));
    assert_eq!(out.len(), 4 + names.iter().map(|name| ustring_len(name)).sum::<usize>());
}

#[test]
fn a_character_above_the_first_plane_comes_back_as_two_replacements() {
    let id = Id { scheme: Some("\u{1f600}".into()), id: None };
    let bytes = encoded(&id);
    assert_eq!(bytes, &b"\0\0\0\x06\xED\xA0\xBD\xED\xB8\x80\xFF\xFF\xFF\xFF"[..]);
    assert_eq!(id.encoded_len(), bytes.len());
    let expect = Id { scheme: Some("\u{fffd}\u{fffd}".into()), id: None };
    assert_eq!(Id::decode(&mut Input::new(&bytes)), Ok(expect));
}
