//! A session over one raw connection: requests with their answers, and the events in between.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::conformance::expect::expect_eq;
use crate::conformance::message::{Event, Message, Reply};
use crate::conformance::multi::{Operation, request};
use crate::conformance::session::{ConnectRequest, ConnectResponse, connect};
use crate::conformance::socket::{ANSWER_TIMEOUT, Incoming, Socket};
use crate::conformance::wire::{Acl, Stat, Writer, hex, op, open_acl, record};

/// The xid of pings, from `ClientCnxn.PING_XID`.
pub const PING_XID: i32 = -2;

/// A session, its connection, and the events that came while it waited for answers.
#[derive(Debug)]
pub struct Client {
    /// The connection, free to be misused.
    pub socket: Socket,
    /// What the handshake gave.
    pub session: ConnectResponse,
    address: SocketAddr,
    number: usize,
    speaker: Option<Arc<AtomicUsize>>,
    xid: i32,
    events: VecDeque<Event>,
    close_on_drop: bool,
}

impl Client {
    /// Opens a connection and a session. With a `speaker`, shared by the sessions of a case on
    /// several servers, each change of the speaking session starts with a `sync`.
    ///
    /// # Errors
    /// The handshake fails or is rejected.
    pub fn connect(
        address: SocketAddr,
        request: &ConnectRequest,
        number: usize,
        speaker: Option<Arc<AtomicUsize>>,
    ) -> Result<Self> {
        let (socket, session) = connect(address, request)?;
        session.expect_accepted().context("handshake")?;
        let events = VecDeque::new();
        let close_on_drop = true;
        Ok(Self { socket, session, address, number, speaker, xid: 0, events, close_on_drop })
    }

    /// Drops the connection and leaves the session; gives what is needed to resume it.
    #[must_use]
    pub fn abandon(mut self) -> ConnectResponse {
        self.close_on_drop = false;
        self.session.clone()
    }

    /// Leaves the session alone when dropped: the server has ended the connection.
    pub fn keep_session(&mut self) {
        self.close_on_drop = false;
    }

    /// The server that this session is connected to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends a request and waits for its answer; events that come before are kept.
    ///
    /// # Errors
    /// The connection ends, or the answer is another request's.
    pub fn call(&mut self, opcode: i32, body: Writer) -> Result<Reply> {
        if let Some(speaker) = &self.speaker
            && speaker.swap(self.number, Ordering::Relaxed) != self.number
        {
            self.exchange(op::SYNC, record().string("/"))?.ok()?;
        }
        self.exchange(opcode, body)
    }

    fn exchange(&mut self, opcode: i32, body: Writer) -> Result<Reply> {
        let xid = self.send(opcode, body)?;
        let reply = self.reply().with_context(|| format!("answer to opcode {opcode}"))?;
        expect_eq("xid of the answer", reply.xid, xid)?;
        Ok(reply)
    }

    /// Sends a request with the next xid, without waiting.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn send(&mut self, opcode: i32, body: Writer) -> Result<i32> {
        self.xid += 1;
        self.send_as(self.xid, opcode, body)?;
        Ok(self.xid)
    }

    /// Sends a request with a given xid, without waiting.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn send_as(&mut self, xid: i32, opcode: i32, body: Writer) -> Result<()> {
        self.socket.send_frame(&record().int(xid).int(opcode).raw(&body.bytes()).bytes())
    }

    /// The next answer; events that come before are kept.
    ///
    /// # Errors
    /// The connection ends.
    pub fn reply(&mut self) -> Result<Reply> {
        loop {
            match self.message()? {
                Message::Reply(reply) => return Ok(reply),
                Message::Event(event) => self.events.push_back(event),
            }
        }
    }

    /// The next frame from the connection, whatever it is (kept events are not given again).
    ///
    /// # Errors
    /// The connection ends.
    pub fn message(&mut self) -> Result<Message> {
        Message::decode(&self.socket.frame()?)
    }

    /// The next event, kept or new.
    ///
    /// # Errors
    /// None comes.
    pub fn event(&mut self) -> Result<Event> {
        self.event_within(ANSWER_TIMEOUT)
    }

    /// The next event, kept or new, waiting at most so long.
    ///
    /// # Errors
    /// None comes.
    pub fn event_within(&mut self, within: Duration) -> Result<Event> {
        if let Some(event) = self.events.pop_front() {
            return Ok(event);
        }
        match self.socket.receive(within)? {
            Incoming::Frame(frame) => match Message::decode(&frame)? {
                Message::Event(event) => Ok(event),
                Message::Reply(reply) => bail!("an answer instead of an event: {reply:?}"),
            },
            other => bail!("{other:?} instead of an event"),
        }
    }

    /// These events come, in this order; others don't.
    ///
    /// # Errors
    /// What comes instead.
    pub fn expect_events(&mut self, want: &[(i32, &str)]) -> Result<Vec<Event>> {
        let mut got = Vec::new();
        for (index, (kind, path)) in want.iter().enumerate() {
            let event = self
                .event()
                .with_context(|| format!("event {index} of {want:?}, after {got:?}"))?;
            let same = event.kind == *kind && event.path == *path;
            got.push(event);
            if !same {
                bail!("events: got {got:?}, want {want:?}");
            }
        }
        self.expect_no_event()?;
        Ok(got)
    }

    /// All that was committed before has been shown, and no event is left.
    ///
    /// # Errors
    /// An event is there.
    pub fn expect_no_event(&mut self) -> Result<()> {
        self.exchange(op::SYNC, record().string("/"))?.ok()?;
        expect_eq("events left", self.events.make_contiguous(), &mut [])
    }

    /// Creates a plain node with the open ACL; gives the zxid.
    ///
    /// # Errors
    /// It is not created.
    pub fn create(&mut self, path: &str, data: &[u8]) -> Result<i64> {
        let reply = self.create_as(path, data, &open_acl(), 0)?;
        expect_eq("created path", reply.text().with_context(|| path.to_owned())?, path.to_owned())?;
        Ok(reply.zxid)
    }

    /// Creates an ephemeral node with the open ACL; gives the zxid.
    ///
    /// # Errors
    /// It is not created.
    pub fn create_ephemeral(&mut self, path: &str) -> Result<i64> {
        Ok(self.create_as(path, b"", &open_acl(), 1)?.ok()?.zxid)
    }

    /// Sends a create.
    ///
    /// # Errors
    /// The connection ends.
    pub fn create_as(&mut self, path: &str, data: &[u8], acl: &[Acl], flags: i32) -> Result<Reply> {
        self.call(op::CREATE, record().string(path).buffer(data).acls(acl).int(flags))
    }

    /// Sends a create with the open ACL, no data and the given flags.
    ///
    /// # Errors
    /// The connection ends.
    pub fn create_flags(&mut self, path: &str, flags: i32) -> Result<Reply> {
        self.create_as(path, b"", &open_acl(), flags)
    }

    /// Sends a delete.
    ///
    /// # Errors
    /// The connection ends.
    pub fn delete(&mut self, path: &str, version: i32) -> Result<Reply> {
        self.call(op::DELETE, record().string(path).int(version))
    }

    /// Sends a setData.
    ///
    /// # Errors
    /// The connection ends.
    pub fn set_data(&mut self, path: &str, data: &[u8], version: i32) -> Result<Reply> {
        self.call(op::SET_DATA, record().string(path).buffer(data).int(version))
    }

    /// Sets data whatever the version; gives the zxid.
    ///
    /// # Errors
    /// It fails.
    pub fn set(&mut self, path: &str, data: &[u8]) -> Result<i64> {
        Ok(self.set_data(path, data, -1)?.ok()?.zxid)
    }

    /// Deletes whatever the version; gives the zxid.
    ///
    /// # Errors
    /// It fails.
    pub fn remove(&mut self, path: &str) -> Result<i64> {
        Ok(self.delete(path, -1)?.ok_empty()?.zxid)
    }

    /// Sends an exists.
    ///
    /// # Errors
    /// The connection ends.
    pub fn exists(&mut self, path: &str, watch: bool) -> Result<Reply> {
        self.call(op::EXISTS, record().string(path).flag(watch))
    }

    /// Sends a getData.
    ///
    /// # Errors
    /// The connection ends.
    pub fn get_data(&mut self, path: &str, watch: bool) -> Result<Reply> {
        self.call(op::GET_DATA, record().string(path).flag(watch))
    }

    /// Sends a getChildren.
    ///
    /// # Errors
    /// The connection ends.
    pub fn get_children(&mut self, path: &str, watch: bool) -> Result<Reply> {
        self.call(op::GET_CHILDREN, record().string(path).flag(watch))
    }

    /// Sends a getACL.
    ///
    /// # Errors
    /// The connection ends.
    pub fn get_acl(&mut self, path: &str) -> Result<Reply> {
        self.call(op::GET_ACL, record().string(path))
    }

    /// Sends a setACL.
    ///
    /// # Errors
    /// The connection ends.
    pub fn set_acl(&mut self, path: &str, acl: &[Acl], version: i32) -> Result<Reply> {
        self.call(op::SET_ACL, record().string(path).acls(acl).int(version))
    }

    /// Sends an addWatch (mode 0 persistent, 1 persistent recursive), which must succeed.
    ///
    /// # Errors
    /// It fails.
    pub fn add_watch(&mut self, path: &str, mode: i32) -> Result<()> {
        let reply = self.call(op::ADD_WATCH, record().string(path).int(mode))?;
        expect_eq("body of addWatch", hex(&reply.ok()?.body), "00000000".to_owned())
    }

    /// Sends a checkWatches (17).
    ///
    /// # Errors
    /// The connection ends.
    pub fn check_watches(&mut self, path: &str, kind: i32) -> Result<Reply> {
        self.call(op::CHECK_WATCHES, record().string(path).int(kind))
    }

    /// Sends a removeWatches (18).
    ///
    /// # Errors
    /// The connection ends.
    pub fn remove_watches(&mut self, path: &str, kind: i32) -> Result<Reply> {
        self.call(op::REMOVE_WATCHES, record().string(path).int(kind))
    }

    /// Sends a multi.
    ///
    /// # Errors
    /// The connection ends.
    pub fn multi(&mut self, operations: &[Operation]) -> Result<Reply> {
        self.call(op::MULTI, request(operations))
    }

    /// The Stat of a node that exists.
    ///
    /// # Errors
    /// It does not.
    pub fn stat(&mut self, path: &str) -> Result<Stat> {
        self.exists(path, false)?.stat().with_context(|| format!("exists {path}"))
    }

    /// Authenticates with scheme digest.
    ///
    /// # Errors
    /// It is refused.
    pub fn auth_digest(&mut self, user_and_password: &str) -> Result<()> {
        let body = record().int(0).string("digest").string(user_and_password);
        self.send_as(-4, op::AUTH, body)?;
        self.reply()?.ok_empty()?;
        Ok(())
    }

    /// Closes the session; gives the zxid of the close.
    ///
    /// # Errors
    /// It is not answered, or the connection stays open.
    pub fn close(mut self) -> Result<i64> {
        self.close_on_drop = false;
        let zxid = self.call(op::CLOSE_SESSION, record())?.ok_empty()?.zxid;
        self.socket.expect_close()?;
        Ok(zxid)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Waits for the end: a case that counts transactions may come next.
        if self.close_on_drop && self.send(op::CLOSE_SESSION, record()).is_ok() {
            while let Ok(Incoming::Frame(_)) = self.socket.receive(Duration::from_secs(2)) {}
        }
    }
}
