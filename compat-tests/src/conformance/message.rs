//! What a server sends after the handshake: answers and notifications.

use anyhow::Result;

use crate::conformance::expect::expect_eq;
use crate::conformance::wire::{Acl, Reader, Stat, hex};

/// The xid of notifications, from `ClientCnxn.NOTIFICATION_XID`.
pub const NOTIFICATION_XID: i32 = -1;
/// A frame that answers a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The request's number.
    pub xid: i32,
    /// The header's zxid.
    pub zxid: i64,
    /// The header's error code.
    pub error: i32,
    /// What follows the header.
    pub body: Vec<u8>,
}

/// A notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Event type, see [`crate::conformance::wire::event`].
    pub kind: i32,
    /// The node's path.
    pub path: String,
    /// The header's zxid.
    pub zxid: i64,
}

/// A frame after the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// An answer.
    Reply(Reply),
    /// A notification.
    Event(Event),
}

impl Reply {
    /// The answer must be a success.
    ///
    /// # Errors
    /// It is not.
    pub fn ok(&self) -> Result<&Self> {
        expect_eq("error code", self.error, 0)?;
        Ok(self)
    }

    /// The answer must be a success of the header alone.
    ///
    /// # Errors
    /// It is not.
    pub fn ok_empty(&self) -> Result<&Self> {
        self.ok()?;
        expect_eq("body", hex(&self.body), String::new())?;
        Ok(self)
    }

    /// The answer must be this error, the header alone.
    ///
    /// # Errors
    /// It is not.
    pub fn fails(&self, code: i32) -> Result<&Self> {
        expect_eq("error code", self.error, code)?;
        expect_eq("body of an error", hex(&self.body), String::new())?;
        Ok(self)
    }

    /// Reads the body of a success.
    ///
    /// # Errors
    /// It is an error.
    pub fn reader(&self) -> Result<Reader<'_>> {
        self.ok()?;
        Ok(Reader::new(&self.body))
    }

    /// A body that is one string.
    ///
    /// # Errors
    /// It is not.
    pub fn text(&self) -> Result<String> {
        let mut reader = self.reader()?;
        let text = reader.string()?;
        reader.end()?;
        Ok(text)
    }

    /// A body that is a Stat.
    ///
    /// # Errors
    /// It is not.
    pub fn stat(&self) -> Result<Stat> {
        let mut reader = self.reader()?;
        let stat = reader.stat()?;
        reader.end()?;
        Ok(stat)
    }

    /// A body that is a string and a Stat (create2).
    ///
    /// # Errors
    /// It is not.
    pub fn text_and_stat(&self) -> Result<(String, Stat)> {
        let mut reader = self.reader()?;
        let pair = (reader.string()?, reader.stat()?);
        reader.end()?;
        Ok(pair)
    }

    /// A body that is a buffer and a Stat (getData).
    ///
    /// # Errors
    /// It is not.
    pub fn data_and_stat(&self) -> Result<(Option<Vec<u8>>, Stat)> {
        let mut reader = self.reader()?;
        let pair = (reader.buffer()?, reader.stat()?);
        reader.end()?;
        Ok(pair)
    }

    /// A body that is an ACL list and a Stat (getACL).
    ///
    /// # Errors
    /// It is not.
    pub fn acls_and_stat(&self) -> Result<(Vec<Acl>, Stat)> {
        let mut reader = self.reader()?;
        let pair = (reader.acls()?, reader.stat()?);
        reader.end()?;
        Ok(pair)
    }

    /// A body that is a vector of strings, sorted: servers promise no order.
    ///
    /// # Errors
    /// It is not.
    pub fn names(&self) -> Result<Vec<String>> {
        let mut reader = self.reader()?;
        let mut names = reader.strings()?;
        reader.end()?;
        names.sort();
        Ok(names)
    }
}

impl Message {
    /// Decodes a frame.
    ///
    /// # Errors
    /// It is neither an answer nor a notification as clients expect them.
    pub fn decode(frame: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(frame);
        let (xid, zxid, error) = (reader.int()?, reader.long()?, reader.int()?);
        if xid != NOTIFICATION_XID {
            let body = frame.get(16..).unwrap_or_default().to_vec();
            return Ok(Self::Reply(Reply { xid, zxid, error, body }));
        }
        expect_eq("error code of a notification", error, 0)?;
        let kind = reader.int()?;
        expect_eq("state of a notification", reader.int()?, 3)?;
        let path = reader.string()?;
        reader.end()?;
        Ok(Self::Event(Event { kind, path, zxid }))
    }
}
