//! Quotas: what subtrees hold, by the history, and who may not put more into them.

use crate::model::Model;
use bytes::Bytes;
use zkshim::keeper::path;
use zkshim::keeper::tree::quota::{HardLimits, limits_of, stats_of, subtree_of_stats};
use zkshim::keeper::zxid::Revision;

/// Znodes and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) count: i64,
    pub(crate) bytes: i64,
}

impl Model {
    /// What a subtree holds.
    fn usage(&self, root: &str, at: Revision) -> Usage {
        if !self.exists(root, at) {
            return Usage::default();
        }
        let mut usage = Usage { count: 1, bytes: self.length(root, at) };
        for child in self.children(root, at) {
            let below = self.usage(&child, at);
            usage.count += below.count;
            usage.bytes += below.bytes;
        }
        usage
    }

    /// The length of a znode's data as it is kept.
    pub(crate) fn length(&self, path: &str, at: Revision) -> i64 {
        let data = self.node(path, at).and_then(|node| node.value.data);
        data.map_or(0, |data| data.len() as i64)
    }

    /// The data of a statistics node whose subtree has limits.
    pub(crate) fn statistics(&self, path: &str, at: Revision) -> Option<Bytes> {
        let root = subtree_of_stats(path)?;
        if !self.exists(path, at) || !self.exists(&limits_of(root), at) {
            return None;
        }
        let Usage { count, bytes } = self.usage(root, at);
        Some(Bytes::from(format!("count={count},bytes={bytes}")))
    }

    /// Whether a change would exceed a hard limit.
    pub(crate) fn exceeds(&self, path: &str, at: Revision, change: Usage) -> bool {
        let more = |limit: i64, now: i64, more: i64| limit > -1 && more != 0 && now + more > limit;
        self.limited(path, at).is_some_and(|(limits, usage)| {
            more(limits.count, usage.count, change.count)
                || more(limits.bytes, usage.bytes, change.bytes)
        })
    }

    /// Whether a subtree holds more than it may.
    pub(crate) fn is_exceeded(&self, path: &str, at: Revision) -> bool {
        let more = |limit: i64, now: i64| limit > -1 && now > limit;
        self.limited(path, at).is_some_and(|(limits, usage)| {
            more(limits.count, usage.count) || more(limits.bytes, usage.bytes)
        })
    }

    /// The limits that a path is under, and what there is. No limits, if they are not enforced.
    fn limited(&self, path: &str, at: Revision) -> Option<(HardLimits, Usage)> {
        if !self.enforces_quotas {
            return None;
        }
        let mut around = std::iter::once(path).chain(path::ancestors(path));
        let root = around.find(|root| self.exists(&limits_of(root), at))?;
        if root == "/" || !self.exists(&stats_of(root), at) {
            return None;
        }
        let text = self.node(&limits_of(root), at)?.value.data.unwrap_or_default();
        let limits = HardLimits::parse(&text).expect("clients write what can be read");
        Some((limits, self.usage(root, at)))
    }
}
