//! An unmodified Kafka 3.9 broker that keeps its cluster's metadata in ZooKeeper.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::clients::{jars, source};
use crate::servers::process::{Launch, Process, free_port};

/// A running broker, or one that was stopped and may be started again on the same files.
pub struct Broker {
    process: Process,
    secured: SocketAddr,
}

impl Broker {
    /// Starts a broker with its number and ZooKeeper's connect string, without waiting for it.
    ///
    /// # Errors
    /// Its jars cannot be fetched, or Java cannot be run.
    pub fn spawn(id: u32, connect_string: &str) -> Result<Self> {
        let directory = TempDir::new().context("make a directory for a broker")?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let secured = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let properties = directory.path().join("server.properties");
        let text = server_properties(directory.path(), id, connect_string, address, secured);
        fs::write(&properties, text).context("write server.properties")?;
        let mut command = Command::new("java");
        command
            .args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
            .arg(format!("-Dlog4j.configuration=file:{}", log4j().display()))
            .arg("-cp")
            .arg(format!("{}/*", jars("kafka")?.display()))
            .arg("kafka.Kafka")
            .arg(properties);
        let launch = Launch {
            name: "a Kafka broker",
            address,
            command,
            serves: |address| TcpStream::connect(address).is_ok(),
        };
        Ok(Self { process: Process::spawn(launch, directory)?, secured })
    }

    /// Where users have to log in.
    #[must_use]
    pub fn secured(&self) -> SocketAddr {
        self.secured
    }
}

/// How brokers and the steps log: their own lines, and those of ZooKeeper's client.
#[must_use]
pub fn log4j() -> PathBuf {
    source("java/kafka/log4j.properties")
}

impl Deref for Broker {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for Broker {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}

/// The settings that lean on ZooKeeper come first; the rest makes a small broker.
fn server_properties(
    directory: &Path,
    id: u32,
    connect_string: &str,
    address: SocketAddr,
    secured: SocketAddr,
) -> String {
    let listeners = format!("PLAINTEXT://{address},SASL_PLAINTEXT://{secured}");
    let login = "org.apache.kafka.common.security.scram.ScramLoginModule required;".to_owned();
    let settings = [
        ("broker.id", id.to_string()),
        ("zookeeper.connect", connect_string.to_owned()),
        ("zookeeper.session.timeout.ms", "6000".to_owned()),
        ("authorizer.class.name", "kafka.security.authorizer.AclAuthorizer".to_owned()),
        ("super.users", "User:ANONYMOUS".to_owned()),
        ("delegation.token.secret.key", "secret".to_owned()),
        ("sasl.enabled.mechanisms", "SCRAM-SHA-256".to_owned()),
        ("listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config", login),
        ("listeners", listeners),
        ("inter.broker.listener.name", "PLAINTEXT".to_owned()),
        ("log.dirs", directory.join("logs").display().to_string()),
        ("auto.create.topics.enable", "false".to_owned()),
        ("auto.leader.rebalance.enable", "false".to_owned()),
        ("default.replication.factor", "2".to_owned()),
        ("offsets.topic.num.partitions", "2".to_owned()),
        ("offsets.topic.replication.factor", "2".to_owned()),
        ("group.initial.rebalance.delay.ms", "0".to_owned()),
        ("replica.lag.time.max.ms", "4000".to_owned()),
        ("log.cleaner.dedupe.buffer.size", "2097152".to_owned()),
        ("num.io.threads", "4".to_owned()),
        ("num.network.threads", "2".to_owned()),
        ("background.threads", "2".to_owned()),
    ];
    settings.iter().map(|(name, value)| format!("{name}={value}\n")).collect()
}
