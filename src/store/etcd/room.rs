//! How large a request a member of etcd takes.
//!
//! etcd tells it nowhere, but its transport refuses a message by the length in front of it,
//! before anything else looks at it, and names its limit: `--max-request-bytes` and a fixed part
//! (`v3rpc/grpc.go`, `grpcOverheadBytes`). So a read of a key as long as the largest request and
//! that part tells what is to be known, and leaves nothing behind.

use crate::store::etcd::connection::within;
use etcd_client::{GetOptions, KvClient};
use std::time::Duration;

/// What a member takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// As much as is wanted.
    Enough,
    /// Requests of so many bytes, and no longer ones.
    Only(usize),
    /// Nobody could tell.
    Unknown,
}

/// What the transport takes beyond etcd's own limit.
const GRPC_OVERHEAD_BYTES: usize = 512 * 1024;

/// What a request is longer than the value in it: keys, compares, what etcd puts around them.
const AROUND_VALUE_BYTES: usize = 16 * 1024;

/// The longest request that is made of a value of so many bytes.
pub(super) fn wanted(value_bytes: usize) -> usize {
    value_bytes.saturating_add(AROUND_VALUE_BYTES)
}

/// Asks a member whether it takes requests of `wanted` bytes.
pub(super) async fn ask(kv: &KvClient, wanted: usize, timeout: Duration) -> Room {
    let mut kv = kv.clone();
    // A letter, since etcd may write the key into its log if the read is slow.
    let key = vec![b'-'; wanted.saturating_add(GRPC_OVERHEAD_BYTES)];
    let options = GetOptions::new().with_count_only().with_serializable();
    match within(timeout, kv.get(key, Some(options))).await {
        Ok(_) => Room::Enough,
        // The key is nobody's: so it got as far as to be asked whose it is.
        Err(reason) if reason == "etcdserver: permission denied" => Room::Enough,
        Err(reason) => match limit_in(&reason) {
            Some(limit) => Room::Only(limit),
            None => {
                tracing::debug!(reason, "etcd does not tell how large a request may be");
                Room::Unknown
            }
        },
    }
}

/// etcd's own limit, from what its transport says of a message that is too long. Source:
/// grpc-go's `parser.recvMsg`.
fn limit_in(reason: &str) -> Option<usize> {
    let (_, said) = reason.split_once("received message larger than max (")?;
    let (_, limit) = said.strip_suffix(')')?.split_once(" vs. ")?;
    limit.parse::<usize>().ok()?.checked_sub(GRPC_OVERHEAD_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_read_from_the_transports_refusal() {
        for (reason, expected) in [
            ("grpc: received message larger than max (2621449 vs. 2097152)", Some(1_572_864)),
            ("grpc: received message larger than max (5 vs. 4)", None),
            ("grpc: received message larger than max", None),
            ("etcdserver: request is too large", None),
            ("", None),
        ] {
            assert_eq!(limit_in(reason), expected, "{reason}");
        }
    }
}
