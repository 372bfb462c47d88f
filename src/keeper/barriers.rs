//! Those who wait until the tree has all that etcd had when they came.
//!
//! A barrier is a linearizable read that was sent after its waiters came; they may go on when the
//! tree has reached its revision.

use crate::keeper::txn::Token;
use crate::keeper::zxid::Revision;
use std::collections::BTreeMap;
use std::time::Duration;

/// See the file's text. `W` says who waits.
#[derive(Debug)]
pub struct Barriers<W> {
    /// The read under way, when it was sent, and who waits for it.
    under_way: Option<(Token, Duration, Vec<W>)>,
    /// Came after the read under way was sent.
    next: Vec<W>,
    /// Read, but not reached by the tree.
    read: BTreeMap<Revision, Vec<(Duration, Vec<W>)>>,
    /// A barrier is wanted although nobody waits.
    wanted: bool,
    not_before: Duration,
}

impl<W> Default for Barriers<W> {
    fn default() -> Self {
        Self {
            under_way: None,
            next: Vec::new(),
            read: BTreeMap::new(),
            wanted: false,
            not_before: Duration::ZERO,
        }
    }
}

impl<W> Barriers<W> {
    /// Somebody waits from now on.
    pub fn wait(&mut self, waiter: W) {
        self.next.push(waiter);
    }

    /// A barrier is wanted for its own sake: as a sign of life.
    pub fn want(&mut self) {
        self.wanted = true;
    }

    /// A read is wanted and may be sent.
    pub fn is_due(&self, now: Duration) -> bool {
        self.under_way.is_none() && (self.wanted || !self.next.is_empty()) && now >= self.not_before
    }

    /// The read is sent.
    pub fn sent(&mut self, token: Token, now: Duration) {
        self.wanted = false;
        self.under_way = Some((token, now, std::mem::take(&mut self.next)));
    }

    /// The read came back.
    pub fn answered(&mut self, token: Token, revision: Revision) {
        let Some((_, sent_at, waiters)) = self.under_way.take_if(|read| read.0 == token) else {
            return;
        };
        self.read.entry(revision).or_default().push((sent_at, waiters));
    }

    /// The read failed: its waiters wait for the next one, not before `retry_at`.
    pub fn failed(&mut self, token: Token, retry_at: Duration) {
        let Some((_, _, waiters)) = self.under_way.take_if(|read| read.0 == token) else { return };
        self.next.splice(0..0, waiters);
        self.wanted = true;
        self.not_before = retry_at;
    }

    /// Waiters of a revision that was learnt otherwise.
    pub fn wait_for(&mut self, revision: Revision, sent_at: Duration, waiter: W) {
        self.read.entry(revision).or_default().push((sent_at, vec![waiter]));
    }

    /// The tree has reached a revision: who may go on, and when the reads were sent.
    pub fn reached(&mut self, applied: Revision) -> Vec<(Duration, Vec<W>)> {
        let mut passed = Vec::new();
        while let Some(entry) = self.read.first_entry() {
            if *entry.key() > applied {
                break;
            }
            passed.extend(entry.remove());
        }
        passed
    }

    /// The tree must be told how far the stream is.
    pub fn needs_progress(&self) -> bool {
        !self.read.is_empty()
    }

    /// When a failed read may be sent again.
    pub fn retry_at(&self) -> Option<Duration> {
        let waiting = self.under_way.is_none() && (self.wanted || !self.next.is_empty());
        waiting.then_some(self.not_before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1);

    #[test]
    fn who_comes_after_the_read_was_sent_waits_for_the_next() {
        let mut barriers = Barriers::default();
        barriers.wait("first");
        barriers.sent(Token(1), NOW);
        barriers.wait("second");
        barriers.answered(Token(1), Revision(5));
        assert_eq!(barriers.reached(Revision(4)), []);
        assert_eq!(barriers.reached(Revision(5)), [(NOW, vec!["first"])]);
        assert!(barriers.is_due(NOW));
    }

    #[test]
    fn a_failed_read_is_sent_again_with_the_same_waiters() {
        let mut barriers = Barriers::default();
        barriers.wait("first");
        barriers.sent(Token(1), NOW);
        barriers.failed(Token(1), 2 * NOW);
        assert!(!barriers.is_due(NOW));
        assert!(barriers.is_due(2 * NOW));
        barriers.sent(Token(2), 2 * NOW);
        barriers.answered(Token(1), Revision(1));
        assert_eq!(barriers.reached(Revision(9)), [], "an answer of an old read says nothing");
        barriers.answered(Token(2), Revision(7));
        assert_eq!(barriers.reached(Revision(9)), [(2 * NOW, vec!["first"])]);
    }
}
