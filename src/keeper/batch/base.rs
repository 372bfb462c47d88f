//! What a whole batch rests on, and how it is told apart from all others.

use crate::keeper::keyspace::{ShimId, Slot, own};
use crate::keeper::txn::{Compare, LeaseId, Op};
use crate::keeper::zxid::Revision;

/// What a whole batch rests on, beside what its requests do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// Nothing.
    Nothing,
    /// This is the last batch of this shim.
    Own(ShimId, u64),
    /// This is the last batch of all shims, or there was none. It is known by its number and not
    /// by its revision: an etcd that was restored from a backup gives revisions a second time.
    Last(Option<(ShimId, u64)>),
}

impl Base {
    /// Behind this batch of this shim, if there is one.
    pub fn behind(link: Option<(ShimId, u64)>) -> Self {
        link.map_or(Self::Nothing, |(shim, number)| Self::Own(shim, number))
    }

    /// It proves all that only batches change: see [`crate::keeper::overlay::Overlay::prove`].
    pub fn is_whole(self) -> bool {
        matches!(self, Self::Last(_))
    }

    /// Whether the store's history does not show it any more, or not yet.
    pub fn is_overtaken(self, last: Option<(ShimId, u64)>) -> bool {
        match self {
            Self::Nothing | Self::Own(..) => false,
            Self::Last(batch) => last != batch,
        }
    }

    pub(super) fn compare(self) -> Option<Compare> {
        Some(match self {
            Self::Nothing => return None,
            Self::Own(shim, number) => {
                Compare::Value(Slot::Batch(shim).key(), own::encode_number(number))
            }
            Self::Last(Some((shim, number))) => {
                Compare::Value(Slot::Last.key(), own::encode_last(shim, number))
            }
            Self::Last(None) => Compare::ModRevision(Slot::Last.key(), Revision::NEVER),
        })
    }
}

/// What is put beside the writes: see [`BatchNumber::puts`].
pub(super) const BOOKKEEPING_PUTS: usize = 2;

/// How a batch is found in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchNumber {
    /// Whose batch.
    pub shim: ShimId,
    /// The shim's lease, which the number's key is on.
    pub lease: LeaseId,
    /// Which batch.
    pub number: u64,
}

impl BatchNumber {
    /// Whose batch was the last one, for all; and this shim's own mark, which ends the batch.
    pub(super) fn puts(self) -> [Op; BOOKKEEPING_PUTS] {
        let last = Op::Put {
            key: Slot::Last.key(),
            value: own::encode_last(self.shim, self.number),
            lease: LeaseId::NONE,
        };
        let number = Op::Put {
            key: Slot::Batch(self.shim).key(),
            value: own::encode_number(self.number),
            lease: self.lease,
        };
        [last, number]
    }
}
