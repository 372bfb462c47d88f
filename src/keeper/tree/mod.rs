//! The znodes, with all that a Stat and a guard need to know of them.
//!
//! The tree only keeps; who may change it, and when, is `replica`'s business.

pub mod quota;

use crate::keeper::acl::perms;
use crate::keeper::path;
use crate::keeper::request::{Names, SessionId};
use crate::keeper::tree::quota::{Quotas, Usage};
use crate::keeper::txn::LeaseId;
use crate::keeper::zxid::{Revision, ZxidOffset};
use bytes::{Bytes, BytesMut};
use indexmap::IndexSet;
use jute::{Acl, Stat, Text};
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::sync::Arc;

/// A full path, shared by the tree, the parent's list of children and whoever plans with it.
pub type Path = Arc<str>;

type PathSet = IndexSet<Path, FxBuildHasher>;

/// The four znodes of every tree. They are there from the start and cannot be deleted.
pub const ROOT: &str = "/";
/// See [`ROOT`].
pub const ZOOKEEPER: &str = "/zookeeper";
/// See [`ROOT`]. Whoever may write here sets limits for others.
pub const QUOTA: &str = "/zookeeper/quota";
/// See [`ROOT`]. Empty, as on a standalone server.
pub const CONFIG: &str = "/zookeeper/config";

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The data; null is kept apart from empty.
    pub data: Option<Bytes>,
    /// What it is.
    pub kind: Kind,
    /// When it was created, in milliseconds since 1970.
    pub ctime: i64,
    /// When its data was last set.
    pub mtime: i64,
    /// How often its data was set; wraps.
    pub version: i32,
    /// The revision that clients know as czxid.
    pub created: Revision,
    /// Who may do what; `None` is open to the world.
    pub acl: Option<Arc<[Acl]>>,
    /// How often the ACL was set; wraps.
    pub aversion: i32,
    /// How many children were ever created under it: the next sequence number.
    pub creates: i32,
    /// The last creation or deletion of a child, or its own creation.
    pub pzxid: Revision,
    /// The number of children.
    pub children: i32,
    /// What etcd knows of its keys.
    pub keys: Keys,
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

impl Record {
    /// The Stat as clients see it. Source: `DataNode.copyStat`; cversion counts creations and
    /// deletions of children, hence twice the creations less those that are still there.
    pub fn stat(&self, offset: ZxidOffset) -> Stat {
        let owner = match self.kind {
            Kind::Ephemeral(session) => session.0,
            Kind::Persistent | Kind::Container | Kind::Ttl(_) => 0,
        };
        let length = self.data.as_ref().map_or(0, Bytes::len);
        Stat {
            czxid: offset.zxid(self.created).0,
            mzxid: offset.zxid(self.keys.node).0,
            ctime: self.ctime,
            mtime: self.mtime,
            version: self.version,
            cversion: self.creates.wrapping_mul(2).wrapping_sub(self.children),
            aversion: self.aversion,
            ephemeral_owner: owner,
            data_length: i32::try_from(length).unwrap_or(i32::MAX),
            num_children: self.children,
            pzxid: offset.zxid(self.pzxid).0,
        }
    }

    /// The session that owns it, if it is an ephemeral.
    pub fn owner(&self) -> Option<SessionId> {
        match self.kind {
            Kind::Ephemeral(session) => Some(session),
            Kind::Persistent | Kind::Container | Kind::Ttl(_) => None,
        }
    }

    /// A znode of which nothing is known but that it exists.
    pub fn blank(kind: Kind) -> Self {
        Self {
            data: Some(Bytes::new()),
            kind,
            ctime: 0,
            mtime: 0,
            version: 0,
            created: Revision::NEVER,
            acl: None,
            aversion: 0,
            creates: 0,
            pzxid: Revision::NEVER,
            children: 0,
            keys: Keys::default(),
        }
    }

    /// What it counts for in a quota.
    pub fn usage(&self) -> Usage {
        let bytes = self.data.as_ref().map_or(0, Bytes::len);
        Usage { count: 1, bytes: i64::try_from(bytes).unwrap_or(i64::MAX) }
    }

    fn size(&self, path: &str) -> u64 {
        (path.len() + self.data.as_ref().map_or(0, Bytes::len)) as u64
    }
}

/// A znode in the tree.
#[derive(Debug)]
pub struct Znode {
    /// What it is.
    pub record: Record,
    children: Option<Box<PathSet>>,
    names: Option<Names>,
}

impl Znode {
    /// The children's full paths, in an order that clients may not rely on.
    pub fn children(&self) -> impl Iterator<Item = &Path> {
        self.children.iter().flat_map(|children| children.iter())
    }

    /// The children's names in the wire's form. Encoded once until the next change.
    pub fn names(&mut self) -> Names {
        if let Some(names) = &self.names {
            return names.clone();
        }
        let names = encode_names(self.children().map(|child| path::name(child)));
        self.names = Some(names.clone());
        names
    }
}

/// A list of names in the wire's form (`vector<ustring>`).
pub fn encode_names<'a>(names: impl Iterator<Item = &'a str>) -> Names {
    let mut out = BytesMut::from(&[0; 4][..]);
    let mut count: i32 = 0;
    for name in names {
        jute::primitives::put_ustring(&mut out, name);
        count = count.saturating_add(1);
    }
    out[..4].copy_from_slice(&count.to_be_bytes());
    Names(out.freeze())
}

/// All znodes.
///
/// Every znode but the root has its parent in the tree; `record.children` is the number of
/// znodes that have it as parent.
#[derive(Debug)]
pub struct Tree {
    nodes: FxHashMap<Path, Box<Znode>>,
    ephemerals: FxHashMap<SessionId, PathSet>,
    expirable: PathSet,
    data_size: u64,
    ephemeral_count: usize,
    quotas: Quotas,
}

impl Default for Tree {
    fn default() -> Self {
        Self::new()
    }
}

impl Tree {
    /// The tree of a fresh server. Source: `DataTree`'s constructor; `DataTree.addConfigNode`
    /// for the ACL and the odd aversion of `/zookeeper/config`.
    pub fn new() -> Self {
        let mut tree = Self {
            nodes: FxHashMap::default(),
            ephemerals: FxHashMap::default(),
            expirable: PathSet::default(),
            data_size: 0,
            ephemeral_count: 0,
            quotas: Quotas::default(),
        };
        let root = Box::new(Znode {
            record: Record::blank(Kind::Persistent),
            children: None,
            names: None,
        });
        tree.data_size += root.record.size(ROOT);
        tree.nodes.insert(ROOT.into(), root);
        tree.insert(ZOOKEEPER.into(), Record::blank(Kind::Persistent));
        let mut config = Record::blank(Kind::Persistent);
        config.acl = Some(config_acl());
        config.aversion = -1;
        tree.insert(CONFIG.into(), config);
        tree.insert(QUOTA.into(), Record::blank(Kind::Persistent));
        tree
    }

    /// The znode at a path; the empty path is the root, as on the real server.
    pub fn find(&self, path: &str) -> Option<&Znode> {
        self.nodes.get(if path.is_empty() { ROOT } else { path }).map(|node| &**node)
    }

    /// As [`Self::find`], with the tree's own copy of the path.
    pub fn find_entry(&self, path: &str) -> Option<(&Path, &Znode)> {
        let key = if path.is_empty() { ROOT } else { path };
        self.nodes.get_key_value(key).map(|(path, node)| (path, &**node))
    }

    /// The children's names of a znode, in the wire's form.
    pub fn names(&mut self, path: &str) -> Option<Names> {
        let key = if path.is_empty() { ROOT } else { path };
        self.nodes.get_mut(key).map(|node| node.names())
    }

    /// Change a znode's record by `change`, if the znode exists. Its kind may not change.
    pub fn update(&mut self, path: &str, change: impl FnOnce(&mut Record)) -> bool {
        let Some(node) = self.nodes.get_mut(path) else { return false };
        let before = node.record.usage().bytes;
        change(&mut node.record);
        let bytes = node.record.usage().bytes - before;
        self.data_size = self.data_size.saturating_add_signed(bytes);
        if bytes != 0 {
            self.track(path, Usage { count: 0, bytes });
        }
        true
    }

    /// Put a new znode in its place. The parent must exist; the caller says nothing of its
    /// counters, only its number of children moves.
    ///
    /// # Panics
    /// If the parent is missing or the znode exists.
    pub fn insert(&mut self, path: Path, record: Record) {
        let parent = self
            .nodes
            .get_mut(path::parent_or_root(&path))
            .expect("the parent of a new znode is in the tree");
        parent.record.children += 1;
        parent.names = None;
        parent.children.get_or_insert_default().insert(path.clone());
        self.data_size += record.size(&path);
        match record.kind {
            Kind::Ephemeral(session) => {
                self.ephemeral_count += 1;
                self.ephemerals.entry(session).or_default().insert(path.clone());
            }
            Kind::Container | Kind::Ttl(_) => {
                self.expirable.insert(path.clone());
            }
            Kind::Persistent => {}
        }
        let usage = record.usage();
        let node = Box::new(Znode { record, children: None, names: None });
        let before = self.nodes.insert(path.clone(), node);
        assert!(before.is_none(), "a znode is created where one is");
        self.track(&path, usage);
        if path.starts_with(QUOTA) {
            self.quota_node_inserted(&path);
        }
    }

    /// Take a znode out. `None` if it is missing.
    ///
    /// # Panics
    /// If it has children.
    pub fn remove(&mut self, path: &str) -> Option<Record> {
        let (path, node) = self.nodes.remove_entry(path)?;
        assert!(node.record.children == 0, "a znode is deleted before its children");
        if let Some(parent) = self.nodes.get_mut(path::parent_or_root(&path)) {
            parent.record.children -= 1;
            parent.names = None;
            if let Some(children) = &mut parent.children {
                children.swap_remove(&path);
                if children.is_empty() {
                    parent.children = None;
                }
            }
        }
        self.data_size -= node.record.size(&path);
        if let Kind::Ephemeral(session) = node.record.kind {
            self.ephemeral_count -= 1;
            if let Some(owned) = self.ephemerals.get_mut(&session) {
                owned.swap_remove(&path);
                if owned.is_empty() {
                    self.ephemerals.remove(&session);
                }
            }
        }
        self.expirable.swap_remove(&path);
        let usage = node.record.usage();
        self.track(&path, Usage { count: -usage.count, bytes: -usage.bytes });
        if path.starts_with(QUOTA) {
            self.quota_node_removed(&path);
        }
        Some(node.record)
    }

    /// The ephemerals of a session.
    pub fn ephemerals(&self, session: SessionId) -> impl Iterator<Item = &Path> {
        self.ephemerals.get(&session).into_iter().flatten()
    }

    /// The subtrees with limits.
    pub fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    /// Containers and TTL nodes.
    pub fn expirable(&self) -> impl Iterator<Item = &Path> {
        self.expirable.iter()
    }

    /// Every path with its znode, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&Path, &Znode)> {
        self.nodes.iter().map(|(path, node)| (path, &**node))
    }

    /// The number of znodes below a path (`DataTree.getAllChildrenNumber`).
    pub fn descendants(&self, path: &str) -> usize {
        let Some(node) = self.find(path) else { return 0 };
        let mut count = 0;
        let mut open: Vec<&Path> = node.children().collect();
        while let Some(path) = open.pop() {
            count += 1;
            open.extend(self.nodes.get(path).iter().flat_map(|node| node.children()));
        }
        count
    }

    /// The number of znodes, the root included.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Never: the root is always there.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The number of ephemerals.
    pub fn ephemeral_count(&self) -> usize {
        self.ephemeral_count
    }

    /// The sum over all znodes of path length and data length
    /// (`DataTree.approximateDataSize`).
    pub fn data_size(&self) -> u64 {
        self.data_size
    }
}

/// The ACL of `/zookeeper/config`: the world may read.
fn config_acl() -> Arc<[Acl]> {
    Arc::from([world_acl(perms::READ)])
}

/// The ACL that is not stored: the world may do everything (`ZooDefs.Ids.OPEN_ACL_UNSAFE`).
pub fn open_acl() -> Vec<Acl> {
    vec![world_acl(perms::ALL)]
}

/// Whether an ACL is exactly [`open_acl`].
pub fn is_open(acl: &[Acl]) -> bool {
    let [entry] = acl else { return false };
    entry.perms == perms::ALL
        && entry.id.scheme.as_deref() == Some("world")
        && entry.id.id.as_deref() == Some("anyone")
}

fn world_acl(perms: i32) -> Acl {
    let id = jute::Id {
        scheme: Some(Text::from_static("world")),
        id: Some(Text::from_static("anyone")),
    };
    Acl { perms, id }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> Record {
        Record::blank(Kind::Persistent)
    }

    #[test]
    fn a_fresh_tree_has_the_stats_of_a_fresh_server() {
        let tree = Tree::new();
        let cversion = |path| tree.find(path).map(|node| node.record.stat(ZxidOffset(0)).cversion);
        assert_eq!(cversion("/"), Some(-1));
        assert_eq!(cversion(""), Some(-1));
        assert_eq!(cversion(ZOOKEEPER), Some(-2));
        assert_eq!(cversion(QUOTA), Some(0));
        let config = &tree.find(CONFIG).expect("config is there").record;
        assert_eq!((config.aversion, config.acl.as_ref().map(|acl| acl[0].perms)), (-1, Some(1)));
        assert_eq!((tree.len(), tree.data_size(), tree.descendants("/")), (4, 44, 3));
    }

    #[test]
    fn an_ephemeral_is_found_by_its_session_until_it_is_removed() {
        let mut tree = Tree::new();
        let session = SessionId(9);
        tree.insert("/e".into(), Record::blank(Kind::Ephemeral(session)));
        assert_eq!(tree.ephemerals(session).map(|path| &**path).collect::<Vec<_>>(), ["/e"]);
        assert!(tree.remove("/e").is_some());
        assert_eq!((tree.ephemerals(session).count(), tree.ephemeral_count()), (0, 0));
        assert!(tree.remove("/e").is_none());
    }

    #[test]
    fn names_are_encoded_again_after_a_change() {
        let mut tree = Tree::new();
        tree.insert("/a".into(), plain());
        assert_eq!(tree.names("/a").map(|names| names.0), Some(Bytes::from_static(&[0; 4])));
        tree.insert("/a/x".into(), plain());
        let expect = Bytes::from_static(&[0, 0, 0, 1, 0, 0, 0, 1, b'x']);
        assert_eq!(tree.names("/a").map(|names| names.0), Some(expect.clone()));
        assert_eq!(tree.names("/a").map(|names| names.0), Some(expect));
        tree.remove("/a/x");
        assert_eq!(tree.names("/a").map(|names| names.0), Some(Bytes::from_static(&[0; 4])));
    }
}
