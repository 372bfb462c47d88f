//! From a seed to a script.

use crate::conformance::wire::{Writer, op, record};
use crate::differential::chance::Chance;
use crate::differential::multis::{multi, multi_read};
use crate::differential::script::{Action, Part, Request, Script, Step, Symbol};
use crate::differential::vocabulary::{USERS, acls, data, node, path, put, show, version};

/// reconfig, which the conformance suite has no cases for.
const RECONFIG: i32 = 16;

/// Opcodes that no client sends; −10 and 20 are left out, because the real server runs them.
pub const UNKNOWN: [i32; 10] = [0, -1, 10, 13, 23, 99, 108, 200, 1000, -12];

/// How often each kind of request comes.
const KINDS: [(usize, i32); 25] = [
    (16, op::CREATE),
    (8, op::CREATE2),
    (3, op::CREATE_CONTAINER),
    (3, op::CREATE_TTL),
    (9, op::DELETE),
    (10, op::SET_DATA),
    (5, op::SET_ACL),
    (7, op::EXISTS),
    (7, op::GET_DATA),
    (6, op::GET_CHILDREN),
    (6, op::GET_CHILDREN2),
    (4, op::GET_ACL),
    (2, op::GET_ALL_CHILDREN_NUMBER),
    (2, op::GET_EPHEMERALS),
    (1, op::WHO_AM_I),
    (2, op::SYNC),
    (1, op::PING),
    (12, op::MULTI),
    (3, op::MULTI_READ),
    (5, op::ADD_WATCH),
    (2, op::CHECK_WATCHES),
    (2, op::REMOVE_WATCHES),
    (2, op::SET_WATCHES),
    (2, op::SET_WATCHES2),
    (1, RECONFIG),
];

/// Auth packets that fail or give nothing new.
const ODD_AUTH: [(&str, Option<&[u8]>); 7] = [
    ("world", Some(b"anyone")),
    ("nope", Some(b"x")),
    ("auth", Some(b"")),
    ("super", Some(b"super:test")),
    ("digest", None),
    ("sasl", Some(b"x")),
    ("ip", Some(b"10.0.0.1")),
];

/// What limits nodes hold.
const LIMITS: [&str; 6] = [
    "count=4,bytes=30",
    "count=-1,bytes=-1",
    "count=-1,bytes=-1=;byteHardLimit=20;countHardLimit=5",
    "count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=4",
    "count=2,bytes=9=;byteHardLimit=40;countHardLimit=-1",
    "count=2",
];

/// The nodes that a quota is made of, seen from the root.
const QUOTA_NODES: [&str; 4] =
    ["/zookeeper_stats", "/zookeeper_limits", "/a/zookeeper_stats", "/a/zookeeper_limits"];

struct Generator<'a> {
    chance: Chance,
    root: &'a str,
    script: Script,
    batch: usize,
    xid: i32,
    slots: Vec<Slot>,
    has_quota: bool,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    connected: bool,
    has_session: bool,
}

/// The script of a seed, below a root, with about so many requests.
#[must_use]
pub fn script(seed: u64, root: &str, requests: usize) -> Script {
    let mut chance = Chance::new(seed);
    let slots = vec![Slot::default(); chance.below(3) + 1];
    let script = Script { root: root.to_owned(), steps: Vec::new() };
    let mut generator =
        Generator { chance, root, script, batch: 0, xid: 0, slots, has_quota: false };
    generator.begin();
    while generator.script.requests() < requests {
        generator.batch();
    }
    generator.script
}

impl Generator<'_> {
    /// The first slot makes the root.
    fn begin(&mut self) {
        self.step(0, Action::Open { timeout_ms: 40_000, read_only: Some(0), seen: None });
        if let Some(state) = self.slots.get_mut(0) {
            *state = Slot { connected: true, has_session: true };
        }
        self.batch += 1;
        self.create_open(self.root, "");
        self.batch += 1;
        if self.chance.percent(25) {
            let below = self.chance.pick(&["", "/a"]);
            self.quota(below);
        }
    }

    /// A quota on the root or below it: limits first, then the statistics. Not one in the other:
    /// there the real server's figures depend on when each was made.
    fn quota(&mut self, below: &str) {
        self.has_quota = true;
        let mut path = "/zookeeper/quota".to_owned();
        let tree = format!("{}{below}", self.root);
        for name in tree.split('/').skip(1).chain(["zookeeper_limits"]) {
            path = format!("{path}/{name}");
            let data = if name == "zookeeper_limits" { self.chance.pick(&LIMITS) } else { "" };
            self.create_open(&path, data);
        }
        self.create_open(&path.replace("zookeeper_limits", "zookeeper_stats"), "count=0,bytes=0");
        self.batch += 1;
    }

    fn create_open(&mut self, path: &str, data: &str) {
        let acl = record().int(1).int(31).string("world").string("anyone").bytes();
        let body = record().string(path).buffer(data.as_bytes()).raw(&acl).int(0);
        self.send(0, Request::new(op::CREATE, body, format!("create {path} {data:?}")));
    }

    fn batch(&mut self) {
        let slot = self.chance.below(self.slots.len());
        let state = self.slots.get(slot).copied().unwrap_or_default();
        let change = self.chance.below(100);
        match (state.connected, change) {
            (true, 0) => self.step(slot, Action::Drop),
            (true, 1) => {
                let broken = [
                    record().int(-1).bytes(),
                    record().int(0).bytes(),
                    record().int(4).int(7).bytes(),
                    record().int(0x0010_0000).bytes(),
                ];
                let bytes =
                    broken.get(self.chance.below(broken.len())).cloned().unwrap_or_default();
                self.step(slot, Action::Break(bytes));
            }
            (true, 2..4) => self.resume(slot),
            // Unknown opcodes are refused outside the queue, as failing auth is.
            (true, 5) => {
                let opcode = self.chance.pick(&UNKNOWN);
                let body = record().string("/").int(0);
                self.last(slot, Request::new(opcode, body, "an unknown opcode".to_owned()));
            }
            (true, 4) => {
                let (scheme, data) = self.chance.pick(&ODD_AUTH);
                let body = with_data(record().string(scheme), data);
                self.send(slot, auth(&body, scheme));
                if let Some(state) = self.slots.get_mut(slot) {
                    state.connected = scheme == "ip";
                }
            }
            (true, _) => self.requests(slot),
            (false, 0..60) if state.has_session => self.resume(slot),
            (false, _) => self.open(slot),
        }
        self.batch += 1;
    }

    fn step(&mut self, slot: usize, action: Action) {
        if let (Some(state), Action::Drop | Action::Break(_)) = (self.slots.get_mut(slot), &action)
        {
            state.connected = false;
        }
        let number = self.script.steps.len();
        self.script.steps.push(Step { number, batch: self.batch, slot, action });
    }

    fn seen(&mut self) -> Option<Symbol> {
        self.chance.weighted(&[
            (10, Some(Symbol::LastZxid)),
            (6, None),
            (1, Some(Symbol::FutureZxid)),
        ])
    }

    fn timeout_ms(&mut self) -> i32 {
        // Long enough for a loaded machine; what is above the bounds is clamped.
        self.chance.pick(&[40_000, 39_999, 30_001, 50_000, i32::MAX])
    }

    fn open(&mut self, slot: usize) {
        let timeout_ms = self.timeout_ms();
        let read_only = self.chance.pick(&[Some(0), Some(0), Some(1), Some(2), None]);
        // A zxid of the slot's former session.
        let seen = self.seen().filter(|seen| *seen != Symbol::FutureZxid);
        self.step(slot, Action::Open { timeout_ms, read_only, seen });
        if let Some(state) = self.slots.get_mut(slot) {
            *state = Slot { connected: true, has_session: true };
        }
    }

    fn resume(&mut self, slot: usize) {
        let timeout_ms = self.timeout_ms();
        let right_password = self.chance.percent(80);
        let (moves, seen) = (self.chance.percent(50), self.seen());
        self.step(slot, Action::Resume { timeout_ms, right_password, moves, seen });
        if let Some(state) = self.slots.get_mut(slot)
            && seen != Some(Symbol::FutureZxid)
        {
            // What is not accepted shows when it is played; then the slot's requests are not sent.
            state.connected = right_password;
        }
    }

    fn requests(&mut self, slot: usize) {
        let count = self.chance.weighted(&[(3, 1), (3, 2), (3, 4), (3, 8), (2, 16), (1, 30)]);
        // The real server counts what is applied: what is pipelined may pass the limit together.
        let count = if self.has_quota { 1 } else { count };
        // Auth and sasl are answered outside the queue, so they come first.
        if self.chance.percent(1) {
            let body = record().buffer(b"token");
            self.send(slot, Request::new(op::SASL, body, "sasl".to_owned()));
        }
        for _ in 0..if self.chance.percent(8) { self.chance.below(3) } else { 0 } {
            let (user, _) = self.chance.pick(&USERS);
            // The super user sees everything, so it comes rarely.
            if !user.starts_with("super") || self.chance.percent(15) {
                self.send(slot, auth(&record().string("digest").buffer(user.as_bytes()), user));
            }
        }
        for _ in 0..count {
            let request = self.request();
            // The real server checks what follows by the old ACL until the new one is applied
            // (`PrepRequestProcessor` leaves it out of the change record), so nothing follows.
            let is_acl = request.opcode == op::SET_ACL;
            self.send(slot, request);
            if is_acl {
                return;
            }
        }
        if self.chance.percent(3) {
            let body = record().raw(self.chance.pick(&[b"".as_slice(), b"body"]));
            let request = Request::new(op::CLOSE_SESSION, body, "closeSession".to_owned());
            self.last(slot, request);
        }
    }

    /// A request after which the server closes.
    fn last(&mut self, slot: usize, request: Request) {
        if let Some(state) = self.slots.get_mut(slot) {
            state.connected = false;
        }
        self.send(slot, request);
    }

    fn send(&mut self, slot: usize, mut request: Request) {
        self.xid += 1;
        request.xid = match (request.opcode, self.chance.below(60)) {
            (op::PING, 0..50) => -2,
            (op::AUTH, _) => -4,
            (op::SET_WATCHES | op::SET_WATCHES2, 0..20) => -8,
            (_, 0) => self.chance.pick(&[0, -3, -7, i32::MIN, i32::MAX]),
            _ => self.xid,
        };
        self.step(slot, Action::Send(request));
    }

    fn request(&mut self) -> Request {
        let kind = self.chance.weighted(&KINDS);
        let mut request = match kind {
            op::MULTI => multi(&mut self.chance, self.root),
            op::MULTI_READ => multi_read(&mut self.chance, self.root),
            op::GET_DATA | op::EXISTS if self.chance.percent(15) => {
                let node = self.chance.pick(&QUOTA_NODES);
                let path = format!("/zookeeper/quota{}{node}", self.root);
                let body = record().string(&path).flag(true);
                return Request::new(kind, body, format!("{} {path} watch true", name(kind)));
            }
            op::SET_WATCHES | op::SET_WATCHES2 => set_watches(&mut self.chance, self.root, kind),
            _ => {
                let (body, text) = record_of(&mut self.chance, self.root, kind);
                Request::new(kind, body, text)
            }
        };
        if self.chance.percent(3) {
            distort(&mut self.chance, &mut request);
        }
        request
    }
}

/// A record of a kind, for a request or a part of a multi.
pub fn record_of(chance: &mut Chance, root: &str, kind: i32) -> (Writer, String) {
    let path = path(chance, root);
    let shown = show(&path);
    let head = put(record(), &path);
    match kind {
        op::CREATE | op::CREATE2 | op::CREATE_CONTAINER | op::CREATE_TTL => {
            create_record(chance, kind, head, &shown)
        }
        op::DELETE | op::CHECK => {
            let version = version(chance);
            (head.int(version), format!("{} {shown} version {version}", name(kind)))
        }
        op::SET_DATA => {
            let (data, version) = (data(chance), version(chance));
            let text = format!("setData {shown} {} version {version}", length(data.as_deref()));
            (with_data(head, data.as_deref()).int(version), text)
        }
        op::SET_ACL => {
            // The system nodes are shared by all scripts and stay open.
            let inside = path.as_ref().is_some_and(|path| path.starts_with(root.as_bytes()));
            let open = (
                record().int(1).int(31).string("world").string("anyone").bytes(),
                "[open]".to_owned(),
            );
            let (acl, text) = if inside { acls(chance) } else { open };
            let version = version(chance);
            (head.raw(&acl).int(version), format!("setACL {shown} {text} version {version}"))
        }
        op::EXISTS | op::GET_DATA | op::GET_CHILDREN | op::GET_CHILDREN2 => {
            let watch = chance.percent(40);
            (head.flag(watch), format!("{} {shown} watch {watch}", name(kind)))
        }
        op::ADD_WATCH => {
            let mode = chance.weighted(&[(10, 0), (10, 1), (1, 2), (1, -1)]);
            (head.int(mode), format!("addWatch {shown} mode {mode}"))
        }
        op::CHECK_WATCHES | op::REMOVE_WATCHES => {
            let kind_of_watch =
                chance.weighted(&[(4, 1), (4, 2), (4, 3), (3, 4), (3, 5), (1, 0), (1, 6)]);
            (head.int(kind_of_watch), format!("{} {shown} type {kind_of_watch}", name(kind)))
        }
        op::DELETE_CONTAINER => (head, format!("deleteContainer {shown}")),
        RECONFIG => (record().null().null().string("").long(-1), "reconfig".to_owned()),
        op::PING | op::WHO_AM_I => (record(), name(kind)),
        _ => (head, format!("{} {shown}", name(kind))),
    }
}

fn create_record(chance: &mut Chance, kind: i32, head: Writer, shown: &str) -> (Writer, String) {
    let (data, (acl, acl_text)) = (data(chance), acls(chance));
    let plain = [(30, 0), (12, 1), (10, 2), (8, 3), (1, 4), (1, 5), (1, 6), (1, 7), (1, -1)];
    let flags = match kind {
        op::CREATE_CONTAINER => chance.weighted(&[(10, 4), (1, 0), (1, 2)]),
        op::CREATE_TTL => chance.weighted(&[(6, 5), (6, 6), (1, 0), (1, 1), (1, 7)]),
        _ => chance.weighted(&plain),
    };
    let body = with_data(head, data.as_deref()).raw(&acl).int(flags);
    let text =
        format!("{} {shown} {} {acl_text} flags {flags}", name(kind), length(data.as_deref()));
    if kind != op::CREATE_TTL {
        return (body, text);
    }
    // Far longer than any run. A negative one without a TTL mode would stop the real server.
    let least = if matches!(flags, 5 | 6) { -2 } else { 0 };
    let longest = (1 << 40) - 1;
    let ttl =
        chance.weighted(&[(10, 10_000_000), (1, 0), (1, least), (1, longest), (1, longest + 1)]);
    (body.long(ttl), format!("{text} ttl {ttl}"))
}

fn set_watches(chance: &mut Chance, root: &str, kind: i32) -> Request {
    let symbol = match chance.below(5) {
        0..2 => Symbol::LastZxid,
        2 => Symbol::FutureZxid,
        _ => Symbol::OlderZxid(chance.below(6)),
    };
    let mut lists = record();
    let mut text = format!("setWatches ({kind}) since {symbol:?}");
    for name in ["data", "exist", "child", "persistent", "recursive"]
        .iter()
        .take(if kind == op::SET_WATCHES2 { 5 } else { 3 })
    {
        let count = chance.below(4);
        if chance.percent(1) {
            lists = lists.null();
            text += &format!(" {name} null");
            continue;
        }
        lists = lists.count(count);
        for _ in 0..count {
            let path = match chance.below(10) {
                0 => path(chance, root),
                _ => Some(node(chance, root).into_bytes()),
            };
            text += &format!(" {name} {}", show(&path));
            lists = put(lists, &path);
        }
    }
    let body = vec![Part::Symbol(symbol), Part::Bytes(lists.bytes())];
    Request { xid: 0, opcode: kind, body, text }
}

fn auth(body: &Writer, who: &str) -> Request {
    let body = record().int(0).raw(&body.clone().bytes());
    Request::new(op::AUTH, body, format!("auth {who}"))
}

/// Cuts the record, lengthens it, or changes a byte.
fn distort(chance: &mut Chance, request: &mut Request) {
    let Some(Part::Bytes(bytes)) = request.body.last_mut() else { return };
    // A changed byte could make the one input that stops the real server.
    let may_change = request.opcode != op::CREATE_TTL && !bytes.is_empty();
    match chance.below(3) {
        0 => bytes.truncate(chance.below(bytes.len() + 1)),
        1 if may_change => {
            let index = chance.below(bytes.len());
            if let Some(byte) = bytes.get_mut(index) {
                *byte = chance.pick(&[0, 1, 0x2f, 0x7f, 0x80, 0xff]);
            }
        }
        _ => bytes.extend(b"surplus"),
    }
    request.text += &format!(" distorted to {}", crate::conformance::wire::hex(bytes));
}

fn with_data(record: Writer, data: Option<&[u8]>) -> Writer {
    match data {
        Some(data) => record.buffer(data),
        None => record.null(),
    }
}

fn length(data: Option<&[u8]>) -> String {
    data.map_or_else(|| "null".to_owned(), |data| format!("{} bytes", data.len()))
}

fn name(opcode: i32) -> String {
    let name = match opcode {
        op::CREATE => "create",
        op::CREATE2 => "create2",
        op::CREATE_CONTAINER => "createContainer",
        op::CREATE_TTL => "createTTL",
        op::DELETE => "delete",
        op::CHECK => "check",
        op::EXISTS => "exists",
        op::GET_DATA => "getData",
        op::GET_CHILDREN => "getChildren",
        op::GET_CHILDREN2 => "getChildren2",
        op::GET_ACL => "getACL",
        op::SYNC => "sync",
        op::GET_EPHEMERALS => "getEphemerals",
        op::GET_ALL_CHILDREN_NUMBER => "getAllChildrenNumber",
        op::CHECK_WATCHES => "checkWatches",
        op::REMOVE_WATCHES => "removeWatches",
        op::PING => "ping",
        op::WHO_AM_I => "whoAmI",
        other => return format!("opcode {other}"),
    };
    name.to_owned()
}
