//! The real ZooKeeper 3.9.5, standalone or as an ensemble: the oracle.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::servers::prepared::{Node, write_transaction_log};
use crate::servers::process::{Launch, Process, free_port, retry_start, serves_zookeeper};
use crate::servers::tool_output;

const STANDALONE: &str = "org.apache.zookeeper.server.ZooKeeperServerMain";
const ENSEMBLE: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";

/// A running ZooKeeper server.
pub struct ZooKeeper {
    process: Process,
}

/// Settings beyond the harness's own (`tickTime` 2000, all four-letter words, no admin server).
#[derive(Clone, Debug, Default)]
pub struct ZooKeeperOptions {
    /// Lines of the configuration file, such as `("extendedTypesEnabled", "true")`.
    pub properties: Vec<(String, String)>,
    /// Arguments of the JVM, such as `-Dznode.container.checkIntervalMs=500`.
    pub jvm_arguments: Vec<String>,
    /// Nodes that are there from the start, with the versions of their data.
    pub nodes: Vec<Node>,
}

impl ZooKeeperOptions {
    /// Adds a line of the configuration file; it wins over the harness's own.
    #[must_use]
    pub fn property(mut self, key: &str, value: &str) -> Self {
        self.properties.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Adds an argument of the JVM.
    #[must_use]
    pub fn jvm_argument(mut self, argument: &str) -> Self {
        self.jvm_arguments.push(argument.to_owned());
        self
    }
}

impl ZooKeeper {
    /// Starts a standalone server with an empty tree.
    ///
    /// # Errors
    /// Java or Maven is missing, or it does not serve.
    pub fn start() -> Result<Self> {
        Self::start_with(&ZooKeeperOptions::default())
    }

    /// As [`ZooKeeper::start`], with settings.
    ///
    /// # Errors
    /// Java or Maven is missing, or it does not serve.
    pub fn start_with(options: &ZooKeeperOptions) -> Result<Self> {
        retry_start(|| {
            let directory = TempDir::new().context("make a directory for ZooKeeper")?;
            let launch = launch(directory.path(), free_port()?, STANDALONE, "", options)?;
            Ok(Self { process: Process::start(launch, directory)? })
        })
    }

    /// Starts an ensemble of so many servers and waits until all of them serve.
    ///
    /// # Errors
    /// Java or Maven is missing, or they do not serve.
    pub fn start_ensemble(size: u8, options: &ZooKeeperOptions) -> Result<Vec<Self>> {
        retry_start(|| {
            let mut members = String::from("initLimit=20\nsyncLimit=10\n");
            for id in 1..=size {
                let (quorum, election) = (free_port()?, free_port()?);
                members += &format!("server.{id}=127.0.0.1:{quorum}:{election}\n");
            }
            let mut servers = Vec::new();
            for id in 1..=size {
                let directory = TempDir::new().context("make a directory for ZooKeeper")?;
                let data = directory.path().join("data");
                fs::create_dir_all(&data).context("make the data directory")?;
                fs::write(data.join("myid"), id.to_string()).context("write myid")?;
                let launch = launch(directory.path(), free_port()?, ENSEMBLE, &members, options)?;
                servers.push(Self { process: Process::spawn(launch, directory)? });
            }
            for server in &mut servers {
                server.wait_until_serving()?;
            }
            Ok(servers)
        })
    }
}

impl Deref for ZooKeeper {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for ZooKeeper {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}

fn launch(
    directory: &Path,
    port: u16,
    main_class: &str,
    members: &str,
    options: &ZooKeeperOptions,
) -> Result<Launch> {
    let jars = tool_output("tools/zookeeper/fetch")?;
    let configuration = directory.join("zoo.cfg");
    let mut lines = format!(
        "tickTime=2000\ndataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\n\
         admin.enableServer=false\n4lw.commands.whitelist=*\nmaxClientCnxns=0\n{members}",
        directory.join("data").display()
    );
    if !options.nodes.is_empty() {
        write_transaction_log(&directory.join("data"), &options.nodes)?;
        // A log without a snapshot is refused otherwise.
        lines += "snapshot.trust.empty=true\n";
    }
    // java.util.Properties takes the last of two equal keys.
    for (key, value) in &options.properties {
        lines += &format!("{key}={value}\n");
    }
    fs::write(&configuration, lines).context("write zoo.cfg")?;
    fs::write(directory.join("logback.xml"), LOGBACK).context("write logback.xml")?;
    let mut command = Command::new("java");
    command
        .arg("-Xmx512m")
        .args(&options.jvm_arguments)
        .arg("-cp")
        .arg(format!("{}:{jars}/*", directory.display()))
        .arg(main_class)
        .arg(configuration);
    Ok(Launch {
        name: "ZooKeeper",
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        command,
        serves: serves_zookeeper,
    })
}

/// Logback without a configuration logs every packet.
const LOGBACK: &str = r#"<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{ISO8601} %-5p %c{1} - %m%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="OUT"/></root>
</configuration>
"#;
