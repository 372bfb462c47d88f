//! Clients that ask for too much: memory stays bounded, they are refused as ZooKeeper refuses
//! them, and another client is served in order meanwhile.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use compat_tests::clients::can_run;
use compat_tests::clients::under_test::Against;
use compat_tests::conformance::client::Client;
use compat_tests::conformance::multi::{Operation, request};
use compat_tests::conformance::session::ConnectRequest;
use compat_tests::conformance::socket::{Incoming, Socket, frame};
use compat_tests::conformance::wire::{Writer, op, open_acl, record};
use compat_tests::overload::{Bystander, Flood, Watched};
use compat_tests::servers::etcd::Etcd;
use compat_tests::servers::zkshim::ZkshimOptions;

/// One at a time: each of them measures memory and takes what the machine has.
static TURN: Mutex<()> = Mutex::new(());

/// How long a session may be silent: its client sends no pings while others are opened, and the
/// machine may be busy.
const PATIENT_MS: i32 = 240_000;

fn embedded() -> ZkshimOptions {
    patient(ZkshimOptions::embedded())
}

fn patient(options: ZkshimOptions) -> ZkshimOptions {
    options
        .flag("--max-client-connections", "0")
        .flag("--max-session-timeout", &PATIENT_MS.to_string())
}

fn on_each_store(test: &str, work: impl Fn(&ZkshimOptions) -> Result<()>) -> Result<()> {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    work(&embedded()).context("on the embedded store")?;
    if !can_run(test, &["go"], Against::TwoOnEtcd)? {
        return Ok(());
    }
    let etcd = Etcd::start()?;
    work(&patient(ZkshimOptions::etcd(&etcd, "/zkshim/"))).context("on etcd")
}

fn session(address: SocketAddr) -> Result<Client> {
    let request = ConnectRequest { timeout_ms: PATIENT_MS, ..ConnectRequest::default() };
    Client::connect(address, &request, 0, None)
}

fn create(path: &str, data: &[u8], flags: i32) -> Writer {
    record().string(path).buffer(data).acls(&open_acl()).int(flags)
}

fn numbered(xid: i32, opcode: i32, body: &Writer) -> Vec<u8> {
    frame(&record().int(xid).int(opcode).raw(&body.clone().bytes()).bytes())
}

/// The same request so many times.
fn repeated(count: i32, opcode: i32, body: &Writer) -> Vec<u8> {
    (0..count).flat_map(|xid| numbered(xid, opcode, body)).collect()
}

#[test]
fn connections_beyond_the_limits_are_closed_at_once_and_the_others_stay() -> Result<()> {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for (per_address, total) in [("20", "1000"), ("0", "20")] {
        let options = ZkshimOptions::embedded()
            .flag("--max-client-connections", per_address)
            .flag("--max-connections", total);
        let server = Watched::start(&options)?;
        // Probes of the start may still be closing.
        server.counts("zk_num_alive_connections", 1)?;
        let bystander = Bystander::start(server.address())?;
        let mut kept = Vec::new();
        for _ in 0..19 {
            kept.push(session(server.address())?);
        }
        for _ in 0..200 {
            Socket::open(server.address())?.expect_close()?;
        }
        kept.iter_mut().try_for_each(|client| client.exists("/", false).map(|_| ()))?;
        bystander.finish()?;
        drop(kept);
        server.stayed_below(60)?;
    }
    Ok(())
}

#[test]
fn handshakes_that_do_not_come_are_not_waited_for() -> Result<()> {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let server = Watched::start(&embedded())?;
    let bystander = Bystander::start(server.address())?;
    let handshake = frame(&ConnectRequest::default().bytes());
    let mut silent = Flood::open(&server, 100, &[])?;
    let mut half = Flood::open(&server, 100, handshake.get(..20).unwrap_or_default())?;
    // A frame as large as may be, of which all but the end comes.
    let long = [&0xF_FFFF_i32.to_be_bytes()[..], &vec![0; 0xF_FF00]].concat();
    let mut large = Flood::open(&server, 100, &long)?;
    let mut drop_by_drop = Socket::open(server.address())?;
    let started = Instant::now();
    let mut closed = false;
    for byte in &handshake {
        drop_by_drop.send_provoking(&[*byte]);
        if drop_by_drop.receive(Duration::from_millis(700))? == Incoming::Closed {
            closed = true;
            break;
        }
    }
    ensure!(closed, "a handshake of {:?} was waited for", started.elapsed());
    for flood in [&mut silent, &mut half, &mut large] {
        ensure!(flood.closed(Duration::from_secs(10))? == 100, "connections are left");
    }
    bystander.finish()?;
    // A frame's memory grows by doubling.
    server.stayed_below(2 * 100 + 100)
}

#[test]
fn requests_that_are_never_finished_end_with_their_sessions() -> Result<()> {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let server = Watched::start(&embedded())?;
    let bystander = Bystander::start(server.address())?;
    let short = ConnectRequest { timeout_ms: 4000, ..ConnectRequest::default() };
    let partial = [&0xF_FFFF_i32.to_be_bytes()[..], &vec![0; 0xF_FF00]].concat();
    let all = [&frame(&short.bytes())[..], &partial].concat();
    let mut flood = Flood::open(&server, 200, &all)?;
    ensure!(flood.closed(Duration::from_secs(20))? == 200, "sessions are left");
    bystander.finish()?;
    server.stayed_below(2 * 200 + 100)
}

#[test]
fn clients_that_ask_and_do_not_read_hold_little() -> Result<()> {
    let test = "clients_that_ask_and_do_not_read_hold_little";
    on_each_store(test, |options| {
        let server = Watched::start(options)?;
        let mut client = session(server.address())?;
        client.call(op::CREATE, create("/large", &vec![b'x'; 900_000], 0))?.ok()?;
        client.call(op::CREATE, create("/many", b"", 0))?.ok()?;
        for some in 0..10 {
            let names = (0..500).map(|number| format!("/many/a-name-as-they-are-{some}-{number}"));
            let creates: Vec<_> = names.map(|name| Operation::create(&name, 0)).collect();
            for part in creates.chunks(60) {
                client.call(op::MULTI, request(part))?.ok()?;
            }
        }
        let bystander = Bystander::start(server.address())?;
        let get = |opcode, path| repeated(500, opcode, &record().string(path).flag(false));
        let asked = [
            frame(&ConnectRequest::default().bytes()),
            get(op::GET_DATA, "/large"),
            get(op::GET_CHILDREN, "/many"),
        ];
        let flood = Flood::open(&server, 200, &asked.concat())?;
        // What they are being sent changes, so that the tree does not keep it.
        for round in 0..20 {
            client.set("/large", &vec![b'a' + round; 900_000])?;
            client.create_flags(&format!("/many/more-{round}"), 0)?.ok()?;
        }
        ensure!(flood.len() == 200);
        bystander.finish()?;
        server.stayed_below(600)
    })
}

#[test]
fn a_million_requests_at_once_wait_at_their_client() -> Result<()> {
    let test = "a_million_requests_at_once_wait_at_their_client";
    on_each_store(test, |options| {
        let server = Watched::start(options)?;
        let bystander = Bystander::start(server.address())?;
        let path = record().string("/bystander");
        let read = path.clone().flag(false);
        let write = path.buffer(&[b'x'; 100]).int(7_777_777);
        for (opcode, body) in [(op::GET_DATA, &read), (op::SET_DATA, &write)] {
            let some = repeated(1000, opcode, body);
            let mut flood = Flood::open(&server, 1, &frame(&ConnectRequest::default().bytes()))?;
            let mut sent = 0;
            while sent < 1000 && flood.send(&some, Duration::from_millis(1500)) {
                sent += 1;
            }
            ensure!(sent < 1000, "a million requests of {opcode} were taken in unread");
        }
        bystander.finish()?;
        server.stayed_below(150)
    })
}

#[test]
fn large_multis_of_many_clients_are_served_or_refused_whole() -> Result<()> {
    on_each_store("large_multis_of_many_clients_are_served_or_refused_whole", |options| {
        let server = Watched::start(options)?;
        let bystander = Bystander::start(server.address())?;
        let mut clients = (0..20).map(|_| session(server.address())).collect::<Result<Vec<_>>>()?;
        for (number, client) in clients.iter_mut().enumerate() {
            let parent = format!("/m{number}");
            client.create_flags(&parent, 0)?.ok()?;
            let creates: Vec<_> =
                (0..1000).map(|n| Operation::create(&format!("{parent}/{n}"), 0)).collect();
            client.send(op::MULTI, request(&creates))?;
            // As large as a request may be: what does not fit into a txn is refused with -5.
            let sets: Vec<_> =
                (0..9_000).map(|_| Operation::set(&parent, &[b'x'; 60], -1)).collect();
            client.send(op::MULTI, request(&sets))?;
        }
        // The last of them have been silent for as long as the others took.
        for (number, client) in clients.iter_mut().enumerate() {
            client.reply().with_context(|| format!("creates of client {number}"))?.ok()?;
            let second = client.reply().with_context(|| format!("sets of client {number}"))?.error;
            ensure!([0, -5].contains(&second), "client {number}: {second}");
            let names = client.get_children(&format!("/m{number}"), false)?.names()?;
            ensure!(names.len() == 1000, "{} of a multi", names.len());
        }
        bystander.finish()?;
        server.stayed_below(600)
    })
}

#[test]
fn identities_are_bounded_for_each_client() -> Result<()> {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let server = Watched::start(&embedded())?;
    let bystander = Bystander::start(server.address())?;
    let auth = |text: &str| record().int(0).string("digest").string(text);
    for length in [10, 900_000] {
        let mut client = session(server.address())?;
        let mut refused = false;
        for number in 0..1100 {
            let reply =
                client.call(op::AUTH, auth(&format!("{number}{}:p", "u".repeat(length))))?;
            if reply.error != 0 {
                refused = true;
                break;
            }
        }
        ensure!(refused, "identities of {length} bytes without end");
        client.socket.expect_close()?;
        client.keep_session();
    }
    let mut client = session(server.address())?;
    for _ in 0..5000 {
        client.send(op::AUTH, auth("the:same"))?;
    }
    for _ in 0..5000 {
        client.reply()?.ok()?;
    }
    bystander.finish()?;
    server.stayed_below(100)
}

/// Little memory for clients: 16 MiB for each third.
fn little() -> ZkshimOptions {
    embedded().flag("--client-memory-mib", "48")
}

#[test]
fn the_watches_of_all_clients_are_bounded_and_those_with_few_keep_theirs() -> Result<()> {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let server = Watched::start(&little())?;
    let bystander = Bystander::start(server.address())?;
    let mut modest = session(server.address())?;
    modest.create_flags("/modest", 0)?.ok()?;
    modest.get_data("/modest", true)?.data_and_stat()?;
    let mut greedy = (0..20).map(|_| session(server.address())).collect::<Result<Vec<_>>>()?;
    for (number, client) in greedy.iter_mut().enumerate() {
        // 7 MB each in the server, of znodes that do not exist.
        let mut set = record().long(0).int(0).int(25_000);
        for watch in 0..25_000 {
            set = set.string(&format!("/{number}/{watch}-watched"));
        }
        client.send(op::SET_WATCHES, set.int(0))?;
        // Closed, or answered and closed later: that is counted below.
        let _ = client.reply();
    }
    let closed = greedy.iter_mut().filter_map(|client| client.exists("/", false).err()).count();
    ensure!((15..20).contains(&closed), "{closed} of 20 were closed");
    modest.set("/modest", b"more")?;
    modest.expect_events(&[(3, "/modest")])?;
    bystander.finish()?;
    ensure!(server.log().contains("closing the one with the most"), "{}", server.log());
    server.stayed_below(150)
}

#[test]
fn what_all_clients_do_not_read_is_bounded() -> Result<()> {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let server = Watched::start(&little())?;
    let mut client = session(server.address())?;
    client.call(op::CREATE, create("/small", &[b'x'; 3000], 0))?.ok()?;
    let bystander = Bystander::start(server.address())?;
    // An answer of 3 MB, of pieces that are copied.
    let header = record().int(op::GET_DATA).flag(false).int(-1);
    let one = header.string("/small").flag(false).bytes();
    let end = record().int(-1).flag(true).int(-1).bytes();
    let multi_read = record().raw(&one.repeat(1000)).raw(&end);
    let asked = [
        frame(&ConnectRequest::default().bytes()),
        repeated(4, op::MULTI_READ, &multi_read),
        repeated(500, op::GET_DATA, &record().string("/small").flag(false)),
    ];
    let mut flood = Flood::open(&server, 100, &asked.concat())?;
    let closed = flood.closed_some(Duration::from_secs(5))?;
    bystander.finish()?;
    ensure!(server.log().contains("cutting the one with the most"), "{}", server.log());
    ensure!(closed > 20, "{closed} of 100 were cut");
    client.exists("/", false)?.ok()?;
    server.stayed_below(200)
}

#[test]
fn large_requests_that_are_drawn_out_keep_nobody_from_sending_theirs() -> Result<()> {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let server = Watched::start(&little())?;
    let bystander = Bystander::start(server.address())?;
    let mut client = session(server.address())?;
    client.call(op::CREATE, create("/large", b"", 0))?.ok()?;
    let head = record().int(1).int(op::SET_DATA).bytes();
    let partial = [&0xF_FFFF_i32.to_be_bytes()[..], &head, &vec![0; 0xF_F000]].concat();
    let all = [&frame(&ConnectRequest::default().bytes())[..], &partial].concat();
    let mut flood = Flood::open(&server, 60, &all)?;
    let begun = Instant::now();
    for round in 0..5 {
        client.set("/large", &vec![b'a' + round; 900_000])?;
    }
    ensure!(begun.elapsed() < Duration::from_secs(60), "it took {:?}", begun.elapsed());
    bystander.finish()?;
    ensure!(flood.closed_some(Duration::from_secs(2))? > 20, "none gave way");
    ensure!(server.log().contains("slow to send its own"), "{}", server.log());
    server.stayed_below(150)
}

#[test]
fn sessions_that_are_opened_and_left_are_gone_after_their_timeout() -> Result<()> {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let server = Watched::start(&embedded())?;
    let bystander = Bystander::start(server.address())?;
    let short = ConnectRequest { timeout_ms: 4000, ..ConnectRequest::default() };
    for _ in 0..10 {
        let mut flood = Flood::open(&server, 200, &frame(&short.bytes()))?;
        ensure!(flood.answered(200)?, "handshakes without an answer");
    }
    server.counts("zk_global_sessions", 1)?;
    bystander.finish()?;
    server.stayed_below(120)
}
