//! What goes to a client, and what is counted on the way.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::vec;

use bytes::Buf;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;

use crate::driver::outbox::Taken;
use crate::keeper::request::{Connected, Outgoing, Xid};
use crate::keeper::zxid::Zxid;
use crate::server::connection::{Client, End};
use crate::server::figures::{Answered, RequestKind, add_to};
use crate::wire::four_letter::Latency;
use crate::wire::send_buffer::SendBuffer;

/// A list that has grown past this is given back when it is empty: most clients ask little.
const OUTGOING_KEPT_MAX: usize = 64;

/// So much is encoded before it is written: what is encoded may be far more than what it is made
/// of, for many answers share the same data.
const WRITE_BYTES: usize = 1 << 20;

/// What one write sends.
#[derive(Debug, Default)]
struct Sent {
    frames: u64,
    bytes: usize,
    /// Answers to the handshake and to requests.
    answers: usize,
    last_xid: Option<Xid>,
    last_zxid: Option<Zxid>,
    last_bytes: usize,
    min_bytes: usize,
    max_bytes: usize,
}

/// What the socket did not take at once.
struct Rest {
    frames: SendBuffer,
    sent: Sent,
    /// What is not encoded yet.
    outgoing: vec::IntoIter<Outgoing>,
}

/// Safe to cancel: what was written is gone from `frames`.
async fn write_out<W>(writer: &mut W, frames: &mut SendBuffer) -> io::Result<()>
where
    W: AsyncWrite + Unpin,
{
    writer.write_all_buf(frames).await?;
    writer.flush().await
}

impl Client<'_> {
    /// Sends all that is put into the outbox, everything that waits in one write, until the core
    /// asks for the close.
    #[expect(clippy::manual_async_fn, reason = "that would have room for its arguments twice")]
    pub(super) fn write<W>(
        &self,
        writer: &mut W,
        has_read_only_byte: bool,
    ) -> impl Future<Output = End>
    where
        W: AsyncWrite + Unpin,
    {
        async move {
            let mut outgoing = Vec::new();
            loop {
                let take = poll_fn(|context| self.outbox().poll_take(context, &mut outgoing));
                let last = match take.await {
                    Taken::Some => false,
                    Taken::Last => true,
                    Taken::Cut => return End::TooSlow,
                };
                let at_once = poll_fn(|context| {
                    let mut waiting = outgoing.drain(..);
                    Poll::Ready(self.write_at_once(
                        context,
                        writer,
                        &mut waiting,
                        has_read_only_byte,
                    ))
                });
                match at_once.await {
                    Ok(None) => {}
                    Ok(Some(rest)) => {
                        let writing = self.write_unless_cut(writer, rest, has_read_only_byte);
                        if let Err(end) = Box::pin(writing).await {
                            return end;
                        }
                    }
                    Err(_) => return End::Gone,
                }
                outgoing.shrink_to(OUTGOING_KEPT_MAX);
                if last {
                    return End::Closed;
                }
            }
        }
    }

    /// Writes what the socket takes, which nearly always is all. What it does not take is
    /// returned, in a box: there is room for it only where it is needed.
    fn write_at_once<W: AsyncWrite + Unpin>(
        &self,
        context: &mut Context<'_>,
        writer: &mut W,
        waiting: &mut impl ExactSizeIterator<Item = Outgoing>,
        has_read_only_byte: bool,
    ) -> io::Result<Option<Box<Rest>>> {
        loop {
            let (mut frames, sent) = self.encode(waiting, has_read_only_byte);
            if pin!(write_out(writer, &mut frames)).poll(context)?.is_pending() {
                let outgoing = waiting.collect::<Vec<_>>().into_iter();
                return Ok(Some(Box::new(Rest { frames, sent, outgoing })));
            }
            if self.written(&sent, waiting) {
                return Ok(None);
            }
        }
    }

    async fn write_unless_cut<W: AsyncWrite + Unpin>(
        &self,
        writer: &mut W,
        rest: Box<Rest>,
        has_read_only_byte: bool,
    ) -> Result<(), End> {
        tokio::select! {
            written = self.write_rest(writer, rest, has_read_only_byte) => {
                written.map_err(|_| End::Gone)
            }
            () = self.outbox().cut() => Err(End::TooSlow),
        }
    }

    async fn write_rest<W: AsyncWrite + Unpin>(
        &self,
        writer: &mut W,
        mut rest: Box<Rest>,
        has_read_only_byte: bool,
    ) -> io::Result<()> {
        loop {
            write_out(writer, &mut rest.frames).await?;
            if self.written(&rest.sent, &rest.outgoing) {
                return Ok(());
            }
            (rest.frames, rest.sent) = self.encode(&mut rest.outgoing, has_read_only_byte);
        }
    }

    /// One write is done. Says whether it was all that was taken.
    fn written(&self, sent: &Sent, waiting: &impl ExactSizeIterator<Item = Outgoing>) -> bool {
        let is_all = waiting.len() == 0;
        // First, for whoever waits for answers looks at the outbox when it is woken.
        if is_all {
            self.outbox().written();
        }
        self.account(sent);
        is_all
    }

    /// The next frames, up to about [`WRITE_BYTES`].
    fn encode(
        &self,
        waiting: &mut impl Iterator<Item = Outgoing>,
        has_read_only_byte: bool,
    ) -> (SendBuffer, Sent) {
        let mut frames = SendBuffer::default();
        let mut sent = Sent::default();
        while frames.remaining() < WRITE_BYTES {
            let Some(outgoing) = waiting.next() else { break };
            let before = frames.remaining();
            frames.push(&outgoing, has_read_only_byte);
            sent.count(&outgoing, frames.remaining() - before);
            self.note_session(&outgoing);
        }
        (frames, sent)
    }

    fn note_session(&self, outgoing: &Outgoing) {
        if let Outgoing::Connected(Connected::Accepted { timeout_ms, session, .. }) = outgoing {
            self.figures().established(*session, *timeout_ms);
        }
    }

    fn account(&self, sent: &Sent) {
        let server = &self.shared().figures;
        self.figures().sent(sent.frames);
        server.sent.fetch_add(sent.frames, Relaxed);
        server.bytes_sent.fetch_add(sent.bytes as u64, Relaxed);
        let now = Instant::now();
        let (mut all, mut reads, mut updates) =
            (Latency::default(), Latency::default(), Latency::default());
        let mut last = None;
        let left = self.outstanding.answered(sent.answers, |asked| {
            let took = now.saturating_duration_since(asked.received).as_millis();
            let took_ms = u64::try_from(took).unwrap_or(u64::MAX);
            add_to(&mut all, took_ms);
            add_to(if asked.kind.changes() { &mut updates } else { &mut reads }, took_ms);
            last = Some((asked.kind, took_ms));
        });
        self.figures().outstanding(left);
        let Some((kind, last_latency_ms)) = last else { return };
        server.latency.add(&all);
        server.read_latency.add(&reads);
        server.update_latency.add(&updates);
        server.responses(size(sent.last_bytes), size(sent.min_bytes), size(sent.max_bytes));
        self.answered(kind, last_latency_ms, all, sent);
    }

    fn answered(&self, kind: RequestKind, last_latency_ms: u64, latency: Latency, sent: &Sent) {
        let answered =
            Answered { kind, xid: sent.last_xid, zxid: sent.last_zxid, last_latency_ms, latency };
        self.figures().answered(&answered, self.shared().now_ms());
    }
}

impl Sent {
    fn count(&mut self, outgoing: &Outgoing, bytes: usize) {
        self.frames += 1;
        self.bytes += bytes;
        match outgoing {
            Outgoing::Event(_) => return,
            // A handshake counts as request 0 (`ServerCnxn.updateStatsForResponse`).
            Outgoing::Connected(_) => self.last_xid = Some(Xid(0)),
            Outgoing::Reply(reply) => {
                if reply.xid.0 >= 0 {
                    self.last_xid = Some(reply.xid);
                }
                self.last_zxid = Some(reply.zxid);
            }
        }
        self.min_bytes = if self.answers == 0 { bytes } else { self.min_bytes.min(bytes) };
        self.max_bytes = self.max_bytes.max(bytes);
        self.last_bytes = bytes;
        self.answers += 1;
    }
}

fn size(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
