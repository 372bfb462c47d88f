//! One client: frames in, requests on; replies and events out.
//!
//! A reading and a writing half run side by side in one task, so that a client that does not
//! read is still read from, up to the limits.

mod reading;
mod writing;

#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::task::Poll;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout};

use crate::driver::outbox::Outbox;
use crate::driver::{Input, Stopped};
use crate::keeper::request::Request;
use crate::server::connection::reading::{Batch, First, FrameReader};
use crate::server::figures::{ConnectionFigures, RequestKind};
use crate::server::outstanding::{Asked, Outstanding};
use crate::server::registry::Seat;
use crate::server::{DRAIN_MAX, Shared, words};
use crate::wire::decode::Handshake;
use crate::wire::four_letter::Word;

/// How long bytes of a client are read and thrown away after the last answer. A socket that is
/// closed with unread bytes is reset, and the client may lose the answer.
const LINGER_MAX: Duration = Duration::from_secs(1);

/// How long a client may take to read the answer to a four-letter word. ZooKeeper waits for ever.
const WORD_MAX: Duration = Duration::from_secs(10);

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The client closed, or the network did.
    Gone,
    /// Bytes that are no request: closed without a reply.
    Malformed,
    /// The core asked for it, and everything before it was sent.
    Closed,
    /// The client did not read what it asked for.
    TooSlow,
    /// The server stops, and has answered what it had taken in.
    Stopping,
}

/// Serves one client until its end. The halves are those of one stream.
///
/// There may be a hundred thousand that only ping: what is waited for once, or rarely, is in a box,
/// for a task has room for the largest of all that it ever waits for.
#[expect(clippy::manual_async_fn, reason = "that would have room for its arguments twice")]
pub fn serve<R, W>(mut reader: R, mut writer: W, seat: Seat) -> impl Future<Output = ()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    async move {
        let client = Client::new(&seat);
        let mut frames = FrameReader::new(&mut reader, &seat);
        let end = match Box::pin(client.begin(&mut frames, &mut writer)).await {
            Begun::Session { has_read_only_byte } => {
                Some(client.exchange(&mut frames, &mut writer, has_read_only_byte).await)
            }
            Begun::TooLate => Some(End::Stopping),
            Begun::Word => None,
            Begun::Nothing => return,
        };
        drop(frames);
        if let Some(end) = end {
            Box::pin(client.ended(end)).await;
            if !matches!(end, End::Closed | End::Stopping) {
                return;
            }
        }
        Box::pin(linger(reader, writer)).await;
    }
}

/// Until the driver has room.
type Waits<'a> = Pin<Box<dyn Future<Output = Result<(), Stopped>> + Send + 'a>>;

/// How a connection begins.
enum Begun {
    /// With a handshake, which is handed in.
    Session { has_read_only_byte: bool },
    /// With a word, which is answered.
    Word,
    /// With a handshake, but the server has stopped.
    TooLate,
    /// With nothing that was answered.
    Nothing,
}

/// One client.
struct Client<'a> {
    seat: &'a Seat,
    outstanding: Outstanding<'a>,
}

impl<'a> Client<'a> {
    fn new(seat: &'a Seat) -> Self {
        Self { seat, outstanding: Outstanding::new(&seat.shared.outstanding) }
    }

    fn shared(&self) -> &Shared {
        &self.seat.shared
    }

    fn outbox(&self) -> &Outbox {
        &self.seat.outbox
    }

    fn figures(&self) -> &ConnectionFigures {
        &self.seat.figures
    }

    /// Reads what the client wants to begin with; a word is answered, a handshake handed in.
    async fn begin<R, W>(&self, frames: &mut FrameReader<'_, R>, writer: &mut W) -> Begun
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        // Nothing is lost when the server stops here: the client has been told nothing.
        let first = tokio::select! {
            first = frames.first() => first,
            () = self.shared().stopping.cancelled() => First::Nothing,
        };
        match first {
            First::Nothing => Begun::Nothing,
            First::Word(word, argument) => match self.say(word, argument, writer).await {
                true => Begun::Word,
                false => Begun::Nothing,
            },
            First::Handshake(handshake, frame_bytes) => {
                match self.greet(*handshake, frame_bytes).await {
                    Ok(has_read_only_byte) => Begun::Session { has_read_only_byte },
                    Err(Stopped) => Begun::TooLate,
                }
            }
        }
    }

    /// Answers a word. Says whether all of it was written.
    async fn say<W>(&self, word: Word, argument: Option<[u8; 8]>, writer: &mut W) -> bool
    where
        W: AsyncWrite + Unpin,
    {
        let shared = self.shared();
        let said = async {
            // A few at a time if it may be long: it is in the memory until it was read.
            let turns = match word {
                word if word.is_costly() => Some(&shared.costly_words),
                word if word.is_long() => Some(&shared.long_words),
                _ => None,
            };
            let _turn = match turns {
                Some(turns) => turns.acquire().await.ok(),
                None => None,
            };
            let text = words::answer(word, argument, shared, self.seat.id).await;
            timeout(WORD_MAX, writer.write_all(text.as_bytes())).await
        };
        tokio::select! {
            said = said => matches!(said, Ok(Ok(()))),
            () = shared.ending.cancelled() => false,
        }
    }

    /// Hands in the handshake. Says what is needed to answer it.
    async fn greet(&self, handshake: Handshake, frame_bytes: usize) -> Result<bool, Stopped> {
        let received = Instant::now();
        let asked = Asked { kind: RequestKind::Session, received, frame_bytes, _held: None };
        let connect = Input::Connect {
            connection: self.seat.id,
            peer: self.figures().peer().ip().to_canonical(),
            outbox: self.outbox().clone(),
            connect: handshake.connect,
        };
        self.shared().driver.send(connect).await?;
        self.figures().outstanding(self.outstanding.add(std::iter::once(asked)));
        self.shared().figures.connection_requests.fetch_add(1, Relaxed);
        Ok(handshake.has_read_only_byte)
    }

    /// From the handshake to the end. Everything is dropped where it stands at the end, but what
    /// the core asked to be sent before a close.
    async fn exchange<R, W>(
        &self,
        frames: &mut FrameReader<'_, R>,
        writer: &mut W,
        has_read_only_byte: bool,
    ) -> End
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        // All of them are safe to drop: a batch that waits for the driver was not taken in, and a
        // half that is dropped has nothing to lose when the connection is over.
        let mut reading = pin!(self.hand_in_all(frames));
        let mut writing = pin!(self.write(writer, has_read_only_byte));
        let mut drained = None;
        poll_fn(|context| {
            // First, for it always waits for the outbox, through which others wake this one.
            if let Poll::Ready(end) = writing.as_mut().poll(context) {
                return Poll::Ready(end);
            }
            if drained.is_none() && self.shared().draining.load(SeqCst) {
                drained = Some(Box::pin(self.drain()));
            }
            match &mut drained {
                Some(drained) => drained.as_mut().poll(context),
                None => reading.as_mut().poll(context),
            }
        })
        .await
    }

    /// The server stops: what was asked may still be answered, until all must end.
    async fn drain(&self) -> End {
        let drained = timeout(DRAIN_MAX, self.outstanding.none());
        tokio::select! {
            drained = drained => if drained.is_err() {
                tracing::debug!(peer = %self.figures().peer(), "stopped with requests unanswered");
            },
            () = self.shared().ending.cancelled() => {}
        }
        End::Stopping
    }

    #[expect(clippy::manual_async_fn, reason = "that would have room for its arguments twice")]
    fn hand_in_all<R: AsyncRead + Unpin>(
        &self,
        frames: &mut FrameReader<'_, R>,
    ) -> impl Future<Output = End> {
        async move {
            // Requests that were sent behind the handshake wait for its answer
            // (`ZooKeeperServer.processConnectRequest` stops reading).
            Box::pin(self.outstanding.none()).await;
            loop {
                let Batch { requests, asked, more, alone, malformed } = frames.batch();
                match self.hand_in(requests, asked) {
                    Ok(None) => {}
                    Ok(Some(later)) => {
                        if later.await.is_err() {
                            return End::Stopping;
                        }
                    }
                    Err(Stopped) => return End::Stopping,
                }
                if let Some(error) = malformed {
                    let (peer, session) = (self.figures().peer(), self.figures().session().0);
                    tracing::debug!(%peer, session = format_args!("{session:#x}"), %error, "bad frame");
                    return End::Malformed;
                }
                if alone {
                    Box::pin(self.outstanding.none()).await;
                }
                // Nearly always there is, and then nothing that is shared by all is touched.
                if !self.outstanding.has_room(|| self.may_ask()) {
                    Box::pin(self.outstanding.room(|| self.may_ask())).await;
                }
                frames.admit().await;
                if !more && !frames.fill().await {
                    return End::Gone;
                }
            }
        }
    }

    /// Hands in a batch, at once if the driver has room for it, as it nearly always has. There is
    /// no await before it is noted: the answer cannot have been written yet.
    fn hand_in(
        &self,
        requests: Vec<Request>,
        asked: Vec<Asked>,
    ) -> Result<Option<Waits<'_>>, Stopped> {
        if requests.is_empty() {
            return Ok(None);
        }
        let sent = self.shared().driver.send_now(Input::Requests(self.seat.id, requests))?;
        let Some(waiting) = sent else {
            self.handed_in(asked);
            return Ok(None);
        };
        Ok(Some(Box::pin(async {
            waiting.await?;
            self.handed_in(asked);
            Ok(())
        })))
    }

    fn handed_in(&self, asked: Vec<Asked>) {
        self.figures().outstanding(self.outstanding.add(asked.into_iter()));
    }

    /// A client that does not read its answers may not ask for more of them: the less, the more
    /// waits for all.
    fn may_ask(&self) -> bool {
        let waiting = self.outbox().bytes();
        waiting == 0
            || (waiting < self.shared().options.frame_bytes_max && !self.shared().backlog.is_high())
    }

    /// Tells everyone who must know.
    async fn ended(&self, end: End) {
        // A driver that has ended knows no connections.
        let _ = self.shared().driver.send(Input::Closed(self.seat.id)).await;
        let (peer, session) = (self.figures().peer(), self.figures().session().0);
        match end {
            End::TooSlow => {
                self.shared().figures.connections_dropped.fetch_add(1, Relaxed);
                tracing::warn!(%peer, session = format_args!("{session:#x}"),
                    "a client does not read its answers and is cut");
            }
            End::Gone | End::Malformed => {
                self.shared().figures.connections_dropped.fetch_add(1, Relaxed);
                tracing::debug!(%peer, session = format_args!("{session:#x}"), ?end,
                    "connection ended");
            }
            End::Closed | End::Stopping => {
                tracing::debug!(%peer, session = format_args!("{session:#x}"), ?end,
                    "connection closed");
            }
        }
    }
}

/// Ends our side, then reads and throws away what the client still sends, until it ends its own.
async fn linger<R, W>(mut reader: R, mut writer: W)
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    if writer.shutdown().await.is_err() {
        return;
    }
    let mut unread = BytesMut::with_capacity(1024);
    let until_the_end = async {
        while reader.read_buf(&mut unread).await.is_ok_and(|count| count > 0) {
            unread.clear();
        }
    };
    // A client that keeps its side open is closed on.
    let _ = timeout(LINGER_MAX, until_the_end).await;
}
