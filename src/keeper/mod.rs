//! The pure core: ZooKeeper's semantics as values in and values out.
//!
//! The caller's duties, in order: hand in one input by a `handle_*`, drain every output with
//! [`Keeper::poll_output`], then wait for the next input or until [`Keeper::poll_timeout`].

pub mod error;
pub mod path;
pub mod time;
pub mod zxid;

pub mod request;
pub mod txn;

pub mod acl;
pub mod watches;

use crate::keeper::request::{Connect, ConnectionId, Outgoing, Request, SessionId};
use crate::keeper::time::Now;
use crate::keeper::txn::{StoreCommand, StoreEvent};
use crate::keeper::zxid::Zxid;
use std::net::IpAddr;
use std::time::Duration;

/// What the core is told once.
#[derive(Clone, Debug)]
pub struct Options {
    /// ZooKeeper's tick: the grain of session expiry.
    pub tick: Duration,
    /// The shortest session timeout granted.
    pub session_timeout_min: Duration,
    /// The longest session timeout granted.
    pub session_timeout_max: Duration,
    /// From which ids and passwords are drawn; it must be unpredictable.
    pub seed: [u8; 32],
    /// No other shim works on the same store, so the sessions found at the start are ours.
    pub sole: bool,
    /// TTL nodes are served (`extendedTypesEnabled`).
    pub ttl_nodes: bool,
    /// `user:base64(sha1(user:password))` of the super user (`superDigest`).
    pub super_digest: Option<String>,
    /// ACLs are stored and returned, but nothing is refused (`skipACL`).
    pub skip_acl: bool,
    /// Hard quotas are enforced (`enforceQuota`).
    pub enforce_quota: bool,
    /// How often containers and TTL nodes are looked through
    /// (`znode.container.checkIntervalMs`).
    pub container_check_interval: Duration,
}

/// What the core wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send this on a connection; what is sent to one connection leaves in this order.
    Send(ConnectionId, Outgoing),
    /// Flush what was sent, then close the connection.
    Close(ConnectionId),
    /// A command for the store.
    Store(StoreCommand),
}

/// Figures for the four-letter words; cheap to take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The store is loaded and its stream gives signs of life.
    pub serving: bool,
    /// The tree's zxid.
    pub zxid: Zxid,
    /// Znodes in the tree, the root included.
    pub znodes: usize,
    /// Ephemerals among them.
    pub ephemerals: usize,
    /// Sum over znodes of path length and data length.
    pub approximate_data_size: u64,
    /// Watches of all kinds: data and child tables.
    pub watches: usize,
    /// Connections that have a data watch.
    pub watching_connections: usize,
    /// Paths that have a data watch.
    pub watched_paths: usize,
    /// Entries in the data watch table (`wchs`' total).
    pub data_watches: usize,
    /// Live sessions in the whole cluster.
    pub sessions: usize,
    /// Requests received and not answered.
    pub outstanding: usize,
}

/// One session for `dump`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionStatus {
    /// Its id.
    pub session: SessionId,
    /// When it expires unless its client speaks, if this shim is its owner.
    pub deadline: Option<Duration>,
    /// The negotiated timeout.
    pub timeout: Duration,
    /// Its ephemerals, sorted.
    pub ephemerals: Vec<String>,
}

/// Watches for `wchc` and `wchp`: session and path, data table only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchStatus {
    /// One entry for each watch, sorted by session, then path.
    pub entries: Vec<(SessionId, String)>,
}

/// The state machine. See the module's text for how to drive it.
#[derive(Debug)]
pub struct Keeper {
    options: Options,
}

impl Keeper {
    /// A core that has not heard of its store yet.
    pub fn new(options: Options, now: Now) -> Self {
        let _ = now;
        Self { options }
    }

    /// A client's TCP connection was accepted.
    pub fn handle_opened(&mut self, connection: ConnectionId, peer: IpAddr) {
        let _ = (connection, peer, &self.options);
    }

    /// The first frame of a connection. Answered by [`Outgoing::Connected`], or by a close.
    pub fn handle_connect(&mut self, connection: ConnectionId, connect: Connect, now: Now) {
        let _ = (connection, connect, now);
    }

    /// What one read of a connection's socket brought, in order.
    pub fn handle_requests(&mut self, connection: ConnectionId, requests: Vec<Request>, now: Now) {
        let _ = (connection, requests, now);
    }

    /// A connection is gone. Also called after an [`Output::Close`] was carried out.
    pub fn handle_closed(&mut self, connection: ConnectionId, now: Now) {
        let _ = (connection, now);
    }

    /// Something from the store.
    pub fn handle_store(&mut self, event: StoreEvent, now: Now) {
        let _ = (event, now);
    }

    /// Time has passed; call it when [`Self::poll_timeout`] is reached.
    pub fn handle_timeout(&mut self, now: Now) {
        let _ = now;
    }

    /// The next thing to do. Drain it after every input.
    #[must_use]
    pub fn poll_output(&mut self) -> Option<Output> {
        None
    }

    /// When to call [`Self::handle_timeout`] at the latest ([`Now::monotonic`]).
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        None
    }

    /// Figures for the four-letter words.
    pub fn status(&self) -> Status {
        Status::default()
    }

    /// The sessions, sorted by id.
    pub fn sessions(&self) -> Vec<SessionStatus> {
        Vec::new()
    }

    /// The data watches of this shim's connections.
    pub fn watches(&self) -> WatchStatus {
        WatchStatus::default()
    }
}
