//! How to reach etcd, and what of it is ours.

use std::time::Duration;

/// How to reach etcd, and what of it is ours.
#[derive(Clone, Debug)]
pub struct Options {
    /// URLs of etcd's members (`http://host:port`), the preferred one first.
    pub endpoints: Vec<String>,
    /// Everything of ours is under this prefix; the tree's keys come behind it. Not empty.
    pub prefix: String,
    /// How long one call may take. What was asked of etcd then has an unknown outcome.
    pub call_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            endpoints: vec!["http://127.0.0.1:2379".into()],
            prefix: "/zkshim/".into(),
            call_timeout: Duration::from_secs(10),
        }
    }
}
