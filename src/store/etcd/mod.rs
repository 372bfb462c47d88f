//! The store in etcd.
