//! What is played: sessions in slots, and what each does, in batches of pipelined requests.
//!
//! Every step stands on its own, so that any of them can be left out when a failure is shrunk.

use std::fmt;

use crate::conformance::wire::{Writer, hex};

/// A number in a request that each server has a value of its own for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symbol {
    /// The largest zxid in the answers to the slot's session, 0 at first.
    LastZxid,
    /// The largest zxid in the answers to the slot's session so many of its batches ago.
    OlderZxid(usize),
    /// A zxid that the server will not reach.
    FutureZxid,
}

/// A part of a request record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Bytes as they are.
    Bytes(Vec<u8>),
    /// 8 bytes that each server has a value of its own for.
    Symbol(Symbol),
}

/// A request after the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The number in its header.
    pub xid: i32,
    /// The opcode in its header.
    pub opcode: i32,
    /// Its record.
    pub body: Vec<Part>,
    /// For people: what it is.
    pub text: String,
}

/// What a slot does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Opens a new session (the slot must not have a connection).
    Open {
        /// The timeout it asks for.
        timeout_ms: i32,
        /// The readOnly byte, if it is sent.
        read_only: Option<u8>,
        /// The zxid it says it has seen.
        seen: Option<Symbol>,
    },
    /// Sends a request.
    Send(Request),
    /// Sends bytes as they are, after which the server is expected to close.
    Break(Vec<u8>),
    /// Closes the connection without a word.
    Drop,
    /// Goes on with the slot's last session on a new connection, the old one left open if it is.
    Resume {
        /// The timeout it asks for.
        timeout_ms: i32,
        /// Whether the password is right.
        right_password: bool,
        /// Whether it goes to the next server, where there are several.
        moves: bool,
        /// The zxid it says it has seen.
        seen: Option<Symbol>,
    },
}

/// One step of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its place in the script that the seed gave; what is left out leaves a gap.
    pub number: usize,
    /// Steps of one batch are requests of one slot, sent in one write.
    pub batch: usize,
    /// Whose step it is.
    pub slot: usize,
    /// What it is.
    pub action: Action,
}

/// A script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// The node below which it works.
    pub root: String,
    /// Its steps, in order.
    pub steps: Vec<Step>,
}

impl Script {
    /// The steps with these numbers only.
    #[must_use]
    pub fn only(&self, numbers: &[usize]) -> Self {
        let kept = self.steps.iter().filter(|step| numbers.contains(&step.number));
        Self { root: self.root.clone(), steps: kept.cloned().collect() }
    }

    /// The steps' numbers.
    #[must_use]
    pub fn numbers(&self) -> Vec<usize> {
        self.steps.iter().map(|step| step.number).collect()
    }

    /// The batches in order.
    pub fn batches(&self) -> impl Iterator<Item = &[Step]> {
        self.steps.chunk_by(|one, next| one.batch == next.batch)
    }

    /// How many requests are in it.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.steps.iter().filter(|step| matches!(step.action, Action::Send(_))).count()
    }
}

impl Request {
    /// A request whose record is known.
    #[must_use]
    pub fn new(opcode: i32, body: Writer, text: String) -> Self {
        Self { xid: 0, opcode, body: vec![Part::Bytes(body.bytes())], text }
    }
}

/// The name of a slot.
#[must_use]
pub fn slot_name(slot: usize) -> char {
    u8::try_from(slot).ok().and_then(|slot| b'A'.checked_add(slot)).map_or('?', char::from)
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{:<4} batch {:<4} {}: ", self.number, self.batch, slot_name(self.slot))?;
        match &self.action {
            Action::Send(request) => {
                write!(f, "[xid {}, op {}] {}", request.xid, request.opcode, request.text)
            }
            Action::Break(bytes) => write!(f, "sends the bytes {}", hex(bytes)),
            other => write!(f, "{other:?}"),
        }
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.steps {
            writeln!(f, "{step}")?;
        }
        Ok(())
    }
}
