//! A soak: mixed load with sessions that come and go, a fault every few seconds, for as long as
//! one likes. What the servers hold meanwhile is sampled: memory must stay flat, and when the
//! load has ended nothing of it may be left, neither in the shims nor in etcd.

pub mod guests;
pub mod samples;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::differential::chance::Chance;
use crate::faults::admin::Admin;
use crate::faults::cluster::{Cluster, Settings, shim_addresses};
use crate::faults::inject::{make, mend};
use crate::faults::kind::Kind;
use crate::faults::soak::guests::{Counts, Guests, clear, prepare};
use crate::faults::soak::samples::{Sample, left_behind, not_flat, sample};

/// The shim that is never killed: only a process that lives throughout can show that its memory
/// stays flat.
const ELDER: usize = 0;
/// What strikes. A compaction is among them, as the history would fill etcd's disk.
const KINDS: [(usize, Kind); 8] = [
    (3, Kind::ShimKill),
    (2, Kind::ShimPause),
    (1, Kind::LeaderKill),
    (2, Kind::FollowerKill),
    (1, Kind::FollowerPause),
    (1, Kind::LeaderMove),
    (2, Kind::Compact),
    (1, Kind::ShimMemberCut),
];
/// A fault of a soak lasts no longer than this; what lasts less is mended earlier.
const FAULT_MAX: Duration = Duration::from_secs(3);
/// Between two faults.
const BETWEEN: Duration = Duration::from_secs(4);
/// Between two samples.
const SAMPLES_APART: Duration = Duration::from_secs(5);
/// What is not counted at the beginning: buffers and pools find their size.
const WARM_UP: Duration = Duration::from_secs(120);
/// The longest that anything may outlive the load: leases are kept for the next session for two
/// minutes, and live on for as long as they were last renewed.
const REST: Duration = Duration::from_secs(300);

/// What a soak showed.
#[derive(Debug)]
pub struct Report {
    /// How often each kind struck.
    pub faults: BTreeMap<Kind, usize>,
    /// What the load did.
    pub counts: String,
    /// What was sampled, in time.
    pub samples: Vec<Sample>,
    /// What must not be.
    pub leaks: Vec<String>,
}

/// Runs a soak, inside a world.
///
/// # Errors
/// The rig itself does not work; what the servers do wrong is in the report.
pub fn run(seed: u64, time: Duration, settings: Settings) -> Result<Report> {
    let mut cluster = Cluster::start(settings)?;
    let admin = Admin::new()?;
    let mut chance = Chance::new(seed);
    prepare(&shim_addresses())?;
    let at_rest = sample(&cluster, &admin, Duration::ZERO);
    println!("{}", at_rest.line());
    let counts = Arc::new(Counts::default());
    let guests = Guests::start(&cluster, seed, &counts)?;
    let (mut faults, mut samples) = (BTreeMap::new(), Vec::new());
    let begun = Instant::now();
    while begun.elapsed() < time {
        let kind = chance.weighted(&KINDS);
        let struck = strike(&mut cluster, &admin, kind, &mut chance);
        struck.with_context(|| format!("{} after {:?}", kind.name(), begun.elapsed()))?;
        *faults.entry(kind).or_insert(0) += 1;
        sleep(BETWEEN);
        let due =
            samples.last().is_none_or(|last: &Sample| begun.elapsed() >= last.at + SAMPLES_APART);
        if due {
            let taken = sample(&cluster, &admin, begun.elapsed());
            println!("{}", taken.line());
            samples.push(taken);
        }
    }
    guests.stop();
    clear(&shim_addresses())?;
    let mut leaks = not_flat(&samples, ELDER, WARM_UP.min(time / 4));
    leaks.extend(rest(&cluster, &admin, &at_rest));
    let expired = counts.violations.load(Ordering::Relaxed);
    if expired > 0 {
        leaks.push(format!("{expired} sessions were ended although their clients talked"));
    }
    Ok(Report { faults, counts: counts.to_string(), samples, leaks })
}

/// One fault, from its beginning until everything serves again.
fn strike(cluster: &mut Cluster, admin: &Admin, kind: Kind, chance: &mut Chance) -> Result<()> {
    if kind == Kind::ShimKill {
        let younger = (ELDER + 1 + chance.below(cluster.shims.len() - 1)) % cluster.shims.len();
        let shim = cluster.shims.get_mut(younger).context("there are three shims")?;
        shim.process.kill()?;
        sleep(kind.lasts().min(FAULT_MAX));
        shim.spawn_again()?;
    } else {
        let fault = make(cluster, admin, kind, chance)?;
        sleep(kind.lasts().min(FAULT_MAX));
        mend(cluster, admin, &fault)?;
    }
    for server in cluster.members.iter_mut().chain(&mut cluster.shims) {
        server.process.wait_until_serving()?;
    }
    Ok(())
}

/// Waits until nothing of the load is left, and says what is if that takes too long.
fn rest(cluster: &Cluster, admin: &Admin, at_rest: &Sample) -> Vec<String> {
    let deadline = Instant::now() + REST;
    loop {
        let now = sample(cluster, admin, Duration::ZERO);
        let left = left_behind(&now, at_rest);
        if left.is_empty() || Instant::now() > deadline {
            println!("at rest: {}", now.line());
            return left;
        }
        sleep(SAMPLES_APART);
    }
}
