//! What follows from the logs without judging: operations with their times, sessions with their
//! ends.

use std::collections::{BTreeMap, VecDeque};

use crate::history::record::{Answer, History, Request, What};

/// A time that never comes.
pub(crate) const NEVER: u64 = u64::MAX;

/// A request with all that became of it.
#[derive(Clone, Debug)]
pub(crate) struct Operation<'a> {
    pub(crate) client: usize,
    pub(crate) session: i64,
    /// The number of the connection, in the whole history.
    pub(crate) connection: usize,
    pub(crate) request: &'a Request,
    /// `None`: it may have been carried out or not.
    pub(crate) answer: Option<&'a Answer>,
    /// The zxid in the answer's header.
    pub(crate) zxid: i64,
    pub(crate) sent: u64,
    /// When the answer came.
    pub(crate) answered: u64,
    /// It has had its effect before this or never: the answer, or, where there is none, the
    /// moment at which the session was served again or was over.
    pub(crate) over: u64,
    /// It is a read that left right behind a sync, which left then.
    pub(crate) synced: Option<u64>,
}

impl Operation<'_> {
    /// Whether it was answered with success.
    pub(crate) fn is_ok(&self) -> bool {
        self.answer.is_some_and(Answer::is_ok)
    }

    /// For messages.
    pub(crate) fn show(&self) -> String {
        let request = shortened(&format!("{:?}", self.request));
        let answer = match self.answer {
            Some(answer) => shortened(&format!("{answer:?} zxid {:#x}", self.zxid)),
            None => "no answer".to_owned(),
        };
        let (from, until) = (seconds(self.sent), seconds(self.over));
        format!(
            "client {} session {:#x} connection {} [{from}..{until}] {request} -> {answer}",
            self.client, self.session, self.connection
        )
    }
}

/// How a session ended, as its client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Nobody has ended it.
    Open,
    /// It was closed; sent and answered then.
    Closed(u64, u64),
    /// A server said then that it was over.
    Refused(u64),
    /// Its client has left it then.
    Abandoned,
}

/// What is known of a session.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) client: usize,
    pub(crate) timeout: u64,
    /// When the last thing left that was answered: the server heard of the client after this.
    pub(crate) spoke: u64,
    pub(crate) end: End,
}

impl Session {
    /// It may not end by itself before this.
    pub(crate) fn alive_until(&self) -> u64 {
        self.spoke.saturating_add(self.timeout)
    }
}

/// See the file's text.
#[derive(Debug, Default)]
pub(crate) struct Facts<'a> {
    /// All requests but pings, client by client, in the order in which they left.
    pub(crate) operations: Vec<Operation<'a>>,
    pub(crate) sessions: BTreeMap<i64, Session>,
}

impl<'a> Facts<'a> {
    pub(crate) fn of(history: &'a History) -> Self {
        let mut reader = Reader::default();
        for (client, log) in history.logs.iter().enumerate() {
            let first = reader.facts.operations.len();
            reader.session = 0;
            for entry in &log.entries {
                reader.entry(client, entry.at, &entry.what);
            }
            reader.cut();
            reader.facts.bound(first);
        }
        reader.facts
    }

    /// An operation without an answer is over once its session is served on a later connection,
    /// or has ended.
    fn bound(&mut self, first: usize) {
        let mut served: BTreeMap<i64, Vec<(usize, u64)>> = BTreeMap::new();
        for operation in self.operations.iter_mut().skip(first).rev() {
            let later = served.entry(operation.session).or_default();
            if operation.answer.is_some() {
                if operation.request.is_write() {
                    later.push((operation.connection, operation.answered));
                }
                continue;
            }
            let ended = match self.sessions.get(&operation.session).map(|session| session.end) {
                Some(End::Closed(_, at) | End::Refused(at)) => at,
                _ => NEVER,
            };
            let later = later.iter().filter(|(connection, _)| *connection > operation.connection);
            operation.over = later.map(|(_, at)| *at).min().unwrap_or(NEVER).min(ended);
        }
    }
}

#[derive(Default)]
struct Reader<'a> {
    facts: Facts<'a>,
    session: i64,
    connection: usize,
    unanswered: VecDeque<(i32, usize)>,
    pings: VecDeque<u64>,
    sync: Option<(usize, u64)>,
}

impl<'a> Reader<'a> {
    fn entry(&mut self, client: usize, at: u64, what: &'a What) {
        match what {
            What::Opened { session, timeout_ms, asked, .. } => {
                self.session = *session;
                self.connection += 1;
                let timeout = timeout_ms.saturating_mul(1_000_000);
                let known = self.facts.sessions.entry(*session).or_insert(Session {
                    client,
                    timeout,
                    spoke: 0,
                    end: End::Open,
                });
                known.timeout = timeout;
                self.spoke(*asked);
            }
            What::Refused => self.ends(End::Refused(at)),
            What::Abandoned => self.ends(End::Abandoned),
            What::Cut { .. } => self.cut(),
            What::Sent { request: Request::Ping, .. } => self.pings.push_back(at),
            What::Sent { xid, request } => self.sent(client, at, *xid, request),
            What::Answered { xid: -2, .. } => {
                let sent = self.pings.pop_front();
                self.spoke(sent.unwrap_or_default());
            }
            What::Answered { xid, zxid, answer } => self.answered(at, *xid, *zxid, answer),
            What::Nonsense { .. }
            | What::Event { .. }
            | What::Taken { .. }
            | What::Given { .. } => {}
        }
    }

    fn sent(&mut self, client: usize, at: u64, xid: i32, request: &'a Request) {
        let index = self.facts.operations.len();
        if let Request::Sync { .. } = request {
            self.sync = Some((index, at));
        }
        let is_read = matches!(
            request,
            Request::Get { .. } | Request::Exists { .. } | Request::Children { .. }
        );
        let synced = self.sync.filter(|_| is_read).map(|(_, at)| at);
        self.unanswered.push_back((xid, index));
        self.facts.operations.push(Operation {
            client,
            session: self.session,
            connection: self.connection,
            request,
            answer: None,
            zxid: 0,
            sent: at,
            answered: NEVER,
            over: NEVER,
            synced,
        });
        if *request == Request::Close {
            self.ends(End::Closed(at, NEVER));
        }
    }

    fn answered(&mut self, at: u64, xid: i32, zxid: i64, answer: &'a Answer) {
        let Some((_, index)) = self.unanswered.pop_front().filter(|(sent, _)| *sent == xid) else {
            return;
        };
        // Reads that leave after the answer to the sync are reads like any others.
        self.sync = self.sync.filter(|(sync, _)| *sync != index);
        let Some(operation) = self.facts.operations.get_mut(index) else { return };
        (operation.answer, operation.zxid) = (Some(answer), zxid);
        (operation.answered, operation.over) = (at, at);
        let (sent, is_close) = (operation.sent, *operation.request == Request::Close);
        self.spoke(sent);
        if is_close {
            self.ends(End::Closed(sent, at));
        }
    }

    fn spoke(&mut self, sent: u64) {
        if let Some(session) = self.facts.sessions.get_mut(&self.session) {
            session.spoke = session.spoke.max(sent);
        }
    }

    fn ends(&mut self, end: End) {
        let Some(session) = self.facts.sessions.get_mut(&self.session) else { return };
        // One that has ended stays so, whatever its client tries with it.
        let is_closed = matches!(session.end, End::Closed(_, at) if at != NEVER);
        if !is_closed && !matches!(session.end, End::Refused(_)) {
            session.end = end;
        }
    }

    fn cut(&mut self) {
        self.unanswered.clear();
        self.pings.clear();
        self.sync = None;
    }
}

/// A time for messages.
pub(crate) fn seconds(at: u64) -> String {
    if at == NEVER {
        return "never".to_owned();
    }
    format!("{}.{:06}s", at / 1_000_000_000, at % 1_000_000_000 / 1000)
}

fn shortened(text: &str) -> String {
    const CHARACTERS_MAX: usize = 400;
    match text.char_indices().nth(CHARACTERS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}
