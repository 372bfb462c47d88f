//! What a measurement is: a window of time after a warm-up, what was counted in it, and the
//! processor time that the servers spent in it.

use std::net::SocketAddr;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::costs::{self, Counts};
use crate::processes::{Process, Spent};

/// The span of time in which operations count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    opens: Instant,
    closes: Instant,
}

impl Window {
    /// Whether an operation that ended at `now` counts.
    pub(crate) fn contains(&self, now: Instant) -> bool {
        self.opens <= now && now < self.closes
    }

    /// Whether nothing new should be started.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        now >= self.closes
    }

    /// When to stop.
    pub(crate) fn closes(&self) -> Instant {
        self.closes
    }
}

/// Counts and latencies of one worker, or of many once absorbed.
#[derive(Debug)]
pub(crate) struct Tally {
    /// Operations that ended within the window.
    pub(crate) ops: u64,
    latency_ns: Histogram<u64>,
}

impl Tally {
    /// Nothing counted.
    pub(crate) fn new() -> Self {
        let latency_ns = Histogram::new(3).expect("three digits are allowed");
        Self { ops: 0, latency_ns }
    }

    /// Counts one operation, if it ended within the window.
    pub(crate) fn record(&mut self, window: &Window, started: Instant, ended: Instant) {
        self.record_many(1, window, started, ended);
    }

    /// Counts `ops` operations that together took one latency, as the events of one change do.
    pub(crate) fn record_many(&mut self, ops: u64, window: &Window, from: Instant, to: Instant) {
        if window.contains(to) {
            self.ops += ops;
            let ns = u64::try_from(to.saturating_duration_since(from).as_nanos());
            self.latency_ns += ns.unwrap_or(u64::MAX).max(1);
        }
    }

    /// Adds another worker's counts.
    pub(crate) fn absorb(&mut self, other: &Self) {
        self.ops += other.ops;
        self.latency_ns += &other.latency_ns;
    }

    /// Of all that was counted.
    pub(crate) fn latency(&self) -> Latency {
        let us = |ns: u64| Duration::from_nanos(ns).as_secs_f64() * 1e6;
        let at = |quantile: f64| us(self.latency_ns.value_at_quantile(quantile));
        Latency {
            mean_us: self.latency_ns.mean() / 1e3,
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: us(self.latency_ns.max()),
        }
    }
}

/// Opens windows, and reads the processes' clocks when they open and close.
#[derive(Debug)]
pub(crate) struct Meter {
    /// The window that was opened.
    pub(crate) window: Window,
    /// What etcd counted for each session before it opened, from the first connect on.
    pub(crate) etcd_start_per_session: Option<Counts>,
    readings: JoinHandle<Result<Readings>>,
}

/// Whom to ask what a measurement cost.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watched {
    /// Their processor time is read.
    pub(crate) processes: Vec<Process>,
    /// Its counters are read.
    pub(crate) etcd: Option<SocketAddr>,
}

/// What they said, between the beginning of the window and its end.
#[derive(Debug)]
struct Readings {
    /// With processor time in microseconds, and memory in KiB at the end.
    processes: Vec<(Process, u64, u64)>,
    etcd: Option<Counts>,
}

impl Meter {
    /// Starts the warm-up now. The readings have a thread of their own, so that a busy load
    /// generator does not delay them.
    pub(crate) fn start(warm_up: Duration, duration: Duration, watched: &Watched) -> Self {
        let opens = Instant::now() + warm_up;
        let window = Window { opens, closes: opens + duration };
        let watched = watched.clone();
        let readings = thread::spawn(move || read_clocks(window, watched));
        Self { window, etcd_start_per_session: None, readings }
    }

    /// Waits for the readings and divides by the operations counted.
    pub(crate) fn finish(self, tally: &Tally) -> Result<Figures> {
        let readings = self.readings.join().map_err(|_| anyhow!("the readings panicked"))?;
        let readings = readings.context("read processor times")?;
        let seconds = (self.window.closes - self.window.opens).as_secs_f64();
        let ops = tally.ops.max(1) as f64;
        let etcd_per_op = readings.etcd.map(|counts| costs::each(counts, ops));
        let spent = readings.processes.into_iter().map(|(process, cpu_us, resident_kib)| Spent {
            name: process.name,
            cpu_us,
            cpu_us_per_op: cpu_us as f64 / ops,
            resident_kib,
        });
        Ok(Figures {
            seconds,
            ops: tally.ops,
            ops_per_second: tally.ops as f64 / seconds,
            latency: tally.latency(),
            processes: spent.collect(),
            etcd_per_op,
            etcd_start_per_session: self.etcd_start_per_session,
        })
    }
}

fn read_clocks(window: Window, watched: Watched) -> Result<Readings> {
    let Watched { processes, etcd } = watched;
    let cpu_us = || processes.iter().map(Process::cpu_us).collect::<Result<Vec<_>>>();
    thread::sleep(window.opens.saturating_duration_since(Instant::now()));
    let counts = || etcd.map(costs::read).transpose();
    let (before, counted) = (cpu_us()?, counts()?);
    thread::sleep(window.closes.saturating_duration_since(Instant::now()));
    let (after, counted_after) = (cpu_us()?, counts()?);
    let resident = processes.iter().map(Process::resident_kib).collect::<Result<Vec<_>>>()?;
    let spent = before.into_iter().zip(after).map(|(before, after)| after.saturating_sub(before));
    let figures = spent.zip(resident);
    let processes = processes.into_iter().zip(figures);
    Ok(Readings {
        processes: processes.map(|(process, (us, kib))| (process, us, kib)).collect(),
        etcd: counted.zip(counted_after).map(|(before, after)| costs::between(&before, &after)),
    })
}

/// Latencies in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) mean_us: f64,
    pub(crate) p50_us: f64,
    pub(crate) p90_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    pub(crate) max_us: f64,
}

/// What one window showed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figures {
    /// Length of the window.
    pub(crate) seconds: f64,
    /// Operations that ended within it.
    pub(crate) ops: u64,
    /// The same for each second.
    pub(crate) ops_per_second: f64,
    /// From sending to the reply, or as the workload defines it.
    pub(crate) latency: Latency,
    /// The processes watched; the load generator itself is the last one.
    pub(crate) processes: Vec<Spent>,
    /// What etcd counted for an operation, if it was asked.
    #[serde(default)]
    pub(crate) etcd_per_op: Option<Counts>,
    /// What it counted for each session while they all began, where that was looked at.
    #[serde(default)]
    pub(crate) etcd_start_per_session: Option<Counts>,
}

impl Figures {
    /// What etcd counted in a second.
    pub(crate) fn etcd_per_second(&self, name: &str) -> Option<f64> {
        let per_op = *self.etcd_per_op.as_ref()?.get(name)?;
        Some(per_op * self.ops.max(1) as f64 / self.seconds)
    }

    /// Processor time of all servers for an operation, in microseconds; `None` if none is watched.
    pub(crate) fn servers_cpu_us_per_op(&self) -> Option<f64> {
        let own = Process::own().name;
        let servers = self.processes.iter().filter(|spent| spent.name != own);
        let each: Vec<f64> = servers.map(|spent| spent.cpu_us_per_op).collect();
        (!each.is_empty()).then(|| each.iter().sum())
    }
}

/// One line of a results file: the figures, and what they are figures of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measurement {
    /// The run that it belongs to: which code, and when.
    #[serde(default)]
    pub(crate) run: String,
    /// What was measured, as named by `--label`.
    pub(crate) target: String,
    /// Measurements of the same round ran next to each other and are compared.
    pub(crate) round: u32,
    /// The workload's name.
    pub(crate) workload: String,
    /// Connections, or watchers, or sessions.
    pub(crate) connections: usize,
    /// Requests under way on each connection.
    pub(crate) in_flight: usize,
    /// Operations started each second, if an open loop was asked for.
    pub(crate) rate: Option<f64>,
    /// The result.
    pub(crate) figures: Figures,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_ends_within_the_window_counts() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let window = Window { opens: at(10), closes: at(20) };
        let mut tally = Tally::new();
        for ended in [5, 10, 15, 20] {
            tally.record(&window, start, at(ended));
        }
        assert_eq!(tally.ops, 2);
        let mut sum = Tally::new();
        sum.absorb(&tally);
        assert_eq!(sum.ops, 2);
        let latency = sum.latency();
        assert!((latency.max_us - 15_000.0).abs() < 50.0, "{latency:?}");
    }

    #[test]
    fn own_processor_time_is_left_out_of_the_sum() {
        let spent = |name: &str| Spent {
            name: name.into(),
            cpu_us: 40,
            cpu_us_per_op: 2.0,
            resident_kib: 1,
        };
        let mut figures = Figures {
            seconds: 1.0,
            ops: 20,
            ops_per_second: 20.0,
            latency: Latency::default(),
            processes: vec![spent("etcd"), spent("zkshim"), spent("zkbench")],
            etcd_per_op: None,
            etcd_start_per_session: None,
        };
        assert_eq!(figures.servers_cpu_us_per_op(), Some(4.0));
        figures.processes.drain(..2);
        assert_eq!(figures.servers_cpu_us_per_op(), None);
    }
}
