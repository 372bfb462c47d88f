//! A lock that only one may hold: an ephemeral that only one can create.

use crate::checks::Sent;
use crate::client::{Link, LockState};
use crate::random::Source;
use crate::workload::Draw;
use crate::world::World;
use std::time::Duration;
use zkshim::keeper::error::ErrorCode;
use zkshim::keeper::request::{
    Body, Create, CreateOpcode, Delete, Event, Operation, Read, Reply, Xid,
};

/// The znode.
pub(crate) const LOCK: &str = "/lock";

impl World {
    pub(crate) fn lock_turn(&mut self, index: usize, draw: &mut Draw) {
        if self.now < self.clients[index].lock_next {
            return;
        }
        match self.clients[index].lock {
            LockState::Idle => {
                let create = Create {
                    opcode: CreateOpcode::Create,
                    path: Some(LOCK.into()),
                    data: draw.data(),
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
        let hold = self.chance.of(Source::Client(index)).millis(20, 2000);
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
        let hold = self.chance.of(Source::Client(index)).millis(20, 3000);
        let taken = self.checks.locks.taken(LOCK, index, self.now, alive_until);
        self.judge(taken);
        self.clients[index].lock = LockState::Held;
        self.clients[index].lock_next = self.now + hold;
    }
}
