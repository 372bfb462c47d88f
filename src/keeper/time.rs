//! Time as an argument: the core has no clock of its own.

use std::time::Duration;

/// What the shell's clocks said when it handed in an input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now {
    /// For deadlines: time since some fixed point in the past; it never goes back.
    pub monotonic: Duration,
    /// For ctime and mtime: milliseconds since 1970. It may jump.
    pub unix_ms: i64,
}
