//! zkshim: a server that speaks the ZooKeeper client protocol and keeps everything in etcd.
//!
//! The rooms, in reading order. Data flows one way: bytes come in through `wire`, become
//! requests that `driver` hands to the pure core in `keeper`; what the core wants of etcd goes
//! through `store`, and etcd's history comes back the same way.

pub mod keeper;
pub mod store;
pub mod wire;

pub mod driver;
pub mod server;

pub mod config;
pub mod telemetry;
