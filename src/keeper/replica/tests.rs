//! The replica by itself: what comes through the stream, what a snapshot holds, and a store that
//! somebody else has written to.

use super::*;
use crate::keeper::keyspace::{self, Birth, NodeValue};
use crate::keeper::tree::record::{Kind, Record};
use crate::keeper::txn::{Key, Op, Txn};
use crate::store::embedded::engine::Engine;
use crate::store::embedded::limits::Limits;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;

/// An engine, and a replica that follows it.
struct Feed {
    engine: Engine,
    replica: Replica,
}

impl Feed {
    fn new() -> Self {
        let engine = Engine::new(Limits::default(), 1);
        let mut replica = Replica::new(ShimId(1));
        replica.load(engine.snapshot()).expect("it is empty");
        Self { engine, replica }
    }

    fn commit(&mut self, then: Vec<Op>) -> Vec<Applied> {
        let txn = Txn { then, ..Txn::default() };
        self.engine.commit(&txn).expect("it is a small one");
        self.follow()
    }

    fn follow(&mut self) -> Vec<Applied> {
        let history = self.engine.changes_after(self.replica.applied).expect("not compacted");
        let history: Vec<_> = history.cloned().collect();
        history.into_iter().map(|changes| self.replica.apply(changes)).collect()
    }

    /// The tree of a shim that loads what there is now.
    fn loaded(&self) -> Replica {
        let mut replica = Replica::new(ShimId(2));
        replica.load(self.engine.snapshot()).expect("the layout is known");
        replica
    }
}

fn put(slot: Slot, value: Bytes, lease: LeaseId) -> Op {
    Op::Put { key: slot.key(), value, lease }
}

fn node(path: &str, data: &'static str) -> Op {
    let data = Some(Bytes::from_static(data.as_bytes()));
    let kind = Kind::Persistent;
    let value = NodeValue { data, kind, ctime: 1, mtime: 2, version: 0, birth: Birth::Key };
    put(Slot::Node(path.into()), value.encode(), LeaseId::NONE)
}

fn creates(path: &str, count: i32) -> Op {
    put(Slot::Creates(path.into()), keyspace::encode_creates(count), LeaseId::NONE)
}

fn delete(slot: Slot) -> Op {
    Op::Delete(slot.key())
}

fn records(replica: &Replica) -> BTreeMap<String, Record> {
    let all = replica.tree.iter();
    all.map(|(path, node)| (path.to_string(), node.record.clone())).collect()
}

fn fired(applied: &[Applied]) -> Vec<String> {
    let one = |fired: &Fired| format!("{:?} {}", fired.kind, fired.path);
    applied.iter().flat_map(|applied| applied.fired.iter().map(one)).collect()
}

#[test]
fn a_load_gives_what_the_stream_gave() {
    let mut feed = Feed::new();
    let (lease, _) = feed.engine.grant(Duration::from_secs(9), Duration::ZERO).expect("short");
    feed.commit(vec![node("/p", ""), creates("/", 1)]);
    let Op::Put { key, value, .. } = node("/p/e", "e") else { panic!("it is a put") };
    feed.commit(vec![Op::Put { key, value, lease }, creates("/p", 1)]);
    feed.commit(vec![node("/", "root"), node("/zookeeper", "zk")]);
    feed.commit(vec![node("/p/k", ""), creates("/p", 2)]);
    let pzxid = keyspace::encode_pzxid(None);
    let deleted = put(Slot::Pzxid("/p".into()), pzxid, LeaseId::NONE);
    feed.commit(vec![delete(Slot::Node("/p/k".into())), deleted]);
    assert_eq!(records(&feed.loaded()), records(&feed.replica));
    assert!(feed.engine.revoke(lease));
    let applied = feed.follow();
    assert_eq!(applied[0].bereft, ["/p".into()], "no key says when /p lost its last child");
    assert_eq!(records(&feed.loaded()), records(&feed.replica), "the history does");
    let at = feed.replica.applied;
    let pzxid = keyspace::encode_pzxid(Some(at));
    feed.commit(vec![put(Slot::Pzxid("/p".into()), pzxid, LeaseId::NONE)]);
    feed.engine.compact(feed.engine.revision());
    assert_eq!(records(&feed.loaded()), records(&feed.replica), "and then the key does");
    assert_eq!(records(&feed.replica)["/p"].pzxid(), at);
}

#[test]
fn a_parent_that_loses_many_children_at_once_is_told_of_once() {
    let mut feed = Feed::new();
    let (lease, _) = feed.engine.grant(Duration::from_secs(9), Duration::ZERO).expect("short");
    feed.commit(vec![node("/p", ""), node("/q", ""), creates("/", 2)]);
    for path in ["/p/1", "/p/2", "/q/1", "/q/2", "/p/3"] {
        let Op::Put { key, value, .. } = node(path, "e") else { panic!("it is a put") };
        feed.commit(vec![Op::Put { key, value, lease }]);
    }
    assert!(feed.engine.revoke(lease));
    let applied = feed.follow();
    assert_eq!(applied[0].fired.len(), 5);
    assert_eq!(applied[0].bereft, ["/p".into(), "/q".into()]);
}

#[test]
fn a_revision_that_is_applied_changes_nothing() {
    let mut feed = Feed::new();
    feed.commit(vec![node("/a", ""), creates("/", 1)]);
    let before = records(&feed.replica);
    let again = feed.engine.changes_after(Revision(1)).expect("not compacted").next().cloned();
    let applied = feed.replica.apply(again.expect("there was one"));
    assert_eq!(applied, Applied::default());
    assert_eq!(records(&feed.replica), before);
}

#[test]
fn a_prefix_that_is_wiped_goes_as_if_a_client_had_deleted_it() {
    let mut feed = Feed::new();
    let acl = keyspace::encode_acl(3, &tree::open_acl());
    let config = put(Slot::Acl(tree::CONFIG.into()), acl, LeaseId::NONE);
    feed.commit(vec![node("/a", ""), node("/a/b", ""), node("/a/b/c", ""), creates("/", 1)]);
    feed.commit(vec![node("/", "data"), config]);
    let keys: Vec<Key> = feed.engine.snapshot().entries.into_iter().map(|e| e.key).collect();
    let applied = feed.commit(keys.into_iter().map(Op::Delete).collect());
    let expected = ["DataChanged /", "Deleted /a/b/c", "Deleted /a/b", "Deleted /a"];
    assert_eq!(fired(&applied), expected);
    let (mut left, fresh) = (records(&feed.replica), records(&Replica::new(ShimId(1))));
    for record in left.values_mut() {
        record.more().pzxid = Revision::NEVER;
    }
    assert_eq!(left, fresh, "what is always there is as at the start");
}

#[test]
fn what_cannot_be_understood_is_left_out() {
    let mut feed = Feed::new();
    let garbage = Bytes::from_static(&[9, 9]);
    feed.commit(vec![
        node("/orphan/child", ""),
        put(Slot::Node("/garbage".into()), garbage.clone(), LeaseId::NONE),
        put(Slot::Session(SessionId(1)), garbage.clone(), LeaseId::NONE),
        put(Slot::Acl("/".into()), garbage.clone(), LeaseId::NONE),
        Op::Put { key: Bytes::from_static(b"foreign"), value: garbage, lease: LeaseId::NONE },
        node("/a", ""),
        creates("/", 1),
    ]);
    let paths: Vec<String> = records(&feed.replica).into_keys().collect();
    assert_eq!(paths, ["/", "/a", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"]);
    assert_eq!(records(&feed.loaded()), records(&feed.replica));
    assert!(feed.replica.sessions.is_empty());
}

#[test]
fn a_later_load_tells_the_difference_in_an_order_that_watches_can_take() {
    let mut feed = Feed::new();
    feed.commit(vec![node("/a", ""), node("/a/b", ""), node("/c", "1"), node("/d", "")]);
    let mut late = feed.loaded();
    feed.commit(vec![delete(Slot::Node("/a/b".into())), delete(Slot::Node("/d".into()))]);
    feed.commit(vec![delete(Slot::Node("/a".into())), node("/d", ""), node("/c", "2")]);
    feed.commit(vec![node("/e", ""), node("/e/f", "")]);
    let applied = late.load(feed.engine.snapshot()).expect("the layout is known");
    let expected = [
        "Deleted /d",
        "Deleted /a/b",
        "Deleted /a",
        "Created /d",
        "Created /e",
        "Created /e/f",
        "DataChanged /c",
    ];
    assert_eq!(fired(&[applied]), expected);
}
