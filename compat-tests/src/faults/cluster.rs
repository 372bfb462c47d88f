//! Three etcd members and three shims, a machine for each, and machines for clients.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use crate::faults::namespace::Namespace;
use crate::faults::network::{Machine, Network};
use crate::faults::restore::{Backup, Member};
use crate::servers::etcd::is_healthy;
use crate::servers::process::{Launch, Process, serves_zookeeper};
use crate::servers::tool_output;
use crate::servers::zkshim::binary;

/// How many members etcd has, how many shims there are, and how many machines with clients.
pub const COUNT: usize = 3;
/// The machine of this process: it sees everything, and nothing is ever cut off from it.
pub const OBSERVER: Machine = Machine(1);

/// What differs between runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Decides which packets are lost.
    pub seed: u64,
    /// etcd's `--quota-backend-bytes`.
    pub quota_bytes: u64,
    /// How much room each member has for its data.
    pub disk_bytes: u64,
    /// More flags of `zkshim serve`.
    pub shim_flags: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        let shim_flags = vec!["--log-level=info,zkshim::store=debug".to_owned()];
        Self { seed: 1, quota_bytes: 1 << 31, disk_bytes: 512 << 20, shim_flags }
    }
}

/// A server on a machine of its own.
pub struct Server {
    /// Where it is.
    pub machine: Machine,
    /// Its process.
    pub process: Process,
    namespace: Namespace,
}

/// Servers at work, and the network between them.
pub struct Cluster {
    /// The ways between the machines.
    pub network: Network,
    /// etcd's members.
    pub members: Vec<Server>,
    /// The shims; each has all members as its endpoints, another one first.
    pub shims: Vec<Server>,
    /// The namespaces of the machines that clients run on.
    pub clients: Vec<Namespace>,
    settings: Settings,
}

/// The machine of a member.
#[must_use]
pub fn member_machine(index: usize) -> Machine {
    numbered(10, index)
}

/// The machine of a shim.
#[must_use]
pub fn shim_machine(index: usize) -> Machine {
    numbered(20, index)
}

/// A machine of clients.
#[must_use]
pub fn client_machine(index: usize) -> Machine {
    numbered(30, index)
}

fn numbered(base: u8, index: usize) -> Machine {
    Machine(base + u8::try_from(index).expect("there are three of each"))
}

/// The addresses of all shims, as clients are told of them.
#[must_use]
pub fn shim_addresses() -> Vec<SocketAddr> {
    (0..COUNT).map(|index| SocketAddr::from((shim_machine(index).address(), 2181))).collect()
}

/// The URL of a member for clients.
#[must_use]
pub fn member_url(index: usize) -> String {
    format!("http://{}:2379", member_machine(index).address())
}

/// The URL of a member for other members.
#[must_use]
pub fn peer_url(index: usize) -> String {
    format!("http://{}:2380", member_machine(index).address())
}

/// Fetches and builds what a run needs, while there is a network to fetch from.
///
/// # Errors
/// Something cannot be had.
pub fn fetch() -> Result<()> {
    tool_output("tools/etcd/build")?;
    tool_output("tools/etcd/etcdutl")?;
    binary()?;
    Ok(())
}

impl Cluster {
    /// Starts everything, inside a world of its own.
    ///
    /// # Errors
    /// A machine cannot be made, or a server does not serve.
    pub fn start(settings: Settings) -> Result<Self> {
        let network = Network::start(settings.seed);
        run("ip", &["link", "set", "lo", "up"])?;
        network.attach(OBSERVER)?;
        let mut members = Vec::new();
        for index in 0..COUNT {
            members.push(member(&network, index, &settings)?);
        }
        for member in &mut members {
            member.process.wait_until_serving()?;
        }
        let mut shims = Vec::new();
        for index in 0..COUNT {
            shims.push(shim(&network, index, &settings)?);
        }
        for shim in &mut shims {
            shim.process.wait_until_serving()?;
        }
        let clients = (0..COUNT).map(|index| network.machine(client_machine(index)));
        let clients = clients.collect::<Result<_>>()?;
        Ok(Self { network, members, shims, clients, settings })
    }

    /// Puts a new member, without data, in the place of one that has been removed.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn replace_member(&mut self, index: usize, name: &str) -> Result<()> {
        let others = (0..COUNT).filter(|other| *other != index);
        let mut names: Vec<(String, String)> =
            others.map(|other| (self.member_name(other), peer_url(other))).collect();
        names.push((name.to_owned(), peer_url(index)));
        let Some(place) = self.members.get_mut(index) else { bail!("there is no member {index}") };
        place.process.kill()?;
        let (process, namespace) = (&mut place.process, &place.namespace);
        *process = namespace
            .within(|| etcd(index, name, &self.settings, &joined(&names), Begin::Joins))?;
        Ok(())
    }

    /// Starts all members, which must have ended, anew from a backup.
    ///
    /// # Errors
    /// One cannot be started.
    pub fn restore(&mut self, backup: &Backup) -> Result<()> {
        for (index, Server { process, namespace, .. }) in self.members.iter_mut().enumerate() {
            let (name, begin) = (first_name(index), Begin::Restored(backup));
            let start = || etcd(index, &name, &self.settings, &all_members(), begin);
            *process = namespace.within(start)?;
        }
        self.members.iter_mut().try_for_each(|member| member.process.wait_until_serving())
    }

    /// What a member calls itself: it may have been replaced.
    #[must_use]
    pub fn member_name(&self, index: usize) -> String {
        let member = self.members.get(index);
        let named = member.and_then(|member| member.process.argument("--name="));
        named.unwrap_or_else(|| first_name(index))
    }

    /// The member that a shim is connected to, by the word of its log.
    #[must_use]
    pub fn member_of(&self, shim: usize) -> Option<usize> {
        let log = self.shims.get(shim)?.process.log();
        let line = log.lines().rfind(|line| line.contains("connected to etcd"))?;
        (0..COUNT).find(|index| line.contains(member_url(*index).as_str()))
    }

    /// The member's data directory.
    ///
    /// # Errors
    /// There is no such member.
    pub fn member_data(&self, index: usize) -> Result<PathBuf> {
        let member = self.members.get(index);
        let data = member.and_then(|member| member.process.argument("--data-dir="));
        data.map(PathBuf::from).with_context(|| format!("there is no member {index}"))
    }
}

impl Server {
    /// Starts it again after it was killed or has ended, without waiting for it.
    ///
    /// # Errors
    /// It still runs, or cannot be run.
    pub fn spawn_again(&mut self) -> Result<()> {
        self.namespace.within(|| self.process.spawn_again())
    }
}

fn first_name(index: usize) -> String {
    format!("m{index}")
}

fn all_members() -> String {
    let names: Vec<_> = (0..COUNT).map(|index| (first_name(index), peer_url(index))).collect();
    joined(&names)
}

fn joined(names: &[(String, String)]) -> String {
    let each: Vec<_> = names.iter().map(|(name, url)| format!("{name}={url}")).collect();
    each.join(",")
}

fn member(network: &Network, index: usize, settings: &Settings) -> Result<Server> {
    let machine = member_machine(index);
    let namespace = network.machine(machine)?;
    let start = || etcd(index, &first_name(index), settings, &all_members(), Begin::New);
    let process = namespace.within(start)?;
    Ok(Server { machine, process, namespace })
}

/// What a member begins with.
#[derive(Clone, Copy)]
enum Begin<'a> {
    /// Nothing, like all others.
    New,
    /// Nothing, beside others that have data.
    Joins,
    /// What all had at some time.
    Restored(&'a Backup),
}

fn etcd(
    index: usize,
    name: &str,
    settings: &Settings,
    cluster: &str,
    begin: Begin<'_>,
) -> Result<Process> {
    let directory = TempDir::new().context("make a directory for etcd")?;
    // A disk of its own, so that it can be filled.
    let disk = directory.path().join("disk");
    std::fs::create_dir(&disk).context("make a place for a disk")?;
    let place = disk.display().to_string();
    let size = format!("size={}", settings.disk_bytes);
    run("mount", &["-t", "tmpfs", "-o", &size, "disk", &place])?;
    if let Begin::Restored(backup) = begin {
        let member = Member { name, peer_url: &peer_url(index), cluster };
        backup.restore(&disk.join("data"), member)?;
    }
    let state = if matches!(begin, Begin::Joins) { "existing" } else { "new" };
    let mut command = Command::new(tool_output("tools/etcd/build")?);
    command
        .arg(format!("--name={name}"))
        .arg(format!("--data-dir={place}/data"))
        .arg(format!("--listen-client-urls={}", member_url(index)))
        .arg(format!("--advertise-client-urls={}", member_url(index)))
        .arg(format!("--listen-peer-urls={}", peer_url(index)))
        .arg(format!("--initial-advertise-peer-urls={}", peer_url(index)))
        .arg(format!("--initial-cluster={cluster}"))
        .arg(format!("--initial-cluster-state={state}"))
        .arg(format!("--quota-backend-bytes={}", settings.quota_bytes))
        .args(["--heartbeat-interval=100", "--election-timeout=1000"]);
    let address = SocketAddr::from((member_machine(index).address(), 2379));
    Process::spawn(Launch { name: "etcd", address, command, serves: is_healthy }, directory)
}

fn shim(network: &Network, index: usize, settings: &Settings) -> Result<Server> {
    let machine = shim_machine(index);
    let namespace = network.machine(machine)?;
    let endpoints: Vec<_> = (0..COUNT).map(|offset| member_url((index + offset) % COUNT)).collect();
    let mut command = Command::new(binary()?);
    command
        .arg("serve")
        .arg(format!("--listen={}:2181", machine.address()))
        .arg("--store=etcd")
        .arg(format!("--etcd-endpoints={}", endpoints.join(",")))
        .args(["--four-letter-words=*", "--max-session-timeout=60000"])
        .arg("--max-client-connections=0")
        .args(&settings.shim_flags);
    let address = SocketAddr::from((machine.address(), 2181));
    let launch = Launch { name: "zkshim", address, command, serves: serves_zookeeper };
    let directory = TempDir::new().context("make a directory for zkshim")?;
    let process = namespace.within(|| Process::spawn(launch, directory))?;
    Ok(Server { machine, process, namespace })
}

/// Runs a program of the system to its end.
///
/// # Errors
/// It fails, with what it says.
pub(super) fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program).args(arguments).output();
    let output = output.with_context(|| format!("run {program}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {arguments:?}: {}", said.trim());
    Ok(())
}
