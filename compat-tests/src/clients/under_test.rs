//! What the clients are run against: the oracle, zkshim alone, or two zkshim on one etcd.

use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};

use anyhow::{Context, Result};

use crate::servers::etcd::Etcd;
use crate::servers::process::{Process, ask};
use crate::servers::zkshim::{Zkshim, ZkshimOptions};
use crate::servers::zookeeper::{ZooKeeper, ZooKeeperOptions};

/// Servers of one tree, any of which a client may use.
pub struct UnderTest {
    // Dropped in this order: the shims go before the etcd that they lean on.
    servers: Vec<Server>,
    _etcd: Option<Etcd>,
}

/// One of the servers under test.
pub enum Server {
    /// A member of a real ZooKeeper ensemble.
    ZooKeeper(ZooKeeper),
    /// A shim.
    Zkshim(Zkshim),
}

/// The kinds of servers that every client is run against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// A real ensemble of three, so that one of them may be killed.
    ZooKeeper,
    /// One zkshim on its embedded store.
    Embedded,
    /// Two zkshim on one etcd.
    TwoOnEtcd,
}

impl Against {
    /// The tools without which it cannot be fetched or built.
    #[must_use]
    pub fn tools(self) -> &'static [&'static str] {
        match self {
            Self::ZooKeeper => &["java", "mvn"],
            Self::Embedded => &[],
            Self::TwoOnEtcd => &["go"],
        }
    }

    /// Starts the servers.
    ///
    /// # Errors
    /// They cannot be fetched or built, or do not serve.
    pub fn start(self) -> Result<UnderTest> {
        self.start_with(&ZooKeeperOptions::default(), |options| options)
    }

    /// Starts servers that have TTL nodes and look for what has to go twice a second.
    ///
    /// # Errors
    /// They cannot be fetched or built, or do not serve.
    pub fn start_with_ttl_nodes(self) -> Result<UnderTest> {
        let interval = "500";
        let zookeeper = ZooKeeperOptions::default()
            .property("extendedTypesEnabled", "true")
            .jvm_argument(&format!("-Dznode.container.checkIntervalMs={interval}"));
        self.start_with(&zookeeper, |options| {
            options
                .flag("--container-check-interval-ms", interval)
                .variable("ZKSHIM_TTL_NODES", "1")
        })
    }

    fn start_with(
        self,
        zookeeper: &ZooKeeperOptions,
        ours: impl Fn(ZkshimOptions) -> ZkshimOptions,
    ) -> Result<UnderTest> {
        let mut etcd = None;
        let servers = match self {
            Self::ZooKeeper => ZooKeeper::start_ensemble(3, zookeeper)?
                .into_iter()
                .map(Server::ZooKeeper)
                .collect(),
            Self::Embedded => vec![zkshim(&ours(ZkshimOptions::embedded()))?],
            Self::TwoOnEtcd => {
                let options = ZkshimOptions::etcd(etcd.insert(Etcd::start()?), "/zkshim/");
                let options = ours(options);
                vec![zkshim(&options)?, zkshim(&options)?]
            }
        };
        Ok(UnderTest { servers, _etcd: etcd })
    }
}

fn zkshim(options: &ZkshimOptions) -> Result<Server> {
    Zkshim::start(options).map(Server::Zkshim)
}

impl UnderTest {
    /// The servers; there is at least one.
    pub fn servers(&mut self) -> &mut [Server] {
        &mut self.servers
    }

    /// Where the first server listens.
    ///
    /// # Errors
    /// Never: there is at least one.
    pub fn first(&self) -> Result<SocketAddr> {
        self.servers.first().map(|server| server.address()).context("find a server")
    }

    /// Where the last server listens: the first one's address if it is alone.
    ///
    /// # Errors
    /// Never: there is at least one.
    pub fn last(&self) -> Result<SocketAddr> {
        self.servers.last().map(|server| server.address()).context("find a server")
    }

    /// Which server serves a session, as `cons` tells.
    ///
    /// # Errors
    /// None of them does.
    pub fn server_of(&self, session: i64) -> Result<usize> {
        let wanted = format!("sid=0x{session:x},");
        let serves = |server: &Server| ask(server.address(), b"cons").contains(&wanted);
        self.servers.iter().position(serves).with_context(|| format!("find {wanted} in cons"))
    }

    /// Kills the server that serves a session. One that is alone is started again at once.
    ///
    /// # Errors
    /// None of them serves it, or it does not serve again.
    pub fn kill_server_of(&mut self, session: i64) -> Result<()> {
        let index = self.server_of(session)?;
        self.servers[index].kill()?;
        if let [server] = self.servers() { server.restart() } else { Ok(()) }
    }

    /// Starts the servers again that were killed.
    ///
    /// # Errors
    /// One of them does not serve again.
    pub fn restart_killed(&mut self) -> Result<()> {
        for server in &mut self.servers {
            if server.poll_exit()?.is_some() {
                server.restart()?;
            }
        }
        Ok(())
    }

    /// All servers, as clients are told of them.
    #[must_use]
    pub fn connect_string(&self) -> String {
        let addresses: Vec<String> =
            self.servers.iter().map(|server| server.address().to_string()).collect();
        addresses.join(",")
    }
}

impl Deref for Server {
    type Target = Process;

    fn deref(&self) -> &Process {
        match self {
            Self::ZooKeeper(server) => server,
            Self::Zkshim(server) => server,
        }
    }
}

impl DerefMut for Server {
    fn deref_mut(&mut self) -> &mut Process {
        match self {
            Self::ZooKeeper(server) => server,
            Self::Zkshim(server) => server,
        }
    }
}
