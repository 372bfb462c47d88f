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

    fn share(&mut self, bytes: &[u8], whole: impl FnOnce() -> Bytes) {
        if bytes.len() < SHARED_BYTES_MIN {
            return self.plain.extend_from_slice(bytes);
        }
        let after = self.plain.len() - self.after_len;
        self.after_len += after;
        self.shared_len += bytes.len();
        self.shared.push_back(Shared { after, bytes: whole() });
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

#[cfg(test)]
mod tests {
    use jute::Stat;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use crate::keeper::request::{Body, Data, MultiResult, Names, Reply, Xid};
    use crate::keeper::zxid::Zxid;
    use crate::wire::encode::encode;

    use super::*;

    fn reply(body: Body) -> Outgoing {
        Outgoing::Reply(Reply { xid: Xid(1), zxid: Zxid(2), outcome: Ok(body) })
    }

    fn data(length: usize) -> Option<Data> {
        Some(vec![7; length].into())
    }

    fn any_body() -> impl Strategy<Value = Body> {
        let length = || prop_oneof![0..100_usize, 4000..5000_usize];
        prop_oneof![
            Just(Body::Empty),
            length().prop_map(|length| Body::Data(data(length), Stat::default())),
            length().prop_map(|length| Body::Names(Names(vec![9; length].into()))),
            vec(length(), 0..4).prop_map(|lengths| {
                let result = |length| MultiResult::GetData(data(length), Stat::default());
                Body::Multi(lengths.into_iter().map(result).collect())
            }),
        ]
    }

    #[test]
    fn large_data_is_passed_on_without_a_copy() {
        let large = Data::from(vec![1; SHARED_BYTES_MIN]);
        let mut buffer = SendBuffer::default();
        buffer.push(&reply(Body::Data(Some(large.clone()), Stat::default())), true);
        let mut slices = [IoSlice::new(&[]); 4];
        assert_eq!(buffer.chunks_vectored(&mut slices), 3);
        assert_eq!(slices.each_ref().map(|slice| slice.len()), [24, SHARED_BYTES_MIN, 68, 0]);
        assert_eq!(slices[1].as_ptr(), large.as_ptr());
    }

    #[test]
    fn small_data_is_copied_into_one_piece() {
        let mut buffer = SendBuffer::default();
        buffer.push(&reply(Body::Data(data(SHARED_BYTES_MIN - 1), Stat::default())), true);
        buffer.push(&reply(Body::Empty), true);
        assert_eq!(buffer.chunk().len(), buffer.remaining());
    }

    #[test]
    fn an_empty_buffer_has_nothing_to_write() {
        let mut slices = [IoSlice::new(&[]); 2];
        assert_eq!(SendBuffer::default().chunks_vectored(&mut slices), 0);
        assert!(!SendBuffer::default().has_remaining());
    }

    proptest! {
        /// Whatever a socket takes at a time, with frames added in between.
        #[test]
        fn what_is_written_are_the_frames_as_they_were_pushed(
            bodies in vec(any_body(), 1..8),
            takes in vec(1..6000_usize, 1..20),
        ) {
            let (mut expect, mut written) = (BytesMut::new(), Vec::new());
            let mut buffer = SendBuffer::default();
            let mut bodies = bodies.into_iter();
            for take in takes.iter().cycle() {
                if let Some(body) = bodies.next() {
                    let outgoing = reply(body);
                    encode(&outgoing, true, &mut expect);
                    buffer.push(&outgoing, true);
                }
                prop_assert_eq!(buffer.remaining(), expect.len() - written.len());
                let mut slices = [IoSlice::new(&[]); 3];
                let filled = buffer.chunks_vectored(&mut slices);
                let pieces: Vec<u8> = slices[..filled].iter().flat_map(|it| it.to_vec()).collect();
                let taken = pieces.len().min(*take);
                written.extend_from_slice(&pieces[..taken]);
                buffer.advance(taken);
                if !buffer.has_remaining() && bodies.len() == 0 {
                    break;
                }
            }
            prop_assert_eq!(written, expect);
        }
    }
}
