//! A session that goes from server to server as ZooKeeper's clients do: it pings while it waits,
//! gives a silent server up after two thirds of its timeout, and resumes its session elsewhere.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::conformance::client::PING_XID;
use crate::conformance::message::{Message, Reply};
use crate::conformance::session::{ConnectRequest, ConnectResponse};
use crate::conformance::socket::{Incoming, Socket};
use crate::conformance::wire::{Writer, op, record};

/// How long a client waits before it tries the next server. Java's waits up to a second, which
/// would hide what the servers do.
const PAUSE: Duration = Duration::from_millis(50);
/// Servers may take longer than a client's share of its timeout to do a handshake.
const ATTEMPT_MIN: Duration = Duration::from_secs(1);

/// A session that goes from server to server.
#[derive(Debug)]
pub struct Roamer {
    servers: Vec<SocketAddr>,
    next: usize,
    wanted: Duration,
    session: Option<ConnectResponse>,
    socket: Option<Socket>,
    server: Option<SocketAddr>,
    last_zxid: i64,
    xid: i32,
    /// When something last came from a server.
    heard: Instant,
    pinged: Instant,
    /// Each loss of a connection to a server that had accepted the session.
    pub losses: Vec<Loss>,
    /// Answers with a lower zxid than one before, which no client may ever see.
    pub falls: Vec<(i64, i64)>,
}

/// The loss of a connection.
#[derive(Clone, Debug)]
pub struct Loss {
    /// When.
    pub at: Instant,
    /// How long before that something last came.
    pub silent: Duration,
    /// Why.
    pub reason: String,
}

/// Why a request has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The connection was lost; whether the request was applied is not known.
    Lost,
    /// A server says that the session has ended. A new one is opened next.
    Expired {
        /// How long ago a server was last heard.
        silent: Duration,
    },
}

impl Roamer {
    /// A client that has not connected yet; it begins with the server of that number.
    #[must_use]
    pub fn new(servers: Vec<SocketAddr>, first: usize, wanted: Duration) -> Self {
        let now = Instant::now();
        Self {
            servers,
            next: first,
            wanted,
            session: None,
            socket: None,
            server: None,
            last_zxid: 0,
            xid: 0,
            heard: now,
            pinged: now,
            losses: Vec::new(),
            falls: Vec::new(),
        }
    }

    /// The session's id, if there is one.
    #[must_use]
    pub fn session(&self) -> Option<i64> {
        self.session.as_ref().map(|session| session.session)
    }

    /// The server that it is connected to, as far as it knows.
    #[must_use]
    pub fn server(&self) -> Option<SocketAddr> {
        self.server.filter(|_| self.socket.is_some())
    }

    /// One attempt to be connected, at the next server; true if it is.
    ///
    /// # Errors
    /// The session has expired.
    pub fn connect(&mut self) -> std::result::Result<bool, Trouble> {
        if self.socket.is_some() {
            return Ok(true);
        }
        let address = self.servers.get(self.next % self.servers.len()).copied();
        self.next += 1;
        let Some(address) = address else { return Ok(false) };
        let Ok((socket, response)) = self.attempt(address) else {
            std::thread::sleep(PAUSE);
            return Ok(false);
        };
        if response.timeout_ms <= 0 {
            self.session = None;
            self.last_zxid = 0;
            return Err(Trouble::Expired { silent: self.heard.elapsed() });
        }
        self.hear();
        self.pinged = self.heard;
        self.session = Some(response);
        self.socket = Some(socket);
        self.server = Some(address);
        Ok(true)
    }

    fn attempt(&self, address: SocketAddr) -> Result<(Socket, ConnectResponse)> {
        let count = u32::try_from(self.servers.len()).unwrap_or(1);
        let share = (self.timeout() / count).max(ATTEMPT_MIN);
        let begun = Instant::now();
        let timeout_ms = i32::try_from(self.wanted.as_millis()).unwrap_or(i32::MAX);
        let request = match &self.session {
            Some(session) => ConnectRequest { timeout_ms, ..ConnectRequest::resume(session) },
            None => ConnectRequest { timeout_ms, ..ConnectRequest::default() },
        };
        let mut socket = Socket::open_within(address, share)?;
        let request = ConnectRequest { last_zxid: self.last_zxid, ..request };
        socket.send_frame(&request.bytes())?;
        match socket.receive(share.saturating_sub(begun.elapsed()))? {
            Incoming::Frame(frame) => Ok((socket, ConnectResponse::decode(&frame)?)),
            other => anyhow::bail!("{other:?} instead of a handshake"),
        }
    }

    /// Sends a request and waits for its answer, for as long as the server can be heard.
    ///
    /// # Errors
    /// See [`Trouble`].
    pub fn call(&mut self, opcode: i32, body: Writer) -> std::result::Result<Reply, Trouble> {
        self.xid += 1;
        let frame = record().int(self.xid).int(opcode).raw(&body.bytes()).bytes();
        let sent = self.send(&frame);
        if let Err(error) = sent {
            return Err(self.lose(format!("{error:#}")));
        }
        loop {
            if let Some(reply) = self.listen(self.timeout() / 3)?
                && reply.xid == self.xid
            {
                return Ok(reply);
            }
        }
    }

    /// Does nothing for so long but what keeps a session alive.
    ///
    /// # Errors
    /// See [`Trouble`].
    pub fn idle(&mut self, time: Duration) -> std::result::Result<(), Trouble> {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            self.listen(left.min(self.timeout() / 3))?;
        }
    }

    /// Closes the session.
    ///
    /// # Errors
    /// The connection is lost before that is confirmed.
    pub fn close(mut self) -> std::result::Result<(), Trouble> {
        self.call(op::CLOSE_SESSION, record()).map(|_| ())
    }

    /// Leaves the server, if it is another one, for the one of that number.
    pub fn go_to(&mut self, server: usize) {
        let wanted = self.servers.get(server).copied();
        if self.socket.is_some() && self.server != wanted {
            self.socket = None;
            self.next = server;
        }
    }

    fn timeout(&self) -> Duration {
        let granted = self.session.as_ref().map(|session| session.timeout_ms.unsigned_abs());
        granted.map_or(self.wanted, |granted| Duration::from_millis(granted.into()))
    }

    /// Waits for a message at most so long; gives an answer, if one comes.
    fn listen(&mut self, within: Duration) -> std::result::Result<Option<Reply>, Trouble> {
        // From `ClientCnxn`: a ping after a third of the timeout, an end after two thirds.
        let silent_max = self.timeout() * 2 / 3;
        if self.pinged.elapsed() >= self.timeout() / 3 {
            self.pinged = Instant::now();
            let ping = record().int(PING_XID).int(op::PING).bytes();
            if let Err(error) = self.send(&ping) {
                return Err(self.lose(format!("{error:#}")));
            }
        }
        let patience = silent_max.saturating_sub(self.heard.elapsed());
        if patience.is_zero() {
            return Err(self.lose("silence".to_owned()));
        }
        let to_ping = (self.timeout() / 3).saturating_sub(self.pinged.elapsed());
        let wait = within.min(patience).min(to_ping).max(Duration::from_millis(1));
        let Some(socket) = self.socket.as_mut() else {
            return Err(self.lose("not connected".to_owned()));
        };
        match socket.receive(wait) {
            Ok(Incoming::Silence) => Ok(None),
            Ok(Incoming::Closed) => Err(self.lose("closed".to_owned())),
            Ok(Incoming::Frame(frame)) => {
                self.hear();
                match Message::decode(&frame) {
                    Ok(Message::Reply(reply)) if reply.xid != PING_XID => {
                        if reply.zxid < self.last_zxid {
                            self.falls.push((self.last_zxid, reply.zxid));
                        }
                        self.last_zxid = self.last_zxid.max(reply.zxid);
                        Ok(Some(reply))
                    }
                    Ok(_) => Ok(None),
                    Err(error) => Err(self.lose(format!("{error:#}"))),
                }
            }
            Err(error) => Err(self.lose(format!("{error:#}"))),
        }
    }

    fn hear(&mut self) {
        self.heard = Instant::now();
    }

    fn send(&mut self, frame: &[u8]) -> Result<()> {
        self.socket.as_mut().context("not connected")?.send_frame(frame)
    }

    fn lose(&mut self, reason: String) -> Trouble {
        if self.socket.take().is_some() {
            let silent = self.heard.elapsed();
            self.losses.push(Loss { at: Instant::now(), silent, reason });
        }
        Trouble::Lost
    }
}
