//! A TCP connection that speaks frames and tells a frame from a close and from silence.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::conformance::wire::hex;

/// How long an answer may take; far more than any server needs on a loaded machine.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// What a peer did.
#[derive(Debug, PartialEq, Eq)]
pub enum Incoming {
    /// It sent a whole frame; these are the bytes after the length.
    Frame(Vec<u8>),
    /// It closed the connection.
    Closed,
    /// Nothing within the time given.
    Silence,
}

/// A connection to a server, below any session.
#[derive(Debug)]
pub struct Socket {
    stream: TcpStream,
    received: Vec<u8>,
    closed: bool,
}

impl Socket {
    /// Connects.
    ///
    /// # Errors
    /// Nobody listens.
    pub fn open(address: SocketAddr) -> Result<Self> {
        Self::open_within(address, ANSWER_TIMEOUT)
    }

    /// Connects, or gives up.
    ///
    /// # Errors
    /// Nobody listens, or nobody answers in time.
    pub fn open_within(address: SocketAddr, within: Duration) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&address, within)
            .with_context(|| format!("connect to {address}"))?;
        stream.set_nodelay(true).context("set TCP_NODELAY")?;
        Ok(Self { stream, received: Vec::new(), closed: false })
    }

    /// Sends bytes as they are, in one write.
    ///
    /// # Errors
    /// The peer has closed.
    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).context("send")
    }

    /// Sends a frame: the length, then the bytes.
    ///
    /// # Errors
    /// The peer has closed.
    pub fn send_frame(&mut self, bytes: &[u8]) -> Result<()> {
        self.send(&frame(bytes))
    }

    /// Sends what may make the peer close before it has read all: its error shows later.
    pub fn send_provoking(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// Ends the sending direction only.
    pub fn half_close(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// What the peer does within the time given.
    ///
    /// # Errors
    /// The system refuses to read.
    pub fn receive(&mut self, within: Duration) -> Result<Incoming> {
        let deadline = Instant::now() + within;
        loop {
            if let Some(frame) = self.buffered_frame()? {
                return Ok(Incoming::Frame(frame));
            }
            if self.closed {
                return Ok(Incoming::Closed);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || !self.fill(left)? {
                return Ok(Incoming::Silence);
            }
        }
    }

    /// The next frame.
    ///
    /// # Errors
    /// There is none: closed or silent.
    pub fn frame(&mut self) -> Result<Vec<u8>> {
        match self.receive(ANSWER_TIMEOUT)? {
            Incoming::Frame(frame) => Ok(frame),
            Incoming::Closed => bail!("closed instead of an answer"),
            Incoming::Silence => bail!("no answer within {ANSWER_TIMEOUT:?}"),
        }
    }

    /// The peer closes, without a frame before.
    ///
    /// # Errors
    /// It sends a frame, or stays.
    pub fn expect_close(&mut self) -> Result<()> {
        match self.receive(ANSWER_TIMEOUT)? {
            Incoming::Closed if self.received.is_empty() => Ok(()),
            Incoming::Closed => bail!("closed after half a frame: {}", hex(&self.received)),
            Incoming::Frame(frame) => bail!("a frame instead of a close: {}", hex(&frame)),
            Incoming::Silence => bail!("still open after {ANSWER_TIMEOUT:?}"),
        }
    }

    /// The bytes until the peer closes, without any framing.
    ///
    /// # Errors
    /// It stays open.
    pub fn raw_until_close(&mut self) -> Result<Vec<u8>> {
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        while !self.closed {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || !self.fill(left)? {
                bail!("still open after {ANSWER_TIMEOUT:?}");
            }
        }
        Ok(std::mem::take(&mut self.received))
    }

    /// Reads once; false if the time passed.
    fn fill(&mut self, within: Duration) -> Result<bool> {
        self.stream.set_read_timeout(Some(within)).context("set the read timeout")?;
        let mut chunk = [0; 65536];
        match self.stream.read(&mut chunk) {
            Ok(0) => self.closed = true,
            Ok(count) => self.received.extend(chunk.iter().take(count)),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => return Ok(false),
                ErrorKind::Interrupted => {}
                // A reset is a close with unread input on the other side.
                ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted => self.closed = true,
                _ => return Err(error).context("receive"),
            },
        }
        Ok(true)
    }

    fn buffered_frame(&mut self) -> Result<Option<Vec<u8>>> {
        let Some(head) = self.received.first_chunk::<4>() else { return Ok(None) };
        let length = i32::from_be_bytes(*head);
        let length = usize::try_from(length).with_context(|| format!("frame length {length}"))?;
        if self.received.len() < length + 4 {
            return Ok(None);
        }
        let rest = self.received.split_off(length + 4);
        let frame = std::mem::replace(&mut self.received, rest);
        Ok(Some(frame.into_iter().skip(4).collect()))
    }
}

/// The bytes with their length in front.
#[must_use]
pub fn frame(bytes: &[u8]) -> Vec<u8> {
    let length = i32::try_from(bytes.len()).expect("test frames are small");
    [&length.to_be_bytes(), bytes].concat()
}
