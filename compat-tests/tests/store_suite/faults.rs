//! What the store does while etcd is away, and after it.

use std::time::{Duration, Instant};

use compat_tests::servers::etcd::Etcd;
use zkshim::keeper::txn::{CommitError, LeaseId, StoreCommand, StoreEvent, Txn};
use zkshim::store::etcd::Options;

use crate::proxy::Proxy;
use crate::{Client, on_each_etcd, options, put};

#[tokio::test(flavor = "multi_thread")]
async fn the_stream_goes_on_after_a_cut_without_a_gap_or_a_repetition() {
    on_each_etcd(|etcd| async move {
        let proxy = Proxy::start(etcd.address(), true).await;
        let (mut client, _) = Client::load(&proxy.endpoint()).await;
        let (mut other, _) = Client::load(&etcd.endpoint()).await;
        let mut expected = Vec::new();
        for round in 0..6 {
            expected.push(other.put(&format!("a{round}")).await);
            if round % 2 == 0 {
                proxy.cut()
            } else {
                proxy.mend()
            }
            expected.push(other.put(&format!("b{round}")).await);
        }
        for revision in expected {
            assert_eq!(client.changed().await.revision, revision);
        }
        assert!(!client.kept.iter().any(|event| matches!(event, StoreEvent::Loaded(_))));
        client.put("back").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_history_that_was_compacted_while_away_is_loaded_again() {
    on_each_etcd(|etcd| async move {
        let proxy = Proxy::start(etcd.address(), true).await;
        let (mut client, _) = Client::load(&proxy.endpoint()).await;
        client.put("before").await;
        assert_eq!(client.changed().await.changes.len(), 1);
        proxy.cut();
        let (mut other, _) = Client::load(&etcd.endpoint()).await;
        other.put("lost").await;
        let last = other.put("away").await;
        let mut admin = etcd_client::Client::connect([etcd.endpoint()], None).await.expect("up");
        admin.compact(last.0, None).await.expect("it is in the history");
        proxy.mend();
        let snapshot = client.loaded().await;
        let keys: Vec<_> = snapshot.entries.iter().map(|entry| &entry.key[..]).collect();
        assert_eq!(keys, [&b"away"[..], b"before", b"lost"]);
        let next = client.put("next").await;
        assert_eq!(client.changed().await.revision, next);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_waits_for_an_etcd_that_is_not_there_yet() {
    on_each_etcd(|etcd| async move {
        let proxy = Proxy::start(etcd.address(), false).await;
        let opening = tokio::spawn(Client::open_with(options(&proxy.endpoint())));
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert!(!opening.is_finished());
        proxy.mend();
        let mut client = opening.await.expect("opening does not panic");
        assert_eq!(client.loaded().await.entries, []);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_member_is_used_when_one_is_gone() {
    on_each_etcd(|etcd| async move {
        let gone = Proxy::start(etcd.address(), true).await;
        let good = Proxy::start(etcd.address(), true).await;
        let endpoints = vec![format!("{},{}", gone.endpoint(), good.endpoint())];
        let mut client =
            Client::open_with(Options { endpoints, ..options(&etcd.endpoint()) }).await;
        client.loaded().await;
        let (lease, ttl) = client.grant(Duration::from_secs(60)).await;
        gone.cut();
        let begun = Instant::now();
        while client.barrier().await.is_err() {
            assert!(begun.elapsed() < Duration::from_secs(10));
        }
        let revision = client.put("a").await;
        assert_eq!(client.changed().await.revision, revision);
        loop {
            client.store.send(StoreCommand::Renew(lease));
            let renewed = client.next(|event| match event {
                StoreEvent::Renewed(_, ttl) => Some(*ttl),
                _ => None,
            });
            if renewed.await == Some(ttl) {
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(20));
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_member_is_left_as_soon_as_another_one_answers() {
    on_each_etcd(|etcd| async move {
        let silent = Proxy::start(etcd.address(), true).await;
        let late = Proxy::start(etcd.address(), false).await;
        let endpoints = vec![silent.endpoint(), late.endpoint()];
        let mut client =
            Client::open_with(Options { endpoints, ..options(&etcd.endpoint()) }).await;
        client.loaded().await;
        silent.silence();
        let begun = Instant::now();
        // As while a leader is elected: those that are asked instead do not answer at once.
        let mending = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(1500)).await;
            late.mend();
            late
        });
        while client.barrier().await.is_err() {
            assert!(begun.elapsed() < Duration::from_secs(10));
        }
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(3), "{took:?}");
        mending.await.expect("mending does not panic");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_follows_to_the_member_that_answers() {
    on_each_etcd(|etcd| async move {
        let silent = Proxy::start(etcd.address(), true).await;
        let good = Proxy::start(etcd.address(), true).await;
        let endpoints = vec![silent.endpoint(), good.endpoint()];
        let mut client =
            Client::open_with(Options { endpoints, ..options(&etcd.endpoint()) }).await;
        client.loaded().await;
        let (lease, ttl) = client.grant(Duration::from_secs(60)).await;
        // The first one opens a stream; the second one waits on it in vain.
        for round in 0..2 {
            client.store.send(StoreCommand::Renew(lease));
            if round == 1 {
                assert!(client.barrier().await.is_err());
            }
            let renewed = client.next(|event| match event {
                StoreEvent::Renewed(_, ttl) => Some(*ttl),
                _ => None,
            });
            assert_eq!(renewed.await, Some(ttl));
            silent.silence();
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_into_silence_has_an_unknown_outcome_and_is_never_repeated() {
    on_each_etcd(|etcd| async move {
        let (mut client, _) = Client::load(&etcd.endpoint()).await;
        etcd.pause().expect("etcd runs");
        let then = vec![put("a", LeaseId::NONE)];
        let outcome = client.commit(Txn { then, ..Txn::default() }).await;
        assert!(matches!(outcome, Err(CommitError::Unknown(_))), "{outcome:?}");
        assert!(client.barrier().await.is_err());
        etcd.resume().expect("etcd runs");
        let begun = Instant::now();
        while client.barrier().await.is_err() {
            assert!(begun.elapsed() < Duration::from_secs(30));
        }
        let marker = client.put("marker").await;
        let mut told = Vec::new();
        while told.last() != Some(&marker) {
            told.push(client.changed().await.revision);
        }
        assert!(told.len() <= 2, "the txn was applied at most once: {told:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_etcd_is_found_again() {
    on_each_etcd(|mut etcd| async move {
        let (mut client, _) = Client::load(&etcd.endpoint()).await;
        let first = client.put("a").await;
        assert_eq!(client.changed().await.revision, first);
        etcd.kill().expect("etcd runs");
        assert!(client.barrier().await.is_err());
        etcd.restart().expect("etcd starts");
        let begun = Instant::now();
        while client.barrier().await.is_err() {
            assert!(begun.elapsed() < Duration::from_secs(20));
        }
        let second = client.put("b").await;
        assert_eq!(client.changed().await.revision, second);
        assert!(!client.kept.iter().any(|event| matches!(event, StoreEvent::Loaded(_))));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_cluster_that_answers_instead_is_loaded_afresh() {
    on_each_etcd(|mut etcd| async move {
        let other = Etcd::start().expect("etcd starts");
        let endpoints = vec![etcd.endpoint(), other.endpoint()];
        let mut client =
            Client::open_with(Options { endpoints, ..options(&etcd.endpoint()) }).await;
        let first = client.loaded().await;
        client.put("a").await;
        etcd.kill().expect("etcd runs");
        let second = client.loaded().await;
        assert_ne!(second.cluster, first.cluster);
        assert_eq!(second.entries, []);
    })
    .await;
}
