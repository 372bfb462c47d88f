//! One client connection with its session: queues requests, reads messages, and holds the server
//! to what every reply must keep: request order and zxids that never fall.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::frames::{Connected, Message, Op, Reply, put_connect, take_frame};

/// Longest wait for anything that the server owes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A connection with a session of its own.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    incoming: BytesMut,
    outgoing: BytesMut,
    xid_last: i32,
    zxid_seen: i64,
    /// Paths of events that came while a reply was awaited, oldest first.
    events: Vec<String>,
    /// The negotiated session timeout.
    pub(crate) session_timeout: Duration,
}

impl Connection {
    /// Connects and starts a session that asks for this timeout.
    pub(crate) async fn open(addr: SocketAddr, timeout_ms: i32) -> Result<Self> {
        let stream = timeout(PATIENCE, TcpStream::connect(addr)).await?.context("connect")?;
        Self::start(stream, timeout_ms).await
    }

    /// Starts a session on a connection.
    pub(crate) async fn start(stream: TcpStream, timeout_ms: i32) -> Result<Self> {
        stream.set_nodelay(true)?;
        let mut this = Self {
            stream,
            incoming: BytesMut::new(),
            outgoing: BytesMut::new(),
            xid_last: 0,
            zxid_seen: 0,
            events: Vec::new(),
            session_timeout: Duration::ZERO,
        };
        put_connect(timeout_ms, &mut this.outgoing);
        this.flush().await?;
        let body = loop {
            if let Some(body) = take_frame(&mut this.incoming)? {
                break body;
            }
            this.fill().await.context("start a session")?;
        };
        let connected = Connected::read(&body).context("start a session")?;
        this.session_timeout = Duration::from_millis(connected.timeout_ms.unsigned_abs().into());
        // An idle connection needs no memory for bytes; many of them would need much.
        this.incoming = this.incoming.iter().copied().collect();
        Ok(this)
    }

    /// Adds a request to what the next `flush` sends and returns its xid.
    pub(crate) fn queue(&mut self, op: Op<'_>) -> i32 {
        let xid = op.xid(self.xid_last.wrapping_add(1));
        self.xid_last = xid.max(self.xid_last);
        op.put(xid, &mut self.outgoing);
        xid
    }

    /// Sends what is queued.
    pub(crate) async fn flush(&mut self) -> Result<()> {
        if !self.outgoing.is_empty() {
            self.stream.write_all(&self.outgoing).await.context("send")?;
            self.outgoing.clear();
        }
        Ok(())
    }

    /// Waits for more bytes from the server.
    pub(crate) async fn fill(&mut self) -> Result<()> {
        match timeout(PATIENCE, self.fill_patiently()).await {
            Ok(filled) => filled,
            Err(_) => bail!("no answer within {PATIENCE:?}"),
        }
    }

    /// Waits for more bytes from the server, as long as it takes. Safe to cancel.
    pub(crate) async fn fill_patiently(&mut self) -> Result<()> {
        self.incoming.reserve(16 << 10);
        let count = self.stream.read_buf(&mut self.incoming).await.context("receive")?;
        ensure!(count > 0, "the server closed the connection");
        Ok(())
    }

    /// The next message among the bytes that are here.
    pub(crate) fn poll_message(&mut self) -> Result<Option<Message>> {
        let Some(frame) = take_frame(&mut self.incoming)? else { return Ok(None) };
        let message = Message::read(frame)?;
        if let Message::Reply(reply) = &message {
            let (zxid, seen) = (reply.zxid, self.zxid_seen);
            ensure!(zxid >= seen, "zxid went back from {seen:#x} to {zxid:#x}");
            self.zxid_seen = zxid;
        }
        Ok(Some(message))
    }

    /// Sends one request and waits for its reply.
    pub(crate) async fn call(&mut self, op: Op<'_>) -> Result<Reply> {
        let xid = self.queue(op);
        self.flush().await?;
        loop {
            match self.poll_message()? {
                Some(Message::Reply(reply)) => {
                    ensure!(reply.xid == xid, "reply to {} instead of {xid}", reply.xid);
                    return Ok(reply);
                }
                Some(Message::Event { path }) => self.events.push(path),
                None => self.fill().await.with_context(|| format!("answer to {op:?}"))?,
            }
        }
    }

    /// Like `call`, but any error code is a wrong answer.
    pub(crate) async fn demand(&mut self, op: Op<'_>) -> Result<Reply> {
        let reply = self.call(op).await?;
        ensure!(reply.err == 0, "{op:?} was answered {}", reply.err);
        Ok(reply)
    }

    /// Waits for the next watch event and returns its path.
    pub(crate) async fn event(&mut self) -> Result<String> {
        timeout(PATIENCE, self.event_patiently()).await.context("watch event")?
    }

    /// Waits for the next watch event, as long as it takes, and returns its path.
    pub(crate) async fn event_patiently(&mut self) -> Result<String> {
        if !self.events.is_empty() {
            return Ok(self.events.remove(0));
        }
        loop {
            match self.poll_message()? {
                Some(Message::Event { path }) => return Ok(path),
                Some(Message::Reply(reply)) => bail!("unasked reply {reply:?}"),
                None => self.fill_patiently().await.context("watch event")?,
            }
        }
    }

    /// Ends the session and the connection.
    pub(crate) async fn close(mut self) -> Result<()> {
        self.demand(Op::CloseSession).await.map(drop)
    }
}
