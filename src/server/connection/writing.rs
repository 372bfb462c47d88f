//! What goes to a client, and what is counted on the way.

use std::sync::atomic::Ordering::Relaxed;

use bytes::Buf;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;

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

impl Client<'_> {
    /// Sends all that is put into the outbox, everything that waits in one write, until the core
    /// asks for the close.
    pub(super) async fn write<W>(&self, writer: &mut W, has_read_only_byte: bool) -> End
    where
        W: AsyncWrite + Unpin,
    {
        let mut outgoing = Vec::new();
        loop {
            let taken = self.outbox.take(&mut outgoing).await;
            let mut waiting = outgoing.drain(..);
            loop {
                let (mut frames, sent) = self.encode(&mut waiting, has_read_only_byte);
                if writer.write_all_buf(&mut frames).await.is_err() || writer.flush().await.is_err()
                {
                    return End::Gone;
                }
                let is_all = waiting.as_slice().is_empty();
                // First, for whoever waits for answers looks at the outbox when it is woken.
                if is_all {
                    self.outbox.written();
                }
                self.account(&sent);
                if is_all {
                    break;
                }
            }
            drop(waiting);
            outgoing.shrink_to(OUTGOING_KEPT_MAX);
            if taken.last {
                return End::Closed;
            }
        }
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
            self.figures.established(*session, *timeout_ms);
        }
    }

    fn account(&self, sent: &Sent) {
        let server = &self.shared.figures;
        self.figures.sent(sent.frames);
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
        self.figures.outstanding(left);
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
        self.figures.answered(&answered, self.shared.now_ms());
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
