//! Between znodes and etcd's keys and values: no other file knows key bytes.
//!
//! Values are small binary records; the first byte is the record's version.

pub mod own;

use crate::keeper::request::SessionId;
use crate::keeper::tree::Path;
use crate::keeper::tree::record::Kind;
use crate::keeper::txn::{Key, LeaseId};
use crate::keeper::zxid::Revision;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use jute::Acl;
use std::sync::Arc;
use std::time::Duration;

/// The layout of this file. A store with another one is refused, or taken over.
pub const LAYOUT: u32 = 2;

/// The same without [`Slot::Last`]: it can be taken over once nobody writes in it any more.
pub const LAYOUT_WITHOUT_LAST: u32 = 1;

/// The key of the layout and the zxid offset.
pub const META: &[u8] = b"meta";

const RECORD: u8 = 1;

/// A shim's number: random, new at every start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShimId(pub u64);

/// A key that a plan guards or writes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Slot {
    /// `n<path>`: data, times, version, kind.
    Node(Path),
    /// `c<path>`: the number of children ever created.
    Creates(Path),
    /// `a<path>`: the ACL and its version; absent is open, version 0.
    Acl(Path),
    /// `p<path>`: when a child was last deleted.
    Pzxid(Path),
    /// `s<session>`.
    Session(SessionId),
    /// `x<shim>/<group>`: the ordered steps of a multi that changes a znode more than once.
    Steps(ShimId, u64),
    /// `x<shim>`: the number of the shim's last batch.
    Batch(ShimId),
    /// `l`: the last batch that wrote anything, and whose it was.
    Last,
    /// `w<key>/<shim>`: an advisory claim on a key that the shim has lost too often.
    Claim(Box<Self>, ShimId),
    /// `e<shim>`: sessions that ended lately and never had a key.
    Ended(ShimId),
    /// `u<session>`: the session's password is used up, and nobody writes its first key.
    Spent(SessionId),
    /// `k`: what sessions' passwords are made from.
    Secret,
    /// `meta`.
    Meta,
}

impl Slot {
    /// The key, relative to the tree's prefix.
    pub fn key(&self) -> Key {
        let tagged = |tag: u8, path: &str| {
            let mut key = BytesMut::with_capacity(1 + path.len());
            key.put_u8(tag);
            key.put_slice(path.as_bytes());
            key.freeze()
        };
        match self {
            Self::Node(path) => tagged(b'n', path),
            Self::Creates(path) => tagged(b'c', path),
            Self::Acl(path) => tagged(b'a', path),
            Self::Pzxid(path) => tagged(b'p', path),
            Self::Session(session) => tagged(b's', &format!("{:016x}", session.0)),
            Self::Steps(shim, group) => tagged(b'x', &format!("{:016x}/{group:016x}", shim.0)),
            Self::Batch(shim) => tagged(b'x', &format!("{:016x}", shim.0)),
            Self::Claim(slot, shim) => {
                let mut key = BytesMut::from(&b"w"[..]);
                key.put_slice(&slot.key());
                key.put_slice(format!("/{:016x}", shim.0).as_bytes());
                key.freeze()
            }
            Self::Last => Bytes::from_static(b"l"),
            Self::Ended(shim) => tagged(b'e', &format!("{:016x}", shim.0)),
            Self::Spent(session) => tagged(b'u', &format!("{:016x}", session.0)),
            Self::Secret => Bytes::from_static(b"k"),
            Self::Meta => Bytes::from_static(META),
        }
    }

    /// What a key is. `None` if it is not one of ours.
    pub fn parse(key: &[u8]) -> Option<Self> {
        if key == META {
            return Some(Self::Meta);
        }
        let (tag, rest) = key.split_first()?;
        let rest = std::str::from_utf8(rest).ok()?;
        let path = || rest.starts_with('/').then(|| Path::from(rest));
        Some(match tag {
            b'n' => Self::Node(path()?),
            b'c' => Self::Creates(path()?),
            b'a' => Self::Acl(path()?),
            b'p' => Self::Pzxid(path()?),
            b's' => Self::Session(SessionId(hex(rest)? as i64)),
            b'x' => match rest.split_once('/') {
                Some((shim, group)) => Self::Steps(ShimId(hex(shim)?), hex(group)?),
                None => Self::Batch(ShimId(hex(rest)?)),
            },
            b'w' => {
                let (slot, shim) = rest.rsplit_once('/')?;
                Self::Claim(Box::new(Self::parse(slot.as_bytes())?), ShimId(hex(shim)?))
            }
            b'e' => Self::Ended(ShimId(hex(rest)?)),
            b'u' => Self::Spent(SessionId(hex(rest)? as i64)),
            b'k' if rest.is_empty() => Self::Secret,
            b'l' if rest.is_empty() => Self::Last,
            _ => return None,
        })
    }
}

fn hex(text: &str) -> Option<u64> {
    (text.len() == 16).then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

/// Where a znode's czxid comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Birth {
    /// The create_revision of its key: the rule.
    Key,
    /// The revision of this very put: a re-creation inside a multi, which etcd cannot express.
    Here,
    /// This revision: what later puts make of `Here`.
    At(Revision),
}

/// The value of an `n` key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeValue {
    /// The data; null is kept apart from empty.
    pub data: Option<Bytes>,
    /// What it is.
    pub kind: Kind,
    /// Creation, in milliseconds since 1970.
    pub ctime: i64,
    /// Last change of data.
    pub mtime: i64,
    /// Version of the data.
    pub version: i32,
    /// Where czxid comes from.
    pub birth: Birth,
}

const KIND_EPHEMERAL: u8 = 1;
const KIND_CONTAINER: u8 = 2;
const KIND_TTL: u8 = 3;
const BORN_HERE: u8 = 4;
const BORN_AT: u8 = 8;
const DATA_NULL: u8 = 16;

impl NodeValue {
    /// The value's bytes.
    pub fn encode(&self) -> Bytes {
        let data = self.data.as_deref().unwrap_or_default();
        let mut out = BytesMut::with_capacity(40 + data.len());
        let (kind, extra) = match self.kind {
            Kind::Persistent => (0, None),
            Kind::Ephemeral(session) => (KIND_EPHEMERAL, Some(session.0)),
            Kind::Container => (KIND_CONTAINER, None),
            Kind::Ttl(ttl_ms) => (KIND_TTL, Some(ttl_ms)),
        };
        let birth = match self.birth {
            Birth::Key => 0,
            Birth::Here => BORN_HERE,
            Birth::At(_) => BORN_AT,
        };
        let null = if self.data.is_none() { DATA_NULL } else { 0 };
        out.put_slice(&[RECORD, kind | birth | null]);
        out.put_i64(self.ctime);
        out.put_i64(self.mtime);
        out.put_i32(self.version);
        if let Some(extra) = extra {
            out.put_i64(extra);
        }
        if let Birth::At(revision) = self.birth {
            out.put_i64(revision.0);
        }
        out.put_slice(data);
        out.freeze()
    }

    /// Read a value; the data shares its buffer.
    pub fn decode(mut value: Bytes) -> Option<Self> {
        let flags = record_flags(&mut value)?;
        let ctime = value.try_get_i64().ok()?;
        let mtime = value.try_get_i64().ok()?;
        let version = value.try_get_i32().ok()?;
        let kind = match flags & 3 {
            KIND_EPHEMERAL => Kind::Ephemeral(SessionId(value.try_get_i64().ok()?)),
            KIND_CONTAINER => Kind::Container,
            KIND_TTL => Kind::Ttl(value.try_get_i64().ok()?),
            _ => Kind::Persistent,
        };
        let birth = if flags & BORN_HERE != 0 {
            Birth::Here
        } else if flags & BORN_AT != 0 {
            Birth::At(Revision(value.try_get_i64().ok()?))
        } else {
            Birth::Key
        };
        let data = (flags & DATA_NULL == 0).then_some(value);
        Some(Self { data, kind, ctime, mtime, version, birth })
    }
}

fn record_flags(value: &mut Bytes) -> Option<u8> {
    (value.try_get_u8().ok()? == RECORD).then_some(())?;
    value.try_get_u8().ok()
}

/// The value of a `c` key.
pub fn encode_creates(creates: i32) -> Bytes {
    let mut out = BytesMut::with_capacity(5);
    out.put_u8(RECORD);
    out.put_i32(creates);
    out.freeze()
}

/// Read a `c` key's value.
pub fn decode_creates(mut value: Bytes) -> Option<i32> {
    (value.try_get_u8().ok()? == RECORD).then_some(())?;
    value.try_get_i32().ok()
}

/// The value of a `p` key: `None` means that pzxid is the key's own mod_revision.
pub fn encode_pzxid(revision: Option<Revision>) -> Bytes {
    let mut out = BytesMut::with_capacity(9);
    out.put_u8(RECORD);
    if let Some(revision) = revision {
        out.put_i64(revision.0);
    }
    out.freeze()
}

/// Read a `p` key's value.
pub fn decode_pzxid(mut value: Bytes) -> Option<Option<Revision>> {
    (value.try_get_u8().ok()? == RECORD).then_some(())?;
    Some(value.try_get_i64().ok().map(Revision))
}

/// The value of an `a` key.
pub fn encode_acl(aversion: i32, acl: &[Acl]) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u8(RECORD);
    out.put_i32(aversion);
    put_acl(&mut out, acl);
    out.freeze()
}

/// Read an `a` key's value: the ACL's version and the ACL.
pub fn decode_acl(mut value: Bytes) -> Option<(i32, Arc<[Acl]>)> {
    (value.try_get_u8().ok()? == RECORD).then_some(())?;
    let aversion = value.try_get_i32().ok()?;
    Some((aversion, take_acl(&mut value)?))
}

fn put_acl(out: &mut BytesMut, acl: &[Acl]) {
    out.put_u32(u32::try_from(acl.len()).unwrap_or(u32::MAX));
    for entry in acl {
        out.put_i32(entry.perms);
        for text in [&entry.id.scheme, &entry.id.id] {
            put_text(out, text.as_deref().unwrap_or_default());
        }
    }
}

fn take_acl(value: &mut Bytes) -> Option<Arc<[Acl]>> {
    let count = value.try_get_u32().ok()?;
    let mut acl = Vec::new();
    for _ in 0..count {
        let perms = value.try_get_i32().ok()?;
        let scheme = Some(take_text(value)?.into());
        let id = Some(take_text(value)?.into());
        acl.push(Acl { perms, id: jute::Id { scheme, id } });
    }
    Some(acl.into())
}

fn put_text(out: &mut BytesMut, text: &str) {
    out.put_u32(u32::try_from(text.len()).unwrap_or(u32::MAX));
    out.put_slice(text.as_bytes());
}

fn take_text(value: &mut Bytes) -> Option<String> {
    let length = value.try_get_u32().ok()? as usize;
    (length <= value.len()).then_some(())?;
    String::from_utf8(value.split_to(length).to_vec()).ok()
}

/// The value of an `s` key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionValue {
    /// Sixteen random bytes.
    pub password: [u8; 16],
    /// The negotiated timeout.
    pub timeout_ms: u32,
    /// Who serves it.
    pub owner: ShimId,
    /// Its end has begun: it can write nothing and nobody can resume it.
    pub closing: bool,
}

impl SessionValue {
    /// The negotiated timeout.
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms.into())
    }

    /// The value's bytes.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(30);
        out.put_slice(&[RECORD, u8::from(self.closing)]);
        out.put_u32(self.timeout_ms);
        out.put_u64(self.owner.0);
        out.put_slice(&self.password);
        out.freeze()
    }

    /// Read a value.
    pub fn decode(mut value: Bytes) -> Option<Self> {
        let flags = record_flags(&mut value)?;
        let timeout_ms = value.try_get_u32().ok()?;
        let owner = ShimId(value.try_get_u64().ok()?);
        let password = value.get(..16)?.try_into().ok()?;
        Some(Self { password, timeout_ms, owner, closing: flags & 1 != 0 })
    }
}

/// One step of a multi that changes a znode more than once: what watches are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What was done.
    pub kind: StepKind,
    /// Where.
    pub path: Path,
    /// Who may read the event; `None` is everybody.
    pub acl: Option<Arc<[Acl]>>,
}

/// See [`Step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// The znode was created.
    Created,
    /// The znode was deleted.
    Deleted,
    /// Its data was set.
    DataChanged,
}

/// The value of a steps key.
pub fn encode_steps(steps: &[Step]) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u8(RECORD);
    for step in steps {
        let kind = match step.kind {
            StepKind::Created => 1,
            StepKind::Deleted => 2,
            StepKind::DataChanged => 3,
        };
        out.put_slice(&[kind, u8::from(step.acl.is_some())]);
        put_text(&mut out, &step.path);
        if let Some(acl) = &step.acl {
            put_acl(&mut out, acl);
        }
    }
    out.freeze()
}

/// Read a steps key's value.
pub fn decode_steps(mut value: Bytes) -> Option<Vec<Step>> {
    (value.try_get_u8().ok()? == RECORD).then_some(())?;
    let mut steps = Vec::new();
    while !value.is_empty() {
        let kind = match value.try_get_u8().ok()? {
            1 => StepKind::Created,
            2 => StepKind::Deleted,
            3 => StepKind::DataChanged,
            _ => return None,
        };
        let restricted = value.try_get_u8().ok()? != 0;
        let path = take_text(&mut value)?.into();
        let acl = if restricted { Some(take_acl(&mut value)?) } else { None };
        steps.push(Step { kind, path, acl });
    }
    Some(steps)
}

/// What guards compare a key's lease with, for a znode on no lease.
pub const UNLEASED: LeaseId = LeaseId::NONE;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_is_found_again_from_its_key() {
        let slots = [
            Slot::Node("/".into()),
            Slot::Creates("/a b".into()),
            Slot::Acl("/zookeeper/config".into()),
            Slot::Pzxid("/ä".into()),
            Slot::Session(SessionId(0x7fff_0000_0000_0001)),
            Slot::Steps(ShimId(u64::MAX), 7),
            Slot::Batch(ShimId(1)),
            Slot::Ended(ShimId(3)),
            Slot::Spent(SessionId(5)),
            Slot::Secret,
            Slot::Claim(Box::new(Slot::Creates("/a/b".into())), ShimId(9)),
            Slot::Meta,
        ];
        for slot in slots {
            assert_eq!(Slot::parse(&slot.key()), Some(slot));
        }
        for key in ["", "n", "nrelative", "s12", "x/", "w/a/1", "q/a"] {
            assert_eq!(Slot::parse(key.as_bytes()), None, "{key}");
        }
    }

    #[test]
    fn node_values_keep_null_and_empty_data_apart() {
        for data in [None, Some(Bytes::new()), Some(Bytes::from_static(b"x"))] {
            for kind in [
                Kind::Persistent,
                Kind::Ephemeral(SessionId(-3)),
                Kind::Container,
                Kind::Ttl(1 << 39),
            ] {
                for birth in [Birth::Key, Birth::Here, Birth::At(Revision(77))] {
                    let value = NodeValue {
                        data: data.clone(),
                        kind,
                        ctime: -1,
                        mtime: i64::MAX,
                        version: i32::MIN,
                        birth,
                    };
                    assert_eq!(NodeValue::decode(value.encode()), Some(value));
                }
            }
        }
    }

    #[test]
    fn other_values_are_read_as_written() {
        let id = jute::Id { scheme: Some("digest".into()), id: Some("u:h".into()) };
        let acl: Arc<[Acl]> = Arc::from([Acl { perms: 31, id }]);
        assert_eq!(decode_acl(encode_acl(-1, &acl)), Some((-1, acl.clone())));
        assert_eq!(decode_creates(encode_creates(i32::MAX)), Some(i32::MAX));
        assert_eq!(decode_pzxid(encode_pzxid(None)), Some(None));
        assert_eq!(decode_pzxid(encode_pzxid(Some(Revision(5)))), Some(Some(Revision(5))));
        let session =
            SessionValue { password: [7; 16], timeout_ms: 4001, owner: ShimId(3), closing: true };
        assert_eq!(SessionValue::decode(session.encode()), Some(session));
        let steps = vec![
            Step { kind: StepKind::Created, path: "/a".into(), acl: Some(acl) },
            Step { kind: StepKind::DataChanged, path: "/a".into(), acl: None },
            Step { kind: StepKind::Deleted, path: "/a".into(), acl: None },
        ];
        assert_eq!(decode_steps(encode_steps(&steps)), Some(steps));
    }

    #[test]
    fn truncated_values_are_refused() {
        let value =
            SessionValue { password: [7; 16], timeout_ms: 4000, owner: ShimId(3), closing: false };
        let bytes = value.encode();
        for length in 0..bytes.len() {
            assert_eq!(SessionValue::decode(bytes.slice(..length)), None);
        }
        assert_eq!(decode_acl(Bytes::from_static(&[1, 0, 0, 0, 0, 255, 255, 255, 255])), None);
    }
}
