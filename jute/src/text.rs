//! UTF-8 text that shares the buffer it was read from, with Java's ways of reading and writing.

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use bytes::{BufMut, Bytes, BytesMut};

/// Immutable text. A clone shares the bytes.
///
/// **Invariant:** the bytes are valid UTF-8, so that every `Text` is also a Java string.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Text(Bytes);

impl Text {
    /// Text that lives as long as the program.
    pub const fn from_static(text: &'static str) -> Self {
        Self(Bytes::from_static(text.as_bytes()))
    }

    /// Reads text as Java does (`new String(bytes, UTF_8)`): it never fails, and each malformed
    /// part becomes one U+FFFD. Well-formed text shares the buffer.
    pub fn from_wire(bytes: Bytes) -> Self {
        match repaired(&bytes) {
            Cow::Borrowed(_) => Self(bytes),
            Cow::Owned(text) => Self(Bytes::from(text)),
        }
    }

    /// The text. Checks its bytes again, because `unsafe` is forbidden here: compare and store
    /// [`Text`]s rather than slices where it counts.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("a Text is made of UTF-8 only")
    }

    /// The same text in memory of its own. What is kept for long should be detached: a text from
    /// a frame keeps the whole of the read buffer.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self(Bytes::copy_from_slice(&self.0))
    }

    /// The text's UTF-8 bytes.
    pub fn as_bytes(&self) -> &Bytes {
        &self.0
    }
}

/// The bytes as text, each malformed part replaced.
///
/// Java and Rust agree on what a malformed part is, but for the encoding of a lone surrogate
/// (ED, A0 to BF, any continuation): Java's decoder takes it as one part, Rust's as three.
fn repaired(bytes: &[u8]) -> Cow<'_, str> {
    let mut rest = bytes;
    let mut text = String::new();
    loop {
        let error = match std::str::from_utf8(rest) {
            Ok(valid) if text.is_empty() && rest.len() == bytes.len() => return valid.into(),
            Ok(valid) => {
                text.push_str(valid);
                return text.into();
            }
            Err(error) => error,
        };
        let (valid, malformed) = rest.split_at(error.valid_up_to());
        text.push_str(&String::from_utf8_lossy(valid));
        text.push(char::REPLACEMENT_CHARACTER);
        let skipped = match malformed {
            [0xED, 0xA0..=0xBF, 0x80..=0xBF, ..] => 3,
            [0xED, 0xA0..=0xBF, ..] => 2,
            _ => error.error_len().unwrap_or(malformed.len()),
        };
        rest = malformed.get(skipped..).unwrap_or_default();
    }
}

/// The length of a text on the wire, without the length word: see [`put_java_utf8`].
pub(crate) fn java_utf8_len(text: &[u8]) -> usize {
    text.len() + 2 * text.iter().filter(|byte| is_supplementary(**byte)).count()
}

/// Writes text as ZooKeeper does: each UTF-16 unit on its own, so that a character above U+FFFF
/// becomes two encoded surrogates of three bytes (`BinaryOutputArchive.stringToByteBuffer`).
pub(crate) fn put_java_utf8(out: &mut BytesMut, text: &str) {
    if !text.bytes().any(is_supplementary) {
        out.put_slice(text.as_bytes());
        return;
    }
    for character in text.chars() {
        let mut units = [0; 2];
        match character.encode_utf16(&mut units) {
            [high, low] => {
                out.put_slice(&three_bytes(*high));
                out.put_slice(&three_bytes(*low));
            }
            _ => out.put_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

/// Does this byte begin a character above U+FFFF?
fn is_supplementary(byte: u8) -> bool {
    byte >= 0xF0
}

/// UTF-8's form of three bytes, which holds any 16 bits.
fn three_bytes(unit: u16) -> [u8; 3] {
    let [high, low] = unit.to_be_bytes();
    [0xE0 | high >> 4, 0x80 | (high & 0x0F) << 2 | low >> 6, 0x80 | low & 0x3F]
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for Text {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl Borrow<str> for Text {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

/// The hash of the `str`, as [`Borrow`] demands.
impl Hash for Text {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(Bytes::from(text))
    }
}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.as_str(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_read(bytes: &'static [u8], expect: &str) {
        assert_eq!(Text::from_wire(Bytes::from_static(bytes)).as_str(), expect, "{bytes:02x?}");
    }

    fn check_written(text: &str, expect: &[u8]) {
        let mut out = BytesMut::new();
        put_java_utf8(&mut out, text);
        assert_eq!(out, expect, "{text}");
        assert_eq!(java_utf8_len(text.as_bytes()), expect.len(), "{text}");
    }

    #[test]
    fn well_formed_text_shares_the_buffer() {
        let bytes = Bytes::from(String::from("/caf\u{e9}\u{1f600}"));
        let text = Text::from_wire(bytes.clone());
        assert_eq!(text.as_bytes().as_ptr(), bytes.as_ptr());
        assert_eq!(text, "/caf\u{e9}\u{1f600}");
        assert_eq!(text.detached(), text);
        assert_ne!(text.detached().as_bytes().as_ptr(), bytes.as_ptr());
    }

    #[test]
    fn a_lone_surrogate_is_read_as_one_replacement() {
        check_read(b"\xED\xA0\x80", "\u{fffd}");
        check_read(b"a\xED\xBF\xBFb", "a\u{fffd}b");
        check_read(b"\xED\xA0\xBD\xED\xB8\x80", "\u{fffd}\u{fffd}");
    }

    #[test]
    fn a_broken_surrogate_is_read_as_one_replacement_up_to_the_break() {
        check_read(b"\xED\xA0", "\u{fffd}");
        check_read(b"\xED\xA0A", "\u{fffd}A");
        check_read(b"\xEDA", "\u{fffd}A");
    }

    #[test]
    fn other_malformed_parts_are_read_as_one_replacement_each() {
        check_read(b"\x80\x80", "\u{fffd}\u{fffd}");
        check_read(b"\xC0\x80", "\u{fffd}\u{fffd}");
        check_read(b"\xC3", "\u{fffd}");
        check_read(b"\xC3A", "\u{fffd}A");
        check_read(b"\xE0\x80\x80", "\u{fffd}\u{fffd}\u{fffd}");
        check_read(b"\xE2\x82", "\u{fffd}");
        check_read(b"\xE2\x82A", "\u{fffd}A");
        check_read(b"\xF0\x9F\x98", "\u{fffd}");
        check_read(b"\xF0\x9F\x98A", "\u{fffd}A");
        check_read(b"\xF0\x80\x80\x80", "\u{fffd}\u{fffd}\u{fffd}\u{fffd}");
        check_read(b"\xF4\x90\x80\x80", "\u{fffd}\u{fffd}\u{fffd}\u{fffd}");
        check_read(b"\xFF\xFEok", "\u{fffd}\u{fffd}ok");
    }

    #[test]
    fn a_character_above_the_first_plane_is_written_as_two_surrogates() {
        check_written("\u{1f600}", b"\xED\xA0\xBD\xED\xB8\x80");
        check_written("a\u{10ffff}\u{e9}", b"a\xED\xAF\xBF\xED\xBF\xBF\xC3\xA9");
    }

    #[test]
    fn other_text_is_written_as_it_is() {
        check_written("", b"");
        check_written("/caf\u{e9}\u{ffff}", "/caf\u{e9}\u{ffff}".as_bytes());
    }

    #[test]
    fn text_prints_and_hashes_as_a_str_does() {
        let map = std::collections::HashMap::from([(Text::from("/a"), 1)]);
        assert_eq!(map.get("/a"), Some(&1));
        assert_eq!(format!("{:?} {}", Text::from("\"\n"), Text::from("x")), "\"\\\"\\n\" x");
    }
}
