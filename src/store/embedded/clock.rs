//! The engine's clock: time in which the store could be used.

use std::time::{Duration, Instant};

/// Counts time, but not a stretch in which the process or its disk stood still: nobody could
/// renew a lease then, so it must not cost a lease its life.
#[derive(Debug)]
pub(super) struct Clock {
    served: Duration,
    last: Instant,
}

impl Clock {
    pub(super) fn new(now: Instant) -> Self {
        Self { served: Duration::ZERO, last: now }
    }

    /// The time served so far.
    pub(super) fn served(&self) -> Duration {
        self.served
    }

    /// How long to wait on purpose for the time at which a lease ends. Not for long at a time: a
    /// stretch in which the process stood still cannot be told from one that was waited.
    pub(super) fn wait(&self, until: Duration) -> Duration {
        until.saturating_sub(self.served).min(WAIT_MAX)
    }

    /// Time has passed, of which `expected` was spent waiting on purpose.
    pub(super) fn advance(&mut self, now: Instant, expected: Duration) {
        let passed = now.saturating_duration_since(self.last);
        self.last = now;
        if passed <= expected.saturating_add(PAUSE_MAX) {
            self.served += passed;
        } else {
            tracing::warn!(?passed, "the store stood still; leases get the time back");
        }
    }
}

/// A delay that may be ordinary work.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The longest wait in one go: so much of a pause may count.
const WAIT_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_does_not_count_though_a_lease_was_waited_for() {
        let begin = Instant::now();
        let mut clock = Clock::new(begin);
        let expected = clock.wait(Duration::from_secs(20));
        clock.advance(begin + Duration::from_millis(20_900), expected);
        assert_eq!(clock.served(), Duration::ZERO);
        let soon = Duration::from_millis(300);
        assert_eq!(clock.wait(soon), soon);
    }

    #[test]
    fn a_pause_does_not_count_and_waiting_does() {
        let begin = Instant::now();
        let at = |millis| begin + Duration::from_millis(millis);
        let mut clock = Clock::new(begin);
        clock.advance(at(900), Duration::ZERO);
        assert_eq!(clock.served(), Duration::from_millis(900));
        clock.advance(at(20_900), Duration::from_secs(20));
        assert_eq!(clock.served(), Duration::from_millis(20_900));
        clock.advance(at(60_000), Duration::from_secs(20));
        assert_eq!(clock.served(), Duration::from_millis(20_900));
        clock.advance(at(60_100), Duration::ZERO);
        assert_eq!(clock.served(), Duration::from_secs(21));
    }
}
