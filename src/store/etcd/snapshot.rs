//! The whole content of the prefix at one revision, read page by page.

use crate::keeper::txn::{KeyValue, LeaseId, Snapshot};
use crate::keeper::zxid::Revision;
use crate::store::etcd::connection::{Connection, Position, describe, position};
use crate::store::etcd::prefix::Prefix;
use bytes::Bytes;
use etcd_client::GetOptions;
use std::time::Duration;

/// Reads everything. The deletions that etcd's history still knows are told afterwards: to read
/// them can take seconds.
///
/// # Errors
/// What went wrong, for the log; a load that took longer than etcd keeps its history is one.
pub(super) async fn load(
    connection: &Connection,
    prefix: &Prefix,
    timeout: Duration,
) -> Result<Snapshot, String> {
    let (Position { cluster, revision }, entries) = pages(connection, prefix, timeout).await?;
    Ok(Snapshot {
        revision,
        entries,
        deletions: Vec::new(),
        deletions_since: revision,
        cluster,
        is_another_history: false,
    })
}

async fn pages(
    connection: &Connection,
    prefix: &Prefix,
    timeout: Duration,
) -> Result<(Position, Vec<KeyValue>), String> {
    let mut kv = connection.kv.clone();
    let mut entries = Vec::new();
    let mut begun: Option<Position> = None;
    let mut next = prefix.own_key();
    let mut limit = FIRST_LIMIT;
    loop {
        let mut options = GetOptions::new().with_range(prefix.range_end()).with_limit(limit);
        if let Some(begun) = begun {
            options = options.with_revision(begun.revision.0);
        }
        let call = tokio::time::timeout(timeout, kv.get(next.clone(), Some(options)));
        let answer = call.await.map_err(|_| format!("no page within {timeout:?}"))?;
        let mut answer = answer.map_err(|error| describe(&error))?;
        let at = match begun {
            Some(at) => at,
            // All pages are read at the revision of the first one's answer.
            None => *begun.insert(position(answer.header())?),
        };
        let (page, more) = (answer.take_kvs(), answer.more());
        let Some(last) = page.last() else { return Ok((at, entries)) };
        next = [last.key(), b"\0"].concat();
        limit = next_limit(page.len(), page.iter().map(|kv| kv.value().len() + 100).sum());
        entries.extend(page.into_iter().filter_map(|entry| key_value(prefix, entry)));
        if !more {
            return Ok((at, entries));
        }
    }
}

const FIRST_LIMIT: i64 = 500;
const LIMIT_MAX: usize = 50_000;
/// About how large a page is to be. For each page etcd counts all the keys that are left, so a
/// million small ones in small pages would cost it as much again.
const PAGE_BYTES: usize = 8 * 1024 * 1024;

/// How many keys make a page of the right size, if they are like the last page's.
fn next_limit(keys: usize, bytes: usize) -> i64 {
    let each = bytes.div_ceil(keys.max(1)).max(1);
    (PAGE_BYTES / each).clamp(1, LIMIT_MAX) as i64
}

fn key_value(prefix: &Prefix, entry: etcd_client::KeyValue) -> Option<KeyValue> {
    let create_revision = Revision(entry.create_revision());
    let mod_revision = Revision(entry.mod_revision());
    let lease = LeaseId(entry.lease());
    let (key, value) = entry.into_key_value();
    let key = prefix.strip(key)?;
    Some(KeyValue { key, value: Bytes::from(value), create_revision, mod_revision, lease })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_fit_the_size_of_what_is_stored() {
        assert_eq!(next_limit(500, 500 * 128), LIMIT_MAX as i64);
        assert_eq!(next_limit(500, 500 * 4096), 2048);
        assert_eq!(next_limit(1, 100 * 1024 * 1024), 1);
        assert_eq!(next_limit(0, 0), LIMIT_MAX as i64);
    }
}
