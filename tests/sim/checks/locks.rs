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
    /// Two may hold it, as a session that had ended lives on.
    pub(crate) lenient: bool,
}

impl Locks {
    pub(crate) fn taken(
        &mut self,
        lock: &str,
        client: usize,
        now: Duration,
        until: Duration,
    ) -> Result<(), String> {
        let hold = Hold { client, from: now, until, given_up: false };
        self.holds.entry(lock.to_owned()).or_default().push(hold);
        self.check(lock)
    }

    /// The client has heard that its session was alive.
    pub(crate) fn extended(&mut self, client: usize, until: Duration) -> Result<(), String> {
        let locks: Vec<String> = self.holds.keys().cloned().collect();
        for lock in locks {
            if let Some(hold) = self.held(&lock, client) {
                hold.until = hold.until.max(until);
                self.check(&lock)?;
            }
        }
        Ok(())
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

    /// Whether the last who took it took it from nobody.
    fn check(&self, lock: &str) -> Result<(), String> {
        let holds = self.holds.get(lock).map_or(&[][..], Vec::as_slice);
        let Some((last, before)) = holds.split_last() else { return Ok(()) };
        let of_another = |hold: &&Hold| hold.client != last.client && hold.from <= last.from;
        if self.lenient {
            return Ok(());
        }
        match before.iter().filter(of_another).find(|hold| hold.until > last.from) {
            Some(hold) => Err(format!("{lock} was held by two: {hold:?} and {last:?}")),
            None => Ok(()),
        }
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
        assert_eq!(locks.taken("/lock", 1, at(1), at(5)), Ok(()));
        assert_eq!(locks.extended(1, at(9)), Ok(()));
        assert!(locks.taken("/lock", 2, at(8), at(12)).is_err());
        let mut locks = Locks::default();
        assert_eq!(locks.taken("/lock", 1, at(1), at(9)), Ok(()));
        locks.given_up("/lock", 1, at(7));
        assert_eq!(locks.taken("/lock", 2, at(8), at(12)), Ok(()));
        assert_eq!(locks.extended(1, at(10)), Ok(()), "it believes no more");
        let mut locks = Locks::default();
        assert_eq!(locks.taken("/lock", 1, at(1), at(5)), Ok(()));
        assert_eq!(locks.taken("/lock", 2, at(6), at(9)), Ok(()));
        assert!(locks.extended(1, at(7)).is_err(), "it was alive when the other took it");
    }
}
