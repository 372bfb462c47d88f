//! What time it is: the core is told, and never asks.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use crate::keeper::time::Now;

/// The clocks of this machine.
#[derive(Clone, Copy, Debug)]
pub enum Clock {
    /// The clock since boot. It goes on while the machine sleeps, so that a shim that wakes up
    /// knows how long it was away.
    Boot,
    /// tokio's clock, counted from here: it stands still when tests pause it.
    Runtime(Instant),
}

impl Clock {
    /// What the clocks say.
    pub fn now(&self) -> Now {
        let monotonic = match self {
            Self::Boot => since_boot(),
            Self::Runtime(start) => start.elapsed(),
        };
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { monotonic, unix_ms: i64::try_from(unix.as_millis()).unwrap_or(i64::MAX) }
    }
}

fn since_boot() -> Duration {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
    Duration::try_from(rustix::time::clock_gettime(CLOCK)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boot_clock_does_not_go_back() {
        let (first, second) = (Clock::Boot.now(), Clock::Boot.now());
        assert!(first.monotonic > Duration::ZERO && first.monotonic <= second.monotonic);
        assert!(first.unix_ms > 1_700_000_000_000);
    }
}
