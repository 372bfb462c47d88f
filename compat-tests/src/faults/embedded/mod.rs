//! Faults of a server with the embedded store: it is killed again and again under load, and its
//! disk is full.

pub mod full_disk;
pub mod kills;
