//! One client: frames in, requests on; replies and events out.
//!
//! A reading and a writing half run side by side in one task, so that a client that does not
//! read is still read from, up to the limits.

mod reading;
mod writing;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout};

use crate::driver::Input;
use crate::driver::outbox::Outbox;
use crate::keeper::request::ConnectionId;
use crate::server::connection::reading::{First, FrameReader};
use crate::server::figures::{ConnectionFigures, RequestKind};
use crate::server::outstanding::{Asked, Outstanding};
use crate::server::{DRAIN_MAX, Shared, unix_ms, words};
use crate::wire::decode::Handshake;

/// How many frames of the greatest length may wait for a client that does not read, before it is
/// cut. ZooKeeper has no limit there.
const OUTBOX_FRAMES_MAX: usize = 16;

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
pub async fn serve<R, W>(mut reader: R, mut writer: W, peer: SocketAddr, shared: &Shared)
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let id = shared.driver.connection();
    let figures = Arc::new(ConnectionFigures::new(peer, unix_ms(), shared.now_ms()));
    let _shown = shared.registry.register(id, Arc::clone(&figures));
    let mut frames = FrameReader::new(&mut reader, shared, &figures);
    // Nothing is lost when the server stops here: the client has been told nothing.
    let first = tokio::select! {
        first = frames.first() => first,
        () = shared.stopping.cancelled() => First::Nothing,
    };
    match first {
        First::Nothing => {}
        First::Word(word, argument) => {
            drop(frames);
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
                let text = words::answer(word, argument, shared, id).await;
                timeout(WORD_MAX, writer.write_all(text.as_bytes())).await
            };
            let said = tokio::select! {
                said = said => said,
                () = shared.ending.cancelled() => return,
            };
            if matches!(said, Ok(Ok(()))) {
                linger(reader, writer).await;
            }
        }
        First::Handshake(handshake, frame_bytes) => {
            let bytes_max = OUTBOX_FRAMES_MAX * shared.options.frame_bytes_max;
            let outbox = Outbox::new(bytes_max, &shared.backlog);
            let outstanding = Outstanding::new(&shared.outstanding);
            let client = Client { id, shared, figures: &figures, outbox, outstanding };
            let end = client.exchange(&mut frames, &mut writer, handshake, frame_bytes).await;
            client.ended(end).await;
            drop(frames);
            if matches!(end, End::Closed | End::Stopping) {
                linger(reader, writer).await;
            }
        }
    }
}

/// One client that has sent its handshake.
struct Client<'a> {
    id: ConnectionId,
    shared: &'a Shared,
    figures: &'a ConnectionFigures,
    outbox: Outbox,
    outstanding: Outstanding<'a>,
}

impl Client<'_> {
    /// From the handshake to the end. Everything is dropped where it stands at the end, but what
    /// the core asked to be sent before a close.
    async fn exchange<R, W>(
        &self,
        frames: &mut FrameReader<'_, R>,
        writer: &mut W,
        handshake: Box<Handshake>,
        frame_bytes: usize,
    ) -> End
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let received = Instant::now();
        let asked = Asked { kind: RequestKind::Session, received, frame_bytes, _held: None };
        let Handshake { connect, has_read_only_byte, .. } = *handshake;
        let connect = Input::Connect {
            connection: self.id,
            peer: self.figures.peer().ip().to_canonical(),
            outbox: self.outbox.clone(),
            connect,
        };
        // Nothing of it stays here while the connection lasts.
        let sent = self.shared.driver.send(connect);
        if sent.await.is_err() {
            return End::Stopping;
        }
        self.figures.outstanding(self.outstanding.add(std::iter::once(asked)));
        self.shared.figures.connection_requests.fetch_add(1, Relaxed);
        // A half that is dropped has nothing to lose: the connection is over.
        tokio::select! {
            end = self.read(frames) => end,
            end = self.write(writer, has_read_only_byte) => end,
            () = self.outbox.cut() => End::TooSlow,
            () = self.shared.ending.cancelled() => End::Stopping,
        }
    }

    /// Reads and hands in, until the client goes or the server stops.
    async fn read<R: AsyncRead + Unpin>(&self, frames: &mut FrameReader<'_, R>) -> End {
        // A batch that is dropped while it waits for the driver was not taken in.
        tokio::select! {
            end = self.hand_in_all(frames) => end,
            () = self.shared.stopping.cancelled() => {
                if timeout(DRAIN_MAX, self.outstanding.none()).await.is_err() {
                    tracing::debug!(peer = %self.figures.peer(), "stopped with requests unanswered");
                }
                End::Stopping
            }
        }
    }

    async fn hand_in_all<R: AsyncRead + Unpin>(&self, frames: &mut FrameReader<'_, R>) -> End {
        // Requests that were sent behind the handshake wait for its answer
        // (`ZooKeeperServer.processConnectRequest` stops reading).
        self.outstanding.none().await;
        loop {
            let batch = frames.batch();
            if !batch.requests.is_empty() {
                let requests = Input::Requests(self.id, batch.requests);
                if self.shared.driver.send(requests).await.is_err() {
                    return End::Stopping;
                }
                // No await since: the answer cannot have been written yet.
                self.figures.outstanding(self.outstanding.add(batch.asked.into_iter()));
            }
            if let Some(error) = batch.malformed {
                let (peer, session) = (self.figures.peer(), self.figures.session().0);
                tracing::debug!(%peer, session = format_args!("{session:#x}"), %error, "bad frame");
                return End::Malformed;
            }
            if batch.alone {
                self.outstanding.none().await;
            }
            self.outstanding.room(|| self.may_ask()).await;
            frames.admit().await;
            if !batch.more && !frames.fill().await {
                return End::Gone;
            }
        }
    }

    /// A client that does not read its answers may not ask for more of them: the less, the more
    /// waits for all.
    fn may_ask(&self) -> bool {
        let waiting = self.outbox.bytes();
        waiting == 0
            || (waiting < self.shared.options.frame_bytes_max && !self.shared.backlog.is_high())
    }

    /// Tells everyone who must know.
    async fn ended(&self, end: End) {
        // A driver that has ended knows no connections.
        let _ = self.shared.driver.send(Input::Closed(self.id)).await;
        let (peer, session) = (self.figures.peer(), self.figures.session().0);
        match end {
            End::TooSlow => {
                self.shared.figures.connections_dropped.fetch_add(1, Relaxed);
                tracing::warn!(%peer, session = format_args!("{session:#x}"),
                    "a client does not read its answers and is cut");
            }
            End::Gone | End::Malformed => {
                self.shared.figures.connections_dropped.fetch_add(1, Relaxed);
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
