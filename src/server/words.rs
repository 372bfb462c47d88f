//! Answers four-letter words: collects the values, from the core through the driver and from
//! what the server counts itself.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tokio::runtime::Handle;

use crate::driver::Stopped;
use crate::keeper::output::Status;
use crate::keeper::request::{ConnectionId, SessionId};
use crate::server::{Shared, environment, unix_ms};
use crate::wire::four_letter::dump::{Bucket, dump};
use crate::wire::four_letter::monitor::{Monitor, mntr};
use crate::wire::four_letter::{self, Configuration, Server, Word};

/// A connection that was closed if it stayed silent: the grain in which `dump` shows them.
const SILENCE_GRAIN_MS: i64 = 10_000;

/// The text for a word. `asking` is the connection that sent it, `argument` what came after it.
pub async fn answer(
    word: Word,
    argument: Option<[u8; 8]>,
    shared: &Shared,
    asking: ConnectionId,
) -> String {
    if !shared.options.words.allows(word) {
        return four_letter::not_allowed(word);
    }
    tracing::info!(word = word.name(), "answering a four-letter word");
    match word {
        Word::Ruok => "imok".to_owned(),
        Word::Envi => four_letter::envi(&environment::entries(&shared.options.shown.version)),
        Word::Gtmk => shared.trace_mask.load(Relaxed).to_string(),
        Word::Stmk => {
            let mask = argument.map_or(0, i64::from_be_bytes);
            shared.trace_mask.store(mask, Relaxed);
            mask.to_string()
        }
        Word::TelnetClose => String::new(),
        Word::Conf
        | Word::Cons
        | Word::Crst
        | Word::Dirs
        | Word::Dump
        | Word::Hash
        | Word::Isro
        | Word::Mntr
        | Word::Srst
        | Word::Srvr
        | Word::Stat
        | Word::Wchc
        | Word::Wchp
        | Word::Wchs => {
            let answer = match shared.driver.status().await {
                Ok(status) if status.serving => serving(word, shared, asking, &status).await,
                Ok(_) | Err(Stopped) => Err(Stopped),
            };
            answer.unwrap_or_else(|Stopped| four_letter::not_serving(word).unwrap_or_default())
        }
    }
}

async fn serving(
    word: Word,
    shared: &Shared,
    asking: ConnectionId,
    status: &Status,
) -> Result<String, Stopped> {
    Ok(match word {
        Word::Isro => "rw".to_owned(),
        // There are no digests of a history that etcd keeps.
        Word::Hash | Word::Ruok | Word::Envi | Word::Gtmk | Word::Stmk | Word::TelnetClose => {
            String::new()
        }
        Word::Conf => four_letter::conf(&configuration(shared).await),
        Word::Dirs => four_letter::dirs(data_bytes(shared).await, data_bytes(shared).await),
        Word::Srvr => four_letter::srvr(&server(shared, status)),
        Word::Stat => four_letter::stat(&server(shared, status), &connections(shared, asking)),
        Word::Cons => four_letter::cons(&connections(shared, asking)),
        Word::Mntr => mntr(&monitor(shared, status)),
        Word::Crst => {
            let now_ms = shared.now_ms();
            for (_, figures) in shared.registry.all() {
                figures.reset(now_ms);
            }
            "Connection stats reset.\n".to_owned()
        }
        Word::Srst => {
            shared.figures.reset();
            "Server stats reset.\n".to_owned()
        }
        Word::Dump => sessions(shared).await?,
        Word::Wchs => four_letter::wchs(
            status.watching_connections,
            status.watched_paths,
            status.data_watches,
        ),
        Word::Wchc => watches(shared, four_letter::wchc).await?,
        Word::Wchp => watches(shared, four_letter::wchp).await?,
    })
}

fn server(shared: &Shared, status: &Status) -> Server {
    Server {
        version: shared.options.shown.version.clone(),
        latency: shared.figures.latency.read(),
        received: shared.figures.received.load(Relaxed),
        sent: shared.figures.sent.load(Relaxed),
        connections: shared.registry.count(),
        outstanding: shared.outstanding.requests(),
        zxid: status.zxid,
        mode: "standalone",
        znodes: status.znodes,
    }
}

fn connections(shared: &Shared, asking: ConnectionId) -> Vec<four_letter::Connection> {
    let all = shared.registry.all();
    all.iter().map(|(connection, figures)| figures.shown(*connection == asking)).collect()
}

fn monitor(shared: &Shared, status: &Status) -> Monitor {
    let figures = &shared.figures;
    Monitor {
        server: server(shared, status),
        ephemerals: status.ephemerals,
        watches: status.watches,
        approximate_data_size: status.approximate_data_size,
        sessions: status.sessions,
        uptime_ms: u128::from(shared.now_ms()),
        open_files: environment::open_files(),
        open_files_max: environment::open_files_max(),
        last_response_bytes: figures.last_response_bytes.load(Relaxed),
        min_response_bytes: figures.min_response_bytes.load(Relaxed),
        max_response_bytes: figures.max_response_bytes.load(Relaxed),
        read_latency: figures.read_latency.read(),
        update_latency: figures.update_latency.read(),
        bytes_received: figures.bytes_received.load(Relaxed),
        bytes_sent: figures.bytes_sent.load(Relaxed),
        connection_requests: figures.connection_requests.load(Relaxed),
        connections_rejected: figures.connections_rejected.load(Relaxed),
        connections_dropped: figures.connections_dropped.load(Relaxed),
        sessionless_expired: figures.sessionless_expired.load(Relaxed),
        tasks: Handle::current().metrics().num_alive_tasks(),
    }
}

async fn configuration(shared: &Shared) -> Configuration {
    let shown = &shared.options.shown;
    let ms = |duration: std::time::Duration| u64::try_from(duration.as_millis()).unwrap_or(0);
    Configuration {
        client_port: shared.listen_port,
        data_dir: shown.data.clone(),
        data_bytes: data_bytes(shared).await,
        tick_ms: ms(shown.tick),
        connections_per_address_max: shared.options.connections_per_address_max,
        session_timeout_min_ms: ms(shown.session_timeout_min),
        session_timeout_max_ms: ms(shown.session_timeout_max),
    }
}

/// The size of the data directory; 0 if there is none, or it cannot be read.
async fn data_bytes(shared: &Shared) -> u64 {
    let Some(dir) = shared.options.shown.data_dir.clone() else { return 0 };
    let size = tokio::task::spawn_blocking(move || directory_bytes(&dir)).await;
    size.map_or(0, Result::unwrap_or_default)
}

fn directory_bytes(dir: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { directory_bytes(&entry.path())? } else { metadata.len() };
    }
    Ok(bytes)
}

/// Sorted and written on a thread of its own: there may be a million.
async fn watches<T>(shared: &Shared, text: T) -> Result<String, Stopped>
where
    T: FnOnce(&[(SessionId, Arc<str>)]) -> String + Send + 'static,
{
    let mut watches = shared.driver.watches().await?.entries;
    let written = tokio::task::spawn_blocking(move || {
        watches.sort_unstable();
        watches.dedup();
        text(&watches)
    });
    Ok(written.await.unwrap_or_default())
}

async fn sessions(shared: &Shared) -> Result<String, Stopped> {
    let sessions = shared.driver.sessions().await?;
    let now_unix_ms = unix_ms();
    let now = shared.driver.now();
    let deadlines = sessions.iter().filter_map(|session| {
        let left = session.deadline?.saturating_sub(now.monotonic);
        let left_ms = i64::try_from(left.as_millis()).unwrap_or(i64::MAX);
        Some((now_unix_ms.saturating_add(left_ms), session.session))
    });
    let by_deadline = Bucket::sorted(deadlines.collect());
    let ephemerals: Vec<(SessionId, Vec<String>)> = sessions
        .iter()
        .filter(|session| !session.ephemerals.is_empty())
        .map(|session| (session.session, session.ephemerals.clone()))
        .collect();
    Ok(dump(&by_deadline, &ephemerals, &silent_connections(shared, now_unix_ms)))
}

/// The connections by the moment when they would be closed if nothing more came.
fn silent_connections(
    shared: &Shared,
    now_unix_ms: i64,
) -> Vec<Bucket<(std::net::SocketAddr, SessionId)>> {
    let all = shared.registry.all();
    let now_ms = shared.now_ms();
    let moments = all.iter().map(|(_, figures)| {
        let (last_read_ms, timeout_ms) = figures.last_read_and_timeout_ms();
        let silent_ms = i64::try_from(now_ms.saturating_sub(last_read_ms)).unwrap_or(i64::MAX);
        let timeout_ms = timeout_ms.map_or(SILENCE_GRAIN_MS, i64::from);
        let end = now_unix_ms.saturating_sub(silent_ms).saturating_add(timeout_ms);
        let bucket = (end / SILENCE_GRAIN_MS + 1).saturating_mul(SILENCE_GRAIN_MS);
        (bucket, (figures.peer(), figures.session()))
    });
    Bucket::sorted(moments.collect())
}
