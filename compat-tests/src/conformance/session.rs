//! The handshake: ConnectRequest and ConnectResponse, with every field free to be wrong.

use std::net::SocketAddr;

use anyhow::{Context, Result};

use crate::conformance::expect::expect_eq;
use crate::conformance::socket::Socket;
use crate::conformance::wire::{Reader, record};

/// A ConnectRequest; the default asks for a new session of 10 s.
#[derive(Clone, Debug)]
pub struct ConnectRequest {
    /// Ignored by servers.
    pub protocol: i32,
    /// The last zxid seen.
    pub last_zxid: i64,
    /// Wanted timeout in ms.
    pub timeout_ms: i32,
    /// 0 for a new session.
    pub session: i64,
    /// `None` is the null buffer.
    pub password: Option<Vec<u8>>,
    /// `None` leaves the byte out, as clients up to 3.3 do.
    pub read_only: Option<u8>,
}

impl Default for ConnectRequest {
    fn default() -> Self {
        Self {
            protocol: 0,
            last_zxid: 0,
            timeout_ms: 10_000,
            session: 0,
            password: Some(vec![0; 16]),
            read_only: Some(0),
        }
    }
}

impl ConnectRequest {
    /// Asks to go on with a session.
    #[must_use]
    pub fn resume(session: &ConnectResponse) -> Self {
        Self {
            session: session.session,
            password: Some(session.password.clone()),
            timeout_ms: session.timeout_ms,
            ..Self::default()
        }
    }

    /// The bytes of the record, without the frame's length.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let head = record().int(self.protocol).long(self.last_zxid).int(self.timeout_ms);
        let head = head.long(self.session);
        let body = match &self.password {
            Some(password) => head.buffer(password),
            None => head.null(),
        };
        self.read_only.iter().fold(body, |body, byte| body.byte(*byte)).bytes()
    }
}

/// A ConnectResponse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectResponse {
    /// Always 0.
    pub protocol: i32,
    /// Negotiated timeout in ms; 0 is a rejection.
    pub timeout_ms: i32,
    /// The session's id; 0 is a rejection.
    pub session: i64,
    /// 16 bytes.
    pub password: Vec<u8>,
    /// Only there if the request had it.
    pub read_only: Option<u8>,
}

impl ConnectResponse {
    /// Decodes a frame; the whole frame must be used.
    ///
    /// # Errors
    /// The frame is not a ConnectResponse.
    pub fn decode(frame: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(frame);
        let response = Self {
            protocol: reader.int()?,
            timeout_ms: reader.int()?,
            session: reader.long()?,
            password: reader.buffer()?.context("a null password")?,
            read_only: if reader.end().is_ok() { None } else { Some(reader.byte()?) },
        };
        reader.end()?;
        Ok(response)
    }

    /// The answer to a session that is not accepted.
    #[must_use]
    pub fn rejected(read_only: Option<u8>) -> Self {
        Self { protocol: 0, timeout_ms: 0, session: 0, password: vec![0; 16], read_only }
    }

    /// A new session must look like one.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn expect_accepted(&self) -> Result<()> {
        expect_eq("protocol version", self.protocol, 0)?;
        expect_eq("negotiated timeout is positive", self.timeout_ms > 0, true)?;
        expect_eq("session id is not 0", self.session != 0, true)?;
        expect_eq("password length", self.password.len(), 16)
    }
}

/// Opens a connection, sends the request and reads the answer.
///
/// # Errors
/// Closed without an answer, or no ConnectResponse.
pub fn connect(address: SocketAddr, request: &ConnectRequest) -> Result<(Socket, ConnectResponse)> {
    let mut socket = Socket::open(address)?;
    socket.send_frame(&request.bytes())?;
    let response = ConnectResponse::decode(&socket.frame().context("handshake")?)?;
    Ok((socket, response))
}
