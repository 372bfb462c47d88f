//! The way to etcd: one member at a time, and another one when it fails.

use crate::store::etcd::connection::Connection;
use crate::store::etcd::prefix::Prefix;
use crate::store::etcd::room::{self, Room};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tonic::transport::Endpoint;

/// What all users of the connection share.
#[derive(Clone, Debug)]
pub(super) struct Link {
    state: watch::Receiver<State>,
    suspects: mpsc::Sender<u64>,
}

/// The connection, or why there is none.
#[derive(Clone, Debug)]
pub(super) enum State {
    /// Members are being tried; the last one's failure.
    Searching(String),
    /// This one answers.
    Connected(Arc<Connection>),
}

/// Keeps the link up; it runs as a task of its own.
pub(super) struct Supervisor {
    endpoints: Vec<Endpoint>,
    prefix: Prefix,
    value_bytes_max: usize,
    state: watch::Sender<State>,
    suspects: mpsc::Receiver<u64>,
    generation: u64,
}

impl Link {
    /// The connection; waits until there is one.
    pub(super) async fn connected(&self) -> Arc<Connection> {
        let mut state = self.state.clone();
        loop {
            if let State::Connected(connection) = &*state.borrow_and_update() {
                return Arc::clone(connection);
            }
            if state.changed().await.is_err() {
                // The supervisor ends only when the store is closed, and so do all tasks.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits until a connection is not the one in use any more.
    pub(super) async fn replaced(&self, connection: &Connection) {
        let mut state = self.state.clone();
        let is_other = |state: &State| match state {
            State::Connected(other) => other.generation != connection.generation,
            State::Searching(_) => true,
        };
        if state.wait_for(is_other).await.is_err() {
            // As above.
            std::future::pending::<()>().await;
        }
    }

    /// Why there is no connection.
    pub(super) fn failure(&self) -> Option<String> {
        match &*self.state.borrow() {
            State::Searching(reason) => Some(reason.clone()),
            State::Connected(_) => None,
        }
    }

    /// Reports that a connection did not do what it should. It is looked at, and replaced if it
    /// does not answer.
    pub(super) fn suspect(&self, connection: &Connection) {
        // If the channel is full, somebody has already said it.
        let _ = self.suspects.try_send(connection.generation);
    }
}

impl Supervisor {
    pub(super) fn new(
        endpoints: Vec<Endpoint>,
        prefix: Prefix,
        value_bytes_max: usize,
    ) -> (Self, Link) {
        let (state, receiver) = watch::channel(State::Searching("not tried yet".into()));
        let (sender, suspects) = mpsc::channel(16);
        let link = Link { state: receiver, suspects: sender };
        let generation = 0;
        (Self { endpoints, prefix, value_bytes_max, state, suspects, generation }, link)
    }

    /// Connects, watches over the connection, and connects again, for ever.
    pub(super) async fn run(mut self) {
        let mut found = None;
        loop {
            let connection = match found.take() {
                Some(connection) => connection,
                None => self.search().await,
            };
            tracing::info!(
                endpoint = connection.endpoint,
                version = connection.version,
                cluster = format_args!("{:x}", connection.cluster),
                "connected to etcd"
            );
            if !connection.tells_progress() {
                tracing::warn!(
                    version = connection.version,
                    "this etcd cannot tell progress; keys are written instead"
                );
            }
            self.say_what_it_takes(&connection);
            self.state.send_replace(State::Connected(Arc::clone(&connection)));
            match self.guard(&connection).await {
                End::Lost(reason) => {
                    tracing::warn!(endpoint = connection.endpoint, reason, "lost etcd");
                    self.state.send_replace(State::Searching(reason));
                }
                End::Outrun(other) => {
                    tracing::warn!(
                        endpoint = connection.endpoint,
                        "this member of etcd is silent, and another one is not"
                    );
                    found = Some(other);
                }
            }
        }
    }

    /// Tries the members until one answers.
    async fn search(&mut self) -> Arc<Connection> {
        let mut pause = PAUSE_MIN;
        loop {
            match self.race(None).await {
                Ok(connection) => return connection,
                Err(reason) => {
                    self.state.send_replace(State::Searching(reason));
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Tries all members but one, each a little after the one before it, and gives the first that
    /// answers: one that is silent holds up nobody.
    async fn race(&mut self, except: Option<&str>) -> Result<Arc<Connection>, String> {
        // A small limit of clients says nothing of batches.
        let wanted = room::wanted(self.value_bytes_max.max(BATCH_BYTES));
        let mut attempts = JoinSet::new();
        let is_tried =
            |endpoint: &&Endpoint| except.is_none_or(|except| *endpoint.uri() != *except);
        let mut start = Duration::ZERO;
        for endpoint in self.endpoints.iter().filter(is_tried) {
            self.generation += 1;
            let (endpoint, generation) = (endpoint.clone(), self.generation);
            let prefix = self.prefix.clone();
            attempts.spawn(async move {
                tokio::time::sleep(start).await;
                let opened = Connection::open(&endpoint, generation, &prefix).await;
                let mut opened =
                    opened.map_err(|reason| format!("{}: {reason}", endpoint.uri()))?;
                opened.ask_room(wanted).await;
                Ok(opened)
            });
            start += HEAD_START;
        }
        let mut last = "there is no other member".to_owned();
        while let Some(attempt) = attempts.join_next().await {
            match attempt {
                Ok(Ok(connection)) => return Ok(Arc::new(connection)),
                Ok(Err(reason)) => {
                    tracing::debug!(reason, "etcd does not answer");
                    last = reason;
                }
                Err(error) => last = error.to_string(),
            }
        }
        Err(last)
    }

    /// It serves all the same: what fits is served, and what does not is refused by itself.
    fn say_what_it_takes(&self, connection: &Connection) {
        let needed = room::wanted(self.value_bytes_max);
        if let Room::Only(max_request_bytes) = connection.room
            && max_request_bytes < needed
        {
            tracing::error!(
                endpoint = connection.endpoint,
                max_request_bytes,
                needed,
                "etcd takes smaller requests than clients may send (--jute-max-buffer), and what \
                 is larger will be refused: start every member of etcd with --max-request-bytes \
                 of at least what is needed, or lower --jute-max-buffer"
            );
        }
    }

    /// Returns when the connection has failed, or is silent while another member is not.
    async fn guard(&mut self, connection: &Connection) -> End {
        loop {
            match self.suspects.recv().await {
                Some(generation) if generation == connection.generation => {}
                Some(_) => continue,
                None => std::future::pending().await,
            }
            let prefix = self.prefix.clone();
            let other = async {
                tokio::time::sleep(PATIENCE).await;
                match self.race(Some(&connection.endpoint)).await {
                    Ok(other) if other.cluster == connection.cluster => other,
                    Ok(_) | Err(_) => std::future::pending().await,
                }
            };
            tokio::select! {
                position = connection.position(&prefix) => match position {
                    Ok(position) if position.cluster == connection.cluster => {}
                    Ok(_) => return End::Lost("another cluster answers now".into()),
                    Err(reason) => return End::Lost(reason),
                },
                other = other => return End::Outrun(other),
            }
        }
    }
}

/// Why a connection is not used any more.
enum End {
    /// It does not answer, with the reason.
    Lost(String),
    /// It is silent, and this one is not.
    Outrun(Arc<Connection>),
}

/// How much later each further member is tried: the first ones are preferred.
const HEAD_START: Duration = Duration::from_millis(100);
/// How long a member that is suspected has for an answer before others are asked.
const PATIENCE: Duration = Duration::from_millis(500);

/// A batch of small requests may be as large as this.
const BATCH_BYTES: usize = 1024 * 1024;

const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);
