//! Where a frame ends: the length prefix and its limit.
//!
//! Pure: it looks at what has been read, and never asks for more.

use bytes::{Buf, Bytes, BytesMut};
use thiserror::Error;

const PREFIX_BYTES: usize = size_of::<i32>();

/// Cuts a client's stream into frames.
#[derive(Clone, Debug)]
pub struct Splitter {
    frame_bytes_max: usize,
}

/// A length that no frame has. The connection is closed without a reply
/// (`NIOServerCnxn.readLength`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// Below 0.
    #[error("a frame's length is {0}")]
    Negative(i32),
    /// Above the limit.
    #[error("a frame's length is {length}, above {frame_bytes_max}")]
    TooLong {
        /// The length as announced.
        length: i32,
        /// The most that is accepted.
        frame_bytes_max: usize,
    },
}

impl Splitter {
    /// A splitter that accepts frames of up to this length, prefix not counted
    /// (`jute.maxbuffer`; by default [`jute::primitives::MAXBUFFER_DEFAULT`]).
    pub fn new(frame_bytes_max: usize) -> Self {
        Self { frame_bytes_max }
    }

    /// Takes the next whole frame, without its prefix, off the front of what has been read.
    /// `None`: more must be read first. The frame shares the buffer's memory, and a frame of
    /// length 0 is one too.
    ///
    /// A bad length is refused as soon as the prefix is there. Nothing is allocated: the buffer
    /// grows by what arrives, not by what is announced.
    ///
    /// # Errors
    /// If the length is negative or above the limit. The stream is of no further use.
    pub fn next_frame(&mut self, buffer: &mut BytesMut) -> Result<Option<Bytes>, FrameError> {
        let Some(prefix) = buffer.first_chunk::<PREFIX_BYTES>() else {
            return Ok(None);
        };
        let length = i32::from_be_bytes(*prefix);
        let bytes = usize::try_from(length).map_err(|_| FrameError::Negative(length))?;
        let frame_bytes_max = self.frame_bytes_max;
        if bytes > frame_bytes_max {
            return Err(FrameError::TooLong { length, frame_bytes_max });
        }
        if buffer.len().saturating_sub(PREFIX_BYTES) < bytes {
            return Ok(None);
        }
        buffer.advance(PREFIX_BYTES);
        Ok(Some(buffer.split_to(bytes).freeze()))
    }
}

/// The bytes that may be a four-letter word: the first four of a connection, once they are
/// there. If they are no word, they are the first frame's length.
pub fn first_word(buffer: &[u8]) -> Option<[u8; 4]> {
    buffer.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn frames(splitter: &mut Splitter, buffer: &mut BytesMut) -> Vec<Bytes> {
        let next = || splitter.next_frame(buffer).expect("only good frames were written");
        std::iter::from_fn(next).collect()
    }

    fn check_refused(prefix: &[u8], expect: FrameError) {
        let mut buffer = BytesMut::from(prefix);
        assert_eq!(Splitter::new(0xF_FFFF).next_frame(&mut buffer), Err(expect));
    }

    #[test]
    fn a_length_above_the_limit_is_refused_before_the_body_is_read() {
        let frame_bytes_max = 0xF_FFFF;
        check_refused(b"\0\x10\0\0", FrameError::TooLong { length: 0x10_0000, frame_bytes_max });
        let length = i32::from_be_bytes(*b"zzzz");
        check_refused(b"zzzz", FrameError::TooLong { length, frame_bytes_max });
    }

    #[test]
    fn a_negative_length_is_refused() {
        check_refused(b"\xFF\xFF\xFF\xFFrest", FrameError::Negative(-1));
        check_refused(b"\x80\0\0\0", FrameError::Negative(i32::MIN));
    }

    #[test]
    fn a_frame_of_exactly_the_limit_is_taken() {
        let mut buffer = BytesMut::from(&b"\0\x0F\xFF\xFF"[..]);
        buffer.resize(PREFIX_BYTES + 0xF_FFFF, 7);
        let frame = Splitter::new(0xF_FFFF).next_frame(&mut buffer);
        assert_eq!(frame.map(|frame| frame.map(|frame| frame.len())), Ok(Some(0xF_FFFF)));
        assert!(buffer.is_empty());
    }

    #[test]
    fn an_empty_frame_is_a_frame() {
        let mut buffer = BytesMut::from(&b"\0\0\0\0\0"[..]);
        assert_eq!(frames(&mut Splitter::new(8), &mut buffer), [Bytes::new()]);
        assert_eq!(buffer, &b"\0"[..]);
    }

    #[test]
    fn an_announced_length_allocates_nothing() {
        let mut buffer = BytesMut::from(&b"\x7F\xFF\xFF\xFF"[..]);
        let before = buffer.capacity();
        assert_eq!(Splitter::new(usize::MAX).next_frame(&mut buffer), Ok(None));
        assert_eq!(buffer.capacity(), before);
    }

    #[test]
    fn the_first_word_waits_for_four_bytes() {
        assert_eq!(first_word(b"ruo"), None);
        assert_eq!(first_word(b"ruok"), Some(*b"ruok"));
        assert_eq!(first_word(b"\0\0\0\x2d\0"), Some([0, 0, 0, 0x2d]));
    }

    proptest! {
        #[test]
        fn splitting_the_stream_anywhere_yields_the_same_frames(
            bodies in vec(vec(any::<u8>(), 0..40), 0..8),
            cuts in vec(1_usize..30, 1..20),
        ) {
            let mut stream = Vec::new();
            for body in &bodies {
                let length = i32::try_from(body.len()).expect("bodies are short");
                stream.extend_from_slice(&length.to_be_bytes());
                stream.extend_from_slice(body);
            }
            let (mut splitter, mut buffer) = (Splitter::new(40), BytesMut::new());
            let mut found = Vec::new();
            let mut rest = stream.as_slice();
            for cut in cuts.iter().cycle() {
                let (read, unread) = rest.split_at(rest.len().min(*cut));
                buffer.extend_from_slice(read);
                found.extend(frames(&mut splitter, &mut buffer));
                rest = unread;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(found, bodies);
            prop_assert!(buffer.is_empty());
        }

        #[test]
        fn any_bytes_are_split_or_refused(bytes in vec(any::<u8>(), 0..200)) {
            let mut splitter = Splitter::new(64);
            let mut buffer = BytesMut::from(bytes.as_slice());
            while let Ok(Some(frame)) = splitter.next_frame(&mut buffer) {
                prop_assert!(frame.len() <= 64);
            }
        }
    }
}
