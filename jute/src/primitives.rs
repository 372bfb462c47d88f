//! What is the same in all records: int, long, boolean, ustring, buffer and vector on the wire.
//!
//! All numbers are big-endian. A null ustring, buffer or vector has the length -1.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::error::{DecodeError, Fault};
use crate::text::{Text, java_utf8_len, put_java_utf8};

/// Upstream's default of `jute.maxbuffer`, in bytes.
pub const MAXBUFFER_DEFAULT: usize = 0xF_FFFF;

/// The most bytes that one ustring or buffer may announce under a given `jute.maxbuffer`
/// (`BinaryInputArchive.checkLength`: the extra size defaults to the buffer's, at least 1024).
pub const fn field_bytes_max(maxbuffer: usize) -> usize {
    let extra = if maxbuffer < 1024 { 1024 } else { maxbuffer };
    maxbuffer.saturating_add(extra)
}

/// A value that has a form on the wire.
pub trait Value: Sized {
    /// The fewest bytes that any value of the type takes.
    const LEN_MIN: usize;

    /// The number of bytes that [`Self::encode`] appends.
    fn encoded_len(&self) -> usize;

    /// Appends the value.
    fn encode(&self, out: &mut BytesMut);

    /// Takes the value off the front of the input.
    ///
    /// # Errors
    /// If the input is too short, or announces a length out of bounds.
    fn decode(input: &mut Input<'_>) -> Result<Self, DecodeError>;
}

/// Bytes to decode, and how far they have been read. What is taken out shares the frame.
#[derive(Debug)]
pub struct Input<'a> {
    frame: &'a Bytes,
    position: usize,
    field_bytes_max: usize,
}

impl<'a> Input<'a> {
    /// All of a frame, under the default `jute.maxbuffer`.
    pub fn new(frame: &'a Bytes) -> Self {
        Self::with_maxbuffer(frame, MAXBUFFER_DEFAULT)
    }

    /// All of a frame, under another `jute.maxbuffer`.
    pub fn with_maxbuffer(frame: &'a Bytes, maxbuffer: usize) -> Self {
        Self { frame, position: 0, field_bytes_max: field_bytes_max(maxbuffer) }
    }

    /// How many bytes have not been read.
    pub fn left(&self) -> usize {
        self.frame.len().saturating_sub(self.position)
    }

    /// Reads a record's field; an error names both.
    ///
    /// # Errors
    /// As [`Value::decode`].
    pub fn field<T: Value>(
        &mut self,
        record: &'static str,
        field: &'static str,
    ) -> Result<T, DecodeError> {
        T::decode(self).map_err(|error| error.within(record, field))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let rest = self.frame.get(self.position..).unwrap_or_default();
        let Some(taken) = rest.first_chunk::<N>() else {
            return Err(Fault::Truncated { needed: N, left: rest.len() }.into());
        };
        self.position = self.position.saturating_add(N);
        Ok(*taken)
    }

    fn int(&mut self) -> Result<i32, DecodeError> {
        self.array().map(i32::from_be_bytes)
    }

    fn bytes(&mut self) -> Result<Option<Bytes>, DecodeError> {
        let length = self.int()?;
        if length == -1 {
            return Ok(None);
        }
        let max = self.field_bytes_max;
        let needed = usize::try_from(length)
            .ok()
            .filter(|needed| *needed <= max)
            .ok_or(Fault::Length { length, max })?;
        self.reserve(needed)?;
        let start = self.position;
        self.position = start.saturating_add(needed);
        Ok(Some(self.frame.slice(start..self.position)))
    }

    /// Nothing is taken or allocated before it is known to be there.
    fn reserve(&self, needed: usize) -> Result<(), DecodeError> {
        let left = self.left();
        if needed > left {
            return Err(Fault::Truncated { needed, left }.into());
        }
        Ok(())
    }
}

/// Appends an int.
pub fn put_int(out: &mut BytesMut, value: i32) {
    out.put_i32(value);
}

/// Appends a ustring that is not null.
pub fn put_ustring(out: &mut BytesMut, text: &str) {
    put_length(out, java_utf8_len(text.as_bytes()));
    put_java_utf8(out, text);
}

/// The number of bytes that [`put_ustring`] appends.
pub fn ustring_len(text: &str) -> usize {
    INT_LEN + java_utf8_len(text.as_bytes())
}

/// Appends a buffer that is not null.
pub fn put_buffer(out: &mut BytesMut, bytes: &[u8]) {
    put_length(out, bytes.len());
    out.put_slice(bytes);
}

/// Appends the length word of a ustring, buffer or vector that is not null.
///
/// # Panics
/// If the length is above 2^31-1, which no client could read.
pub fn put_length(out: &mut BytesMut, length: usize) {
    put_int(out, i32::try_from(length).expect("a field is shorter than 2 GiB"));
}

/// Appends the length word of a ustring, buffer or vector that is null.
pub fn put_null(out: &mut BytesMut) {
    put_int(out, -1);
}

const INT_LEN: usize = size_of::<i32>();

impl Value for i8 {
    const LEN_MIN: usize = 1;

    fn encoded_len(&self) -> usize {
        1
    }

    fn encode(&self, out: &mut BytesMut) {
        out.put_i8(*self);
    }

    fn decode(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        input.array().map(Self::from_be_bytes)
    }
}

impl Value for bool {
    const LEN_MIN: usize = 1;

    fn encoded_len(&self) -> usize {
        1
    }

    fn encode(&self, out: &mut BytesMut) {
        out.put_u8(u8::from(*self));
    }

    /// Any byte but 0 is true (`DataInputStream.readBoolean`).
    fn decode(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        input.array().map(|[byte]| byte != 0)
    }
}

impl Value for i32 {
    const LEN_MIN: usize = INT_LEN;

    fn encoded_len(&self) -> usize {
        INT_LEN
    }

    fn encode(&self, out: &mut BytesMut) {
        put_int(out, *self);
    }

    fn decode(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        input.int()
    }
}

impl Value for i64 {
    const LEN_MIN: usize = size_of::<Self>();

    fn encoded_len(&self) -> usize {
        Self::LEN_MIN
    }

    fn encode(&self, out: &mut BytesMut) {
        out.put_i64(*self);
    }

    fn decode(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        input.array().map(Self::from_be_bytes)
    }
}

impl Value for Option<Bytes> {
    const LEN_MIN: usize = INT_LEN;

    fn encoded_len(&self) -> usize {
        INT_LEN + self.as_ref().map_or(0, Buf::remaining)
    }

    fn encode(&self, out: &mut BytesMut) {
        match self {
            Some(bytes) => put_buffer(out, bytes),
            None => put_null(out),
        }
    }

    fn decode(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        input.bytes()
    }
}

impl Value for Option<Text> {
    const LEN_MIN: usize = INT_LEN;

    fn encoded_len(&self) -> usize {
        INT_LEN + self.as_ref().map_or(0, |text| java_utf8_len(text.as_bytes()))
    }

    fn encode(&self, out: &mut BytesMut) {
        match self {
            Some(text) => put_ustring(out, text),
            None => put_null(out),
        }
    }

    fn decode(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        Ok(input.bytes()?.map(Text::from_wire))
    }
}

impl<T: Value> Value for Option<Vec<T>> {
    const LEN_MIN: usize = INT_LEN;

    fn encoded_len(&self) -> usize {
        INT_LEN + self.iter().flatten().map(Value::encoded_len).sum::<usize>()
    }

    fn encode(&self, out: &mut BytesMut) {
        let Some(elements) = self else {
            return put_null(out);
        };
        put_length(out, elements.len());
        elements.iter().for_each(|element| element.encode(out));
    }

    /// A negative count other than -1 is an empty vector, as upstream's generated loops have it.
    fn decode(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        const { assert!(T::LEN_MIN > 0, "else a short frame could hold 2^31-1 elements") }
        let count = input.int()?;
        if count == -1 {
            return Ok(None);
        }
        let count = usize::try_from(count).unwrap_or(0);
        input.reserve(count.saturating_mul(T::LEN_MIN))?;
        let mut elements = Vec::with_capacity(count);
        for _ in 0..count {
            elements.push(T::decode(input)?);
        }
        Ok(Some(elements))
    }
}
