//! Frames on their way to a socket, large buffers in them not copied.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};

use crate::keeper::request::Outgoing;
use crate::wire::encode::{Sink, encode_frame};

/// From this length on it is cheaper to pass a buffer on than to copy it.
const SHARED_BYTES_MIN: usize = 4096;

/// Frames that wait to be written, as a [`Buf`]: hand it to a vectored write.
///
/// Data and lists of 4 KiB and more are kept as they are, between pieces of the plain buffer
/// that holds all the rest, so that a large znode that many clients read is there once.
#[derive(Debug, Default)]
pub struct SendBuffer {
    /// What was written out in full, without the shared buffers.
    plain: BytesMut,
    /// The shared buffers, in order; none is empty.
    shared: VecDeque<Shared>,
    /// The sum of all `after`: plain bytes that leave before the last shared buffer.
    after_len: usize,
    /// The sum of the lengths of the shared buffers.
    shared_len: usize,
}

/// A buffer that leaves after a number of plain bytes, counted from the shared buffer before it.
#[derive(Debug)]
struct Shared {
    after: usize,
    bytes: Bytes,
}

impl SendBuffer {
    /// Appends one frame: see [`crate::wire::encode::encode`].
    pub fn push(&mut self, outgoing: &Outgoing, has_read_only_byte: bool) {
        encode_frame(outgoing, has_read_only_byte, self);
    }

    /// The bytes that leave in one piece now.
    fn front(&self) -> &[u8] {
        match self.shared.front() {
            Some(Shared { after: 0, bytes }) => bytes,
            Some(Shared { after, .. }) => &self.plain[..*after],
            None => &self.plain,
        }
    }
}

impl Sink for SendBuffer {
    fn plain(&mut self) -> &mut BytesMut {
        &mut self.plain
    }

    fn share(&mut self, bytes: &Bytes) {
        if bytes.len() < SHARED_BYTES_MIN {
            return self.plain.extend_from_slice(bytes);
        }
        let after = self.plain.len() - self.after_len;
        self.after_len += after;
        self.shared_len += bytes.len();
        self.shared.push_back(Shared { after, bytes: bytes.clone() });
    }

    fn shared_len(&self) -> usize {
        self.shared_len
    }
}

impl Buf for SendBuffer {
    fn remaining(&self) -> usize {
        self.plain.len() + self.shared_len
    }

    fn chunk(&self) -> &[u8] {
        self.front()
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut plain: &[u8] = &self.plain;
        let mut pieces = Vec::with_capacity(slices.len());
        for Shared { after, bytes } in &self.shared {
            if pieces.len() >= slices.len() {
                break;
            }
            let (before, rest) = plain.split_at(*after);
            plain = rest;
            pieces.extend([before, bytes.as_ref()]);
        }
        pieces.push(plain);
        let filled = pieces.into_iter().filter(|piece| !piece.is_empty());
        slices.iter_mut().zip(filled).map(|(slice, piece)| *slice = IoSlice::new(piece)).count()
    }

    fn advance(&mut self, mut count: usize) {
        while count > 0 {
            let step = count.min(self.front().len());
            assert!(step > 0, "no more can be taken than there is");
            count -= step;
            match self.shared.front_mut() {
                Some(Shared { after: 0, bytes }) => {
                    bytes.advance(step);
                    self.shared_len -= step;
                    if bytes.is_empty() {
                        self.shared.pop_front();
                    }
                    continue;
                }
                Some(Shared { after, .. }) => {
                    *after -= step;
                    self.after_len -= step;
                }
                None => {}
            }
            self.plain.advance(step);
        }
    }
}
