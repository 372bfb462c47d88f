//! Loading in pages, revisions of many megabytes, progress, and keys of others.

use std::time::Duration;

use bytes::Bytes;
use zkshim::keeper::txn::{Change, Key, LeaseId, Op, StoreCommand, StoreEvent, Txn};

use crate::{Client, on_each_etcd, put};

#[tokio::test(flavor = "multi_thread")]
async fn a_load_of_many_pages_and_a_revision_of_megabytes_are_whole() {
    on_each_etcd(|etcd| async move {
        let (mut client, _) = Client::load(&etcd.endpoint()).await;
        let (lease, _) = client.grant(Duration::from_secs(600)).await;
        let name = |index: usize| Key::from(format!("{index:04}{}", "n".repeat(1200)));
        for batch in 0..30 {
            let put = |index| Op::Put { key: name(index), value: Bytes::new(), lease };
            let then = (batch * 100..(batch + 1) * 100).map(put).collect();
            client.commit(Txn { then, ..Txn::default() }).await.expect("etcd is there");
            assert_eq!(client.changed().await.changes.len(), 100);
        }
        let (mut second, snapshot) = Client::load(&etcd.endpoint()).await;
        assert!(snapshot.entries.iter().map(|entry| &entry.key).eq(&names(name)));
        assert_eq!(client.revoke(lease).await, Ok(()));
        // About 3.6 MB of names: more than a request may have, and all in one revision.
        let deleted: Vec<_> = names(name).into_iter().map(Change::Delete).collect();
        for client in [&mut client, &mut second] {
            let changed = client.changed().await;
            assert!(changed.revision > snapshot.revision);
            assert!(changed.changes == deleted, "{} deletions", changed.changes.len());
        }
    })
    .await;
}

fn names(name: impl Fn(usize) -> Key) -> Vec<Key> {
    (0..3000).map(name).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_is_told_where_only_others_write() {
    on_each_etcd(|etcd| async move {
        let (mut client, _) = Client::load(&etcd.endpoint()).await;
        let ours = client.put("a").await;
        let mut other = etcd_client::Client::connect([etcd.endpoint()], None).await.expect("up");
        other.put("/zkshim", "not ours", None).await.expect("etcd is there");
        other.put("/zkshim0", "not ours", None).await.expect("etcd is there");
        let now = client.barrier().await.expect("etcd is there");
        assert!(now > ours);
        let mut told = ours;
        while told < now {
            client.store.send(StoreCommand::Progress);
            told = client
                .next(|event| match event {
                    StoreEvent::Progress(revision) => Some(*revision),
                    _ => None,
                })
                .await;
        }
        assert_eq!(client.changed().await.revision, ours);
        assert!(client.kept.iter().all(|event| !matches!(event, StoreEvent::Changed(_))));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_stores_see_each_others_changes_and_prefixes_are_apart() {
    on_each_etcd(|etcd| async move {
        let (mut first, _) = Client::load(&etcd.endpoint()).await;
        let (mut second, _) = Client::load(&etcd.endpoint()).await;
        let prefix = "/elsewhere/".to_owned();
        let options = zkshim::store::etcd::Options { prefix, ..crate::options(&etcd.endpoint()) };
        let mut apart = Client::open_with(options).await;
        let loaded = apart.loaded().await;
        first.put("a").await;
        apart.put("b").await;
        let then = vec![put("c", LeaseId::NONE), crate::delete("a")];
        second.commit(Txn { then, ..Txn::default() }).await.expect("etcd is there");
        for client in [&mut first, &mut second] {
            assert_eq!(client.changed().await.changes.len(), 1);
            assert_eq!(client.changed().await.changes.len(), 2);
        }
        assert_eq!(apart.changed().await.changes.len(), 1);
        assert_eq!(loaded.entries, []);
        for client in [first, second, apart] {
            assert!(!client.kept.iter().any(|event| matches!(event, StoreEvent::Changed(_))));
            client.store.close().await;
        }
    })
    .await;
}
