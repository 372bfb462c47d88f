//! The way to etcd: one member at a time, and another one when it fails.

use crate::store::etcd::connection::{Connection, is_said_by_etcd};
use crate::store::etcd::options::Member;
use crate::store::etcd::prefix::Prefix;
use crate::store::etcd::room::{self, Room};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// What all users of the connection share.
#[derive(Clone, Debug)]
pub(super) struct Link {
    state: watch::Receiver<State>,
    suspects: mpsc::Sender<u64>,
    /// Something was suspected.
    alarm: Arc<Notify>,
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
    members: Vec<Member>,
    prefix: Prefix,
    value_bytes_max: usize,
    state: watch::Sender<State>,
    suspects: mpsc::Receiver<u64>,
    generation: u64,
}

/// Where to look for a member.
#[derive(Clone, Copy)]
enum Among<'a> {
    /// Any will do.
    All,
    /// Of the same cluster, but not the same one.
    Others(&'a Connection),
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
        self.alarm.notify_one();
    }

    /// Waits until somebody suspects a connection. For one listener.
    pub(super) async fn suspected(&self) {
        self.alarm.notified().await;
    }
}

impl Supervisor {
    pub(super) fn new(
        members: Vec<Member>,
        prefix: Prefix,
        value_bytes_max: usize,
    ) -> (Self, Link) {
        let (state, receiver) = watch::channel(State::Searching("not tried yet".into()));
        let (sender, suspects) = mpsc::channel(16);
        let link = Link { state: receiver, suspects: sender, alarm: Arc::default() };
        let generation = 0;
        (Self { members, prefix, value_bytes_max, state, suspects, generation }, link)
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
        let state = self.state.clone();
        let say = move |reason| {
            state.send_replace(State::Searching(reason));
        };
        self.race(Among::All, say).await
    }

    /// Tries members again and again, each by itself and at first a little after the one before
    /// it, and gives the first that answers: one that is silent holds up nobody, and one that
    /// cannot answer just now (etcd elects a leader) is asked again.
    async fn race(&mut self, among: Among<'_>, say: impl Fn(String)) -> Arc<Connection> {
        // A small limit of clients says nothing of batches.
        let wanted = room::wanted(self.value_bytes_max.max(BATCH_BYTES));
        let (sender, mut failures) = mpsc::channel(self.members.len());
        let mut attempts = JoinSet::new();
        let (except, cluster) = match among {
            Among::All => (None, None),
            Among::Others(than) => (Some(than.endpoint.as_str()), Some(than.cluster)),
        };
        let is_tried =
            |member: &&Member| except.is_none_or(|except| *member.endpoint.uri() != *except);
        let mut start = Duration::ZERO;
        for member in self.members.iter().filter(is_tried) {
            let (member, prefix) = (member.clone(), self.prefix.clone());
            let failures = sender.clone();
            attempts.spawn(async move {
                tokio::time::sleep(start).await;
                let mut pause = PAUSE_MIN;
                loop {
                    let reason = match Connection::open(&member, &prefix, wanted).await {
                        Ok(opened) if cluster.is_none_or(|cluster| cluster == opened.cluster) => {
                            return opened;
                        }
                        Ok(_) => "it is of another cluster".to_owned(),
                        Err(reason) => reason,
                    };
                    let _ = failures.send(format!("{}: {reason}", member.endpoint.uri())).await;
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            });
            start += HEAD_START;
        }
        loop {
            tokio::select! {
                Some(attempt) = attempts.join_next() => match attempt {
                    Ok(mut connection) => {
                        self.generation += 1;
                        connection.generation = self.generation;
                        return Arc::new(connection);
                    }
                    Err(error) => tracing::error!(%error, "an attempt to connect failed"),
                },
                Some(reason) = failures.recv() => {
                    tracing::debug!(reason, "etcd does not answer");
                    say(reason);
                }
            }
        }
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
                self.race(Among::Others(connection), |_| ()).await
            };
            tokio::select! {
                looked = look(connection, &prefix) => match looked {
                    Ok(()) => {}
                    Err(reason) => return End::Lost(reason),
                },
                other = other => return End::Outrun(other),
            }
        }
    }
}

/// Whether a member still answers. One that says that it cannot just now, for want of a leader,
/// is there, and is asked again.
async fn look(connection: &Connection, prefix: &Prefix) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        match connection.position(prefix).await {
            Ok(position) if position.cluster == connection.cluster => return Ok(()),
            Ok(_) => return Err("another cluster answers now".into()),
            Err(reason) if is_said_by_etcd(&reason) && begun.elapsed() < LOOK_FOR => {
                tracing::debug!(reason, "etcd cannot answer");
                tokio::time::sleep(PAUSE_MIN).await;
            }
            Err(reason) => return Err(reason),
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

/// How long a member may be without a leader before it counts as lost.
const LOOK_FOR: Duration = Duration::from_secs(3);

const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(1);
