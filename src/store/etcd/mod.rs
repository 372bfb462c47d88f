//! The store in etcd.

mod options;

pub use options::Options;
