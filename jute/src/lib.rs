//! ZooKeeper's record encoding.
//!
//! The records come from `schema/zookeeper.jute`: the compiler in `compiler/` turns it into
//! Rust when the crate is built. A `ustring`, `buffer` or `vector` may be null, so each is an
//! `Option`; texts and buffers share the frame that they were decoded from.

mod error;
pub mod primitives;
mod text;

use bytes::{Bytes, BytesMut};

pub use crate::error::{DecodeError, Fault, Step};
pub use crate::primitives::{Input, Value};
pub use crate::text::Text;

/// A record of the schema.
pub trait Record: Value {
    /// Its name in the schema.
    const NAME: &'static str;
}

include!(concat!(env!("OUT_DIR"), "/zookeeper.rs"));
