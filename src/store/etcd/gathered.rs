//! A socket to etcd that writes in one piece what is written in one go.
//!
//! The HTTP/2 client flushes the head of a request, and only then asks for its body: two writes,
//! and etcd is woken twice. So a flush first lets the tasks that can run have their turn, and what
//! they write goes along. etcd also pings with nearly every request that it reads, to measure how
//! much it may be sent at once (grpc-go's `bdpEstimator`); an answer to that goes with the next
//! request, if there is one soon.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};
use tonic::transport::{Channel, Endpoint, Error};
use tower::ServiceExt;

/// The answer to a ping (RFC 9113, 6.7) up to its payload.
const PING_ANSWER: [u8; 9] = [0, 0, 8, 6, 1, 0, 0, 0, 0];

/// Its length.
const PING_ANSWER_BYTES: usize = 17;

/// How long it may take to answer a ping.
const PING_ANSWER_AFTER: Duration = Duration::from_millis(5);

/// What is larger is not worth a copy.
const HELD_BYTES_MAX: usize = 32 * 1024;

/// Connects to a member.
///
/// # Errors
/// It cannot be reached.
pub(super) async fn connect(endpoint: &Endpoint) -> Result<Channel, Error> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(endpoint.get_tcp_nodelay());
    // Of a name with several addresses, each has its part of it.
    connector.set_connect_timeout(endpoint.get_connect_timeout());
    let connector = connector
        .map_response(|socket: TokioIo<_>| TokioIo::new(Gathered::new(socket.into_inner())));
    endpoint.connect_with_connector(connector).await
}

/// See the file's text.
#[derive(Debug)]
struct Gathered<S> {
    socket: S,
    /// Written, and not passed on.
    held: BytesMut,
    /// The others had their turn since the flush was asked for.
    others_had_turn: bool,
    /// For answers to pings alone; in use while they are held.
    late: Pin<Box<Sleep>>,
    is_late: bool,
}

impl<S> Gathered<S> {
    fn new(socket: S) -> Self {
        Self {
            socket,
            held: BytesMut::new(),
            others_had_turn: false,
            late: Box::pin(sleep(Duration::ZERO)),
            is_late: false,
        }
    }
}

impl<S> Gathered<S> {
    /// Whether nothing is held but answers to pings.
    fn is_courtesy(&self) -> bool {
        self.held
            .chunks(PING_ANSWER_BYTES)
            .all(|frame| frame.len() == PING_ANSWER_BYTES && frame.starts_with(&PING_ANSWER))
    }

    /// Whether what is held should leave now.
    fn poll_due(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_courtesy() {
            if !self.is_late {
                self.is_late = true;
                self.late.as_mut().reset(Instant::now() + PING_ANSWER_AFTER);
            }
            return self.late.as_mut().poll(cx);
        }
        if self.others_had_turn {
            return Poll::Ready(());
        }
        self.others_had_turn = true;
        // A task that wakes itself comes last.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<S: AsyncWrite + Unpin> Gathered<S> {
    fn poll_pass_on(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.held.is_empty() {
            let written = ready!(Pin::new(&mut self.socket).poll_write(cx, &self.held))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.held.advance(written);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Gathered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gathered<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.held.len().saturating_add(bytes.len()) > HELD_BYTES_MAX {
            ready!(self.poll_pass_on(cx))?;
        }
        if bytes.len() > HELD_BYTES_MAX {
            return Pin::new(&mut self.socket).poll_write(cx, bytes);
        }
        self.held.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.held.is_empty() {
            ready!(self.poll_due(cx));
            ready!(self.poll_pass_on(cx))?;
        }
        (self.others_had_turn, self.is_late) = (false, false);
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_pass_on(cx))?;
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::task::yield_now;

    const ANSWER: [u8; 17] = *b"\0\0\x08\x06\x01\0\0\0\0abcdefgh";

    /// Takes all that it is given at once, and remembers it piece by piece.
    #[derive(Debug, Default)]
    struct Pieces(Vec<Vec<u8>>);

    impl AsyncWrite for Pieces {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.0.push(bytes.to_vec());
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn gathered() -> Gathered<Pieces> {
        Gathered::new(Pieces::default())
    }

    /// Whether a flush ends at once.
    async fn flushes<S: AsyncWrite + Unpin>(gathered: &mut Gathered<S>) -> bool {
        tokio::select! {
            biased;
            flushed = gathered.flush() => flushed.is_ok(),
            () = std::future::ready(()) => false,
        }
    }

    #[tokio::test]
    async fn what_others_write_while_a_flush_lets_them_goes_along() {
        let mut gathered = gathered();
        gathered.write_all(b"head").await.expect("it is held");
        assert!(!flushes(&mut gathered).await, "others come first");
        gathered.write_all(b"body").await.expect("it is held");
        assert!(flushes(&mut gathered).await);
        gathered.write_all(b"next").await.expect("it is held");
        gathered.flush().await.expect("it ends by itself");
        assert_eq!(gathered.socket.0, [b"headbody".to_vec(), b"next".to_vec()]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_answer_to_a_ping_goes_with_the_next_request() {
        let mut gathered = gathered();
        gathered.write_all(&ANSWER).await.expect("it is held");
        for _ in 0..3 {
            assert!(!flushes(&mut gathered).await);
            yield_now().await;
        }
        gathered.write_all(b"request").await.expect("it is held");
        gathered.flush().await.expect("it ends by itself");
        assert_eq!(gathered.socket.0, [[&ANSWER[..], b"request"].concat()]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_answer_to_a_ping_leaves_soon_by_itself() {
        let mut gathered = gathered();
        for _ in 0..2 {
            let begun = Instant::now();
            gathered.write_all(&ANSWER).await.expect("it is held");
            gathered.flush().await.expect("it ends by itself");
            let took = begun.elapsed();
            assert!(took >= PING_ANSWER_AFTER && took < 2 * PING_ANSWER_AFTER, "{took:?}");
        }
        assert_eq!(gathered.socket.0, [ANSWER, ANSWER]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_ping_and_what_only_looks_like_an_answer_do_not_wait() {
        let ping = *b"\0\0\x08\x06\0\0\0\0\0abcdefgh";
        for bytes in [&ping[..], &[ANSWER.as_slice(), &ping].concat(), &ANSWER[..16]] {
            let mut gathered = gathered();
            let begun = Instant::now();
            gathered.write_all(bytes).await.expect("it is held");
            gathered.flush().await.expect("it ends by itself");
            assert_eq!(begun.elapsed(), Duration::ZERO);
            assert_eq!(gathered.socket.0, [bytes]);
        }
    }

    #[tokio::test]
    async fn what_is_held_is_bounded_and_leaves_before_an_end() {
        let mut gathered = gathered();
        let large = vec![1; HELD_BYTES_MAX + 1];
        let small = vec![2; HELD_BYTES_MAX - 1];
        for bytes in [&small[..], &[3], &[4], &large] {
            gathered.write_all(bytes).await.expect("it is taken");
            assert!(gathered.held.len() <= HELD_BYTES_MAX);
        }
        gathered.write_all(b"last").await.expect("it is held");
        gathered.shutdown().await.expect("it ends");
        let first = [&small[..], &[3]].concat();
        assert_eq!(gathered.socket.0, [first, vec![4], large, b"last".to_vec()]);
    }

    async fn read_all(mut socket: DuplexStream) -> Vec<u8> {
        let mut all = Vec::new();
        socket.read_to_end(&mut all).await.expect("the other side ends it");
        all
    }

    #[tokio::test]
    async fn nothing_is_lost_or_out_of_order_on_a_slow_socket() {
        let (ours, theirs) = duplex(7);
        let reading = tokio::spawn(read_all(theirs));
        let mut gathered = Gathered::new(ours);
        let mut expected = Vec::new();
        for (length, byte) in
            [1, 40, HELD_BYTES_MAX, 3, HELD_BYTES_MAX + 50, 17].into_iter().zip(0..)
        {
            let bytes = vec![byte; length];
            gathered.write_all(&bytes).await.expect("it is taken");
            if byte % 2 == 0 {
                gathered.flush().await.expect("it is passed on");
            }
            expected.extend(bytes);
        }
        gathered.shutdown().await.expect("it ends");
        assert_eq!(reading.await.expect("it reads"), expected);
    }
}
