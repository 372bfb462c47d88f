//! Whether etcd is kept in order, as far as it lets on: its history must be compacted, and its
//! database must have room. Both are the operator's to see to; the log says when it is time.

use crate::store::etcd::connection::{Connection, describe, within};
use crate::store::etcd::link::Link;
use crate::store::etcd::prefix::Prefix;
use etcd_client::{GetOptions, WatchOptions};
use std::time::Duration;
use tokio::time::Instant;

/// The task that looks after it.
pub(super) struct Upkeep {
    link: Link,
    prefix: Prefix,
    judge: Judge,
}

impl Upkeep {
    pub(super) fn new(link: Link, prefix: Prefix) -> Self {
        Self { link, prefix, judge: Judge::default() }
    }

    /// Looks at once, and then again and again, for ever.
    pub(super) async fn run(mut self) {
        loop {
            let connection = self.link.connected().await;
            match look(&connection, &self.prefix).await {
                Ok(seen) => {
                    tracing::debug!(
                        revision = seen.revision,
                        compacted = seen.compacted,
                        database_bytes = seen.database_bytes,
                        in_use_bytes = seen.in_use_bytes,
                        quota_bytes = seen.quota_bytes,
                        "looked at etcd's history and database"
                    );
                    self.judge.judge(Instant::now(), seen).into_iter().for_each(Warning::log);
                }
                Err(reason) => tracing::debug!(reason, "etcd's database is not known"),
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }
}

/// What etcd lets on. It does not tell its flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    /// The last revision.
    revision: i64,
    /// The revision up to which the history is compacted; 0 is never.
    compacted: i64,
    database_bytes: i64,
    /// Without the pages that a defragmentation would give back.
    in_use_bytes: i64,
    /// 0 before etcd 3.6, which was the first to tell.
    quota_bytes: i64,
    /// It refuses writes.
    is_full: bool,
}

async fn look(connection: &Connection, prefix: &Prefix) -> Result<Seen, String> {
    let status = connection.status().await?;
    let revision = status.header().ok_or("an answer without a header")?.revision();
    Ok(Seen {
        revision,
        compacted: compacted(connection, prefix).await?,
        database_bytes: status.db_size(),
        in_use_bytes: status.raft_used_db_size(),
        quota_bytes: status.db_size_quota(),
        is_full: status.errors().iter().any(|error| error.contains("NOSPACE")),
    })
}

/// A read of the first revision tells whether the history is compacted; only a watch from there
/// tells up to where.
async fn compacted(connection: &Connection, prefix: &Prefix) -> Result<i64, String> {
    let mut kv = connection.kv.clone();
    let first = GetOptions::new().with_revision(1).with_count_only();
    match within(CALL_TIMEOUT, kv.get(prefix.own_key(), Some(first))).await {
        Ok(_) => return Ok(0),
        Err(reason) if reason.contains("has been compacted") => {}
        Err(reason) => return Err(reason),
    }
    let options = WatchOptions::new().with_start_revision(1);
    let opening = connection.watch(prefix.own_key(), options);
    let opened = tokio::time::timeout(CALL_TIMEOUT, opening).await;
    let mut stream = opened.map_err(|_| "no watch was opened".to_owned())??;
    let told = async {
        loop {
            let message = stream.message().await.map_err(|error| describe(&error))?;
            let message = message.ok_or("the stream ended")?;
            if message.compact_revision() > 0 {
                return Ok(message.compact_revision());
            }
        }
    };
    let told = tokio::time::timeout(CALL_TIMEOUT, told).await;
    told.map_err(|_| "no revision was named".to_owned())?
}

/// Remembers what was seen and said, so that a warning does not come with every look.
#[derive(Debug, Default)]
struct Judge {
    /// When the history was first seen compacted up to here, and how long it was then.
    since: Option<(Instant, Seen)>,
    history_said: Option<Instant>,
    room_said: Option<Instant>,
}

/// What an operator should know.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Warning {
    /// Nobody seems to compact the history.
    History(Seen),
    /// The database is nearly as large as it may be.
    Room(Seen),
    /// It is as large.
    Full(Seen),
}

impl Judge {
    fn judge(&mut self, now: Instant, seen: Seen) -> Vec<Warning> {
        let mut warnings = Vec::new();
        // A history that is shorter than before is another one.
        let goes_on =
            |since: &Seen| since.compacted == seen.compacted && since.revision <= seen.revision;
        let (first, at_first) = match self.since {
            Some((first, at_first)) if goes_on(&at_first) => (first, at_first),
            _ => *self.since.insert((now, seen)),
        };
        let grown = seen.revision.saturating_sub(at_first.revision);
        let never = seen.compacted == 0 && seen.revision >= HISTORY_MAX;
        let stands = now.duration_since(first) >= STANDS_MAX && grown >= GROWN_MIN;
        if is_due(&mut self.history_said, now, never || stands) {
            warnings.push(Warning::History(seen));
        }
        let nearly = seen.database_bytes >= seen.quota() / 100 * NEARLY_PERCENT;
        if is_due(&mut self.room_said, now, nearly || seen.is_full) {
            let warning = if seen.is_full { Warning::Full } else { Warning::Room };
            warnings.push(warning(seen));
        }
        warnings
    }
}

/// Whether to say it (again). What has passed is said at once if it comes back.
fn is_due(said: &mut Option<Instant>, now: Instant, holds: bool) -> bool {
    if !holds {
        *said = None;
        return false;
    }
    let is_due = said.is_none_or(|said| now.duration_since(said) >= REPEAT_INTERVAL);
    if is_due {
        *said = Some(now);
    }
    is_due
}

impl Seen {
    fn quota(&self) -> i64 {
        if self.quota_bytes > 0 { self.quota_bytes } else { QUOTA_BYTES_DEFAULT }
    }
}

impl Warning {
    fn log(self) {
        match self {
            Self::History(seen) => tracing::warn!(
                revision = seen.revision,
                compacted = seen.compacted,
                "etcd does not compact its history, so its database only grows; start it with \
                 --auto-compaction-mode=periodic --auto-compaction-retention=1h"
            ),
            Self::Room(seen) => tracing::warn!(
                database_bytes = seen.database_bytes,
                in_use_bytes = seen.in_use_bytes,
                quota_bytes = seen.quota(),
                is_default = seen.quota_bytes <= 0,
                "etcd's database is nearly as large as it may be, and past that etcd refuses \
                 every write; compact its history, defragment it, or raise --quota-backend-bytes"
            ),
            Self::Full(seen) => tracing::error!(
                database_bytes = seen.database_bytes,
                in_use_bytes = seen.in_use_bytes,
                "etcd's database is full, and it refuses every write; compact its history, \
                 defragment it, and clear the alarm with `etcdctl alarm disarm`"
            ),
        }
    }
}

const LOOK_INTERVAL: Duration = Duration::from_secs(5 * 60);
const CALL_TIMEOUT: Duration = Duration::from_secs(3);
const REPEAT_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);
/// An etcd that has never compacted so long a history would have done so by now.
const HISTORY_MAX: i64 = 1_000_000;
/// etcd compacts every hour or more often, if at all; only after its own start it may wait for
/// as long as it keeps the history.
const STANDS_MAX: Duration = Duration::from_secs(3 * 60 * 60);
/// Growth that is worth a word.
const GROWN_MIN: i64 = 100_000;
const NEARLY_PERCENT: i64 = 80;
/// `--quota-backend-bytes`, when it is not given (`DefaultQuotaBytes`).
const QUOTA_BYTES_DEFAULT: i64 = 2 * 1024 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const NEVER: [usize; 0] = [];

    fn seen(revision: i64, compacted: i64) -> Seen {
        Seen {
            revision,
            compacted,
            database_bytes: 1 << 20,
            in_use_bytes: 1 << 20,
            quota_bytes: 8 << 30,
            is_full: false,
        }
    }

    /// After how many looks, five minutes apart, something was said.
    fn check(looks: impl IntoIterator<Item = Seen>) -> Vec<usize> {
        let (mut judge, begin) = (Judge::default(), Instant::now());
        let looks = looks.into_iter().enumerate();
        let said = looks.filter_map(|(index, seen)| {
            let now = begin + 5 * MINUTE * index as u32;
            (!judge.judge(now, seen).is_empty()).then_some(index)
        });
        said.collect()
    }

    #[test]
    fn a_long_history_that_was_never_compacted_is_told_at_once_and_once_a_day() {
        assert_eq!(check((0..600).map(|look| seen(1_000_000 + look, 0))), [0, 288, 576]);
        assert_eq!(check([seen(999_999, 0)]), NEVER);
    }

    #[test]
    fn a_history_that_grows_for_hours_without_a_compaction_is_told() {
        assert_eq!(check((0..60).map(|look| seen(10_000 * look, 1))), [36]);
        // Nobody writes, or somebody compacts every hour.
        assert_eq!(check((0..60).map(|look| seen(100 * look, 1))), NEVER);
        assert_eq!(check((0..60).map(|look| seen(10_000 * look, look / 12))), NEVER);
    }

    #[test]
    fn another_history_is_watched_anew() {
        let before = (0..30).map(|look| seen(500_000 + 10_000 * look, 7));
        assert_eq!(check(before.chain((0..30).map(|look| seen(10_000 * look, 7)))), NEVER);
    }

    #[test]
    fn a_database_near_its_quota_is_told_and_again_when_it_comes_back() {
        let of_bytes = |database_bytes| Seen { database_bytes, ..seen(1, 0) };
        let (low, high) = (of_bytes(6 << 30), of_bytes(7 << 30));
        assert_eq!(check([low, high, high, low, high]), [1, 4]);
        let unknown = Seen { quota_bytes: 0, ..of_bytes(1_800_000_000) };
        assert_eq!(check([unknown]), [0]);
    }

    #[test]
    fn a_full_database_is_an_error() {
        let full = Seen { is_full: true, ..seen(1, 0) };
        assert_eq!(Judge::default().judge(Instant::now(), full), [Warning::Full(full)]);
    }
}
