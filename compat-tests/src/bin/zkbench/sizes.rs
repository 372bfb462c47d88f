//! What a server's memory is for: it is filled with znodes, then with sessions that do nothing,
//! and its processes are looked at in between. Everything is left as it is, for whoever wants to
//! look closer, or to see how long a restart takes.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::net::TcpSocket;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::connection::Connection;
use crate::frames::{CreateMode, Message, Op};
use crate::processes::Process;
use crate::workload::join_all;
use crate::znodes::{self, DATA};

/// What to fill, and with how much.
#[derive(Clone, Debug)]
pub(crate) struct Sizes {
    /// The server.
    pub(crate) addr: SocketAddr,
    /// Under which znode.
    pub(crate) root: String,
    /// Znodes of 100 bytes, a thousand under each parent.
    pub(crate) znodes: usize,
    /// Sessions with a connection each.
    pub(crate) sessions: usize,
    /// Their timeout.
    pub(crate) session_timeout_ms: i32,
    /// Whose memory to read.
    pub(crate) processes: Vec<Process>,
    /// How long the sessions stay once all are there.
    pub(crate) hold: Duration,
}

/// Children of one parent.
const FAMILY: usize = 1000;
/// Connections that create.
const CREATORS: usize = 8;
const CREATES_IN_FLIGHT: usize = 64;
/// Connections from one source address: the system has some 28,000 ports for each.
const SESSIONS_PER_ADDRESS: usize = 20_000;
const STARTS_AT_ONCE: usize = 64;

impl Sizes {
    /// Fills the server and prints its memory.
    pub(crate) async fn carry_out(&self) -> Result<()> {
        self.show("before", 0)?;
        if self.znodes > 0 {
            self.create().await.context("create znodes")?;
            self.show("znodes", self.znodes)?;
        }
        if self.sessions > 0 {
            let sessions = self.open().await.context("open sessions")?;
            self.show("sessions", self.sessions)?;
            sleep(self.hold).await;
            self.show("sessions, held", self.sessions)?;
            drop(sessions);
        }
        Ok(())
    }

    fn show(&self, what: &str, count: usize) -> Result<()> {
        let each = self.processes.iter().map(|process| {
            process.resident_kib().map(|kib| format!("{} {} MiB", process.name, kib / 1024))
        });
        println!("{what} {count}: {}", each.collect::<Result<Vec<_>>>()?.join(", "));
        Ok(())
    }

    async fn create(&self) -> Result<()> {
        let mut control = Connection::open(self.addr, self.session_timeout_ms).await?;
        znodes::create(&mut control, &self.root).await?;
        let families = self.znodes.div_ceil(FAMILY);
        for family in 0..families {
            znodes::create(&mut control, &self.parent(family)).await?;
        }
        control.close().await?;
        let mut creators = JoinSet::new();
        for creator in 0..CREATORS {
            let this = self.clone();
            creators.spawn(async move {
                let own = (creator..families).step_by(CREATORS);
                let mut connection = Connection::open(this.addr, this.session_timeout_ms).await?;
                for family in own {
                    this.create_family(&mut connection, family).await?;
                }
                connection.close().await
            });
        }
        join_all(creators).await.map(drop)
    }

    fn parent(&self, family: usize) -> String {
        format!("{}/family-{family:05}", self.root)
    }

    async fn create_family(&self, connection: &mut Connection, family: usize) -> Result<()> {
        let count = FAMILY.min(self.znodes - family * FAMILY);
        let parent = self.parent(family);
        let paths: Vec<String> =
            (0..count).map(|number| format!("{parent}/znode-{number:010}")).collect();
        for chunk in paths.chunks(CREATES_IN_FLIGHT) {
            for path in chunk {
                connection.queue(Op::Create { path, data: &DATA, mode: CreateMode::Persistent });
            }
            connection.flush().await?;
            for path in chunk {
                let reply = loop {
                    match connection.poll_message()? {
                        Some(Message::Reply(reply)) => break reply,
                        Some(Message::Event { .. }) => anyhow::bail!("an event without a watch"),
                        None => connection.fill().await?,
                    }
                };
                anyhow::ensure!(reply.err == 0, "create of {path} was answered {}", reply.err);
            }
        }
        Ok(())
    }

    /// The sessions do not ping; their timeout must be long.
    async fn open(&self) -> Result<Vec<Connection>> {
        let mut sessions = Vec::with_capacity(self.sessions);
        while sessions.len() < self.sessions {
            let mut starting = JoinSet::new();
            let until = self.sessions.min(sessions.len() + STARTS_AT_ONCE);
            for index in sessions.len()..until {
                let (addr, timeout_ms) = (self.addr, self.session_timeout_ms);
                starting.spawn(async move {
                    let host = u8::try_from(index / SESSIONS_PER_ADDRESS + 1)?;
                    let socket = TcpSocket::new_v4()?;
                    socket.bind(SocketAddr::from((Ipv4Addr::new(127, 0, 0, host), 0)))?;
                    let stream = socket.connect(addr).await.context("connect")?;
                    Connection::start(stream, timeout_ms).await
                });
            }
            sessions.extend(join_all(starting).await?);
        }
        Ok(sessions)
    }
}
