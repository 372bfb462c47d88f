//! What waits to be written to all connections together: how much memory that is, and whose.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use rustc_hash::FxHashMap;

/// From this length on data and lists are passed on as they are, and are there once however many
/// wait for them; what is shorter is copied for each (`SendBuffer`).
const SHARED_BYTES_MIN: usize = 4096;

/// What waits in all outboxes. Clones are the same.
#[derive(Clone, Debug)]
pub struct Backlog(Arc<Total>);

#[derive(Debug)]
struct Total {
    /// Shared buffers count once.
    bytes: AtomicUsize,
    bytes_max: usize,
    /// How often each shared buffer is held, by its address: nothing else can be there while it
    /// is held. Held for a few instructions only, never across an await.
    holders: Mutex<FxHashMap<usize, usize>>,
}

/// What an outbox holds.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// What nobody else holds.
    own: usize,
    /// The shared buffers: their addresses and lengths. One that is held twice stands here twice.
    shared: Vec<(usize, usize)>,
}

impl Held {
    /// Adds what is there for this outbox alone.
    pub(super) fn add_own(&mut self, bytes: usize) {
        self.own += bytes;
    }

    /// Adds data, or a list.
    pub(super) fn add(&mut self, buffer: &[u8]) {
        if buffer.len() < SHARED_BYTES_MIN {
            self.own += buffer.len();
        } else {
            self.shared.push((buffer.as_ptr().addr(), buffer.len()));
        }
    }

    fn append(&mut self, mut other: Self) {
        self.own += other.own;
        self.shared.append(&mut other.shared);
    }
}

impl Backlog {
    /// Nothing waits; `bytes_max` may.
    pub fn new(bytes_max: usize) -> Self {
        Self(Arc::new(Total { bytes: AtomicUsize::new(0), bytes_max, holders: Mutex::default() }))
    }

    /// About how much memory it is.
    pub fn bytes(&self) -> usize {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// How much it may be.
    pub fn bytes_max(&self) -> usize {
        self.0.bytes_max
    }

    /// It is more than it may be.
    pub fn is_over(&self) -> bool {
        self.bytes() > self.0.bytes_max
    }

    /// It is so much that who has something waiting should not ask for more.
    pub fn is_high(&self) -> bool {
        self.bytes() > self.0.bytes_max / 2
    }

    /// `more` is held besides.
    pub(super) fn hold(&self, held: &mut Held, more: Held) {
        let mut bytes = more.own;
        if !more.shared.is_empty() {
            let mut holders = self.holders();
            for (address, length) in &more.shared {
                let holders = holders.entry(*address).or_insert(0);
                bytes += if *holders == 0 { *length } else { 0 };
                *holders += 1;
            }
        }
        self.0.bytes.fetch_add(bytes, Ordering::Relaxed);
        held.append(more);
    }

    /// This is held no more. To be called before the buffers themselves are dropped.
    pub(super) fn release(&self, held: Held) {
        let mut bytes = held.own;
        if !held.shared.is_empty() {
            let mut holders = self.holders();
            for (address, length) in held.shared {
                let Some(count) = holders.get_mut(&address) else { continue };
                *count -= 1;
                if *count == 0 {
                    holders.remove(&address);
                    bytes += length;
                }
            }
        }
        self.0.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// What of it this outbox answers for: its own, and its part of what is shared.
    pub(super) fn share_of(&self, held: &Held) -> usize {
        if held.shared.is_empty() {
            return held.own;
        }
        let holders = self.holders();
        let part = |(address, length): &(usize, usize)| {
            length / holders.get(address).copied().unwrap_or(1).max(1)
        };
        held.own + held.shared.iter().map(part).sum::<usize>()
    }

    fn holders(&self) -> MutexGuard<'_, FxHashMap<usize, usize>> {
        self.0.holders.lock().expect("nothing panics while it holds the map")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(own: usize, buffers: &[&[u8]]) -> Held {
        let mut held = Held::default();
        held.add_own(own);
        buffers.iter().for_each(|buffer| held.add(buffer));
        held
    }

    #[test]
    fn what_many_wait_for_counts_once_until_the_last_has_it() {
        let backlog = Backlog::new(20_000);
        let large = vec![0; 10_000];
        let (mut first, mut second) = (Held::default(), Held::default());
        backlog.hold(&mut first, held(5, &[&large, &[0; 100]]));
        backlog.hold(&mut second, held(7, &[&large, &large]));
        assert_eq!(backlog.bytes(), 10_112);
        assert_eq!(backlog.share_of(&first), 105 + 3333);
        assert_eq!(backlog.share_of(&second), 7 + 2 * 3333);
        assert!(backlog.is_high() && !backlog.is_over());
        backlog.release(first);
        assert_eq!(backlog.bytes(), 10_007);
        backlog.release(second);
        assert_eq!(backlog.bytes(), 0);
        assert!(backlog.holders().is_empty());
    }

    #[test]
    fn what_is_small_is_copied_and_counts_for_each() {
        let backlog = Backlog::new(1000);
        let mut first = Held::default();
        for _ in 0..3 {
            backlog.hold(&mut first, held(0, &[&[0; 400]]));
        }
        assert_eq!((backlog.bytes(), backlog.is_over()), (1200, true));
    }
}
