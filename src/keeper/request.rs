//! What a client asks, and what it is told: the language between `wire` and the core.

use crate::keeper::error::ErrorCode;
use crate::keeper::zxid::Zxid;
use bytes::Bytes;
use jute::{Acl, ClientInfo, Stat, Text};
use std::fmt;
use std::ops::Deref;

/// A session's id. 0 asks for a new session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub i64);

/// The server's own number for one TCP connection. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// The number that a client gives to a request, and gets back with the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Xid(pub i32);

impl Xid {
    /// The number in every notification.
    pub const NOTIFICATION: Self = Self(-1);
    /// The number in every reply to a ping, whatever the ping had
    /// (`FinalRequestProcessor`).
    pub const PING: Self = Self(-2);
}

/// The handshake (`ConnectRequest`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connect {
    /// The highest zxid that the client has seen in a reply.
    pub last_zxid_seen: Zxid,
    /// The session timeout asked for, in milliseconds; any value is possible.
    pub timeout_ms: i32,
    /// The session to go on with, or 0.
    pub session: SessionId,
    /// The session's password; anything if the session is 0.
    pub password: Bytes,
}

/// The answer to a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Connected {
    /// The session is there.
    Accepted {
        /// The negotiated timeout.
        timeout_ms: i32,
        /// The session's id.
        session: SessionId,
        /// The session's password, 16 bytes.
        password: Bytes,
    },
    /// Unknown, expired or closed session, or a wrong password. The connection is closed after
    /// this answer.
    Refused,
}

/// One request of an established connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The client's number for it.
    pub xid: Xid,
    /// What is asked.
    pub operation: Operation,
}

/// What a request asks. Paths and buffers are as the client sent them: null is `None`, and
/// nothing is checked yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// 11: stay alive.
    Ping,
    /// -11: end the session.
    CloseSession,
    /// 1, 15, 19 and 21.
    Create(Create),
    /// 2.
    Delete(Delete),
    /// 3.
    Exists(Read),
    /// 4.
    GetData(Read),
    /// 5.
    SetData(SetData),
    /// 6.
    GetAcl(Option<Text>),
    /// 7.
    SetAcl(SetAcl),
    /// 8.
    GetChildren(Read),
    /// 12: getChildren with the Stat.
    GetChildren2(Read),
    /// 9.
    Sync(Option<Text>),
    /// 14: a multi that breaks one of the rules for the whole request is
    /// [`Operation::Undecodable`]; all but one, a null id in an ACL, which counts only when the
    /// operations before it succeed: then the whole multi is answered with -5.
    Multi(Vec<MultiOperation>),
    /// 22.
    MultiRead(Vec<MultiReadOperation>),
    /// 16.
    Reconfig,
    /// 17: is there a watch of this kind?
    CheckWatches(WatchSelection),
    /// 18.
    RemoveWatches(WatchSelection),
    /// 106.
    AddWatch(AddWatch),
    /// 101 and 105; a 101 has no persistent lists.
    SetWatches(SetWatches),
    /// 100.
    Auth(Auth),
    /// 102, with the client's token.
    Sasl(Option<Bytes>),
    /// 103, with the prefix.
    GetEphemerals(Option<Text>),
    /// 104.
    GetAllChildrenNumber(Option<Text>),
    /// 107.
    WhoAmI,
    /// A known operation whose record could not be decoded, or a multi that is refused whole:
    /// answered with -5. `opcode` says which it was.
    Undecodable {
        /// The type in the request's header.
        opcode: i32,
    },
    /// An operation that the server does not serve: answered with -6 and zxid -1, then the
    /// connection is closed.
    Unknown {
        /// The type in the request's header.
        opcode: i32,
    },
}

/// A path, and whether a watch is left on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// The znode.
    pub path: Option<Text>,
    /// Leave a one-shot watch.
    pub watch: bool,
}

/// Which of the four opcodes a create came with: it decides the kind of node together with the
/// flags, and the form of the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateOpcode {
    /// 1: the reply is the path.
    Create,
    /// 15: the reply is path and Stat.
    Create2,
    /// 19.
    CreateContainer,
    /// 21.
    CreateTtl,
}

/// A create of any kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Create {
    /// How it came.
    pub opcode: CreateOpcode,
    /// The path asked for, without a sequence suffix.
    pub path: Option<Text>,
    /// The data; null is kept apart from empty.
    pub data: Option<Bytes>,
    /// The ACL as given.
    pub acl: Option<Vec<Acl>>,
    /// The mode's number (`CreateMode`), unchecked.
    pub flags: i32,
    /// Time to live in milliseconds; -1 unless the opcode is 21.
    pub ttl_ms: i64,
}

/// A delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delete {
    /// The znode.
    pub path: Option<Text>,
    /// The expected version of the data; -1 is any.
    pub version: i32,
}

/// A change of data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetData {
    /// The znode.
    pub path: Option<Text>,
    /// The new data.
    pub data: Option<Bytes>,
    /// The expected version; -1 is any.
    pub version: i32,
}

/// A change of the ACL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAcl {
    /// The znode.
    pub path: Option<Text>,
    /// The new ACL as given.
    pub acl: Option<Vec<Acl>>,
    /// The expected version of the ACL; -1 is any.
    pub version: i32,
}

/// A check of a version, inside a multi only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The znode.
    pub path: Option<Text>,
    /// The expected version of the data; -1 is any.
    pub version: i32,
}

/// One operation of a multi.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MultiOperation {
    /// 1, 15, 19, 21.
    Create(Create),
    /// 2.
    Delete(Delete),
    /// 5.
    SetData(SetData),
    /// 13.
    Check(Check),
}

/// One operation of a multiRead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MultiReadOperation {
    /// 4.
    GetData(Option<Text>),
    /// 8.
    GetChildren(Option<Text>),
}

/// A path and a kind of watcher (`Watcher.WatcherType`): 1 children, 2 data, 3 any,
/// 4 persistent, 5 persistent recursive; anything else is answered with -5.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchSelection {
    /// The path.
    pub path: Option<Text>,
    /// The kind's number, unchecked.
    pub kind: i32,
}

/// A persistent watch to leave: mode 0 plain, 1 recursive; anything else is answered with -5.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddWatch {
    /// The path.
    pub path: Option<Text>,
    /// The mode's number, unchecked.
    pub mode: i32,
}

/// The watches of a client that has reconnected. A null list is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetWatches {
    /// The highest zxid that the client has seen.
    pub relative_zxid: Zxid,
    /// Watches left by getData, and by exists on a znode that existed.
    pub data: Option<Vec<Option<Text>>>,
    /// Watches left by exists on a missing znode.
    pub exist: Option<Vec<Option<Text>>>,
    /// Watches left by getChildren.
    pub child: Option<Vec<Option<Text>>>,
    /// Persistent watches (105 only).
    pub persistent: Option<Vec<Option<Text>>>,
    /// Persistent recursive watches (105 only).
    pub persistent_recursive: Option<Vec<Option<Text>>>,
}

/// An auth packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    /// The scheme.
    pub scheme: Option<Text>,
    /// What the scheme's provider reads.
    pub auth: Option<Bytes>,
}

/// Everything that goes to a client, in the order in which it must leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outgoing {
    /// The handshake's answer: always first.
    Connected(Connected),
    /// An answer to a request.
    Reply(Reply),
    /// A notification.
    Event(Event),
}

/// An answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The request's number.
    pub xid: Xid,
    /// The header's zxid; 0 and -1 where ZooKeeper has them.
    pub zxid: Zxid,
    /// The record, or the code.
    pub outcome: Result<Body, ErrorCode>,
}

/// What follows the header of a successful reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Nothing.
    Empty,
    /// A path: create, sync.
    Path(Option<Text>),
    /// A path and a Stat: create2, createContainer, createTTL.
    PathStat(Text, Stat),
    /// A Stat: exists, setData, setACL.
    Stat(Stat),
    /// Data and Stat: getData.
    Data(Option<Data>, Stat),
    /// Names: getChildren, getEphemerals.
    Names(Names),
    /// Names and Stat: getChildren2.
    NamesStat(Names, Stat),
    /// getACL.
    Acl(Vec<Acl>, Stat),
    /// One result for each operation of a multi or multiRead.
    Multi(Vec<MultiResult>),
    /// getAllChildrenNumber.
    Number(i32),
    /// addWatch answers with an error code of its own, always 0 (`ErrorResponse`).
    Watched,
    /// whoAmI.
    Identities(Vec<ClientInfo>),
    /// A SASL token for the client.
    Token(Option<Bytes>),
}

/// A znode's data, shared by the tree and all who read it, and as small as can be: there may be
/// millions.
#[derive(Clone, PartialEq, Eq)]
pub struct Data(triomphe::Arc<[u8]>);

impl Default for Data {
    fn default() -> Self {
        Self::from(&[][..])
    }
}

impl From<&[u8]> for Data {
    fn from(data: &[u8]) -> Self {
        Self(data.into())
    }
}

impl From<Vec<u8>> for Data {
    fn from(data: Vec<u8>) -> Self {
        Self(data.into())
    }
}

impl From<&'static str> for Data {
    fn from(data: &'static str) -> Self {
        data.as_bytes().into()
    }
}

impl Deref for Data {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Data {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.escape_ascii().fmt(f)
    }
}

/// A list of names, already in the wire's form (`vector<ustring>`, its count included), so that a
/// znode's list is encoded once for all who ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names(pub Bytes);

/// The result of one operation of a multi or multiRead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MultiResult {
    /// Type 1.
    Create(Text),
    /// Type 15: create2, containers and TTL nodes.
    Create2(Text, Stat),
    /// Type 2.
    Delete,
    /// Type 5.
    SetData(Stat),
    /// Type 13.
    Check,
    /// Type 4.
    GetData(Option<Data>, Stat),
    /// Type 8.
    GetChildren(Names),
    /// Type -1 with a code; `None` is code 0, an operation before the one that failed.
    Error(Option<ErrorCode>),
}

/// A notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// Where.
    pub path: Text,
    /// The transaction that caused it; -1 if it answers a setWatches.
    pub zxid: Zxid,
}

/// What a notification tells (`Watcher.Event.EventType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum EventKind {
    /// 1.
    NodeCreated = 1,
    /// 2.
    NodeDeleted = 2,
    /// 3.
    NodeDataChanged = 3,
    /// 4.
    NodeChildrenChanged = 4,
}
