//! The one source of chance of a run: the same seed gives the same run. Each who draws has a
//! stream of its own, and delays are drawn by the time, so that leaving one decision out does not
//! change all others.

use std::collections::BTreeMap;
use std::time::Duration;

/// SplitMix64: small, and good enough to draw faults with.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

/// Who draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    Plan,
    /// When faults happen.
    Faults,
    /// One fault.
    Fault(u64),
    /// A client's pace and where it goes.
    Client(usize),
    /// One turn of a client's work.
    Work(usize, u64),
    /// What happens just after a client has got a session.
    Opened(usize, u64),
    /// Whether it comes back with a session that it has closed.
    Closed(usize, u64),
    /// What goes between a client and the shims, at a time.
    Network(usize, u64),
    /// A shim's start and its inside.
    Shim(usize),
    /// A shim's way to etcd, at a time.
    Calls(usize, u64),
    /// What becomes of its calls, at a time.
    Call(usize, u64),
    /// A shim's watch stream, at a time.
    Stream(usize, u64),
    /// How far a member of etcd is behind, at a time.
    Member(usize, u64),
    /// Rules broken on purpose.
    Break,
}

/// All streams of a seed.
#[derive(Debug)]
pub(crate) struct Chance {
    seed: u64,
    streams: BTreeMap<Source, Random>,
}

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, streams: BTreeMap::new() }
    }

    /// The stream of somebody who draws again and again.
    pub(crate) fn of(&mut self, source: Source) -> &mut Random {
        let seed = self.seed;
        self.streams.entry(source).or_insert_with(|| Random::of(seed, source))
    }

    /// The stream of a single decision, or of a moment.
    pub(crate) fn once(&self, source: Source) -> Random {
        Random::of(self.seed, source)
    }
}

impl Random {
    fn of(seed: u64, source: Source) -> Self {
        let (kind, first, second) = match source {
            Source::Plan => (0, 0, 0),
            Source::Faults => (1, 0, 0),
            Source::Fault(number) => (2, 0, number),
            Source::Client(client) => (3, client, 0),
            Source::Work(client, number) => (4, client, number),
            Source::Network(client, at) => (5, client, at),
            Source::Shim(shim) => (6, shim, 0),
            Source::Calls(shim, at) => (7, shim, at),
            Source::Call(shim, number) => (8, shim, number),
            Source::Stream(shim, at) => (9, shim, at),
            Source::Break => (10, 0, 0),
            Source::Opened(client, number) => (11, client, number),
            Source::Member(member, at) => (12, member, at),
            Source::Closed(client, number) => (13, client, number),
        };
        let mut mixed = Self(seed ^ 0x5851_f42d_4c95_7f2d);
        for part in [kind, first as u64, second] {
            mixed.0 = mixed.next() ^ part;
        }
        mixed
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 up to, not including, `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    /// True so many times out of a thousand.
    pub(crate) fn chance(&mut self, per_mille: usize) -> bool {
        self.below(1000) < per_mille
    }

    pub(crate) fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_micros(from * 1000 + self.next() % ((to - from).max(1) * 1000))
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// A seed of its own for a part of the world.
    pub(crate) fn seed(&mut self) -> [u8; 32] {
        let mut seed = [0; 32];
        for chunk in seed.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes());
        }
        seed
    }
}
