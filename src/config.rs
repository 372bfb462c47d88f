//! What was typed, and what was checked: flags and environment become each room's options.

mod memory;

use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{Arg, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use crate::telemetry::{LogFormat, LogLevel};
use crate::{keeper, server, store, telemetry};

/// The version of ZooKeeper whose behaviour clients and tools find here. Monitoring agents decide
/// by it what they ask for.
const ZOOKEEPER_VERSION: &str = "3.9.5";

/// When the program was built, if whoever built it says so (`YYYY-MM-DD HH:MM UTC`).
const BUILT_ON: Option<&str> = option_env!("ZKSHIM_BUILT_ON");

/// The shortest limit on frames: a handshake fits.
const FRAME_BYTES_MIN: usize = 64;

/// The letters of base64 that 20 bytes take, without the padding.
const SHA1_LETTERS: usize = 27;

/// The longest limit on frames.
const FRAME_BYTES_MAX: usize = 1 << 30;

/// A server that speaks the ZooKeeper client protocol and keeps everything in etcd.
///
/// Unmodified ZooKeeper clients connect to it as to a ZooKeeper 3.9. Any number of them share one
/// etcd and show one tree; none of them keeps anything itself. Without an etcd it keeps the tree
/// in a directory of its own, for a first look, a laptop or a test.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// Reads the command line and the environment; what is wrong with them ends the program, as
    /// clap has it.
    ///
    /// A variable that is empty counts as one that is not set: that is how compose files and
    /// charts write a value that nobody gave.
    #[must_use]
    pub fn read() -> Self {
        let mut command =
            Self::command().mut_subcommand("serve", |serve| serve.mut_args(without_empty));
        let matches = command.get_matches_mut();
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut command).exit())
    }
}

fn without_empty(flag: Arg) -> Arg {
    let value = flag.get_env().and_then(std::env::var_os);
    if value.is_some_and(|value| value.is_empty()) { flag.env(None::<&str>) } else { flag }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve ZooKeeper clients until SIGTERM or SIGINT.
    ///
    /// Every flag can also be given in the environment, by the name in brackets; a flag wins, and
    /// a variable that is empty is as one that is not set.
    Serve(Box<ServeArgs>),
}

/// Where the tree is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StoreKind {
    /// In this process, in --data-dir: one server, not replicated.
    Embedded,
    /// In etcd, at --etcd-endpoints: any number of servers.
    Etcd,
}

/// The flags of `serve`, as typed.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Where clients connect: an address or a host name, and a port (0 takes a free one).
    #[arg(long, env = "ZKSHIM_LISTEN", value_name = "ADDR:PORT", default_value = "0.0.0.0:2181")]
    pub listen: String,

    /// Where the tree is kept [default: etcd if there are --etcd-endpoints, else embedded].
    #[arg(long, env = "ZKSHIM_STORE", value_name = "STORE")]
    pub store: Option<StoreKind>,

    /// The directory of the embedded store; it is created if it is missing. Only one process can
    /// use it at a time.
    #[arg(long, env = "ZKSHIM_DATA_DIR", value_name = "DIR", default_value = "./zkshim-data")]
    pub data_dir: PathBuf,

    /// etcd's members, separated by commas, such as http://etcd-0:2379,http://etcd-1:2379. A
    /// nearby one first.
    #[arg(long, env = "ZKSHIM_ETCD_ENDPOINTS", value_name = "URL,URL", value_delimiter = ',')]
    pub etcd_endpoints: Vec<String>,

    /// The user of etcd, if it asks for one. It needs to read and write the prefix, and nothing
    /// else.
    #[arg(long, env = "ZKSHIM_ETCD_USER", value_name = "NAME", requires = "etcd_password")]
    pub etcd_user: Option<String>,

    /// The user's password. In the environment fewer can see it than on the command line.
    #[arg(
        long,
        env = "ZKSHIM_ETCD_PASSWORD",
        value_name = "PASSWORD",
        requires = "etcd_user",
        hide_env_values = true
    )]
    pub etcd_password: Option<String>,

    /// Everything is kept under this prefix in etcd, so that several trees, and others, share one
    /// etcd. All servers of one tree have the same.
    #[arg(long, env = "ZKSHIM_PREFIX", value_name = "PREFIX", default_value = "/zkshim/")]
    pub prefix: String,

    /// ZooKeeper's tickTime in milliseconds: session expiry is rounded up to it.
    #[arg(long, env = "ZKSHIM_TICK_TIME", value_name = "MS", default_value_t = 2000)]
    pub tick_time: u64,

    /// The shortest session timeout that a client can get, in milliseconds [default: 2 ticks].
    #[arg(long, env = "ZKSHIM_MIN_SESSION_TIMEOUT", value_name = "MS")]
    pub min_session_timeout: Option<u64>,

    /// The longest session timeout that a client can get, in milliseconds [default: 20 ticks].
    #[arg(long, env = "ZKSHIM_MAX_SESSION_TIMEOUT", value_name = "MS")]
    pub max_session_timeout: Option<u64>,

    /// How long a session may go without a key in etcd, in milliseconds: one that ends before,
    /// and writes nothing, costs etcd nothing. 0 gives each its key before its client is told.
    #[arg(long, env = "ZKSHIM_SESSION_KEY_DELAY_MS", value_name = "MS", default_value_t = 1000)]
    pub session_key_delay_ms: u64,

    /// The four-letter words that are answered, separated by commas, or * for all; srvr always
    /// is. Probes often want ruok, monitoring mntr. wchc, wchp and dump can be costly.
    #[arg(long, env = "ZKSHIM_FOUR_LETTER_WORDS", value_name = "LIST", default_value = "srvr")]
    pub four_letter_words: String,

    /// The longest request in bytes, which bounds a znode's data (jute.maxbuffer). Clients have a
    /// limit of their own on what they accept, and so has etcd: beyond 1.5 MB it needs a larger
    /// --max-request-bytes, on every member, or refuses what is larger. The log says so at the
    /// start.
    #[arg(
        long,
        env = "ZKSHIM_JUTE_MAX_BUFFER",
        value_name = "BYTES",
        default_value_t = jute::primitives::MAXBUFFER_DEFAULT
    )]
    pub jute_max_buffer: usize,

    /// Connections in all; one more is closed at once. Each needs an open file.
    #[arg(long, env = "ZKSHIM_MAX_CONNECTIONS", value_name = "COUNT", default_value_t = 10_000)]
    pub max_connections: usize,

    /// Connections from one address (maxClientCnxns); one more is closed at once, 0 is no limit.
    /// Behind a proxy all clients share one address.
    #[arg(long, env = "ZKSHIM_MAX_CLIENT_CONNECTIONS", value_name = "COUNT", default_value_t = 60)]
    pub max_client_connections: usize,

    /// What clients may take of the memory beside the tree, all together, in MiB: a third each for
    /// the watches and identities that they keep, the requests that are not answered, and the
    /// answers that they have not read [default: a quarter of what the process may use, from 32 to
    /// 4096].
    #[arg(long, env = "ZKSHIM_CLIENT_MEMORY_MIB", value_name = "MIB")]
    pub client_memory_mib: Option<u64>,

    /// Serve TTL nodes (extendedTypesEnabled): znodes that go when they have been left alone.
    #[arg(long, env = "ZKSHIM_TTL_NODES", value_parser = BoolishValueParser::new())]
    pub ttl_nodes: bool,

    /// The super user, whom no ACL stops: user:base64(sha1(user:password)) (superDigest).
    #[arg(long, env = "ZKSHIM_SUPER_DIGEST", value_name = "USER:HASH", hide_env_values = true)]
    pub super_digest: Option<String>,

    /// Keep ACLs but refuse nothing because of them (skipACL).
    #[arg(long, env = "ZKSHIM_SKIP_ACL", value_parser = BoolishValueParser::new())]
    pub skip_acl: bool,

    /// Refuse what would exceed a hard quota (enforceQuota). Quotas are counted anyway.
    #[arg(long, env = "ZKSHIM_ENFORCE_QUOTA", value_parser = BoolishValueParser::new())]
    pub enforce_quota: bool,

    /// How often empty containers and overdue TTL nodes are looked for, in milliseconds
    /// (znode.container.checkIntervalMs).
    #[arg(
        long,
        env = "ZKSHIM_CONTAINER_CHECK_INTERVAL_MS",
        value_name = "MS",
        default_value_t = 60_000
    )]
    pub container_check_interval_ms: u64,

    /// Threads that serve clients [default: half of the processors, at least 1]. A second thread
    /// makes each hand-over dearer, so that more is only better with many busy clients.
    #[arg(long, env = "ZKSHIM_WORKER_THREADS", value_name = "COUNT")]
    pub worker_threads: Option<usize>,

    /// How a line of the log on standard error looks.
    #[arg(long, env = "ZKSHIM_LOG_FORMAT", value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,

    /// What is logged: error, warn, info, debug or trace, for all or for parts of the program,
    /// such as info,zkshim::store=debug.
    #[arg(long, env = "ZKSHIM_LOG_LEVEL", value_name = "LEVEL", default_value = "info")]
    pub log_level: LogLevel,
}

/// The flags of `serve`, checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where clients connect.
    pub listen: String,
    /// For the core.
    pub keeper: keeper::Options,
    /// For the store.
    pub store: store::StoreOptions,
    /// For the client port.
    pub server: server::Options,
    /// For the log.
    pub telemetry: telemetry::Options,
    /// Threads that serve clients.
    pub worker_threads: usize,
}

/// A flag whose value makes no sense: one sentence for whoever typed it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

impl Config {
    /// Checks what was typed. `seed` is what the core draws ids and passwords from.
    ///
    /// # Errors
    /// A value makes no sense, by itself or beside another.
    pub fn check(args: &ServeArgs, seed: [u8; 32]) -> Result<Self, ConfigError> {
        check_listen(&args.listen)?;
        let (tick, timeout_min, timeout_max) = timeouts(args)?;
        let frame_bytes_max =
            within("--jute-max-buffer", args.jute_max_buffer, FRAME_BYTES_MIN, FRAME_BYTES_MAX)?;
        let words = server::Options::words(&args.four_letter_words)
            .map_err(|error| ConfigError(format!("--four-letter-words: {error}")))?;
        let store = store_options(args)?;
        let client_memory = client_memory(args.client_memory_mib)?;
        let (sole, data, data_dir) = match &store {
            store::StoreOptions::Embedded(options) => {
                let dir = options.data_dir.clone();
                (true, dir.display().to_string(), Some(dir))
            }
            store::StoreOptions::Etcd(options) => (false, format!("etcd:{}", options.prefix), None),
        };
        Ok(Self {
            listen: args.listen.clone(),
            keeper: keeper::Options {
                tick,
                session_timeout_min: timeout_min,
                session_timeout_max: timeout_max,
                seed,
                sole,
                session_key_delay: Duration::from_millis(within(
                    "--session-key-delay-ms",
                    args.session_key_delay_ms,
                    0,
                    60_000,
                )?),
                writes_worth_a_batch: keeper::Options::WRITES_WORTH_A_BATCH,
                alone_after: keeper::Options::ALONE_AFTER,
                ttl_nodes: args.ttl_nodes,
                super_digest: super_digest(args)?,
                skip_acl: args.skip_acl,
                enforce_quota: args.enforce_quota,
                kept_bytes_max: client_memory / 3,
                container_check_interval: Duration::from_millis(within(
                    "--container-check-interval-ms",
                    args.container_check_interval_ms,
                    1,
                    u64::from(u32::MAX),
                )?),
            },
            store,
            server: server::Options {
                frame_bytes_max,
                connections_max: within("--max-connections", args.max_connections, 1, 1 << 24)?,
                connections_per_address_max: args.max_client_connections,
                request_bytes_max: client_memory / 3,
                unread_bytes_max: client_memory / 3,
                words,
                shown: server::ShownOptions {
                    version: version(),
                    data,
                    data_dir,
                    tick,
                    session_timeout_min: timeout_min,
                    session_timeout_max: timeout_max,
                },
            },
            telemetry: telemetry::Options {
                format: args.log_format,
                level: args.log_level.clone(),
            },
            worker_threads: within(
                "--worker-threads",
                args.worker_threads.unwrap_or_else(half_of_the_processors),
                1,
                1024,
            )?,
        })
    }
}

/// The others are for the store, and for the system's part of the clients' connections.
fn half_of_the_processors() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get().div_ceil(2))
}

/// In bytes. A quarter leaves as much for the tree as for what the allocator and a start need.
fn client_memory(mib: Option<u64>) -> Result<usize, ConfigError> {
    let mib = match mib {
        Some(mib) => within("--client-memory-mib", mib, 16, 1 << 20)?,
        None => (memory::available().unwrap_or(1 << 30) / 4 / (1 << 20)).clamp(32, 4096),
    };
    Ok(usize::try_from(mib << 20).unwrap_or(usize::MAX))
}

fn within<T>(flag: &str, value: T, min: T, max: T) -> Result<T, ConfigError>
where
    T: PartialOrd + Display,
{
    if value < min || value > max {
        return Err(ConfigError(format!("{flag} is {value}, but must be from {min} to {max}")));
    }
    Ok(value)
}

fn check_listen(listen: &str) -> Result<(), ConfigError> {
    let port = listen.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port);
    match port.map(str::parse::<u16>) {
        Some(Ok(_)) => Ok(()),
        Some(Err(_)) | None => Err(ConfigError(format!(
            "--listen is \"{listen}\", but must be an address and a port, such as 0.0.0.0:2181"
        ))),
    }
}

/// Tick, shortest and longest session timeout.
fn timeouts(args: &ServeArgs) -> Result<(Duration, Duration, Duration), ConfigError> {
    // A timeout is an int of milliseconds on the wire.
    let most = i32::MAX.unsigned_abs().into();
    let tick_ms = within("--tick-time", args.tick_time, 1, most / 20)?;
    let min_ms = args.min_session_timeout.unwrap_or(tick_ms * 2);
    let max_ms = args.max_session_timeout.unwrap_or(tick_ms * 20);
    within("--min-session-timeout", min_ms, 1, most)?;
    within("--max-session-timeout", max_ms, 1, most)?;
    if min_ms > max_ms {
        return Err(ConfigError(format!(
            "--min-session-timeout is {min_ms}, but must not be above --max-session-timeout, \
             which is {max_ms}"
        )));
    }
    Ok((
        Duration::from_millis(tick_ms),
        Duration::from_millis(min_ms),
        Duration::from_millis(max_ms),
    ))
}

fn super_digest(args: &ServeArgs) -> Result<Option<String>, ConfigError> {
    match &args.super_digest {
        Some(digest) if !is_digest(digest) => Err(ConfigError(
            "--super-digest must be a user's name, a colon and the base64 of a SHA-1 digest \
             (28 characters)"
                .to_owned(),
        )),
        digest => Ok(digest.clone()),
    }
}

/// Whether it is what a user's name and password can become. ZooKeeper takes any text, and one
/// that is nobody's digest makes nobody super (`DigestAuthenticationProvider.generateDigest`).
fn is_digest(text: &str) -> bool {
    let Some((_, hash)) = text.split_once(':') else { return false };
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    // Of the last letter before the padding two bits are used up by none of the 20 bytes.
    let Some(letters) = hash.strip_suffix('=') else { return false };
    letters.len() == SHA1_LETTERS
        && letters.bytes().all(is_base64)
        && letters.ends_with(|last| "AEIMQUYcgkosw048".contains(last))
}

fn store_options(args: &ServeArgs) -> Result<store::StoreOptions, ConfigError> {
    let endpoints: Vec<&str> = args
        .etcd_endpoints
        .iter()
        .map(|endpoint| endpoint.trim())
        .filter(|endpoint| !endpoint.is_empty())
        .collect();
    match (args.store, endpoints.is_empty()) {
        (Some(StoreKind::Embedded) | None, true) => {
            Ok(store::StoreOptions::Embedded(store::embedded::Options {
                data_dir: args.data_dir.clone(),
                value_bytes_max: args.jute_max_buffer,
            }))
        }
        (Some(StoreKind::Etcd), true) => Err(ConfigError(
            "--store etcd needs --etcd-endpoints, such as http://127.0.0.1:2379".to_owned(),
        )),
        (Some(StoreKind::Embedded), false) => Err(ConfigError(
            "--etcd-endpoints are given, but --store embedded does not use them".to_owned(),
        )),
        (Some(StoreKind::Etcd) | None, false) => {
            let endpoints = endpoints.into_iter().map(endpoint).collect::<Result<_, _>>()?;
            Ok(store::StoreOptions::Etcd(store::etcd::Options {
                endpoints,
                user: etcd_user(args),
                prefix: prefix(&args.prefix)?,
                value_bytes_max: args.jute_max_buffer,
                ..store::etcd::Options::default()
            }))
        }
    }
}

fn etcd_user(args: &ServeArgs) -> Option<store::etcd::UserOptions> {
    let (name, password) = (args.etcd_user.clone()?, args.etcd_password.clone()?);
    Some(store::etcd::UserOptions { name, password })
}

fn endpoint(endpoint: &str) -> Result<String, ConfigError> {
    let refused =
        |why: &str| Err(ConfigError(format!("--etcd-endpoints has \"{endpoint}\", but {why}")));
    let address = match endpoint.split_once("://") {
        None => endpoint,
        Some(("http", address)) => address,
        Some(("https", _)) => return refused("TLS to etcd is not supported yet"),
        Some(_) => return refused("only http:// is supported"),
    };
    match address.trim_end_matches('/').rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
            Ok(format!("http://{host}:{port}"))
        }
        _ => refused("it must be a host and a port, such as http://127.0.0.1:2379"),
    }
}

fn prefix(prefix: &str) -> Result<String, ConfigError> {
    if prefix.trim_matches('/').is_empty() {
        return Err(ConfigError("--prefix must have a name in it, such as /zkshim/".to_owned()));
    }
    let end = if prefix.ends_with('/') { "" } else { "/" };
    Ok(format!("{prefix}{end}"))
}

/// The version in the form that tools parse: `x.y.z-<revision>, built on <text>`.
fn version() -> String {
    let built_on = BUILT_ON.unwrap_or("1970-01-01 00:00 UTC");
    format!("{ZOOKEEPER_VERSION}-zkshim-{}, built on {built_on}", env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
mod tests;
