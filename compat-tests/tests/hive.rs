//! The main job, end to end: HiveServer2 registers itself and unmodified drivers find it, through
//! a real ZooKeeper (the oracle), through zkshim on its embedded store, and through two zkshim on
//! one etcd. No party knows which of them it is.

use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use compat_tests::clients::can_run;
use compat_tests::clients::hive::{Driver, HiveServer, SESSION_TIMEOUT, ZnodeStat, Znodes};
use compat_tests::clients::under_test::{Against, UnderTest};

/// Each test runs several JVMs; together they would starve each other's sessions.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// HiveServer2 takes some seconds to start, more on a loaded machine.
const START_MAX: Duration = Duration::from_secs(90);

/// How long after its timeout a session may live on: ZooKeeper rounds up to a tick of 2 s, and the
/// last ping came up to a moment before the end.
const EXPIRY_SLACK: Duration = Duration::from_secs(4);

const TOOLS: [&str; 3] = ["java", "mvn", "python3"];

#[test]
fn drivers_find_hiveserver2_through_zookeeper() -> Result<()> {
    run("drivers_find_hiveserver2_through_zookeeper", Against::ZooKeeper)
}

#[test]
fn drivers_find_hiveserver2_through_zkshim_embedded() -> Result<()> {
    run("drivers_find_hiveserver2_through_zkshim_embedded", Against::Embedded)
}

#[test]
fn drivers_find_hiveserver2_through_two_zkshim_on_etcd() -> Result<()> {
    run("drivers_find_hiveserver2_through_two_zkshim_on_etcd", Against::TwoOnEtcd)
}

fn run(test: &str, against: Against) -> Result<()> {
    if !can_run(test, &TOOLS, against)? {
        return Ok(());
    }
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut servers = against.start()?;
    let mut observer = Znodes::connect(&servers.connect_string())?;

    let (mut first, mut second) = two_register(&servers, &mut observer)?;
    drivers_answer_through_each(&servers, &[&first, &second])?;
    deleted_by_an_operator_it_leaves(&mut first, &mut observer)?;
    drivers_answer_through_each(&servers, &[&second])?;
    killed_it_is_gone_within_its_timeout(&mut second, &mut observer)?;
    nobody_loses_its_session_when_a_server_is_killed(&mut servers, &mut observer)
}

fn two_register(servers: &UnderTest, observer: &mut Znodes) -> Result<(HiveServer, HiveServer)> {
    // Each is told of one server only, so that they do register through different ones.
    let mut first = HiveServer::spawn(&servers.first()?.to_string())?;
    let mut second = HiveServer::spawn(&servers.last()?.to_string())?;
    first.wait_until_serving()?;
    second.wait_until_serving()?;
    let (names, _) = observer.wait_until(START_MAX, |names| names.len() == 2)?;
    for server in [&first, &second] {
        let name = name_of(server, &names)?;
        ensure!(name.contains(";version=4.0.1;sequence=000000000"), "the name is {name}");
        let data = observer.data(&name)?;
        let expected = format!("hive.server2.thrift.port={}", server.port());
        ensure!(data.contains(&expected), "{name} has the data {data}");
        ensure!(observer.stat(&name)?.owner != 0, "{name} is ephemeral");
    }
    Ok((first, second))
}

fn drivers_answer_through_each(servers: &UnderTest, running: &[&HiveServer]) -> Result<()> {
    for driver in Driver::ALL {
        for address in [servers.first()?, servers.last()?] {
            answers(driver, &address.to_string(), running)?;
        }
    }
    Ok(())
}

fn answers(driver: Driver, connect_string: &str, running: &[&HiveServer]) -> Result<()> {
    let (sum, port) = driver
        .select(connect_string)
        .with_context(|| format!("find a server with {driver:?} through {connect_string}"))?;
    ensure!(sum == "2", "{driver:?} says that 1+1 is {sum}");
    ensure!(running.iter().any(|server| server.port() == port), "{driver:?} found {port}");
    Ok(())
}

fn deleted_by_an_operator_it_leaves(server: &mut HiveServer, observer: &mut Znodes) -> Result<()> {
    let name = name_of(server, &observer.registered()?)?;
    observer.delete(&name)?;
    // HiveServer2's DeRegisterWatcher ends the server when no session is open.
    let begin = Instant::now();
    while server.poll_exit()?.is_none() {
        ensure!(begin.elapsed() < Duration::from_secs(30), "it runs on\n{}", server.log());
        sleep(Duration::from_millis(100));
    }
    let names = observer.registered()?;
    ensure!(!names.contains(&name), "it came back: {names:?}");
    Ok(())
}

fn killed_it_is_gone_within_its_timeout(
    server: &mut HiveServer,
    observer: &mut Znodes,
) -> Result<()> {
    let name = name_of(server, &observer.registered()?)?;
    server.kill()?;
    let limit = SESSION_TIMEOUT + EXPIRY_SLACK;
    let gone = |names: &[String]| !names.contains(&name);
    let (names, taken) = observer.wait_until(limit, gone)?;
    ensure!(names.is_empty(), "only {name} was there, now {names:?}");
    eprintln!("a killed HiveServer2 was gone after {taken:?}");
    Ok(())
}

fn nobody_loses_its_session_when_a_server_is_killed(
    servers: &mut UnderTest,
    observer: &mut Znodes,
) -> Result<()> {
    let mut running = [
        HiveServer::spawn(&servers.connect_string())?,
        HiveServer::spawn(&servers.connect_string())?,
    ];
    for server in &mut running {
        server.wait_until_serving()?;
    }
    let (names, _) = observer.wait_until(START_MAX, |names| names.len() == 2)?;
    let before = stats(observer, &names)?;
    let session = observer.session()?;

    // The one that serves the first HiveServer2: somebody has to move.
    let owner = before.first().context("find the first server")?.owner;
    let index = servers.server_of(owner)?;
    servers.servers()[index].kill()?;
    if servers.servers().len() == 1 {
        servers.servers()[index].restart()?;
    }
    // Whoever did not find its way back would expire now.
    sleep(SESSION_TIMEOUT + EXPIRY_SLACK);

    ensure!(observer.registered()? == names, "other servers are registered than before");
    ensure!(observer.session()? == session, "the observer has another session");
    for (old, new) in before.iter().zip(stats(observer, &names)?) {
        ensure!((old.czxid, old.owner) == (new.czxid, new.owner), "{old:?} is now {new:?}");
    }
    for server in &mut running {
        ensure!(server.poll_exit()?.is_none(), "a HiveServer2 ended\n{}", server.log());
        ensure!(!server.log().contains("State change: LOST"), "it lost its session");
    }
    let running = [&running[0], &running[1]];
    for driver in Driver::ALL {
        answers(driver, &servers.connect_string(), &running)?;
    }
    if servers.servers().len() > 1 {
        servers.servers()[index].restart()?;
        let address = servers.servers()[index].address();
        answers(Driver::Beeline2, &address.to_string(), &running)?;
    }
    Ok(())
}

fn stats(observer: &mut Znodes, names: &[String]) -> Result<Vec<ZnodeStat>> {
    names.iter().map(|name| observer.stat(name)).collect()
}

/// The registered name of a server: the driver reads the data, but names hold the port as well.
fn name_of(server: &HiveServer, names: &[String]) -> Result<String> {
    let part = format!(":{};", server.port());
    names.iter().find(|name| name.contains(&part)).cloned().context("find it registered")
}
