//! The conformance suite against the real ZooKeeper, alone and as an ensemble, and against zkshim
//! on both stores: every case runs, with the set-up that it needs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};

use compat_tests::clients::under_test::Against;
use compat_tests::clients::{can_run, not_run};
use compat_tests::conformance::case::Profile;
use compat_tests::conformance::cases::SECTIONS;
use compat_tests::conformance::context::{Settings, Target};
use compat_tests::conformance::run::{Outcome, Selection, Verdict, run};
use compat_tests::servers::etcd::Etcd;
use compat_tests::servers::prepared::Node;
use compat_tests::servers::zkshim::{Zkshim, ZkshimOptions};
use compat_tests::servers::zookeeper::{ZooKeeper, ZooKeeperOptions};

/// What fails and should not: a line a case, the test's name and the case's number.
const KNOWN_FAILURES: &str = include_str!("../known_failures.txt");

const PROFILES: [Profile; 4] =
    [Profile::Default, Profile::Ttl, Profile::Quota, Profile::VersionMax];

/// The nodes of [`Profile::VersionMax`].
const NODES: [Node; 2] = [
    Node { path: "/version-max", version: i32::MAX },
    Node { path: "/version-minus-two", version: -2 },
];

/// Cases that move a session between servers.
const MOVES: [&str; 4] = ["X12", "X13", "X15", "X16"];

/// Servers of one tree, and what must outlive them.
#[derive(Default)]
struct Servers {
    shims: Vec<Zkshim>,
    zookeepers: Vec<ZooKeeper>,
    _etcd: Option<Etcd>,
}

impl Servers {
    fn addresses(&self) -> Vec<SocketAddr> {
        let shims = self.shims.iter().map(|server| server.address());
        shims.chain(self.zookeepers.iter().map(|server| server.address())).collect()
    }
}

#[test]
fn zookeeper_conforms() -> Result<()> {
    let start = |profile| {
        let zookeepers = vec![ZooKeeper::start_with(&zookeeper_options(profile))?];
        Ok(Servers { zookeepers, ..Servers::default() })
    };
    // C17 would stop it.
    check("zookeeper", Against::ZooKeeper, start, &PROFILES, &[&MOVES[..], &["C17"]].concat())
}

#[test]
fn a_zookeeper_ensemble_conforms() -> Result<()> {
    let start = |profile| {
        let mut zookeepers = ZooKeeper::start_ensemble(3, &zookeeper_options(profile))?;
        // Whether the leader is among the two that are used is left to chance; both are right.
        zookeepers.rotate_left(1);
        Ok(Servers { zookeepers, ..Servers::default() })
    };
    // Some would stop it; the others are about settings that need no ensemble.
    let not_run = [
        &["C17", "F22", "F24", "M14"][..],
        &["C12", "C13", "C16", "Q3", "Q4", "Q7", "Q8", "Q9", "S2", "T1", "T2", "T3", "T4", "T5"],
    ];
    check("ensemble", Against::ZooKeeper, start, &[Profile::Default], &not_run.concat())
}

#[test]
fn zkshim_conforms_on_its_embedded_store() -> Result<()> {
    let start = |profile| {
        let shims = vec![Zkshim::start(&zkshim_options(ZkshimOptions::embedded(), profile))?];
        Ok(Servers { shims, ..Servers::default() })
    };
    check("embedded", Against::Embedded, start, &PROFILES, &MOVES)
}

#[test]
fn zkshim_conforms_on_etcd() -> Result<()> {
    let start = |profile| on_etcd(Etcd::start()?, 1, profile);
    check("etcd", Against::TwoOnEtcd, start, &PROFILES, &MOVES)
}

#[test]
fn zkshim_conforms_on_the_oldest_etcd() -> Result<()> {
    if Etcd::start_oldest()?.is_none() {
        return not_run(
            "the conformance suite on the oldest etcd: the system has no package of it",
        );
    }
    let start = |profile| {
        let etcd = Etcd::start_oldest()?.context("find the etcd that was there")?;
        on_etcd(etcd, 1, profile)
    };
    check("oldest-etcd", Against::Embedded, start, &PROFILES, &MOVES)
}

#[test]
fn two_zkshim_on_one_etcd_conform() -> Result<()> {
    let start = |profile| on_etcd(Etcd::start()?, 2, profile);
    check("two-on-etcd", Against::TwoOnEtcd, start, &PROFILES, &[])
}

fn on_etcd(etcd: Etcd, count: usize, profile: Profile) -> Result<Servers> {
    let mut options = zkshim_options(ZkshimOptions::etcd(&etcd, "/zkshim/"), profile);
    let mut shims = Vec::new();
    for _ in 0..count {
        shims.push(Zkshim::start(&options)?);
        options.nodes.clear();
    }
    Ok(Servers { shims, _etcd: Some(etcd), ..Servers::default() })
}

fn zookeeper_options(profile: Profile) -> ZooKeeperOptions {
    let options = ZooKeeperOptions::default();
    match profile {
        Profile::Default => options,
        Profile::Ttl => options
            .property("extendedTypesEnabled", "true")
            .jvm_argument("-Dznode.container.checkIntervalMs=500"),
        Profile::Quota => options.property("enforceQuota", "true"),
        Profile::VersionMax => ZooKeeperOptions { nodes: NODES.to_vec(), ..options },
    }
}

fn zkshim_options(options: ZkshimOptions, profile: Profile) -> ZkshimOptions {
    let options = options.flag("--max-client-connections", "0");
    match profile {
        Profile::Default => options,
        Profile::Ttl => options
            .variable("ZKSHIM_TTL_NODES", "true")
            .flag("--container-check-interval-ms", "500"),
        Profile::Quota => options.variable("ZKSHIM_ENFORCE_QUOTA", "true"),
        Profile::VersionMax => ZkshimOptions { nodes: NODES.to_vec(), ..options },
    }
}

/// Runs every case with the set-up that it needs. Exactly the known ones fail, and exactly the
/// named ones are not run.
fn check(
    name: &str,
    against: Against,
    start: impl Fn(Profile) -> Result<Servers> + Sync,
    profiles: &[Profile],
    not_run: &[&str],
) -> Result<()> {
    if !can_run(&format!("the conformance suite on {name}"), &[], against)? {
        return Ok(());
    }
    let mut verdicts: BTreeMap<&str, Verdict> = BTreeMap::new();
    for outcome in run_profiles(name, profiles, &start)? {
        // A case counts as run if one of the set-ups was its own.
        let verdict = verdicts.entry(outcome.case).or_insert_with(|| outcome.verdict.clone());
        if matches!(verdict, Verdict::NotApplicable(_)) {
            *verdict = outcome.verdict;
        }
    }
    let mut failed = BTreeMap::new();
    let mut left_out = BTreeSet::new();
    for (case, verdict) in &verdicts {
        match verdict {
            Verdict::Passed => {}
            Verdict::Failed(message) => drop(failed.insert(*case, message)),
            Verdict::NotApplicable(_) => drop(left_out.insert(*case)),
        }
    }
    ensure!(left_out == not_run.iter().copied().collect(), "not run on {name}: {left_out:?}");
    let known: BTreeSet<_> = known_failures(name).collect();
    let news: Vec<_> = failed.iter().filter(|(case, _)| !known.contains(*case)).collect();
    let cured: Vec<_> = known.iter().filter(|case| !failed.contains_key(*case)).collect();
    ensure!(news.is_empty(), "new failures on {name}: {news:#?}");
    ensure!(cured.is_empty(), "strike these off known_failures.txt for {name}: {cured:?}");
    Ok(())
}

/// The set-ups side by side: most of a run is waiting.
fn run_profiles(
    name: &str,
    profiles: &[Profile],
    start: &(impl Fn(Profile) -> Result<Servers> + Sync),
) -> Result<Vec<Outcome>> {
    let target =
        if name == "zookeeper" || name == "ensemble" { Target::Zookeeper } else { Target::Zkshim };
    let judge = |profile: Profile| {
        let servers = start(profile).with_context(|| format!("start {name} for {profile:?}"))?;
        let selection = Selection {
            sections: Vec::new(),
            cases: Vec::new(),
            profile,
            shared: false,
            parallel: 24,
        };
        let mut addresses = servers.addresses();
        addresses.truncate(2);
        let settings = Settings {
            servers: addresses,
            target,
            tick: Duration::from_millis(2000),
            root: "/zk-compat".to_owned(),
        };
        Ok(run(SECTIONS, &selection, &settings))
    };
    thread::scope(|scope| {
        let judge = &judge;
        let spawn = |profile: &Profile| {
            let profile = *profile;
            scope.spawn(move || judge(profile))
        };
        let threads: Vec<_> = profiles.iter().map(spawn).collect();
        let mut outcomes = Vec::new();
        for thread in threads {
            let result: Result<Vec<Outcome>> =
                thread.join().map_err(|_| anyhow!("a run panicked"))?;
            outcomes.extend(result?);
        }
        Ok(outcomes)
    })
}

fn known_failures(name: &str) -> impl Iterator<Item = &'static str> {
    let lines = KNOWN_FAILURES.lines().filter_map(|line| line.split('#').next());
    lines
        .filter_map(move |line| line.split_once(' ').filter(|(who, _)| *who == name))
        .map(|(_, case)| case.trim())
}
