//! A client that keeps its session as the Java client does, and writes down all that it does.
//!
//! It pings, gives a silent connection up, goes to the next server with its session, and hands
//! over its watches there (`ClientCnxn.SendThread`). What it is used for it does not know.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::conformance::message::{Message, Reply};
use crate::conformance::session::{ConnectRequest, ConnectResponse};
use crate::conformance::wire::{event, record};
use crate::history::frames::{answer, frame};
use crate::history::record::{Answer, Entry, Log, Request, What};

/// The xid of pings, from `ClientCnxn.PING_XID`.
const PING_XID: i32 = -2;
/// No frame is longer than this.
const FRAME_BYTES_MAX: usize = 64 << 20;
/// Notifications that are kept for those who wait for one.
const EVENTS_MAX: usize = 100;
/// How long a client without a server waits before it tries the next.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Where a client writes down what it does.
pub(crate) struct Journal {
    began: Instant,
    answered: Arc<AtomicU64>,
    log: Log,
}

impl Journal {
    /// An empty log with the clock of the run.
    pub(crate) fn new(began: Instant, answered: Arc<AtomicU64>) -> Self {
        Self { began, answered, log: Log::default() }
    }

    /// Writes down that this happens now.
    pub(crate) fn write(&mut self, what: What) {
        if matches!(what, What::Answered { xid, .. } if xid != PING_XID) {
            self.answered.fetch_add(1, Ordering::Relaxed);
        }
        let at = self.now();
        self.log.entries.push(Entry { at, what });
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).expect("a run is shorter than centuries")
    }
}

/// A session, as it must be named to a server.
struct Session {
    password: Vec<u8>,
    id: i64,
    timeout: Duration,
}

/// A connection after its handshake.
struct Link {
    stream: TcpStream,
    incoming: BytesMut,
    unanswered: VecDeque<(i32, Request)>,
    heard: Instant,
    spoken: Instant,
    xid: i32,
}

/// The watches that a client believes to have (`ZKWatchManager`).
#[derive(Default)]
struct Watches {
    data: BTreeSet<String>,
    exist: BTreeSet<String>,
    child: BTreeSet<String>,
}

/// See the file's text.
pub(crate) struct Client {
    servers: Arc<[SocketAddr]>,
    next_server: usize,
    timeout_wanted: Duration,
    journal: Journal,
    session: Option<Session>,
    /// The one before.
    ended: Option<Session>,
    link: Option<Link>,
    zxid_seen: i64,
    watches: Watches,
    /// Notifications that have come and that nobody has looked at, oldest first.
    pub(crate) events: VecDeque<(i32, String)>,
}

impl Client {
    /// A client without a session, that will go to this server first.
    pub(crate) fn new(
        servers: Arc<[SocketAddr]>,
        first_server: usize,
        timeout_wanted: Duration,
        journal: Journal,
    ) -> Self {
        Self {
            servers,
            next_server: first_server,
            timeout_wanted,
            journal,
            session: None,
            ended: None,
            link: None,
            zxid_seen: 0,
            watches: Watches::default(),
            events: VecDeque::new(),
        }
    }

    /// All that was written down.
    pub(crate) fn into_log(self) -> Log {
        self.journal.log
    }

    /// Writes something down that is not about frames.
    pub(crate) fn write(&mut self, what: What) {
        self.journal.write(what);
    }

    /// The session, 0 if there is none now.
    pub(crate) fn session(&self) -> i64 {
        self.session.as_ref().map_or(0, |session| session.id)
    }

    /// Whether it is connected.
    pub(crate) fn is_connected(&self) -> bool {
        self.link.is_some()
    }

    /// Tries the next server, once; true if it is connected now.
    pub(crate) async fn connect(&mut self) -> bool {
        if self.link.is_some() {
            return true;
        }
        self.next_server = (self.next_server + 1) % self.servers.len();
        let known = self.session.as_ref().map(|session| session.timeout);
        let share = known.unwrap_or(self.timeout_wanted) * 2 / 3;
        let count = u32::try_from(self.servers.len()).expect("there are few servers");
        let patience = (share / count).max(Duration::from_millis(300));
        match timeout(patience, self.handshake()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => tokio::time::sleep(RETRY_PAUSE).await,
        }
        self.link.is_some() && self.hand_over_watches().await.is_some()
    }

    async fn handshake(&mut self) -> Result<()> {
        let address = *self.servers.get(self.next_server).context("find a server")?;
        let mut stream = TcpStream::connect(address).await.context("connect")?;
        stream.set_nodelay(true).context("set TCP_NODELAY")?;
        let timeout_ms = i32::try_from(self.timeout_wanted.as_millis())?;
        let mut request =
            ConnectRequest { timeout_ms, last_zxid: self.zxid_seen, ..ConnectRequest::default() };
        if let Some(session) = &self.session {
            request.session = session.id;
            request.password = Some(session.password.clone());
        }
        let asked = self.journal.now();
        stream.write_all(&record().buffer(&request.bytes()).bytes()).await.context("send")?;
        let mut incoming = BytesMut::with_capacity(16 << 10);
        let body = loop {
            if let Some(body) = take_frame(&mut incoming)? {
                break body;
            }
            ensure!(stream.read_buf(&mut incoming).await.context("receive")? > 0, "closed");
        };
        let response = ConnectResponse::decode(&body)?;
        if response.session == 0 || response.timeout_ms <= 0 {
            self.journal.write(What::Refused);
            self.forget_session();
            bail!("refused");
        }
        let timeout_ms = u64::from(response.timeout_ms.unsigned_abs());
        let resumed = self.session.is_some();
        self.session = Some(Session {
            password: response.password,
            id: response.session,
            timeout: Duration::from_millis(timeout_ms),
        });
        let server = self.next_server;
        let session = response.session;
        self.journal.write(What::Opened { session, timeout_ms, server, resumed, asked });
        let now = Instant::now();
        let unanswered = VecDeque::new();
        self.link = Some(Link { stream, incoming, unanswered, heard: now, spoken: now, xid: 0 });
        Ok(())
    }

    /// As the Java client does at once on every new connection (`primeConnection`).
    async fn hand_over_watches(&mut self) -> Option<()> {
        let lists = [&self.watches.data, &self.watches.exist, &self.watches.child];
        if lists.iter().all(|list| list.is_empty()) {
            return Some(());
        }
        let [data, exist, child] = lists.map(|list| list.iter().cloned().collect());
        let zxid = self.zxid_seen;
        self.exchange(vec![Request::SetWatches { zxid, data, exist, child }]).await.map(drop)
    }

    /// Sends requests in one piece and waits for all their answers; `None` if the connection is
    /// lost before the last.
    pub(crate) async fn exchange(&mut self, requests: Vec<Request>) -> Option<Vec<Answer>> {
        let count = requests.len();
        if let Err(error) = self.send(requests).await {
            self.cut(&format!("{error:#}"));
            return None;
        }
        let mut answers = Vec::with_capacity(count);
        while answers.len() < count {
            match self.hear(None).await {
                Ok(Some(answer)) => answers.push(answer),
                Ok(None) => {}
                Err(error) => {
                    self.cut(&format!("{error:#}"));
                    return None;
                }
            }
        }
        Some(answers)
    }

    /// Sends requests and drops the connection before their answers can come.
    pub(crate) async fn exchange_and_cut(&mut self, requests: Vec<Request>) {
        // An error would only be one more reason.
        let _ = self.send(requests).await;
        self.cut("the client does not wait for the answer");
    }

    /// One request.
    pub(crate) async fn ask(&mut self, request: Request) -> Option<Answer> {
        self.exchange(vec![request]).await?.pop()
    }

    /// Hears notifications and keeps the session alive for so long; `None` if the connection is
    /// lost.
    pub(crate) async fn idle(&mut self, time: Duration) -> Option<()> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            if let Err(error) = self.hear(Some(until)).await {
                self.cut(&format!("{error:#}"));
                return None;
            }
        }
        Some(())
    }

    /// Drops the connection, and keeps the session.
    pub(crate) fn cut(&mut self, reason: &str) {
        if self.link.take().is_some() {
            self.journal.write(What::Cut { reason: reason.to_owned() });
        }
    }

    /// Drops the connection and forgets the session without a word.
    pub(crate) fn abandon(&mut self) {
        self.cut("the client vanishes");
        self.journal.write(What::Abandoned);
        self.forget_session();
    }

    /// Ends the session; true if that was answered.
    pub(crate) async fn close(&mut self) -> bool {
        let is_closed = self.ask(Request::Close).await.is_some();
        if is_closed {
            self.cut("the session is closed");
        }
        self.forget_session();
        is_closed
    }

    /// Asks for the session that has just ended, at another server: it must be refused.
    pub(crate) async fn haunt(&mut self) {
        self.session = self.ended.take();
        for _ in 0..3 {
            if self.session.is_none() || self.connect().await {
                break;
            }
        }
        if self.link.is_some() {
            self.close().await;
        }
        self.cut("there is no such session");
        self.forget_session();
    }

    fn forget_session(&mut self) {
        self.ended = self.session.take();
        self.zxid_seen = 0;
        self.watches = Watches::default();
        self.events.clear();
    }

    async fn send(&mut self, requests: Vec<Request>) -> Result<()> {
        let link = self.link.as_mut().context("there is no connection")?;
        let mut bytes = Vec::new();
        for request in requests {
            let xid = if request == Request::Ping { PING_XID } else { link.xid + 1 };
            link.xid = link.xid.max(xid);
            bytes.extend(frame(xid, &request));
            self.journal.write(What::Sent { xid, request: request.clone() });
            if xid != PING_XID {
                link.unanswered.push_back((xid, request));
            }
        }
        link.spoken = Instant::now();
        timeout(self.timeout_wanted, link.stream.write_all(&bytes)).await?.context("send")
    }

    /// Waits for the next message, or until the time given, and pings where it is due; gives the
    /// answer if the message is one.
    async fn hear(&mut self, until: Option<Instant>) -> Result<Option<Answer>> {
        let third = self.session.as_ref().context("there is no session")?.timeout / 3;
        let link = self.link.as_mut().context("there is no connection")?;
        if let Some(frame) = take_frame(&mut link.incoming)? {
            let taken = self.take(&frame);
            if let Err(error) = &taken {
                self.journal.write(What::Nonsense { text: format!("{error:#}") });
            }
            return taken;
        }
        let now = Instant::now();
        let silence_ends = link.heard + 2 * third;
        ensure!(now < silence_ends, "silence");
        if now >= link.spoken + third {
            self.send(vec![Request::Ping]).await?;
            return Ok(None);
        }
        let wake = silence_ends.min(link.spoken + third).min(until.unwrap_or(silence_ends));
        let read = link.stream.read_buf(&mut link.incoming);
        // Reading into a buffer can be given up without loss.
        if let Ok(count) = tokio::time::timeout_at(wake.into(), read).await {
            ensure!(count.context("receive")? > 0, "closed by the server");
            link.heard = Instant::now();
        }
        Ok(None)
    }

    fn take(&mut self, frame: &[u8]) -> Result<Option<Answer>> {
        match Message::decode(frame)? {
            Message::Event(event) => {
                self.note_event(event.kind, &event.path);
                let (kind, path, zxid) = (event.kind, event.path, event.zxid);
                self.events.push_back((kind, path.clone()));
                if self.events.len() > EVENTS_MAX {
                    self.events.pop_front();
                }
                self.journal.write(What::Event { kind, path, zxid });
                Ok(None)
            }
            Message::Reply(reply) if reply.xid == PING_XID => {
                let (xid, zxid, answer) = (reply.xid, reply.zxid, Answer::Done);
                self.journal.write(What::Answered { xid, zxid, answer });
                Ok(None)
            }
            Message::Reply(reply) => self.take_reply(&reply).map(Some),
        }
    }

    fn take_reply(&mut self, reply: &Reply) -> Result<Answer> {
        let link = self.link.as_mut().context("there is no connection")?;
        let (xid, request) = link.unanswered.pop_front().context("an answer to nothing")?;
        // As `SendThread.readResponse` does: the client would drop the connection.
        ensure!(xid == reply.xid, "answer to {} where {xid} was next", reply.xid);
        let answer = answer(&request, reply)?;
        self.note_watches(&request, &answer);
        self.zxid_seen = self.zxid_seen.max(reply.zxid);
        let (zxid, answer_copy) = (reply.zxid, answer.clone());
        self.journal.write(What::Answered { xid, zxid, answer: answer_copy });
        Ok(answer)
    }

    fn note_watches(&mut self, request: &Request, answer: &Answer) {
        let Some((path, list)) = (match (request, answer) {
            (Request::Get { path, watch: true }, Answer::Data(..))
            | (Request::Exists { path, watch: true }, Answer::Stat(_)) => {
                Some((path, &mut self.watches.data))
            }
            (Request::Exists { path, watch: true }, Answer::Error(_)) => {
                Some((path, &mut self.watches.exist))
            }
            (Request::Children { path, watch: true }, Answer::Children(..)) => {
                Some((path, &mut self.watches.child))
            }
            _ => None,
        }) else {
            return;
        };
        list.insert(path.clone());
    }

    /// As `ZKWatchManager.materialize` does.
    fn note_event(&mut self, kind: i32, path: &str) {
        if matches!(kind, event::CREATED | event::DATA_CHANGED | event::DELETED) {
            self.watches.data.remove(path);
            self.watches.exist.remove(path);
        }
        if matches!(kind, event::CHILDREN_CHANGED | event::DELETED) {
            self.watches.child.remove(path);
        }
    }
}

fn take_frame(incoming: &mut BytesMut) -> Result<Option<BytesMut>> {
    let Some(head) = incoming.first_chunk::<4>() else { return Ok(None) };
    let length = usize::try_from(i32::from_be_bytes(*head)).context("a frame of no length")?;
    ensure!(length <= FRAME_BYTES_MAX, "a frame of {length} bytes");
    if incoming.len() < length + 4 {
        return Ok(None);
    }
    incoming.advance(4);
    Ok(Some(incoming.split_to(length)))
}
