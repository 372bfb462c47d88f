//! Time as an argument: the core has no clock of its own.

use std::num::NonZeroU64;
use std::time::Duration;

/// What the shell's clocks said when it handed in an input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now {
    /// For deadlines: time since some fixed point in the past; it never goes back.
    pub monotonic: Duration,
    /// For ctime and mtime: milliseconds since 1970. It may jump.
    pub unix_ms: i64,
}

/// A duration in half of its room, for what there is a hundred thousand of: nanoseconds, up to 584
/// years. Ordered as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Compact(NonZeroU64);

impl From<Duration> for Compact {
    fn from(duration: Duration) -> Self {
        // One more, so that an `Option` of it needs no more room.
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(NonZeroU64::MIN.saturating_add(nanos))
    }
}

impl Compact {
    /// The duration.
    pub fn get(self) -> Duration {
        Duration::from_nanos(self.0.get() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compact_is_the_same_duration() {
        for nanos in [0, 1, 999, 1_000_000_007, u64::MAX - 1] {
            let duration = Duration::from_nanos(nanos);
            assert_eq!(Compact::from(duration).get(), duration);
        }
        assert!(Compact::from(Duration::MAX) > Compact::from(Duration::from_secs(1 << 33)));
        assert_eq!(size_of::<Option<Compact>>(), 8);
    }
}
