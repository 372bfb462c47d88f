//! How much a txn may hold, as far as is known: less after a refusal, and by and by as much as
//! before.

use crate::keeper::batch::base::BOOKKEEPING_PUTS;

/// How much one txn may hold. Source: etcd's `checkTxnRequest` counts, on each level, the
/// longest of compares and both branches, and what is nested has what is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// etcd's `--max-txn-ops`.
    pub operations_max: usize,
    /// Keys and values together; below etcd's `--max-request-bytes`. A request that is larger
    /// goes alone.
    pub bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { operations_max: 128, bytes_max: 1_000_000 }
    }
}

impl Limits {
    /// Nothing is gained by batches that are smaller.
    const LEAST: Self = Self { operations_max: 16, bytes_max: 64 * 1024 };

    /// Writes that fit behind `compares` of the first level (or claims in its other branch), the
    /// puts of the batch's number not counted: side by side, or in unguarded nested txns.
    pub(super) fn writes_max(self, compares: usize) -> usize {
        let flat = self.operations_max.saturating_sub(BOOKKEEPING_PUTS);
        let width = self.width(compares);
        let nested =
            width.saturating_sub(BOOKKEEPING_PUTS) * self.operations_max.saturating_sub(width);
        flat.max(nested)
    }

    /// How wide the first level is where the writes are nested.
    pub(super) fn width(self, compares: usize) -> usize {
        compares.max(self.operations_max / 2)
    }

    fn halved(self) -> Self {
        Self {
            operations_max: (self.operations_max / 2).max(Self::LEAST.operations_max),
            bytes_max: (self.bytes_max / 2).max(Self::LEAST.bytes_max),
        }
    }

    fn doubled(self) -> Self {
        Self {
            operations_max: self.operations_max.saturating_mul(2),
            bytes_max: self.bytes_max.saturating_mul(2),
        }
    }

    fn at_most(self, most: Self) -> Self {
        Self {
            operations_max: self.operations_max.min(most.operations_max),
            bytes_max: self.bytes_max.min(most.bytes_max),
        }
    }
}

/// So many batches go through before more is tried again after a refusal; twice as many after
/// each further one.
const TAKEN_BEFORE_MORE: u32 = 16;

/// As [`TAKEN_BEFORE_MORE`], however often it was refused.
const TAKEN_BEFORE_MORE_MAX: u32 = 16 * 1024;

/// What is known of how much a txn may hold.
///
/// ```text
/// most ──refused──▶ half ──refused──▶ a quarter …
///   ▲                │ ▲                │
///   └──enough taken──┘ └──enough taken──┘
/// ```
#[derive(Debug)]
pub struct Room {
    /// What is gathered at present.
    gathers: Limits,
    /// What is believed to fit.
    most: Limits,
    /// Batches that went through since the last change.
    taken: u32,
    patience: u32,
}

impl Default for Room {
    fn default() -> Self {
        let most = Limits::default();
        Self { gathers: most, most, taken: 0, patience: TAKEN_BEFORE_MORE }
    }
}

impl Room {
    /// What may be gathered into one txn.
    pub fn gathers(&self) -> Limits {
        self.gathers
    }

    /// What a single request may take, which cannot be sent in parts.
    pub fn most(&self) -> Limits {
        self.most
    }

    /// A txn of several requests was too large. Says whether less than ever is gathered now.
    pub fn refused(&mut self) -> bool {
        let before = self.gathers;
        self.gathers = self.gathers.halved().at_most(self.most);
        let fell = before != self.gathers && self.patience == TAKEN_BEFORE_MORE;
        self.taken = 0;
        self.patience = (self.patience * 2).min(TAKEN_BEFORE_MORE_MAX);
        fell
    }

    /// A txn went through.
    pub fn taken(&mut self) {
        if self.gathers == self.most {
            return;
        }
        self.taken += 1;
        if self.taken >= self.patience {
            self.taken = 0;
            self.gathers = self.gathers.doubled().at_most(self.most);
        }
    }

    /// The store takes so many bytes, or more than is ever gathered.
    pub fn bytes_known(&mut self, bytes_max: Option<usize>) {
        // What is counted here is less than what goes over the wire.
        let bytes = bytes_max.map_or(usize::MAX, |bytes| bytes / 3 * 2);
        self.most.bytes_max = bytes.min(Limits::default().bytes_max);
        self.gathers.bytes_max = self.most.bytes_max;
    }

    /// So many operations fit, as was tried.
    pub fn operations_proved(&mut self, operations: usize) {
        self.most.operations_max = self.most.operations_max.max(operations);
        self.gathers.operations_max = self.most.operations_max;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(count: u32, mut step: impl FnMut()) {
        (0..count).for_each(|_| step());
    }

    #[test]
    fn a_refusal_halves_what_is_gathered_and_successes_bring_it_back() {
        let mut room = Room::default();
        let default = Limits::default();
        assert!(room.refused());
        assert_eq!(room.gathers(), default.halved());
        assert_eq!(room.most(), default, "a single request may still be as large");
        room.refused();
        times(TAKEN_BEFORE_MORE * 4 - 1, || room.taken());
        assert_eq!(room.gathers(), default.halved().halved());
        room.taken();
        assert_eq!(room.gathers(), default.halved());
        times(TAKEN_BEFORE_MORE * 4, || room.taken());
        assert_eq!(room.gathers(), default);
        times(1000, || room.taken());
        assert_eq!(room.gathers(), default);
    }

    #[test]
    fn what_is_refused_again_and_again_is_tried_ever_less_often() {
        let mut room = Room::default();
        let mut batches = 0;
        for _ in 0..10 {
            assert_eq!(room.gathers(), room.most());
            room.refused();
            while room.gathers() != room.most() {
                room.taken();
                batches += 1;
            }
        }
        assert_eq!(batches, TAKEN_BEFORE_MORE * 2 * ((1 << 10) - 1));
        assert!(!room.refused(), "nothing new is learnt from it");
    }

    #[test]
    fn it_never_gathers_less_than_is_worth_a_txn() {
        let mut room = Room::default();
        times(20, || {
            room.refused();
        });
        assert_eq!(room.gathers(), Limits::LEAST);
    }

    #[test]
    fn what_the_store_takes_is_kept_to() {
        let mut room = Room::default();
        room.bytes_known(Some(600_000));
        assert_eq!(room.gathers().bytes_max, 400_000);
        room.refused();
        (0..1000).for_each(|_| room.taken());
        assert_eq!(room.gathers().bytes_max, 400_000);
        room.bytes_known(Some(16 << 20));
        assert_eq!(room.gathers(), Limits::default(), "larger batches gain nothing");
        room.bytes_known(None);
        assert_eq!(room.gathers(), Limits::default());
    }

    #[test]
    fn what_was_proved_is_gathered_at_once() {
        let mut room = Room::default();
        room.refused();
        room.operations_proved(2048);
        assert_eq!(room.gathers().operations_max, 2048);
        assert_eq!(room.gathers().bytes_max, 500_000);
        room.operations_proved(512);
        assert_eq!(room.most().operations_max, 2048);
    }
}
