//! A connection over a stream in memory; the test plays the core. Time stands still unless
//! everybody waits.

mod figures;
mod limits;
mod noted;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::driver::clock::Clock;
use crate::driver::{Handle, Query};
use crate::keeper::Status;
use crate::keeper::request::{
    Body, Connect, Connected, Names, Operation, Outgoing, Reply, Request, SessionId, Xid,
};
use crate::keeper::zxid::Zxid;
use crate::server::connection::tests::noted::Noted;
use crate::server::{Options, ShownOptions};
use crate::wire::four_letter::AllowList;

const FRAME_BYTES_MAX: usize = 10_000;

/// A client's end of a connection, and the core behind the other.
struct Scene {
    client: DuplexStream,
    core: mpsc::Receiver<Input>,
    shared: Arc<Shared>,
    stopping: CancellationToken,
    served: tokio::task::JoinHandle<()>,
}

impl Scene {
    fn new() -> Self {
        Self::with_socket_buffer(1 << 20)
    }

    fn with_socket_buffer(bytes: usize) -> Self {
        Self::with_writes_to(bytes, Arc::default())
    }

    /// Each write is noted in `writes`.
    fn with_writes_to(bytes: usize, writes: Arc<Mutex<Vec<usize>>>) -> Self {
        Self::with_options(Self::options(), bytes, writes)
    }

    fn with_request_bytes(request_bytes_max: usize) -> Self {
        let options = Options { request_bytes_max, ..Self::options() };
        Self::with_options(options, 1 << 20, Arc::default())
    }

    fn options() -> Options {
        let second = Duration::from_secs(1);
        Options {
            frame_bytes_max: FRAME_BYTES_MAX,
            connections_max: 10,
            connections_per_address_max: 10,
            request_bytes_max: 1 << 30,
            unread_bytes_max: 1 << 30,
            words: AllowList::parse("ruok,isro,cons,stmk").expect("they are words"),
            shown: ShownOptions {
                version: "3.9.5-x, built on y".to_owned(),
                data: "nowhere".to_owned(),
                data_dir: None,
                tick: second,
                session_timeout_min: second,
                session_timeout_max: second,
            },
        }
    }

    fn with_options(options: Options, bytes: usize, writes: Arc<Mutex<Vec<usize>>>) -> Self {
        let (handle, core) = Handle::new(Clock::Runtime(Instant::now()));
        let stopping = CancellationToken::new();
        let shared = Shared::new(options, handle, 2181, stopping.clone());
        let (client, served) = opened(&shared, bytes, writes);
        Self { client, core, shared, stopping, served }
    }

    /// Another connection to the same server.
    fn another(&self) -> (DuplexStream, tokio::task::JoinHandle<()>) {
        opened(&self.shared, 1 << 20, Arc::default())
    }

    fn stop(&self) {
        self.stopping.cancel();
        self.shared.drain();
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.client.write_all(bytes).await.expect("the server reads");
    }

    /// Everything that the server sends until it ends its side.
    async fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        self.client.read_to_end(&mut rest).await.expect("reading in memory works");
        rest
    }

    async fn frame(&mut self) -> Bytes {
        let length = self.client.read_i32().await.expect("a frame comes");
        let mut frame = vec![0; usize::try_from(length).expect("a length")];
        self.client.read_exact(&mut frame).await.expect("the frame is whole");
        frame.into()
    }

    async fn input(&mut self) -> Input {
        self.core.recv().await.expect("the connection goes on")
    }

    async fn connect(&mut self) -> (Connect, Outbox) {
        match self.input().await {
            Input::Connect { connect, outbox, .. } => (connect, outbox),
            other => panic!("{other:?}"),
        }
    }

    async fn requests(&mut self) -> Vec<Xid> {
        match self.input().await {
            Input::Requests(_, requests) => requests.iter().map(|request| request.xid).collect(),
            other => panic!("{other:?}"),
        }
    }

    async fn closed(&mut self) {
        let input = self.input().await;
        assert!(matches!(input, Input::Closed(_)), "{input:?}");
    }

    /// Nothing is handed in however long one waits.
    async fn nothing_is_handed_in(&mut self) {
        let waited = timeout(Duration::from_secs(3600), self.core.recv()).await;
        assert!(waited.is_err(), "{waited:?}");
    }

    /// A session that is established, with its answer read.
    async fn established(&mut self) -> Outbox {
        self.send(&handshake(true)).await;
        let (_, outbox) = self.connect().await;
        outbox.push(&mut vec![accepted()]);
        self.frame().await;
        outbox
    }
}

fn opened(
    shared: &Arc<Shared>,
    bytes: usize,
    writes: Arc<Mutex<Vec<usize>>>,
) -> (DuplexStream, tokio::task::JoinHandle<()>) {
    let (client, server) = tokio::io::duplex(bytes);
    let shared = Arc::clone(shared);
    let served = tokio::spawn(async move {
        let (reader, writer) = tokio::io::split(server);
        let writer = Noted { writer, writes };
        let peer = SocketAddr::from(([127, 0, 0, 1], 7));
        let seat = Seat::take(&shared, peer).expect("there is room");
        serve(reader, writer, seat).await;
    });
    (client, served)
}

/// A handshake's frame: timeout 10 s, a new session.
fn handshake(with_read_only_byte: bool) -> Vec<u8> {
    let mut frame = BytesMut::new();
    frame.put_i32(if with_read_only_byte { 45 } else { 44 });
    frame.put_i32(0);
    frame.put_i64(0);
    frame.put_i32(10_000);
    frame.put_i64(0);
    frame.put_i32(16);
    frame.put_bytes(0, 16);
    if with_read_only_byte {
        frame.put_u8(0);
    }
    frame.to_vec()
}

fn pings(xids: impl IntoIterator<Item = i32>) -> Vec<u8> {
    let mut frames = BytesMut::new();
    for xid in xids {
        frames.put_i32(8);
        frames.put_i32(xid);
        frames.put_i32(11);
    }
    frames.to_vec()
}

fn accepted() -> Outgoing {
    Outgoing::Connected(Connected::Accepted {
        timeout_ms: 10_000,
        session: SessionId(0x77),
        password: Bytes::from_static(&[7; 16]),
    })
}

fn reply(xid: i32) -> Outgoing {
    Outgoing::Reply(Reply { xid: Xid(xid), zxid: Zxid(5), outcome: Ok(Body::Empty) })
}

fn large_reply(xid: i32, bytes: usize) -> Outgoing {
    let names = Names(Bytes::from(vec![0; bytes]));
    Outgoing::Reply(Reply { xid: Xid(xid), zxid: Zxid(5), outcome: Ok(Body::Names(names)) })
}

#[tokio::test(start_paused = true)]
async fn the_answer_has_the_read_only_byte_if_the_handshake_had_it() {
    for (with_read_only_byte, length) in [(true, 37), (false, 36)] {
        let mut scene = Scene::new();
        scene.send(&handshake(with_read_only_byte)).await;
        let (connect, outbox) = scene.connect().await;
        assert_eq!((connect.timeout_ms, connect.session), (10_000, SessionId(0)));
        outbox.push(&mut vec![accepted()]);
        assert_eq!(scene.frame().await.len(), length);
    }
}

#[tokio::test(start_paused = true)]
async fn requests_behind_a_handshake_wait_for_its_answer() {
    let mut scene = Scene::new();
    let mut bytes = handshake(true);
    bytes.extend(pings(1..=3));
    scene.send(&bytes).await;
    let (_, outbox) = scene.connect().await;
    scene.nothing_is_handed_in().await;
    outbox.push(&mut vec![accepted()]);
    assert_eq!(scene.requests().await, [Xid(1), Xid(2), Xid(3)]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_cut_anywhere_brings_the_same_requests() {
    let mut scene = Scene::new();
    let mut bytes = handshake(true);
    bytes.extend(pings(1..=2));
    let mut found = Vec::new();
    let mut outbox = None;
    for byte in bytes {
        scene.send(&[byte]).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
        while let Ok(input) = scene.core.try_recv() {
            match input {
                Input::Connect { outbox: new, .. } => {
                    new.push(&mut vec![accepted()]);
                    outbox = Some(new);
                }
                Input::Requests(_, requests) => found.extend(requests),
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(outbox.is_some());
    let ping = |xid| Request { xid: Xid(xid), operation: Operation::Ping };
    assert_eq!(found, [ping(1), ping(2)]);
}

#[tokio::test(start_paused = true)]
async fn requests_and_answers_that_wait_go_together() {
    let writes = Arc::default();
    let mut scene = Scene::with_writes_to(1 << 20, Arc::clone(&writes));
    let outbox = scene.established().await;
    scene.send(&pings(1..=100)).await;
    assert_eq!(scene.requests().await.len(), 100, "one read is one batch");
    outbox.push(&mut (1..=50).map(reply).collect());
    outbox.push(&mut (51..=100).map(reply).collect());
    for _ in 1..=100 {
        scene.frame().await;
    }
    let handshake = 4 + 37;
    assert_eq!(*writes.lock().expect("nothing panics with it"), [handshake, 100 * 20]);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_ends_its_side_is_gone() {
    let mut scene = Scene::new();
    scene.established().await;
    scene.client.shutdown().await.expect("shutting down works");
    scene.closed().await;
    assert_eq!(scene.rest().await, b"");
    assert_eq!(scene.shared.registry.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_no_frame_closes_without_a_reply() {
    let too_long = i32::try_from(FRAME_BYTES_MAX + 1).expect("it fits").to_be_bytes();
    for bytes in [&b"ruok"[..], &too_long, b"\xff\xff\xff\xff", b"\0\0\0\0", b"\0\0\0\x04abcd"] {
        let mut scene = Scene::new();
        scene.established().await;
        let mut sent = pings([1]);
        sent.extend_from_slice(bytes);
        scene.send(&sent).await;
        assert_eq!(scene.requests().await, [Xid(1)], "what came before is handed in");
        scene.closed().await;
        assert_eq!(scene.rest().await, b"", "after {bytes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_no_handshake_closes_without_a_reply() {
    let short = b"\0\0\0\x0a0123456789";
    for bytes in [&b"zzzz"[..], b"\xff\xff\xff\xff", b"\0\0\0\0", short] {
        let mut scene = Scene::new();
        scene.send(bytes).await;
        assert_eq!(scene.rest().await, b"", "after {bytes:?}");
        assert!(scene.core.try_recv().is_err(), "the core was told of {bytes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_handshake_is_closed_after_10_to_20_seconds() {
    for sent in [&b""[..], b"\0\0"] {
        let mut scene = Scene::new();
        let began = Instant::now();
        scene.send(sent).await;
        assert_eq!(scene.rest().await, b"");
        let took = began.elapsed();
        let expected = Duration::from_secs(10)..=Duration::from_millis(20_001);
        assert!(expected.contains(&took), "{took:?}");
        assert_eq!(scene.shared.figures.sessionless_expired.load(Relaxed), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_close_comes_after_what_was_sent_and_waits_for_the_clients_own() {
    let mut scene = Scene::new();
    let outbox = scene.established().await;
    outbox.push(&mut vec![reply(1)]);
    outbox.close();
    scene.closed().await;
    scene.send(b"unread").await;
    let frame = scene.rest().await;
    assert_eq!(frame.len(), 20);
    assert!(frame.starts_with(&[0, 0, 0, 16, 0, 0, 0, 1]), "{frame:?}");
    let began = Instant::now();
    scene.served.await.expect("it ends by itself");
    assert!(began.elapsed() <= LINGER_MAX);
}

#[tokio::test(start_paused = true)]
async fn a_client_with_a_thousand_requests_unanswered_is_not_read_from() {
    let mut scene = Scene::new();
    let outbox = scene.established().await;
    scene.send(&pings(0..2000)).await;
    let mut handed_in = 0;
    while let Ok(Some(Input::Requests(_, requests))) =
        timeout(Duration::from_secs(60), scene.core.recv()).await
    {
        handed_in += requests.len();
    }
    assert!((1000..1200).contains(&handed_in), "{handed_in}");
    outbox.push(&mut (0..900).map(reply).collect());
    assert!(!scene.requests().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_costly_request_is_answered_before_the_next_is_handed_in() {
    let mut scene = Scene::new();
    let outbox = scene.established().await;
    let mut sent = pings([1]);
    for xid in [2, 3] {
        sent.extend([0, 0, 0, 13, 0, 0, 0, xid, 0, 0, 0, 6, 0, 0, 0, 1, b'/']);
    }
    scene.send(&[sent, pings([4, 5])].concat()).await;
    assert_eq!(scene.requests().await, [Xid(1), Xid(2)]);
    scene.nothing_is_handed_in().await;
    outbox.push(&mut vec![reply(1), reply(2)]);
    assert_eq!(scene.requests().await, [Xid(3)]);
    outbox.push(&mut vec![reply(3)]);
    assert_eq!(scene.requests().await, [Xid(4), Xid(5)]);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_its_answers_is_asked_nothing_more_and_then_cut() {
    let mut scene = Scene::with_socket_buffer(1000);
    let outbox = scene.established().await;
    outbox.push(&mut vec![large_reply(1, FRAME_BYTES_MAX * 2)]);
    scene.send(&pings([2])).await;
    assert_eq!(scene.requests().await, [Xid(2)], "it was waited for already");
    scene.send(&pings([3])).await;
    scene.nothing_is_handed_in().await;
    for xid in 4..=40 {
        outbox.push(&mut vec![large_reply(xid, FRAME_BYTES_MAX)]);
    }
    scene.closed().await;
    assert_eq!(scene.shared.figures.connections_dropped.load(Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn answers_are_encoded_a_few_at_a_time() {
    let writes: Arc<Mutex<Vec<usize>>> = Arc::default();
    let mut scene = Scene::with_writes_to(1 << 24, Arc::clone(&writes));
    let outbox = scene.established().await;
    writes.lock().expect("nobody panics").clear();
    outbox.push(&mut (1..=1000).map(|xid| large_reply(xid, 4000)).collect());
    for xid in 1..=1000_i32 {
        assert_eq!(scene.frame().await[..4], xid.to_be_bytes());
    }
    let longest = writes.lock().expect("nobody panics").iter().copied().max();
    assert!(longest.is_some_and(|bytes| (500_000..1_100_000).contains(&bytes)), "{longest:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stops_answers_what_it_took_in() {
    let mut scene = Scene::new();
    let outbox = scene.established().await;
    scene.send(&pings([1])).await;
    assert_eq!(scene.requests().await, [Xid(1)]);
    scene.stop();
    tokio::time::sleep(Duration::from_millis(10)).await;
    outbox.push(&mut vec![reply(1)]);
    scene.closed().await;
    assert_eq!(scene.frame().await.get(..4), Some(&[0, 0, 0, 1][..]));
    assert_eq!(scene.rest().await, b"");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stops_waits_two_seconds_at_most() {
    let mut scene = Scene::new();
    scene.established().await;
    scene.send(&pings([1])).await;
    scene.requests().await;
    let began = Instant::now();
    scene.stop();
    scene.closed().await;
    let took = began.elapsed();
    assert!((DRAIN_MAX..DRAIN_MAX * 2).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_word_is_answered_however_it_comes() {
    for pieces in [&["ruok"][..], &["ruok\n"], &["ruok\r\n"], &["ru", "ok"]] {
        let mut scene = Scene::new();
        for piece in pieces {
            scene.send(piece.as_bytes()).await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(scene.rest().await, b"imok", "after {pieces:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_word_is_answered_to_a_client_that_has_ended_its_side() {
    let mut scene = Scene::new();
    scene.send(b"ruok").await;
    scene.client.shutdown().await.expect("shutting down works");
    assert_eq!(scene.rest().await, b"imok");
}

#[tokio::test(start_paused = true)]
async fn a_word_that_is_not_allowed_is_refused_by_name() {
    let mut scene = Scene::new();
    scene.send(b"dump").await;
    let refusal = b"dump is not executed because it is not in the whitelist.\n";
    assert_eq!(scene.rest().await, refusal);
}

#[tokio::test(start_paused = true)]
async fn a_word_tells_whether_the_core_serves() {
    for (serving, expected) in [(true, "rw"), (false, "null")] {
        let mut scene = Scene::new();
        scene.send(b"isro").await;
        match scene.input().await {
            Input::Query(Query::Status(answer)) => {
                let status = Status { serving, ..Status::default() };
                answer.send(status).expect("it waits for the answer");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(scene.rest().await, expected.as_bytes());
    }
}

#[tokio::test(start_paused = true)]
async fn a_trace_mask_is_kept() {
    let mut scene = Scene::new();
    scene.send(b"stmk\0\0\0\0\0\0\0\x05").await;
    assert_eq!(scene.rest().await, b"5");
    assert_eq!(scene.shared.trace_mask.load(Relaxed), 5);
}
