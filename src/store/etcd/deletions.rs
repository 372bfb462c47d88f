//! The deletions that etcd's history still knows, read by a watch from the oldest revision on.

use crate::keeper::txn::{Deletion, PastDeletions};
use crate::keeper::zxid::Revision;
use crate::store::etcd::connection::{Connection, describe};
use crate::store::etcd::prefix::Prefix;
use etcd_client::proto::PbWatchResponse;
use etcd_client::{EventType, WatchFilterType, WatchOptions, WatchStream};
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior};

/// Reads the deletions up to a revision, and after which revision they are complete. What
/// cannot be read within the bounds is not needed either: then nothing is known.
pub(super) async fn read(
    connection: &Connection,
    prefix: &Prefix,
    until: Revision,
) -> PastDeletions {
    let reading = tokio::time::timeout(TIME_MAX, read_all(connection, prefix, until));
    let reason = match reading.await {
        Ok(Ok((deletions, since))) => return PastDeletions { until, deletions, since },
        Ok(Err(reason)) => reason,
        Err(_) => format!("not read within {TIME_MAX:?}"),
    };
    tracing::info!(reason, "past deletions are not known");
    PastDeletions { until, deletions: Vec::new(), since: until }
}

async fn read_all(
    connection: &Connection,
    prefix: &Prefix,
    until: Revision,
) -> Result<(Vec<Deletion>, Revision), String> {
    let mut since = Revision::NEVER;
    if !connection.tells_progress() {
        // Something behind `until` must come by, for the end to be seen.
        let put = connection.kv.clone().put(prefix.own_key(), "", None).await;
        put.map_err(|error| describe(&error))?;
    }
    while since < until {
        let mut reader = Reader { prefix, until, since, found: Vec::new(), bytes: 0 };
        match reader.run(connection).await? {
            End::Complete => return Ok((reader.found, since)),
            End::Compacted(compacted) => since = compacted,
        }
    }
    Ok((Vec::new(), until))
}

struct Reader<'a> {
    prefix: &'a Prefix,
    until: Revision,
    since: Revision,
    found: Vec<Deletion>,
    bytes: usize,
}

enum End {
    Complete,
    /// The history begins after this revision.
    Compacted(Revision),
}

impl Reader<'_> {
    async fn run(&mut self, connection: &Connection) -> Result<End, String> {
        let mut options = WatchOptions::new()
            .with_range(self.prefix.range_end())
            .with_start_revision(self.since.0 + 1);
        if connection.tells_progress() {
            options = options.with_filters([WatchFilterType::NoPut]);
        }
        let stream = connection.watch(self.prefix.own_key(), options).await?;
        self.follow(stream, connection.tells_progress()).await
    }

    async fn follow(&mut self, mut stream: WatchStream, progress: bool) -> Result<End, String> {
        // A request for progress is dropped while the watch lags behind, so it is repeated.
        let mut ask = tokio::time::interval_at(Instant::now(), ASK_INTERVAL);
        ask.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                // A message is kept in the stream until it is whole, so this may be cut off.
                message = stream.message() => {
                    let message = message.map_err(|error| describe(&error))?;
                    let message = message.ok_or("the stream ended")?;
                    if let Some(end) = self.take(message.0)? {
                        return Ok(end);
                    }
                }
                _ = ask.tick(), if progress => {
                    stream.request_progress().await.map_err(|error| describe(&error))?;
                }
            }
        }
    }

    fn take(&mut self, message: PbWatchResponse) -> Result<Option<End>, String> {
        if message.canceled {
            return match message.compact_revision {
                0 => Err(message.cancel_reason),
                compacted => Ok(Some(End::Compacted(Revision(compacted)))),
            };
        }
        let header = message.header.ok_or("a message without a header")?;
        if message.events.is_empty() && !message.created {
            return Ok((header.revision >= self.until.0).then_some(End::Complete));
        }
        for event in message.events {
            let deleted = event.r#type == EventType::Delete as i32;
            let Some(kv) = event.kv else { continue };
            let revision = Revision(kv.mod_revision);
            if revision > self.until {
                return Ok(Some(End::Complete));
            }
            if deleted && let Some(key) = self.prefix.strip(kv.key) {
                self.bytes += key.len() + size_of::<Deletion>();
                self.found.push(Deletion { key, revision });
            }
        }
        if self.bytes > BYTES_MAX {
            return Err(format!("more than {BYTES_MAX} bytes"));
        }
        Ok(None)
    }
}

/// How long etcd may be busy with this.
const TIME_MAX: Duration = Duration::from_secs(60);
const BYTES_MAX: usize = 64 * 1024 * 1024;
const ASK_INTERVAL: Duration = Duration::from_millis(50);
