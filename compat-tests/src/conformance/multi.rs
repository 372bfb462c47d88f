//! The framing of multi and multiRead: operations on the way in, results on the way out.

use anyhow::{Result, bail};

use crate::conformance::expect::expect_eq;
use crate::conformance::message::Reply;
use crate::conformance::wire::{Stat, Writer, op, open_acl, record};

/// One operation of a multi: its header and its record.
#[derive(Clone, Debug)]
pub struct Operation(pub Writer);

/// One result of a multi or multiRead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Type 1.
    Create(String),
    /// Type 15.
    Create2(String, Stat),
    /// Type 2.
    Delete,
    /// Type 5.
    SetData(Stat),
    /// Type 13.
    Check,
    /// Type 4.
    Data(Option<Vec<u8>>, Stat),
    /// Type 8, sorted.
    Children(Vec<String>),
    /// Type −1.
    Error(i32),
}

impl Operation {
    /// Any record under any type.
    #[must_use]
    pub fn new(kind: i32, body: &Writer) -> Self {
        Self(record().int(kind).byte(0).int(-1).raw(&body.clone().bytes()))
    }

    /// A create (1) with the open ACL.
    #[must_use]
    pub fn create(path: &str, flags: i32) -> Self {
        let body = record().string(path).buffer(b"").acls(&open_acl()).int(flags);
        Self::new(op::CREATE, &body)
    }

    /// A delete (2).
    #[must_use]
    pub fn delete(path: &str, version: i32) -> Self {
        Self::new(op::DELETE, &record().string(path).int(version))
    }

    /// A setData (5).
    #[must_use]
    pub fn set(path: &str, data: &[u8], version: i32) -> Self {
        Self::new(op::SET_DATA, &record().string(path).buffer(data).int(version))
    }

    /// A check (13).
    #[must_use]
    pub fn check(path: &str, version: i32) -> Self {
        Self::new(op::CHECK, &record().string(path).int(version))
    }

    /// A read (getData 4 or getChildren 8).
    #[must_use]
    pub fn read(kind: i32, path: &str, watch: bool) -> Self {
        Self::new(kind, &record().string(path).flag(watch))
    }
}

/// The body of a multi: the operations and the end marker.
#[must_use]
pub fn request(operations: &[Operation]) -> Writer {
    unfinished(operations).int(-1).byte(1).int(-1)
}

/// The operations without the end marker.
#[must_use]
pub fn unfinished(operations: &[Operation]) -> Writer {
    operations.iter().fold(record(), |body, operation| body.raw(&operation.0.clone().bytes()))
}

/// Decodes the results; the reply's header must be a success and the body must end with its marker.
///
/// # Errors
/// It is not.
pub fn outcomes(reply: &Reply) -> Result<Vec<Outcome>> {
    let mut reader = reply.reader()?;
    let mut outcomes = Vec::new();
    loop {
        let (kind, done, error) = (reader.int()?, reader.byte()?, reader.int()?);
        if done != 0 {
            expect_eq("end marker", (kind, done, error), (-1, 1, -1))?;
            reader.end()?;
            return Ok(outcomes);
        }
        if kind != -1 {
            expect_eq("error code in the header of a result", error, 0)?;
        }
        outcomes.push(match kind {
            op::CREATE => Outcome::Create(reader.string()?),
            op::CREATE2 => Outcome::Create2(reader.string()?, reader.stat()?),
            op::DELETE => Outcome::Delete,
            op::SET_DATA => Outcome::SetData(reader.stat()?),
            op::CHECK => Outcome::Check,
            op::GET_DATA => Outcome::Data(reader.buffer()?, reader.stat()?),
            op::GET_CHILDREN => {
                let mut names = reader.strings()?;
                names.sort();
                Outcome::Children(names)
            }
            -1 => {
                expect_eq("error code of a result, again", reader.int()?, error)?;
                Outcome::Error(error)
            }
            other => bail!("a result of type {other}"),
        });
    }
}
