//! What clients do: everything, on few znodes, so that they get into each other's way.

use crate::checks::TTL_NAMES;
use crate::client::identify;
use crate::random::{Random, Source};
use crate::script::Decision;
use crate::world::World;
use bytes::Bytes;
use jute::{Acl, Id, Text};
use zkshim::keeper::acl::Identity;
use zkshim::keeper::request::{
    AddWatch, Auth, Check, ConnectionId, Create, CreateOpcode, Delete, MultiOperation,
    MultiReadOperation, Operation, Read, SetAcl, SetData, WatchSelection,
};
use zkshim::keeper::tree::{self, quota};

const PATHS: [&str; 16] = [
    "/a", "/b", "/c", "/a/x", "/a/y", "/a/z", "/b/x", "/b/y", "/b/z", "/c/x", "/c/y", "/a/x/p",
    "/a/x/q", "/b/x/p", "/b/y/p", "/c/x/p",
];

/// What very large multis write below.
const BIG: &str = "/big";

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
        if draw.0.chance(10) {
            self.introduce(index, draw.user());
        }
        if index < 3 {
            self.lock_turn(index, &mut draw);
        }
        if (1..5).contains(&index) {
            self.queue_turn(index, &mut draw);
        }
        let mut asked = Vec::new();
        for _ in 0..1 + draw.0.below(room) {
            let heavy = self.plan.heavy && draw.0.chance(10);
            let operation = if self.plan.quotas && draw.0.chance(60) {
                draw.quota_operation()
            } else if heavy {
                draw.heavy_operation()
            } else {
                draw.operation()
            };
            asked.push((self.clients[index].next_xid(), operation));
        }
        self.ask(index, asked);
    }

    /// An ephemeral, at once.
    pub(crate) fn first_write(&mut self, index: usize, random: &mut Random) {
        let mut draw = Draw(random.clone());
        let path = Some(Text::from(format!("/c/first{index}")));
        let create = Create { path, flags: 1, ..draw.create(false) };
        let create = Create { opcode: CreateOpcode::Create, ..create };
        let xid = self.clients[index].next_xid();
        self.ask(index, vec![(xid, Operation::Create(create))]);
    }

    pub(crate) fn say_goodbye(&mut self, index: usize) {
        let xid = self.clients[index].next_xid();
        self.clients[index].closing = true;
        self.lock_lost(index);
        self.queue_lost(index);
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
        match self.0.below(1000) {
            0..10 => self.ttl_operation(),
            10..210 => Operation::Create(self.create(true)),
            210..340 => Operation::Delete(Delete { path, version: self.version() }),
            340..500 => Operation::SetData(self.set(path)),
            500..550 => {
                let version = self.version();
                let path = path.filter(|path| **path != *"/").or(Some("/a".into()));
                Operation::SetAcl(SetAcl { path, acl: Some(self.acl()), version })
            }
            550..650 => Operation::Multi(self.multi()),
            650..730 => Operation::Exists(read),
            730..810 => Operation::GetData(read),
            810..860 => Operation::GetChildren2(read),
            860..870 => Operation::GetChildren(read),
            870..890 => Operation::Sync(path),
            890..900 => Operation::GetAcl(path),
            900..910 => Operation::GetEphemerals(Some("/".into())),
            910..920 => Operation::GetAllChildrenNumber(path),
            920..940 => Operation::AddWatch(AddWatch { path, mode: i32::from(watch) }),
            940..955 => Operation::CheckWatches(self.watches_of(path)),
            955..975 => Operation::RemoveWatches(self.watches_of(path)),
            _ => Operation::MultiRead(self.multi_read()),
        }
    }

    /// On the quotas of two subtrees: they come piece by piece, in any order.
    fn quota_operation(&mut self) -> Operation {
        let root = self.0.pick(&["/a", "/b"]);
        let (limits, stats) = (quota::limits_of(root), quota::stats_of(root));
        let count = self.0.pick(&[-1, 3, 5, 8]);
        let bytes = self.0.pick(&[-1, 40, 100]);
        let own = self.0.next() >> 1;
        let text = format!("count={own},countHardLimit={count},byteHardLimit={bytes}");
        let (path, data) = match self.0.below(10) {
            0..2 => (format!("{}{root}", tree::QUOTA), self.data()),
            2..4 => (stats, None),
            4..6 => (limits, Some(text.into())),
            6..8 => {
                let (path, data) = (Some(limits.into()), Some(text.into()));
                return Operation::SetData(SetData { path, data, version: -1 });
            }
            _ => return Operation::GetData(Read { path: Some(stats.into()), watch: false }),
        };
        let (opcode, acl) = (CreateOpcode::Create, Some(tree::open_acl()));
        let path = Some(path.into());
        Operation::Create(Create { opcode, path, data, acl, flags: 0, ttl_ms: -1 })
    }

    /// On a TTL node that goes only by itself.
    fn ttl_operation(&mut self) -> Operation {
        let path = Some(Text::from(format!("{TTL_NAMES}{}", self.0.below(2))));
        if self.0.chance(700) {
            return Operation::SetData(SetData { path, data: self.data(), version: -1 });
        }
        let ttl_ms = 500 + self.0.below(4000) as i64;
        let open = tree::open_acl();
        let opcode = CreateOpcode::CreateTtl;
        Operation::Create(Create {
            opcode,
            path,
            data: self.data(),
            acl: Some(open),
            flags: 5,
            ttl_ms,
        })
    }

    /// More than fits into a txn, or nearly.
    fn heavy_operation(&mut self) -> Operation {
        let plain = |path: String, flags, data| Create {
            opcode: CreateOpcode::Create,
            path: Some(path.into()),
            data,
            acl: Some(tree::open_acl()),
            flags,
            ttl_ms: -1,
        };
        let count = self.0.pick(&[50, 61, 70, 100, 130, 300, 700]);
        let kind = self.0.below(5);
        if kind == 0 {
            return Operation::Create(plain(BIG.into(), 0, None));
        }
        let mut operations = Vec::new();
        for number in 0..if kind == 1 { count.min(150) } else { count } {
            let path = format!("{BIG}/{number}");
            operations.push(match kind {
                1 => MultiOperation::Create(plain(format!("{BIG}/e-"), 3, self.data())),
                2 => MultiOperation::Create(plain(path, 0, self.data())),
                3 => {
                    let (path, data) = (Some(path.into()), self.data());
                    MultiOperation::SetData(SetData { path, data, version: -1 })
                }
                _ => MultiOperation::Delete(Delete { path: Some(path.into()), version: -1 }),
            });
        }
        Operation::Multi(operations)
    }

    fn watches_of(&mut self, path: Option<Text>) -> WatchSelection {
        WatchSelection { path, kind: 1 + self.0.below(5) as i32 }
    }

    fn multi_read(&mut self) -> Vec<MultiReadOperation> {
        let count = 1 + self.0.below(4);
        let mut operations = Vec::new();
        for _ in 0..count {
            let path = self.path();
            operations.push(match self.0.chance(500) {
                true => MultiReadOperation::GetData(path),
                false => MultiReadOperation::GetChildren(path),
            });
        }
        operations
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

    /// Mostly open; else for some users, or with less for all.
    fn acl(&mut self) -> Vec<Acl> {
        let entry = |perms, scheme: &'static str, id: &str| {
            let id = Id { scheme: Some(scheme.into()), id: Some(id.into()) };
            Acl { perms, id }
        };
        let world = |perms| entry(perms, "world", "anyone");
        match self.0.below(100) {
            0..70 => vec![world(31)],
            70..82 => vec![world(self.0.pick(&[29, 27, 23, 17, 30]))],
            82..90 => vec![world(self.0.pick(&[16, 17])), self.user_entry(15)],
            90..95 => vec![self.user_entry(31), world(16)],
            95..98 => vec![entry(15, "auth", ""), world(16)],
            _ => vec![entry(31, "ip", "127.0.0.1")],
        }
    }

    fn user_entry(&mut self, perms: i32) -> Acl {
        let mut identities = Vec::new();
        identify(&mut identities, &self.user());
        let Identity { scheme, id } = identities.remove(0);
        Acl { perms, id: Id { scheme: Some(scheme), id: Some(id) } }
    }

    /// Somebody to be.
    fn user(&mut self) -> Auth {
        let user = self.0.pick(&["ann:a", "bob:b"]);
        Auth { scheme: Some("digest".into()), auth: Some(Bytes::from_static(user.as_bytes())) }
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
