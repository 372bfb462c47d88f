//! What the batches under way will have made of the tree, if all of them come to pass.
//!
//! The next batch is planned on it, and carries the proof that they did.

use crate::keeper::keyspace::Slot;
use crate::keeper::tree::Path;
use crate::keeper::tree::record::Record;
use bytes::Bytes;
use rustc_hash::FxHashMap;

/// See the file's text. Everything is kept with the number of the batch that made it so last.
#[derive(Debug, Default)]
pub struct Ahead {
    nodes: FxHashMap<Path, (u64, Option<Record>)>,
    values: FxHashMap<Slot, (u64, Option<Bytes>)>,
}

impl Ahead {
    /// What a znode will be: `Some(None)` if it will be gone, `None` if nothing changes it.
    pub fn find(&self, path: &str) -> Option<Option<&Record>> {
        self.nodes.get(path).map(|(_, record)| record.as_ref())
    }

    /// A shared copy of a path, if the znode changes.
    pub fn share(&self, path: &str) -> Option<&Path> {
        self.nodes.get_key_value(path).map(|(path, _)| path)
    }

    /// What a key will hold: `Some(None)` if it will be gone, `None` if nothing writes it.
    pub fn value(&self, slot: &Slot) -> Option<Option<&Bytes>> {
        self.values.get(slot).map(|(_, value)| value.as_ref())
    }

    /// A batch has left.
    pub fn add(
        &mut self,
        number: u64,
        nodes: impl IntoIterator<Item = (Path, Option<Record>)>,
        values: impl IntoIterator<Item = (Slot, Option<Bytes>)>,
    ) {
        self.nodes.extend(nodes.into_iter().map(|(path, node)| (path, (number, node))));
        self.values.extend(values.into_iter().map(|(slot, value)| (slot, (number, value))));
    }

    /// A batch is applied, or will never be known: the tree tells what it made.
    pub fn remove(&mut self, number: u64) {
        self.nodes.retain(|_, (by, _)| *by != number);
        self.values.retain(|_, (by, _)| *by != number);
    }

    /// Nothing under way counts any more.
    pub fn clear(&mut self) {
        self.nodes.clear();
        self.values.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::tree::record::Kind;

    #[test]
    fn what_a_later_batch_made_outlives_the_earlier_one() {
        let mut ahead = Ahead::default();
        let (a, b): (Path, Path) = ("/a".into(), "/b".into());
        let node = || Some(Record::blank(Kind::Persistent));
        let slot = |path: &Path| Slot::Node(path.clone());
        let value = |text: &'static str| Some(Bytes::from_static(text.as_bytes()));
        ahead.add(1, [(a.clone(), node()), (b.clone(), node())], [(slot(&a), value("1"))]);
        ahead.add(2, [(a.clone(), None)], [(slot(&a), None)]);
        assert_eq!(ahead.find("/a"), Some(None));
        ahead.remove(1);
        assert_eq!(ahead.find("/a"), Some(None));
        assert_eq!(ahead.value(&slot(&a)), Some(None));
        assert_eq!(ahead.find("/b"), None);
        ahead.remove(2);
        assert_eq!((ahead.find("/a"), ahead.value(&slot(&a))), (None, None));
    }
}
