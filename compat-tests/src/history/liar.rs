//! A relay between the recorder and a server that breaks promises, as a server with a bug would:
//! what it does must be noticed.
//!
//! It understands just enough of the frames to lie about them, and is honest until it is told.

use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::conformance::session::{ConnectRequest, ConnectResponse};
use crate::conformance::wire::{Reader, code, op, record};
use crate::differential::chance::Chance;

/// The xid of what the relay asks in a client's name.
const OWN_XID: i32 = 0x7fff_0000;

/// What a relay lies about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Some deletes are answered with success, and not carried out.
    LosesWrites,
    /// Some setData are carried out twice.
    DoublesWrites,
    /// Some setData are carried out after their client was cut off and served again.
    WritesLate,
    /// Some creates of what exists are answered with success.
    InventsSuccess,
    /// Some reads show data as they were long ago.
    ReadsStale,
    /// Some answers have a zxid that was long ago.
    ZxidsFall,
    /// The first in a queue for a lock is not always shown.
    HidesFirst,
    /// Some events do not come.
    LosesEvents,
    /// Some events come twice.
    DoublesEvents,
    /// Events come after the answer that they belong before.
    DelaysEvents,
    /// Sessions are said to be over while their clients talk.
    EndsSessions,
}

/// A relay that lies, on a port of its own, as long as the process lives.
pub struct Liar {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    upstream: SocketAddr,
    lie: Lie,
    lies_now: AtomicBool,
    told: AtomicU64,
    chance: Mutex<Chance>,
}

impl Liar {
    /// Starts a relay to a server; it is honest.
    ///
    /// # Errors
    /// There is no port for it.
    pub fn start(upstream: SocketAddr, lie: Lie, seed: u64) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("bind the relay")?;
        let address = listener.local_addr().context("read the relay's port")?;
        let shared = Arc::new(Shared {
            upstream,
            lie,
            lies_now: AtomicBool::new(false),
            told: AtomicU64::new(0),
            chance: Mutex::new(Chance::new(seed)),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let shared = Arc::clone(&accepting);
                // What fails ends the connection, as a server may do.
                thread::spawn(move || drop(serve(client, &shared)));
            }
        });
        Ok(Self { address, shared })
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Lies from now on, or is honest again.
    pub fn lie(&self, lies: bool) {
        self.shared.lies_now.store(lies, Ordering::Relaxed);
    }

    /// How many lies were told.
    #[must_use]
    pub fn told(&self) -> u64 {
        self.shared.told.load(Ordering::Relaxed)
    }
}

impl Shared {
    /// Whether to lie here, so many times in a hundred.
    fn lies(&self, about: Lie, percent: usize) -> bool {
        let lies = self.lie == about
            && self.lies_now.load(Ordering::Relaxed)
            && lock(&self.chance).percent(percent);
        if lies {
            self.told.fetch_add(1, Ordering::Relaxed);
        }
        lies
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is under way on a connection: what each answer will belong to.
#[derive(Default)]
struct UnderWay {
    requests: VecDeque<Asked>,
    /// What each path held when it was first read.
    first_read: BTreeMap<String, Vec<u8>>,
    /// Events that are held back.
    held: Vec<Vec<u8>>,
}

struct Asked {
    xid: i32,
    opcode: i32,
    path: String,
    /// It was not passed on; something harmless was asked instead.
    is_lost: bool,
}

fn serve(mut client: TcpStream, shared: &Arc<Shared>) -> Result<()> {
    client.set_nodelay(true)?;
    let hello = read_frame(&mut client)?;
    let is_resumed = Reader::new(hello.get(16..).unwrap_or_default()).long()? != 0;
    if is_resumed && shared.lies(Lie::EndsSessions, 50) {
        let password = [0; 16];
        let refusal = record().int(0).int(0).long(0).buffer(&password).byte(0).bytes();
        return write_frame(&mut client, &refusal);
    }
    let mut server = TcpStream::connect(shared.upstream)?;
    server.set_nodelay(true)?;
    write_frame(&mut server, &hello)?;
    let under_way = Arc::new(Mutex::new(UnderWay::default()));
    let ends = (client.try_clone()?, server.try_clone()?);
    let (answers_shared, answers_under_way) = (Arc::clone(shared), Arc::clone(&under_way));
    thread::spawn(move || {
        let (mut client, mut server) = ends;
        let _ = answers(&mut server, &mut client, &answers_shared, &answers_under_way);
        close(&client, &server);
    });
    let ended = requests(&mut client, &mut server, shared, &under_way);
    close(&client, &server);
    ended
}

fn close(client: &TcpStream, server: &TcpStream) {
    // An error means that it is closed already.
    let _ = client.shutdown(Shutdown::Both);
    let _ = server.shutdown(Shutdown::Both);
}

/// Passes requests on, most of them.
fn requests(
    client: &mut TcpStream,
    server: &mut TcpStream,
    shared: &Arc<Shared>,
    under_way: &Mutex<UnderWay>,
) -> Result<()> {
    loop {
        let frame = read_frame(client)?;
        let mut reader = Reader::new(&frame);
        let (xid, opcode) = (reader.int()?, reader.int()?);
        let has_path = [op::CREATE, op::DELETE, op::GET_DATA, op::SET_DATA, op::GET_CHILDREN2];
        let path = if has_path.contains(&opcode) { reader.string()? } else { String::new() };
        let is_lost = opcode == op::DELETE && shared.lies(Lie::LosesWrites, 20);
        if opcode == op::SET_DATA && shared.lies(Lie::WritesLate, 2) {
            let shared = Arc::clone(shared);
            thread::spawn(move || drop(write_late(&frame, &shared)));
            return Ok(());
        }
        lock(under_way).requests.push_back(Asked { xid, opcode, path, is_lost });
        if is_lost {
            write_frame(server, &record().int(xid).int(op::SYNC).string("/").bytes())?;
            continue;
        }
        write_frame(server, &frame)?;
        if opcode == op::SET_DATA && shared.lies(Lie::DoublesWrites, 10) {
            let body = frame.get(8..).unwrap_or_default();
            write_frame(server, &record().int(OWN_XID).int(opcode).raw(body).bytes())?;
        }
    }
}

/// Carries a write out in another session, long after its own was cut.
fn write_late(frame: &[u8], shared: &Shared) -> Result<()> {
    thread::sleep(Duration::from_millis(700));
    let mut server = TcpStream::connect(shared.upstream)?;
    write_frame(&mut server, &ConnectRequest::default().bytes())?;
    ConnectResponse::decode(&read_frame(&mut server)?)?;
    write_frame(&mut server, frame)?;
    read_frame(&mut server).map(drop)
}

/// Passes answers and events on, most of them as they are.
fn answers(
    server: &mut TcpStream,
    client: &mut TcpStream,
    shared: &Shared,
    under_way: &Mutex<UnderWay>,
) -> Result<()> {
    write_frame(client, &read_frame(server)?)?;
    loop {
        let frame = read_frame(server)?;
        let xid = Reader::new(&frame).int()?;
        let mut under_way = lock(under_way);
        match xid {
            -2 => write_frame(client, &frame)?,
            OWN_XID => {}
            -1 => {
                if shared.lies(Lie::DelaysEvents, 50) {
                    under_way.held.push(frame);
                } else if !shared.lies(Lie::LosesEvents, 30) {
                    write_frame(client, &frame)?;
                    if shared.lies(Lie::DoublesEvents, 30) {
                        write_frame(client, &frame)?;
                    }
                }
            }
            _ => {
                let asked = under_way.requests.pop_front().filter(|asked| asked.xid == xid);
                let asked = asked.context("an answer to nothing")?;
                let frame = falsify(frame, &asked, &mut under_way, shared)?;
                write_frame(client, &frame)?;
                for event in under_way.held.drain(..) {
                    write_frame(client, &event)?;
                }
            }
        }
    }
}

fn falsify(
    frame: Vec<u8>,
    asked: &Asked,
    under_way: &mut UnderWay,
    shared: &Shared,
) -> Result<Vec<u8>> {
    let mut reader = Reader::new(&frame);
    let (xid, zxid, error) = (reader.int()?, reader.long()?, reader.int()?);
    let body = frame.get(16..).unwrap_or_default();
    let head = |zxid: i64, error: i32| record().int(xid).long(zxid).int(error);
    if asked.is_lost {
        return Ok(head(zxid, 0).bytes());
    }
    match asked.opcode {
        op::CREATE if error == code::NODE_EXISTS && shared.lies(Lie::InventsSuccess, 30) => {
            return Ok(head(zxid, 0).string(&asked.path).bytes());
        }
        op::GET_DATA if error == 0 => {
            let first = under_way.first_read.entry(asked.path.clone());
            let first = first.or_insert_with(|| body.to_vec());
            if first.as_slice() != body && shared.lies(Lie::ReadsStale, 20) {
                return Ok(head(zxid, 0).raw(first).bytes());
            }
        }
        op::GET_CHILDREN2 if error == 0 && asked.path.contains("/locks/") => {
            let mut names = reader.strings()?;
            let number =
                |name: &String| name.get(name.len().saturating_sub(10)..).map(str::to_owned);
            names.sort_by_key(number);
            if names.len() > 1 && shared.lies(Lie::HidesFirst, 30) {
                names.remove(0);
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                // The number of children stands before pzxid, at the end.
                let mut stat = reader.take(68)?.to_vec();
                let count = i32::try_from(names.len()).context("count children")?;
                stat.splice(56..60, count.to_be_bytes());
                return Ok(head(zxid, 0).strings(&names).raw(&stat).bytes());
            }
        }
        _ => {}
    }
    if shared.lies(Lie::ZxidsFall, 3) {
        return Ok(head((zxid - 50).max(1), error).raw(body).bytes());
    }
    Ok(frame)
}

fn read_frame(stream: &mut TcpStream) -> Result<Vec<u8>> {
    let mut head = [0; 4];
    stream.read_exact(&mut head).context("receive")?;
    let mut frame = vec![0; usize::try_from(i32::from_be_bytes(head)).context("a frame's length")?];
    stream.read_exact(&mut frame).context("receive")?;
    Ok(frame)
}

fn write_frame(stream: &mut TcpStream, frame: &[u8]) -> Result<()> {
    stream.write_all(&record().buffer(frame).bytes()).context("send")
}
