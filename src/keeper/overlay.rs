//! The tree as it will be once the requests planned so far are applied.
//!
//! A batch is planned on one overlay; a request that cannot join is taken back by its mark.

use crate::keeper::ahead::Ahead;
use crate::keeper::keyspace::Slot;
use crate::keeper::path;
use crate::keeper::tree::quota::Usage;
use crate::keeper::tree::record::Record;
use crate::keeper::tree::{Path, Tree};
use bytes::Bytes;
use rustc_hash::FxHashMap;

/// The number of a request within its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestIndex(pub u32);

/// Znodes as they will be; `None` will be gone.
pub type Planned = FxHashMap<Path, Option<Record>>;

/// See the file's text.
#[derive(Debug)]
pub struct Overlay<'t> {
    tree: &'t Tree,
    /// What is under way already.
    ahead: Option<&'t Ahead>,
    /// The batch proves all of what is below: nobody has written since.
    proved: bool,
    nodes: Planned,
    written: FxHashMap<Slot, RequestIndex>,
    undo: Vec<Undo>,
}

/// A point to go back to.
#[derive(Clone, Copy, Debug)]
pub struct Mark(usize);

#[derive(Debug)]
enum Undo {
    Node(Path, Option<Option<Record>>),
    Written(Slot, Option<RequestIndex>),
}

impl<'t> Overlay<'t> {
    /// Nothing is planned yet.
    pub fn new(tree: &'t Tree) -> Self {
        Self::on(tree, None)
    }

    /// Nothing is planned yet beyond what is under way.
    pub fn on(tree: &'t Tree, ahead: Option<&'t Ahead>) -> Self {
        Self {
            tree,
            ahead,
            proved: false,
            nodes: FxHashMap::default(),
            written: FxHashMap::default(),
            undo: Vec::new(),
        }
    }

    /// The batch proves that nobody has written since what is below was so. Leases that end
    /// write nothing: what is on one has guards of its own.
    pub fn prove(&mut self, proved: bool) {
        self.proved = proved;
    }

    /// See [`Self::prove`].
    pub fn is_proved(&self) -> bool {
        self.proved
    }

    /// What is planned of znodes.
    pub fn into_planned(self) -> Planned {
        self.nodes
    }

    /// The tree below.
    pub fn tree(&self) -> &'t Tree {
        self.tree
    }

    /// The znode at a path; the empty path is the root.
    pub fn find(&self, path: &str) -> Option<&Record> {
        if !self.nodes.is_empty() {
            let key = if path.is_empty() { "/" } else { path };
            if let Some(record) = self.nodes.get(key) {
                return record.as_ref();
            }
        }
        self.below(path)
    }

    /// The znode as this batch finds it.
    pub fn below(&self, path: &str) -> Option<&Record> {
        if let Some(ahead) = self.ahead {
            let key = if path.is_empty() { "/" } else { path };
            if let Some(record) = ahead.find(key) {
                return record;
            }
        }
        self.tree.find(path).map(|node| &node.record)
    }

    /// What a key will hold that a batch under way writes: see [`Ahead::value`].
    pub fn value_ahead(&self, slot: &Slot) -> Option<Option<&'t Bytes>> {
        self.ahead.and_then(|ahead| ahead.value(slot))
    }

    /// A shared copy of a path, one that is planned already where there is one.
    pub fn share(&self, path: &str) -> Path {
        let key = if path.is_empty() { "/" } else { path };
        if let Some((path, _)) = self.nodes.get_key_value(key) {
            return path.clone();
        }
        self.ahead.and_then(|ahead| ahead.share(key)).cloned().unwrap_or_else(|| key.into())
    }

    /// A child that stands in the tree already and is still there; `None` if all of the znode's
    /// children are planned ones.
    pub fn settled_child(&self, path: &str) -> Option<(Path, &'t Record)> {
        let gone = |child: &Path| {
            let ahead = self.ahead.and_then(|ahead| ahead.find(child));
            matches!(self.nodes.get(child), Some(None)) || matches!(ahead, Some(None))
        };
        let child = self.tree.children(path).find(|child| !gone(child))?;
        let record = &self.tree.find(&child)?.record;
        Some((child, record))
    }

    /// A znode is created. The parent's number of children moves with it.
    pub fn insert(&mut self, path: &Path, record: Record) {
        self.put(path.clone(), Some(record));
        self.update(path::parent_or_root(path), |parent| parent.more().children += 1);
    }

    /// A znode is deleted.
    pub fn remove(&mut self, path: &Path) {
        self.put(path.clone(), None);
        self.update(path::parent_or_root(path), |parent| parent.more().children -= 1);
    }

    /// A znode's record changes. Nothing happens if it is missing.
    pub fn update(&mut self, path: &str, change: impl FnOnce(&mut Record)) {
        let Some(record) = self.find(path) else { return };
        let mut record = record.clone();
        change(&mut record);
        let path = self.share(path);
        self.put(path, Some(record));
    }

    /// The znode at a path as it was planned at a mark.
    pub fn find_as_of(&self, mark: Mark, path: &str) -> Option<&Record> {
        let changed = self.undo[mark.0..].iter().find_map(|undo| match undo {
            Undo::Node(changed, before) if **changed == *path => Some(before),
            _ => None,
        });
        match changed {
            Some(Some(planned)) => planned.as_ref(),
            Some(None) => self.tree.find(path).map(|node| &node.record),
            None => self.find(path),
        }
    }

    /// What was planned for a subtree at a mark beyond what the tree holds: znodes and bytes.
    pub fn planned_usage(&self, mark: Mark, root: &str) -> Usage {
        let mut since: FxHashMap<&Path, &Option<Option<Record>>> = FxHashMap::default();
        for undo in &self.undo[mark.0..] {
            if let Undo::Node(path, before) = undo {
                since.entry(path).or_insert(before);
            }
        }
        let mut planned = Usage::default();
        for (path, now) in &self.nodes {
            let inside = path
                .strip_prefix(root)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
            let record = match since.get(path) {
                Some(Some(before)) => before,
                Some(None) => continue,
                None => now,
            };
            if inside {
                let settled = self.tree.find(path).map(|node| node.record.usage());
                let (before, after) =
                    (settled.unwrap_or_default(), record.as_ref().map(Record::usage));
                let after = after.unwrap_or_default();
                planned.count += after.count - before.count;
                planned.bytes += after.bytes - before.bytes;
            }
        }
        planned
    }

    fn put(&mut self, path: Path, record: Option<Record>) {
        let before = self.nodes.insert(path.clone(), record);
        self.undo.push(Undo::Node(path, before));
    }

    /// Which request of the batch wrote a slot last.
    pub fn writer(&self, slot: &Slot) -> Option<RequestIndex> {
        self.written.get(slot).copied()
    }

    /// A request writes a slot.
    pub fn mark_written(&mut self, slot: &Slot, request: RequestIndex) {
        let before = self.written.insert(slot.clone(), request);
        if before != Some(request) {
            self.undo.push(Undo::Written(slot.clone(), before));
        }
    }

    /// The present state, to go back to.
    pub fn mark(&self) -> Mark {
        Mark(self.undo.len())
    }

    /// Take back all that was planned since a mark.
    pub fn roll_back(&mut self, mark: Mark) {
        while self.undo.len() > mark.0 {
            match self.undo.pop().expect("the mark lies below the top") {
                Undo::Node(path, Some(before)) => {
                    self.nodes.insert(path, before);
                }
                Undo::Node(path, None) => {
                    self.nodes.remove(&path);
                }
                Undo::Written(slot, Some(before)) => {
                    self.written.insert(slot, before);
                }
                Undo::Written(slot, None) => {
                    self.written.remove(&slot);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::tree::record::Kind;

    #[test]
    fn what_is_rolled_back_leaves_no_trace() {
        let tree = Tree::new();
        let mut overlay = Overlay::new(&tree);
        let path: Path = "/a".into();
        overlay.insert(&path, Record::blank(Kind::Persistent));
        let mark = overlay.mark();
        let children = overlay.find("/").map(|root| root.children());
        overlay.remove(&path);
        overlay.mark_written(&Slot::Node(path.clone()), RequestIndex(1));
        assert!(overlay.find("/a").is_none());
        overlay.roll_back(mark);
        assert!(overlay.find("/a").is_some());
        assert_eq!(overlay.find("/").map(|root| root.children()), children);
        assert_eq!(overlay.writer(&Slot::Node(path)), None);
    }

    #[test]
    fn what_was_planned_at_a_mark_is_told_apart_from_what_came_after() {
        let mut tree = Tree::new();
        tree.insert("/p", Record::blank(Kind::Persistent));
        let mut overlay = Overlay::new(&tree);
        let count = |overlay: &Overlay<'_>, mark| overlay.planned_usage(mark, "/p").count;
        overlay.insert(&"/p/a".into(), Record::blank(Kind::Persistent));
        let mark = overlay.mark();
        overlay.insert(&"/p/b".into(), Record::blank(Kind::Persistent));
        overlay.remove(&"/p/a".into());
        overlay.update("/p", |record| record.version = 1);
        assert_eq!((count(&overlay, mark), count(&overlay, overlay.mark())), (1, 1));
        overlay.remove(&"/p/b".into());
        assert_eq!((count(&overlay, mark), count(&overlay, overlay.mark())), (1, 0));
        assert!(overlay.find_as_of(mark, "/p/a").is_some());
        assert!(overlay.find_as_of(mark, "/p/b").is_none());
        assert_eq!(overlay.find_as_of(mark, "/p").map(|record| record.version), Some(0));
        assert_eq!(overlay.find_as_of(mark, "/").map(|record| record.children()), Some(2));
    }

    #[test]
    fn a_settled_child_is_one_that_is_not_planned_away() {
        let mut tree = Tree::new();
        tree.insert("/p", Record::blank(Kind::Persistent));
        tree.insert("/p/a", Record::blank(Kind::Persistent));
        let mut overlay = Overlay::new(&tree);
        assert_eq!(overlay.settled_child("/p").map(|(path, _)| path), Some("/p/a".into()));
        overlay.remove(&"/p/a".into());
        overlay.insert(&"/p/b".into(), Record::blank(Kind::Persistent));
        assert!(overlay.settled_child("/p").is_none());
    }
}
