//! What is counted: for each connection, and for the server as a whole.
//!
//! Plain atomics, each true by itself; a reader may see one counted and the other not yet.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU8, AtomicU64, AtomicUsize};

use crate::keeper::request::{Operation, SessionId, Xid};
use crate::keeper::zxid::Zxid;
use crate::wire::four_letter::{Connection, ConnectionSession, Latency};

macro_rules! kinds {
    ($($kind:ident = $name:literal;)*) => {
        /// A request by what `cons` calls it (`Request.op2String`).
        #[expect(missing_docs, reason = "the names say it")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum RequestKind {
            $($kind,)*
        }

        impl RequestKind {
            const ALL: &'static [Self] = &[$(Self::$kind),*];

            /// The short name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }
        }
    };
}

kinds! {
    None = "NA";
    Session = "SESS";
    Close = "CLOS";
    Ping = "PING";
    Create = "CREA";
    Delete = "DELE";
    Exists = "EXIS";
    GetData = "GETD";
    SetData = "SETD";
    GetAcl = "GETA";
    SetAcl = "SETA";
    GetChildren = "GETC";
    GetAllChildrenNumber = "GETACN";
    GetEphemerals = "GETE";
    Sync = "SYNC";
    Multi = "MULT";
    MultiRead = "MLTR";
    Reconfig = "RECO";
    SetWatches = "SETW";
    AddWatch = "ADDW";
    CheckWatches = "CHKW";
    RemoveWatches = "REMW";
    WhoAmI = "HOMI";
    Other = "UNKNOWN";
}

impl RequestKind {
    /// What kind an operation is.
    pub fn of(operation: &Operation) -> Self {
        match operation {
            Operation::Ping => Self::Ping,
            Operation::CloseSession => Self::Close,
            Operation::Create(_) => Self::Create,
            Operation::Delete(_) => Self::Delete,
            Operation::Exists(_) => Self::Exists,
            Operation::GetData(_) => Self::GetData,
            Operation::SetData(_) => Self::SetData,
            Operation::GetAcl(_) => Self::GetAcl,
            Operation::SetAcl(_) => Self::SetAcl,
            Operation::GetChildren(_) | Operation::GetChildren2(_) => Self::GetChildren,
            Operation::Sync(_) => Self::Sync,
            Operation::Multi(_) => Self::Multi,
            Operation::MultiRead(_) => Self::MultiRead,
            Operation::Reconfig => Self::Reconfig,
            Operation::CheckWatches(_) => Self::CheckWatches,
            Operation::RemoveWatches(_) => Self::RemoveWatches,
            Operation::AddWatch(_) => Self::AddWatch,
            Operation::SetWatches(_) => Self::SetWatches,
            Operation::GetEphemerals(_) => Self::GetEphemerals,
            Operation::GetAllChildrenNumber(_) => Self::GetAllChildrenNumber,
            Operation::WhoAmI => Self::WhoAmI,
            Operation::Auth(_)
            | Operation::Sasl(_)
            | Operation::Undecodable { .. }
            | Operation::Unknown { .. } => Self::Other,
        }
    }

    /// Counted in `updatelatency` rather than in `readlatency`.
    pub fn changes(self) -> bool {
        match self {
            Self::Session | Self::Close | Self::Create | Self::Delete | Self::SetData => true,
            Self::SetAcl | Self::Multi | Self::Reconfig => true,
            Self::None | Self::Ping | Self::Exists | Self::GetData | Self::GetAcl => false,
            Self::GetChildren | Self::GetAllChildrenNumber | Self::GetEphemerals => false,
            Self::Sync | Self::MultiRead | Self::SetWatches | Self::AddWatch => false,
            Self::CheckWatches | Self::RemoveWatches | Self::WhoAmI | Self::Other => false,
        }
    }
}

/// Latencies, counted by several at once.
#[derive(Debug)]
pub struct LatencyCounter {
    min_ms: AtomicU64,
    max_ms: AtomicU64,
    total_ms: AtomicU64,
    count: AtomicU64,
}

impl LatencyCounter {
    /// A counter whose minimum begins at what is given.
    fn starting_at(min_ms: u64) -> Self {
        Self {
            min_ms: AtomicU64::new(min_ms),
            max_ms: AtomicU64::new(0),
            total_ms: AtomicU64::new(0),
            count: AtomicU64::new(0),
        }
    }

    /// Adds what several requests took.
    pub fn add(&self, latency: &Latency) {
        if latency.count > 0 {
            self.min_ms.fetch_min(latency.min_ms, Relaxed);
            self.max_ms.fetch_max(latency.max_ms, Relaxed);
            self.total_ms.fetch_add(latency.total_ms, Relaxed);
            self.count.fetch_add(latency.count, Relaxed);
        }
    }

    /// Begins anew.
    pub fn reset(&self) {
        self.min_ms.store(u64::MAX, Relaxed);
        self.max_ms.store(0, Relaxed);
        self.total_ms.store(0, Relaxed);
        self.count.store(0, Relaxed);
    }

    /// What was counted.
    pub fn read(&self) -> Latency {
        let min_ms = self.min_ms.load(Relaxed);
        Latency {
            min_ms: if min_ms == u64::MAX { 0 } else { min_ms },
            max_ms: self.max_ms.load(Relaxed),
            total_ms: self.total_ms.load(Relaxed),
            count: self.count.load(Relaxed),
        }
    }
}

impl Default for LatencyCounter {
    fn default() -> Self {
        Self::starting_at(u64::MAX)
    }
}

/// Adds one measurement to a sum that only one task writes.
pub fn add_to(latency: &mut Latency, ms: u64) {
    latency.min_ms = if latency.count == 0 { ms } else { latency.min_ms.min(ms) };
    latency.max_ms = latency.max_ms.max(ms);
    latency.total_ms += ms;
    latency.count += 1;
}

/// One connection's figures.
#[derive(Debug)]
pub struct ConnectionFigures {
    peer: SocketAddr,
    established_unix_ms: i64,
    /// The negotiated timeout; 0 until there is a session.
    timeout_ms: AtomicI32,
    session: AtomicI64,
    received: AtomicU64,
    sent: AtomicU64,
    outstanding: AtomicUsize,
    /// When bytes came in last, in milliseconds since the server started.
    last_read_ms: AtomicU64,
    last_kind: AtomicU8,
    /// -1: none yet.
    last_xid: AtomicI32,
    last_zxid: AtomicI64,
    last_response_ms: AtomicU64,
    last_latency_ms: AtomicU64,
    latency: LatencyCounter,
}

/// What one write to a socket answered.
#[derive(Clone, Copy, Debug)]
pub struct Answered {
    /// The last reply's request.
    pub kind: RequestKind,
    /// The last reply's number, if it is not negative.
    pub xid: Option<Xid>,
    /// The last reply's zxid; a handshake's answer has none.
    pub zxid: Option<Zxid>,
    /// How long the last request took.
    pub last_latency_ms: u64,
    /// How long all of them took.
    pub latency: Latency,
}

impl ConnectionFigures {
    /// A connection that was accepted just now.
    pub fn new(peer: SocketAddr, established_unix_ms: i64, now_ms: u64) -> Self {
        Self {
            peer,
            established_unix_ms,
            timeout_ms: AtomicI32::new(0),
            session: AtomicI64::new(0),
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            outstanding: AtomicUsize::new(0),
            last_read_ms: AtomicU64::new(now_ms),
            last_kind: AtomicU8::new(RequestKind::None as u8),
            last_xid: AtomicI32::new(-1),
            last_zxid: AtomicI64::new(0),
            last_response_ms: AtomicU64::new(0),
            last_latency_ms: AtomicU64::new(0),
            // As ZooKeeper's, whose minimum stays 0 until the first `crst` (`ServerCnxn`).
            latency: LatencyCounter::starting_at(0),
        }
    }

    /// Frames or words came in.
    pub fn received(&self, count: u64, now_ms: u64) {
        self.received.fetch_add(count, Relaxed);
        self.last_read_ms.store(now_ms, Relaxed);
    }

    /// Frames went out.
    pub fn sent(&self, count: u64) {
        self.sent.fetch_add(count, Relaxed);
    }

    /// So many requests wait for their answer now.
    pub fn outstanding(&self, count: usize) {
        self.outstanding.store(count, Relaxed);
    }

    /// The session began, or goes on here.
    pub fn established(&self, session: SessionId, timeout_ms: i32) {
        self.session.store(session.0, Relaxed);
        self.timeout_ms.store(timeout_ms, Relaxed);
    }

    /// Requests were answered.
    pub fn answered(&self, answered: &Answered, now_ms: u64) {
        self.last_kind.store(answered.kind as u8, Relaxed);
        if let Some(xid) = answered.xid {
            self.last_xid.store(xid.0, Relaxed);
        }
        if let Some(zxid) = answered.zxid {
            self.last_zxid.store(zxid.0, Relaxed);
        }
        self.last_response_ms.store(now_ms, Relaxed);
        self.last_latency_ms.store(answered.last_latency_ms, Relaxed);
        self.latency.add(&answered.latency);
    }

    /// `crst`.
    pub fn reset(&self, now_ms: u64) {
        self.received.store(0, Relaxed);
        self.sent.store(0, Relaxed);
        self.last_kind.store(RequestKind::None as u8, Relaxed);
        self.last_xid.store(-1, Relaxed);
        self.last_zxid.store(-1, Relaxed);
        self.last_response_ms.store(now_ms, Relaxed);
        self.last_latency_ms.store(0, Relaxed);
        self.latency.reset();
    }

    /// The client's address.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The session, 0 if there is none.
    pub fn session(&self) -> SessionId {
        SessionId(self.session.load(Relaxed))
    }

    /// When bytes came in last, and the negotiated timeout if there is a session.
    pub fn last_read_and_timeout_ms(&self) -> (u64, Option<i32>) {
        let timeout_ms = self.timeout_ms.load(Relaxed);
        (self.last_read_ms.load(Relaxed), (timeout_ms > 0).then_some(timeout_ms))
    }

    /// The line of `cons`. `asking`: this is the connection that asks.
    pub fn shown(&self, asking: bool) -> Connection {
        let session = self.session();
        let last_xid = self.last_xid.load(Relaxed);
        let kind = RequestKind::ALL.get(usize::from(self.last_kind.load(Relaxed)));
        let about_session = ConnectionSession {
            session,
            last_operation: kind.unwrap_or(&RequestKind::None).name(),
            established_unix_ms: self.established_unix_ms,
            timeout_ms: self.timeout_ms.load(Relaxed),
            last_xid: (last_xid >= 0).then_some(last_xid),
            last_zxid: Zxid(self.last_zxid.load(Relaxed)),
            last_response_ms: self.last_response_ms.load(Relaxed),
            last_latency_ms: self.last_latency_ms.load(Relaxed),
            latency: self.latency.read(),
        };
        Connection {
            peer: self.peer,
            interest: u8::from(!asking),
            queued: self.outstanding.load(Relaxed),
            received: self.received.load(Relaxed),
            sent: self.sent.load(Relaxed),
            session: (session != SessionId(0)).then_some(about_session),
        }
    }
}

/// The server's figures.
#[derive(Debug)]
pub struct ServerFigures {
    /// Frames and words received.
    pub received: AtomicU64,
    /// Frames sent.
    pub sent: AtomicU64,
    /// Bytes of frames received.
    pub bytes_received: AtomicU64,
    /// Bytes of frames sent.
    pub bytes_sent: AtomicU64,
    /// All requests.
    pub latency: LatencyCounter,
    /// Requests that only read.
    pub read_latency: LatencyCounter,
    /// Requests that change something.
    pub update_latency: LatencyCounter,
    /// The last answer; -1 if there was none.
    pub last_response_bytes: AtomicI64,
    /// The smallest answer; -1 if there was none.
    pub min_response_bytes: AtomicI64,
    /// The largest answer; -1 if there was none.
    pub max_response_bytes: AtomicI64,
    /// Handshakes.
    pub connection_requests: AtomicU64,
    /// Connections refused because there were too many.
    pub connections_rejected: AtomicU64,
    /// Connections that ended without a closeSession.
    pub connections_dropped: AtomicU64,
    /// Connections that never sent a handshake.
    pub sessionless_expired: AtomicU64,
}

impl Default for ServerFigures {
    fn default() -> Self {
        Self {
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            bytes_received: AtomicU64::new(0),
            bytes_sent: AtomicU64::new(0),
            latency: LatencyCounter::default(),
            read_latency: LatencyCounter::default(),
            update_latency: LatencyCounter::default(),
            last_response_bytes: AtomicI64::new(-1),
            min_response_bytes: AtomicI64::new(-1),
            max_response_bytes: AtomicI64::new(-1),
            connection_requests: AtomicU64::new(0),
            connections_rejected: AtomicU64::new(0),
            connections_dropped: AtomicU64::new(0),
            sessionless_expired: AtomicU64::new(0),
        }
    }
}

impl ServerFigures {
    /// Answers of these sizes were sent; there is at least one.
    pub fn responses(&self, last: i64, min: i64, max: i64) {
        self.last_response_bytes.store(last, Relaxed);
        self.max_response_bytes.fetch_max(max, Relaxed);
        let smaller = |known: i64| (known < 0 || min < known).then_some(min);
        // `Err` says that a smaller one is known.
        let _ = self.min_response_bytes.fetch_update(Relaxed, Relaxed, smaller);
    }

    /// `srst`.
    pub fn reset(&self) {
        for counter in [&self.received, &self.sent, &self.bytes_received, &self.bytes_sent] {
            counter.store(0, Relaxed);
        }
        for latency in [&self.latency, &self.read_latency, &self.update_latency] {
            latency.reset();
        }
        for size in [&self.last_response_bytes, &self.min_response_bytes, &self.max_response_bytes]
        {
            size.store(-1, Relaxed);
        }
    }
}
