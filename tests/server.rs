//! The program and its client port, from outside: bytes over TCP, flags and exit codes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;

/// A `zkshim serve` on a free port, with a store of its own. It is killed when it is dropped.
struct Zkshim {
    process: Child,
    address: SocketAddr,
    data: TempDir,
}

impl Zkshim {
    fn start(flags: &[&str]) -> Self {
        let data = TempDir::new().expect("there is room for a directory");
        let mut process = command(data.path().to_str().expect("it is plain text"))
            .args(["--listen=127.0.0.1:0", "--log-format=json"])
            .args(flags)
            .stderr(Stdio::piped())
            .spawn()
            .expect("it was built");
        let log = BufReader::new(process.stderr.take().expect("it is piped"));
        let mut lines = log.lines().map_while(Result::ok);
        let listening = lines.find(|line| line.contains("listening")).expect("it says so");
        let (_, rest) = listening.split_once("\"address\":\"").expect("where");
        let (address, _) = rest.split_once('"').expect("a whole text");
        let address = address.parse().expect("an address");
        // The rest of the log is read, or the process would wait for a reader.
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, address, data }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("any socket can");
        stream
    }

    fn answer(&self, sent: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(sent).expect("it reads");
        rest(&mut stream)
    }

    fn terminate(mut self) -> ExitStatus {
        let id = self.process.id().to_string();
        let killed = Command::new("kill").args(["-TERM", &id]).status().expect("there is kill");
        assert!(killed.success());
        self.process.wait().expect("it ends")
    }
}

impl Drop for Zkshim {
    fn drop(&mut self) {
        // It may have ended before.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn command(data_dir: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zkshim"));
    command.args(["serve", "--data-dir", data_dir]);
    command
}

/// Everything until the end; a reset connection would be an error.
fn rest(stream: &mut TcpStream) -> String {
    let mut rest = String::new();
    stream.read_to_string(&mut rest).expect("the end comes in order");
    rest
}

fn check_refused(output: &Output, code: i32, expect: &str) {
    let text = String::from_utf8_lossy(&output.stderr);
    let error = text.lines().last().expect("it says why");
    assert!(error.starts_with("error: ") && error.contains(expect), "{text}");
    assert_eq!(output.status.code(), Some(code), "{text}");
}

#[test]
fn words_are_answered_and_the_connection_ends_in_order() {
    let zkshim = Zkshim::start(&["--four-letter-words=ruok,envi"]);
    for sent in ["ruok", "ruok\n", "ruok\r\nmore than was asked for"] {
        assert_eq!(zkshim.answer(sent.as_bytes()), "imok");
    }
    assert!(zkshim.answer(b"envi").starts_with("Environment:\nzookeeper.version=3.9.5-zkshim-"));
    assert_eq!(
        zkshim.answer(b"mntr"),
        "mntr is not executed because it is not in the whitelist.\n"
    );
    assert_eq!(zkshim.answer(b"zzzz"), "");
}

#[test]
fn one_connection_too_many_from_an_address_is_closed_at_once() {
    let zkshim = Zkshim::start(&["--max-client-connections=2", "--four-letter-words=ruok"]);
    let (first, _second) = (zkshim.connect(), zkshim.connect());
    assert_eq!(rest(&mut zkshim.connect()), "");
    drop(first);
    // The server learns of it a moment later.
    let answered = (0..1000).any(|_| zkshim.answer(b"ruok") == "imok");
    assert!(answered, "the place was not given back");
}

#[test]
fn one_connection_too_many_in_all_is_closed_at_once() {
    let zkshim = Zkshim::start(&["--max-connections=1", "--max-client-connections=0"]);
    let _first = zkshim.connect();
    assert_eq!(rest(&mut zkshim.connect()), "");
}

#[test]
fn a_signal_ends_it_with_0_and_its_connections_in_order() {
    let zkshim = Zkshim::start(&[]);
    let mut stream = zkshim.connect();
    assert_eq!(zkshim.terminate().code(), Some(0));
    assert_eq!(rest(&mut stream), "");
}

#[test]
fn a_port_in_use_ends_it_with_1() {
    let data = TempDir::new().expect("there is room for a directory");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let listen = taken.local_addr().expect("it is bound").to_string();
    let output = command(data.path().to_str().expect("it is plain text"))
        .args(["--listen", &listen])
        .output()
        .expect("it was built");
    check_refused(&output, 1, &listen);
}

#[test]
fn a_data_directory_in_use_ends_it_with_1() {
    let zkshim = Zkshim::start(&[]);
    let dir = zkshim.data.path().to_str().expect("it is plain text");
    let output = command(dir).arg("--listen=127.0.0.1:0").output().expect("it was built");
    check_refused(&output, 1, "in use by another process");
}

#[test]
fn a_value_that_makes_no_sense_ends_it_with_2_and_one_sentence() {
    let output = command("unused").arg("--listen=2181").output().expect("it was built");
    check_refused(&output, 2, "--listen is \"2181\"");
    let output = command("unused").arg("--store=etcd").output().expect("it was built");
    check_refused(&output, 2, "--etcd-endpoints");
    let output = Command::new(env!("CARGO_BIN_EXE_zkshim"))
        .arg("serve")
        .env("ZKSHIM_TICK_TIME", "soon")
        .output()
        .expect("it was built");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--tick-time"));
}
