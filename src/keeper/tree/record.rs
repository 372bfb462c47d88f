//! All of a znode but its place in the tree.
//!
//! There may be millions, and nearly all are persistent, open to the world and without children:
//! what only the others have is kept apart.

use crate::keeper::request::{Data, SessionId};
use crate::keeper::tree::quota::Usage;
use crate::keeper::txn::LeaseId;
use crate::keeper::zxid::{Revision, ZxidOffset};
use jute::{Acl, Stat};
use std::sync::Arc;

/// What a znode is, beyond its data (`CreateMode`, `EphemeralType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It stays until it is deleted.
    Persistent,
    /// It goes with its session.
    Ephemeral(SessionId),
    /// It goes some time after its last child.
    Container,
    /// It goes when it has had no children and no change for so many milliseconds.
    Ttl(i64),
}

/// Everything about a znode except its place in the tree.
#[derive(Clone, Debug)]
pub struct Record {
    /// The data; null is kept apart from empty.
    pub data: Option<Data>,
    more: Option<Box<More>>,
    /// How often its data was set; wraps.
    pub version: i32,
    created: ShortRevision,
    modified: ShortRevision,
    ctime: ShortTime,
    mtime: ShortTime,
}

/// A revision in seven bytes: the last of them are [`Revision::PENDING`], which no store reaches
/// that counts a million a second for two thousand years.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ShortRevision([u8; 7]);

impl ShortRevision {
    const MAX: i64 = (1 << 55) - 1;
}

impl From<Revision> for ShortRevision {
    fn from(revision: Revision) -> Self {
        let [short @ .., _] = revision.0.clamp(-Self::MAX, Self::MAX).to_le_bytes();
        Self(short)
    }
}

impl From<ShortRevision> for Revision {
    fn from(ShortRevision([a, b, c, d, e, f, g]): ShortRevision) -> Self {
        // The sign comes with the shift.
        match i64::from_le_bytes([0, a, b, c, d, e, f, g]) >> 8 {
            ShortRevision::MAX => Self::PENDING,
            revision => Self(revision),
        }
    }
}

/// Milliseconds since 1970 in six bytes: four thousand years either way, and what is further off
/// counts as that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ShortTime([u8; 6]);

impl From<i64> for ShortTime {
    fn from(ms: i64) -> Self {
        const MAX: i64 = (1 << 47) - 1;
        let [short @ .., _, _] = ms.clamp(-MAX, MAX).to_le_bytes();
        Self(short)
    }
}

impl From<ShortTime> for i64 {
    fn from(ShortTime([a, b, c, d, e, f]): ShortTime) -> Self {
        Self::from_le_bytes([0, 0, a, b, c, d, e, f]) >> 16
    }
}

/// What most znodes do not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct More {
    kind: Kind,
    /// Who may do what; `None` is open to the world.
    pub acl: Option<Arc<[Acl]>>,
    /// How often the ACL was set; wraps.
    pub aversion: i32,
    /// How many children were ever created under it: the next sequence number.
    pub creates: i32,
    /// The number of children.
    pub children: i32,
    /// The last creation or deletion of a child, or its own creation.
    pub pzxid: Revision,
    /// What etcd knows of its keys; `node` stands in the record.
    keys: Keys,
}

/// The revisions of a znode's keys. [`Revision::NEVER`] is an absent key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    /// `n`'s create_revision. It differs from czxid after a re-creation inside one multi.
    pub node_created: Revision,
    /// `n`'s mod_revision, which clients know as mzxid.
    pub node: Revision,
    /// `c`'s mod_revision.
    pub creates: Revision,
    /// `a`'s mod_revision.
    pub acl: Revision,
    /// `p`'s mod_revision.
    pub pzxid: Revision,
    /// The lease of the znode's keys.
    pub lease: LeaseId,
}

impl Keys {
    /// They may go without anybody writing: their lease may end.
    pub fn is_leased(&self) -> bool {
        self.lease != LeaseId::NONE
    }
}

impl Record {
    /// A znode of which nothing is known but that it exists.
    pub fn blank(kind: Kind) -> Self {
        Self::born(kind, Revision::NEVER)
    }

    /// A znode without data that was created at a revision, which is its czxid, and its pzxid and
    /// its key's create_revision as long as nothing else is said.
    pub fn born(kind: Kind, created: Revision) -> Self {
        let mut record = Self {
            data: Some(Data::default()),
            more: None,
            version: 0,
            created: created.into(),
            modified: Revision::NEVER.into(),
            ctime: 0.into(),
            mtime: 0.into(),
        };
        if kind != Kind::Persistent {
            record.more().kind = kind;
        }
        record
    }

    /// The same with these data.
    pub fn with_data(self, data: impl Into<Data>) -> Self {
        Self { data: Some(data.into()), ..self }
    }

    /// What only some have, to be changed.
    pub fn more(&mut self) -> &mut More {
        let created = self.created();
        self.more.get_or_insert_with(|| Box::new(More::of(created)))
    }

    /// What it is.
    pub fn kind(&self) -> Kind {
        self.more.as_ref().map_or(Kind::Persistent, |more| more.kind)
    }

    /// The revision that clients know as czxid.
    pub fn created(&self) -> Revision {
        self.created.into()
    }

    /// `n`'s mod_revision, which clients know as mzxid.
    pub fn modified(&self) -> Revision {
        self.modified.into()
    }

    /// See [`Self::modified`].
    pub fn set_modified(&mut self, revision: Revision) {
        self.modified = revision.into();
    }

    /// When it was created, in milliseconds since 1970.
    pub fn ctime(&self) -> i64 {
        self.ctime.into()
    }

    /// When its data was last set.
    pub fn mtime(&self) -> i64 {
        self.mtime.into()
    }

    /// See [`Self::ctime`] and [`Self::mtime`].
    pub fn set_times(&mut self, ctime: i64, mtime: i64) {
        (self.ctime, self.mtime) = (ctime.into(), mtime.into());
    }

    /// See [`Self::mtime`].
    pub fn set_mtime(&mut self, mtime: i64) {
        self.mtime = mtime.into();
    }

    /// See [`More::acl`].
    pub fn acl(&self) -> Option<&Arc<[Acl]>> {
        self.more.as_ref().and_then(|more| more.acl.as_ref())
    }

    /// See [`More::aversion`].
    pub fn aversion(&self) -> i32 {
        self.more.as_ref().map_or(0, |more| more.aversion)
    }

    /// See [`More::creates`].
    pub fn creates(&self) -> i32 {
        self.more.as_ref().map_or(0, |more| more.creates)
    }

    /// See [`More::children`].
    pub fn children(&self) -> i32 {
        self.more.as_ref().map_or(0, |more| more.children)
    }

    /// See [`More::pzxid`].
    pub fn pzxid(&self) -> Revision {
        self.more.as_ref().map_or(self.created(), |more| more.pzxid)
    }

    /// A child came or went at a revision.
    pub fn raise_pzxid(&mut self, revision: Revision) {
        if revision > self.pzxid() {
            self.more().pzxid = revision;
        }
    }

    /// What etcd knows of its keys.
    pub fn keys(&self) -> Keys {
        let keys =
            self.more.as_ref().map_or_else(|| More::keys_of(self.created()), |more| more.keys);
        Keys { node: self.modified(), ..keys }
    }

    /// Change what is known of its keys.
    pub fn change_keys(&mut self, change: impl FnOnce(&mut Keys)) {
        let before = self.keys();
        let mut keys = before;
        change(&mut keys);
        self.set_modified(keys.node);
        if (Keys { node: before.node, ..keys }) != before {
            self.more().keys = Keys { node: Revision::NEVER, ..keys };
        }
    }

    /// Set the ACL, its version and its key's revision.
    pub fn set_acl(&mut self, acl: Option<Arc<[Acl]>>, aversion: i32, revision: Revision) {
        let more = self.more();
        more.acl = acl;
        more.aversion = aversion;
        more.keys.acl = revision;
    }

    /// The Stat as clients see it. Source: `DataNode.copyStat`; cversion counts creations and
    /// deletions of children, hence twice the creations less those that are still there.
    pub fn stat(&self, offset: ZxidOffset) -> Stat {
        let length = self.data.as_ref().map_or(0, |data| data.len());
        let children = self.children();
        Stat {
            czxid: offset.zxid(self.created()).0,
            mzxid: offset.zxid(self.modified()).0,
            ctime: self.ctime(),
            mtime: self.mtime(),
            version: self.version,
            cversion: self.creates().wrapping_mul(2).wrapping_sub(children),
            aversion: self.aversion(),
            ephemeral_owner: self.owner().map_or(0, |session| session.0),
            data_length: i32::try_from(length).unwrap_or(i32::MAX),
            num_children: children,
            pzxid: offset.zxid(self.pzxid()).0,
        }
    }

    /// The session that owns it, if it is an ephemeral.
    pub fn owner(&self) -> Option<SessionId> {
        match self.kind() {
            Kind::Ephemeral(session) => Some(session),
            Kind::Persistent | Kind::Container | Kind::Ttl(_) => None,
        }
    }

    /// What it counts for in a quota.
    pub fn usage(&self) -> Usage {
        let bytes = self.data.as_ref().map_or(0, |data| data.len());
        Usage { count: 1, bytes: i64::try_from(bytes).unwrap_or(i64::MAX) }
    }

    pub(super) fn size(&self, path: &str) -> u64 {
        (path.len() + self.data.as_ref().map_or(0, |data| data.len())) as u64
    }
}

impl More {
    fn of(created: Revision) -> Self {
        Self {
            kind: Kind::Persistent,
            acl: None,
            aversion: 0,
            creates: 0,
            children: 0,
            pzxid: created,
            keys: Self::keys_of(created),
        }
    }

    fn keys_of(created: Revision) -> Keys {
        Keys { node_created: created, ..Keys::default() }
    }
}

impl PartialEq for Record {
    /// Whether what most do not have is kept or not makes no difference.
    fn eq(&self, other: &Self) -> bool {
        let plain = |it: &Self| (it.ctime, it.mtime, it.modified, it.created, it.version);
        let more =
            |it: &Self| it.more.as_deref().cloned().unwrap_or_else(|| More::of(it.created()));
        self.data == other.data && plain(self) == plain(other) && more(self) == more(other)
    }
}

impl Eq for Record {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nothing_is_said_of_follows_from_the_creation() {
        let mut record = Record::born(Kind::Persistent, Revision(7));
        let (plain, keys) = (record.clone(), record.keys());
        assert_eq!((record.pzxid(), keys.node_created), (Revision(7), Revision(7)));
        record.change_keys(|keys| keys.node = Revision(9));
        assert!(record.more.is_none(), "most are only set");
        assert_eq!(record.keys(), Keys { node: Revision(9), ..keys });
        record.change_keys(|keys| keys.node = Revision::NEVER);
        assert_eq!(record.more().children, 0);
        assert_eq!(record, plain);
        record.raise_pzxid(Revision(8));
        assert_eq!(record.stat(ZxidOffset(0)).pzxid, 8);
        assert_ne!(record, plain);
    }

    #[test]
    fn what_is_short_is_the_same() {
        for revision in [0, 1, 255, 256, i64::from(u32::MAX) + 7, ShortRevision::MAX - 1, -1] {
            let revision = Revision(revision);
            assert_eq!(Revision::from(ShortRevision::from(revision)), revision);
        }
        for pending in [Revision::PENDING, Revision(ShortRevision::MAX)] {
            assert_eq!(Revision::from(ShortRevision::from(pending)), Revision::PENDING);
        }
        for ms in [0, -1, 1, 1_700_000_000_000, -62_000_000_000_000, 253_000_000_000_000 / 2] {
            assert_eq!(i64::from(ShortTime::from(ms)), ms);
        }
        assert!(i64::from(ShortTime::from(i64::MAX)) > 1 << 46);
        assert!(i64::from(ShortTime::from(i64::MIN)) < -1 << 46);
    }

    #[test]
    fn a_record_is_small() {
        assert_eq!(size_of::<Record>(), 56);
    }
}
