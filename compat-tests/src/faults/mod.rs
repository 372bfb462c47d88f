//! Real faults: etcd members, shims and clients on machines of their own, each a network
//! namespace, with load and with checks, while processes die and pause and networks split.
//!
//! `zk-faults` is its command. It needs root, or a kernel that lets a user make namespaces.

pub mod namespace;
pub mod network;

pub mod cluster;

pub mod admin;
pub mod inject;
pub mod kind;
pub mod restore;

pub mod holders;
pub mod load;
pub mod own;
pub mod record;
pub mod roamer;

pub mod checks;
pub mod recovery;
pub mod run;
pub mod soak;

pub mod embedded;
