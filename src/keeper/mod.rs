//! The pure core: ZooKeeper's semantics as values in and values out.
//!
//! The caller's duties, in order: hand in one input by a `handle_*` of [`machine::Keeper`], or all
//! that are there, drain every output with `poll_output`, then wait for the next input or until
//! `poll_timeout`.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod error;
pub mod options;
pub mod path;
pub mod time;
pub mod zxid;

pub mod request;
pub mod txn;

pub mod acl;
pub mod output;
pub mod tree;

pub mod barriers;
pub mod keyspace;
pub mod reader;
pub mod sessions;
pub mod watches;

pub mod ahead;
pub mod overlay;
pub mod planner;
pub mod replica;

pub mod batch;

pub mod machine;

pub use machine::Keeper;
pub use options::Options;
pub use output::{Output, SessionStatus, Status, WatchStatus, WatchWalk};
