//! Requests that were handed in and not answered yet: how many there may be, and what is
//! remembered of them until then.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::server::figures::RequestKind;

/// Requests of one connection that may wait for their answers before the server stops reading
/// from it. ZooKeeper has no such limit; it bounds what a client that only writes can pile up.
pub(super) const REQUESTS_MAX: usize = 1000;

/// Bytes of their frames, likewise.
pub(super) const BYTES_MAX: usize = 4 << 20;

/// Requests of all connections that may wait before the server stops reading from those with
/// more than their share (ZooKeeper's `globalOutstandingLimit`, which is 1000 for a log that takes
/// one batch at a time; ours has several under way).
///
/// A share is what each gets if all that have something waiting get the same: some connections
/// that do not read what was answered to them keep nobody else from asking.
pub(super) const TOTAL_REQUESTS_MAX: usize = 20_000;

/// The smallest share, however many connections there are.
const SHARE_MIN: usize = 8;

/// The requests of all connections.
#[derive(Debug)]
pub(super) struct Total {
    requests: AtomicUsize,
    /// Connections that have something waiting.
    busy: AtomicUsize,
    requests_max: usize,
    /// There is room again.
    freed: Notify,
}

impl Total {
    pub(super) fn new(requests_max: usize, freed: Notify) -> Self {
        let (requests, busy) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { requests, busy, requests_max, freed }
    }

    pub(super) fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    /// There are so many that each connection should have few.
    pub(super) fn is_high(&self) -> bool {
        self.requests() >= self.requests_max
    }

    /// Whether a connection with so many waiting may have one more.
    fn has_room_beside(&self, waiting: usize) -> bool {
        let share = || self.requests_max / self.busy.load(Ordering::Relaxed).max(1);
        self.requests() < self.requests_max || waiting < share().max(SHARE_MIN)
    }

    fn add(&self, count: usize, begins: bool) {
        self.requests.fetch_add(count, Ordering::Relaxed);
        if begins {
            self.busy.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// `ends`: the connection has nothing waiting any more.
    fn remove(&self, count: usize, ends: bool) {
        if ends {
            self.busy.fetch_sub(1, Ordering::Relaxed);
        }
        let before = self.requests.fetch_sub(count, Ordering::Relaxed);
        if before >= self.requests_max && before - count < self.requests_max {
            self.freed.notify_waiters();
        }
    }
}

/// What is remembered of a request.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) kind: RequestKind,
    pub(super) received: Instant,
    pub(super) frame_bytes: usize,
    /// The frame, if it is large: its memory counts at least until its answer.
    pub(super) _held: Option<Bytes>,
}

/// The requests of one connection, in the order in which they came.
#[derive(Debug)]
pub(super) struct Outstanding<'a> {
    waiting: Mutex<Waiting>,
    /// Something was answered, or has left.
    changed: Notify,
    total: &'a Total,
}

#[derive(Debug, Default)]
struct Waiting {
    requests: VecDeque<Asked>,
    frame_bytes: usize,
}

impl<'a> Outstanding<'a> {
    pub(super) fn new(total: &'a Total) -> Self {
        Self { waiting: Mutex::default(), changed: Notify::new(), total }
    }

    /// These are handed in now. Returns how many wait.
    pub(super) fn add(&self, asked: impl ExactSizeIterator<Item = Asked>) -> usize {
        let mut waiting = self.waiting();
        self.total.add(asked.len(), waiting.requests.is_empty() && asked.len() > 0);
        for asked in asked {
            waiting.frame_bytes += asked.frame_bytes;
            waiting.requests.push_back(asked);
        }
        waiting.requests.len()
    }

    /// So many of the oldest were answered; each is shown to `each`. Returns how many wait.
    ///
    /// Answers to auth packets overtake others, so what is shown may belong to a neighbour;
    /// nothing but statistics depends on it.
    pub(super) fn answered(&self, count: usize, mut each: impl FnMut(Asked)) -> usize {
        let mut waiting = self.waiting();
        let count = count.min(waiting.requests.len());
        let mut frame_bytes = 0;
        for asked in waiting.requests.drain(..count) {
            frame_bytes += asked.frame_bytes;
            each(asked);
        }
        waiting.frame_bytes -= frame_bytes;
        let left = waiting.requests.len();
        if left == 0 {
            // Most clients are silent nearly always.
            waiting.requests = VecDeque::new();
        }
        drop(waiting);
        self.total.remove(count, count > 0 && left == 0);
        self.changed.notify_one();
        left
    }

    /// How many wait.
    pub(super) fn requests(&self) -> usize {
        self.waiting().requests.len()
    }

    /// Waits until more may be handed in. `also` is asked for besides, whenever something has
    /// changed. Safe to cancel.
    pub(super) async fn room(&self, also: impl Fn() -> bool) {
        loop {
            // Registered before the check, so that no change is missed in between.
            let freed = self.total.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if self.has_room(&also) {
                return;
            }
            tokio::select! {
                () = &mut freed => {}
                () = self.changed.notified() => {}
            }
        }
    }

    /// More may be handed in, `also` as far as that is concerned.
    pub(super) fn has_room(&self, also: impl Fn() -> bool) -> bool {
        self.is_below_limits() && also()
    }

    /// Waits until all are answered. Safe to cancel.
    pub(super) async fn none(&self) {
        while self.requests() > 0 {
            self.changed.notified().await;
        }
    }

    fn is_below_limits(&self) -> bool {
        let waiting = self.waiting();
        // Whoever waits for nothing may always ask something.
        waiting.requests.is_empty()
            || (waiting.requests.len() < REQUESTS_MAX
                && waiting.frame_bytes < BYTES_MAX
                && self.total.has_room_beside(waiting.requests.len()))
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().expect("nothing panics while it holds the list")
    }
}

impl Drop for Outstanding<'_> {
    /// What a closed connection waited for is not waited for any more.
    fn drop(&mut self) {
        let count = self.requests();
        self.total.remove(count, count > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Waker};

    fn asked(count: usize, frame_bytes: usize) -> impl ExactSizeIterator<Item = Asked> {
        let received = Instant::now();
        let asked = Asked { kind: RequestKind::Ping, received, frame_bytes, _held: None };
        std::iter::repeat_n(asked, count)
    }

    fn has_room(outstanding: &Outstanding<'_>) -> bool {
        let mut waiting = pin!(outstanding.room(|| true));
        let waited = waiting.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(waited.is_ready(), outstanding.has_room(|| true));
        waited.is_ready()
    }

    #[test]
    fn a_connection_with_too_many_requests_waits_for_an_answer() {
        let total = Total::new(1_000_000, Notify::new());
        let outstanding = Outstanding::new(&total);
        outstanding.add(asked(REQUESTS_MAX, 20));
        assert!(!has_room(&outstanding));
        assert_eq!(outstanding.answered(1, |_| ()), REQUESTS_MAX - 1);
        assert!(has_room(&outstanding));
    }

    #[test]
    fn a_connection_with_too_many_bytes_waits_for_an_answer() {
        let total = Total::new(1_000_000, Notify::new());
        let outstanding = Outstanding::new(&total);
        outstanding.add(asked(5, 1 << 20));
        assert!(!has_room(&outstanding));
        outstanding.answered(2, |_| ());
        assert!(has_room(&outstanding));
    }

    #[test]
    fn above_the_total_only_those_wait_who_have_more_than_their_share() {
        let total = Total::new(1000, Notify::new());
        let greedy: Vec<_> = (0..4).map(|_| Outstanding::new(&total)).collect();
        for greedy in &greedy {
            greedy.add(asked(250, 20));
        }
        assert!(!greedy.iter().any(has_room));
        let modest = Outstanding::new(&total);
        for _ in 0..199 {
            assert!(has_room(&modest));
            modest.add(asked(1, 20));
        }
        modest.add(asked(1, 20));
        assert!(!has_room(&modest), "a fifth of all is its share");
        modest.answered(1, |_| ());
        assert!(has_room(&modest));
        greedy[0].answered(51, |_| ());
        assert!(has_room(&greedy[0]) && !has_room(&greedy[1]));
    }

    #[test]
    fn the_share_is_never_too_small_to_work_with() {
        let total = Total::new(100, Notify::new());
        let many: Vec<_> = (0..100).map(|_| Outstanding::new(&total)).collect();
        for one in &many {
            one.add(asked(SHARE_MIN - 1, 20));
        }
        assert!(many.iter().all(has_room));
        many[0].add(asked(1, 20));
        assert!(!has_room(&many[0]));
        drop(many);
        assert_eq!((total.requests(), total.busy.load(Ordering::Relaxed)), (0, 0));
    }

    #[tokio::test]
    async fn whoever_waits_for_the_total_is_woken() {
        let total = Total::new(10, Notify::new());
        let (first, second) = (Outstanding::new(&total), Outstanding::new(&total));
        second.add(asked(1, 20));
        first.add(asked(9, 20));
        let (woken, ()) = tokio::join!(second.room(|| true), async {
            tokio::task::yield_now().await;
            first.answered(1, |_| ());
        });
        assert_eq!((woken, total.requests()), ((), 9));
    }

    #[test]
    fn a_closed_connection_leaves_nothing_outstanding() {
        let total = Total::new(10, Notify::new());
        let outstanding = Outstanding::new(&total);
        outstanding.add(asked(3, 20));
        drop(outstanding);
        assert_eq!(total.requests(), 0);
    }
}
