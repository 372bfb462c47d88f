//! No lock is held by two at a time, by what its holders may believe.
//!
//! A client may believe that it holds a lock from the answer that says so until it gives it up,
//! or until its session's timeout has passed since it last sent something that was answered.

use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Clone, Debug)]
struct Hold {
    client: usize,
    from: Duration,
    until: Duration,
    given_up: bool,
}

/// See the file's text.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    holds: BTreeMap<String, Vec<Hold>>,
}

impl Locks {
    pub(crate) fn taken(&mut self, lock: &str, client: usize, now: Duration, until: Duration) {
        let hold = Hold { client, from: now, until, given_up: false };
        self.holds.entry(lock.to_owned()).or_default().push(hold);
    }

    /// The client has heard that its session was alive.
    pub(crate) fn extended(&mut self, lock: &str, client: usize, until: Duration) {
        if let Some(hold) = self.held(lock, client) {
            hold.until = hold.until.max(until);
        }
    }

    /// The client lets go of the lock now, or believes no more that it has it.
    pub(crate) fn given_up(&mut self, lock: &str, client: usize, now: Duration) {
        if let Some(hold) = self.held(lock, client) {
            hold.until = hold.until.min(now);
            hold.given_up = true;
        }
    }

    fn held(&mut self, lock: &str, client: usize) -> Option<&mut Hold> {
        let holds = self.holds.get_mut(lock)?;
        holds.iter_mut().rev().find(|hold| hold.client == client && !hold.given_up)
    }

    pub(crate) fn count(&self) -> usize {
        self.holds.values().map(Vec::len).sum()
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        for (lock, holds) in &self.holds {
            let mut holds = holds.clone();
            holds.sort_by_key(|hold| hold.from);
            for pair in holds.windows(2) {
                if pair[0].until > pair[1].from && pair[0].client != pair[1].client {
                    return Err(format!("{lock} was held by two: {pair:?}"));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_lock_that_two_may_believe_to_hold_is_noticed() {
        let mut locks = Locks::default();
        locks.taken("/lock", 1, at(1), at(5));
        locks.extended("/lock", 1, at(9));
        locks.taken("/lock", 2, at(8), at(12));
        assert!(locks.check().is_err());
        locks.given_up("/lock", 1, at(7));
        assert_eq!(locks.check(), Ok(()));
    }
}
