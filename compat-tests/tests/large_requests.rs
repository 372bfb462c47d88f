//! Requests beyond ZooKeeper's default size: what zkshim needs of its store for them, and what
//! it says and does where the store takes less.

use std::net::SocketAddr;

use anyhow::Result;

use compat_tests::clients::under_test::Against;
use compat_tests::clients::{can_run, not_run};
use compat_tests::conformance::client::Client;
use compat_tests::conformance::session::ConnectRequest;
use compat_tests::conformance::wire::{op, open_acl, record};
use compat_tests::servers::etcd::Etcd;
use compat_tests::servers::zkshim::{Zkshim, ZkshimOptions};

/// What clients may send here (`--jute-max-buffer`).
const BUFFER_BYTES: usize = 6 << 20;

/// Data far beyond etcd's default.
const LARGE_BYTES: usize = 5 << 20;

/// `KeeperException.Code.MARSHALLINGERROR`.
const MARSHALLING_ERROR: i32 = -5;

/// How the log names it.
const COMPLAINT: &str = "--max-request-bytes";

fn client(address: SocketAddr) -> Result<Client> {
    Client::connect(address, &ConnectRequest::default(), 0, None)
}

/// Creates a znode with so many bytes of data. The error of the answer.
fn create(client: &mut Client, path: &str, bytes: usize) -> Result<i32> {
    let body = record().string(path).buffer(&vec![b'd'; bytes]).acls(&open_acl()).int(0);
    Ok(client.call(op::CREATE, body)?.error)
}

/// How much data a znode has; the error where it has none.
fn data_bytes(client: &mut Client, path: &str) -> Result<usize> {
    client.call(op::SYNC, record().string("/"))?.ok()?;
    let reply = client.call(op::GET_DATA, record().string(path).byte(0))?;
    Ok(reply.ok()?.reader()?.buffer()?.map_or(0, |data| data.len()))
}

fn options(etcd: &Etcd) -> ZkshimOptions {
    ZkshimOptions::etcd(etcd, "/zkshim/").flag("--jute-max-buffer", &BUFFER_BYTES.to_string())
}

#[test]
fn an_etcd_that_takes_large_requests_serves_large_znodes() -> Result<()> {
    let name = "an_etcd_that_takes_large_requests_serves_large_znodes";
    if !can_run(name, &["go"], Against::TwoOnEtcd)? {
        return Ok(());
    }
    let etcd = Etcd::start_with(&["--max-request-bytes=8388608"])?;
    let servers = [Zkshim::start(&options(&etcd))?, Zkshim::start(&options(&etcd))?];
    let mut clients = [client(servers[0].address())?, client(servers[1].address())?];
    assert_eq!(create(&mut clients[0], "/large", LARGE_BYTES)?, 0);
    assert_eq!(data_bytes(&mut clients[1], "/large")?, LARGE_BYTES);
    let later = Zkshim::start(&options(&etcd))?;
    assert_eq!(data_bytes(&mut client(later.address())?, "/large")?, LARGE_BYTES);
    for server in &servers {
        assert!(!server.log().contains(COMPLAINT), "{}", server.log());
    }
    Ok(())
}

#[test]
fn an_etcd_that_takes_less_is_complained_of_and_what_fits_is_served() -> Result<()> {
    let name = "an_etcd_that_takes_less_is_complained_of_and_what_fits_is_served";
    if !can_run(name, &["go"], Against::TwoOnEtcd)? {
        return Ok(());
    }
    takes_less(&Etcd::start()?)?;
    match Etcd::start_oldest()? {
        Some(oldest) => takes_less(&oldest),
        None => not_run("large requests to the oldest etcd: the system has no package of it"),
    }
}

fn takes_less(etcd: &Etcd) -> Result<()> {
    let server = Zkshim::start(&options(etcd))?;
    let log = server.log();
    let complaint = log.lines().find(|line| line.contains(COMPLAINT));
    let complaint = complaint.unwrap_or_else(|| panic!("it says nothing:\n{log}"));
    assert!(complaint.contains("ERROR") && complaint.contains("1572864"), "{complaint}");
    let (mut large, mut small) = (client(server.address())?, client(server.address())?);
    // Beyond what etcd's transport takes, and beyond what its log does.
    for (path, bytes) in [("/large", LARGE_BYTES), ("/larger", (3 << 19) + 1)] {
        let body = record().string(path).buffer(&vec![b'd'; bytes]).acls(&open_acl()).int(0);
        let asked = large.send(op::CREATE, body)?;
        // Others go on meanwhile.
        for number in 0..20 {
            assert_eq!(create(&mut small, &format!("{path}-{number}"), 10)?, 0);
        }
        let reply = large.reply()?;
        assert_eq!((reply.xid, reply.error), (asked, MARSHALLING_ERROR), "{path}");
        assert!(data_bytes(&mut large, path).is_err(), "nothing of it is there");
    }
    assert_eq!(create(&mut large, "/fits", 1 << 20)?, 0, "the session goes on");
    assert_eq!(data_bytes(&mut small, "/fits")?, 1 << 20);
    assert_eq!(data_bytes(&mut small, "/large-19")?, 10);
    Ok(())
}

#[test]
fn the_embedded_store_takes_what_clients_may_send() -> Result<()> {
    let options = ZkshimOptions::embedded().flag("--jute-max-buffer", &BUFFER_BYTES.to_string());
    let mut server = Zkshim::start(&options)?;
    assert_eq!(create(&mut client(server.address())?, "/large", LARGE_BYTES)?, 0);
    server.stop()?;
    server.restart()?;
    assert_eq!(data_bytes(&mut client(server.address())?, "/large")?, LARGE_BYTES);
    Ok(())
}

#[test]
fn batches_keep_to_what_etcd_takes() -> Result<()> {
    if !can_run("batches_keep_to_what_etcd_takes", &["go"], Against::TwoOnEtcd)? {
        return Ok(());
    }
    let etcd = Etcd::start_with(&["--max-request-bytes=262144"])?;
    let server = Zkshim::start(&ZkshimOptions::etcd(&etcd, "/zkshim/"))?;
    let mut clients: Vec<Client> =
        (0..8).map(|_| client(server.address())).collect::<Result<_>>()?;
    let data = vec![b'd'; 50_000];
    for (number, client) in clients.iter_mut().enumerate() {
        for again in 0..20 {
            let path = format!("/{number}-{again}");
            let body = record().string(&path).buffer(&data).acls(&open_acl()).int(0);
            client.send(op::CREATE, body)?;
        }
    }
    for client in &mut clients {
        for _ in 0..20 {
            client.reply()?.ok()?;
        }
    }
    let log = server.log();
    assert!(!log.contains("etcd takes less in a txn"), "none was refused: {log}");
    assert!(log.contains(COMPLAINT), "but one of ZooKeeper's largest requests would be: {log}");
    Ok(())
}
