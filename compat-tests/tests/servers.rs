//! The harness itself: the oracle starts, stops, freezes and comes back.

use anyhow::Result;

use compat_tests::clients::can_run;
use compat_tests::clients::under_test::Against;
use compat_tests::servers::etcd::Etcd;
use compat_tests::servers::process::{ask, serves_zookeeper};
use compat_tests::servers::zookeeper::{ZooKeeper, ZooKeeperOptions};

#[test]
fn a_zookeeper_starts_stops_and_starts_again_on_its_port() -> Result<()> {
    if !can_run("a_zookeeper_starts_stops_and_starts_again_on_its_port", &[], Against::ZooKeeper)? {
        return Ok(());
    }
    let options = ZooKeeperOptions::default().property("tickTime", "1500");
    let mut server = ZooKeeper::start_with(&options)?;
    assert_eq!(ask(server.address(), b"ruok"), "imok");
    assert!(ask(server.address(), b"conf").contains("tickTime=1500"), "the property is in force");

    server.pause()?;
    assert!(!serves_zookeeper(server.address()), "a frozen server is silent");
    server.resume()?;
    server.wait_until_serving()?;

    server.stop()?;
    assert_eq!(ask(server.address(), b"ruok"), "");
    server.restart()?;
    assert_eq!(ask(server.address(), b"ruok"), "imok");
    server.kill()?;
    assert_eq!(ask(server.address(), b"ruok"), "");
    Ok(())
}

#[test]
fn an_ensemble_elects_a_leader() -> Result<()> {
    if !can_run("an_ensemble_elects_a_leader", &[], Against::ZooKeeper)? {
        return Ok(());
    }
    let servers = ZooKeeper::start_ensemble(3, &ZooKeeperOptions::default())?;
    let mut modes: Vec<bool> = servers
        .iter()
        .map(|server| ask(server.address(), b"srvr").contains("Mode: leader"))
        .collect();
    modes.sort_unstable();
    assert_eq!(modes, [false, false, true]);
    Ok(())
}

#[test]
fn a_server_that_cannot_start_shows_its_log() -> Result<()> {
    if !can_run("a_server_that_cannot_start_shows_its_log", &[], Against::ZooKeeper)? {
        return Ok(());
    }
    let options = ZooKeeperOptions::default().property("tickTime", "soon");
    let error = ZooKeeper::start_with(&options).err().map(|error| format!("{error:#}"));
    let error = error.expect("a tick time that is no number is refused");
    assert!(error.contains("ended at start"), "{error}");
    assert!(error.contains("soon"), "{error}");
    Ok(())
}

#[test]
fn etcd_starts_and_keeps_its_data_over_a_crash() -> Result<()> {
    if !can_run("etcd_starts_and_keeps_its_data_over_a_crash", &[], Against::TwoOnEtcd)? {
        return Ok(());
    }
    let mut server = Etcd::start()?;
    let address = server.address();
    let put = |body: &str| {
        let head = "POST /v3/kv/put HTTP/1.0\r\nContent-Type: application/json\r\n";
        ask(address, format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes())
    };
    assert!(put(r#"{"key":"YQ==","value":"Yg=="}"#).contains(r#""revision":"2""#));
    server.kill()?;
    server.restart()?;
    assert!(put(r#"{"key":"YQ==","value":"Yw=="}"#).contains(r#""revision":"3""#));
    Ok(())
}
