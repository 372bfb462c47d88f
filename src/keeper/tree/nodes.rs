//! Where the znodes are: in chunks, found by a table that holds their numbers alone.
//!
//! A znode keeps its name and its parent, so a path is nowhere whole. Those of one parent form a
//! ring, in the order in which they came.

use crate::keeper::path;
use crate::keeper::request::Names;
use crate::keeper::tree::name::Name;
use crate::keeper::tree::record::{Kind, Record};
use crate::keeper::tree::{Path, ROOT, Znode, encode_names};
use bytes::Bytes;
use hashbrown::HashTable;
use rustc_hash::{FxHashMap, FxHasher};
use std::hash::Hasher;

/// A znode's number, as long as it is in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct NodeId(u32);

impl NodeId {
    pub(super) const ROOT: Self = Self(0);
    /// No znode.
    pub(super) const NONE: Self = Self(u32::MAX);
}

/// The znodes of a chunk: it has nearly 128 KiB, one of the allocator's sizes.
const CHUNK: u32 = 1365;

/// See the file's text. The root is there always.
#[derive(Debug)]
pub(super) struct Nodes {
    chunks: Vec<Vec<Znode>>,
    /// Numbers that have been given out.
    used: u32,
    /// The first free number among them; the others follow in `next`.
    free: NodeId,
    /// All but the root, by their paths.
    index: HashTable<NodeId>,
    families: FxHashMap<NodeId, Family>,
}

/// What those with children have.
#[derive(Debug)]
struct Family {
    first: NodeId,
    /// The children's names, once somebody has asked for them.
    names: Option<Names>,
}

/// The hash of a whole path; half of it is kept in the znode.
fn hash(path: &str) -> u32 {
    let mut hasher = FxHasher::default();
    hasher.write(path.as_bytes());
    let hash = hasher.finish();
    (hash ^ (hash >> 32)) as u32
}

/// The table looks at both ends of a hash.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Nodes {
    pub(super) fn new() -> Self {
        let mut nodes = Self {
            chunks: Vec::new(),
            used: 0,
            free: NodeId::NONE,
            index: HashTable::new(),
            families: FxHashMap::default(),
        };
        nodes.place(Znode {
            record: Record::blank(Kind::Persistent),
            name: Name::EMPTY,
            parent: NodeId::NONE,
            next: NodeId::ROOT,
            previous: NodeId::ROOT,
            hash: hash(ROOT),
        });
        nodes
    }

    /// The number of znodes.
    pub(super) fn len(&self) -> usize {
        self.index.len() + 1
    }

    pub(super) fn find(&self, path: &str) -> Option<NodeId> {
        if path == ROOT {
            return Some(NodeId::ROOT);
        }
        let hash = hash(path);
        let same = |id: &NodeId| self.get(*id).hash == hash && self.is_at(*id, path);
        self.index.find(spread(hash), same).copied()
    }

    fn is_at(&self, mut id: NodeId, mut path: &str) -> bool {
        loop {
            let node = self.get(id);
            let Some((above, name)) = path.rsplit_once('/') else { return false };
            if node.name.bytes() != name.as_bytes() {
                return false;
            }
            if node.parent == NodeId::ROOT {
                return above.is_empty();
            }
            (id, path) = (node.parent, above);
        }
    }

    /// # Panics
    /// If there is no such znode.
    pub(super) fn get(&self, id: NodeId) -> &Znode {
        &self.chunks[(id.0 / CHUNK) as usize][(id.0 % CHUNK) as usize]
    }

    /// # Panics
    /// If there is no such znode.
    pub(super) fn get_mut(&mut self, id: NodeId) -> &mut Znode {
        &mut self.chunks[(id.0 / CHUNK) as usize][(id.0 % CHUNK) as usize]
    }

    /// Put a new znode in its place, as its parent's last child.
    ///
    /// # Panics
    /// If there is one.
    pub(super) fn insert(&mut self, path: &str, parent: NodeId, record: Record) -> NodeId {
        let hash = hash(path);
        let (next, previous) = (NodeId::NONE, NodeId::NONE);
        let name = Name::from(path::name(path));
        let id = self.place(Znode { record, name, parent, next, previous, hash });
        let family = self.families.entry(parent).or_insert(Family { first: id, names: None });
        family.names = None;
        let first = family.first;
        let last = if first == id { id } else { self.get(first).previous };
        let node = self.get_mut(id);
        (node.next, node.previous) = (first, last);
        self.get_mut(last).next = id;
        self.get_mut(first).previous = id;
        let (index, chunks) = (&mut self.index, &self.chunks);
        let hash_of =
            |id: &NodeId| spread(chunks[(id.0 / CHUNK) as usize][(id.0 % CHUNK) as usize].hash);
        // Whether it is there already was asked by whoever looked for the path.
        index.insert_unique(spread(hash), id, hash_of);
        id
    }

    fn place(&mut self, node: Znode) -> NodeId {
        if self.free != NodeId::NONE {
            let id = self.free;
            self.free = std::mem::replace(self.get_mut(id), node).next;
            return id;
        }
        let id = NodeId(self.used);
        self.used = self.used.checked_add(1).expect("there are fewer than 4,294,967,295 znodes");
        match self.chunks.last_mut() {
            Some(chunk) if chunk.len() < CHUNK as usize => chunk.push(node),
            _ => {
                let mut chunk = Vec::with_capacity(CHUNK as usize);
                chunk.push(node);
                self.chunks.push(chunk);
            }
        }
        id
    }

    /// Take out a znode that has no children.
    pub(super) fn remove(&mut self, id: NodeId) -> Record {
        let Znode { parent, next, previous, hash, .. } = *self.get(id);
        if let Ok(entry) = self.index.find_entry(spread(hash), |found| *found == id) {
            entry.remove();
        }
        if next == id {
            self.families.remove(&parent);
        } else {
            self.get_mut(previous).next = next;
            self.get_mut(next).previous = previous;
            if let Some(family) = self.families.get_mut(&parent) {
                family.names = None;
                if family.first == id {
                    family.first = next;
                }
            }
        }
        let free = self.free;
        self.free = id;
        let node = self.get_mut(id);
        (node.name, node.parent, node.next) = (Name::EMPTY, NodeId::NONE, free);
        std::mem::replace(&mut node.record, Record::blank(Kind::Persistent))
    }

    /// The children of a znode, in the order in which they came.
    pub(super) fn children(&self, id: NodeId) -> impl Iterator<Item = NodeId> {
        let first = self.families.get(&id).map(|family| family.first);
        let after = move |child: &NodeId| {
            let next = self.get(*child).next;
            (Some(next) != first).then_some(next)
        };
        std::iter::successors(first, after)
    }

    /// The children's names of a znode, in the wire's form. Encoded once until the next change.
    pub(super) fn names(&mut self, id: NodeId) -> Names {
        let Some(family) = self.families.get(&id) else {
            return Names(Bytes::from_static(&[0; 4]));
        };
        if let Some(names) = &family.names {
            return names.clone();
        }
        let names = encode_names(self.children(id).map(|child| self.get(child).name.bytes()));
        if let Some(family) = self.families.get_mut(&id) {
            family.names = Some(names.clone());
        }
        names
    }

    /// The whole path of a znode.
    pub(super) fn path(&self, id: NodeId) -> Path {
        if id == NodeId::ROOT {
            return ROOT.into();
        }
        let upwards = std::iter::successors(Some(id), |id| Some(self.get(*id).parent));
        let mut names: Vec<&[u8]> = upwards
            .take_while(|id| *id != NodeId::ROOT)
            .map(|id| self.get(id).name.bytes())
            .collect();
        // What stands before the first name, so that the path begins with a slash.
        names.push(b"");
        names.reverse();
        String::from_utf8(names.join(&b'/')).expect("each name was part of a text").into()
    }

    /// All znodes, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = NodeId> {
        let all = (0..self.used).map(NodeId);
        all.filter(|id| *id == NodeId::ROOT || self.get(*id).parent != NodeId::NONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn blank() -> Record {
        Record::blank(Kind::Persistent)
    }

    fn children(nodes: &Nodes, path: &str) -> Vec<String> {
        let id = nodes.find(path).expect("it is there");
        nodes.children(id).map(|child| nodes.path(child).to_string()).collect()
    }

    #[test]
    fn children_are_told_in_the_order_in_which_they_came() {
        let mut nodes = Nodes::new();
        let ids = ["/c", "/a", "/d", "/b"].map(|path| nodes.insert(path, NodeId::ROOT, blank()));
        assert_eq!(children(&nodes, "/"), ["/c", "/a", "/d", "/b"]);
        nodes.remove(ids[0]);
        nodes.remove(ids[2]);
        assert_eq!(children(&nodes, "/"), ["/a", "/b"]);
        assert_eq!(nodes.insert("/e", NodeId::ROOT, blank()), ids[2], "its number is free");
        nodes.remove(ids[3]);
        assert_eq!(children(&nodes, "/"), ["/a", "/e"]);
    }

    #[test]
    fn only_a_whole_path_finds_a_znode() {
        let mut nodes = Nodes::new();
        let a = nodes.insert("/a", NodeId::ROOT, blank());
        let long = format!("/a/{}", "long".repeat(20));
        let below = nodes.insert(&long, a, blank());
        assert_eq!((nodes.find(&long), &*nodes.path(below)), (Some(below), long.as_str()));
        for path in ["", "a", "//a", "/a/", "//", "/b", &long[2..], &long[..20]] {
            assert_eq!(nodes.find(path), None, "{path:?}");
        }
    }

    #[test]
    fn a_chunk_fits_its_place() {
        let bytes = CHUNK as usize * size_of::<Znode>();
        assert!((126 << 10..=128 << 10).contains(&bytes), "{bytes}");
    }

    proptest! {
        #[test]
        fn what_is_there_is_what_a_set_of_paths_has(
            steps in proptest::collection::vec((0..3_u8, 0..3_u8, 0..3_u8), 0..200),
        ) {
            let (mut nodes, mut set) = (Nodes::new(), BTreeSet::from([ROOT.to_owned()]));
            for (first, second, third) in steps {
                let parts = [first, second, third].map(|part| if part == 0 { String::new() } else { format!("/{part}") });
                let path = parts.concat();
                if path.is_empty() {
                    continue;
                }
                let is_parent = set.iter().any(|other| other.starts_with(&format!("{path}/")));
                match nodes.find(&path) {
                    Some(id) if !is_parent => {
                        nodes.remove(id);
                        set.remove(&path);
                    }
                    Some(_) => {}
                    None => {
                        if let Some(parent) = nodes.find(path::parent_or_root(&path)) {
                            nodes.insert(&path, parent, blank());
                            set.insert(path);
                        }
                    }
                }
                let all: BTreeSet<String> =
                    nodes.iter().map(|id| nodes.path(id).to_string()).collect();
                prop_assert_eq!(&all, &set);
                prop_assert_eq!(nodes.len(), set.len());
                for path in &set {
                    let below = path.trim_end_matches('/');
                    let expected = set.iter().filter(|other| {
                        *other != ROOT && path::parent(other) == below
                    });
                    let children: BTreeSet<String> = children(&nodes, path).into_iter().collect();
                    prop_assert_eq!(children, expected.cloned().collect::<BTreeSet<_>>());
                }
            }
        }
    }
}
