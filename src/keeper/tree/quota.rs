//! Quotas: what a subtree holds, and what it may hold. Source: `DataTree.updateQuotaStat`,
//! `StatsTrack`, `ZooKeeperServer.checkQuota`.
//!
//! The figures follow from the tree alone, so that every replica has the same: with one quota
//! inside another both count, where the real server counts the inner one only.

use std::collections::BTreeMap;

use crate::keeper::path;
use crate::keeper::tree::{Path, QUOTA, Tree};

const LIMITS: &str = "/zookeeper_limits";
const STATS: &str = "/zookeeper_stats";

/// What a subtree holds, its root included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Znodes.
    pub count: i64,
    /// Bytes of data.
    pub bytes: i64,
}

impl Usage {
    pub(super) fn add(&mut self, other: Self) {
        self.count += other.count;
        self.bytes += other.bytes;
    }

    /// As the statistics node shows it.
    pub fn text(self) -> String {
        format!("count={},bytes={}", self.count, self.bytes)
    }
}

/// What must not be exceeded; -1 is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HardLimits {
    /// Znodes.
    pub count: i64,
    /// Bytes of data.
    pub bytes: i64,
}

/// The text of a limits node has no such form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable;

impl HardLimits {
    /// Read a limits node's text: `key=value` pairs, parted by `,` or `;`; what is missing is -1.
    pub fn parse(text: &[u8]) -> Result<Self, Unreadable> {
        let text = std::str::from_utf8(text).map_err(|_| Unreadable)?;
        let mut limits = Self { count: -1, bytes: -1 };
        for pair in text.split([',', ';']).map(|pair| pair.trim_end_matches('=')) {
            if pair.is_empty() {
                continue;
            }
            let (key, value) = pair.split_once('=').ok_or(Unreadable)?;
            let value: i64 = value.trim().parse().map_err(|_| Unreadable)?;
            match key.trim() {
                "countHardLimit" => limits.count = value,
                "byteHardLimit" => limits.bytes = value,
                _ => {}
            }
        }
        Ok(limits)
    }
}

/// The subtrees with a limits node, and what they hold.
#[derive(Debug, Default)]
pub struct Quotas {
    active: BTreeMap<Path, Usage>,
}

impl Quotas {
    /// The root of the deepest subtree with a quota that a path lies in, and what it holds.
    pub fn deepest(&self, path: &str) -> Option<(&Path, Usage)> {
        if self.active.is_empty() {
            return None;
        }
        std::iter::once(path)
            .chain(path::ancestors(path))
            .find_map(|root| self.active.get_key_value(root))
            .map(|(root, usage)| (root, *usage))
    }
}

/// The subtree that a limits node is about. A quota on the root is ignored, and one that names no
/// subtree, which stops the real server, too.
fn subtree_of<'p>(node: &'p str, name: &str) -> Option<&'p str> {
    let root = node.strip_prefix(QUOTA)?.strip_suffix(name)?;
    (root.len() > 1).then_some(root)
}

/// The subtree whose statistics a znode shows, if it is such a znode.
pub fn subtree_of_stats(node: &str) -> Option<&str> {
    subtree_of(node, STATS)
}

/// Where the limits of a subtree stand.
pub fn limits_of(root: &str) -> String {
    format!("{QUOTA}{root}{LIMITS}")
}

/// Where the statistics of a subtree stand.
pub fn stats_of(root: &str) -> String {
    format!("{QUOTA}{root}{STATS}")
}

impl Tree {
    /// A znode came (or went, if the change is negative), or its data changed.
    pub(super) fn track(&mut self, path: &str, change: Usage) {
        if self.quotas.active.is_empty() {
            return;
        }
        for root in std::iter::once(path).chain(path::ancestors(path)) {
            if let Some(usage) = self.quotas.active.get_mut(root) {
                usage.add(change);
                let usage = *usage;
                self.show(root, usage);
            }
        }
    }

    /// A znode of the quota tree came.
    pub(super) fn quota_node_inserted(&mut self, path: &str) {
        if let Some(root) = subtree_of(path, LIMITS) {
            let usage = self.usage(root);
            self.quotas.active.insert(root.into(), usage);
            self.show(root, usage);
        }
        let known = |root: &str| self.quotas.active.get_key_value(root);
        let tracked = subtree_of_stats(path).and_then(known);
        if let Some((root, usage)) = tracked.map(|(root, usage)| (root.clone(), *usage)) {
            self.show(&root, usage);
        }
    }

    /// A znode of the quota tree went.
    pub(super) fn quota_node_removed(&mut self, path: &str) {
        if let Some(root) = subtree_of(path, LIMITS) {
            self.quotas.active.remove(root);
        }
    }

    /// Write a subtree's statistics into their znode: its data and nothing else.
    fn show(&mut self, root: &str, usage: Usage) {
        let node = stats_of(root);
        if let Some(id) = self.nodes.find(&node) {
            let record = &mut self.nodes.get_mut(id).record;
            let before = record.usage().bytes;
            record.data = Some(usage.text().into_bytes().into());
            let bytes = record.usage().bytes - before;
            self.data_size = self.data_size.saturating_add_signed(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::request::Data;
    use crate::keeper::tree::record::{Kind, Record};

    const LIMITS_OF_Q: &str = "/zookeeper/quota/q/zookeeper_limits";

    fn with_data(data: &'static str) -> Record {
        Record::blank(Kind::Persistent).with_data(data)
    }

    fn stats(tree: &Tree) -> Option<Data> {
        tree.find("/zookeeper/quota/q/zookeeper_stats").and_then(|node| node.record.data.clone())
    }

    #[test]
    fn statistics_follow_the_subtree_while_it_has_limits() {
        let mut tree = Tree::new();
        tree.insert("/q", with_data(""));
        tree.insert("/zookeeper/quota/q", with_data(""));
        tree.insert("/zookeeper/quota/q/zookeeper_stats", with_data("whatever"));
        tree.insert("/zookeeper/quota/q/zookeeper_limits", with_data("count=2,bytes=-1"));
        tree.insert("/q/a", with_data("12345"));
        tree.insert("/qa", with_data("12345"));
        assert_eq!(stats(&tree), Some("count=2,bytes=5".into()));
        tree.update("/q/a", |record| record.data = None);
        assert_eq!(stats(&tree), Some("count=2,bytes=0".into()));
        tree.remove("/q/a");
        assert_eq!(stats(&tree), Some("count=1,bytes=0".into()));
        tree.remove("/zookeeper/quota/q/zookeeper_limits");
        tree.insert("/q/b", with_data("1"));
        assert_eq!(stats(&tree), Some("count=1,bytes=0".into()), "nobody tracks any more");
    }

    #[test]
    fn statistics_that_come_after_their_limits_show_what_there_is() {
        let mut tree = Tree::new();
        tree.insert("/q", with_data("123"));
        tree.insert("/zookeeper/quota/q", with_data(""));
        tree.insert(LIMITS_OF_Q, with_data("count=2,bytes=-1"));
        tree.insert("/zookeeper/quota/q/zookeeper_stats", with_data("count=7,bytes=7"));
        assert_eq!(stats(&tree), Some("count=1,bytes=3".into()), "as after a load");
    }

    #[test]
    fn the_size_of_all_data_follows_the_statistics() {
        let mut tree = Tree::new();
        let before = tree.data_size();
        let nodes = ["/zookeeper/quota/q", "/zookeeper/quota/q/zookeeper_stats", LIMITS_OF_Q, "/q"];
        for path in nodes {
            tree.insert(path, with_data(""));
        }
        for path in nodes.iter().rev() {
            tree.remove(path);
        }
        assert_eq!(tree.data_size(), before);
    }

    #[test]
    fn limits_are_read_as_the_tools_write_them() {
        let parse = |text: &str| HardLimits::parse(text.as_bytes());
        let both = "count=2,bytes=-1=;byteHardLimit=10;countHardLimit=3";
        assert_eq!(parse(both), Ok(HardLimits { count: 3, bytes: 10 }));
        assert_eq!(parse("count=5,bytes=6"), Ok(HardLimits { count: -1, bytes: -1 }));
        assert_eq!(parse("count=x"), Err(Unreadable));
        assert_eq!(parse("nonsense"), Err(Unreadable));
    }

    #[test]
    fn limits_without_a_subtree_are_ignored() {
        let mut tree = Tree::new();
        tree.insert("/zookeeper/quota/zookeeper_limits", with_data("count=1,bytes=1"));
        tree.insert("/a", with_data(""));
        assert!(tree.quotas().deepest("/a").is_none());
    }
}
