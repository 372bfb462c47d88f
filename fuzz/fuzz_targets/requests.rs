//! What a client may send: any bytes give frames, a handshake, requests, or an error, and take
//! memory in proportion to their number.
#![no_main]

use std::alloc::System;

use bytes::{Bytes, BytesMut};
use cap::Cap;
use libfuzzer_sys::fuzz_target;
use zkshim::wire::decode::{decode_connect, decode_request};
use zkshim::wire::four_letter::Word;
use zkshim::wire::frame::{Splitter, first_word};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// A decoded element may be larger than its bytes: a null string of 4 bytes, for one.
const GROWTH_MAX: usize = 64;
const FIXED_MAX: usize = 16 * 1024;

fuzz_target!(|data: &[u8]| {
    let before = ALLOCATOR.total_allocated();
    let frame = Bytes::copy_from_slice(data);
    let _ = decode_connect(&frame);
    let _ = decode_request(&frame);
    let _ = first_word(data).and_then(Word::parse);
    let mut splitter = Splitter::new(1024);
    let mut buffer = BytesMut::from(data);
    while let Ok(Some(frame)) = splitter.next_frame(&mut buffer) {
        let _ = decode_request(&frame);
    }
    let used = ALLOCATOR.total_allocated() - before;
    assert!(used <= GROWTH_MAX * data.len() + FIXED_MAX, "{used} bytes for {}", data.len());
});
