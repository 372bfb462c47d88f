//! The server and the model side by side.

use bytes::Bytes;
use zkshim::keeper::keyspace::Slot;
use zkshim::keeper::request::{
    AddWatch, Auth, Body, Connect, Connected, ConnectionId, Event, Operation, Outgoing, Read,
    Reply, Request, SessionId, Xid,
};
use zkshim::keeper::zxid::Zxid;

use crate::ask::{Answer, Ask};
use crate::watchers::{Mode, Notification, Watchers};
use crate::world::{Seen, World};
use crate::zookeeper::{Caller, ZooKeeper};

/// The clients that ask: the first one has proved to be `a`.
pub(crate) const CLIENTS: usize = 3;

/// The shims; each has a client of the super user that looks at everything.
const SHIMS: [&str; 2] = ["S1", "S2"];

const USER: &str = "a:mDmPUap4qvYwm+PZOtJ/scGyHLY=";

struct Client {
    shim: &'static str,
    connection: ConnectionId,
    session: SessionId,
    password: Bytes,
    /// The highest zxid that it has been shown.
    seen: i64,
    users: Vec<String>,
}

/// See the file's text.
pub(crate) struct Trial {
    pub(crate) world: World,
    model: ZooKeeper,
    watchers: Watchers,
    clients: Vec<Client>,
    xid: i32,
    /// What each client got and nobody has looked at.
    got: Vec<Vec<Outgoing>>,
}

impl Trial {
    pub(crate) fn new(super_digest: &str) -> Self {
        let mut trial = Self {
            world: World::new(),
            model: ZooKeeper::new(),
            watchers: Watchers::default(),
            clients: Vec::new(),
            xid: 0,
            got: Vec::new(),
        };
        for shim in SHIMS {
            trial.start(shim, super_digest);
        }
        for client in 0..CLIENTS + SHIMS.len() {
            trial.got.push(Vec::new());
            trial.clients.push(Client {
                shim: SHIMS[client % SHIMS.len()],
                connection: ConnectionId(0),
                session: SessionId(0),
                password: Bytes::new(),
                seen: 0,
                users: Vec::new(),
            });
            trial.connect(client);
        }
        trial
    }

    fn start(&mut self, shim: &str, super_digest: &str) {
        let mut options = World::options(shim.as_bytes()[1].wrapping_add(self.xid as u8));
        options.super_digest = Some(super_digest.to_owned());
        self.world.start(shim, options);
    }

    /// Connects with the session that the client has, or a new one, and leaves the watches that
    /// it always has: one of each mode.
    fn connect(&mut self, client: usize) {
        let known = &self.clients[client];
        let connect = Connect {
            last_zxid_seen: Zxid(known.seen),
            timeout_ms: 40_000,
            session: known.session,
            password: known.password.clone(),
        };
        let shim = known.shim;
        self.watchers.drop_client(client);
        self.got[client].clear();
        self.clients[client].connection = self.world.connect(shim, connect);
        self.look();
        let answer = self.got[client].pop();
        let Some(Outgoing::Connected(Connected::Accepted { session, password, .. })) = answer
        else {
            panic!("client {client} was not let in: {answer:?}");
        };
        let mut asks = Vec::new();
        let secret = match client {
            0 => Some("a:a"),
            _ if client >= CLIENTS => Some("super:s"),
            _ => None,
        };
        let known = &mut self.clients[client];
        (known.session, known.password) = (session, password);
        if let Some(secret) = secret {
            let auth = Some(Bytes::from_static(secret.as_bytes()));
            asks.push(Operation::Auth(Auth { scheme: Some("digest".into()), auth }));
            known.users = vec![USER.to_owned()];
        }
        let watch = |path: &str, mode| AddWatch { path: Some(path.into()), mode };
        asks.push(Operation::AddWatch(watch("/", 1)));
        asks.push(Operation::AddWatch(watch("/a", 0)));
        self.watchers.add(client, false, "/", Mode::Recursive);
        self.watchers.add(client, false, "/a", Mode::Persistent);
        self.watchers.add(client, true, "/a", Mode::Persistent);
        let replies = self.ask_raw(client, asks);
        assert!(replies.iter().all(|reply| reply.outcome.is_ok()), "{replies:?}");
    }

    /// Asks and returns the replies; what else came stays in `got`.
    fn ask_raw(&mut self, client: usize, operations: Vec<Operation>) -> Vec<Reply> {
        let count = operations.len();
        let requests = operations.into_iter().map(|operation| {
            self.xid += 1;
            Request { xid: Xid(self.xid), operation }
        });
        let requests = requests.collect();
        self.world.request(self.clients[client].connection, requests);
        self.look();
        let mut replies = Vec::new();
        self.got[client].retain(|outgoing| match outgoing {
            Outgoing::Reply(reply) => {
                replies.push(reply.clone());
                false
            }
            _ => true,
        });
        assert_eq!(replies.len(), count, "every request is answered");
        assert!(replies.is_sorted_by_key(|reply| reply.xid.0), "in the order in which it came");
        replies
    }

    /// Files what was sent, and holds it to the order of zxids.
    fn look(&mut self) {
        for seen in std::mem::take(&mut self.world.seen) {
            let Seen::Sent(connection, outgoing) = seen else { continue };
            let of = self.clients.iter().position(|client| client.connection == connection);
            // A client that connects has its connection's number only afterwards.
            let newest = self.clients.iter().position(|client| client.connection.0 == 0);
            let client = of.or(newest).unwrap_or(usize::MAX);
            let Some(got) = self.got.get_mut(client) else { continue };
            let zxid = match &outgoing {
                Outgoing::Reply(reply) => reply.zxid.0,
                Outgoing::Event(event) => event.zxid.0,
                Outgoing::Connected(_) => 0,
            };
            if zxid > 0 {
                let last = &mut self.clients[client].seen;
                assert!(zxid >= *last, "client {client} saw {last}, and then {outgoing:?}");
                *last = zxid;
            }
            got.push(outgoing);
        }
    }

    /// Requests of one client at once, on both sides.
    pub(crate) fn ask(&mut self, client: usize, asks: &[Ask]) {
        let unix_ms = self.world.now.unix_ms;
        let replies = self.ask_raw(client, asks.iter().map(Ask::operation).collect());
        for (ask, reply) in asks.iter().zip(replies) {
            let known = &self.clients[client];
            let caller = Caller {
                session: known.session.0,
                users: known.users.clone(),
                zxid: reply.zxid.0,
                unix_ms,
            };
            let expected = ask.answer(&mut self.model, &caller);
            let outcome = reply.outcome.map(Answer::of);
            assert_eq!(outcome, expected, "client {client} asked {ask:?} (zxid {})", reply.zxid);
            if let Some((path, child_table)) = ask.watch(&expected) {
                self.watchers.add(client, child_table, path, Mode::Standard);
            }
            self.tell(reply.zxid.0);
        }
        self.check_events();
    }

    /// The model's changes reach the model's watchers.
    fn tell(&mut self, zxid: i64) {
        let users: Vec<Vec<String>> = self.clients.iter().map(|c| c.users.clone()).collect();
        for told in std::mem::take(&mut self.model.told) {
            self.watchers.tell(&told, zxid, &users);
        }
    }

    fn check_events(&mut self) {
        self.look();
        for client in 0..self.clients.len() {
            let got: Vec<Notification> = self.got[client]
                .drain(..)
                .map(|outgoing| match outgoing {
                    Outgoing::Event(Event { kind, path, zxid }) => {
                        let path = path.as_str().to_owned();
                        Notification { client, kind, path, zxid: zxid.0 }
                    }
                    other => panic!("client {client} did not ask for {other:?}"),
                })
                .collect();
            let due = self.watchers.take(client);
            // The super user may know everything; the model knows no super user.
            if client < CLIENTS {
                assert_eq!(got, due, "events of client {client}");
            }
        }
    }

    /// The client closes its session, and begins another.
    pub(crate) fn close(&mut self, client: usize) {
        let reply = self.ask_raw(client, vec![Operation::CloseSession]).remove(0);
        assert_eq!(reply.outcome, Ok(Body::Empty));
        self.model.end_session(self.clients[client].session.0, reply.zxid.0);
        self.tell(reply.zxid.0);
        self.check_events();
        self.begin(client);
    }

    /// etcd ends the client's lease: all its keys go at once, and no txn says so.
    pub(crate) fn end_lease(&mut self, client: usize) {
        let session = self.clients[client].session;
        let key = Slot::Session(session).key();
        let lease = self.world.engine.get(&key).expect("the session is there").lease;
        assert!(self.world.engine.revoke(lease));
        let zxid = self.world.engine.revision().0;
        self.world.settle();
        self.model.end_session(session.0, zxid);
        self.tell(zxid);
        self.check_events();
        self.begin(client);
    }

    fn begin(&mut self, client: usize) {
        let known = &mut self.clients[client];
        (known.session, known.password) = (SessionId(0), Bytes::new());
        known.connection = ConnectionId(0);
        self.connect(client);
    }

    /// The client goes on at the other shim.
    pub(crate) fn move_over(&mut self, client: usize) {
        let known = &mut self.clients[client];
        known.shim = if known.shim == SHIMS[0] { SHIMS[1] } else { SHIMS[0] };
        known.connection = ConnectionId(0);
        self.connect(client);
    }

    /// The history is forgotten, and every shim loads what there is.
    pub(crate) fn compact(&mut self) {
        // What went with a lease is written down within a second.
        self.pause();
        self.world.engine.compact(self.world.engine.revision());
        for shim in SHIMS {
            self.world.load(shim);
        }
        self.check_events();
    }

    /// A shim is started anew; its clients come back to it.
    pub(crate) fn restart(&mut self, shim: usize, super_digest: &str) {
        let shim = SHIMS[shim];
        self.world.kill(shim);
        self.start(shim, super_digest);
        for client in 0..self.clients.len() {
            if self.clients[client].shim == shim {
                self.clients[client].connection = ConnectionId(0);
                self.connect(client);
            }
        }
        self.check_events();
    }

    /// A second in which everybody pings.
    fn pause(&mut self) {
        self.world.advance(std::time::Duration::from_secs(1));
        for client in 0..self.clients.len() {
            let connection = self.clients[client].connection;
            let ping = Request { xid: Xid::PING, operation: Operation::Ping };
            self.world.request(connection, vec![ping]);
        }
        self.look();
        for got in &mut self.got {
            got.retain(|out| !matches!(out, Outgoing::Reply(reply) if reply.xid == Xid::PING));
        }
    }

    /// Every shim has the model's tree, to the last field.
    pub(crate) fn check_trees(&mut self) {
        for client in CLIENTS..self.clients.len() {
            let paths: Vec<String> = self.model.paths().cloned().collect();
            let shim = self.clients[client].shim;
            let znodes = self.world.shim(shim).keeper.status().znodes;
            assert_eq!(znodes, paths.len(), "znodes of {shim}");
            for path in paths {
                self.check_znode(client, &path);
            }
        }
    }

    fn check_znode(&mut self, client: usize, path: &str) {
        let shim = self.clients[client].shim;
        let read = || Read { path: Some(path.into()), watch: false };
        let operations = vec![
            Operation::GetData(read()),
            Operation::GetChildren2(read()),
            Operation::GetAcl(Some(path.into())),
        ];
        let answers = self.ask_raw(client, operations);
        let (data, acl) = self.model.content(path).expect("as listed");
        let stat = self.model.stat(path).expect("as listed");
        let children = self.model.children(path);
        for reply in answers {
            let right = match &reply.outcome {
                Ok(Body::Data(got, got_stat)) => {
                    got.as_deref() == data.as_deref() && *got_stat == stat
                }
                Ok(Body::NamesStat(names, got_stat)) => {
                    crate::show::names(&names.0) == children && *got_stat == stat
                }
                Ok(Body::Acl(got, got_stat)) => *got == acl && *got_stat == stat,
                _ => false,
            };
            assert!(
                right,
                "{shim} says of {path} {:?}, and the model {data:?} {stat:?} {children:?} {acl:?}",
                reply.outcome
            );
        }
    }
}
