//! The task that owns the `Keeper`: it hands in one input, routes every output, and sets the
//! timer.
//!
//! It knows neither bytes nor sockets, nor what a request means.

pub mod outbox;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustc_hash::FxHashMap;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, Sleep, sleep};

use crate::driver::outbox::Outbox;
use crate::keeper::request::{Connect, ConnectionId, Outgoing, Request};
use crate::keeper::time::Now;
use crate::keeper::txn::{StoreCommand, StoreEvent};
use crate::keeper::{Keeper, Options, Output, SessionStatus, Status, WatchStatus};

/// How many inputs may wait for the driver; whoever has another one waits.
const INPUTS_WAITING_MAX: usize = 1024;

/// How many inputs are handed in before what they brought about is passed on to the
/// connections, and before the clock is read again.
const INPUTS_PER_BATCH_MAX: usize = 16;

/// Everything that can happen to the core.
#[derive(Debug)]
pub enum Input {
    /// A connection's first frame. From now on it is known, until [`Input::Closed`].
    Connect {
        /// The connection.
        connection: ConnectionId,
        /// The client's address.
        peer: IpAddr,
        /// Where what is sent to it goes.
        outbox: Outbox,
        /// The handshake.
        connect: Connect,
    },
    /// All requests that one read of a socket brought.
    Requests(ConnectionId, Vec<Request>),
    /// The connection is gone.
    Closed(ConnectionId),
    /// A question for a four-letter word.
    Query(Query),
    /// Something from the store.
    Store(StoreEvent),
    /// The timer.
    Timeout,
    /// Stop after what was handed in before this.
    Shutdown,
}

/// A question about the core's state. Whoever asked and went away is not missed.
#[derive(Debug)]
pub enum Query {
    /// [`Keeper::status`].
    Status(oneshot::Sender<Status>),
    /// [`Keeper::sessions`].
    Sessions(oneshot::Sender<Vec<SessionStatus>>),
    /// [`Keeper::watches`].
    Watches(oneshot::Sender<WatchStatus>),
}

/// The driver has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the driver has ended")]
pub struct Stopped;

/// The way to the driver, for everyone else.
#[derive(Clone, Debug)]
pub struct Handle {
    inputs: mpsc::Sender<Input>,
    connections: Arc<AtomicU64>,
    clock: Clock,
}

impl Handle {
    /// A way to a driver, and its end: what is handed in comes out there.
    pub fn new(clock: Clock) -> (Self, mpsc::Receiver<Input>) {
        let (sender, inputs) = mpsc::channel(INPUTS_WAITING_MAX);
        (Self { inputs: sender, connections: Arc::new(AtomicU64::new(1)), clock }, inputs)
    }

    /// A number for a new connection.
    pub fn connection(&self) -> ConnectionId {
        ConnectionId(self.connections.fetch_add(1, Ordering::Relaxed))
    }

    /// What the core's clock says: its deadlines are measured by it.
    pub fn now(&self) -> Now {
        self.clock.now()
    }

    /// Hands in an input; waits while too many are waiting.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn send(&self, input: Input) -> Result<(), Stopped> {
        self.inputs.send(input).await.map_err(|_| Stopped)
    }

    /// The core's figures.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn status(&self) -> Result<Status, Stopped> {
        self.query(Query::Status).await
    }

    /// The sessions.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn sessions(&self) -> Result<Vec<SessionStatus>, Stopped> {
        self.query(Query::Sessions).await
    }

    /// The watches.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn watches(&self) -> Result<WatchStatus, Stopped> {
        self.query(Query::Watches).await
    }

    async fn query<T>(&self, query: fn(oneshot::Sender<T>) -> Query) -> Result<T, Stopped> {
        let (answer, answered) = oneshot::channel();
        self.send(Input::Query(query(answer))).await?;
        answered.await.map_err(|_| Stopped)
    }
}

/// The clocks of this machine.
#[derive(Clone, Copy, Debug)]
pub enum Clock {
    /// The clock since boot. It goes on while the machine sleeps, so that a shim that wakes up
    /// knows how long it was away.
    Boot,
    /// tokio's clock, counted from here: it stands still when tests pause it.
    Runtime(Instant),
}

impl Clock {
    /// What the clocks say.
    pub fn now(&self) -> Now {
        let monotonic = match self {
            Self::Boot => since_boot(),
            Self::Runtime(start) => start.elapsed(),
        };
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { monotonic, unix_ms: i64::try_from(unix.as_millis()).unwrap_or(i64::MAX) }
    }
}

fn since_boot() -> Duration {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
    Duration::try_from(rustix::time::clock_gettime(CLOCK)).unwrap_or_default()
}

/// What is known of a connection.
#[derive(Debug)]
struct Route {
    outbox: Outbox,
    /// What goes to the outbox at the end of the batch.
    pending: Vec<Outgoing>,
    /// The core asked for the close; the outbox is told at the end of the batch.
    closing: bool,
}

/// The owner of the core. `S` takes the core's commands to the store and never waits.
#[derive(Debug)]
pub struct Driver<S> {
    keeper: Keeper,
    clock: Clock,
    store: S,
    inputs: mpsc::Receiver<Input>,
    store_events: mpsc::Receiver<StoreEvent>,
    routes: FxHashMap<ConnectionId, Route>,
    /// The connections with something pending, in the order in which they got it.
    touched: Vec<ConnectionId>,
}

impl<S: FnMut(StoreCommand)> Driver<S> {
    /// A driver with a core of its own, and the way to it.
    pub fn new(
        options: Options,
        clock: Clock,
        store: S,
        store_events: mpsc::Receiver<StoreEvent>,
    ) -> (Self, Handle) {
        let (handle, inputs) = Handle::new(clock);
        let driver = Self {
            keeper: Keeper::new(options, clock.now()),
            clock,
            store,
            inputs,
            store_events,
            routes: FxHashMap::default(),
            touched: Vec::new(),
        };
        (driver, handle)
    }

    /// Works until [`Input::Shutdown`], or until either the store or all handles are gone.
    pub async fn run(mut self) {
        let mut now = self.clock.now();
        self.route_outputs();
        self.flush();
        let timer = sleep(Duration::ZERO);
        tokio::pin!(timer);
        loop {
            let armed = arm(timer.as_mut(), self.keeper.poll_timeout(), now.monotonic);
            // Both receives and the timer are safe to cancel. The store comes first: what it
            // tells is what others wait for.
            let input = tokio::select! {
                biased;
                event = self.store_events.recv() => event.map(Input::Store),
                input = self.inputs.recv() => input,
                () = &mut timer, if armed => Some(Input::Timeout),
            };
            let Some(input) = input else { return };
            now = self.clock.now();
            if !self.handle_batch(input, now) {
                return;
            }
        }
    }

    /// One input and all that are ready by now, up to the limit. False: stop.
    fn handle_batch(&mut self, first: Input, now: Now) -> bool {
        let mut next = Some(first);
        let mut going_on = true;
        let mut left = INPUTS_PER_BATCH_MAX;
        while let Some(input) = next.take() {
            going_on = self.handle(input, now);
            self.route_outputs();
            left -= 1;
            if going_on && left > 0 {
                next = self.ready_input();
            }
        }
        // Here and not in the timer's branch, which is never reached under a steady load.
        if self.keeper.poll_timeout().is_some_and(|timeout| timeout <= now.monotonic) {
            self.keeper.handle_timeout(now);
            self.route_outputs();
        }
        self.flush();
        going_on
    }

    fn ready_input(&mut self) -> Option<Input> {
        let event = self.store_events.try_recv().ok().map(Input::Store);
        event.or_else(|| self.inputs.try_recv().ok())
    }

    fn handle(&mut self, input: Input, now: Now) -> bool {
        match input {
            Input::Connect { connection, peer, outbox, connect } => {
                let route = Route { outbox, pending: Vec::new(), closing: false };
                self.routes.insert(connection, route);
                self.keeper.handle_opened(connection, peer);
                self.keeper.handle_connect(connection, connect, now);
            }
            Input::Requests(connection, requests) => {
                self.keeper.handle_requests(connection, requests, now);
            }
            Input::Closed(connection) => {
                if self.routes.remove(&connection).is_some() {
                    self.keeper.handle_closed(connection, now);
                }
            }
            Input::Query(query) => self.answer(query),
            Input::Store(event) => self.keeper.handle_store(event, now),
            // The end of the batch looks at the timeout anyway.
            Input::Timeout => {}
            Input::Shutdown => return false,
        }
        true
    }

    fn answer(&self, query: Query) {
        // Whoever asked may be gone by now; then nobody needs the answer.
        match query {
            Query::Status(answer) => drop(answer.send(self.keeper.status())),
            Query::Sessions(answer) => drop(answer.send(self.keeper.sessions())),
            Query::Watches(answer) => drop(answer.send(self.keeper.watches())),
        }
    }

    fn route_outputs(&mut self) {
        while let Some(output) = self.keeper.poll_output() {
            match output {
                Output::Send(connection, outgoing) => {
                    if let Some(route) = touch(&mut self.routes, &mut self.touched, connection) {
                        route.pending.push(outgoing);
                    }
                }
                Output::Close(connection) => {
                    if let Some(route) = touch(&mut self.routes, &mut self.touched, connection) {
                        route.closing = true;
                    }
                }
                Output::Store(command) => (self.store)(command),
            }
        }
    }

    /// Passes on what the batch brought: one wake-up for each connection.
    fn flush(&mut self) {
        for connection in self.touched.drain(..) {
            // A connection that closed in this batch has no route any more.
            let Some(route) = self.routes.get_mut(&connection) else { continue };
            if !route.pending.is_empty() {
                route.outbox.push(&mut route.pending);
            }
            if route.closing {
                route.outbox.close();
            }
        }
    }
}

/// The connection's route if it is still open, noted as touched.
fn touch<'a>(
    routes: &'a mut FxHashMap<ConnectionId, Route>,
    touched: &mut Vec<ConnectionId>,
    connection: ConnectionId,
) -> Option<&'a mut Route> {
    let route = routes.get_mut(&connection).filter(|route| !route.closing)?;
    if route.pending.is_empty() {
        touched.push(connection);
    }
    Some(route)
}

/// Sets the timer, unless it goes off early enough anyway: a timer that goes off too early costs
/// one look at the clock, and setting it costs as much for each batch. False: there is no timer.
fn arm(timer: std::pin::Pin<&mut Sleep>, timeout: Option<Duration>, now: Duration) -> bool {
    let Some(timeout) = timeout else { return false };
    let deadline = Instant::now() + timeout.saturating_sub(now);
    if timer.is_elapsed() || timer.deadline() > deadline {
        timer.reset(deadline);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::sync::mpsc as sync_mpsc;

    use crate::keeper::request::SessionId;
    use crate::keeper::zxid::Zxid;
    use bytes::Bytes;

    type Commands = sync_mpsc::Receiver<StoreCommand>;

    fn options() -> Options {
        Options {
            tick: Duration::from_secs(2),
            session_timeout_min: Duration::from_secs(4),
            session_timeout_max: Duration::from_secs(40),
            seed: [7; 32],
            sole: true,
            ttl_nodes: false,
            super_digest: None,
            skip_acl: false,
            enforce_quota: false,
            container_check_interval: Duration::from_secs(60),
        }
    }

    fn driver() -> (Handle, mpsc::Sender<StoreEvent>, Commands, tokio::task::JoinHandle<()>) {
        let (events, store_events) = mpsc::channel(8);
        let (sender, commands) = sync_mpsc::channel();
        let store = move |command| drop(sender.send(command));
        let clock = Clock::Runtime(Instant::now());
        let (driver, handle) = Driver::new(options(), clock, store, store_events);
        (handle, events, commands, tokio::spawn(driver.run()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_driver_without_a_loaded_store_does_not_serve() {
        let (handle, _events, _commands, _task) = driver();
        assert!(!handle.status().await.expect("it runs").serving);
        assert_eq!(handle.sessions().await, Ok(Vec::new()));
        assert_eq!(handle.watches().await, Ok(WatchStatus::default()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_shutdown_ends_the_driver_after_what_came_before() {
        let (handle, _events, _commands, task) = driver();
        let status = handle.status();
        handle.send(Input::Shutdown).await.expect("it runs");
        assert_eq!(status.await, Err(Stopped), "it was asked after the shutdown");
        task.await.expect("it ends");
        assert_eq!(handle.send(Input::Shutdown).await, Err(Stopped));
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_is_gone_ends_the_driver() {
        let (_handle, events, _commands, task) = driver();
        drop(events);
        task.await.expect("it ends");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_closed_gets_nothing_more() {
        let (handle, _events, _commands, _task) = driver();
        let connection = handle.connection();
        let outbox = Outbox::new(1000);
        let connect = Connect {
            last_zxid_seen: Zxid(0),
            timeout_ms: 1000,
            session: SessionId(0),
            password: Bytes::new(),
        };
        let peer = Ipv4Addr::LOCALHOST.into();
        let input = Input::Connect { connection, peer, outbox: outbox.clone(), connect };
        handle.send(input).await.expect("it runs");
        handle.send(Input::Closed(connection)).await.expect("it runs");
        handle.send(Input::Closed(connection)).await.expect("it runs");
        assert!(handle.status().await.is_ok(), "closing twice is survived");
    }

    #[test]
    fn the_boot_clock_does_not_go_back() {
        let (first, second) = (Clock::Boot.now(), Clock::Boot.now());
        assert!(first.monotonic > Duration::ZERO && first.monotonic <= second.monotonic);
        assert!(first.unix_ms > 1_700_000_000_000);
    }
}
