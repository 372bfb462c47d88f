//! An etcd that is set back to an earlier time: nothing that was told is gone on with.

use std::path::{Path, PathBuf};

use compat_tests::servers::etcd::Etcd;
use zkshim::keeper::txn::StoreEvent;
use zkshim::keeper::zxid::Revision;

use crate::proxy::Proxy;
use crate::{Client, on_each_etcd};

/// A copy of what a stopped etcd has on its disk.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("there is room");
    for entry in std::fs::read_dir(from).expect("it can be listed") {
        let entry = entry.expect("it can be listed");
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &to);
        } else {
            std::fs::copy(&path, &to).expect("there is room");
        }
    }
}

fn data_of(etcd: &Etcd) -> PathBuf {
    PathBuf::from(etcd.argument("--data-dir=").expect("it was given one"))
}

/// Stops etcd and starts it again with what it had when the backup was made.
fn set_back(etcd: &mut Etcd, backup: &Path) {
    etcd.kill().expect("it runs");
    let data = data_of(etcd);
    std::fs::remove_dir_all(&data).expect("it is there");
    copy(backup, &data);
    etcd.restart().expect("it starts with the backup");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_history_that_was_set_back_and_has_grown_since_is_known_as_another_one() {
    on_each_etcd(|mut etcd| async move {
        let directory = tempfile::TempDir::new().expect("there is room");
        let backup = directory.path().join("backup");
        let (mut other, _) = Client::load(&etcd.endpoint()).await;
        other.put("kept").await;
        etcd.kill().expect("it runs");
        copy(&data_of(&etcd), &backup);
        etcd.restart().expect("it starts again");

        let proxy = Proxy::start(etcd.address(), true).await;
        let (mut client, _) = Client::load(&proxy.endpoint()).await;
        let lost = client.put("lost").await;
        assert_eq!(client.changed().await.revision, lost);
        proxy.cut();
        set_back(&mut etcd, &backup);
        let (mut other, _) = Client::load(&etcd.endpoint()).await;
        let mut last = Revision::NEVER;
        while last <= Revision(lost.0 + 3) {
            last = other.put("new").await;
        }
        proxy.mend();
        let snapshot = client.loaded().await;
        assert!(snapshot.is_another_history);
        // On an old etcd the stores write a key of their own now and then.
        assert!(snapshot.revision >= last, "{} before {last}", snapshot.revision);
        let keys: Vec<_> = snapshot.entries.iter().map(|entry| &entry.key[..]).collect();
        assert_eq!(keys, [&b"kept"[..], b"new"]);
        assert!(!client.kept.iter().any(|event| matches!(event, StoreEvent::Changed(_))));
        // It is the history from now on.
        let next = client.put("next").await;
        assert_eq!(client.changed().await.revision, next);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_that_was_set_back_is_not_believed_before_it_is_loaded_again() {
    on_each_etcd(|mut etcd| async move {
        let directory = tempfile::TempDir::new().expect("there is room");
        let backup = directory.path().join("backup");
        let (mut client, _) = Client::load(&etcd.endpoint()).await;
        client.put("kept").await;
        etcd.kill().expect("it runs");
        copy(&data_of(&etcd), &backup);
        etcd.restart().expect("it starts again");
        let mut lost = Revision::NEVER;
        for _ in 0..20 {
            lost = client.put("lost").await;
        }
        while client.changed().await.revision < lost {}
        set_back(&mut etcd, &backup);
        // From here on a barrier is passed by the new history alone.
        loop {
            let passed = client.barrier().await;
            let is_loaded = client.kept.iter().any(|event| match event {
                StoreEvent::Loaded(snapshot) => snapshot.is_another_history,
                _ => false,
            });
            match passed {
                Ok(revision) => {
                    assert!(is_loaded && revision < lost, "{revision} after {lost}");
                    break;
                }
                Err(_) => tokio::task::yield_now().await,
            }
        }
    })
    .await;
}
