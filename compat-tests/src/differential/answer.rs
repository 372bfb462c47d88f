//! Takes answers apart into tokens: what must be equal to the byte, and what each server has
//! values of its own for.

use anyhow::{Result, bail};

use crate::conformance::wire::{Reader, op};

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    /// Equal to the byte.
    Raw(Vec<u8>),
    /// The zxid of a change.
    Zxid(i64),
    /// A time in ms; only 0 is equal.
    Time(i64),
    /// A session's id, or 0.
    Session(i64),
    /// Elements without an order.
    Set(Vec<Vec<u8>>),
}

/// The header of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The request's number.
    pub xid: i32,
    /// The zxid.
    pub zxid: i64,
    /// The error code.
    pub error: i32,
}

/// Splits a frame into header and body.
///
/// # Errors
/// It is shorter than a header.
pub fn header(frame: &[u8]) -> Result<(Header, &[u8])> {
    let mut reader = Reader::new(frame);
    let header = Header { xid: reader.int()?, zxid: reader.long()?, error: reader.int()? };
    Ok((header, frame.get(16..).unwrap_or_default()))
}

/// The tokens of a body; what does not decode is raw as a whole.
#[must_use]
pub fn tokens(opcode: i32, error: i32, body: &[u8]) -> Vec<Token> {
    if error != 0 || body.is_empty() {
        return vec![Token::Raw(body.to_vec())];
    }
    let mut input = Input { reader: Reader::new(body), tokens: Vec::new() };
    match input.body(opcode) {
        Ok(()) if input.reader.end().is_ok() => input.tokens,
        _ => vec![Token::Raw(body.to_vec())],
    }
}

/// Whether a multi's answer tells of a change: it succeeded and something was written.
#[must_use]
pub fn multi_changed(body: &[u8]) -> bool {
    let mut input = Input { reader: Reader::new(body), tokens: Vec::new() };
    let mut changed = false;
    loop {
        match input.multi_entry() {
            Ok(Some(-1)) | Err(_) => return false,
            Ok(Some(kind)) => changed |= kind != op::CHECK,
            Ok(None) => return changed,
        }
    }
}

/// The error codes of a multi's entries, 0 for the others.
#[must_use]
pub fn multi_is_empty(body: &[u8]) -> bool {
    let mut input = Input { reader: Reader::new(body), tokens: Vec::new() };
    matches!(input.multi_entry(), Ok(None))
}

struct Input<'a> {
    reader: Reader<'a>,
    tokens: Vec<Token>,
}

impl Input<'_> {
    fn body(&mut self, opcode: i32) -> Result<()> {
        match opcode {
            op::CREATE | op::SYNC => self.raw_buffer(),
            op::EXISTS | op::SET_DATA | op::SET_ACL => self.stat(),
            op::CREATE2 | op::CREATE_CONTAINER | op::CREATE_TTL | op::GET_DATA => {
                self.raw_buffer()?;
                self.stat()
            }
            op::GET_ACL => {
                self.acls()?;
                self.stat()
            }
            op::GET_CHILDREN | op::GET_EPHEMERALS => self.strings(),
            op::GET_CHILDREN2 => {
                self.strings()?;
                self.stat()
            }
            op::WHO_AM_I => self.client_infos(),
            op::MULTI | op::MULTI_READ => {
                while self.multi_entry()?.is_some() {}
                Ok(())
            }
            _ => bail!("no record is known"),
        }
    }

    /// The entry's type, `None` for the end marker.
    fn multi_entry(&mut self) -> Result<Option<i32>> {
        let (kind, done, error) = (self.reader.int()?, self.reader.byte()?, self.reader.int()?);
        let head = [kind.to_be_bytes().as_slice(), &[done], &error.to_be_bytes()].concat();
        self.tokens.push(Token::Raw(head));
        if done != 0 {
            return Ok(None);
        }
        match kind {
            -1 => self.raw(4)?,
            op::DELETE | op::CHECK => {}
            known => self.body(known)?,
        }
        Ok(Some(kind))
    }

    fn raw(&mut self, count: usize) -> Result<()> {
        let bytes = self.reader.take(count)?.to_vec();
        self.tokens.push(Token::Raw(bytes));
        Ok(())
    }

    fn raw_buffer(&mut self) -> Result<()> {
        let bytes = match self.reader.buffer()? {
            Some(bytes) => [b"+".as_slice(), &bytes].concat(),
            None => b"null".to_vec(),
        };
        self.tokens.push(Token::Raw(bytes));
        Ok(())
    }

    fn stat(&mut self) -> Result<()> {
        for _ in 0..2 {
            self.tokens.push(Token::Zxid(self.reader.long()?));
        }
        for _ in 0..2 {
            self.tokens.push(Token::Time(self.reader.long()?));
        }
        self.raw(12)?;
        self.tokens.push(Token::Session(self.reader.long()?));
        self.raw(8)?;
        self.tokens.push(Token::Zxid(self.reader.long()?));
        Ok(())
    }

    fn strings(&mut self) -> Result<()> {
        let mut names = Vec::new();
        for _ in 0..self.reader.int()? {
            names.push(self.reader.buffer()?.unwrap_or_else(|| b"\0null".to_vec()));
        }
        names.sort();
        self.tokens.push(Token::Set(names));
        Ok(())
    }

    /// Entries keep their order; only the expansion of `auth` has none, see the deviations.
    fn acls(&mut self) -> Result<()> {
        let count = self.reader.int()?;
        self.tokens.push(Token::Raw(count.to_be_bytes().to_vec()));
        for _ in 0..count {
            self.raw(4)?;
            self.raw_buffer()?;
            self.raw_buffer()?;
        }
        Ok(())
    }

    fn client_infos(&mut self) -> Result<()> {
        let mut infos = Vec::new();
        for _ in 0..self.reader.int()? {
            let (scheme, user) = (self.reader.buffer()?, self.reader.buffer()?);
            infos.push(format!("{scheme:?} {user:?}").into_bytes());
        }
        infos.sort();
        self.tokens.push(Token::Set(infos));
        Ok(())
    }
}
