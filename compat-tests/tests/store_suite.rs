//! The etcd store against real etcds, the newest and the oldest, and the embedded engine against
//! the same: what one refuses or tells, the other does.

#[path = "store_suite/auth.rs"]
mod auth;
#[path = "store_suite/cluster.rs"]
mod cluster;
#[path = "store_suite/faults.rs"]
mod faults;
#[path = "store_suite/leases.rs"]
mod leases;
#[path = "store_suite/proxy.rs"]
mod proxy;
#[path = "store_suite/random.rs"]
mod random;
#[path = "store_suite/restored.rs"]
mod restored;
#[path = "store_suite/stream.rs"]
mod stream;
#[path = "store_suite/upkeep.rs"]
mod upkeep;

use std::collections::VecDeque;
use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use compat_tests::clients::under_test::Against;
use compat_tests::clients::{can_run, not_run};
use compat_tests::servers::etcd::Etcd;
use tokio::sync::mpsc;
use zkshim::keeper::txn::{
    CommitError, Key, LeaseId, Op, RevisionChanges, Snapshot, StoreCommand, StoreEvent, Token, Txn,
    TxnAnswer,
};
use zkshim::keeper::zxid::Revision;
use zkshim::store::{Store, StoreOptions, etcd};

/// Runs a test on the newest etcd and on the oldest, each fresh.
async fn on_each_etcd<F: Future<Output = ()>>(test: impl Fn(Etcd) -> F) {
    if !etcd_can_be_built() {
        return;
    }
    test(Etcd::start().expect("etcd starts")).await;
    match Etcd::start_oldest().expect("the distribution's etcd starts") {
        Some(oldest) => test(oldest).await,
        None => {
            not_run("the store suite on the oldest etcd because the system has no package of it")
                .expect("it can be noted")
        }
    }
}

fn etcd_can_be_built() -> bool {
    can_run("the store suite", &["go"], Against::Embedded).expect("it can be noted")
}

fn options(endpoint: &str) -> etcd::Options {
    etcd::Options {
        endpoints: vec![endpoint.to_owned()],
        call_timeout: Duration::from_secs(3),
        ..etcd::Options::default()
    }
}

/// A store with all that it told.
struct Client {
    store: Store,
    events: mpsc::Receiver<StoreEvent>,
    /// Told, and not asked for yet.
    kept: VecDeque<StoreEvent>,
    tokens: u64,
}

impl Client {
    async fn open(endpoint: &str) -> Self {
        Self::open_with(options(endpoint)).await
    }

    async fn open_with(options: etcd::Options) -> Self {
        let (sender, events) = mpsc::channel(64);
        let store = Store::open(StoreOptions::Etcd(options), sender).await;
        let store = store.expect("the options are right");
        Self { store, events, kept: VecDeque::new(), tokens: 0 }
    }

    /// Asks for a lease's whole time again, and tells whether it is given.
    async fn is_renewed(&mut self, lease: LeaseId, ttl: Duration) -> bool {
        self.store.send(StoreCommand::Renew(lease));
        let renewed = self.next(|event| match event {
            StoreEvent::Renewed(renewed, ttl) if *renewed == lease => Some(*ttl),
            _ => None,
        });
        renewed.await == Some(ttl)
    }

    /// Opens a store and takes what it loaded.
    async fn load(endpoint: &str) -> (Self, Snapshot) {
        let mut client = Self::open(endpoint).await;
        let mut snapshot = client.loaded().await;
        let past = client.next(|event| match event {
            StoreEvent::Deleted(past) => Some(past.clone()),
            _ => None,
        });
        let past = past.await;
        assert_eq!(past.until, snapshot.revision);
        (snapshot.deletions, snapshot.deletions_since) = (past.deletions, past.since);
        (client, snapshot)
    }

    /// The first event that is wanted; the others are kept.
    async fn next<T>(&mut self, mut wanted: impl FnMut(&StoreEvent) -> Option<T>) -> T {
        for index in 0..self.kept.len() {
            if let Some(found) = wanted(&self.kept[index]) {
                self.kept.remove(index);
                return found;
            }
        }
        loop {
            let event = tokio::time::timeout(PATIENCE, self.events.recv()).await;
            let event = event.unwrap_or_else(|_| panic!("not told in time; told: {:?}", self.kept));
            let event = event.expect("the store is open");
            if let Some(found) = wanted(&event) {
                return found;
            }
            self.kept.push_back(event);
        }
    }

    async fn loaded(&mut self) -> Snapshot {
        self.next(|event| match event {
            StoreEvent::Loaded(snapshot) => Some(snapshot.clone()),
            _ => None,
        })
        .await
    }

    async fn changed(&mut self) -> RevisionChanges {
        self.next(|event| match event {
            StoreEvent::Changed(changes) => Some(changes.clone()),
            _ => None,
        })
        .await
    }

    fn token(&mut self) -> Token {
        self.tokens += 1;
        Token(self.tokens)
    }

    async fn commit(&mut self, txn: Txn) -> Result<TxnAnswer, CommitError> {
        let token = self.token();
        self.store.send(StoreCommand::Commit(token, txn));
        self.next(|event| match event {
            StoreEvent::Committed(answered, outcome) if *answered == token => Some(outcome.clone()),
            _ => None,
        })
        .await
    }

    async fn put(&mut self, name: &str) -> Revision {
        let then = vec![put(name, LeaseId::NONE)];
        self.commit(Txn { then, ..Txn::default() }).await.expect("etcd is there").revision
    }

    async fn barrier(&mut self) -> Result<Revision, String> {
        let token = self.token();
        self.store.send(StoreCommand::Barrier(token));
        self.next(|event| match event {
            StoreEvent::BarrierPassed(answered, revision) if *answered == token => {
                Some(revision.clone())
            }
            _ => None,
        })
        .await
    }

    async fn grant(&mut self, ttl: Duration) -> (LeaseId, Duration) {
        let token = self.token();
        self.store.send(StoreCommand::Grant(token, ttl));
        let granted = self.next(|event| match event {
            StoreEvent::Granted(answered, granted) if *answered == token => Some(granted.clone()),
            _ => None,
        });
        granted.await.expect("etcd grants leases")
    }

    async fn revoke(&mut self, lease: LeaseId) -> Result<(), String> {
        let token = self.token();
        self.store.send(StoreCommand::Revoke(token, lease));
        self.next(|event| match event {
            StoreEvent::Revoked(answered, revoked) if *answered == token => Some(revoked.clone()),
            _ => None,
        })
        .await
    }
}

/// Nothing here takes so long.
const PATIENCE: Duration = Duration::from_secs(40);

fn put(name: &str, lease: LeaseId) -> Op {
    let key = Key::copy_from_slice(name.as_bytes());
    Op::Put { value: Bytes::from(format!("value of {name}")), key, lease }
}

fn delete(name: &str) -> Op {
    Op::Delete(Key::copy_from_slice(name.as_bytes()))
}
