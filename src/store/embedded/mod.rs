//! etcd's model in this process, kept on disk. Not replicated.

pub mod engine;
pub mod limits;

mod leases;
