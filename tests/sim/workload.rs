//! What clients do: everything, on few znodes, so that they get into each other's way; and a lock
//! that only one may hold.

use crate::checks::Sent;
use crate::client::{Link, LockState};
use crate::world::World;
use bytes::Bytes;
use jute::{Acl, Id, Text};
use std::time::Duration;
use zkshim::keeper::error::ErrorCode;
use zkshim::keeper::request::{
    AddWatch, Body, Check, ConnectionId, Create, CreateOpcode, Delete, Event, MultiOperation,
    Operation, Read, Reply, SetAcl, SetData, Xid,
};

/// The lock: an ephemeral that only one can create.
pub(crate) const LOCK: &str = "/lock";

const PATHS: [&str; 16] = [
    "/a", "/b", "/c", "/a/x", "/a/y", "/a/z", "/b/x", "/b/y", "/b/z", "/c/x", "/c/y", "/a/x/p",
    "/a/x/q", "/b/x/p", "/b/y/p", "/c/x/p",
];

impl World {
    /// A connected client does what it feels like.
    pub(crate) fn work(&mut self, index: usize, _connection: ConnectionId) {
        let client = &self.clients[index];
        let room = self.plan.pipeline.saturating_sub(client.under_way.len());
        if !self.working || client.home.is_some() || client.closing || room == 0 {
            return;
        }
        if self.random.chance(3) {
            let xid = self.clients[index].next_xid();
            self.clients[index].closing = true;
            self.lock_lost(index);
            self.ask(index, vec![(xid, Operation::CloseSession)]);
            return;
        }
        if index < 3 {
            self.lock_turn(index);
        }
        let mut asked = Vec::new();
        for _ in 0..1 + self.random.below(room) {
            let xid = self.clients[index].next_xid();
            let operation = self.some_operation();
            asked.push((xid, operation));
        }
        self.ask(index, asked);
    }

    fn some_operation(&mut self) -> Operation {
        let path = self.some_path();
        let watch = self.random.chance(500);
        let read = Read { path: path.clone(), watch };
        match self.random.below(100) {
            0..22 => Operation::Create(self.some_create(true)),
            22..36 => Operation::Delete(Delete { path, version: self.some_version() }),
            36..54 => Operation::SetData(self.some_set(path)),
            54..59 => {
                let version = self.some_version();
                let path = path.filter(|path| **path != *"/").or(Some("/a".into()));
                Operation::SetAcl(SetAcl { path, acl: Some(self.some_acl()), version })
            }
            59..70 => Operation::Multi(self.some_multi()),
            70..78 => Operation::Exists(read),
            78..87 => Operation::GetData(read),
            87..94 => Operation::GetChildren2(read),
            94..96 => Operation::Sync(path),
            96 => Operation::GetAcl(path),
            97 => Operation::GetEphemerals(Some("/".into())),
            98 => Operation::GetAllChildrenNumber(path),
            _ => Operation::AddWatch(AddWatch { path, mode: i32::from(watch) }),
        }
    }

    fn some_path(&mut self) -> Option<Text> {
        let path = self.random.pick(&PATHS);
        Some(Text::from(if self.random.chance(20) { "/" } else { path }))
    }

    fn some_version(&mut self) -> i32 {
        if self.random.chance(700) { -1 } else { self.random.below(3) as i32 }
    }

    /// No two writes carry the same.
    fn data(&mut self) -> Option<Bytes> {
        Some(Bytes::from(format!("{:016x}", self.random.next())))
    }

    fn some_acl(&mut self) -> Vec<Acl> {
        let perms = if self.random.chance(700) { 31 } else { self.random.pick(&[29, 27, 23, 17]) };
        let id = Id { scheme: Some("world".into()), id: Some("anyone".into()) };
        vec![Acl { perms, id }]
    }

    fn some_create(&mut self, any_kind: bool) -> Create {
        let mut path = self.some_path();
        let (mut opcode, flags) = match self.random.below(100) {
            0..45 => (CreateOpcode::Create, 0),
            45..65 => (CreateOpcode::Create, 1),
            65..80 => (CreateOpcode::Create, 2),
            80..92 => (CreateOpcode::Create, 3),
            92..96 if any_kind => (CreateOpcode::CreateContainer, 4),
            96..100 if any_kind => (CreateOpcode::CreateTtl, 5),
            _ => (CreateOpcode::Create, 0),
        };
        // Little can be done below ephemerals.
        let top = path.as_ref().is_some_and(|path| path.matches('/').count() == 1);
        let flags = if top && self.random.chance(900) { 0 } else { flags };
        if flags == 0 {
            opcode = CreateOpcode::Create;
        }
        if flags < 4 && self.random.chance(300) {
            opcode = CreateOpcode::Create2;
        }
        if matches!(flags, 2 | 3) {
            path = Some(Text::from(self.random.pick(&["/a/s-", "/b/s-", "/c/s-"])));
        }
        let ttl_ms = if opcode == CreateOpcode::CreateTtl { 3000 } else { -1 };
        Create { opcode, path, data: self.data(), acl: Some(self.some_acl()), flags, ttl_ms }
    }

    fn some_set(&mut self, path: Option<Text>) -> SetData {
        SetData { path, data: self.data(), version: self.some_version() }
    }

    /// Half of them change one znode again and again.
    fn some_multi(&mut self) -> Vec<MultiOperation> {
        let one = self.some_path();
        let again = self.random.chance(500);
        let count = 1 + self.random.below(4);
        let mut operations = Vec::new();
        for _ in 0..count {
            let path = if again { one.clone() } else { self.some_path() };
            operations.push(match self.random.below(10) {
                0..4 => {
                    let mut create = self.some_create(false);
                    if !matches!(create.flags, 2 | 3) {
                        create.path = path;
                    }
                    MultiOperation::Create(create)
                }
                4..6 => MultiOperation::Delete(Delete { path, version: self.some_version() }),
                6..9 => MultiOperation::SetData(self.some_set(path)),
                _ => MultiOperation::Check(Check { path, version: self.some_version() }),
            });
        }
        operations
    }

    fn lock_turn(&mut self, index: usize) {
        if self.now < self.clients[index].lock_next {
            return;
        }
        match self.clients[index].lock {
            LockState::Idle => {
                let create = Create {
                    opcode: CreateOpcode::Create,
                    path: Some(LOCK.into()),
                    data: self.data(),
                    acl: Some(zkshim::keeper::tree::open_acl()),
                    flags: 1,
                    ttl_ms: -1,
                };
                self.lock_ask(index, Operation::Create(create));
                self.clients[index].lock = LockState::Unsure;
            }
            LockState::Held => {
                self.checks.locks.given_up(LOCK, index, self.now);
                self.clients[index].lock = LockState::Unsure;
                let delete = Delete { path: Some(LOCK.into()), version: -1 };
                self.lock_ask(index, Operation::Delete(delete));
            }
            LockState::Unsure | LockState::Waiting => {}
        }
    }

    fn lock_ask(&mut self, index: usize, operation: Operation) {
        if let Link::Open(_) = self.clients[index].link {
            let xid: Xid = self.clients[index].next_xid();
            self.ask(index, vec![(xid, operation)]);
        }
    }

    /// After a connection is lost it has to be seen whose the lock is.
    pub(crate) fn lock_disturbed(&mut self, index: usize) {
        let client = &mut self.clients[index];
        if client.lock == LockState::Unsure {
            client.lock = LockState::Idle;
        }
    }

    pub(crate) fn lock_lost(&mut self, index: usize) {
        if self.clients[index].lock == LockState::Held {
            self.checks.locks.given_up(LOCK, index, self.now);
        }
        self.clients[index].lock = LockState::Idle;
    }

    pub(crate) fn lock_event(&mut self, index: usize, event: &Event) {
        let client = &mut self.clients[index];
        if client.lock == LockState::Waiting && &*event.path == LOCK {
            client.lock = LockState::Idle;
        }
    }

    pub(crate) fn lock_replied(
        &mut self,
        index: usize,
        sent: &Sent,
        reply: &Reply,
        alive_until: Duration,
    ) {
        let hold = self.random.millis(20, 2000);
        match (&sent.operation, &reply.outcome) {
            (Operation::Create(create), outcome) if create.path.as_deref() == Some(LOCK) => {
                if outcome.is_ok() {
                    self.lock_taken(index, alive_until);
                } else {
                    let read = Read { path: Some(LOCK.into()), watch: true };
                    self.lock_ask(index, Operation::GetData(read));
                }
            }
            (Operation::GetData(read), outcome) if read.path.as_deref() == Some(LOCK) => {
                let session = self.clients[index].session.0;
                match outcome {
                    Ok(Body::Data(_, stat)) if stat.ephemeral_owner == session => {
                        self.lock_taken(index, alive_until);
                    }
                    Ok(_) => self.clients[index].lock = LockState::Waiting,
                    Err(_) => self.clients[index].lock = LockState::Idle,
                }
            }
            (Operation::Delete(delete), outcome) if delete.path.as_deref() == Some(LOCK) => {
                if !matches!(outcome, Ok(_) | Err(ErrorCode::NoNode)) {
                    self.judge(Err(format!("a lock cannot be given up: {outcome:?}")));
                }
                self.clients[index].lock = LockState::Idle;
                self.clients[index].lock_next = self.now + hold;
            }
            _ => {}
        }
    }

    fn lock_taken(&mut self, index: usize, alive_until: Duration) {
        if self.clients[index].closing {
            return;
        }
        let hold = self.random.millis(20, 3000);
        self.checks.locks.taken(LOCK, index, self.now, alive_until);
        self.clients[index].lock = LockState::Held;
        self.clients[index].lock_next = self.now + hold;
    }
}
