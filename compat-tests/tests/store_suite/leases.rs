//! Leases in a real etcd: granted, renewed by the hundred, ended.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use zkshim::keeper::txn::{Change, Key, LeaseId, StoreCommand, StoreEvent, Txn};

use crate::{Client, on_each_etcd, put};

async fn renewed(client: &mut Client) -> (LeaseId, Option<Duration>) {
    client
        .next(|event| match event {
            StoreEvent::Renewed(lease, ttl) => Some((*lease, *ttl)),
            _ => None,
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_leases_are_renewed_on_a_few_streams() {
    on_each_etcd(|etcd| async move {
        let (mut client, _) = Client::load(&etcd.endpoint()).await;
        let ttl = Duration::from_secs(60);
        let mut leases = BTreeSet::new();
        for _ in 0..200 {
            leases.insert(client.grant(ttl).await.0);
        }
        for round in 0..3 {
            for lease in &leases {
                client.store.send(StoreCommand::Renew(*lease));
            }
            let mut answered = BTreeSet::new();
            while answered.len() < leases.len() {
                let (lease, told) = renewed(&mut client).await;
                assert_eq!(told, Some(ttl), "round {round}");
                assert!(answered.insert(lease), "{lease:?} is answered twice");
            }
            assert_eq!(answered, leases);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_gone_is_told_as_gone() {
    on_each_etcd(|etcd| async move {
        let (mut client, _) = Client::load(&etcd.endpoint()).await;
        client.store.send(StoreCommand::Renew(LeaseId(77)));
        assert_eq!(renewed(&mut client).await, (LeaseId(77), Some(Duration::ZERO)));
        let (lease, _) = client.grant(Duration::from_secs(60)).await;
        assert_eq!(client.revoke(lease).await, Ok(()));
        assert_eq!(client.revoke(lease).await, Ok(()));
        client.store.send(StoreCommand::Renew(lease));
        assert_eq!(renewed(&mut client).await, (lease, Some(Duration::ZERO)));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_ends_on_its_own_in_one_revision_unless_it_is_renewed() {
    on_each_etcd(|etcd| async move {
        let (mut client, _) = Client::load(&etcd.endpoint()).await;
        let (short, ttl) = client.grant(Duration::from_millis(2500)).await;
        assert_eq!(ttl, Duration::from_secs(3));
        let (kept, _) = client.grant(Duration::from_millis(2500)).await;
        let then = vec![put("b", short), put("c", kept), put("a", short)];
        client.commit(Txn { then, ..Txn::default() }).await.expect("etcd is there");
        assert_eq!(client.changed().await.changes.len(), 3);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(6) {
            client.store.send(StoreCommand::Renew(kept));
            assert_eq!(renewed(&mut client).await, (kept, Some(ttl)));
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let deleted = ["a", "b"].map(|name| Change::Delete(Key::from_static(name.as_bytes())));
        assert_eq!(client.changed().await.changes, deleted);
        assert_eq!(client.revoke(kept).await, Ok(()));
        let deleted = [Change::Delete(Key::from_static(b"c"))];
        assert_eq!(client.changed().await.changes, deleted);
    })
    .await;
}
