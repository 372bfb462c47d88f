//! What the servers of a soak hold, and the judgement on it.

use std::fs;
use std::time::Duration;

use anyhow::Result;

use crate::faults::admin::Admin;
use crate::faults::cluster::Cluster;
use crate::servers::process::ask;

/// The later median may be above the earlier one by so much: a tenth, and a few pages of the
/// allocator.
const GROWTH_PERCENT: u64 = 10;
const GROWTH_KIB: u64 = 4 * 1024;

/// What one shim holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Which of its lives it is.
    pub pid: u32,
    /// Resident memory.
    pub rss_kib: u64,
    /// Open files.
    pub files: u64,
    /// Threads.
    pub threads: u64,
    /// Tasks of the runtime (`mntr`).
    pub tasks: u64,
    /// Connections (`mntr`), the one that asks among them.
    pub connections: u64,
    /// Sessions of all shims, as this one knows them.
    pub sessions: u64,
    /// Watches.
    pub watches: u64,
    /// Znodes.
    pub znodes: u64,
    /// Ephemerals among them.
    pub ephemerals: u64,
}

/// A figure by name, and by how much it may be above what it was.
type Figure = (&'static str, fn(&Held) -> u64, u64);

/// What all hold at one moment.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Since the load began.
    pub at: Duration,
    /// By shim; `None` is one that did not answer.
    pub shims: Vec<Option<Held>>,
    /// Leases in etcd, if it answered.
    pub leases: Option<usize>,
    /// Keys of the shims in etcd.
    pub keys: Option<Vec<String>>,
}

impl Sample {
    /// One line for the log.
    #[must_use]
    pub fn line(&self) -> String {
        let shims = self.shims.iter().map(|held| match held {
            None => "(no answer)".to_owned(),
            Some(held) => format!(
                "{} KiB {} files {} threads {} tasks {} conns {} watches",
                held.rss_kib, held.files, held.threads, held.tasks, held.connections, held.watches
            ),
        });
        let shims: Vec<_> = shims.collect();
        let shared = self.shims.iter().flatten().next().copied().unwrap_or_default();
        format!(
            "{:5} s | {} | {} sessions {} znodes {} ephemerals | {} keys {} leases",
            self.at.as_secs(),
            shims.join(" | "),
            shared.sessions,
            shared.znodes,
            shared.ephemerals,
            self.keys.as_ref().map_or("?".to_owned(), |keys| keys.len().to_string()),
            self.leases.map_or("?".to_owned(), |leases| leases.to_string()),
        )
    }
}

/// Asks all servers and the system.
#[must_use]
pub fn sample(cluster: &Cluster, admin: &Admin, at: Duration) -> Sample {
    let shims = cluster.shims.iter().map(|shim| {
        let text = ask(shim.process.address(), b"mntr");
        held(shim.process.pid(), &text)
    });
    let shims = shims.collect();
    let keys = admin.keys("/zkshim/");
    Sample { at, shims, leases: admin.leases().ok(), keys: keys.ok() }
}

fn held(pid: u32, mntr: &str) -> Option<Held> {
    let figure = |name: &str| {
        let line = mntr.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('\t'));
        line?.parse().ok()
    };
    let (rss_kib, threads) = memory_and_threads(pid).ok()?;
    Some(Held {
        pid,
        rss_kib,
        threads,
        files: figure("zk_open_file_descriptor_count")?,
        tasks: figure("zk_alive_tasks")?,
        connections: figure("zk_num_alive_connections")?,
        sessions: figure("zk_global_sessions")?,
        watches: figure("zk_watch_count")?,
        znodes: figure("zk_znode_count")?,
        ephemerals: figure("zk_ephemerals_count")?,
    })
}

/// Resident KiB and threads of a process.
///
/// # Errors
/// It is gone.
pub fn memory_and_threads(pid: u32) -> Result<(u64, u64)> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let figure = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    };
    Ok((figure("VmRSS:"), figure("Threads:")))
}

/// What grew in a shim that lived throughout, between the first and the second half of the time
/// after the warm-up.
#[must_use]
pub fn not_flat(samples: &[Sample], shim: usize, warm_up: Duration) -> Vec<String> {
    let of_shim = |sample: &Sample| Some((sample.at, sample.shims.get(shim).copied()??));
    let lived: Vec<_> = samples.iter().filter_map(of_shim).collect();
    let (Some(first), Some(last)) = (lived.first(), lived.last()) else {
        return vec![format!("shim {shim} was never seen")];
    };
    if first.1.pid != last.1.pid {
        return vec![format!("shim {shim} has died, and nobody killed it")];
    }
    let middle = warm_up + last.0.saturating_sub(warm_up) / 2;
    let halves = |figure: fn(&Held) -> u64| {
        let within = |from: Duration, to: Duration| {
            let some = lived.iter().filter(move |(at, _)| (from..to).contains(at));
            median(some.map(|(_, held)| figure(held)).collect())
        };
        (within(warm_up, middle), within(middle, Duration::MAX))
    };
    let figures: [Figure; 4] = [
        ("KiB", |held| held.rss_kib, GROWTH_KIB),
        ("files", |held| held.files, 10),
        ("threads", |held| held.threads, 2),
        ("tasks", |held| held.tasks, 10),
    ];
    let mut grown = Vec::new();
    for (name, figure, slack) in figures {
        match halves(figure) {
            (Some(earlier), Some(later)) => {
                println!("shim {shim}: {name}: median {earlier}, then {later}");
                if later > earlier + earlier * GROWTH_PERCENT / 100 + slack {
                    grown.push(format!("shim {shim}: {name} grew from {earlier} to {later}"));
                }
            }
            _ => grown.push(format!("shim {shim}: too few samples of {name}")),
        }
    }
    grown
}

fn median(mut values: Vec<u64>) -> Option<u64> {
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

/// What is left of a load that has ended, beside what was there before it began.
#[must_use]
pub fn left_behind(now: &Sample, before: &Sample) -> Vec<String> {
    let mut left = Vec::new();
    for (shim, (now, before)) in now.shims.iter().zip(&before.shims).enumerate() {
        let (Some(now), Some(before)) = (now, before) else {
            left.push(format!("shim {shim} does not answer"));
            continue;
        };
        let figures: [Figure; 8] = [
            ("files", |held| held.files, 4),
            ("threads", |held| held.threads, 4),
            // Some of the streams to etcd are opened when they are first needed.
            ("tasks", |held| held.tasks, 16),
            ("connections", |held| held.connections, 0),
            ("sessions", |held| held.sessions, 0),
            ("watches", |held| held.watches, 0),
            ("znodes", |held| held.znodes, 0),
            ("ephemerals", |held| held.ephemerals, 0),
        ];
        for (name, figure, slack) in figures {
            if figure(now) > figure(before) + slack {
                left.push(format!(
                    "shim {shim}: {} {name}, {} before",
                    figure(now),
                    figure(before)
                ));
            }
        }
    }
    match (now.leases, before.leases) {
        (Some(now), Some(before)) if now <= before => {}
        (now, before) => left.push(format!("{now:?} leases in etcd, {before:?} before")),
    }
    match &now.keys {
        Some(keys) => left.extend(strays(keys)),
        None => left.push("etcd does not tell its keys".to_owned()),
    }
    left
}

/// Keys that belong to nothing: of sessions, as there are none, of claims that are over, and of
/// znodes that are gone. The steps of multis (`x`) are overwritten by those of the next batch, and
/// go with their shim.
fn strays(keys: &[String]) -> Vec<String> {
    let rests = keys.iter().filter_map(|key| key.strip_prefix("/zkshim/"));
    let znodes: Vec<&str> = rests.clone().filter_map(|key| key.strip_prefix('n')).collect();
    let built_in = |path: &str| path == "/" || path.starts_with("/zookeeper");
    let stray = |key: &&str| {
        let mut letters = key.chars();
        match letters.next() {
            Some('c' | 'a' | 'p') => {
                !built_in(letters.as_str()) && !znodes.contains(&letters.as_str())
            }
            Some('s' | 'w') => true,
            _ => false,
        }
    };
    let found: Vec<&str> = rests.filter(stray).collect();
    if found.is_empty() {
        return Vec::new();
    }
    let some: Vec<_> = found.iter().take(5).collect();
    vec![format!("{} keys in etcd belong to nothing: {some:?} ...", found.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64, rss_kib: u64) -> Sample {
        let held = Held { pid: 7, rss_kib, ..Held::default() };
        Sample { at: Duration::from_secs(seconds), shims: vec![Some(held)], ..Sample::default() }
    }

    #[test]
    fn memory_that_rises_and_falls_is_flat_and_memory_that_rises_is_not() {
        let waves: Vec<_> = (0..100).map(|n| at(n, 50_000 + (n % 7) * 2_000)).collect();
        assert_eq!(not_flat(&waves, 0, Duration::from_secs(10)), Vec::<String>::new());
        let rising: Vec<_> = (0..100).map(|n| at(n, 50_000 + n * 500)).collect();
        assert_eq!(not_flat(&rising, 0, Duration::from_secs(10)).len(), 1);
    }

    #[test]
    fn a_shim_that_died_is_not_flat() {
        let mut samples: Vec<_> = (0..9).map(|n| at(n, 50_000)).collect();
        samples.extend(samples.last().cloned());
        if let Some(Some(held)) = samples.last_mut().and_then(|last| last.shims.first_mut()) {
            held.pid = 8;
        }
        assert_eq!(not_flat(&samples, 0, Duration::ZERO).len(), 1);
    }

    #[test]
    fn what_was_not_there_before_is_left_behind() {
        let held = Held { watches: 1, ..Held::default() };
        let now = Sample { shims: vec![Some(held)], ..Sample::default() };
        let before = Sample { shims: vec![Some(Held::default())], ..Sample::default() };
        let keys = |keys: &[&str]| Some(keys.iter().map(|key| format!("/zkshim/{key}")).collect());
        let told = |sample: Sample, names: &[&str]| Sample {
            leases: Some(3),
            keys: keys(names),
            ..sample
        };
        let clean = ["n/a", "c/a", "c/", "p/zookeeper", "x00ff", "e00ff", "k", "meta"];
        let before = told(before, &clean);
        assert_eq!(left_behind(&before, &before), Vec::<String>::new());
        let left = left_behind(&told(now, &clean), &before);
        assert_eq!(left, ["shim 0: 1 watches, 0 before"]);
        let strays = ["n/a", "c/b", "s00ff", "x00ff/00ff", "wn/a/00ff"];
        let left = left_behind(&told(before.clone(), &strays), &before);
        assert_eq!(
            left,
            ["3 keys in etcd belong to nothing: [\"c/b\", \"s00ff\", \"wn/a/00ff\"] ..."]
        );
    }
}
