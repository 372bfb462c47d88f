//! ZooKeeper's record encoding.
//!
//! This is a stand-in for the generated records, with the same names; the codec replaces it.
#![allow(missing_docs)]
use bytes::Bytes;

/// UTF-8 text that shares the buffer it came from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Text(Bytes);

impl Text {
    pub const fn from_static(text: &'static str) -> Self { Self(Bytes::from_static(text.as_bytes())) }
    pub fn as_str(&self) -> &str { std::str::from_utf8(&self.0).unwrap_or_default() }
}
impl std::ops::Deref for Text { type Target = str; fn deref(&self) -> &str { self.as_str() } }
impl From<&str> for Text { fn from(text: &str) -> Self { Self(Bytes::copy_from_slice(text.as_bytes())) } }
impl From<String> for Text { fn from(text: String) -> Self { Self(Bytes::from(text)) } }

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Id { pub scheme: Option<Text>, pub id: Option<Text> }
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Acl { pub perms: i32, pub id: Id }
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stat { pub czxid: i64, pub mzxid: i64, pub ctime: i64, pub mtime: i64, pub version: i32, pub cversion: i32, pub aversion: i32, pub ephemeral_owner: i64, pub data_length: i32, pub num_children: i32, pub pzxid: i64 }
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientInfo { pub auth_scheme: Option<Text>, pub user: Option<Text> }
