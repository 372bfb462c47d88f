//! The lock recipe with sequential ephemerals: whoever has the lowest number holds the lock, and
//! everybody else watches the one before (`LockInternals` of Curator, with its protection: the
//! name says whose the znode is, so that a create without an answer is found again).

use crate::checks::Sent;
use crate::client::Link;
use crate::random::Source;
use crate::workload::Draw;
use crate::world::World;
use jute::Text;
use std::time::Duration;
use zkshim::keeper::request::{
    Body, Create, CreateOpcode, Delete, Event, Names, Operation, Read, Reply,
};

/// The znode below which the lock is waited for.
pub(crate) const QUEUE: &str = "/queue";

/// Where a client is in the recipe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stage {
    #[default]
    Idle,
    /// Something is asked.
    Asking,
    /// It lost its connection, and has to look again.
    Unsure,
    /// It waits for the one before to go.
    Waiting,
    Held,
}

/// What a client remembers of it.
#[derive(Debug, Default)]
pub(crate) struct Place {
    pub(crate) stage: Stage,
    /// What its present znode's name begins with.
    name: String,
    attempts: u32,
    /// The znode that it watches, or the one that it has to give up.
    path: Text,
    next: Duration,
}

impl World {
    /// A client goes on with the recipe, if it waits for nothing.
    pub(crate) fn queue_turn(&mut self, index: usize, draw: &mut Draw) {
        let place = &mut self.clients[index].place;
        if self.now < place.next {
            return;
        }
        match place.stage {
            Stage::Idle => {
                place.attempts += 1;
                place.name = format!("c{index}x{}-", place.attempts);
                let path = format!("{QUEUE}/{}", place.name);
                place.stage = Stage::Asking;
                let create = Create {
                    opcode: CreateOpcode::Create,
                    path: Some(path.into()),
                    data: draw.data(),
                    acl: Some(zkshim::keeper::tree::open_acl()),
                    flags: 3,
                    ttl_ms: -1,
                };
                self.queue_ask(index, Operation::Create(create));
            }
            Stage::Unsure => self.queue_list(index),
            Stage::Held => {
                self.checks.locks.given_up(QUEUE, index, self.now);
                place.stage = Stage::Asking;
                let path = Some(place.path.clone());
                self.queue_ask(index, Operation::Delete(Delete { path, version: -1 }));
            }
            Stage::Asking | Stage::Waiting => {}
        }
    }

    fn queue_ask(&mut self, index: usize, operation: Operation) {
        if let Link::Open(_) = self.clients[index].link {
            let xid = self.clients[index].next_xid();
            self.ask(index, vec![(xid, operation)]);
        }
    }

    fn queue_list(&mut self, index: usize) {
        self.clients[index].place.stage = Stage::Asking;
        let read = Read { path: Some(QUEUE.into()), watch: false };
        self.queue_ask(index, Operation::GetChildren(read));
    }

    /// After a connection is lost it has to be seen what became of it.
    pub(crate) fn queue_disturbed(&mut self, index: usize) {
        let place = &mut self.clients[index].place;
        if matches!(place.stage, Stage::Asking | Stage::Waiting) {
            place.stage = Stage::Unsure;
        }
    }

    /// Its session is gone, or it says goodbye.
    pub(crate) fn queue_lost(&mut self, index: usize) {
        if self.clients[index].place.stage == Stage::Held {
            self.checks.locks.given_up(QUEUE, index, self.now);
        }
        self.clients[index].place.stage = Stage::Idle;
    }

    pub(crate) fn queue_event(&mut self, index: usize, event: &Event) {
        let place = &self.clients[index].place;
        if place.stage == Stage::Waiting && place.path == event.path {
            self.queue_list(index);
        }
    }

    pub(crate) fn queue_replied(
        &mut self,
        index: usize,
        sent: &Sent,
        reply: &Reply,
        alive_until: Duration,
    ) {
        let ours = |path: &Option<Text>| path.as_deref().is_some_and(|p| p.starts_with(QUEUE));
        match (&sent.operation, &reply.outcome) {
            (Operation::Create(create), _) if create.path.as_deref() == Some(QUEUE) => {}
            (Operation::Create(create), outcome) if ours(&create.path) => {
                if outcome.is_ok() {
                    self.queue_list(index);
                    return;
                }
                self.clients[index].place.stage = Stage::Idle;
                let (path, flags) = (Some(QUEUE.into()), 0);
                let create = Create { path, flags, data: None, ..create.clone() };
                self.queue_ask(index, Operation::Create(create));
            }
            (Operation::GetChildren(read), Ok(Body::Names(names))) if ours(&read.path) => {
                self.queue_listed(index, names, alive_until);
            }
            (Operation::Exists(read), outcome) if ours(&read.path) => {
                if outcome.is_ok() {
                    self.clients[index].place.stage = Stage::Waiting;
                } else {
                    self.queue_list(index);
                }
            }
            (Operation::Delete(delete), _) if ours(&delete.path) => {
                let pause = self.chance.of(Source::Client(index)).millis(20, 1000);
                let place = &mut self.clients[index].place;
                (place.stage, place.next) = (Stage::Idle, self.now + pause);
            }
            (Operation::GetChildren(read), _) if ours(&read.path) => {
                self.clients[index].place.stage = Stage::Idle;
            }
            _ => {}
        }
    }

    fn queue_listed(&mut self, index: usize, names: &Names, alive_until: Duration) {
        if self.clients[index].closing || self.clients[index].place.stage != Stage::Asking {
            return;
        }
        let mut names = crate::checks::decode_names(names);
        names.sort_by_key(|name| name.rsplit('-').next().map(str::to_owned));
        let place = &mut self.clients[index].place;
        match names.iter().position(|name| name.starts_with(&place.name)) {
            None => place.stage = Stage::Idle,
            Some(0) => {
                place.stage = Stage::Held;
                place.path = format!("{QUEUE}/{}", names[0]).into();
                let hold = self.chance.of(Source::Client(index)).millis(20, 3000);
                self.clients[index].place.next = self.now + hold;
                let taken = self.checks.locks.taken(QUEUE, index, self.now, alive_until);
                self.judge(taken);
            }
            Some(at) => {
                place.path = format!("{QUEUE}/{}", names[at - 1]).into();
                let read = Read { path: Some(place.path.clone()), watch: true };
                self.queue_ask(index, Operation::Exists(read));
            }
        }
    }
}
