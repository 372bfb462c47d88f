//! What the clients of a run were told: what a judge needs, and when each of them was served.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::faults::roamer::Loss;

/// What the clients of a run were told.
#[derive(Debug, Default)]
pub struct Record(Mutex<Told>);

/// The same, for whoever holds the lock.
#[derive(Debug, Default)]
pub struct Told {
    /// What must not be, in words.
    pub violations: Vec<String>,
    /// By client.
    pub lives: BTreeMap<usize, Life>,
    /// Versions of the shared counter, by those who were told that they had made them, and with
    /// which zxid.
    pub counted: BTreeMap<i32, (usize, i64)>,
    /// Counts whose outcome is not known.
    pub counts_unknown: usize,
    /// Names of sequential nodes, what their makers wrote into them, and the zxid of that.
    pub numbered: BTreeMap<String, (String, i64)>,
    /// What was written into sequential nodes whose creation is not known to have happened.
    pub numbered_unknown: Vec<String>,
    /// When locks were surely held: by whom, from when to when.
    pub holds: Vec<Hold>,
    /// When etcd was set back.
    pub restores: Vec<Restored>,
}

/// etcd was set back to an earlier time.
#[derive(Clone, Copy, Debug)]
pub struct Restored {
    /// When: no answer before came from the history that goes on, and every one after it does.
    pub at: Instant,
    /// The last zxid of the history that goes on.
    pub kept: i64,
}

/// What one client went through.
#[derive(Clone, Debug, Default)]
pub struct Life {
    /// Whether it writes; others only keep their session.
    pub writes: bool,
    /// Its session's timeout.
    pub timeout: Duration,
    /// Writes that were acknowledged.
    pub writes_acknowledged: Vec<Write>,
    /// Its lost connections.
    pub losses: Vec<Loss>,
    /// When its session ended though it talked.
    pub expiries: Vec<Instant>,
    /// The server that it is connected to, as far as it knows.
    pub server: Option<SocketAddr>,
}

/// A write that was acknowledged.
#[derive(Clone, Copy, Debug)]
pub struct Write {
    /// When it was first sent.
    pub begun: Instant,
    /// When its answer came.
    pub ended: Instant,
}

/// A time for which a client surely held a lock.
#[derive(Clone, Copy, Debug)]
pub struct Hold {
    /// Which client.
    pub client: usize,
    /// When it was told that the lock is its own.
    pub from: Instant,
    /// When it last sent something that was answered under the lock.
    pub to: Instant,
}

impl Record {
    /// Looks at it or adds to it.
    pub fn with<T>(&self, work: impl FnOnce(&mut Told) -> T) -> T {
        let mut told: MutexGuard<'_, Told> = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        work(&mut told)
    }

    /// Notes what must not be.
    pub fn violation(&self, text: String) {
        eprintln!("VIOLATION: {text}");
        self.with(|told| told.violations.push(text));
    }

    /// etcd is being set back: what came after this zxid is gone, though it was acknowledged. To
    /// be called while no server can answer.
    pub fn restored(&self, kept: i64) {
        self.with(|told| {
            told.restores.push(Restored { at: Instant::now(), kept });
            told.counted.retain(|_, (_, zxid)| *zxid <= kept);
            told.numbered.retain(|_, (_, zxid)| *zxid <= kept);
        });
    }

    /// The times that etcd was set back, but for the first ones.
    #[must_use]
    pub fn restores_after(&self, first: usize) -> Vec<Restored> {
        self.with(|told| told.restores.iter().skip(first).copied().collect())
    }

    /// Adds to a client's life.
    pub fn live(&self, client: usize, work: impl FnOnce(&mut Life)) {
        self.with(|told| work(told.lives.entry(client).or_default()));
    }
}

impl Life {
    /// How long after a moment the first write was acknowledged that was begun after it.
    #[must_use]
    pub fn works_again(&self, after: Instant) -> Option<Duration> {
        let first = self.writes_acknowledged.iter().find(|write| write.begun >= after)?;
        Some(first.ended - after)
    }

    /// The longest that any of its writes took that was under way in this time.
    #[must_use]
    pub fn longest_write(&self, from: Instant, to: Instant) -> Duration {
        let touched = |write: &&Write| write.ended >= from && write.begun <= to;
        let writes = self.writes_acknowledged.iter().filter(touched);
        writes.map(|write| write.ended - write.begun).max().unwrap_or_default()
    }

    /// The connections that it lost in this time.
    #[must_use]
    pub fn losses_within(&self, from: Instant, to: Instant) -> Vec<&Loss> {
        self.losses.iter().filter(|loss| from <= loss.at && loss.at <= to).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_works_again_with_the_first_write_that_begins_after_the_fault() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let write = |begun, ended| Write { begun: at(begun), ended: at(ended) };
        let writes_acknowledged = vec![write(0, 10), write(20, 900), write(950, 960)];
        let life = Life { writes_acknowledged, ..Life::default() };
        assert_eq!(life.works_again(at(15)), Some(Duration::from_millis(885)));
        assert_eq!(life.works_again(at(30)), Some(Duration::from_millis(930)));
        assert_eq!(life.works_again(at(1000)), None);
        assert_eq!(life.longest_write(at(30), at(940)), Duration::from_millis(880));
        assert_eq!(life.longest_write(at(961), at(2000)), Duration::ZERO);
    }
}
