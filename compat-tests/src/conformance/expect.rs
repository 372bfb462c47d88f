//! What cases say when an answer is not the expected one.

use std::fmt::Debug;

use anyhow::{Result, bail};

/// The two must be equal.
///
/// # Errors
/// They are not; the message shows both.
pub fn expect_eq<T: PartialEq + Debug>(what: &str, got: T, want: T) -> Result<()> {
    if got != want {
        bail!("{what}: got {got:?}, want {want:?}");
    }
    Ok(())
}

/// The statement must hold.
///
/// # Errors
/// It does not.
pub fn expect(what: &str, holds: bool) -> Result<()> {
    if !holds {
        bail!("does not hold: {what}");
    }
    Ok(())
}

/// The value must be one of the allowed ones.
///
/// # Errors
/// It is not.
pub fn expect_one_of<T: PartialEq + Debug>(what: &str, got: &T, allowed: &[T]) -> Result<()> {
    if !allowed.contains(got) {
        bail!("{what}: got {got:?}, want one of {allowed:?}");
    }
    Ok(())
}
