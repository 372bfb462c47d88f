//! Recorded load on real servers, with some of them killed and frozen meanwhile: whatever the
//! clients saw must be explained. And damaged records, and servers that lie, must be noticed.

#[path = "history/places.rs"]
mod places;
#[path = "history/spoil.rs"]
mod spoil;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use compat_tests::clients::can_run;
use compat_tests::clients::under_test::Against;
use compat_tests::differential::chance::Chance;
use compat_tests::history::check::{Verdict, check};
use compat_tests::history::liar::{Liar, Lie};
use compat_tests::history::record::History;
use compat_tests::history::workload::{Running, Workload};
use compat_tests::servers::etcd::Etcd;
use compat_tests::servers::zkshim::{Zkshim, ZkshimOptions};
use compat_tests::servers::zookeeper::ZooKeeper;

use crate::spoil::{DAMAGES, Damage};

/// The shortest that servers with a tick of 2 s grant.
const SESSION_TIMEOUT: Duration = Duration::from_secs(4);
/// What a relay may lie about, with the rules of which one at least must be found broken.
const LIES: &[(Lie, &[&str])] = &[
    (Lie::LosesWrites, &["linearizability"]),
    (Lie::DoublesWrites, &["linearizability"]),
    (Lie::WritesLate, &["linearizability"]),
    (Lie::InventsSuccess, &["linearizability"]),
    (Lie::ReadsStale, &["reads", "linearizability"]),
    (Lie::ZxidsFall, &["order of zxids"]),
    (Lie::HidesFirst, &["locks", "lists"]),
    (Lie::LosesEvents, &["watches"]),
    (Lie::DoublesEvents, &["watches"]),
    (Lie::DelaysEvents, &["order of zxids"]),
    (Lie::EndsSessions, &["sessions"]),
];
/// Each kind of damage is done to so many copies of a history.
const PLACES: usize = 4;

fn start(servers: Vec<SocketAddr>, seed: u64) -> Result<Running> {
    let mut workload = Workload::new(servers, seed);
    workload.session_timeout = SESSION_TIMEOUT;
    workload.start()
}

/// The clients must be served again, every one of them for a while.
fn wait_for_answers(running: &Running, count: u64) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(60);
    let enough = running.answered() + count;
    while running.answered() < enough {
        ensure!(!running.has_ended(), "the workload has ended by itself");
        ensure!(Instant::now() < deadline, "the clients are not served");
        sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Judges what was recorded; where something is wrong, the record is kept.
fn judge(name: &str, history: &History) -> Result<Verdict> {
    let verdict = check(history);
    println!("{name}: {verdict}");
    if !verdict.is_clean() {
        let file = std::env::temp_dir().join(format!("{name}-{}.jsonl", std::process::id()));
        history.save(&file)?;
        anyhow::bail!("{name}, kept in {}: {verdict}", file.display());
    }
    ensure!(verdict.requests > 500, "hardly anything was asked");
    ensure!(verdict.holds > 0 && verdict.events > 0, "no lock was held, or no event came");
    Ok(verdict)
}

#[test]
fn a_zookeeper_that_is_killed_keeps_its_promises() -> Result<()> {
    let test = "a_zookeeper_that_is_killed_keeps_its_promises";
    if !can_run(test, &[], Against::ZooKeeper)? {
        return Ok(());
    }
    let mut server = ZooKeeper::start()?;
    let running = start(vec![server.address()], 1)?;
    wait_for_answers(&running, 1000)?;
    server.kill()?;
    server.restart()?;
    wait_for_answers(&running, 1000)?;
    judge(test, &running.stop()?).map(drop)
}

#[test]
fn an_embedded_store_that_is_killed_keeps_its_promises() -> Result<()> {
    let test = "an_embedded_store_that_is_killed_keeps_its_promises";
    let mut server = Zkshim::start(&ZkshimOptions::embedded())?;
    let running = start(vec![server.address()], 2)?;
    for _ in 0..2 {
        wait_for_answers(&running, 1000)?;
        server.kill()?;
        server.restart()?;
    }
    wait_for_answers(&running, 1000)?;
    judge(test, &running.stop()?).map(drop)
}

#[test]
fn shims_on_one_etcd_keep_their_promises_when_one_is_killed_and_one_is_frozen() -> Result<()> {
    let test = "shims_on_one_etcd_keep_their_promises_when_one_is_killed_and_one_is_frozen";
    if !can_run(test, &[], Against::TwoOnEtcd)? {
        return Ok(());
    }
    let etcd = Etcd::start()?;
    let options = ZkshimOptions::etcd(&etcd, "/zkshim/");
    let mut shims = (0..3).map(|_| Zkshim::start(&options)).collect::<Result<Vec<_>>>()?;
    let running = start(shims.iter().map(|shim| shim.address()).collect(), 3)?;
    wait_for_answers(&running, 1000)?;
    shims[0].kill()?;
    wait_for_answers(&running, 500)?;
    shims[0].restart()?;
    wait_for_answers(&running, 500)?;
    shims[1].pause()?;
    // Its clients go elsewhere in time, and it must notice that when it wakes.
    sleep(SESSION_TIMEOUT + Duration::from_secs(2));
    shims[1].resume()?;
    wait_for_answers(&running, 1000)?;
    judge(test, &running.stop()?).map(drop)
}

#[test]
fn every_damage_to_a_history_is_noticed() -> Result<()> {
    let test = "every_damage_to_a_history_is_noticed";
    let server = Zkshim::start(&ZkshimOptions::embedded())?;
    let mut chance = Chance::new(5);
    let mut unnoticed = Vec::new();
    let mut left: Vec<&Damage> = DAMAGES.iter().collect();
    // Not every history has a place for all of them.
    for seed in 4..8 {
        let running = start(vec![server.address()], seed)?;
        wait_for_answers(&running, 3000)?;
        let history = running.stop()?;
        judge(test, &history)?;
        left.retain(|damage| !is_done(damage, &history, &mut chance, &mut unnoticed));
        if left.is_empty() {
            break;
        }
    }
    let left: Vec<_> = left.iter().map(|damage| damage.name).collect();
    ensure!(left.is_empty(), "there was no place for {left:?}");
    ensure!(unnoticed.is_empty(), "{} were not noticed: {unnoticed:#?}", unnoticed.len());
    Ok(())
}

/// Does a damage to copies of a history; false if there is no place for it.
fn is_done(
    damage: &Damage,
    history: &History,
    chance: &mut Chance,
    unnoticed: &mut Vec<String>,
) -> bool {
    let mut done = 0;
    for _ in 0..400 {
        let mut spoilt = history.clone();
        if done == PLACES || (damage.spoil)(&mut spoilt, chance).is_none() {
            continue;
        }
        done += 1;
        let verdict = check(&spoilt);
        let mut rules = verdict.violations.iter().map(|violation| violation.rule);
        if !rules.any(|rule| damage.rules.contains(&rule)) {
            unnoticed.push(format!("{}: {verdict}", damage.name));
        }
    }
    println!("{}: done {done} times", damage.name);
    done > 0
}

#[test]
fn every_lie_of_a_server_is_noticed() -> Result<()> {
    let server = Zkshim::start(&ZkshimOptions::embedded())?;
    let verdicts: Vec<Result<(u64, Verdict)>> = std::thread::scope(|scope| {
        let server = server.address();
        let run = |lie: Lie, rules: &'static [&'static str]| {
            // In a short history a lie may happen to agree with what is allowed.
            scope.spawn(move || {
                let mut last = lied_to(server, lie, 7)?;
                for seed in 8..13 {
                    if last.1.violations.iter().any(|found| rules.contains(&found.rule)) {
                        break;
                    }
                    last = lied_to(server, lie, seed)?;
                }
                Ok(last)
            })
        };
        let threads: Vec<_> = LIES.iter().map(|(lie, rules)| run(*lie, rules)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no run panics")).collect()
    });
    let mut unnoticed = Vec::new();
    for ((lie, rules), verdict) in LIES.iter().zip(verdicts) {
        let (told, verdict) = verdict?;
        let broken: BTreeSet<&str> = verdict.violations.iter().map(|found| found.rule).collect();
        println!("{lie:?}: told {told} times, found in {broken:?}");
        if !rules.iter().any(|rule| broken.contains(rule)) {
            unnoticed.push(format!("{lie:?}, told {told} times: {verdict}"));
        }
    }
    ensure!(unnoticed.is_empty(), "{} were not noticed: {unnoticed:#?}", unnoticed.len());
    Ok(())
}

fn lied_to(server: SocketAddr, lie: Lie, seed: u64) -> Result<(u64, Verdict)> {
    let liar = Liar::start(server, lie, 6)?;
    let mut workload = Workload::new(vec![liar.address()], seed);
    workload.clients = 4;
    workload.session_timeout = SESSION_TIMEOUT;
    let running = workload.start()?;
    wait_for_answers(&running, 200)?;
    liar.lie(true);
    let deadline = Instant::now() + Duration::from_secs(30);
    while (liar.told() < 5 || running.answered() < 600) && Instant::now() < deadline {
        sleep(Duration::from_millis(20));
    }
    // What a lie has done shows a little later.
    wait_for_answers(&running, 200)?;
    liar.lie(false);
    Ok((liar.told(), check(&running.stop()?)))
}
