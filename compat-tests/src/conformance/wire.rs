//! The suite's own encoder and decoder of ZooKeeper's bytes, a few lines on purpose.
//!
//! It shares nothing with the codec of the server under test, so that it can judge it.

use anyhow::{Context, Result, bail};

/// Opcodes, from `ZooDefs.OpCode`.
pub mod op {
    #![allow(missing_docs, reason = "the names are ZooKeeper's own")]
    pub const CREATE: i32 = 1;
    pub const DELETE: i32 = 2;
    pub const EXISTS: i32 = 3;
    pub const GET_DATA: i32 = 4;
    pub const SET_DATA: i32 = 5;
    pub const GET_ACL: i32 = 6;
    pub const SET_ACL: i32 = 7;
    pub const GET_CHILDREN: i32 = 8;
    pub const SYNC: i32 = 9;
    pub const PING: i32 = 11;
    pub const GET_CHILDREN2: i32 = 12;
    pub const CHECK: i32 = 13;
    pub const MULTI: i32 = 14;
    pub const CREATE2: i32 = 15;
    pub const CHECK_WATCHES: i32 = 17;
    pub const REMOVE_WATCHES: i32 = 18;
    pub const CREATE_CONTAINER: i32 = 19;
    pub const DELETE_CONTAINER: i32 = 20;
    pub const CREATE_TTL: i32 = 21;
    pub const MULTI_READ: i32 = 22;
    pub const AUTH: i32 = 100;
    pub const SET_WATCHES: i32 = 101;
    pub const SASL: i32 = 102;
    pub const GET_EPHEMERALS: i32 = 103;
    pub const GET_ALL_CHILDREN_NUMBER: i32 = 104;
    pub const SET_WATCHES2: i32 = 105;
    pub const ADD_WATCH: i32 = 106;
    pub const WHO_AM_I: i32 = 107;
    pub const CLOSE_SESSION: i32 = -11;
}

/// Error codes, from `KeeperException.Code`.
pub mod code {
    #![allow(missing_docs, reason = "the names are ZooKeeper's own")]
    pub const RUNTIME_INCONSISTENCY: i32 = -2;
    pub const MARSHALLING_ERROR: i32 = -5;
    pub const UNIMPLEMENTED: i32 = -6;
    pub const BAD_ARGUMENTS: i32 = -8;
    pub const NO_NODE: i32 = -101;
    pub const NO_AUTH: i32 = -102;
    pub const BAD_VERSION: i32 = -103;
    pub const NO_CHILDREN_FOR_EPHEMERALS: i32 = -108;
    pub const NODE_EXISTS: i32 = -110;
    pub const NOT_EMPTY: i32 = -111;
    pub const INVALID_ACL: i32 = -114;
    pub const AUTH_FAILED: i32 = -115;
    pub const NO_WATCHER: i32 = -121;
    pub const QUOTA_EXCEEDED: i32 = -125;
}

/// Event types of notifications, from `Watcher.Event.EventType`.
pub mod event {
    #![allow(missing_docs, reason = "the names are ZooKeeper's own")]
    pub const CREATED: i32 = 1;
    pub const DELETED: i32 = 2;
    pub const DATA_CHANGED: i32 = 3;
    pub const CHILDREN_CHANGED: i32 = 4;
}

/// One entry of an access control list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    /// Permission bits.
    pub perms: i32,
    /// Scheme, such as `world`.
    pub scheme: String,
    /// Id, such as `anyone`.
    pub id: String,
}

/// An ACL entry from its three parts.
#[must_use]
pub fn acl(perms: i32, scheme: &str, id: &str) -> Acl {
    Acl { perms, scheme: scheme.to_owned(), id: id.to_owned() }
}

/// The open ACL: everything for `world:anyone`.
#[must_use]
pub fn open_acl() -> Vec<Acl> {
    vec![acl(31, "world", "anyone")]
}

/// The Stat record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are ZooKeeper's own")]
pub struct Stat {
    pub czxid: i64,
    pub mzxid: i64,
    pub ctime: i64,
    pub mtime: i64,
    pub version: i32,
    pub cversion: i32,
    pub aversion: i32,
    pub ephemeral_owner: i64,
    pub data_length: i32,
    pub num_children: i32,
    pub pzxid: i64,
}

/// Builds the bytes of a request, field by field.
#[derive(Clone, Debug, Default)]
pub struct Writer(Vec<u8>);

/// An empty request record.
#[must_use]
pub fn record() -> Writer {
    Writer::default()
}

impl Writer {
    /// Bytes as they are.
    #[must_use]
    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// One byte.
    #[must_use]
    pub fn byte(self, value: u8) -> Self {
        self.raw(&[value])
    }

    /// A boolean.
    #[must_use]
    pub fn flag(self, value: bool) -> Self {
        self.byte(u8::from(value))
    }

    /// A 32-bit number.
    #[must_use]
    pub fn int(self, value: i32) -> Self {
        self.raw(&value.to_be_bytes())
    }

    /// A 64-bit number.
    #[must_use]
    pub fn long(self, value: i64) -> Self {
        self.raw(&value.to_be_bytes())
    }

    /// A length or count.
    #[must_use]
    pub fn count(self, value: usize) -> Self {
        self.int(i32::try_from(value).expect("test data is small"))
    }

    /// A null string, buffer or vector.
    #[must_use]
    pub fn null(self) -> Self {
        self.int(-1)
    }

    /// A buffer.
    #[must_use]
    pub fn buffer(self, bytes: &[u8]) -> Self {
        self.count(bytes.len()).raw(bytes)
    }

    /// A string.
    #[must_use]
    pub fn string(self, text: &str) -> Self {
        self.buffer(text.as_bytes())
    }

    /// A vector of strings.
    #[must_use]
    pub fn strings(self, texts: &[&str]) -> Self {
        texts.iter().fold(self.count(texts.len()), |writer, text| writer.string(text))
    }

    /// A vector of ACL entries.
    #[must_use]
    pub fn acls(self, acls: &[Acl]) -> Self {
        acls.iter().fold(self.count(acls.len()), |writer, acl| {
            writer.int(acl.perms).string(&acl.scheme).string(&acl.id)
        })
    }

    /// The bytes so far.
    #[must_use]
    pub fn bytes(self) -> Vec<u8> {
        self.0
    }
}

/// Reads the bytes of an answer, field by field.
#[derive(Clone, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads from the first byte on.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// So many bytes.
    ///
    /// # Errors
    /// The answer is shorter.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(count).with_context(|| {
            format!("the answer ends {} bytes early", count.saturating_sub(self.0.len()))
        })?;
        self.0 = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(self.take(N)?.try_into().expect("take gives what was asked for"))
    }

    /// One byte.
    ///
    /// # Errors
    /// The answer is shorter.
    pub fn byte(&mut self) -> Result<u8> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    /// A 32-bit number.
    ///
    /// # Errors
    /// The answer is shorter.
    pub fn int(&mut self) -> Result<i32> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    /// A 64-bit number.
    ///
    /// # Errors
    /// The answer is shorter.
    pub fn long(&mut self) -> Result<i64> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    /// A buffer, `None` for null.
    ///
    /// # Errors
    /// The answer is shorter, or the length is below −1.
    pub fn buffer(&mut self) -> Result<Option<Vec<u8>>> {
        match self.int()? {
            -1 => Ok(None),
            length => {
                let length = usize::try_from(length).context("a length below -1")?;
                Ok(Some(self.take(length)?.to_vec()))
            }
        }
    }

    /// A string that is not null.
    ///
    /// # Errors
    /// The answer is shorter, or the string is null or not UTF-8.
    pub fn string(&mut self) -> Result<String> {
        let bytes = self.buffer()?.context("a null string")?;
        String::from_utf8(bytes).context("a string that is not UTF-8")
    }

    /// A vector of strings.
    ///
    /// # Errors
    /// The answer is shorter, or the vector is null.
    pub fn strings(&mut self) -> Result<Vec<String>> {
        (0..self.int()?).map(|_| self.string()).collect()
    }

    /// A vector of ACL entries.
    ///
    /// # Errors
    /// The answer is shorter.
    pub fn acls(&mut self) -> Result<Vec<Acl>> {
        let count = self.int()?;
        (0..count)
            .map(|_| Ok(Acl { perms: self.int()?, scheme: self.string()?, id: self.string()? }))
            .collect()
    }

    /// A Stat.
    ///
    /// # Errors
    /// The answer is shorter.
    pub fn stat(&mut self) -> Result<Stat> {
        Ok(Stat {
            czxid: self.long()?,
            mzxid: self.long()?,
            ctime: self.long()?,
            mtime: self.long()?,
            version: self.int()?,
            cversion: self.int()?,
            aversion: self.int()?,
            ephemeral_owner: self.long()?,
            data_length: self.int()?,
            num_children: self.int()?,
            pzxid: self.long()?,
        })
    }

    /// Nothing may be left.
    ///
    /// # Errors
    /// Something is left.
    pub fn end(&self) -> Result<()> {
        if !self.0.is_empty() {
            bail!("{} surplus bytes: {}", self.0.len(), hex(self.0));
        }
        Ok(())
    }
}

/// Bytes as hexadecimal digits, for messages and for expectations written as in a dump.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    let shown: String = bytes.iter().take(200).map(|byte| format!("{byte:02x}")).collect();
    if bytes.len() > 200 { format!("{shown}... ({} bytes)", bytes.len()) } else { shown }
}
