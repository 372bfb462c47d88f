//! What comes from a client: a word, or a handshake and then requests.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::time::{Instant, timeout_at};

use crate::keeper::request::{Operation, Request};
use crate::server::Shared;
use crate::server::figures::RequestKind;
use crate::server::intake::{Drawn, SMALL_BYTES_MAX, Taken};
use crate::server::outstanding::Asked;
use crate::server::registry::Seat;
use crate::wire::decode::{Handshake, decode_connect, decode_request};
use crate::wire::four_letter::Word;
use crate::wire::frame::{Splitter, first_word};
use crate::wire::weight::weight;

/// A connection that has no session by then is closed, rounded up to the next multiple: 10 to
/// 20 s. In ZooKeeper each byte prolongs it
/// (`NIOServerCnxnFactory.ZOOKEEPER_NIO_SESSIONLESS_CNXN_TIMEOUT`).
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// The room for one read.
const READ_BYTES: usize = 4096;

/// The room for one read when there is much to read.
const READ_BYTES_MAX: usize = 64 * 1024;

/// Requests that are handed in together. More would let one client's answers pile up before
/// anyone can see whether it reads them.
const BATCH_MAX: usize = 128;

/// The same when too many requests wait already.
const BATCH_MAX_HIGH: usize = 8;

/// What a connection begins with.
#[derive(Debug)]
pub(super) enum First {
    /// A word, and the eight bytes after it if it is one that has them.
    Word(Word, Option<[u8; 8]>),
    /// A handshake, and its length.
    Handshake(Box<Handshake>, usize),
    /// Nothing that is answered.
    Nothing,
}

/// Requests that came together.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// In order.
    pub(super) requests: Vec<Request>,
    /// What is remembered of each.
    pub(super) asked: Vec<Asked>,
    /// There may be more without another read.
    pub(super) more: bool,
    /// The last of them is to be answered before anything else is handed in.
    pub(super) alone: bool,
    /// What follows is no request.
    pub(super) malformed: Option<Malformed>,
}

/// Why a client's bytes are no request.
#[derive(Debug)]
pub(super) struct Malformed(Box<dyn std::error::Error + Send>);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The reading side of a client's stream.
#[derive(Debug)]
pub(super) struct FrameReader<'a, R> {
    reader: &'a mut R,
    buffer: BytesMut,
    /// The last read filled the room that it had.
    was_full: bool,
    /// For the large request that the buffer begins with. In a box, since few ever send one.
    large: Option<Box<Large<'a>>>,
    /// For a buffer that has grown.
    wide: Option<Taken>,
    seat: &'a Seat,
}

#[derive(Debug)]
struct Large<'a> {
    memory: Taken,
    /// The request is not whole.
    drawn: Option<Drawn<'a>>,
}

impl<'a, R: AsyncRead + Unpin> FrameReader<'a, R> {
    pub(super) fn new(reader: &'a mut R, seat: &'a Seat) -> Self {
        Self { reader, buffer: BytesMut::new(), was_full: false, large: None, wide: None, seat }
    }

    fn shared(&self) -> &'a Shared {
        &self.seat.shared
    }

    fn splitter(&self) -> Splitter {
        Splitter::new(self.shared().options.frame_bytes_max)
    }

    /// Reads what a connection begins with. Safe to cancel.
    pub(super) async fn first(&mut self) -> First {
        // For all of it: a handshake is short, and may not be drawn out byte by byte.
        let end = self.silence_end();
        loop {
            if let Some(first) = self.first_in_buffer() {
                return first;
            }
            match timeout_at(end, self.fill_admitted()).await {
                Ok(true) => {}
                Ok(false) => return First::Nothing,
                Err(_) => {
                    self.shared().figures.sessionless_expired.fetch_add(1, Relaxed);
                    return First::Nothing;
                }
            }
        }
    }

    fn first_in_buffer(&mut self) -> Option<First> {
        if let Some(word) = Word::parse(first_word(&self.buffer)?) {
            let argument = match word {
                Word::Stmk => Some(*self.buffer.get(4..)?.first_chunk()?),
                _ => None,
            };
            // Its four bytes stand where a frame has its length.
            self.count(1, 0);
            return Some(First::Word(word, argument));
        }
        let frame = match self.splitter().next_frame(&mut self.buffer) {
            Ok(frame) => frame?,
            Err(error) => return Some(self.no_handshake(&error)),
        };
        let frame = self.taken_out(frame);
        self.count(1, frame.len());
        Some(match decode_connect(&frame) {
            Ok(handshake) => First::Handshake(Box::new(handshake), frame.len()),
            Err(error) => self.no_handshake(&error),
        })
    }

    fn no_handshake(&self, error: &impl fmt::Display) -> First {
        tracing::debug!(peer = %self.seat.figures.peer(), %error, "no handshake");
        First::Nothing
    }

    /// As [`Self::admit`] and [`Self::fill`].
    async fn fill_admitted(&mut self) -> bool {
        self.admit().await;
        self.fill().await
    }

    /// Takes the whole frames that were read, up to the limit, and as far as there is memory for
    /// them.
    pub(super) fn batch(&mut self) -> Batch {
        let mut batch = Batch::default();
        let received = Instant::now();
        let mut bytes = 0;
        let most = if self.shared().outstanding.is_high() { BATCH_MAX_HIGH } else { BATCH_MAX };
        while batch.requests.len() < most {
            if let Some(bytes) = self.wants() {
                self.large = self.shared().intake.try_take(bytes).map(Large::boxed);
                if self.large.is_none() {
                    batch.more = true;
                    break;
                }
            }
            match self.splitter().next_frame(&mut self.buffer) {
                Ok(Some(frame)) => {
                    let is_large = self.large.is_some();
                    let frame = self.taken_out(frame);
                    bytes += frame.len();
                    if let Err(error) = batch.push(&frame, is_large, received) {
                        batch.malformed = Some(error);
                        break;
                    }
                    if batch.alone {
                        break;
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    batch.malformed = Some(Malformed(Box::new(error)));
                    break;
                }
            }
        }
        batch.more |= batch.alone || batch.requests.len() == most;
        if !batch.requests.is_empty() {
            self.count(batch.requests.len(), bytes);
        }
        batch
    }

    /// What the large request needs that the buffer begins with, and has not got yet.
    fn wants(&self) -> Option<usize> {
        let fits = self.announced() <= self.shared().options.frame_bytes_max;
        let bytes = weight(&self.buffer).filter(|bytes| *bytes > SMALL_BYTES_MAX && fits);
        bytes.filter(|_| self.large.is_none())
    }

    /// Waits for the memory that the next request needs. Safe to cancel.
    pub(super) async fn admit(&mut self) {
        if let Some(bytes) = self.wants() {
            // In a box, since all connections would have room for it that send little.
            self.large = Some(Large::boxed(Box::pin(self.shared().intake.take(bytes)).await));
        }
        let (shared, missing) = (self.shared(), self.missing());
        if let Some(Large { drawn: drawn @ None, .. }) = self.large.as_deref_mut()
            && missing > 0
        {
            *drawn = Some(shared.intake.begin(self.seat.figures.peer()));
        }
    }

    /// A frame that is whole has its memory with it.
    fn taken_out(&mut self, frame: Bytes) -> Bytes {
        match self.large.take() {
            Some(large) => large.memory.holding(frame),
            None => frame,
        }
    }

    /// Reads once. False: the client is gone, or is too slow. Safe to cancel: what was read is in
    /// the buffer.
    ///
    /// A client that is waited for has no buffer: most are silent nearly always.
    pub(super) async fn fill(&mut self) -> bool {
        let drawn = self.large.as_mut().and_then(|large| large.drawn.take());
        let Some(drawn) = drawn else { return self.read().await };
        // In a box, as above.
        Box::pin(async {
            let going_on = tokio::select! {
                going_on = self.read() => going_on,
                () = drawn.cut() => false,
            };
            if let Some(large) = &mut self.large {
                large.drawn = Some(drawn);
            }
            going_on
        })
        .await
    }

    async fn read(&mut self) -> bool {
        let read = poll_fn(|context| {
            let polled = match self.buffer.is_empty() && !self.was_full {
                true => self.poll_first_bytes(context),
                false => self.poll_more(context),
            };
            if polled.is_pending() && self.buffer.is_empty() {
                (self.buffer, self.was_full, self.wide) = (BytesMut::new(), false, None);
            }
            polled
        });
        matches!(read.await, Ok(count) if count > 0)
    }

    fn poll_first_bytes(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut room = [MaybeUninit::uninit(); READ_BYTES];
        let mut read = ReadBuf::uninit(&mut room);
        ready!(Pin::new(&mut *self.reader).poll_read(context, &mut read))?;
        self.was_full = read.remaining() == 0;
        // Requests share this with their data, and it is no larger than they are.
        self.buffer = BytesMut::from(read.filled());
        Poll::Ready(Ok(self.buffer.len()))
    }

    fn poll_more(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.was_full && self.wide.is_none() {
            self.wide = self.shared().intake.try_take(READ_BYTES_MAX);
        }
        let room = if self.was_full && self.wide.is_some() { READ_BYTES_MAX } else { READ_BYTES };
        // As much as is announced, but never on trust: 64 KiB at a time.
        let most = if self.large.is_some() { READ_BYTES_MAX } else { room };
        self.buffer.reserve(self.missing().clamp(room, most.max(room)));
        let count = ready!(pin!(self.reader.read_buf(&mut self.buffer)).poll(context));
        self.was_full = self.buffer.len() == self.buffer.capacity();
        Poll::Ready(count)
    }

    /// What is missing of the frame that has begun.
    fn missing(&self) -> usize {
        let whole = self.announced().saturating_add(size_of::<u32>());
        whole.saturating_sub(self.buffer.remaining())
    }

    /// The length of the frame that the buffer begins with; 0 if there is none.
    fn announced(&self) -> usize {
        let length = first_word(&self.buffer).map_or(0, u32::from_be_bytes);
        usize::try_from(length).unwrap_or(usize::MAX)
    }

    fn count(&self, frames: usize, bytes: usize) {
        let frames = frames as u64;
        let prefixes = frames * size_of::<u32>() as u64;
        self.seat.figures.received(frames, self.shared().now_ms());
        self.shared().figures.received.fetch_add(frames, Relaxed);
        self.shared().figures.bytes_received.fetch_add(bytes as u64 + prefixes, Relaxed);
    }

    /// When a connection that begins now is closed if it has not said what it wants.
    fn silence_end(&self) -> Instant {
        let silent_until = self.shared().started.elapsed() + SILENCE_MAX;
        let buckets = silent_until.as_millis() / SILENCE_MAX.as_millis() + 1;
        let buckets = u32::try_from(buckets).unwrap_or(u32::MAX);
        self.shared().started + SILENCE_MAX.saturating_mul(buckets)
    }
}

impl Large<'_> {
    fn boxed(memory: Taken) -> Box<Self> {
        Box::new(Self { memory, drawn: None })
    }
}

impl Batch {
    fn push(&mut self, frame: &Bytes, is_large: bool, received: Instant) -> Result<(), Malformed> {
        let request = decode_request(frame).map_err(|error| Malformed(Box::new(error)))?;
        let kind = RequestKind::of(&request.operation);
        self.alone = is_costly(&request.operation);
        let held = is_large.then(|| frame.clone());
        self.asked.push(Asked { kind, received, frame_bytes: frame.len(), _held: held });
        self.requests.push(request);
        Ok(())
    }
}

/// A little request whose answer may be large and is made for it alone, or takes a walk through
/// the tree. Many of them at once would keep everybody waiting, or fill the memory.
fn is_costly(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::MultiRead(_)
            | Operation::GetAcl(_)
            | Operation::GetEphemerals(_)
            | Operation::GetAllChildrenNumber(_)
    )
}
