//! etcd's history as a stream of revisions: a snapshot, then a watch from it.
//!
//! ```text
//! load ──Loaded──▶ follow ──broken──▶ follow again, after what was told
//!   ▲                 │
//!   └── compacted, another cluster, or not the history that was told
//! ```

use crate::keeper::txn::{Change, KeyValue, LeaseId, RevisionChanges, StoreEvent};
use crate::keeper::zxid::Revision;
use crate::store::etcd::connection::{Connection, describe};
use crate::store::etcd::deletions;
use crate::store::etcd::frontier::Frontier;
use crate::store::etcd::link::Link;
use crate::store::etcd::prefix::Prefix;
use crate::store::etcd::room::Room;
use crate::store::etcd::snapshot;
use crate::store::etcd::witness::Witness;
use bytes::Bytes;
use etcd_client::proto::{PbEvent, PbWatchResponse};
use etcd_client::{EventType, WatchOptions, WatchRequestSender, WatchResponseStream};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

/// The task that tells the history.
pub(super) struct Changes {
    link: Link,
    prefix: Prefix,
    timeout: Duration,
    events: mpsc::Sender<StoreEvent>,
    /// Somebody wants to know how far the stream is.
    asked: Arc<Notify>,
    told: Option<Told>,
    /// The last that was told of how large a txn may be.
    bytes_told: Option<usize>,
    /// The events of a message that goes on in the next one.
    fragments: Vec<PbEvent>,
    /// How many watches in a row were opened and have not told anything.
    fruitless: u32,
    frontier: Frontier,
    /// By what the history that was told is known again.
    witness: Option<Witness>,
    /// What the stream has to begin with, or it is another history.
    expected: Option<Witness>,
    /// What is loaded next is of another history than what was told.
    is_elsewhere: bool,
}

/// **Invariant:** everything up to `revision` has been told, and nothing after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Told {
    cluster: u64,
    revision: Revision,
}

/// Why a stream ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// Nobody listens.
    Closed,
    /// What comes next in the history cannot be had, or is another history.
    Reload,
    /// The stream broke, with the reason; it can be resumed.
    Broken(String),
}

impl From<String> for End {
    fn from(reason: String) -> Self {
        Self::Broken(reason)
    }
}

impl Changes {
    pub(super) fn new(
        link: Link,
        prefix: Prefix,
        timeout: Duration,
        events: mpsc::Sender<StoreEvent>,
        asked: Arc<Notify>,
        frontier: Frontier,
    ) -> Self {
        Self {
            link,
            prefix,
            timeout,
            events,
            asked,
            told: None,
            bytes_told: None,
            fragments: Vec::new(),
            fruitless: 0,
            frontier,
            witness: None,
            expected: None,
            is_elsewhere: false,
        }
    }

    /// Tells the history until nobody listens.
    pub(super) async fn run(mut self) {
        loop {
            let connection = self.link.connected().await;
            let begun = Instant::now();
            match self.follow(&connection).await {
                Err(End::Closed) => return,
                Err(End::Reload) => self.told = None,
                Err(End::Broken(reason)) => {
                    tracing::debug!(reason, "the stream of changes broke");
                    self.link.suspect(&connection);
                }
                Ok(never) => match never {},
            }
            // A stream that breaks at once is not opened again at once.
            if begun.elapsed() < RESUME_PAUSE {
                tokio::time::sleep(RESUME_PAUSE).await;
            }
        }
    }

    async fn follow(&mut self, connection: &Connection) -> Result<std::convert::Infallible, End> {
        self.fragments.clear();
        self.expected = None;
        let position = connection.position(&self.prefix).await?;
        let told = match self.told {
            Some(told) if told.cluster == position.cluster => {
                if position.revision < told.revision {
                    return Err(self.another_history(told, position.revision));
                }
                self.expected = self.witness.clone();
                told
            }
            Some(told) => return Err(self.another_cluster(told, position.cluster)),
            None => self.load(connection).await?,
        };
        self.tell_room(connection).await?;
        let next = Revision(told.revision.0 + 1);
        let start = self.expected.as_ref().map_or(next, Witness::revision);
        let mut options =
            WatchOptions::new().with_range(self.prefix.range_end()).with_start_revision(start.0);
        if self.fruitless >= FRUITLESS_MAX {
            // There may be more to send at once than fits into one message of gRPC, 2 GiB. Only
            // then: etcd's `sendFragments` takes time that grows with the square of the events
            // in a fragment, seconds for a few ten thousand.
            options = options.with_fragment();
        }
        let opening = connection.watch(self.prefix.own_key(), options);
        let opened = tokio::time::timeout(self.timeout, opening).await;
        let opened = opened.map_err(|_| "no watch was opened".to_owned())?;
        let (requests, messages) = opened?.split();
        self.fruitless = self.fruitless.saturating_add(1);
        self.drain(connection, requests, messages).await
    }

    async fn tell_room(&mut self, connection: &Connection) -> Result<(), End> {
        let bytes_max = match connection.room {
            Room::Only(bytes) => Some(bytes),
            Room::Enough | Room::Unknown => None,
        };
        if self.bytes_told != bytes_max {
            self.bytes_told = bytes_max;
            let event = StoreEvent::TxnBytesMax(bytes_max);
            self.events.send(event).await.map_err(|_| End::Closed)?;
        }
        Ok(())
    }

    async fn load(&mut self, connection: &Connection) -> Result<Told, End> {
        let begun = Instant::now();
        let mut snapshot = snapshot::load(connection, &self.prefix, self.timeout).await?;
        snapshot.is_another_history = self.is_elsewhere;
        let witness = Witness::among(&snapshot.entries);
        tracing::info!(
            revision = %snapshot.revision,
            keys = snapshot.entries.len(),
            took = ?begun.elapsed(),
            "loaded from etcd"
        );
        let told = Told { cluster: snapshot.cluster, revision: snapshot.revision };
        self.tell(StoreEvent::Loaded(snapshot)).await?;
        self.frontier.reached(told.revision);
        (self.told, self.witness, self.is_elsewhere) = (Some(told), witness, false);
        self.tell_past_deletions(connection, told.revision);
        Ok(told)
    }

    /// Beside the stream, since a long history takes time to go through.
    fn tell_past_deletions(&self, connection: &Connection, until: Revision) {
        let (connection, prefix) = (connection.clone(), self.prefix.clone());
        let events = self.events.clone();
        tokio::spawn(async move {
            let read = deletions::read(&connection, &prefix, until);
            let past = tokio::select! {
                past = read => past,
                () = events.closed() => return,
            };
            let _ = events.send(StoreEvent::Deleted(past)).await;
        });
    }

    async fn drain(
        &mut self,
        connection: &Connection,
        mut requests: WatchRequestSender,
        mut messages: WatchResponseStream,
    ) -> Result<std::convert::Infallible, End> {
        // When progress was first asked for without any answer since.
        let mut unanswered: Option<Instant> = None;
        loop {
            let silent = unanswered.map_or_else(far_future, |since| since + SILENCE_MAX);
            tokio::select! {
                // A message is kept in the stream until it is whole, so this may be cut off.
                message = messages.message() => {
                    unanswered = None;
                    let message = message.map_err(|error| describe(&error))?;
                    let message = message.ok_or_else(|| "the stream ended".to_owned())?;
                    self.take(message.0).await?;
                }
                () = self.asked.notified() => {
                    unanswered.get_or_insert_with(Instant::now);
                    if connection.tells_progress() {
                        let request = requests.request_progress().await;
                        request.map_err(|error| describe(&error))?;
                    } else {
                        self.write_own_key(connection);
                    }
                }
                () = self.link.replaced(connection) => {
                    return Err(End::Broken("another member is asked now".to_owned()));
                }
                () = tokio::time::sleep_until(silent) => {
                    return Err(End::Broken(format!("silent for {SILENCE_MAX:?}")));
                }
            }
        }
    }

    /// The stream has progressed once this write has come by.
    fn write_own_key(&self, connection: &Connection) {
        let (mut kv, key) = (connection.kv.clone(), self.prefix.own_key());
        tokio::spawn(async move {
            if let Err(error) = kv.put(key, "", None).await {
                tracing::debug!(reason = describe(&error), "the store's own key is not written");
            }
        });
    }

    async fn take(&mut self, message: PbWatchResponse) -> Result<(), End> {
        let told = self.told.expect("a stream is opened after a load");
        let header = message.header.ok_or_else(|| "a message without a header".to_owned())?;
        if header.cluster_id != told.cluster {
            return Err(self.another_cluster(told, header.cluster_id));
        }
        if message.canceled {
            if message.compact_revision == 0 {
                return Err(End::Broken(message.cancel_reason));
            }
            if self.expected.is_some() && message.compact_revision <= told.revision.0 + 1 {
                // All that is needed is there, and nothing is left to know the history by.
                self.witness = None;
                return Err(End::Broken("compacted up to what was told".to_owned()));
            }
            tracing::warn!(
                told = %told.revision,
                compacted = message.compact_revision,
                "etcd compacted what was not read yet; loading again"
            );
            return Err(End::Reload);
        }
        if message.created {
            return Ok(());
        }
        self.fragments.extend(message.events);
        if message.fragment {
            return Ok(());
        }
        let events = std::mem::take(&mut self.fragments);
        if events.is_empty() {
            if self.expected.is_some() {
                return Err(self.another_history(told, Revision(header.revision)));
            }
            // The answer to a request for progress: nothing of ours is before this revision.
            return self.progress(Revision(header.revision)).await;
        }
        for (revision, changes) in revisions(&self.prefix, events) {
            if let Some(witness) = self.expected.take()
                && !witness.is_in(revision, &changes)
            {
                return Err(self.another_history(told, revision));
            }
            if revision <= told.revision {
                continue;
            }
            if changes.is_empty() {
                // Only the store's own key.
                self.progress(revision).await?;
            } else {
                let witness = Witness::of(&changes);
                self.tell(StoreEvent::Changed(RevisionChanges { revision, changes })).await?;
                self.frontier.reached(revision);
                self.told = Some(Told { revision, ..told });
                self.witness = witness.or_else(|| self.witness.take());
            }
        }
        Ok(())
    }

    async fn progress(&mut self, revision: Revision) -> Result<(), End> {
        let told = self.told.as_mut().expect("a stream is opened after a load");
        told.revision = told.revision.max(revision);
        let revision = told.revision;
        self.tell(StoreEvent::Progress(revision)).await?;
        self.frontier.reached(revision);
        Ok(())
    }

    /// Nothing that was told may be believed any more.
    fn another_history(&mut self, told: Told, found: Revision) -> End {
        tracing::error!(
            told = %told.revision,
            %found,
            "etcd has not the history that it had: it was restored from a backup"
        );
        self.is_elsewhere = true;
        End::Reload
    }

    fn another_cluster(&mut self, told: Told, found: u64) -> End {
        tracing::error!(
            known = format_args!("{:x}", told.cluster),
            found = format_args!("{found:x}"),
            "another etcd cluster answers now"
        );
        self.is_elsewhere = true;
        End::Reload
    }

    async fn tell(&mut self, event: StoreEvent) -> Result<(), End> {
        self.fruitless = 0;
        self.events.send(event).await.map_err(|_| End::Closed)
    }
}

/// A watch that was asked for progress and says nothing for so long is opened again.
const SILENCE_MAX: Duration = Duration::from_secs(10);
const RESUME_PAUSE: Duration = Duration::from_millis(200);
/// After so many watches that told nothing, messages are asked for in fragments.
const FRUITLESS_MAX: u32 = 2;

fn far_future() -> Instant {
    Instant::now() + Duration::from_secs(86_400)
}

/// The changes of each revision, in order. The store's own key is left out, so a revision may
/// have none.
fn revisions(prefix: &Prefix, events: Vec<PbEvent>) -> Vec<(Revision, Vec<Change>)> {
    let mut all: Vec<(Revision, Vec<Change>)> = Vec::new();
    for event in events {
        let Some(kv) = event.kv else { continue };
        let revision = Revision(kv.mod_revision);
        if all.last().is_none_or(|(last, _)| *last != revision) {
            all.push((revision, Vec::new()));
        }
        let (_, changes) = all.last_mut().expect("there is one of this revision");
        let Some(key) = prefix.strip(kv.key) else { continue };
        changes.push(if event.r#type == EventType::Delete as i32 {
            Change::Delete(key)
        } else {
            Change::Put(KeyValue {
                key,
                value: Bytes::from(kv.value),
                create_revision: Revision(kv.create_revision),
                mod_revision: revision,
                lease: LeaseId(kv.lease),
            })
        });
    }
    all
}

#[cfg(test)]
mod tests;
