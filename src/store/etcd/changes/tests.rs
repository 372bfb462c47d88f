//! What the stream makes of etcd's messages.

use super::*;
use crate::keeper::txn::Key;
use etcd_client::proto::{PbKeyValue, PbResponseHeader};

fn event(kind: EventType, key: &str, revision: i64) -> PbEvent {
    let key = format!("/zkshim/{key}").into_bytes();
    let kv = PbKeyValue { key, mod_revision: revision, create_revision: 1, ..Default::default() };
    PbEvent { r#type: kind as i32, kv: Some(kv), prev_kv: None }
}

fn put(key: &str, revision: i64) -> PbEvent {
    event(EventType::Put, key, revision)
}

fn message(revision: i64, events: Vec<PbEvent>) -> PbWatchResponse {
    let header = PbResponseHeader { cluster_id: 7, revision, ..Default::default() };
    PbWatchResponse { header: Some(header), events, ..Default::default() }
}

fn fragment(events: Vec<PbEvent>) -> PbWatchResponse {
    PbWatchResponse { fragment: true, ..message(9, events) }
}

/// Feeds messages to a stream that was loaded at revision 5, and returns what it tells, and
/// how it ended if it did.
async fn check(messages: Vec<PbWatchResponse>) -> (Vec<String>, Option<End>) {
    check_expecting(None, messages).await
}

/// As [`check`], after a break: the stream was told this.
async fn check_expecting(
    witness: Option<PbEvent>,
    messages: Vec<PbWatchResponse>,
) -> (Vec<String>, Option<End>) {
    let (events, mut told) = mpsc::channel(64);
    let prefix = Prefix::new("/zkshim/");
    let (_, link) = crate::store::etcd::link::Supervisor::new(Vec::new(), prefix.clone(), 0);
    let asked = Arc::new(Notify::new());
    let timeout = Duration::from_secs(1);
    let mut changes =
        Changes::new(link, prefix.clone(), timeout, events, asked, Frontier::default());
    let before = witness.map(|event| revisions(&prefix, vec![event]));
    changes.expected = before.and_then(|before| Witness::of(&before[0].1));
    changes.told = Some(Told { cluster: 7, revision: Revision(5) });
    let mut end = None;
    for message in messages {
        end = changes.take(message).await.err();
        if end.is_some() {
            break;
        }
    }
    drop(changes);
    let mut texts = Vec::new();
    while let Some(event) = told.recv().await {
        texts.push(match event {
            StoreEvent::Changed(RevisionChanges { revision, changes }) => {
                let changes: Vec<_> = changes.iter().map(text).collect();
                format!("{revision}: {}", changes.join(" "))
            }
            StoreEvent::Progress(revision) => format!("{revision}"),
            other => format!("{other:?}"),
        });
    }
    (texts, end)
}

fn text(change: &Change) -> String {
    let name = |key: &Key| String::from_utf8_lossy(key).into_owned();
    match change {
        Change::Put(entry) => format!("+{}", name(&entry.key)),
        Change::Delete(key) => format!("-{}", name(key)),
    }
}

#[tokio::test]
async fn revisions_of_one_message_are_told_one_by_one_in_order() {
    let deleted = event(EventType::Delete, "a", 7);
    let (told, end) = check(vec![message(7, vec![put("b", 6), put("a", 6), deleted])]).await;
    assert_eq!(told, ["6: +b +a", "7: -a"]);
    assert_eq!(end, None);
}

#[tokio::test]
async fn fragments_are_put_together() {
    let parts = vec![
        fragment(vec![put("a", 6)]),
        fragment(vec![put("b", 6), put("a", 7)]),
        message(9, vec![put("b", 7)]),
        message(9, vec![put("c", 8)]),
    ];
    let (told, end) = check(parts).await;
    assert_eq!(told, ["6: +a +b", "7: +a +b", "8: +c"]);
    assert_eq!(end, None);
}

#[tokio::test]
async fn what_was_told_is_not_told_again() {
    let repeated = vec![message(6, vec![put("a", 5), put("b", 6)]), message(6, vec![put("b", 6)])];
    let (told, _) = check(repeated).await;
    assert_eq!(told, ["6: +b"]);
}

#[tokio::test]
async fn a_message_without_events_is_progress() {
    let created = PbWatchResponse { created: true, ..message(6, vec![]) };
    let (told, _) = check(vec![created, message(8, vec![]), message(7, vec![])]).await;
    assert_eq!(told, ["8", "8"]);
}

#[tokio::test]
async fn the_stores_own_key_is_progress_and_no_change() {
    let (told, _) = check(vec![message(7, vec![put("", 6), put("a", 7)])]).await;
    assert_eq!(told, ["6", "7: +a"]);
}

#[tokio::test]
async fn a_compacted_history_is_loaded_again() {
    let compacted = PbWatchResponse { canceled: true, compact_revision: 8, ..message(9, vec![]) };
    assert_eq!(check(vec![compacted]).await, (vec![], Some(End::Reload)));
}

#[tokio::test]
async fn another_cluster_is_loaded_again() {
    let mut other = message(9, vec![put("a", 9)]);
    other.header = Some(PbResponseHeader { cluster_id: 8, revision: 9, ..Default::default() });
    assert_eq!(check(vec![other]).await, (vec![], Some(End::Reload)));
}

#[tokio::test]
async fn a_cancelled_watch_is_opened_again() {
    let cancel_reason = "etcdserver: no leader".to_owned();
    let cancelled = PbWatchResponse { canceled: true, cancel_reason, ..message(9, vec![]) };
    let (told, end) = check(vec![cancelled]).await;
    assert_eq!(told, Vec::<String>::new());
    assert_eq!(end, Some(End::Broken("etcdserver: no leader".into())));
}

#[tokio::test]
async fn what_was_told_before_a_break_comes_first_and_is_not_told_again() {
    let messages = vec![message(7, vec![put("x", 5), put("a", 5), put("b", 7)])];
    let (told, end) = check_expecting(Some(put("a", 5)), messages).await;
    assert_eq!(told, ["7: +b"]);
    assert_eq!(end, None);
}

#[tokio::test]
async fn a_history_without_what_was_told_is_another_one() {
    for first in [
        // Another key, another value, nothing in that revision, nothing at all.
        vec![put("b", 5), put("a", 7)],
        vec![written("a", 5, "other"), put("a", 7)],
        vec![put("a", 7)],
        Vec::new(),
    ] {
        let (told, end) = check_expecting(Some(put("a", 5)), vec![message(7, first)]).await;
        assert_eq!(told, [""; 0]);
        assert_eq!(end, Some(End::Reload));
    }
}

#[tokio::test]
async fn a_history_that_is_compacted_up_to_what_was_told_is_gone_on_with() {
    for (compact_revision, goes_on) in [(5, true), (6, true), (7, false)] {
        let canceled =
            PbWatchResponse { canceled: true, compact_revision, ..message(9, Vec::new()) };
        let (_, end) = check_expecting(Some(put("a", 4)), vec![canceled]).await;
        assert_eq!(matches!(end, Some(End::Broken(_))), goes_on, "{compact_revision}");
        assert_eq!(end == Some(End::Reload), !goes_on, "{compact_revision}");
    }
}

fn written(key: &str, revision: i64, value: &str) -> PbEvent {
    let mut event = put(key, revision);
    if let Some(kv) = &mut event.kv {
        kv.value = value.as_bytes().to_vec();
    }
    event
}
