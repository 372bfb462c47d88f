//! A core at work on its store: how both begin, and how they end.

use std::sync::{Arc, Mutex, OnceLock};

use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle};

use crate::driver::clock::Clock;
use crate::driver::{Driver, Handle, Input};
use crate::keeper::Options;
use crate::keeper::txn::{StoreCommand, StoreEvent};
use crate::store::{Store, StoreError, StoreOptions};

/// How many of the store's events may wait for the driver; then the store waits.
const STORE_EVENTS_WAITING_MAX: usize = 1024;

/// A core at work on its store, or waiting for it.
#[derive(Debug)]
pub struct Running {
    handle: Handle,
    driver: JoinHandle<()>,
    slot: Arc<Slot>,
    /// `None`: it is open.
    opening: Option<JoinHandle<Result<(), StoreError>>>,
    /// Held so that the driver outlives a store that cannot be opened, and whoever waits is told
    /// of the store and not of the driver.
    _events: mpsc::Sender<StoreEvent>,
}

/// Why a core cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Its store cannot be opened, or is broken.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A task ended by itself, which it does only when something in it is wrong.
    #[error("the core has ended by itself")]
    Ended,
}

impl Running {
    /// Starts both; neither is waited for. An etcd may take its time to answer, and until then
    /// the core says that it does not serve.
    pub(super) fn start(options: Options, store_options: StoreOptions) -> Self {
        let (events, store_events) = mpsc::channel(STORE_EVENTS_WAITING_MAX);
        let slot = Arc::new(Slot::default());
        let mut commands = Commands { slot: Arc::clone(&slot), direct: false };
        let send = move |command| commands.send(command);
        let (driver, handle) = Driver::new(options, Clock::Boot, send, store_events);
        let opening = tokio::spawn(open(store_options, events.clone(), Arc::clone(&slot)));
        let driver = tokio::spawn(driver.run());
        Self { handle, driver, slot, opening: Some(opening), _events: events }
    }

    /// The way to the driver.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Waits until it cannot go on; only a new start can help then. Safe to cancel, and not to
    /// be called again once it has returned.
    pub async fn failed(&mut self) -> Failure {
        let Self { driver, slot, opening, .. } = self;
        tokio::select! {
            biased;
            failure = store_failed(opening, slot) => failure,
            _ = driver => Failure::Ended,
        }
    }

    /// Ends the driver after what was handed in, then the store after what it was asked.
    pub async fn stop(self) {
        let Self { handle, driver, slot, opening, .. } = self;
        if let Some(opening) = opening {
            opening.abort();
            // It ends at its next await, which gives back its hold on the store.
            let _ = opening.await;
        }
        if handle.send(Input::Shutdown).await.is_ok() {
            // Whatever became of it, it holds the store no longer.
            let _ = driver.await;
        }
        if let Some(store) = Arc::into_inner(slot).and_then(|slot| slot.store.into_inner()) {
            store.close().await;
        }
    }
}

async fn open(
    options: StoreOptions,
    events: mpsc::Sender<StoreEvent>,
    slot: Arc<Slot>,
) -> Result<(), StoreError> {
    slot.open(Store::open(options, events).await?);
    Ok(())
}

async fn store_failed(
    opening: &mut Option<JoinHandle<Result<(), StoreError>>>,
    slot: &Slot,
) -> Failure {
    if let Some(task) = opening {
        let opened: Result<Result<(), StoreError>, JoinError> = task.await;
        *opening = None;
        match opened {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return error.into(),
            Err(_) => return Failure::Ended,
        }
    }
    match slot.store.get() {
        Some(store) => store.failed().await.into(),
        None => Failure::Ended,
    }
}

/// A store that may not be open yet, and what was asked of it before: little, since a core
/// without a snapshot has nothing to change.
#[derive(Debug, Default)]
struct Slot {
    store: OnceLock<Store>,
    /// Held for a few instructions, and while the early commands are handed over.
    early: Mutex<Vec<StoreCommand>>,
}

impl Slot {
    fn open(&self, opened: Store) {
        assert!(self.store.set(opened).is_ok(), "a store is opened once");
        // A store may have told something, and been asked something, before it came here.
        self.hand_over(None);
    }

    /// Hands over what was asked early, then `command`; keeps it if there is no store yet. True:
    /// nothing is kept any more.
    fn hand_over(&self, command: Option<StoreCommand>) -> bool {
        let mut early = self.early.lock().expect("nothing panics while it holds the list");
        early.extend(command);
        let Some(store) = self.store.get() else { return false };
        early.drain(..).for_each(|command| store.send(command));
        true
    }
}

/// The way of commands to a store.
#[derive(Debug)]
struct Commands {
    slot: Arc<Slot>,
    /// Nothing early is left that a command could overtake.
    direct: bool,
}

impl Commands {
    fn send(&mut self, command: StoreCommand) {
        match self.slot.store.get() {
            Some(store) if self.direct => store.send(command),
            Some(_) | None => self.direct = self.slot.hand_over(Some(command)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::tests::options;
    use crate::keeper::txn::Token;
    use crate::store::embedded;
    use std::time::Duration;

    #[tokio::test]
    async fn a_store_that_cannot_be_opened_is_the_failure() {
        let file = tempfile::NamedTempFile::new().expect("there is room for a file");
        let data_dir = file.path().to_owned();
        let store = StoreOptions::Embedded(embedded::Options::at(data_dir));
        let mut running = Running::start(options(), store);
        let failure = running.failed().await;
        assert!(matches!(failure, Failure::Store(_)), "{failure:?}");
        running.stop().await;
    }

    #[tokio::test]
    async fn what_is_asked_before_the_store_is_open_is_not_lost() {
        let data = tempfile::TempDir::new().expect("there is room for a directory");
        let store_options = StoreOptions::Embedded(embedded::Options::at(data.path().to_owned()));
        let (events, mut told) = mpsc::channel(8);
        let slot = Arc::new(Slot::default());
        let mut commands = Commands { slot: Arc::clone(&slot), direct: false };
        let store = Store::open(store_options, events).await.expect("it opens");
        assert!(matches!(told.recv().await, Some(StoreEvent::Loaded(_))));
        commands.send(StoreCommand::Barrier(Token(1)));
        slot.open(store);
        commands.send(StoreCommand::Barrier(Token(2)));
        commands.send(StoreCommand::Barrier(Token(3)));
        let mut passed = Vec::new();
        while passed.len() < 3 {
            match told.recv().await {
                Some(StoreEvent::BarrierPassed(token, Ok(_))) => passed.push(token),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(passed, [Token(1), Token(2), Token(3)]);
    }

    #[tokio::test]
    async fn a_store_that_was_stopped_can_be_opened_again() {
        let data = tempfile::TempDir::new().expect("there is room for a directory");
        for _ in 0..2 {
            let data_dir = data.path().to_owned();
            let store = StoreOptions::Embedded(embedded::Options::at(data_dir));
            let mut running = Running::start(options(), store);
            assert!(running.handle().status().await.is_ok());
            let waited = tokio::time::timeout(Duration::from_millis(200), running.failed()).await;
            assert!(waited.is_err(), "{waited:?}");
            running.stop().await;
        }
    }

    #[tokio::test]
    async fn a_core_that_waits_for_its_store_can_be_stopped() {
        // Nobody listens on port 1.
        let endpoints = vec!["http://127.0.0.1:1".to_owned()];
        let etcd = crate::store::etcd::Options { endpoints, ..Default::default() };
        let running = Running::start(options(), StoreOptions::Etcd(etcd));
        assert!(!running.handle().status().await.expect("it runs").serving);
        running.stop().await;
    }
}
