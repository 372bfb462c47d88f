//! Where the history is kept: etcd, or the same model in this process.
//!
//! A store runs the core's [`StoreCommand`]s and tells [`StoreEvent`]s. It knows nothing of
//! znodes; keys are bytes to it.

pub mod embedded;
pub mod etcd;
