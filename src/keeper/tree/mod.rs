//! The znodes, with all that a Stat and a guard need to know of them.
//!
//! The tree only keeps; who may change it, and when, is `replica`'s business.

mod name;
mod nodes;
pub mod quota;
pub mod record;

use crate::keeper::acl::perms;
use crate::keeper::path;
use crate::keeper::request::{Names, SessionId};
use crate::keeper::tree::name::Name;
use crate::keeper::tree::nodes::{NodeId, Nodes};
use crate::keeper::tree::quota::{Quotas, Usage};
use crate::keeper::tree::record::{Kind, Record};
use crate::keeper::zxid::Revision;
use bytes::BytesMut;
use indexmap::IndexSet;
use jute::{Acl, Text};
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::sync::Arc;

/// A full path, shared by whoever plans with it.
pub type Path = Arc<str>;

type NodeSet = IndexSet<NodeId, FxBuildHasher>;

/// The four znodes of every tree. They are there from the start and cannot be deleted.
pub const ROOT: &str = "/";
/// See [`ROOT`].
pub const ZOOKEEPER: &str = "/zookeeper";
/// See [`ROOT`]. Whoever may write here sets limits for others.
pub const QUOTA: &str = "/zookeeper/quota";
/// See [`ROOT`]. Empty, as on a standalone server.
pub const CONFIG: &str = "/zookeeper/config";

/// A znode in the tree.
#[derive(Debug)]
pub struct Znode {
    /// What it is.
    pub record: Record,
    name: Name,
    parent: NodeId,
    /// The next among its parent's children, the first after the last; the next free number once
    /// it is taken out.
    next: NodeId,
    previous: NodeId,
    /// Of its whole path.
    hash: u32,
}

/// A list of names in the wire's form (`vector<ustring>`).
pub fn encode_names(names: impl Iterator<Item = impl AsRef<[u8]>>) -> Names {
    let mut out = BytesMut::from(&[0; 4][..]);
    let mut count: i32 = 0;
    for name in names {
        jute::primitives::put_buffer(&mut out, name.as_ref());
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
    nodes: Nodes,
    ephemerals: FxHashMap<SessionId, NodeSet>,
    expirable: NodeSet,
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
            nodes: Nodes::new(),
            ephemerals: FxHashMap::default(),
            expirable: NodeSet::default(),
            data_size: ROOT.len() as u64,
            ephemeral_count: 0,
            quotas: Quotas::default(),
        };
        tree.insert(ZOOKEEPER, Record::blank(Kind::Persistent));
        let mut config = Record::blank(Kind::Persistent);
        config.set_acl(Some(config_acl()), -1, Revision::NEVER);
        tree.insert(CONFIG, config);
        tree.insert(QUOTA, Record::blank(Kind::Persistent));
        tree
    }

    fn locate(&self, path: &str) -> Option<NodeId> {
        self.nodes.find(if path.is_empty() { ROOT } else { path })
    }

    /// The znode at a path; the empty path is the root, as on the real server.
    pub fn find(&self, path: &str) -> Option<&Znode> {
        self.locate(path).map(|id| self.nodes.get(id))
    }

    /// The children's names of a znode, in the wire's form.
    pub fn names(&mut self, path: &str) -> Option<Names> {
        self.locate(path).map(|id| self.nodes.names(id))
    }

    /// The full paths of a znode's children, in an order that clients may not rely on.
    pub fn children(&self, path: &str) -> impl Iterator<Item = Path> {
        let children = self.locate(path).map(|id| self.nodes.children(id));
        children.into_iter().flatten().map(|child| self.nodes.path(child))
    }

    /// Change a znode's record by `change`, if the znode exists. Its kind may not change.
    pub fn update(&mut self, path: &str, change: impl FnOnce(&mut Record)) -> bool {
        let Some(id) = self.nodes.find(path) else { return false };
        let record = &mut self.nodes.get_mut(id).record;
        let before = record.usage().bytes;
        change(record);
        let bytes = record.usage().bytes - before;
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
    pub fn insert(&mut self, path: &str, record: Record) {
        assert!(self.nodes.find(path).is_none(), "a znode is created where one is");
        let parent = self.nodes.find(path::parent_or_root(path));
        let parent = parent.expect("the parent of a new znode is in the tree");
        self.nodes.get_mut(parent).record.more().children += 1;
        self.data_size += record.size(path);
        let (kind, usage) = (record.kind(), record.usage());
        let id = self.nodes.insert(path, parent, record);
        match kind {
            Kind::Ephemeral(session) => {
                self.ephemeral_count += 1;
                self.ephemerals.entry(session).or_default().insert(id);
            }
            Kind::Container | Kind::Ttl(_) => {
                self.expirable.insert(id);
            }
            Kind::Persistent => {}
        }
        self.track(path, usage);
        if path.starts_with(QUOTA) {
            self.quota_node_inserted(path);
        }
    }

    /// Take a znode out. `None` if it is missing.
    ///
    /// # Panics
    /// If it has children, or is the root.
    pub fn remove(&mut self, path: &str) -> Option<Record> {
        let id = self.nodes.find(path)?;
        let node = self.nodes.get(id);
        assert!(node.record.children() == 0, "a znode is deleted before its children");
        let parent = node.parent;
        self.nodes.get_mut(parent).record.more().children -= 1;
        let record = self.nodes.remove(id);
        self.data_size -= record.size(path);
        match record.kind() {
            Kind::Ephemeral(session) => {
                self.ephemeral_count -= 1;
                if let Some(owned) = self.ephemerals.get_mut(&session) {
                    owned.swap_remove(&id);
                    if owned.is_empty() {
                        self.ephemerals.remove(&session);
                    }
                }
            }
            Kind::Container | Kind::Ttl(_) => {
                self.expirable.swap_remove(&id);
            }
            Kind::Persistent => {}
        }
        let usage = record.usage();
        self.track(path, Usage { count: -usage.count, bytes: -usage.bytes });
        if path.starts_with(QUOTA) {
            self.quota_node_removed(path);
        }
        Some(record)
    }

    /// The ephemerals of a session.
    pub fn ephemerals(&self, session: SessionId) -> impl Iterator<Item = Path> {
        let owned = self.ephemerals.get(&session).into_iter().flatten();
        owned.map(|id| self.nodes.path(*id))
    }

    /// How many a session has.
    pub fn ephemerals_of(&self, session: SessionId) -> usize {
        self.ephemerals.get(&session).map_or(0, NodeSet::len)
    }

    /// The subtrees with limits.
    pub fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    /// Those containers and TTL nodes that are wanted.
    pub fn expirable(&self, wanted: impl Fn(&Record) -> bool) -> impl Iterator<Item = Path> {
        let wanted = self.expirable.iter().filter(move |id| wanted(&self.nodes.get(**id).record));
        wanted.map(|id| self.nodes.path(*id))
    }

    /// Every path with its znode, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (Path, &Znode)> {
        self.nodes.iter().map(|id| (self.nodes.path(id), self.nodes.get(id)))
    }

    /// What a subtree holds, its root included.
    pub fn usage(&self, root: &str) -> Usage {
        let mut usage = Usage::default();
        let mut open: Vec<NodeId> = self.nodes.find(root).into_iter().collect();
        while let Some(id) = open.pop() {
            usage.add(self.nodes.get(id).record.usage());
            open.extend(self.nodes.children(id));
        }
        usage
    }

    /// The number of znodes below a path (`DataTree.getAllChildrenNumber`).
    pub fn descendants(&self, path: &str) -> usize {
        let Some(id) = self.locate(path) else { return 0 };
        let mut count = 0;
        let mut open: Vec<NodeId> = self.nodes.children(id).collect();
        while let Some(id) = open.pop() {
            count += 1;
            open.extend(self.nodes.children(id));
        }
        count
    }

    /// The number of znodes, the root included.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Never: the root is always there.
    pub fn is_empty(&self) -> bool {
        false
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
    use crate::keeper::zxid::ZxidOffset;
    use bytes::Bytes;

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
        assert_eq!((config.aversion(), config.acl().map(|acl| acl[0].perms)), (-1, Some(1)));
        assert_eq!((tree.len(), tree.data_size(), tree.descendants("/")), (4, 44, 3));
    }

    #[test]
    fn an_ephemeral_is_found_by_its_session_until_it_is_removed() {
        let mut tree = Tree::new();
        let session = SessionId(9);
        tree.insert("/e", Record::blank(Kind::Ephemeral(session)));
        assert_eq!(tree.ephemerals(session).collect::<Vec<_>>(), ["/e".into()]);
        assert!(tree.remove("/e").is_some());
        assert_eq!((tree.ephemerals_of(session), tree.ephemeral_count()), (0, 0));
        assert!(tree.remove("/e").is_none());
    }

    #[test]
    fn names_are_encoded_again_after_a_change() {
        let mut tree = Tree::new();
        tree.insert("/a", plain());
        assert_eq!(tree.names("/a").map(|names| names.0), Some(Bytes::from_static(&[0; 4])));
        tree.insert("/a/x", plain());
        let expect = Bytes::from_static(&[0, 0, 0, 1, 0, 0, 0, 1, b'x']);
        assert_eq!(tree.names("/a").map(|names| names.0), Some(expect.clone()));
        assert_eq!(tree.names("/a").map(|names| names.0), Some(expect));
        tree.remove("/a/x");
        assert_eq!(tree.names("/a").map(|names| names.0), Some(Bytes::from_static(&[0; 4])));
    }
}
