//! The task that owns the `Keeper`: it hands in one input, routes every output, and sets the
//! timer.
//!
//! It knows neither bytes nor sockets, nor what a request means.

mod alarm;
pub mod backlog;
pub mod clock;
pub mod outbox;
pub mod running;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustc_hash::FxHashMap;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::task::yield_now;
use tokio::time::Instant;

use crate::driver::alarm::Alarm;
use crate::driver::backlog::Backlog;
use crate::driver::clock::Clock;
use crate::driver::outbox::Outbox;
use crate::driver::running::Running;
use crate::keeper::request::{Connect, ConnectionId, Outgoing, Request};
use crate::keeper::time::Now;
use crate::keeper::txn::{StoreCommand, StoreEvent};
use crate::keeper::{Keeper, Options, Output, SessionStatus, Status, WatchStatus, WatchWalk};
use crate::store::StoreOptions;

/// How many inputs may wait for the driver; whoever has another one waits.
const INPUTS_WAITING_MAX: usize = 1024;

/// How many inputs are handed in before what they brought about is passed on to the
/// connections, and before the clock is read again.
const INPUTS_PER_BATCH_MAX: usize = 32;

/// When a batch has taken so long, what is left waits for the next one: everybody else on this
/// thread waits meanwhile, and so does the store.
const BATCH_TIME_MAX: Duration = Duration::from_millis(10);

/// How many requests of a connection are handed in before the time is looked at.
const REQUESTS_PER_LOOK: usize = 16;

/// Starts the task that owns the core, and opens the store for it meanwhile.
///
/// # Panics
/// There is no tokio runtime around.
pub fn run(options: Options, store: StoreOptions) -> Running {
    Running::start(options, store)
}

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
    Watches(WatchWalk, oneshot::Sender<WatchStatus>),
}

/// Waits until there is room for an input. Dropped before, it was not taken in.
pub type Waiting = Pin<Box<dyn Future<Output = Result<(), Stopped>> + Send>>;

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
        match self.send_now(input)? {
            Some(waiting) => waiting.await,
            None => Ok(()),
        }
    }

    /// As [`Self::send`]; there nearly always is room, so only who has to wait has memory for it.
    ///
    /// # Errors
    /// The driver has ended.
    pub fn send_now(&self, input: Input) -> Result<Option<Waiting>, Stopped> {
        match self.inputs.try_send(input) {
            Ok(()) => Ok(None),
            Err(TrySendError::Closed(_)) => Err(Stopped),
            Err(TrySendError::Full(input)) => {
                let inputs = self.inputs.clone();
                let waiting = async move { inputs.send(input).await.map_err(|_| Stopped) };
                Ok(Some(Box::pin(waiting)))
            }
        }
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

    /// The watches. Others have their turn in between.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn watches(&self) -> Result<WatchStatus, Stopped> {
        let mut all = WatchStatus { rest: Some(WatchWalk::default()), ..WatchStatus::default() };
        while let Some(walk) = all.rest.take() {
            let some = self.query(|answer| Query::Watches(walk, answer)).await?;
            all.entries.extend(some.entries);
            all.rest = some.rest;
        }
        Ok(all)
    }

    async fn query<T>(
        &self,
        query: impl FnOnce(oneshot::Sender<T>) -> Query,
    ) -> Result<T, Stopped> {
        let (answer, answered) = oneshot::channel();
        self.send(Input::Query(query(answer))).await?;
        answered.await.map_err(|_| Stopped)
    }
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
    /// Requests that have not been handed in because those before them took long. A connection
    /// stands here once.
    left_over: VecDeque<(ConnectionId, VecDeque<Request>)>,
    batch_time_max: Duration,
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
            left_over: VecDeque::new(),
            batch_time_max: BATCH_TIME_MAX,
        };
        (driver, handle)
    }

    /// Works until [`Input::Shutdown`], or until either the store or all handles are gone.
    pub async fn run(mut self) {
        let mut now = self.clock.now();
        self.route_outputs();
        self.flush();
        let mut alarm = Alarm::new(self.clock);
        loop {
            let timeout = self.keeper.poll_timeout();
            alarm.set(timeout.map(|timeout| timeout.saturating_sub(now.monotonic)));
            let idle = self.left_over.is_empty() && !self.keeper.is_untidy();
            // Both receives and the timer are safe to cancel. The store comes first: what it
            // tells is what others wait for.
            let input = tokio::select! {
                biased;
                event = self.store_events.recv() => event.map(Input::Store),
                input = self.inputs.recv() => input,
                () = alarm.gone_off() => Some(Input::Timeout),
                // The others on this thread had their turn.
                () = yield_now(), if !idle => Some(Input::Timeout),
            };
            let Some(input) = input else { return };
            now = self.clock.now();
            if !self.handle_batch(input, now) {
                return;
            }
        }
    }

    /// One input and all that are ready by now, up to the limit, so that writes which came
    /// together can leave together. False: stop.
    fn handle_batch(&mut self, first: Input, now: Now) -> bool {
        let begun = Instant::now();
        self.hand_in_left_over(now, begun);
        self.keeper.tidy_up();
        let mut going_on = self.handle(first, now, begun);
        for _ in 1..INPUTS_PER_BATCH_MAX {
            if !going_on || begun.elapsed() >= self.batch_time_max {
                break;
            }
            let Some(input) = self.ready_input() else { break };
            going_on = self.handle(input, now, begun);
        }
        // Here and not in the timer's branch, which is never reached under a steady load.
        if self.keeper.poll_timeout().is_some_and(|timeout| timeout <= now.monotonic) {
            self.keeper.handle_timeout(now);
        }
        self.route_outputs();
        self.flush();
        going_on
    }

    fn ready_input(&mut self) -> Option<Input> {
        let event = self.store_events.try_recv().ok().map(Input::Store);
        event.or_else(|| self.inputs.try_recv().ok())
    }

    fn handle(&mut self, input: Input, now: Now, begun: Instant) -> bool {
        match input {
            Input::Connect { connection, peer, outbox, connect } => {
                let route = Route { outbox, pending: Vec::new(), closing: false };
                self.routes.insert(connection, route);
                self.keeper.handle_opened(connection, peer);
                self.keeper.handle_connect(connection, connect, now);
            }
            Input::Requests(connection, requests) => {
                let behind = self.left_over.iter_mut().find(|(other, _)| *other == connection);
                match behind {
                    Some((_, left_over)) => left_over.extend(requests),
                    None => self.hand_in(connection, requests.into(), now, begun),
                }
            }
            Input::Closed(connection) => {
                self.hand_in_all_of(connection, now);
                if self.routes.remove(&connection).is_some() {
                    self.keeper.handle_closed(connection, now);
                }
            }
            Input::Query(query) => self.answer(query),
            Input::Store(event) => self.keeper.handle_store(event, now),
            // The end of the batch looks at the timeout anyway.
            Input::Timeout => {}
            Input::Shutdown => {
                while let Some((connection, requests)) = self.left_over.pop_front() {
                    self.keeper.handle_requests(connection, requests, now);
                }
                return false;
            }
        }
        true
    }

    /// Hands in requests until the batch has taken too long; the rest is left over.
    fn hand_in(
        &mut self,
        connection: ConnectionId,
        mut requests: VecDeque<Request>,
        now: Now,
        begun: Instant,
    ) {
        loop {
            let some = REQUESTS_PER_LOOK.min(requests.len());
            self.keeper.handle_requests(connection, requests.drain(..some), now);
            if requests.is_empty() {
                return;
            }
            if begun.elapsed() >= self.batch_time_max {
                self.left_over.push_back((connection, requests));
                return;
            }
        }
    }

    /// The turn of the connection that has waited longest; others come in between.
    fn hand_in_left_over(&mut self, now: Now, begun: Instant) {
        if let Some((connection, requests)) = self.left_over.pop_front() {
            self.hand_in(connection, requests, now, begun);
        }
    }

    /// What a connection asked is carried out though it is gone.
    fn hand_in_all_of(&mut self, connection: ConnectionId, now: Now) {
        let place = self.left_over.iter().position(|(other, _)| *other == connection);
        if let Some((_, requests)) = place.and_then(|place| self.left_over.remove(place)) {
            self.keeper.handle_requests(connection, requests, now);
        }
    }

    fn answer(&self, query: Query) {
        // Whoever asked may be gone by now; then nobody needs the answer.
        match query {
            Query::Status(answer) => drop(answer.send(self.keeper.status())),
            Query::Sessions(answer) => drop(answer.send(self.keeper.sessions())),
            Query::Watches(walk, answer) => drop(answer.send(self.keeper.watches(walk))),
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
        let mut over = None;
        for connection in self.touched.drain(..) {
            // A connection that closed in this batch has no route any more.
            let Some(route) = self.routes.get_mut(&connection) else { continue };
            if !route.pending.is_empty() {
                route.outbox.push(&mut route.pending);
            }
            if route.closing {
                route.outbox.close();
            }
            if route.outbox.backlog().is_over() {
                over = Some(route.outbox.backlog().clone());
            }
        }
        over.into_iter().for_each(|backlog| self.cut_the_worst(&backlog));
    }

    /// More waits for clients than there may be: whoever answers for the most of it is cut.
    fn cut_the_worst(&self, backlog: &Backlog) {
        while backlog.is_over() {
            let shares = self.routes.values().map(|route| (route.outbox.share(), &route.outbox));
            let Some((bytes, worst)) = shares.max_by_key(|(share, _)| *share) else { return };
            if bytes == 0 {
                // What is left belongs to connections that are on their way out.
                return;
            }
            let (all_bytes, bytes_max) = (backlog.bytes(), backlog.bytes_max());
            tracing::warn!(
                bytes,
                all_bytes,
                bytes_max,
                "clients leave too much unread: cutting the one with the most"
            );
            worst.cut_off();
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

#[cfg(test)]
mod tests;
