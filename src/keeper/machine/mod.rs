//! The state machine: inputs by `handle_*`, outputs by `poll_output`.
//!
//! Each file below is one part of it: the handshake, requests and reads, writes on their way, the
//! stream, and time. This one holds the state and the face.

mod chain;
mod commit;
mod fence;
mod follow;
mod handshake;
mod internal;
mod kept;
mod serve;
mod settle;
mod spent;
mod stats;
mod timers;
mod unwritten;
mod watching;

use crate::keeper::acl::Identity;
use crate::keeper::barriers::Barriers;
use crate::keeper::batch::{Batch, Claims, Room};
use crate::keeper::keyspace::{ShimId, Slot, StepKind};
use crate::keeper::machine::chain::Chain;
use crate::keeper::machine::fence::Fence;
use crate::keeper::machine::internal::Later;
use crate::keeper::machine::kept::Addresses;
use crate::keeper::options::Options;
use crate::keeper::output::{Output, SessionStatus, Status};
use crate::keeper::planner::Settings;
use crate::keeper::replica::Replica;
use crate::keeper::request::{Connect, ConnectionId, Outgoing, SessionId, Xid};
use crate::keeper::sessions::ended::Ended;
use crate::keeper::sessions::leases::Leases;
use crate::keeper::sessions::{KeyState, Local, Locals, Pending, Stay};
use crate::keeper::time::{Compact, Now};
use crate::keeper::tree::Path;
use crate::keeper::txn::{LeaseId, StoreCommand, Token};
use crate::keeper::watches::Watches;
use crate::keeper::zxid::{Revision, Zxid};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Past this time without a sign of life from etcd nothing is served, whatever the timeouts.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// A client's connection.
#[derive(Debug)]
struct Connection {
    identities: Arc<[Identity]>,
    /// About what they take.
    identity_bytes: usize,
    session: Option<SessionId>,
    /// The session timeout, for the bound on silence.
    timeout: Compact,
    /// A close was put out; nothing more is sent or served.
    closed: bool,
}

/// Who waits for a barrier.
#[derive(Debug)]
enum Waiter {
    /// A session's sync, or its setWatches with a zxid ahead of the tree.
    Session(Stay),
    /// A connect that cannot be refused, or not served, before it is certain.
    Connect(ConnectionId, Connect),
    /// A client of a new session that has no key yet.
    Opened(Stay, ConnectionId),
    /// What such a client asks, who was told of its session at once.
    Told(Stay),
    /// A client with a session of which nobody has heard, and whose password is good.
    Adopt(ConnectionId, Connect),
    /// A batch without writes whose guards held at the revision waited for.
    Proved(Token),
    /// A batch that failed; its requests are planned again.
    Again(Token),
    /// Whoever fences off batches that may be lost.
    Fence,
}

/// What a batch carries.
#[derive(Debug)]
enum Carried {
    /// The head of a session's queue.
    Session(Stay, Pending),
    /// Something of the shim's own.
    Internal(Internal),
}

/// What a shim does by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Internal {
    /// Say which layout the store has.
    Meta,
    /// Say what sessions' passwords are made from.
    Secret([u8; 32]),
    /// Say which sessions have ended that never had a key.
    Ended(Vec<SessionId>),
    /// Say that a session which has no key gets none: its client is to be refused.
    Spend(SessionId),
    /// What [`Self::Spend`] was against cannot be under way any more.
    Forget(SessionId),
    /// A container or TTL node may go.
    ExpireNode(Path),
    /// Write down when a parent lost a child.
    Pzxid(Path, Revision),
    /// Mark a session whose end does not fit into one txn, then revoke its lease.
    Revoke(SessionId),
}

/// Whether this shim may write: it needs a number and a lease of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Registration {
    /// A lease is asked for, more than once if no answer came; the first one counts.
    Granting(Vec<Token>),
    /// A lease is there.
    Done(LeaseId),
    /// To be tried again then.
    RetryAt(Duration),
}

/// Whether larger txns were tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probe {
    /// Nothing was too large so far.
    NotYet,
    /// A txn of this size is tried.
    UnderWay(Token, usize),
    /// What there is to know is known.
    Done,
}

/// Who gets a lease that is being granted.
#[derive(Clone, Copy, Debug)]
struct GrantFor {
    session: SessionId,
    ttl: Duration,
    /// The lease runs from then on, or later.
    asked_at: Duration,
}

/// The state machine. See the module's text for how to drive it.
#[derive(Debug)]
pub struct Keeper {
    options: Options,
    settings: Settings,
    now: Now,
    random: ChaCha20Rng,
    token: u64,
    outputs: VecDeque<Output>,

    replica: Replica,
    loaded: bool,
    watches: Watches,
    fired: Vec<ConnectionId>,

    connections: FxHashMap<ConnectionId, Connection>,
    addresses: Addresses,
    /// What the identities of all of them take.
    identity_bytes: usize,
    locals: Locals,
    leases: Leases,
    grants: FxHashMap<Token, GrantFor>,
    registration: Registration,
    /// Sessions with a write to plan, in the order in which they came.
    ready: VecDeque<SessionId>,
    /// Sessions to look at again once a batch is out of the way.
    behind: FxHashMap<Token, Vec<SessionId>>,

    batches: FxHashMap<Token, Batch<Carried>>,
    numbers: FxHashMap<u64, Token>,
    claims: Claims,
    chain: Chain,
    batch_number: u64,
    room: Room,
    refusal_logged_at: Duration,
    /// How large a txn may be, if more than by default.
    probe: Probe,
    /// Sessions that wait for it.
    behind_probe: Vec<SessionId>,
    /// Batches are nested until so many have succeeded.
    nested_left: u32,
    /// No other shim is reckoned with from then on: see [`Options::alone_after`].
    alone_from: Duration,
    /// Batches with an unknown outcome, and until when the stream may decide.
    unknown: FxHashMap<Token, Duration>,
    /// Batches that may be lost are being fenced off.
    fence: Option<Fence>,
    /// Sessions whose writes another shim's claim holds back, and until when.
    held: Vec<(Duration, SessionId)>,
    /// When claims of other shims were seen.
    claims_seen: FxHashMap<(Slot, ShimId), Duration>,
    /// Nothing is sent before: the store has refused for a reason of its own.
    hold_until: Duration,
    /// Nor is word of sessions' ends before this one: see [`Self::send_words`].
    words_hold_until: Duration,

    barriers: Barriers<Waiter>,
    /// The last time at which it was certain that the tree had all that etcd had.
    confirmed_at: Duration,
    progress_at: Duration,

    /// Sessions that have ended without a key, for other shims to hear of.
    words: VecDeque<Vec<SessionId>>,
    /// What the shim does by itself: now, and later.
    internal: VecDeque<Internal>,
    internal_later: Later,
    /// Sessions whose end is marked, and who waits for it.
    ending: FxHashMap<SessionId, Option<(ConnectionId, Xid)>>,
    revokes: FxHashMap<Token, SessionId>,
    /// Clients that are told that their session has ended, once it has.
    refusals: FxHashMap<SessionId, Vec<ConnectionId>>,
    /// Sessions without a key, and when they get one.
    unwritten: BinaryHeap<Reverse<(Duration, SessionId)>>,
    /// Clients with sessions of which nobody has heard, and how long they wait.
    adoptions: Vec<(Duration, ConnectionId, Connect)>,
    ended: Ended,
    /// It is not known before this which sessions ended before the last load.
    past_known_at: Duration,
    /// Clients that are refused once it is certain that their session gets no key.
    spending: FxHashMap<SessionId, Vec<(ConnectionId, Connect)>>,
    /// When it is forgotten that sessions get no key, in order.
    spent: VecDeque<(Duration, SessionId)>,
    /// Sessions that ended without a key, for other shims to know, and when they are told.
    unsaid: Vec<SessionId>,
    say_at: Option<Duration>,
    nodes_checked_at: Duration,
    heartbeat_at: Duration,
    outstanding: usize,
}

impl Keeper {
    /// A core that has not heard of its store yet.
    pub fn new(options: Options, now: Now) -> Self {
        let mut random = ChaCha20Rng::from_seed(options.seed);
        let shim = ShimId(random.next_u64());
        let settings = Settings {
            skip_acl: options.skip_acl,
            ttl_nodes: options.ttl_nodes,
            enforce_quota: options.enforce_quota,
            offset: crate::keeper::zxid::ZxidOffset::default(),
            shim,
            shim_lease: LeaseId::NONE,
        };
        Self {
            settings,
            now,
            random,
            token: 0,
            outputs: VecDeque::new(),
            replica: Replica::new(shim),
            loaded: false,
            watches: Watches::default(),
            fired: Vec::new(),
            connections: FxHashMap::default(),
            addresses: Addresses::default(),
            identity_bytes: 0,
            locals: Locals::new(options.tick),
            leases: Leases::default(),
            grants: FxHashMap::default(),
            registration: Registration::RetryAt(Duration::ZERO),
            ready: VecDeque::new(),
            behind: FxHashMap::default(),
            batches: FxHashMap::default(),
            numbers: FxHashMap::default(),
            claims: Claims::default(),
            chain: Chain::default(),
            batch_number: 0,
            room: Room::default(),
            refusal_logged_at: Duration::ZERO,
            probe: Probe::NotYet,
            behind_probe: Vec::new(),
            nested_left: 0,
            alone_from: now.monotonic.saturating_add(options.alone_after),
            unknown: FxHashMap::default(),
            fence: None,
            held: Vec::new(),
            claims_seen: FxHashMap::default(),
            hold_until: Duration::ZERO,
            words_hold_until: Duration::ZERO,
            barriers: Barriers::default(),
            confirmed_at: Duration::ZERO,
            progress_at: Duration::ZERO,
            words: VecDeque::new(),
            internal: VecDeque::new(),
            internal_later: Later::default(),
            ending: FxHashMap::default(),
            revokes: FxHashMap::default(),
            refusals: FxHashMap::default(),
            unwritten: BinaryHeap::new(),
            adoptions: Vec::new(),
            ended: Ended::default(),
            past_known_at: Duration::ZERO,
            spending: FxHashMap::default(),
            spent: VecDeque::new(),
            unsaid: Vec::new(),
            say_at: None,
            nodes_checked_at: now.monotonic,
            heartbeat_at: now.monotonic,
            outstanding: 0,
            options,
        }
    }

    /// A client's TCP connection was accepted.
    pub fn handle_opened(&mut self, connection: ConnectionId, peer: IpAddr) {
        let opened = Connection {
            identities: self.addresses.identities(peer),
            identity_bytes: 0,
            session: None,
            timeout: self.options.session_timeout_max.into(),
            closed: false,
        };
        self.connections.insert(connection, opened);
    }

    /// A connection is gone. Also called after an [`Output::Close`] was carried out. What it asked
    /// is carried out all the same; its session lives on until its deadline.
    pub fn handle_closed(&mut self, connection: ConnectionId, now: Now) {
        self.now = now;
        self.keeps_nothing(connection);
        let Some(gone) = self.connections.remove(&connection) else { return };
        if let Some(local) = gone.session.and_then(|session| self.locals.find(session))
            && local.connection == Some(connection)
        {
            local.connection = None;
        }
    }

    /// The next thing to do. Drain it after every input, or after all inputs that were there.
    #[must_use]
    pub fn poll_output(&mut self) -> Option<Output> {
        if self.outputs.is_empty() {
            self.pump();
        }
        self.outputs.pop_front()
    }

    /// Figures for the four-letter words.
    pub fn status(&self) -> Status {
        Status {
            serving: self.is_serving(),
            zxid: self.replica.zxid(),
            znodes: self.replica.tree.len(),
            ephemerals: self.replica.tree.ephemeral_count(),
            approximate_data_size: self.replica.tree.data_size(),
            watches: self.watches.total(),
            watching_connections: self.watches.data_connections(),
            watched_paths: self.watches.data_paths(),
            data_watches: self.watches.data_entries(),
            sessions: self.replica.sessions.len() + self.without_key().count(),
            outstanding: self.outstanding,
        }
    }

    /// The sessions, sorted by id.
    pub fn sessions(&self) -> Vec<SessionStatus> {
        let mut sessions: Vec<SessionStatus> = self
            .replica
            .sessions
            .iter()
            .map(|(session, record)| {
                let local = self.locals.peek(*session);
                let owned = self.replica.tree.ephemerals(*session);
                let mut ephemerals: Vec<String> = owned.map(|path| path.to_string()).collect();
                ephemerals.sort_unstable();
                SessionStatus {
                    session: *session,
                    deadline: local.map(Local::deadline),
                    timeout: local.map_or(record.value.timeout(), Local::timeout),
                    ephemerals,
                }
            })
            .collect();
        sessions.extend(self.without_key());
        sessions.sort_unstable_by_key(|session| session.session);
        sessions
    }

    /// This shim's sessions of which etcd does not know.
    fn without_key(&self) -> impl Iterator<Item = SessionStatus> {
        self.locals
            .iter()
            .filter(|(_, local)| local.key != KeyState::Written)
            .filter(|(session, _)| !self.replica.sessions.contains_key(session))
            .map(|(session, local)| SessionStatus {
                session,
                deadline: Some(local.deadline()),
                timeout: local.timeout(),
                ephemerals: Vec::new(),
            })
    }

    fn is_serving(&self) -> bool {
        self.loaded
            && (matches!(self.registration, Registration::Done(_)) || self.fence.is_some())
            && self.silence() < SILENCE_MAX
    }

    /// How long it is not certain that the tree has all that etcd has.
    fn silence(&self) -> Duration {
        self.now.monotonic.saturating_sub(self.confirmed_at)
    }

    fn next_token(&mut self) -> Token {
        self.token += 1;
        Token(self.token)
    }

    fn command(&mut self, command: StoreCommand) {
        self.outputs.push_back(Output::Store(command));
    }

    fn send(&mut self, connection: ConnectionId, outgoing: Outgoing) {
        if self.is_open(connection) {
            self.outputs.push_back(Output::Send(connection, outgoing));
        }
    }

    fn is_open(&self, connection: ConnectionId) -> bool {
        self.connections.get(&connection).is_some_and(|connection| !connection.closed)
    }

    fn close(&mut self, connection: ConnectionId) {
        if let Some(open) = self.connections.get_mut(&connection).filter(|open| !open.closed) {
            open.closed = true;
            self.outputs.push_back(Output::Close(connection));
            self.keeps_nothing(connection);
        }
    }

    fn zxid(&self) -> Zxid {
        self.replica.zxid()
    }
}

fn event_of(kind: StepKind) -> crate::keeper::request::EventKind {
    use crate::keeper::request::EventKind;
    match kind {
        StepKind::Created => EventKind::NodeCreated,
        StepKind::Deleted => EventKind::NodeDeleted,
        StepKind::DataChanged => EventKind::NodeDataChanged,
    }
}
