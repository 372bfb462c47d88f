//! What a case is given: the servers, a subtree of its own, and sessions.

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::conformance::client::Client;
use crate::conformance::expect::expect_one_of;
use crate::conformance::session::ConnectRequest;
use crate::conformance::socket::Socket;
use crate::conformance::wire::code;

/// Whose answers are expected where the two differ on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Target {
    /// The real server: inputs that would stop it are not sent.
    Zookeeper,
    /// zkshim: its listed deviations are the expectation.
    Zkshim,
}

/// The servers of a run and what is known about them.
#[derive(Clone, Debug)]
pub struct Settings {
    /// One server, or several that serve the same tree.
    pub servers: Vec<SocketAddr>,
    /// Who is expected to answer.
    pub target: Target,
    /// The servers' tickTime.
    pub tick: Duration,
    /// The node below which all cases work; unique to the run.
    pub root: String,
}

/// The world of one running case.
pub struct Context<'run> {
    settings: &'run Settings,
    case: &'static str,
    sessions: Cell<usize>,
    prepared: Cell<bool>,
    speaker: Arc<AtomicUsize>,
}

impl<'run> Context<'run> {
    /// A case's world, still without nodes and sessions.
    #[must_use]
    pub fn new(settings: &'run Settings, case: &'static str) -> Self {
        Self {
            settings,
            case,
            sessions: Cell::new(0),
            prepared: Cell::new(false),
            speaker: Arc::new(AtomicUsize::new(usize::MAX)),
        }
    }

    /// Whether the real server is expected.
    #[must_use]
    pub fn is_zookeeper(&self) -> bool {
        self.settings.target == Target::Zookeeper
    }

    /// The server's tickTime in ms.
    #[must_use]
    pub fn tick_ms(&self) -> i32 {
        i32::try_from(self.settings.tick.as_millis()).expect("a tick is short")
    }

    /// The node that this case owns; made with its first session.
    #[must_use]
    pub fn base(&self) -> String {
        format!("{}/{}", self.settings.root, self.case)
    }

    /// A node below the case's own; the name has no slash in front.
    #[must_use]
    pub fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.base())
    }

    /// A server's address; numbers beyond the last start again.
    #[must_use]
    pub fn address(&self, number: usize) -> SocketAddr {
        let servers = &self.settings.servers;
        *servers.iter().cycle().nth(number % servers.len().max(1)).expect("a run has a server")
    }

    /// Whether the run has more than one server.
    #[must_use]
    pub fn has_several_servers(&self) -> bool {
        self.settings.servers.len() > 1
    }

    /// A connection without a session to the first server.
    ///
    /// # Errors
    /// It does not listen.
    pub fn socket(&self) -> Result<Socket> {
        Socket::open(self.address(0))
    }

    /// The next session, on the next server.
    ///
    /// # Errors
    /// It is not accepted.
    pub fn client(&self) -> Result<Client> {
        self.client_with(&ConnectRequest::default())
    }

    /// As [`Context::client`], with fields of one's own.
    ///
    /// # Errors
    /// It is not accepted.
    pub fn client_with(&self, request: &ConnectRequest) -> Result<Client> {
        let mut client = self.client_on(self.sessions.get(), request)?;
        if !self.prepared.replace(true) {
            let base = self.base();
            for path in [self.settings.root.as_str(), base.as_str()] {
                let reply = client.create_flags(path, 0)?;
                expect_one_of("making the case's node", &reply.error, &[0, code::NODE_EXISTS])?;
            }
        }
        Ok(client)
    }

    /// A session on a given server, without making the case's node.
    ///
    /// # Errors
    /// It is not accepted.
    pub fn client_on(&self, server: usize, request: &ConnectRequest) -> Result<Client> {
        let number = self.sessions.get();
        self.sessions.set(number + 1);
        let speaker = self.has_several_servers().then(|| Arc::clone(&self.speaker));
        Client::connect(self.address(server), request, number, speaker)
            .with_context(|| format!("session {number} of the case"))
    }
}
