//! An unmodified HBase 2.6 on local files: a process with a master and a region server.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::clients::{class_path, source};
use crate::servers::process::{Launch, Process, free_port};

/// Packages of the JDK that Hadoop and HBase look into by reflection.
const OPENED_PACKAGES: [&str; 8] = [
    "java.lang",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "sun.nio.ch",
];

/// A running node, or one that was killed and may be started again.
pub struct Node {
    process: Process,
    configuration: PathBuf,
}

impl Node {
    /// Starts a node with the directory of its cluster's files and ZooKeeper's connect string,
    /// without waiting for it.
    ///
    /// # Errors
    /// Its jars cannot be fetched, or Java cannot be run.
    pub fn spawn(cluster: &Path, connect_string: &str) -> Result<Self> {
        let directory = TempDir::new().context("make a directory for HBase")?;
        let configuration = directory.path().join("conf");
        fs::create_dir_all(&configuration).context("make the configuration directory")?;
        let port = free_port()?;
        let site = hbase_site(directory.path(), cluster, connect_string, port)?;
        fs::write(configuration.join("hbase-site.xml"), site).context("write hbase-site.xml")?;
        let launch = Launch {
            name: "HBase",
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            command: java(&configuration, "Node")?,
            serves: |address| TcpStream::connect(address).is_ok(),
        };
        Ok(Self { process: Process::spawn(launch, directory)?, configuration })
    }

    /// A program of `java/hbase` that finds HBase as this node does.
    ///
    /// # Errors
    /// Its jars cannot be fetched.
    pub fn client(&self, class: &str) -> Result<Command> {
        java(&self.configuration, class)
    }
}

impl Deref for Node {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for Node {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}

fn java(configuration: &Path, class: &str) -> Result<Command> {
    let mut command = Command::new("java");
    command.args(["-Xmx300m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
    for package in OPENED_PACKAGES {
        command.arg(format!("--add-opens=java.base/{package}=ALL-UNNAMED"));
    }
    let log4j = source("java/hbase/log4j.properties");
    command
        .arg(format!("-Dlog4j.configuration=file:{}", log4j.display()))
        .arg("-cp")
        .arg(format!("{}:{}", configuration.display(), class_path("hbase")?))
        .arg(class);
    Ok(command)
}

/// The settings that lean on ZooKeeper come first; the rest makes a small node on local files.
fn hbase_site(
    directory: &Path,
    cluster: &Path,
    connect_string: &str,
    master_port: u16,
) -> Result<String> {
    let local = |part: &str| format!("file://{}/{part}", cluster.display());
    let settings = [
        ("hbase.cluster.distributed", "true".to_owned()),
        ("hbase.zookeeper.quorum", connect_string.to_owned()),
        ("zookeeper.session.timeout", "6000".to_owned()),
        ("hbase.rootdir", local("root")),
        ("hbase.wal.dir", local("wal")),
        ("hbase.wal.provider", "filesystem".to_owned()),
        ("hbase.unsafe.stream.capability.enforce", "false".to_owned()),
        ("hbase.tmp.dir", directory.join("tmp").display().to_string()),
        ("hbase.master.port", master_port.to_string()),
        ("hbase.regionserver.port", free_port()?.to_string()),
        ("hbase.master.info.port", "-1".to_owned()),
        ("hbase.regionserver.info.port", "-1".to_owned()),
        ("hbase.master.hostname", "localhost".to_owned()),
        ("hbase.regionserver.hostname", "localhost".to_owned()),
        ("hbase.master.ipc.address", "127.0.0.1".to_owned()),
        ("hbase.regionserver.ipc.address", "127.0.0.1".to_owned()),
        ("hbase.regionserver.handler.count", "4".to_owned()),
        ("hbase.regionserver.msginterval", "1000".to_owned()),
        ("hbase.master.wait.on.regionservers.mintostart", "1".to_owned()),
        ("hbase.master.wait.on.regionservers.timeout", "2000".to_owned()),
    ];
    let mut xml = String::from("<configuration>\n");
    for (name, value) in settings {
        xml += &format!("<property><name>{name}</name><value>{value}</value></property>\n");
    }
    Ok(xml + "</configuration>\n")
}
