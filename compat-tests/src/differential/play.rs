//! Plays a script to one server, or to several that serve one tree, and writes down all it sees.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::conformance::client::PING_XID;
use crate::conformance::session::{ConnectRequest, ConnectResponse};
use crate::conformance::socket::{Incoming, Socket, frame};
use crate::conformance::wire::{op, record};
use crate::differential::answer::header;
use crate::differential::generate::UNKNOWN;
use crate::differential::script::{Action, Part, Request, Script, Step, Symbol};

/// Before a handshake that was answered by a close is tried once more, as clients do.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// How long an answer, or an expected close, may take.
const PATIENCE: Duration = Duration::from_secs(15);

/// The xid of the syncs between batches; no request of a script has it.
pub const SYNC_XID: i32 = 0x5300_0000;

/// One thing that a slot saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The answer to a step's request, or to a sync between batches.
    Answer {
        /// The step, or none for a sync.
        step: Option<usize>,
        /// The request's opcode.
        opcode: i32,
        /// The frame.
        frame: Vec<u8>,
    },
    /// A notification.
    Event(Vec<u8>),
    /// The answer to a handshake.
    Handshake(ConnectResponse),
    /// A handshake that was closed without an answer.
    Refused,
    /// The server closed the connection.
    Closed,
    /// The server neither answered nor closed.
    Silent,
}

/// What was seen from the start of one batch to the start of the next.
#[derive(Clone, Debug, Default)]
pub struct BatchLog {
    /// The batch's number.
    pub batch: usize,
    /// What each slot saw, in order for a slot.
    pub seen: Vec<(usize, Seen)>,
    /// Sessions that were opened: the slot and the id.
    pub opened: Vec<i64>,
}

#[derive(Default)]
struct Slot {
    socket: Option<Socket>,
    server: usize,
    session: Option<ConnectResponse>,
    last_zxid: i64,
    older: Vec<i64>,
}

/// The slots of a script in play.
pub struct Player<'a> {
    servers: &'a [SocketAddr],
    slots: Vec<Slot>,
    log: BatchLog,
    syncs: i32,
}

/// Plays the script and gives what was seen; sessions that are left are closed.
///
/// # Errors
/// A server does not listen.
pub fn play(servers: &[SocketAddr], script: &Script) -> Result<Vec<BatchLog>> {
    let mut player = Player { servers, slots: Vec::new(), log: BatchLog::default(), syncs: 0 };
    let mut logs = Vec::new();
    for steps in script.batches() {
        let Some(first) = steps.first() else { continue };
        player.log.batch = first.batch;
        player.batch(first.slot, steps)?;
        let log = std::mem::take(&mut player.log);
        // After a silence all that follows would only cost time.
        let is_over = log.seen.iter().any(|(_, seen)| *seen == Seen::Silent);
        logs.push(log);
        if is_over {
            break;
        }
    }
    player.end();
    Ok(logs)
}

impl Player<'_> {
    fn slot(&mut self, slot: usize) -> &mut Slot {
        while self.slots.len() <= slot {
            // Slots start on different servers.
            let server = self.slots.len();
            self.slots.push(Slot { server, ..Slot::default() });
        }
        self.slots.get_mut(slot).expect("it was just made")
    }

    fn address(&self, server: usize) -> SocketAddr {
        *self.servers.iter().cycle().nth(server % self.servers.len()).expect("there is a server")
    }

    fn see(&mut self, slot: usize, seen: Seen) {
        self.log.seen.push((slot, seen));
    }

    fn batch(&mut self, slot: usize, steps: &[Step]) -> Result<()> {
        let last = self.slot(slot).last_zxid;
        self.slot(slot).older.push(last);
        match steps.first().map(|step| &step.action) {
            Some(Action::Send(_)) => self.requests(slot, steps),
            Some(Action::Open { timeout_ms, read_only, seen })
                if self.slot(slot).socket.is_none() =>
            {
                let last_zxid = seen.map_or(0, |seen| self.value(slot, seen));
                let request = ConnectRequest {
                    last_zxid,
                    timeout_ms: *timeout_ms,
                    read_only: *read_only,
                    ..ConnectRequest::default()
                };
                self.open(slot, &request)?;
            }
            Some(Action::Resume { timeout_ms, right_password, moves, seen }) => {
                if let Some(session) = self.slot(slot).session.clone() {
                    let last_zxid = seen.map_or(0, |seen| self.value(slot, seen));
                    let mut request = ConnectRequest {
                        last_zxid,
                        timeout_ms: *timeout_ms,
                        ..ConnectRequest::resume(&session)
                    };
                    if !right_password {
                        request.password = Some(vec![7; 16]);
                    }
                    self.resume(slot, &request, *moves && *right_password)?;
                }
            }
            Some(Action::Break(bytes)) => {
                if let Some(socket) = &mut self.slot(slot).socket {
                    socket.send_provoking(bytes);
                    self.until_closed(slot);
                }
            }
            Some(Action::Drop) => self.slot(slot).socket = None,
            Some(Action::Open { .. }) | None => {}
        }
        Ok(())
    }

    fn open(&mut self, slot: usize, request: &ConnectRequest) -> Result<()> {
        let server = self.slot(slot).server;
        let Some((socket, response)) = self.handshake(slot, server, request)? else {
            return Ok(());
        };
        if response.timeout_ms > 0 {
            self.log.opened.push(response.session);
            let slot = self.slot(slot);
            (slot.last_zxid, slot.older) = (0, Vec::new());
            (slot.socket, slot.session) = (Some(socket), Some(response));
        }
        Ok(())
    }

    fn handshake(
        &mut self,
        slot: usize,
        server: usize,
        request: &ConnectRequest,
    ) -> Result<Option<(Socket, ConnectResponse)>> {
        for last in [false, true] {
            let mut socket = Socket::open(self.address(server))?;
            socket.send_frame(&request.bytes()).context("handshake")?;
            match socket.receive(PATIENCE)? {
                Incoming::Frame(frame) => {
                    let response = ConnectResponse::decode(&frame)?;
                    self.see(slot, Seen::Handshake(response.clone()));
                    return Ok(Some((socket, response)));
                }
                // A shim may lose the race for a session's key, and its client tries again.
                Incoming::Closed if !last => std::thread::sleep(RETRY_PAUSE),
                Incoming::Closed => self.see(slot, Seen::Refused),
                Incoming::Silence => {
                    self.see(slot, Seen::Silent);
                    break;
                }
            }
        }
        Ok(None)
    }

    fn resume(&mut self, slot: usize, request: &ConnectRequest, moves: bool) -> Result<()> {
        let server = self.slot(slot).server + usize::from(moves);
        let Some((socket, response)) = self.handshake(slot, server, request)? else {
            self.sync(slot);
            return Ok(());
        };
        // On the same server, the old connection goes whether the password is right or wrong. That
        // is not waited for: the real server forgets it if it is itself not a moment old.
        let slot = self.slot(slot);
        slot.socket = None;
        if response.timeout_ms > 0 {
            (slot.socket, slot.session, slot.server) = (Some(socket), Some(response), server);
        }
        Ok(())
    }

    fn value(&mut self, slot: usize, symbol: Symbol) -> i64 {
        let slot = self.slot(slot);
        match symbol {
            Symbol::LastZxid => slot.last_zxid,
            Symbol::OlderZxid(ago) => slot.older.iter().rev().nth(ago).copied().unwrap_or(0),
            Symbol::FutureZxid => slot.last_zxid + (1 << 40),
        }
    }

    fn requests(&mut self, slot: usize, steps: &[Step]) {
        let (mut bytes, mut sent) = (Vec::new(), Vec::new());
        for step in steps {
            if let Action::Send(request) = &step.action {
                bytes.extend(self.encode(slot, request));
                sent.push((Some(step.number), request.opcode));
            }
        }
        let Some(socket) = &mut self.slot(slot).socket else { return };
        socket.send_provoking(&bytes);
        let mut waiting = sent.clone();
        while !waiting.is_empty() && self.answer(slot, &mut waiting) {}
        let (_, last) = sent.last().copied().unwrap_or_default();
        if last == op::CLOSE_SESSION || UNKNOWN.contains(&last) || self.auth_failed() {
            self.until_closed(slot);
        }
        if sent.iter().any(|(_, opcode)| may_change(*opcode)) {
            for other in (0..self.slots.len()).filter(|other| *other != slot) {
                self.sync(other);
            }
        }
    }

    fn auth_failed(&self) -> bool {
        self.log.seen.last().is_some_and(|(_, seen)| match seen {
            Seen::Answer { opcode: op::AUTH, frame, .. } => {
                header(frame).is_ok_and(|(header, _)| header.error != 0)
            }
            _ => false,
        })
    }

    fn encode(&mut self, slot: usize, request: &Request) -> Vec<u8> {
        let head = record().int(request.xid).int(request.opcode);
        let body = request.body.iter().fold(head, |body, part| match part {
            Part::Bytes(bytes) => body.raw(bytes),
            Part::Symbol(symbol) => body.long(self.value(slot, *symbol)),
        });
        frame(&body.bytes())
    }

    /// All that was committed before has been shown to the slot.
    fn sync(&mut self, slot: usize) {
        let xid = SYNC_XID + self.syncs;
        self.syncs += 1;
        let Some(socket) = &mut self.slot(slot).socket else { return };
        let request = record().int(xid).int(op::SYNC).string("/").bytes();
        socket.send_provoking(&frame(&request));
        self.answer(slot, &mut vec![(None, op::SYNC)]);
    }

    /// Waits for one of the answers; false if the connection is gone or silent.
    fn answer(&mut self, slot: usize, waiting: &mut Vec<(Option<usize>, i32)>) -> bool {
        loop {
            let Some(socket) = &mut self.slot(slot).socket else { return false };
            match socket.receive(PATIENCE) {
                Ok(Incoming::Frame(frame)) => {
                    let head = header(&frame).map(|(header, _)| header);
                    if head.as_ref().is_ok_and(|header| header.xid == -1) {
                        self.see(slot, Seen::Event(frame));
                        continue;
                    }
                    // Only an answer to a ping may overtake others.
                    let is_ping = head.as_ref().is_ok_and(|header| header.xid == PING_XID);
                    let ping = waiting.iter().position(|(_, opcode)| *opcode == op::PING);
                    let (step, opcode) = waiting.remove(ping.filter(|_| is_ping).unwrap_or(0));
                    let zxid = head.map_or(0, |header| header.zxid);
                    let state = self.slot(slot);
                    state.last_zxid = state.last_zxid.max(zxid);
                    self.see(slot, Seen::Answer { step, opcode, frame });
                    return true;
                }
                Ok(Incoming::Silence) => {
                    self.see(slot, Seen::Silent);
                    return false;
                }
                Ok(Incoming::Closed) | Err(_) => {
                    self.slot(slot).socket = None;
                    self.see(slot, Seen::Closed);
                    return false;
                }
            }
        }
    }

    fn until_closed(&mut self, slot: usize) {
        while self.answer(slot, &mut vec![(None, op::SYNC)]) {}
        self.slot(slot).socket = None;
    }

    /// Closes the sessions that are left; what they answer does not count.
    fn end(&mut self) {
        for slot in 0..self.slots.len() {
            let server = self.slot(slot).server;
            if self.slot(slot).socket.is_none()
                && let Some(session) = self.slot(slot).session.clone()
                && let Ok(Some((socket, response))) =
                    self.handshake(slot, server, &ConnectRequest::resume(&session))
                && response.timeout_ms > 0
            {
                self.slot(slot).socket = Some(socket);
            }
            if let Some(socket) = &mut self.slot(slot).socket {
                let request = record().int(1).int(op::CLOSE_SESSION).bytes();
                socket.send_provoking(&frame(&request));
                self.until_closed(slot);
            }
        }
    }
}

fn may_change(opcode: i32) -> bool {
    let reads = [
        op::EXISTS,
        op::GET_DATA,
        op::GET_ACL,
        op::GET_CHILDREN,
        op::GET_CHILDREN2,
        op::GET_EPHEMERALS,
        op::GET_ALL_CHILDREN_NUMBER,
        op::SYNC,
        op::PING,
        op::WHO_AM_I,
        op::MULTI_READ,
        op::ADD_WATCH,
        op::CHECK_WATCHES,
        op::REMOVE_WATCHES,
        op::SET_WATCHES,
        op::SET_WATCHES2,
    ];
    !reads.contains(&opcode)
}
