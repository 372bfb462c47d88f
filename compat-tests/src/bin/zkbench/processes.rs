//! Processor time and memory of the servers under test, from Linux's `/proc`.

use std::fs;
use std::str::FromStr;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// Microseconds in a tick of `/proc/PID/stat`: Linux shows user space 100 ticks a second.
const TICK_US: u64 = 10_000;

/// A process to watch, written `NAME=PID`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    /// What the tables call it.
    pub(crate) name: String,
    /// Its number.
    pub(crate) pid: u32,
}

impl Process {
    /// This process.
    pub(crate) fn own() -> Self {
        Self { name: "zkbench".into(), pid: std::process::id() }
    }

    /// Processor time of all its threads so far, those that ended included, in microseconds.
    pub(crate) fn cpu_us(&self) -> Result<u64> {
        let stat = self.read("stat")?;
        ticks(&stat).map(|ticks| ticks * TICK_US).with_context(|| format!("stat of {}", self.name))
    }

    /// Resident memory in KiB.
    pub(crate) fn resident_kib(&self) -> Result<u64> {
        let status = self.read("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        number.with_context(|| format!("status of {} has no VmRSS", self.name))
    }

    fn read(&self, file: &str) -> Result<String> {
        let path = format!("/proc/{}/{file}", self.pid);
        fs::read_to_string(&path).with_context(|| format!("read {path} ({})", self.name))
    }
}

impl FromStr for Process {
    type Err = anyhow::Error;

    fn from_str(typed: &str) -> Result<Self> {
        let (name, pid) = typed.split_once('=').context("want NAME=PID")?;
        Ok(Self { name: name.into(), pid: pid.parse().context("PID is no number")? })
    }
}

/// What a process spent on a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spent {
    /// The process, as named on the command line.
    pub(crate) name: String,
    /// Processor time within the measured window, in microseconds.
    pub(crate) cpu_us: u64,
    /// The same for each operation.
    pub(crate) cpu_us_per_op: f64,
    /// Resident memory at the end of the window, in KiB.
    pub(crate) resident_kib: u64,
}

/// utime + stime; the command's name before them may hold spaces and parentheses.
fn ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(11);
    let utime: u64 = fields.next()?.parse().ok()?;
    let stime: u64 = fields.next()?.parse().ok()?;
    utime.checked_add(stime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_found_behind_a_name_with_parentheses() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194304 9 0 0 0 250 50 3 4 20 0 8 0 100 1 2";
        assert_eq!(ticks(stat), Some(300));
        assert_eq!(ticks("7 (short) S 1"), None);
    }

    #[test]
    fn own_process_can_be_read() {
        assert!(Process::own().cpu_us().is_ok());
        assert!(Process::own().resident_kib().expect("own status") > 0);
    }

    #[test]
    fn name_and_pid_are_parsed() {
        let parsed: Process = "etcd=42".parse().expect("well formed");
        assert_eq!(parsed, Process { name: "etcd".into(), pid: 42 });
        assert!("etcd".parse::<Process>().is_err());
        assert!("etcd=x".parse::<Process>().is_err());
    }
}
