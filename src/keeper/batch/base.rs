//! What a whole batch rests on, and how it is told apart from all others.

use crate::keeper::keyspace::{ShimId, Slot, own};
use crate::keeper::replica::Last;
use crate::keeper::txn::{Compare, LeaseId, Op};
use crate::keeper::zxid::Revision;

/// What a whole batch rests on, beside what its requests do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// Nothing.
    Nothing,
    /// This is the last batch of this shim.
    Own(ShimId, u64),
    /// This is the last batch of all shims.
    Last(ShimId, u64),
    /// No shim has written since this revision.
    Unwritten(Revision),
}

impl Base {
    /// It proves all that only batches change: see [`crate::keeper::overlay::Overlay::prove`].
    pub fn is_whole(self) -> bool {
        matches!(self, Self::Last(..) | Self::Unwritten(_))
    }

    /// Whether the store's history does not show it any more, or not yet.
    pub fn is_overtaken(self, last: Last) -> bool {
        match self {
            Self::Nothing | Self::Own(..) => false,
            Self::Last(shim, number) => last.batch != Some((shim, number)),
            Self::Unwritten(revision) => last.revision != revision,
        }
    }

    pub(super) fn compare(self) -> Option<Compare> {
        Some(match self {
            Self::Nothing => return None,
            Self::Own(shim, number) => {
                Compare::Value(Slot::Batch(shim).key(), own::encode_number(number))
            }
            Self::Last(shim, number) => {
                Compare::Value(Slot::Last.key(), own::encode_last(shim, number))
            }
            Self::Unwritten(revision) => Compare::ModRevision(Slot::Last.key(), revision),
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
