//! What the core wants done, and what it tells of itself.

use crate::keeper::request::{ConnectionId, Outgoing, SessionId};
use crate::keeper::txn::StoreCommand;
use crate::keeper::zxid::Zxid;
use std::sync::Arc;
use std::time::Duration;

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
    /// One entry for each watch, in no order: there may be so many that whoever wants one has to
    /// make it elsewhere.
    pub entries: Vec<(SessionId, Arc<str>)>,
    /// Where it goes on; `None` if these were the last.
    pub rest: Option<WatchWalk>,
}

/// How far somebody is who goes through the watches. What is there all the time is met, perhaps
/// more than once; what comes or goes meanwhile may be missed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchWalk {
    /// Those that are left, the present one last; `None` at the start.
    pub(super) connections: Option<Vec<ConnectionId>>,
    /// So many of the present one's are left at most; `None` if it has not begun.
    pub(super) left: Option<usize>,
}
