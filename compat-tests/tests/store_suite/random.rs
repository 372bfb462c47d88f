//! The same random txns to the embedded engine and to etcd: same answers, same refusals, same
//! events, same content in the end.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use zkshim::keeper::txn::{
    Change, CommitError, Compare, Deletion, Key, KeyValue, LeaseId, Op, RevisionChanges, Txn,
    TxnAnswer,
};
use zkshim::keeper::zxid::Revision;
use zkshim::store::embedded::engine::Engine;
use zkshim::store::embedded::limits::Limits;

use crate::{Client, on_each_etcd};

const STEPS: usize = 400;

#[tokio::test(flavor = "multi_thread")]
async fn the_engine_and_etcd_agree_on_random_txns() {
    on_each_etcd(|etcd| async move {
        let endpoint = etcd.endpoint();
        let (client, snapshot) = Client::load(&endpoint).await;
        assert_eq!(snapshot.entries, []);
        let mut pair = Pair::new(client).await;
        for seed in 1..=3 {
            let mut chance = Chance(seed);
            for step in 0..STEPS {
                pair.step(&mut chance, &format!("seed {seed}, step {step}")).await;
            }
        }
        assert!(pair.successes > STEPS && pair.refusals > STEPS / 10, "{}", pair.successes);
        pair.compare_loads(&endpoint).await;
    })
    .await;
}

/// The engine and etcd, and how the one's numbers become the other's.
struct Pair {
    engine: Engine,
    client: Client,
    /// etcd's revision is the engine's and this.
    offset: i64,
    /// Engine's lease to etcd's.
    leases: BTreeMap<LeaseId, LeaseId>,
    successes: usize,
    refusals: usize,
}

impl Pair {
    async fn new(mut client: Client) -> Self {
        let engine = Engine::new(Limits::default(), 1);
        let offset = client.barrier().await.expect("etcd is there").0 - engine.revision().0;
        Self { engine, client, offset, leases: BTreeMap::new(), successes: 0, refusals: 0 }
    }

    async fn step(&mut self, chance: &mut Chance, place: &str) {
        let before = self.engine.revision();
        match chance.below(20) {
            0 => {
                let ttl = Duration::from_secs(chance.below(1000) as u64);
                let (lease, granted) = self.engine.grant(ttl, Duration::ZERO).expect("short");
                let (in_etcd, granted_in_etcd) = self.client.grant(ttl).await;
                if ttl > Duration::from_secs(3) {
                    assert_eq!(granted, granted_in_etcd, "{place}");
                }
                self.leases.insert(lease, in_etcd);
                // A short one would end by itself.
                if ttl < Duration::from_secs(300) {
                    self.revoke(lease).await;
                }
            }
            1 => {
                let lease = LeaseId(chance.below(40) as i64);
                self.revoke(lease).await;
            }
            _ => {
                let txn = chance.txn(self.engine.revision(), self.engine.lease_last());
                let expected = self.engine.commit(&txn);
                let found = self.client.commit(self.txn_in_etcd(txn)).await;
                self.compare_answers(expected, found, place);
            }
        }
        let expected: Vec<_> =
            self.engine.changes_after(before).expect("it is kept").cloned().collect();
        for changes in expected {
            let expected = self.changes_in_etcd(changes);
            assert_eq!(self.client.changed().await, expected, "{place}");
        }
    }

    async fn revoke(&mut self, lease: LeaseId) {
        self.engine.revoke(lease);
        let in_etcd = self.lease_in_etcd(lease);
        assert_eq!(self.client.revoke(in_etcd).await, Ok(()));
    }

    fn compare_answers(
        &mut self,
        expected: Result<TxnAnswer, CommitError>,
        found: Result<TxnAnswer, CommitError>,
        place: &str,
    ) {
        match (&expected, &found) {
            (Ok(expected), Ok(found)) => {
                let revision = self.revision_in_etcd(expected.revision);
                assert_eq!(*found, TxnAnswer { revision, ..expected.clone() }, "{place}");
                self.successes += 1;
            }
            (Err(expected), Err(found)) => {
                assert_eq!(kind(expected), kind(found), "{place}: {expected:?}, {found:?}");
                self.refusals += 1;
            }
            _ => panic!("{place}: the engine says {expected:?}, etcd {found:?}"),
        }
    }

    /// What a second store loads is what the engine holds, before and after a compaction.
    async fn compare_loads(&mut self, endpoint: &str) {
        let now = self.engine.revision();
        let middle = Revision(now.0 - STEPS as i64 / 2);
        for compacted in [None, Some(middle), Some(now)] {
            if let Some(revision) = compacted {
                self.engine.compact(revision);
                let mut etcd = etcd_client::Client::connect([endpoint], None).await.expect("up");
                etcd.compact(revision.0 + self.offset, None).await.expect("it is in the history");
            }
            let expected = self.engine.snapshot();
            let (_, found) = Client::load(endpoint).await;
            let entries = expected.entries.into_iter().map(|entry| self.entry_in_etcd(entry));
            assert_eq!(found.entries, entries.collect::<Vec<_>>());
            let deletions: Vec<_> = expected
                .deletions
                .into_iter()
                .map(|Deletion { key, revision }| Deletion {
                    key,
                    revision: self.revision_in_etcd(revision),
                })
                .collect();
            assert_eq!(found.deletions, deletions, "compacted at {compacted:?}");
            assert_eq!(deletions.is_empty(), compacted == Some(now));
            let since = compacted.map_or(Revision::NEVER, |at| self.revision_in_etcd(at));
            assert!(found.deletions_since >= since);
            assert!(found.deletions_since <= since.max(self.revision_in_etcd(now)));
            if compacted != Some(now) {
                assert_eq!(found.deletions_since, since);
            }
        }
    }

    fn revision_in_etcd(&self, revision: Revision) -> Revision {
        match revision {
            Revision::NEVER => revision,
            Revision(number) => Revision(number + self.offset),
        }
    }

    fn lease_in_etcd(&self, lease: LeaseId) -> LeaseId {
        match lease {
            LeaseId::NONE => lease,
            lease => self.leases.get(&lease).copied().unwrap_or(LeaseId(12_345)),
        }
    }

    fn entry_in_etcd(&self, entry: KeyValue) -> KeyValue {
        KeyValue {
            create_revision: self.revision_in_etcd(entry.create_revision),
            mod_revision: self.revision_in_etcd(entry.mod_revision),
            lease: self.lease_in_etcd(entry.lease),
            ..entry
        }
    }

    fn changes_in_etcd(&self, changes: RevisionChanges) -> RevisionChanges {
        let revision = self.revision_in_etcd(changes.revision);
        let in_etcd = |change| match change {
            Change::Put(entry) => Change::Put(self.entry_in_etcd(entry)),
            Change::Delete(key) => Change::Delete(key),
        };
        let changes = changes.changes.into_iter().map(in_etcd).collect();
        RevisionChanges { revision, changes }
    }

    fn txn_in_etcd(&self, txn: Txn) -> Txn {
        let compare = |compare| match compare {
            Compare::ModRevision(key, revision) => {
                Compare::ModRevision(key, self.revision_in_etcd(revision))
            }
            Compare::CreateRevision(key, revision) => {
                Compare::CreateRevision(key, self.revision_in_etcd(revision))
            }
            Compare::Lease(key, lease) => Compare::Lease(key, self.lease_in_etcd(lease)),
            Compare::Value(key, value) => Compare::Value(key, value),
        };
        let op = |op| match op {
            Op::Put { key, value, lease } => {
                Op::Put { key, value, lease: self.lease_in_etcd(lease) }
            }
            Op::Delete(key) => Op::Delete(key),
            Op::Txn(nested) => Op::Txn(self.txn_in_etcd(nested)),
        };
        Txn {
            compares: txn.compares.into_iter().map(compare).collect(),
            then: txn.then.into_iter().map(op).collect(),
            otherwise: txn.otherwise.into_iter().map(op).collect(),
        }
    }
}

fn kind(error: &CommitError) -> &'static str {
    match error {
        CommitError::TooLarge(_) => "too large",
        CommitError::LeaseNotFound => "lease not found",
        CommitError::Refused(_) => "refused",
        CommitError::Unknown(_) => "unknown",
    }
}

/// Seeded chance (splitmix64).
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }

    fn key(&mut self) -> Key {
        Key::from(format!("k{}", self.below(12)))
    }

    /// One of few, the empty one among them, so that a compare may find it.
    fn value(&mut self) -> Bytes {
        Bytes::from("v".repeat(self.below(4)))
    }

    /// A txn that is small, or now and then just at or beyond a limit.
    fn txn(&mut self, revision: Revision, leases: LeaseId) -> Txn {
        match self.below(40) {
            0 => {
                let count = 126 + self.below(5);
                let then = (0..count).map(|index| wide(index, 1)).collect();
                Txn { then, ..Txn::default() }
            }
            1 => {
                let (outer, inner) = (60 + self.below(8), 60 + self.below(8));
                let group = |outer: usize| {
                    let then = (0..inner).map(|index| wide(outer * 1000 + index, 1)).collect();
                    Op::Txn(Txn { then, ..Txn::default() })
                };
                Txn { then: (0..outer).map(group).collect(), ..Txn::default() }
            }
            2 => {
                // A few bytes are left out: the prefix and the log's header are not the same.
                let bytes = [1_572_000, 1_573_500, 2_000_000, 2_200_000][self.below(4)];
                Txn { then: vec![wide(0, bytes)], ..Txn::default() }
            }
            3 => {
                let count = 127 + self.below(3);
                let compares = (0..count).map(|_| self.compare(revision, leases)).collect();
                Txn { compares, then: vec![wide(0, 1)], ..Txn::default() }
            }
            _ => self.small_txn(revision, leases, 2),
        }
    }

    fn small_txn(&mut self, revision: Revision, leases: LeaseId, depth: usize) -> Txn {
        let compares = (0..self.below(2)).map(|_| self.compare(revision, leases)).collect();
        let then = (0..self.below(5)).map(|_| self.op(revision, leases, depth)).collect();
        let otherwise = (0..self.below(3)).map(|_| self.op(revision, leases, depth)).collect();
        Txn { compares, then, otherwise }
    }

    fn compare(&mut self, revision: Revision, leases: LeaseId) -> Compare {
        let key = self.key();
        let near = [Revision::NEVER, Revision(revision.0 - self.below(12) as i64)][self.below(2)];
        match self.below(4) {
            0 => Compare::ModRevision(key, near),
            1 => Compare::CreateRevision(key, near),
            2 => Compare::Value(key, self.value()),
            _ => Compare::Lease(key, self.lease(leases)),
        }
    }

    /// None, mostly; else one of the last ones, dead or alive, or one that never was.
    fn lease(&mut self, leases: LeaseId) -> LeaseId {
        match self.below(4) {
            0 => LeaseId((leases.0 - self.below(8) as i64).max(0)),
            1 if self.below(8) == 0 => LeaseId(999_999),
            _ => LeaseId::NONE,
        }
    }

    fn op(&mut self, revision: Revision, leases: LeaseId, depth: usize) -> Op {
        match self.below(if depth > 0 { 4 } else { 3 }) {
            0 => Op::Delete(self.key()),
            1 | 2 => Op::Put { key: self.key(), value: self.value(), lease: self.lease(leases) },
            _ => Op::Txn(self.small_txn(revision, leases, depth - 1)),
        }
    }
}

fn wide(index: usize, bytes: usize) -> Op {
    let value = Bytes::from(vec![b'v'; bytes]);
    Op::Put { key: Key::from(format!("w{index}")), value, lease: LeaseId::NONE }
}
