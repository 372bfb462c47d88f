//! Where the tree lives among etcd's keys.

use crate::keeper::txn::Key;
use bytes::Bytes;

/// The prefix of all our keys in etcd. The key that is just the prefix is the store's own: the
/// core neither sees nor writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Prefix(Bytes);

impl Prefix {
    pub(super) fn new(prefix: &str) -> Self {
        Self(Bytes::copy_from_slice(prefix.as_bytes()))
    }

    /// The store's own key, and the first of the range that holds all of ours.
    pub(super) fn own_key(&self) -> Vec<u8> {
        self.0.to_vec()
    }

    /// The end of the range that holds all of ours, as etcd wants it.
    pub(super) fn range_end(&self) -> Vec<u8> {
        let mut end = self.0.to_vec();
        while let Some(last) = end.pop() {
            if let Some(next) = last.checked_add(1) {
                end.push(next);
                return end;
            }
        }
        // Nothing is behind a prefix of 0xff: etcd's name for "to the end".
        vec![0]
    }

    /// etcd's key for a key of the core's.
    pub(super) fn add(&self, key: &Key) -> Vec<u8> {
        [&self.0[..], key].concat()
    }

    /// The core's key for a key of etcd's; `None` if it is the store's own, or not ours.
    pub(super) fn strip(&self, key: Vec<u8>) -> Option<Key> {
        let key = Bytes::from(key);
        (key.len() > self.0.len() && key.starts_with(&self.0)).then(|| key.slice(self.0.len()..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_back_without_the_prefix() {
        let prefix = Prefix::new("/zkshim/");
        let key = Key::from_static(b"n/a");
        assert_eq!(prefix.add(&key), b"/zkshim/n/a");
        assert_eq!(prefix.strip(prefix.add(&key)), Some(key));
        assert_eq!(prefix.strip(prefix.own_key()), None);
        assert_eq!(prefix.strip(b"/other/key".to_vec()), None);
    }

    #[test]
    fn the_range_ends_behind_the_last_key() {
        assert_eq!(Prefix::new("/zkshim/").range_end(), b"/zkshim0");
        assert_eq!(Prefix(Bytes::from_static(b"a\xff\xff")).range_end(), b"b");
        assert_eq!(Prefix(Bytes::from_static(b"\xff")).range_end(), b"\0");
    }
}
