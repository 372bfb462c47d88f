//! What a measurement costs etcd, from the counters that it shows at `/metrics`.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

/// What is counted, under the names that our tables have, and etcd's names for it. Some are
/// counted by label, such as the method of a call, and are added up.
const COUNTERS: [(&str, &str); 10] = [
    ("Raft entries", "etcd_server_proposals_committed_total"),
    ("WAL fsyncs", "etcd_disk_wal_fsync_duration_seconds_count"),
    ("WAL bytes", "etcd_disk_wal_write_bytes_total"),
    ("database commits", "etcd_disk_backend_commit_duration_seconds_count"),
    ("puts", "etcd_mvcc_put_total"),
    ("deletes", "etcd_mvcc_delete_total"),
    ("leases granted", "etcd_debugging_lease_granted_total"),
    ("leases revoked", "etcd_debugging_lease_revoked_total"),
    ("leases renewed", "etcd_debugging_lease_renewed_total"),
    ("bytes sent", "etcd_network_client_grpc_sent_bytes_total"),
];

/// The names, in the order of the tables.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    COUNTERS.iter().map(|(name, _)| *name)
}

/// The counters' values, by our names.
pub(crate) type Counts = BTreeMap<String, f64>;

/// Asks an etcd for its counters.
pub(crate) fn read(addr: SocketAddr) -> Result<Counts> {
    let ask = || -> Result<String> {
        let mut stream = TcpStream::connect_timeout(&addr, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let answer = ask().with_context(|| format!("read the metrics of etcd at {addr}"))?;
    let counts = parse(&answer);
    ensure!(counts.values().any(|count| *count > 0.0), "etcd at {addr} shows no counters");
    Ok(counts)
}

const PATIENCE: Duration = Duration::from_secs(10);

/// Waits until nothing is written any more: sessions get their keys a while after they began. What
/// comes again and again, such as renewals, does not count.
///
/// # Errors
/// It does not become quiet.
pub(crate) fn settled(addr: SocketAddr) -> Result<Counts> {
    let mut before = read(addr)?;
    for _ in 0..SETTLED_LOOKS_MAX {
        thread::sleep(QUIET);
        let now = read(addr)?;
        if WRITTEN.iter().all(|name| before.get(*name) == now.get(*name)) {
            return Ok(now);
        }
        before = now;
    }
    bail!("etcd at {addr} does not come to rest")
}

/// What a write shows in.
const WRITTEN: [&str; 3] = ["Raft entries", "puts", "leases granted"];
/// Longer than zkshim lets a session wait for its key.
const QUIET: Duration = Duration::from_millis(1500);
const SETTLED_LOOKS_MAX: usize = 40;

/// What was counted between two readings.
pub(crate) fn between(before: &Counts, after: &Counts) -> Counts {
    let grown = |(name, after): (&String, &f64)| {
        (name.clone(), after - before.get(name).copied().unwrap_or(0.0))
    };
    after.iter().map(grown).collect()
}

/// The same for each of so many.
pub(crate) fn each(counts: Counts, of: f64) -> Counts {
    counts.into_iter().map(|(name, count)| (name, count / of)).collect()
}

/// Reads Prometheus' text: `name{labels} value`.
fn parse(text: &str) -> Counts {
    let mut counts: Counts = names().map(|name| (name.to_owned(), 0.0)).collect();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((left, value)) = line.rsplit_once(' ') else { continue };
        let counter = left.split('{').next().unwrap_or(left);
        let known = COUNTERS.iter().find(|(_, theirs)| *theirs == counter);
        if let (Some((name, _)), Ok(value)) = (known, value.parse::<f64>()) {
            *counts.entry((*name).to_owned()).or_default() += value;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_and_added_up_over_their_labels() {
        let text = "HTTP/1.0 200 OK\r\n\r\n# TYPE etcd_mvcc_put_total counter\n\
                    etcd_mvcc_put_total 1.5e+01\netcd_mvcc_put_total_else 9\n\
                    etcd_mvcc_delete_total{a=\"b c\"} 2\netcd_mvcc_delete_total{a=\"d\"} 3\n";
        let counts = parse(text);
        assert_eq!((counts["puts"], counts["deletes"], counts["WAL fsyncs"]), (15.0, 5.0, 0.0));
        let later = parse("etcd_mvcc_put_total 20\n");
        assert_eq!(between(&counts, &later)["puts"], 5.0);
    }
}
