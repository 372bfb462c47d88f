//! The four-letter words: which there are, and the text of each answer.
//!
//! Plain values in, text out; who collects the values is the server's matter. Layouts are those
//! of `FourLetterCommands` and `server.command.*` of ZooKeeper 3.9; all numbers stand as the
//! default metrics provider prints them, since that is what monitoring agents parse.

pub mod dump;
pub mod monitor;

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::keeper::request::SessionId;
use crate::keeper::zxid::Zxid;

impl Word {
    /// Its answer may be as long as there are watches or sessions.
    pub fn is_costly(self) -> bool {
        matches!(self, Self::Dump | Self::Wchc | Self::Wchp)
    }

    /// Its answer may be as long as there are connections.
    pub fn is_long(self) -> bool {
        matches!(self, Self::Cons | Self::Stat)
    }
}

/// What everything but `ruok`, `envi`, `gtmk`, `stmk`, `hash` and `isro` answers while the
/// server is not serving (`AbstractFourLetterCommand.ZK_NOT_SERVING`).
pub const NOT_SERVING: &str = "This ZooKeeper instance is not currently serving requests";

/// The trace mask of a server that nobody has told another one (`ZooTrace`).
pub const TRACE_MASK_DEFAULT: i64 = 306;

macro_rules! words {
    ($($(#[$doc:meta])* $word:ident = $name:literal, $first:expr;)*) => {
        /// A word.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Word {
            $($(#[$doc])* $word,)*
        }

        impl Word {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$word),*];

            /// What is written in an allow-list and in a refusal.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$word => $name,)*
                }
            }

            /// The word that a connection begins with. Anything else is a frame's length.
            pub fn parse(first: [u8; 4]) -> Option<Self> {
                Self::ALL.iter().copied().find(|word| word.first() == first)
            }

            fn first(self) -> [u8; 4] {
                match self {
                    $(Self::$word => *$first,)*
                }
            }
        }
    };
}

words! {
    /// The configuration.
    Conf = "conf", b"conf";
    /// The connections, in full.
    Cons = "cons", b"cons";
    /// Resets the connections' figures.
    Crst = "crst", b"crst";
    /// How large the data is.
    Dirs = "dirs", b"dirs";
    /// Sessions and ephemerals.
    Dump = "dump", b"dump";
    /// The environment.
    Envi = "envi", b"envi";
    /// The trace mask.
    Gtmk = "gtmk", b"gtmk";
    /// Digests of the tree's history.
    Hash = "hash", b"hash";
    /// Read-only or read-write.
    Isro = "isro", b"isro";
    /// All figures, for machines.
    Mntr = "mntr", b"mntr";
    /// Is the process alive?
    Ruok = "ruok", b"ruok";
    /// Resets the server's figures.
    Srst = "srst", b"srst";
    /// The server's figures, for people.
    Srvr = "srvr", b"srvr";
    /// The same with the connections in brief.
    Stat = "stat", b"stat";
    /// Sets the trace mask; eight bytes follow.
    Stmk = "stmk", b"stmk";
    /// Watches by session.
    Wchc = "wchc", b"wchc";
    /// Watches by path.
    Wchp = "wchp", b"wchp";
    /// Watches, counted.
    Wchs = "wchs", b"wchs";
    /// Not a word: what `telnet` sends when it is interrupted.
    TelnetClose = "telnet close", &[0xff, 0xf4, 0xff, 0xfd];
}

/// Which words are answered (`4lw.commands.whitelist`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllowList(u32);

/// A name in an allow-list that is no word.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a four-letter word that ZooKeeper knows")]
pub struct UnknownWord(String);

impl AllowList {
    /// Reads a comma separated list; `*` stands for all. `srvr` is always in it.
    ///
    /// # Errors
    /// A name is not known.
    pub fn parse(list: &str) -> Result<Self, UnknownWord> {
        let mut allowed = Self(Self::bit(Word::Srvr));
        for name in list.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            if name == "*" {
                allowed.0 = u32::MAX;
            } else {
                let word = Word::ALL.iter().find(|word| word.name() == name);
                let word = word.ok_or_else(|| UnknownWord(name.to_owned()))?;
                allowed.0 |= Self::bit(*word);
            }
        }
        Ok(allowed)
    }

    /// Is this word answered?
    pub fn allows(self, word: Word) -> bool {
        self.0 & Self::bit(word) != 0
    }

    fn bit(word: Word) -> u32 {
        1 << (word as u8)
    }
}

/// The answer to a word that is not in the list.
pub fn not_allowed(word: Word) -> String {
    format!("{} is not executed because it is not in the whitelist.\n", word.name())
}

/// The answer of a server that does not serve, or `None` if the word does not care.
pub fn not_serving(word: Word) -> Option<String> {
    match word {
        Word::Ruok | Word::Envi | Word::Gtmk | Word::Stmk | Word::TelnetClose => None,
        Word::Isro => Some("null".to_owned()),
        Word::Hash => Some(NOT_SERVING.to_owned()),
        Word::Conf
        | Word::Cons
        | Word::Crst
        | Word::Dirs
        | Word::Dump
        | Word::Mntr
        | Word::Srst
        | Word::Srvr
        | Word::Stat
        | Word::Wchc
        | Word::Wchp
        | Word::Wchs => Some(format!("{NOT_SERVING}\n")),
    }
}

/// Least, greatest and mean of what was measured, in whole milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// The least, 0 if nothing was measured.
    pub min_ms: u64,
    /// The greatest.
    pub max_ms: u64,
    /// The sum.
    pub total_ms: u64,
    /// How many.
    pub count: u64,
}

impl Latency {
    /// The mean with four decimals at most and one at least, as `AvgMinMaxCounter` has it.
    pub fn mean(&self) -> String {
        if self.count == 0 {
            return "0.0".to_owned();
        }
        // Both are far below 2^53.
        let mean = self.total_ms as f64 / self.count as f64;
        format!("{:?}", (mean * 10_000.0).round() / 10_000.0)
    }

    fn mean_ms(&self) -> u64 {
        self.total_ms.checked_div(self.count).unwrap_or(0)
    }
}

/// What a server shows in `srvr`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Server {
    /// As tools parse it: `<x.y.z>-<revision>, built on <text>`.
    pub version: String,
    /// Of all requests.
    pub latency: Latency,
    /// Frames and words received.
    pub received: u64,
    /// Frames sent.
    pub sent: u64,
    /// Connections that are open.
    pub connections: usize,
    /// Requests that wait for their answer.
    pub outstanding: usize,
    /// The tree's.
    pub zxid: Zxid,
    /// `standalone`, `leader`, `follower`.
    pub mode: &'static str,
    /// Znodes, the root included.
    pub znodes: usize,
}

impl Server {
    /// What ZooKeeper calls the node count: the root is in its table twice (`DataTree`).
    pub fn node_count(&self) -> usize {
        self.znodes.saturating_add(1)
    }

    fn version_line(&self) -> String {
        format!("Zookeeper version: {}\n", self.version)
    }

    fn figures(&self) -> String {
        format!(
            "Latency min/avg/max: {}/{}/{}\n\
             Received: {}\nSent: {}\nConnections: {}\nOutstanding: {}\n\
             Zxid: {}\nMode: {}\nNode count: {}\n",
            self.latency.min_ms,
            self.latency.mean(),
            self.latency.max_ms,
            self.received,
            self.sent,
            self.connections,
            self.outstanding,
            self.zxid,
            self.mode,
            self.node_count(),
        )
    }
}

/// `srvr`.
pub fn srvr(server: &Server) -> String {
    server.version_line() + &server.figures()
}

/// `stat`.
pub fn stat(server: &Server, connections: &[Connection]) -> String {
    let mut text = server.version_line();
    text.push_str("Clients:\n");
    for connection in connections {
        connection.brief(&mut text);
        text.push_str(")\n");
    }
    text.push('\n');
    text + &server.figures()
}

/// One connection of `cons`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The client's address.
    pub peer: SocketAddr,
    /// What it waits for: 1 to read, 5 to read and write, 0 if it asked this word.
    pub interest: u8,
    /// Requests that wait for their answer.
    pub queued: usize,
    /// Frames and words received.
    pub received: u64,
    /// Frames sent.
    pub sent: u64,
    /// What is known once there is a session.
    pub session: Option<ConnectionSession>,
}

/// What a connection with a session shows besides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionSession {
    /// Its id.
    pub session: SessionId,
    /// The last operation's short name.
    pub last_operation: &'static str,
    /// When the connection was accepted, in milliseconds since 1970.
    pub established_unix_ms: i64,
    /// The negotiated timeout.
    pub timeout_ms: i32,
    /// The last request's number, if there was one that is not negative.
    pub last_xid: Option<i32>,
    /// The zxid of the last reply.
    pub last_zxid: Zxid,
    /// When the last reply left, on a clock that is not the calendar.
    pub last_response_ms: u64,
    /// How long the last request took.
    pub last_latency_ms: u64,
    /// Of all its requests.
    pub latency: Latency,
}

impl Connection {
    /// Everything but the closing parenthesis (`ServerCnxn.dumpConnectionInfo`).
    fn brief(&self, text: &mut String) {
        put(
            text,
            format_args!(
                " {}[{:x}](queued={},recved={},sent={}",
                JavaAddress(self.peer),
                self.interest,
                self.queued,
                self.received,
                self.sent,
            ),
        );
    }
}

/// `cons`.
pub fn cons(connections: &[Connection]) -> String {
    let mut text = String::new();
    for connection in connections {
        connection.brief(&mut text);
        if let Some(session) = &connection.session {
            put(
                &mut text,
                format_args!(
                    ",sid=0x{:x},lop={},est={},to={}",
                    session.session.0,
                    session.last_operation,
                    session.established_unix_ms,
                    session.timeout_ms,
                ),
            );
            if let Some(xid) = session.last_xid {
                put(&mut text, format_args!(",lcxid=0x{xid:x}"));
            }
            put(
                &mut text,
                format_args!(
                    ",lzxid={},lresp={},llat={},minlat={},avglat={},maxlat={}",
                    session.last_zxid,
                    session.last_response_ms,
                    session.last_latency_ms,
                    session.latency.min_ms,
                    session.latency.mean_ms(),
                    session.latency.max_ms,
                ),
            );
        }
        text.push_str(")\n");
    }
    text.push('\n');
    text
}

/// What `conf` shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// The port that is listened on.
    pub client_port: u16,
    /// Where the data is.
    pub data_dir: String,
    /// How large it is.
    pub data_bytes: u64,
    /// The tick.
    pub tick_ms: u64,
    /// Connections from one address; 0 is no limit.
    pub connections_per_address_max: usize,
    /// The shortest session timeout.
    pub session_timeout_min_ms: u64,
    /// The longest.
    pub session_timeout_max_ms: u64,
}

/// `conf`.
pub fn conf(configuration: &Configuration) -> String {
    let Configuration { client_port, data_dir, data_bytes, tick_ms, .. } = configuration;
    format!(
        "clientPort={client_port}\nsecureClientPort=-1\n\
         dataDir={data_dir}\ndataDirSize={data_bytes}\n\
         dataLogDir={data_dir}\ndataLogSize={data_bytes}\n\
         tickTime={tick_ms}\nmaxClientCnxns={}\nminSessionTimeout={}\nmaxSessionTimeout={}\n\
         clientPortListenBacklog=-1\nserverId=0\n",
        configuration.connections_per_address_max,
        configuration.session_timeout_min_ms,
        configuration.session_timeout_max_ms,
    )
}

/// `dirs`.
pub fn dirs(data_bytes: u64, log_bytes: u64) -> String {
    format!("datadir_size: {data_bytes}\nlogdir_size: {log_bytes}\n")
}

/// `envi`, in the order given.
pub fn envi(entries: &[(&str, String)]) -> String {
    let mut text = "Environment:\n".to_owned();
    for (key, value) in entries {
        put(&mut text, format_args!("{key}={value}\n"));
    }
    text
}

/// `wchs`.
pub fn wchs(connections: usize, paths: usize, watches: usize) -> String {
    format!("{connections} connections watching {paths} paths\nTotal watches:{watches}\n")
}

/// `wchc`: by session, from entries sorted by session.
pub fn wchc(watches: &[(SessionId, Arc<str>)]) -> String {
    let mut text = String::new();
    let mut last = None;
    for (session, path) in watches {
        if last != Some(session) {
            put(&mut text, format_args!("0x{:x}\n", session.0));
            last = Some(session);
        }
        put(&mut text, format_args!("\t{path}\n"));
    }
    text.push('\n');
    text
}

/// `wchp`: by path.
pub fn wchp(watches: &[(SessionId, Arc<str>)]) -> String {
    let mut paths: BTreeMap<&str, Vec<SessionId>> = BTreeMap::new();
    for (session, path) in watches {
        paths.entry(path).or_default().push(*session);
    }
    let mut text = String::new();
    for (path, sessions) in paths {
        put(&mut text, format_args!("{path}\n"));
        for session in sessions {
            put(&mut text, format_args!("\t0x{:x}\n", session.0));
        }
    }
    text.push('\n');
    text
}

/// An address as `InetSocketAddress.toString` prints one without a name.
struct JavaAddress(SocketAddr);

impl fmt::Display for JavaAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.ip().to_canonical() {
            IpAddr::V4(ip) => write!(f, "/{ip}:{}", self.0.port()),
            IpAddr::V6(ip) => {
                let groups: Vec<String> =
                    ip.segments().iter().map(|group| format!("{group:x}")).collect();
                write!(f, "/[{}]:{}", groups.join(":"), self.0.port())
            }
        }
    }
}

fn put(text: &mut String, what: fmt::Arguments<'_>) {
    text.write_fmt(what).expect("writing to a String does not fail");
}

#[cfg(test)]
mod tests;
