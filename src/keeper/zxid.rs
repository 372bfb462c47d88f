//! The two clocks of the system: etcd's revisions and the zxids that clients see.
//!
//! Only this file knows how one becomes the other.

use std::fmt;

/// A revision of etcd's key space: the position of a change in the one history that all shims
/// apply. 0 means "never": the revision of an absent key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub i64);

/// A transaction number as clients see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Zxid(pub i64);

/// What is added to a revision to make a zxid. 0 unless data was imported from a ZooKeeper whose
/// zxids were higher than etcd's revisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZxidOffset(pub i64);

impl Revision {
    /// The revision of a key that does not exist.
    pub const NEVER: Self = Self(0);
    /// The revision that a planned txn will get, not known before it is applied.
    pub const PENDING: Self = Self(i64::MAX);
}

impl Zxid {
    /// The zxid of [`Revision::PENDING`].
    pub const PENDING: Self = Self(i64::MAX);
    /// The zxid of replies that answer a setWatches or an unknown operation.
    pub const NONE: Self = Self(-1);
}

impl ZxidOffset {
    /// The zxid that clients see for a revision. [`Revision::NEVER`] is zxid 0 whatever the
    /// offset, as the zxids of ZooKeeper's pre-created nodes are.
    pub fn zxid(self, revision: Revision) -> Zxid {
        match revision {
            Revision::NEVER => Zxid(0),
            Revision::PENDING => Zxid::PENDING,
            Revision(number) => Zxid(self.0.saturating_add(number)),
        }
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for Zxid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_stays_zero_under_an_offset() {
        let offset = ZxidOffset(1000);
        assert_eq!(offset.zxid(Revision::NEVER), Zxid(0));
        assert_eq!(offset.zxid(Revision(7)), Zxid(1007));
    }
}
