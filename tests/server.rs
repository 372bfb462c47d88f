//! The program and its client port, from outside: bytes over TCP, flags and exit codes.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// How long the slowest machine may take for anything.
const PATIENCE: Duration = Duration::from_secs(60);

/// A `zkshim serve` on a free port, with a store of its own. It is killed when it is dropped.
struct Zkshim {
    process: Child,
    address: SocketAddr,
    data: TempDir,
}

impl Zkshim {
    fn start(flags: &[&str]) -> Self {
        Self::start_on(TempDir::new().expect("there is room for a directory"), flags)
    }

    fn start_on(data: TempDir, flags: &[&str]) -> Self {
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
        stream.set_read_timeout(Some(PATIENCE)).expect("any socket can");
        stream
    }

    fn answer(&self, sent: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(sent).expect("it reads");
        rest(&mut stream)
    }

    fn terminate(&mut self) -> ExitStatus {
        let id = self.process.id().to_string();
        let killed = Command::new("kill").args(["-TERM", &id]).status().expect("there is kill");
        assert!(killed.success());
        self.process.wait().expect("it ends")
    }

    /// Ends it and starts another on the same data.
    fn restart(mut self, flags: &[&str]) -> Self {
        assert_eq!(self.terminate().code(), Some(0));
        let another = TempDir::new().expect("there is room for a directory");
        let data = std::mem::replace(&mut self.data, another);
        Self::start_on(data, flags)
    }

    /// Sends a handshake, until the server serves. Returns the stream, and the session's id and
    /// password.
    fn session(&self, id: i64, password: &[u8]) -> (TcpStream, i64, Vec<u8>) {
        let mut handshake = vec![0; 4 + 8];
        handshake.extend(10_000_i32.to_be_bytes());
        handshake.extend(id.to_be_bytes());
        handshake.extend(16_i32.to_be_bytes());
        handshake.extend(password);
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            let mut stream = self.connect();
            send(&mut stream, &handshake);
            // Closed without an answer: it does not serve yet.
            let Some(answer) = frame(&mut stream) else {
                std::thread::sleep(Duration::from_millis(10));
                continue;
            };
            assert_eq!(answer.len(), 36);
            let id = i64::from_be_bytes(answer[8..16].try_into().expect("eight bytes"));
            return (stream, id, answer[20..].to_vec());
        }
        panic!("it does not serve");
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

fn send(stream: &mut TcpStream, frame: &[u8]) {
    let length = i32::try_from(frame.len()).expect("frames are short");
    stream.write_all(&[&length.to_be_bytes(), frame].concat()).expect("it reads");
}

/// The next frame; `None` at the end. A reset connection would be an error.
fn frame(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    match stream.read_exact(&mut length) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return None,
        read => read.expect("the end comes in order"),
    }
    let length = usize::try_from(i32::from_be_bytes(length)).expect("a length");
    let mut frame = vec![0; length];
    stream.read_exact(&mut frame).expect("the frame is whole");
    Some(frame)
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as i32).to_be_bytes(), text.as_bytes()].concat()
}

fn int(int: i32) -> Vec<u8> {
    int.to_be_bytes().to_vec()
}

/// The body of a create: a znode without data that anyone may use.
fn create(path: &str, flags: i32) -> Vec<u8> {
    let acl = [int(1), int(31), text("world"), text("anyone")].concat();
    [text(path), int(0), acl, int(flags)].concat()
}

/// A request for an ephemeral znode.
fn create_ephemeral(xid: i32, path: &str) -> Vec<u8> {
    [int(xid), int(1), create(path, 1)].concat()
}

/// A request for several operations of one type at once, given their bodies.
fn multi(xid: i32, opcode: i32, bodies: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let header = |opcode, done| [int(opcode), vec![u8::from(done)], int(-1)].concat();
    let mut request = [int(xid), int(14)].concat();
    for body in bodies {
        request.extend(header(opcode, false));
        request.extend(body);
    }
    request.extend(header(-1, true));
    request
}

/// A request whether a znode exists.
fn exists(xid: i32, path: &str) -> Vec<u8> {
    [int(xid), int(3), text(path), vec![0]].concat()
}

/// The error in a reply's header.
fn error_of(reply: &[u8]) -> i32 {
    i32::from_be_bytes(reply[12..16].try_into().expect("four bytes"))
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
    let began = Instant::now();
    loop {
        let mut stream = zkshim.connect();
        let mut answer = String::new();
        // A connection that is closed at once may be reset, since it has sent something.
        let sent = stream.write_all(b"ruok");
        if sent.and_then(|()| stream.read_to_string(&mut answer)).is_ok() && answer == "imok" {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "the place was not given back");
    }
}

#[test]
fn one_connection_too_many_in_all_is_closed_at_once() {
    let zkshim = Zkshim::start(&["--max-connections=1", "--max-client-connections=0"]);
    let _first = zkshim.connect();
    assert_eq!(rest(&mut zkshim.connect()), "");
}

#[test]
fn a_signal_ends_it_with_0_and_its_connections_in_order() {
    let mut zkshim = Zkshim::start(&[]);
    let (mut stream, ..) = zkshim.session(0, &[0; 16]);
    assert_eq!(zkshim.terminate().code(), Some(0));
    assert_eq!(rest(&mut stream), "");
}

#[test]
fn a_session_and_its_ephemerals_survive_a_restart() {
    let zkshim = Zkshim::start(&[]);
    let (mut stream, id, password) = zkshim.session(0, &[0; 16]);
    send(&mut stream, &create_ephemeral(1, "/mine"));
    assert_eq!(error_of(&frame(&mut stream).expect("an answer")), 0);
    let zkshim = zkshim.restart(&[]);
    assert_eq!(frame(&mut stream), None, "the connection was closed");
    let (mut stream, resumed, _) = zkshim.session(id, &password);
    assert_eq!(resumed, id);
    send(&mut stream, &exists(2, "/mine"));
    let reply = frame(&mut stream).expect("an answer");
    assert_eq!(error_of(&reply), 0);
    let owner = &reply[16 + 44..16 + 52];
    assert_eq!(owner, id.to_be_bytes(), "it is still the session's");
}

#[test]
fn a_multi_that_fits_into_a_frame_fits_into_the_embedded_store() {
    let zkshim = Zkshim::start(&[]);
    let (mut stream, ..) = zkshim.session(0, &[0; 16]);
    let paths: Vec<String> = (0..8_000).map(|number| format!("/node-{number}")).collect();
    let creates = paths.iter().map(|path| create(path, 0));
    let deletes = paths.iter().map(|path| [text(path), int(-1)].concat());
    for request in [multi(1, 1, creates), multi(2, 2, deletes)] {
        send(&mut stream, &request);
        assert_eq!(error_of(&frame(&mut stream).expect("an answer")), 0);
    }
    send(&mut stream, &exists(3, &paths[0]));
    assert_eq!(error_of(&frame(&mut stream).expect("an answer")), -101);
}

#[test]
fn what_was_under_way_when_it_stops_is_answered() {
    let mut zkshim = Zkshim::start(&[]);
    let (mut stream, ..) = zkshim.session(0, &[0; 16]);
    let paths: Vec<String> = (0..50).map(|number| format!("/node-{number}")).collect();
    for (xid, path) in (1..).zip(&paths) {
        send(&mut stream, &create_ephemeral(xid, path));
    }
    // One answer tells that the rest was read, or will be: it came in order.
    assert_eq!(error_of(&frame(&mut stream).expect("an answer")), 0);
    assert_eq!(zkshim.terminate().code(), Some(0));
    let answered = std::iter::from_fn(|| frame(&mut stream)).inspect(|reply| {
        assert_eq!(error_of(reply), 0);
    });
    assert!(answered.count() < 50, "and then the connection ended in order");
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
    // It listens before its store is open; a session shows that the directory is taken.
    let _session = zkshim.session(0, &[0; 16]);
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

#[test]
fn an_empty_variable_is_as_one_that_is_not_set() {
    let help = command("unused").arg("--help").output().expect("it was built");
    let help = String::from_utf8(help.stdout).expect("it is plain text");
    let names = help.split("[env: ").skip(1).filter_map(|rest| rest.split('=').next());
    let names: Vec<&str> = names.collect();
    assert!(names.contains(&"ZKSHIM_STORE") && names.contains(&"ZKSHIM_TTL_NODES"), "{help}");
    let data = TempDir::new().expect("there is room for a directory");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let listen = taken.local_addr().expect("it is bound").to_string();
    let output = command(data.path().to_str().expect("it is plain text"))
        .args(["--listen", &listen])
        .envs(names.into_iter().map(|name| (name, "")))
        .output()
        .expect("it was built");
    check_refused(&output, 1, &listen);
}
