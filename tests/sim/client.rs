//! A client as the Java client is: it keeps its session and its watches across connections, pings,
//! gives a silent connection up, and goes on elsewhere.

use crate::checks::{AUTH_XID, Answered, Sent};
use crate::queue::Place;
use crate::random::Source;
use crate::script::Decision;
use crate::world::{Event, Start, Wire, World, millis};
use bytes::Bytes;
use jute::Text;
use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;
use zkshim::keeper::acl::{self, Identity};
use zkshim::keeper::error::ErrorCode;
use zkshim::keeper::request::{
    self, Auth, Body, Connect, Connected, ConnectionId, EventKind, Operation, Outgoing, Reply,
    Request, SessionId, SetWatches, Xid,
};
use zkshim::keeper::zxid::{Revision, Zxid};

/// Where a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    Away,
    /// The handshake was sent then.
    Opening(ConnectionId, Duration),
    Open(ConnectionId),
}

/// What a client does with the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockState {
    Idle,
    /// It asked for it, or is not sure whether it has it.
    Unsure,
    Held,
    /// It waits for an event.
    Waiting,
}

/// See the file's text.
#[derive(Debug)]
pub(crate) struct Client {
    /// The only shim that it goes to, if there is one.
    pub(crate) home: Option<usize>,
    wanted_ms: i32,
    pub(crate) link: Link,
    /// Since when it has had no session that it may use.
    pub(crate) away_since: Duration,
    pub(crate) session: SessionId,
    password: Bytes,
    pub(crate) timeout: Duration,
    pub(crate) last_zxid: Zxid,
    xid: i32,
    /// When what is under way was sent, in order; and pings.
    pub(crate) under_way: VecDeque<Duration>,
    pings: VecDeque<Duration>,
    heard_at: Duration,
    sent_at: Duration,
    pub(crate) silent_until: Duration,
    /// It has said goodbye or will not speak again, or never came.
    pub(crate) leaving: bool,
    pub(crate) closing: bool,
    pub(crate) lock: LockState,
    pub(crate) lock_next: Duration,
    pub(crate) place: Place,
    /// Turns of work that it had.
    pub(crate) turns: u64,
    /// How often it got a session, or got it back.
    pub(crate) opened: u64,
    watches: Watches,
    /// What it has told of itself in this session, and again on each connection.
    auths: Vec<Auth>,
    /// Who it is on its present connection.
    identities: Vec<Identity>,
}

/// Where all clients are.
pub(crate) const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The watches that a client believes to have (`ZKWatchManager`).
#[derive(Debug, Default)]
struct Watches {
    data: BTreeSet<Text>,
    exist: BTreeSet<Text>,
    child: BTreeSet<Text>,
    persistent: BTreeSet<Text>,
    recursive: BTreeSet<Text>,
}

impl Client {
    pub(crate) fn new(home: Option<usize>, wanted_ms: i32) -> Self {
        Self {
            home,
            wanted_ms,
            link: Link::Away,
            away_since: Duration::ZERO,
            session: SessionId(0),
            password: Bytes::from_static(&[0; 16]),
            timeout: Duration::from_secs(4),
            last_zxid: Zxid(0),
            xid: 0,
            under_way: VecDeque::new(),
            pings: VecDeque::new(),
            heard_at: Duration::ZERO,
            sent_at: Duration::ZERO,
            silent_until: Duration::ZERO,
            leaving: true,
            closing: false,
            lock: LockState::Idle,
            lock_next: Duration::ZERO,
            place: Place::default(),
            turns: 0,
            opened: 0,
            watches: Watches::default(),
            auths: Vec::new(),
            identities: Vec::new(),
        }
    }

    /// How long it waits for the answer to a handshake.
    pub(crate) fn patience(&self) -> Duration {
        (self.timeout / 3).max(Duration::from_millis(200))
    }

    pub(crate) fn next_xid(&mut self) -> Xid {
        self.xid += 1;
        Xid(self.xid)
    }
}

impl World {
    /// A client's turn; it makes its next one itself.
    pub(crate) fn client_acts(&mut self, index: usize) {
        let client = &self.clients[index];
        if self.now < client.silent_until {
            let at = client.silent_until.min(self.now + Duration::from_millis(500));
            self.schedule(at, Event::Client(index));
            return;
        }
        let third = client.timeout / 3;
        match client.link {
            Link::Away if client.leaving => return,
            Link::Away => self.connect(index),
            Link::Opening(connection, since) => {
                if self.now > since + client.patience() {
                    self.leave_wire(index, connection);
                }
            }
            Link::Open(connection) => {
                if self.now > client.heard_at + 2 * third {
                    self.leave_wire(index, connection);
                } else if client.leaving {
                    return;
                } else {
                    if self.now > client.sent_at + third {
                        self.ask(index, vec![(Xid::PING, Operation::Ping)]);
                    }
                    self.work(index, connection);
                }
            }
        }
        let think_ms = 2 * self.plan.think_ms;
        let think = self.chance.of(Source::Client(index)).millis(1, think_ms);
        let at = self.now + think.min(third / 4);
        self.schedule(at, Event::Client(index));
    }

    fn connect(&mut self, index: usize) {
        self.connection += 1;
        let connection = ConnectionId(self.connection);
        let shims = self.shims.len();
        let shim = self.chance.of(Source::Client(index)).below(shims);
        let client = &mut self.clients[index];
        let shim = client.home.unwrap_or(shim);
        let connect = Connect {
            last_zxid_seen: client.last_zxid,
            timeout_ms: client.wanted_ms,
            session: client.session,
            password: client.password.clone(),
        };
        client.link = Link::Opening(connection, self.now);
        client.identities = vec![acl::ip_identity(PEER)];
        client.under_way.clear();
        client.pings.clear();
        let start = self.start_of(shim);
        self.note(|_| format!("client {index} goes to shim {shim}: {connection:?} {connect:?}"));
        let at = self.now + self.network_delay(index);
        let client_identities = self.clients[index].identities.clone();
        let wire = Wire {
            client: index,
            start,
            asked: connect.session,
            session: connect.session,
            served: false,
            open_at_client: true,
            open_at_shim: false,
            identities: client_identities,
            last_to_shim: at,
            last_to_client: self.now,
        };
        self.wires.insert(connection, wire);
        let uncertain = self.shims[shim].uncertain;
        self.checks.opened(connection, index, uncertain);
        let who = self.clients[index].identities.as_slice().into();
        self.checks.identified(connection, Revision::NEVER, who);
        self.schedule(at, Event::Input(start, crate::shim::Input::Connect(connection, connect)));
    }

    /// How long a message between this client and a shim takes.
    pub(crate) fn network_delay(&self, client: usize) -> Duration {
        let source = Source::Network(client, millis(self.now));
        self.chance.once(source).millis(0, self.plan.network_ms)
    }

    /// A client gives its connection up.
    fn leave_wire(&mut self, index: usize, connection: ConnectionId) {
        self.note(|_| format!("client {index} gives {connection:?} up"));
        self.drop_wire(connection);
        self.hung_up(connection);
    }

    /// The connection is no more; the shim learns it sooner or later.
    pub(crate) fn drop_wire(&mut self, connection: ConnectionId) {
        let Some(wire) = self.wires.get_mut(&connection) else { return };
        let mut random = self.chance.once(Source::Network(wire.client, millis(self.now)));
        let long = random.chance(100) && self.plan.network_ms > 1;
        let delay = random.millis(0, if long { 10_000 } else { self.plan.network_ms });
        let at = wire.last_to_shim.max(self.now + delay);
        let start = wire.start;
        self.schedule(at, Event::Input(start, crate::shim::Input::Closed(connection)));
    }

    pub(crate) fn hung_up(&mut self, connection: ConnectionId) {
        let Some(wire) = self.wires.get_mut(&connection) else { return };
        wire.open_at_client = false;
        let index = wire.client;
        let client = &mut self.clients[index];
        let here = match client.link {
            Link::Away => false,
            Link::Opening(at, _) | Link::Open(at) => at == connection,
        };
        if !here {
            return;
        }
        if let Link::Open(_) = client.link {
            client.away_since = self.now;
        }
        client.link = Link::Away;
        if client.closing {
            self.forget_session(index);
        }
        self.lock_disturbed(index);
        self.queue_disturbed(index);
    }

    /// Requests leave together.
    pub(crate) fn ask(&mut self, index: usize, asked: Vec<(Xid, Operation)>) {
        let Link::Open(connection) = self.clients[index].link else { return };
        let revision = self.revision();
        let at = self.now + self.network_delay(index);
        self.note(|_| format!("{connection:?} of client {index} -> {asked:?}"));
        let mut requests = Vec::new();
        for (xid, operation) in asked {
            let client = &mut self.clients[index];
            client.sent_at = self.now;
            match &operation {
                Operation::Ping => client.pings.push_back(self.now),
                Operation::Auth(auth) => identify(&mut client.identities, auth),
                _ => client.under_way.push_back(self.now),
            }
            let identities = client.identities.as_slice().into();
            let told = Revision(client.last_zxid.0);
            let sent = Sent { xid, operation: operation.clone(), revision, told, identities };
            self.checks.sent(connection, sent);
            requests.push(Request { xid, operation });
        }
        let Some(wire) = self.wires.get_mut(&connection) else { return };
        wire.last_to_shim = wire.last_to_shim.max(at);
        let (start, at): (Start, Duration) = (wire.start, wire.last_to_shim);
        let input = crate::shim::Input::Requests(connection, requests);
        self.schedule(at, Event::Input(start, input));
    }

    pub(crate) fn reach_client(&mut self, connection: ConnectionId, outgoing: Outgoing) {
        let Some(wire) = self.wires.get(&connection).filter(|wire| wire.open_at_client) else {
            return;
        };
        let index = wire.client;
        self.clients[index].heard_at = self.now;
        self.note(|_| format!("client {index} {connection:?} gets {outgoing:?}"));
        match outgoing {
            Outgoing::Connected(Connected::Refused) => {
                self.forget_session(index);
                self.clients[index].link = Link::Away;
            }
            Outgoing::Connected(Connected::Accepted { timeout_ms, session, password }) => {
                let client = &mut self.clients[index];
                client.link = Link::Open(connection);
                client.session = session;
                client.password = password;
                client.timeout = Duration::from_millis(timeout_ms.unsigned_abs().into());
                client.sent_at = self.now;
                let auths = client.auths.iter().cloned().map(Operation::Auth);
                let auths: Vec<_> = auths.map(|auth| (AUTH_XID, auth)).collect();
                self.ask(index, auths);
                self.set_watches(index);
                self.just_opened(index, connection);
            }
            Outgoing::Event(event) => {
                let checked = self.checks.event(connection, &event);
                self.judge(checked);
                self.clients[index].watches.fired(&event);
                self.lock_event(index, &event);
                self.queue_event(index, &event);
            }
            Outgoing::Reply(reply) => self.replied(index, connection, &reply),
        }
    }

    fn replied(&mut self, index: usize, connection: ConnectionId, reply: &Reply) {
        let answered = match self.checks.reply(connection, reply, self.now) {
            Ok(answered) => answered,
            Err(violation) => {
                self.judge(Err(format!("{connection:?} of client {index}: {violation}")));
                return;
            }
        };
        let client = &mut self.clients[index];
        let sent_at = match answered {
            Answered::Request(_) => client.under_way.pop_front(),
            Answered::Ping => client.pings.pop_front(),
            // No sign of life of the session.
            Answered::Auth => None,
        };
        let Some(sent_at) = sent_at else { return };
        let alive_until = sent_at + client.timeout;
        let extended = self.checks.locks.extended(index, alive_until);
        self.judge(extended);
        let Answered::Request(sent) = answered else { return };
        let client = &mut self.clients[index];
        if reply.zxid > Zxid(0) {
            client.last_zxid = reply.zxid;
        }
        client.watches.replied(&sent, reply);
        if sent.operation == Operation::CloseSession {
            self.closed(index);
            return;
        }
        self.lock_replied(index, &sent, reply, alive_until);
        self.queue_replied(index, &sent, reply, alive_until);
    }

    /// A client has closed its session. Some try it once more, and must be refused.
    fn closed(&mut self, index: usize) {
        let client = &self.clients[index];
        let number = client.opened;
        let tries = client.home.is_none() && !client.leaving;
        let (session, password) = (client.session, client.password.clone());
        self.forget_session(index);
        let client = &mut self.clients[index];
        client.link = Link::Away;
        client.away_since = self.now;
        let returns = tries && self.chance.once(Source::Closed(index, number)).chance(600);
        if returns && self.script.takes(Decision::Return(index, number)) {
            (client.session, client.password) = (session, password);
        }
    }

    /// What it had is gone; the next session starts afresh.
    fn forget_session(&mut self, index: usize) {
        let client = &mut self.clients[index];
        client.session = SessionId(0);
        client.password = Bytes::from_static(&[0; 16]);
        client.last_zxid = Zxid(0);
        client.watches = Watches::default();
        client.auths.clear();
        client.closing = false;
        self.checks.afresh(index);
        self.lock_lost(index);
        self.queue_lost(index);
    }

    /// A client says who it is, once more or for the first time.
    pub(crate) fn introduce(&mut self, index: usize, auth: Auth) {
        self.clients[index].auths.push(auth.clone());
        self.ask(index, vec![(AUTH_XID, Operation::Auth(auth))]);
    }

    fn set_watches(&mut self, index: usize) {
        let client = &self.clients[index];
        let list = |paths: &BTreeSet<Text>| Some(paths.iter().cloned().map(Some).collect());
        let watches = &client.watches;
        let set = SetWatches {
            relative_zxid: client.last_zxid,
            data: list(&watches.data),
            exist: list(&watches.exist),
            child: list(&watches.child),
            persistent: list(&watches.persistent),
            persistent_recursive: list(&watches.recursive),
        };
        let any = [&set.data, &set.exist, &set.child, &set.persistent, &set.persistent_recursive];
        if any.iter().any(|list| list.as_ref().is_some_and(|list| !list.is_empty())) {
            self.ask(index, vec![(Xid(-8), Operation::SetWatches(set))]);
        }
    }
}

/// What an auth packet adds.
pub(crate) fn identify(identities: &mut Vec<Identity>, auth: &Auth) {
    let (scheme, auth) = (auth.scheme.as_deref(), auth.auth.as_deref());
    acl::authenticate(scheme, auth, None, identities).expect("the packet is a good one");
}

impl Watches {
    /// `ZKWatchManager.materialize`.
    fn fired(&mut self, event: &request::Event) {
        match event.kind {
            EventKind::NodeCreated | EventKind::NodeDataChanged => {
                self.data.remove(&event.path);
                self.exist.remove(&event.path);
            }
            EventKind::NodeChildrenChanged => {
                self.child.remove(&event.path);
            }
            EventKind::NodeDeleted => {
                self.data.remove(&event.path);
                self.exist.remove(&event.path);
                self.child.remove(&event.path);
            }
        }
    }

    fn replied(&mut self, sent: &Sent, reply: &Reply) {
        let ok = reply.outcome.is_ok();
        let path = |path: &Option<Text>| path.clone().unwrap_or_default();
        match &sent.operation {
            Operation::Exists(read) if read.watch && ok => {
                self.data.insert(path(&read.path));
            }
            Operation::Exists(read) if read.watch && reply.outcome == Err(ErrorCode::NoNode) => {
                self.exist.insert(path(&read.path));
            }
            Operation::GetData(read) if read.watch && ok => {
                self.data.insert(path(&read.path));
            }
            Operation::GetChildren(read) | Operation::GetChildren2(read) if read.watch && ok => {
                self.child.insert(path(&read.path));
            }
            Operation::AddWatch(add) if matches!(reply.outcome, Ok(Body::Watched)) => {
                let kind = if add.mode == 1 { &mut self.recursive } else { &mut self.persistent };
                kind.insert(path(&add.path));
            }
            Operation::RemoveWatches(selection) if ok => {
                let path = path(&selection.path);
                let any = selection.kind == 3;
                let tables = [
                    (2, &mut self.data),
                    (2, &mut self.exist),
                    (1, &mut self.child),
                    (4, &mut self.persistent),
                    (5, &mut self.recursive),
                ];
                for (kind, paths) in tables {
                    if any || kind == selection.kind {
                        paths.remove(&path);
                    }
                }
            }
            _ => {}
        }
    }
}
