//! The memory that requests take, from their first bytes until they are answered and forgotten:
//! how much all clients may take together, and who gives way.
//!
//! What is large waits until there is memory for it (ZooKeeper closes such a connection:
//! `zookeeper.largeRequestMaxBytes`); what is small is bounded by how many of it may wait.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

/// What takes more than this counts. Ten thousand requests that do not are a few MiB.
pub(super) const SMALL_BYTES_MAX: usize = 1024;

/// Whoever has sent its large request for longer than this gives way to those who wait.
const RECEIVING_MAX: Duration = Duration::from_millis(500);

/// The grain in which memory is counted, since a semaphore counts no further than 2^32 in all.
const GRAIN: usize = 1024;

/// The memory for requests.
#[derive(Debug)]
pub(super) struct Intake {
    /// What is free, in grains. Whoever waits gets it in turn.
    free: Arc<Semaphore>,
    grains_max: usize,
    /// The large requests that are being received, the oldest first.
    receiving: Mutex<Receiving>,
}

#[derive(Debug, Default)]
struct Receiving {
    number: u64,
    begun: BTreeMap<u64, Begun>,
}

#[derive(Debug)]
struct Begun {
    peer: SocketAddr,
    since: Instant,
    cut: Arc<Notify>,
}

/// Memory that is taken until this is dropped.
pub(super) struct Taken(OwnedSemaphorePermit);

impl fmt::Debug for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Taken({} KiB)", self.0.num_permits())
    }
}

impl Taken {
    /// The frame for which it was taken: it is given back when nothing of it is left.
    pub(super) fn holding(self, frame: Bytes) -> Bytes {
        Bytes::from_owner(Frame { frame, _taken: self })
    }
}

struct Frame {
    frame: Bytes,
    _taken: Taken,
}

impl AsRef<[u8]> for Frame {
    fn as_ref(&self) -> &[u8] {
        &self.frame
    }
}

/// A large request that is being received, until this is dropped.
#[derive(Debug)]
pub(super) struct Drawn<'a> {
    intake: &'a Intake,
    number: u64,
    cut: Arc<Notify>,
}

impl Drawn<'_> {
    /// Waits until its memory is wanted for others. Safe to cancel.
    pub(super) async fn cut(&self) {
        self.cut.notified().await;
    }
}

impl Drop for Drawn<'_> {
    fn drop(&mut self) {
        self.intake.receiving().begun.remove(&self.number);
    }
}

impl Intake {
    /// All of it is free.
    pub(super) fn new(bytes_max: usize) -> Self {
        let grains_max = (bytes_max / GRAIN).clamp(1, Semaphore::MAX_PERMITS.min(1 << 30));
        let free = Arc::new(Semaphore::new(grains_max));
        Self { free, grains_max, receiving: Mutex::default() }
    }

    /// Takes so much, if it is free.
    pub(super) fn try_take(&self, bytes: usize) -> Option<Taken> {
        let grains = self.grains(bytes);
        Arc::clone(&self.free).try_acquire_many_owned(grains).ok().map(Taken)
    }

    /// Waits for it; whoever is slow to send its own gives way. Safe to cancel.
    pub(super) async fn take(&self, bytes: usize) -> Taken {
        let grains = self.grains(bytes);
        let mut taking = pin!(Arc::clone(&self.free).acquire_many_owned(grains));
        loop {
            match timeout(RECEIVING_MAX, &mut taking).await {
                Ok(taken) => return Taken(taken.expect("it is never closed")),
                Err(_) => self.cut_the_slowest(),
            }
        }
    }

    /// A large request is being received.
    pub(super) fn begin(&self, peer: SocketAddr) -> Drawn<'_> {
        let cut = Arc::new(Notify::new());
        let mut receiving = self.receiving();
        receiving.number += 1;
        let number = receiving.number;
        let begun = Begun { peer, since: Instant::now(), cut: Arc::clone(&cut) };
        receiving.begun.insert(number, begun);
        Drawn { intake: self, number, cut }
    }

    fn cut_the_slowest(&self) {
        let mut receiving = self.receiving();
        let Some(oldest) = receiving.begun.first_entry() else { return };
        let received_for = oldest.get().since.elapsed();
        if received_for < RECEIVING_MAX {
            return;
        }
        let Begun { peer, cut, .. } = oldest.remove();
        tracing::warn!(
            %peer,
            ?received_for,
            "there is no memory for more requests: cutting who is slow to send its own"
        );
        cut.notify_one();
    }

    /// One that is larger than all that there is gets all of it.
    fn grains(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.div_ceil(GRAIN).min(self.grains_max)).unwrap_or(u32::MAX)
    }

    fn receiving(&self) -> MutexGuard<'_, Receiving> {
        self.receiving.lock().expect("nothing panics while it holds the map")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1024;

    fn peer() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 7))
    }

    #[test]
    fn memory_is_taken_until_nothing_of_the_frame_is_left() {
        let intake = Intake::new(10 * KIB);
        let taken = intake.try_take(6 * KIB).expect("it is free");
        let frame = taken.holding(Bytes::from(vec![7; 6 * KIB]));
        let part = frame.slice(5..8);
        drop(frame);
        assert!(intake.try_take(6 * KIB).is_none(), "{part:?} holds it");
        drop(part);
        assert!(intake.try_take(6 * KIB).is_some());
    }

    #[test]
    fn one_that_is_larger_than_all_there_is_may_have_it() {
        let intake = Intake::new(10 * KIB);
        let all = intake.try_take(20 * KIB).expect("it is free");
        assert!(intake.try_take(1).is_none());
        drop(all);
        assert!(intake.try_take(10 * KIB).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_draws_its_request_out_gives_way_and_nobody_else() {
        let intake = Intake::new(10 * KIB);
        let answering = intake.try_take(4 * KIB).expect("it is free");
        let slow = intake.try_take(6 * KIB).expect("it is free");
        let drawn = intake.begin(peer());
        let started = Instant::now();
        let (taken, ()) = tokio::join!(intake.take(5 * KIB), async {
            drawn.cut().await;
            drop(slow);
        });
        assert!(started.elapsed() < 2 * RECEIVING_MAX, "{:?}", started.elapsed());
        let waited = timeout(Duration::from_secs(60), intake.take(5 * KIB)).await;
        assert!(waited.is_err(), "the others are not slow");
        drop(answering);
        intake.take(5 * KIB).await;
        drop(taken);
    }
}
