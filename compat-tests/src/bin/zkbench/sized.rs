//! What servers take when they are full, as `tools/bench` has measured it: a table of the page.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// A server's memory with much in it, and its start. Of ZooKeeper it is the heap that is in use,
/// of others what is resident.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sized {
    /// Which code, and when.
    pub(crate) run: String,
    /// The server.
    pub(crate) server: String,
    /// How many znodes.
    pub(crate) znodes: u64,
    /// How many sessions, that do nothing.
    pub(crate) sessions: u64,
    /// Why not as many sessions as were asked for; empty if they are.
    pub(crate) limited: String,
    /// With nothing in it.
    pub(crate) empty_kib: u64,
    /// With the znodes.
    pub(crate) filled_kib: u64,
    /// With the znodes, after a new start.
    pub(crate) started_kib: u64,
    /// With the sessions beside the znodes.
    pub(crate) joined_kib: u64,
    /// What is resident of the etcd behind it, with the znodes; 0 if there is none.
    pub(crate) etcd_kib: u64,
    /// Until it served again after the new start.
    pub(crate) start_ms: u64,
    /// Processor time of all its processes until then.
    pub(crate) start_cpu_ms: u64,
    /// Processor time of all its processes for the ping of an idle session.
    pub(crate) ping_us: f64,
}

impl Sized {
    fn znode_bytes(&self, with_kib: u64) -> f64 {
        self.bytes_each(self.empty_kib, with_kib, self.znodes)
    }

    /// What a session takes, with its connection.
    pub(crate) fn session_bytes(&self) -> f64 {
        self.bytes_each(self.started_kib, self.joined_kib, self.sessions)
    }

    fn bytes_each(&self, without_kib: u64, with_kib: u64, count: u64) -> f64 {
        (with_kib as f64 - without_kib as f64) * 1024.0 / count.max(1) as f64
    }
}

/// Reads a file of such lines of JSON; the last line about a server counts.
pub(crate) fn parse(lines: &str) -> Result<Vec<Sized>> {
    let mut all: Vec<Sized> = Vec::new();
    for line in lines.lines().filter(|line| !line.trim().is_empty()) {
        let one: Sized = serde_json::from_str(line).context("read the sizes")?;
        all.retain(|other| other.server != one.server);
        all.push(one);
    }
    Ok(all)
}

/// The section of the page.
pub(crate) fn section(sizes: &[Sized]) -> String {
    let Some(first) = sizes.first() else { return String::new() };
    let limited = if first.limited.is_empty() {
        String::new()
    } else {
        format!("\nNot more sessions: {}.", first.limited)
    };
    let rows = sizes.iter().map(|one| {
        let etcd = if one.etcd_kib == 0 { "".into() } else { (one.etcd_kib / 1024).to_string() };
        format!(
            "| {} | {} | {:.0} | {:.0} | {:.0} | {etcd} | {:.1} | {:.1} | {:.0} |\n",
            one.server,
            one.filled_kib / 1024,
            one.znode_bytes(one.filled_kib),
            one.znode_bytes(one.started_kib),
            one.session_bytes(),
            one.start_ms as f64 / 1e3,
            one.start_cpu_ms as f64 / 1e3,
            one.ping_us,
        )
    });
    format!(
        "\n## Memory, and the time of a start\n\n\
         {} znodes of 100 bytes, a thousand under each parent; then a new start; then {} sessions \
         with a connection each, that do nothing. Measured once.{limited}\n\
         Memory is ZooKeeper's heap in use, after a collection (its process has about twice as \
         much), and what is resident of zkshim, whose allocator is told to give back at once what \
         is free. What etcd holds beside it has a column of its own.\n\n\
         | server | MiB with the znodes | bytes a znode | the same after a start | bytes a session \
         | etcd's MiB | s until it serves | s of CPU for it, etcd's too | CPU µs a ping |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|\n{}",
        first.znodes,
        first.sessions,
        rows.collect::<String>()
    )
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A server with a million znodes and a thousand sessions.
    pub(crate) fn sized(server: &str, filled_kib: u64) -> Sized {
        Sized {
            run: "now".into(),
            server: server.into(),
            znodes: 1_000_000,
            sessions: 1000,
            limited: String::new(),
            empty_kib: 1024,
            filled_kib,
            started_kib: filled_kib,
            joined_kib: filled_kib + 4000,
            etcd_kib: 0,
            start_ms: 2500,
            start_cpu_ms: 3000,
            ping_us: 30.0,
        }
    }

    #[test]
    fn memory_is_told_for_each() {
        let page = section(&[sized("zkshim", 1024 + 244_141)]);
        assert!(page.contains("| zkshim | 239 | 250 | 250 | 4096 |  | 2.5 | 3.0 | 30 |"), "{page}");
    }

    #[test]
    fn the_last_line_about_a_server_counts() {
        let lines: Vec<String> = [sized("a", 5), sized("b", 6), sized("a", 7)]
            .iter()
            .map(|one| serde_json::to_string(one).expect("plain data"))
            .collect();
        let read = parse(&lines.join("\n")).expect("our own lines");
        assert_eq!(read, [sized("b", 6), sized("a", 7)]);
    }
}
