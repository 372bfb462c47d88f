//! The client port: accepts connections, and turns their bytes into requests and back.
//!
//! It knows nothing of the store, of txns or of the tree: what a request means is the core's
//! matter, to which the driver is the way.

pub mod listener;

pub mod connection;
mod intake;
mod outstanding;

pub mod words;

mod environment;
pub mod figures;
pub mod registry;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::net::TcpListener;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::driver::Handle;
use crate::driver::backlog::Backlog;
use crate::server::figures::ServerFigures;
use crate::server::intake::Intake;
use crate::server::outstanding::Total;
use crate::server::registry::Registry;
use crate::wire::four_letter::{AllowList, TRACE_MASK_DEFAULT, UnknownWord};

/// How long connections may take to finish what is under way when the server stops.
pub const DRAIN_MAX: Duration = Duration::from_secs(2);

/// Words that are answered at the same time, if there is one line for each watch in the answer.
const COSTLY_WORDS_MAX: usize = 1;

/// And if there is one for each connection.
const LONG_WORDS_MAX: usize = 16;

/// What the client port is told once.
#[derive(Clone, Debug)]
pub struct Options {
    /// The longest frame that a client may send (`jute.maxbuffer`).
    pub frame_bytes_max: usize,
    /// Connections in all.
    pub connections_max: usize,
    /// Connections from one address; 0 is no limit.
    pub connections_per_address_max: usize,
    /// What requests may take in all until they are answered, in bytes, about.
    pub request_bytes_max: usize,
    /// What may wait in all for clients that do not read it, in bytes, about.
    pub unread_bytes_max: usize,
    /// The words that are answered.
    pub words: AllowList,
    /// What is shown by the words.
    pub shown: ShownOptions,
}

impl Options {
    /// Reads the list of the words that are answered: see [`AllowList::parse`].
    ///
    /// # Errors
    /// A name in it is not known.
    pub fn words(list: &str) -> Result<AllowList, UnknownWord> {
        AllowList::parse(list)
    }
}

/// What the words show of the configuration, and nobody here acts upon.
#[derive(Clone, Debug)]
pub struct ShownOptions {
    /// The version in the form that tools parse.
    pub version: String,
    /// Where the data is, in words.
    pub data: String,
    /// The directory whose size is the data's, if there is one.
    pub data_dir: Option<PathBuf>,
    /// The tick.
    pub tick: Duration,
    /// The shortest session timeout.
    pub session_timeout_min: Duration,
    /// The longest.
    pub session_timeout_max: Duration,
}

/// What all connections share.
#[derive(Debug)]
pub struct Shared {
    options: Options,
    driver: Handle,
    /// No new requests are taken in from now on.
    stopping: CancellationToken,
    /// The same for those that have sent their handshake. They look at it when they are woken: to
    /// wait for a token is a tenth of what an idle connection takes.
    draining: AtomicBool,
    /// No connection gets more time: all end at once.
    ending: CancellationToken,
    registry: Registry,
    figures: ServerFigures,
    outstanding: Total,
    intake: Intake,
    backlog: Backlog,
    /// Held while a four-letter word is answered whose answer is long.
    costly_words: Semaphore,
    /// The same where it is as long as there are connections.
    long_words: Semaphore,
    started: Instant,
    listen_port: u16,
    trace_mask: AtomicI64,
}

impl Shared {
    /// What connections share in a server on this port, until `stopping` says stop.
    pub fn new(
        options: Options,
        driver: Handle,
        listen_port: u16,
        stopping: CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self {
            registry: Registry::new(options.connections_max, options.connections_per_address_max),
            intake: Intake::new(options.request_bytes_max),
            backlog: Backlog::new(options.unread_bytes_max),
            options,
            driver,
            stopping,
            draining: AtomicBool::new(false),
            ending: CancellationToken::new(),
            figures: ServerFigures::default(),
            outstanding: Total::new(outstanding::TOTAL_REQUESTS_MAX, Notify::new()),
            costly_words: Semaphore::new(COSTLY_WORDS_MAX),
            long_words: Semaphore::new(LONG_WORDS_MAX),
            started: Instant::now(),
            listen_port,
            trace_mask: AtomicI64::new(TRACE_MASK_DEFAULT),
        })
    }

    /// All connections end once they have answered what they had taken in.
    fn drain(&self) {
        self.draining.store(true, Ordering::SeqCst);
        self.registry.wake_all();
    }

    /// Milliseconds since the server started.
    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

fn unix_ms() -> i64 {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(unix.as_millis()).unwrap_or(i64::MAX)
}

/// Serves clients until `stopping` says stop, then lets connections finish what is under way,
/// for [`DRAIN_MAX`] at most. Sessions are not ended: their clients go on elsewhere.
pub async fn run(
    listener: TcpListener,
    options: Options,
    driver: Handle,
    stopping: CancellationToken,
) {
    warn_of_few_files(options.connections_max);
    let port = listener.local_addr().map_or(0, |address| address.port());
    let shared = Shared::new(options, driver, port, stopping);
    let connections = TaskTracker::new();
    listener::accept(listener, &shared, &connections).await;
    connections.close();
    shared.drain();
    if tokio::time::timeout(DRAIN_MAX, connections.wait()).await.is_err() {
        tracing::warn!(connections = connections.len(), "connections are cut");
    }
    shared.ending.cancel();
    connections.wait().await;
}

/// Each connection needs an open file, and the store a few.
fn warn_of_few_files(connections_max: usize) {
    const OTHERS: u64 = 64;
    let files_max = environment::open_files_max().unwrap_or(u64::MAX);
    if files_max.saturating_sub(OTHERS) < connections_max as u64 {
        tracing::warn!(
            files_max,
            connections_max,
            "the system allows fewer files than connections"
        );
    }
}
