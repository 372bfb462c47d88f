//! A history: what each client sent and what it got, with the times at which it did.
//!
//! Nothing is judged here, and nothing is left out: a request without an answer is simply not
//! answered. Written to a file it has one JSON value a line.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// Everything that was recorded in one run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// What the run was made of.
    pub run: Run,
    /// A log for each client; the last one is the auditor, who read everything in the end.
    pub logs: Vec<Log>,
}

/// What a run was made of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The seed of all choices.
    pub seed: u64,
    /// The znode below which everything happened.
    pub root: String,
    /// The servers, as `HOST:PORT`.
    pub servers: Vec<String>,
}

/// What one client did and saw, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Log {
    /// What happened, oldest first.
    pub entries: Vec<Entry>,
}

/// Something that a client did or saw.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// When, in nanoseconds since the start of the run, by a clock that all clients share.
    pub at: u64,
    /// What.
    pub what: What,
}

/// What a client did or saw.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// A server accepted the session on a new connection.
    Opened {
        /// The session.
        session: i64,
        /// The negotiated timeout.
        timeout_ms: u64,
        /// Which of the servers.
        server: usize,
        /// Whether the session was there before.
        resumed: bool,
        /// When the client had asked for it.
        #[serde(default)]
        asked: u64,
    },
    /// A server said that the session is over.
    Refused,
    /// The connection ended: what is not answered stays unanswered.
    Cut {
        /// Why the client thinks so.
        reason: String,
    },
    /// A frame came that is no answer to what was asked, or out of turn; the connection is cut.
    Nonsense {
        /// What is wrong with it.
        text: String,
    },
    /// The client leaves its session behind without a word.
    Abandoned,
    /// A request left.
    Sent {
        /// Its number on the connection.
        xid: i32,
        /// The request.
        request: Request,
    },
    /// An answer came.
    Answered {
        /// The number of the request.
        xid: i32,
        /// The zxid in the header.
        zxid: i64,
        /// What was answered.
        answer: Answer,
    },
    /// A notification came.
    Event {
        /// Its kind, see [`crate::conformance::wire::event`].
        kind: i32,
        /// The znode.
        path: String,
        /// The zxid in the header; −1 if it answers a setWatches.
        zxid: i64,
    },
    /// From here on the client believes to hold a lock.
    Taken {
        /// The parent of the lock's queue.
        lock: String,
    },
    /// From here on it does not.
    Given {
        /// The parent of the lock's queue.
        lock: String,
    },
}

/// How a znode is created, with the number that stands for it in `CreateMode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// Stays until it is deleted.
    Plain = 0,
    /// Goes with its session.
    Ephemeral = 1,
    /// Gets the next number of its parent.
    Sequential = 2,
    /// Both.
    EphemeralSequential = 3,
}

impl Mode {
    /// Whether the server completes the name.
    #[must_use]
    pub fn is_sequential(self) -> bool {
        matches!(self, Self::Sequential | Self::EphemeralSequential)
    }

    /// Whether it goes with its session.
    #[must_use]
    pub fn is_ephemeral(self) -> bool {
        matches!(self, Self::Ephemeral | Self::EphemeralSequential)
    }
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are ZooKeeper's own")]
pub enum Request {
    /// create (1).
    Create { path: String, data: String, mode: Mode },
    /// delete (2).
    Delete { path: String, version: i32 },
    /// setData (5).
    Set { path: String, data: String, version: i32 },
    /// check (13), only in a multi.
    Check { path: String, version: i32 },
    /// getData (4).
    Get { path: String, watch: bool },
    /// exists (3).
    Exists { path: String, watch: bool },
    /// getChildren2 (12).
    Children { path: String, watch: bool },
    /// sync (9).
    Sync { path: String },
    /// multi (14).
    Multi(Vec<Self>),
    /// setWatches (101).
    SetWatches { zxid: i64, data: Vec<String>, exist: Vec<String>, child: Vec<String> },
    /// ping (11), always under xid −2.
    Ping,
    /// closeSession (−11).
    Close,
}

impl Request {
    /// Whether it may change the tree, and so stands in the one order of all writes.
    #[must_use]
    pub fn is_write(&self) -> bool {
        matches!(
            self,
            Self::Create { .. } | Self::Delete { .. } | Self::Set { .. } | Self::Multi(_)
        )
    }

    /// The requests in it: those of a multi, or itself.
    #[must_use]
    pub fn steps(&self) -> &[Self] {
        match self {
            Self::Multi(steps) => steps,
            single => std::slice::from_ref(single),
        }
    }
}

/// What was answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// An error code.
    Error(i32),
    /// Success with nothing to say.
    Done,
    /// The path of a znode that was created.
    Path(String),
    /// The Stat of a znode.
    Stat(Stat),
    /// Data and Stat.
    Data(String, Stat),
    /// Names of children, sorted, and the parent's Stat.
    Children(Vec<String>, Stat),
    /// The results of a multi.
    Results(Vec<Self>),
}

impl Answer {
    /// Whether it is a success, and for a multi that of the whole.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        match self {
            Self::Error(_) => false,
            Self::Results(results) => results.iter().all(Self::is_ok),
            _ => true,
        }
    }
}

/// The fields of a Stat that are judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are ZooKeeper's own")]
pub struct Stat {
    pub czxid: i64,
    pub mzxid: i64,
    pub pzxid: i64,
    pub version: i32,
    pub cversion: i32,
    pub owner: i64,
    pub children: i32,
}

/// A line of the file: what the run was, or one entry of a log.
#[derive(Serialize, Deserialize)]
enum Line {
    Run(Run),
    Entry(usize, Entry),
}

impl History {
    /// Writes it to a file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        let mut out = BufWriter::new(File::create(path).context("make the file of the history")?);
        let mut line = |line: &Line| -> Result<()> {
            serde_json::to_writer(&mut out, line).context("write an entry")?;
            out.write_all(b"\n").context("write an entry")
        };
        line(&Line::Run(self.run.clone()))?;
        for (client, log) in self.logs.iter().enumerate() {
            for entry in &log.entries {
                line(&Line::Entry(client, entry.clone()))?;
            }
        }
        out.flush().context("write the history")
    }

    /// Reads it from a file.
    ///
    /// # Errors
    /// The file cannot be read, or is no history.
    pub fn load(path: &Path) -> Result<Self> {
        let file = BufReader::new(File::open(path).context("open the history")?);
        let mut history = Self::default();
        for (number, line) in file.lines().enumerate() {
            let line = line.context("read the history")?;
            let context = || format!("line {} of the history", number + 1);
            match serde_json::from_str(&line).with_context(context)? {
                Line::Run(run) => history.run = run,
                Line::Entry(client, entry) => {
                    if history.logs.len() <= client {
                        history.logs.resize_with(client + 1, Log::default);
                    }
                    history.logs[client].entries.push(entry);
                }
            }
        }
        Ok(history)
    }
}
