//! An unmodified HiveServer2 4.0.1 that registers itself, and the drivers that look for it:
//! beeline 2.3.9 (Curator 2.13, ZooKeeper 3.6), Hive 4's (Curator 5, ZooKeeper 3.8) and Kyuubi's
//! (Curator 2.12, ZooKeeper 3.4).

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::clients::program::{Program, run_to_end};
use crate::clients::{jars, source};
use crate::servers::process::{Launch, Process, free_port};
use crate::servers::tool_output;

/// What every session of these tests asks for; within what servers grant at a tick of 2 s.
pub const SESSION_TIMEOUT: Duration = Duration::from_secs(8);

/// The namespace that HiveServer2 registers under, its default.
pub const NAMESPACE: &str = "hiveserver2";

/// How long a driver or the observer may be silent; a driver gives up by itself before.
const SILENCE_MAX: Duration = Duration::from_secs(120);

/// Packages of the JDK that Hadoop and DataNucleus look into by reflection.
const OPENED_PACKAGES: [&str; 9] = [
    "java.base/java.lang",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.sql/java.sql",
];

/// A running HiveServer2 with an embedded metastore in a directory of its own.
pub struct HiveServer {
    process: Process,
    port: u16,
}

impl HiveServer {
    /// Starts it with a connect string for its registration, without waiting for it.
    ///
    /// # Errors
    /// Its jars cannot be fetched, or Java cannot be run.
    pub fn spawn(connect_string: &str) -> Result<Self> {
        let directory = TempDir::new().context("make a directory for HiveServer2")?;
        let port = free_port()?;
        let configuration = directory.path().join("conf");
        fs::create_dir_all(&configuration).context("make the configuration directory")?;
        fs::write(
            configuration.join("hive-site.xml"),
            hive_site(directory.path(), port, connect_string),
        )
        .context("write hive-site.xml")?;
        // Hive looks for this name, the libraries under it for the other.
        for name in ["hive-log4j2.properties", "log4j2.properties"] {
            fs::copy(source("java/hive/log4j2.properties"), configuration.join(name))
                .context("copy log4j2.properties")?;
        }
        let launch = Launch {
            name: "HiveServer2",
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            command: hive_command(directory.path(), &configuration)?,
            serves: |address| TcpStream::connect(address).is_ok(),
        };
        Ok(Self { process: Process::spawn(launch, directory)?, port })
    }

    /// The port of its Thrift service, by which the tests tell servers apart.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Deref for HiveServer {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for HiveServer {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}

fn hive_command(directory: &Path, configuration: &Path) -> Result<Command> {
    let mut command = Command::new("java");
    // Short-lived and small: the cheap collector and compiler start faster on few cores.
    command.args(["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
    for package in OPENED_PACKAGES {
        command.arg(format!("--add-opens={package}=ALL-UNNAMED"));
    }
    command
        .arg(format!("-Djava.io.tmpdir={}", directory.display()))
        .arg(format!("-Dderby.system.home={}", directory.display()))
        .arg("-cp")
        .arg(format!("{}:{}/*", configuration.display(), jars("hive")?.display()))
        .arg("org.apache.hive.service.server.HiveServer2")
        .current_dir(directory);
    Ok(command)
}

/// The settings that matter for discovery come first; the rest makes a small server that starts
/// in seconds: metastore in Derby, local files, queries without a cluster, no background services.
fn hive_site(directory: &Path, port: u16, connect_string: &str) -> String {
    let place = |name: &str| format!("{}/{name}", directory.display());
    let metastore = format!("jdbc:derby:;databaseName={};create=true", place("metastore"));
    let settings = [
        ("hive.server2.support.dynamic.service.discovery", "true".to_owned()),
        ("hive.zookeeper.quorum", connect_string.to_owned()),
        ("hive.zookeeper.session.timeout", format!("{}ms", SESSION_TIMEOUT.as_millis())),
        ("hive.server2.zookeeper.namespace", NAMESPACE.to_owned()),
        ("hive.server2.thrift.bind.host", "127.0.0.1".to_owned()),
        ("hive.server2.thrift.port", port.to_string()),
        ("hive.server2.webui.port", "0".to_owned()),
        ("hive.server2.enable.doAs", "false".to_owned()),
        ("hive.server2.logging.operation.enabled", "false".to_owned()),
        ("hive.server2.tez.initialize.default.sessions", "false".to_owned()),
        ("hive.server2.materializedviews.registry.impl", "DUMMY".to_owned()),
        ("hive.notification.event.poll.interval", "0".to_owned()),
        ("hive.privilege.synchronizer", "false".to_owned()),
        ("hive.scheduled.queries.executor.enabled", "false".to_owned()),
        ("hive.execution.engine", "mr".to_owned()),
        ("mapreduce.framework.name", "local".to_owned()),
        ("fs.defaultFS", "file:///".to_owned()),
        ("hive.support.concurrency", "false".to_owned()),
        ("hive.exec.scratchdir", place("scratch")),
        ("hive.exec.local.scratchdir", place("scratch")),
        ("hive.querylog.location", place("scratch")),
        ("hive.downloaded.resources.dir", place("resources")),
        ("hive.metastore.warehouse.dir", place("warehouse")),
        ("javax.jdo.option.ConnectionURL", metastore),
        ("datanucleus.schema.autoCreateAll", "true".to_owned()),
        ("hive.metastore.schema.verification", "false".to_owned()),
    ];
    let mut xml = String::from("<configuration>\n");
    for (name, value) in settings {
        xml += &format!("<property><name>{name}</name><value>{value}</value></property>\n");
    }
    xml + "</configuration>\n"
}

/// The drivers that find a HiveServer2 through discovery.
#[derive(Clone, Copy, Debug)]
pub enum Driver {
    /// The beeline of Hive 2.3.9, as Spark ships it.
    Beeline2,
    /// The JDBC driver of Hive 4.0.1.
    Hive4,
    /// The JDBC driver of Kyuubi 1.9.2, which talks to HiveServer2 as well.
    Kyuubi,
}

impl Driver {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Beeline2, Self::Hive4, Self::Kyuubi];

    /// Runs `select 1+1` in one connection; gives what it yields and the port of the server that
    /// the driver found.
    ///
    /// # Errors
    /// It fails, or answers in another form.
    pub fn select(self, connect_string: &str) -> Result<(String, u16)> {
        let url = format!(
            "jdbc:hive2://{connect_string}/;serviceDiscoveryMode=zooKeeper;\
             zooKeeperNamespace={NAMESPACE}"
        );
        let queries = ["select 1+1", "set hive.server2.thrift.port"];
        let lines = run_to_end("the driver", self.command(&url, &queries)?, SILENCE_MAX)?;
        // beeline repeats its prompt before a row.
        let mut rows = lines.iter().filter_map(|line| line.split_whitespace().last());
        let (Some(sum), Some(setting), None) = (rows.next(), rows.next(), rows.next()) else {
            bail!("{self:?} answers {lines:?}");
        };
        let port = setting.strip_prefix("hive.server2.thrift.port=").context("find the port")?;
        Ok((sum.to_owned(), port.parse().context("read the port")?))
    }

    fn command(self, url: &str, queries: &[&str]) -> Result<Command> {
        let mut command = Command::new("java");
        command.args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"]);
        match self {
            Self::Beeline2 => {
                let jars = PathBuf::from(tool_output("compat-tests/python/fetch-beeline")?);
                command
                    .arg(format!("{}/*", jars.display()))
                    .args(["org.apache.hive.beeline.BeeLine", "-n", "compat", "--silent=true"])
                    .args(["--showHeader=false", "--outputformat=tsv2", "-u", url]);
                for query in queries {
                    command.args(["-e", query]);
                }
            }
            Self::Hive4 | Self::Kyuubi => {
                let name = if matches!(self, Self::Hive4) { "jdbc" } else { "kyuubi-jdbc" };
                command
                    .arg(format!("{}/*", jars(name)?.display()))
                    .arg(source("java/jdbc/Query.java"))
                    .arg(url)
                    .args(queries);
            }
        }
        Ok(command)
    }
}

/// A ZooKeeper session of the test's own, by the client that HiveServer2 uses.
pub struct Znodes {
    program: Program,
}

/// What the tests look at in a znode's Stat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZnodeStat {
    /// The zxid of its creation.
    pub czxid: i64,
    /// How often its data was changed.
    pub version: i32,
    /// The session that it belongs to, or 0.
    pub owner: i64,
}

impl Znodes {
    /// Opens a session at any of these servers.
    ///
    /// # Errors
    /// It cannot connect.
    pub fn connect(connect_string: &str) -> Result<Self> {
        let mut command = Command::new("java");
        command
            .args(["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
            .arg("-Dlog4j2.level=ERROR")
            .arg("-cp")
            .arg(format!("{}/*", jars("hive")?.display()))
            .arg(source("java/hive/Znodes.java"))
            .arg(connect_string)
            .arg(SESSION_TIMEOUT.as_millis().to_string());
        let mut program = Program::start("the observer", command)?;
        match program.hear(SILENCE_MAX)?.as_deref() {
            Some("ready") => Ok(Self { program }),
            other => bail!("the observer says {other:?}\n{}", program.errors()),
        }
    }

    /// The names of the servers that discovery offers, in order.
    ///
    /// # Errors
    /// They cannot be listed.
    pub fn registered(&mut self) -> Result<Vec<String>> {
        self.program.say(&format!("children /{NAMESPACE}"))?;
        let mut names = Vec::new();
        loop {
            match self.answer()? {
                name if name == "end" => break,
                name => names.push(name),
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Waits until a condition holds for the registered names, and gives them and the time taken.
    ///
    /// # Errors
    /// It does not hold in time.
    pub fn wait_until(
        &mut self,
        limit: Duration,
        holds: impl Fn(&[String]) -> bool,
    ) -> Result<(Vec<String>, Duration)> {
        let begin = Instant::now();
        loop {
            // Before the first server has come there is no namespace.
            let names = self.registered().unwrap_or_default();
            if holds(&names) {
                return Ok((names, begin.elapsed()));
            }
            if begin.elapsed() > limit {
                bail!("after {limit:?} there are {names:?}");
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The Stat of a registered server.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn stat(&mut self, name: &str) -> Result<ZnodeStat> {
        let answer = self.ask(&format!("stat /{NAMESPACE}/{name}"))?;
        let fields: Vec<&str> = answer.split(' ').collect();
        let [czxid, version, owner] = fields[..] else { bail!("{name}: {answer}") };
        Ok(ZnodeStat { czxid: czxid.parse()?, version: version.parse()?, owner: owner.parse()? })
    }

    /// The data of a registered server.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn data(&mut self, name: &str) -> Result<String> {
        self.ask(&format!("data /{NAMESPACE}/{name}"))
    }

    /// Deletes a server's znode, as an operator does.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn delete(&mut self, name: &str) -> Result<()> {
        match self.ask(&format!("delete /{NAMESPACE}/{name}"))?.as_str() {
            "done" => Ok(()),
            other => bail!("{name}: {other}"),
        }
    }

    /// The id of this session.
    ///
    /// # Errors
    /// The observer has ended.
    pub fn session(&mut self) -> Result<i64> {
        self.ask("session")?.parse().context("read the session id")
    }

    fn ask(&mut self, command: &str) -> Result<String> {
        self.program.say(command)?;
        self.answer()
    }

    fn answer(&mut self) -> Result<String> {
        match self.program.hear(SILENCE_MAX)? {
            Some(line) if line.starts_with("error: ") => bail!("{line}"),
            Some(line) => Ok(line),
            None => bail!("the observer has ended\n{}", self.program.errors()),
        }
    }
}
