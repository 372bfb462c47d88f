//! Passwords that prove when a session was given out, so that a client can be told its session
//! before the session is in etcd: another shim believes the password if it meets the client first.
//!
//! A password holds when the session was opened, its timeout, and a code over both and the id that
//! only holders of the tree's secret can make.

use crate::keeper::request::SessionId;
use hmac::{Hmac, Mac};
use sha2::Sha256;
use std::time::Duration;

/// The length of a session's password (`SessionTrackerImpl`, `ZooKeeperServer.generatePasswd`).
pub const PASSWORD_BYTES: usize = 16;

/// Times are kept in tenths of a second: forty bits of them last for 34,000 years.
const GRAIN_MS: u64 = 100;

const ISSUED_BYTES: usize = 5;
const TIMEOUT_BYTES: usize = 3;
const CODE_AT: usize = ISSUED_BYTES + TIMEOUT_BYTES;

/// What passwords are made from: drawn once for each tree, and kept in it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret(pub [u8; 32]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// What a password says, once it is known to be genuine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    issued_ms: u64,
    timeout: Duration,
}

impl Proof {
    /// Whether the session cannot have expired yet by its age alone.
    pub fn is_fresh(&self, unix_ms: i64) -> bool {
        let now = u64::try_from(unix_ms).unwrap_or(0);
        u128::from(now.saturating_sub(self.issued_ms)) < self.timeout.as_millis()
    }
}

impl Secret {
    /// The password of a session that is opened now.
    pub fn password(
        &self,
        session: SessionId,
        unix_ms: i64,
        timeout: Duration,
    ) -> [u8; PASSWORD_BYTES] {
        // Rounded up: no session is to end a moment before its time.
        let issued = u64::try_from(unix_ms).unwrap_or(0).div_ceil(GRAIN_MS);
        let tenths = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX) / GRAIN_MS;
        let tenths = tenths.min((1 << (8 * TIMEOUT_BYTES)) - 1);
        let mut password = [0; PASSWORD_BYTES];
        password[..ISSUED_BYTES].copy_from_slice(&issued.to_be_bytes()[8 - ISSUED_BYTES..]);
        password[ISSUED_BYTES..CODE_AT].copy_from_slice(&tenths.to_be_bytes()[8 - TIMEOUT_BYTES..]);
        let code = self.code(session, &password[..CODE_AT]).finalize().into_bytes();
        password[CODE_AT..].copy_from_slice(&code[..PASSWORD_BYTES - CODE_AT]);
        password
    }

    /// What a client's password says; `None` if it was not made from this secret for this session.
    pub fn check(&self, session: SessionId, password: &[u8]) -> Option<Proof> {
        let password: &[u8; PASSWORD_BYTES] = password.try_into().ok()?;
        let (said, code) = password.split_at(CODE_AT);
        self.code(session, said).verify_truncated_left(code).ok()?;
        let number = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let (issued, timeout) = said.split_at(ISSUED_BYTES);
        Some(Proof {
            issued_ms: number(issued) * GRAIN_MS,
            timeout: Duration::from_millis(number(timeout) * GRAIN_MS),
        })
    }

    fn code(&self, session: SessionId, said: &[u8]) -> Hmac<Sha256> {
        let mut code =
            <Hmac<Sha256> as Mac>::new_from_slice(&self.0).expect("a key may have any length");
        code.update(&session.0.to_be_bytes());
        code.update(said);
        code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: Secret = Secret([7; 32]);
    const SESSION: SessionId = SessionId(0x1234);
    const NOW_MS: i64 = 1_800_000_000_123;
    const TIMEOUT: Duration = Duration::from_secs(10);

    #[test]
    fn a_password_is_good_for_its_session_and_its_timeout() {
        let password = SECRET.password(SESSION, NOW_MS, TIMEOUT);
        let proof = SECRET.check(SESSION, &password).expect("it is genuine");
        assert!(proof.is_fresh(NOW_MS));
        assert!(proof.is_fresh(NOW_MS + 9_999), "not a moment too early");
        assert!(!proof.is_fresh(NOW_MS + 10_100));
        assert!(proof.is_fresh(NOW_MS - 5_000), "the clock of another shim may be behind");
    }

    #[test]
    fn nothing_of_it_can_be_changed() {
        let password = SECRET.password(SESSION, NOW_MS, TIMEOUT);
        for bit in 0..8 * PASSWORD_BYTES {
            let mut changed = password;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SECRET.check(SESSION, &changed), None, "bit {bit}");
        }
        assert_eq!(SECRET.check(SessionId(0x1235), &password), None);
        assert_eq!(Secret([8; 32]).check(SESSION, &password), None);
        assert_eq!(SECRET.check(SESSION, &password[..15]), None);
        assert_eq!(SECRET.check(SESSION, &[]), None);
    }
}
