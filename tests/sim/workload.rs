//! What clients do: everything, on few znodes, so that they get into each other's way.

use crate::random::{Random, Source};
use crate::script::Decision;
use crate::world::World;
use bytes::Bytes;
use jute::{Acl, Id, Text};
use zkshim::keeper::request::{
    AddWatch, Check, ConnectionId, Create, CreateOpcode, Delete, MultiOperation, Operation, Read,
    SetAcl, SetData,
};

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
        let client = &mut self.clients[index];
        client.turns += 1;
        let turn = client.turns;
        if !self.script.takes(Decision::Work(index, turn)) {
            return;
        }
        let mut draw = Draw(self.chance.once(Source::Work(index, turn)));
        if draw.0.chance(3) {
            self.say_goodbye(index);
            return;
        }
        if index < 3 {
            self.lock_turn(index, &mut draw);
        }
        let mut asked = Vec::new();
        for _ in 0..1 + draw.0.below(room) {
            asked.push((self.clients[index].next_xid(), draw.operation()));
        }
        self.ask(index, asked);
    }

    pub(crate) fn say_goodbye(&mut self, index: usize) {
        let xid = self.clients[index].next_xid();
        self.clients[index].closing = true;
        self.lock_lost(index);
        self.ask(index, vec![(xid, Operation::CloseSession)]);
    }
}

/// What one turn's chance makes.
#[derive(Debug)]
pub(crate) struct Draw(pub(crate) Random);

impl Draw {
    fn operation(&mut self) -> Operation {
        let path = self.path();
        let watch = self.0.chance(500);
        let read = Read { path: path.clone(), watch };
        match self.0.below(100) {
            0..22 => Operation::Create(self.create(true)),
            22..36 => Operation::Delete(Delete { path, version: self.version() }),
            36..54 => Operation::SetData(self.set(path)),
            54..59 => {
                let version = self.version();
                let path = path.filter(|path| **path != *"/").or(Some("/a".into()));
                Operation::SetAcl(SetAcl { path, acl: Some(self.acl()), version })
            }
            59..70 => Operation::Multi(self.multi()),
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

    fn path(&mut self) -> Option<Text> {
        let path = self.0.pick(&PATHS);
        Some(Text::from(if self.0.chance(20) { "/" } else { path }))
    }

    fn version(&mut self) -> i32 {
        if self.0.chance(700) { -1 } else { self.0.below(3) as i32 }
    }

    /// No two writes carry the same.
    pub(crate) fn data(&mut self) -> Option<Bytes> {
        Some(Bytes::from(format!("{:016x}", self.0.next())))
    }

    fn acl(&mut self) -> Vec<Acl> {
        let perms = if self.0.chance(700) { 31 } else { self.0.pick(&[29, 27, 23, 17]) };
        let id = Id { scheme: Some("world".into()), id: Some("anyone".into()) };
        vec![Acl { perms, id }]
    }

    fn create(&mut self, any_kind: bool) -> Create {
        let mut path = self.path();
        let (mut opcode, flags) = match self.0.below(100) {
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
        let flags = if top && self.0.chance(900) { 0 } else { flags };
        if flags == 0 {
            opcode = CreateOpcode::Create;
        }
        if flags < 4 && self.0.chance(300) {
            opcode = CreateOpcode::Create2;
        }
        if matches!(flags, 2 | 3) {
            path = Some(Text::from(self.0.pick(&["/a/s-", "/b/s-", "/c/s-"])));
        }
        let ttl_ms = if opcode == CreateOpcode::CreateTtl { 3000 } else { -1 };
        Create { opcode, path, data: self.data(), acl: Some(self.acl()), flags, ttl_ms }
    }

    fn set(&mut self, path: Option<Text>) -> SetData {
        SetData { path, data: self.data(), version: self.version() }
    }

    /// Half of them change one znode again and again.
    fn multi(&mut self) -> Vec<MultiOperation> {
        let one = self.path();
        let again = self.0.chance(500);
        let count = 1 + self.0.below(4);
        let mut operations = Vec::new();
        for _ in 0..count {
            let path = if again { one.clone() } else { self.path() };
            operations.push(match self.0.below(10) {
                0..4 => {
                    let mut create = self.create(false);
                    if !matches!(create.flags, 2 | 3) {
                        create.path = path;
                    }
                    MultiOperation::Create(create)
                }
                4..6 => MultiOperation::Delete(Delete { path, version: self.version() }),
                6..9 => MultiOperation::SetData(self.set(path)),
                _ => MultiOperation::Check(Check { path, version: self.version() }),
            });
        }
        operations
    }
}
