//! The engine's rules one by one, and against a naive model.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

fn engine() -> Engine {
    Engine::new(Limits::default(), 7)
}

fn key(name: &str) -> Key {
    Key::copy_from_slice(name.as_bytes())
}

fn put(name: &str) -> Op {
    leased(name, LeaseId::NONE)
}

fn leased(name: &str, lease: LeaseId) -> Op {
    Op::Put { key: key(name), value: key("value"), lease }
}

fn delete(name: &str) -> Op {
    Op::Delete(key(name))
}

fn then(ops: Vec<Op>) -> Txn {
    Txn { then: ops, ..Txn::default() }
}

fn commit(engine: &mut Engine, ops: Vec<Op>) -> Revision {
    engine.commit(&then(ops)).expect("it is within all limits").revision
}

fn told(engine: &Engine, after: i64) -> Vec<(i64, String)> {
    let changes = engine.changes_after(Revision(after)).expect("nothing is compacted");
    let name = |key: &Key| String::from_utf8(key.to_vec()).expect("the tests' keys are text");
    changes
        .flat_map(|revision| revision.changes.iter().map(|change| (revision.revision.0, change)))
        .map(|(revision, change)| match change {
            Change::Put(entry) => (revision, format!("+{}", name(&entry.key))),
            Change::Delete(key) => (revision, format!("-{}", name(key))),
        })
        .collect()
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn event(revision: i64, text: &str) -> (i64, String) {
    (revision, text.to_owned())
}

#[test]
fn a_new_store_is_at_revision_one() {
    assert_eq!(engine().revision(), Revision(1));
    assert_eq!(engine().snapshot().deletions_since, Revision(1));
}

#[test]
fn a_txn_is_one_revision_in_the_order_of_its_operations() {
    let mut engine = engine();
    commit(&mut engine, vec![put("old")]);
    let nested = Op::Txn(then(vec![put("c"), delete("old")]));
    assert_eq!(commit(&mut engine, vec![put("b"), nested, put("a")]), Revision(3));
    let expected = ["+b", "+c", "-old", "+a"].map(|text| event(3, text));
    assert_eq!(told(&engine, 2), expected);
}

#[test]
fn what_changes_nothing_takes_no_revision() {
    let mut engine = engine();
    assert_eq!(commit(&mut engine, vec![delete("absent")]), Revision(1));
    assert_eq!(commit(&mut engine, vec![]), Revision(1));
    assert_eq!(told(&engine, 1), []);
}

#[test]
fn a_key_keeps_its_create_revision_until_it_is_deleted() {
    let mut engine = engine();
    commit(&mut engine, vec![put("a")]);
    commit(&mut engine, vec![put("a")]);
    let entry = engine.get(&key("a")).expect("it was put");
    assert_eq!((entry.create_revision, entry.mod_revision), (Revision(2), Revision(3)));
    commit(&mut engine, vec![delete("a")]);
    commit(&mut engine, vec![put("a")]);
    let entry = engine.get(&key("a")).expect("it was put");
    assert_eq!((entry.create_revision, entry.mod_revision), (Revision(5), Revision(5)));
}

#[test]
fn an_absent_key_compares_as_zero() {
    let mut engine = engine();
    let compares = vec![
        Compare::ModRevision(key("a"), Revision::NEVER),
        Compare::CreateRevision(key("a"), Revision::NEVER),
        Compare::Lease(key("a"), LeaseId::NONE),
    ];
    let txn = Txn { compares, then: vec![put("a")], otherwise: vec![put("b")] };
    assert!(engine.commit(&txn).expect("it is small").succeeded);
    assert!(!engine.commit(&txn).expect("it is small").succeeded);
    assert_eq!(told(&engine, 1), [event(2, "+a"), event(3, "+b")]);
}

#[test]
fn nested_compares_see_the_state_before_the_txn() {
    let mut engine = engine();
    let absent = vec![Compare::ModRevision(key("a"), Revision::NEVER)];
    let nested = Txn { compares: absent, then: vec![put("b")], otherwise: vec![put("c")] };
    let answer = engine.commit(&then(vec![put("a"), Op::Txn(nested.clone())]));
    assert_eq!(answer.expect("it is small").nested, [true]);
    let answer = engine.commit(&then(vec![Op::Txn(nested), Op::Txn(Txn::default())]));
    assert_eq!(answer.expect("it is small").nested, [false, true]);
    assert_eq!(told(&engine, 1), [event(2, "+a"), event(2, "+b"), event(3, "+c")]);
}

#[test]
fn a_key_put_and_deleted_in_sibling_txns_leaves_both_events() {
    let mut engine = engine();
    let siblings = [put("a"), delete("a")].map(|op| Op::Txn(then(vec![op])));
    commit(&mut engine, siblings.to_vec());
    assert_eq!(told(&engine, 1), [event(2, "+a"), event(2, "-a")]);
    assert_eq!(engine.get(&key("a")), None);
}

#[test]
fn a_dead_lease_refuses_the_whole_txn_if_its_branch_is_taken() {
    let mut engine = engine();
    let ops = vec![put("a"), leased("b", LeaseId(99))];
    assert_eq!(engine.commit(&then(ops.clone())), Err(CommitError::LeaseNotFound));
    assert_eq!(told(&engine, 1), []);
    let txn = Txn { otherwise: ops, ..then(vec![put("c")]) };
    assert!(engine.commit(&txn).is_ok());
}

#[test]
fn a_put_without_a_lease_detaches_the_key() {
    let mut engine = engine();
    let (lease, _) = engine.grant(seconds(5), Duration::ZERO).expect("it is short");
    commit(&mut engine, vec![leased("a", lease), leased("b", lease)]);
    commit(&mut engine, vec![put("a")]);
    assert!(engine.revoke(lease));
    assert_eq!(told(&engine, 3), [event(4, "-b")]);
}

#[test]
fn a_leases_end_deletes_its_keys_sorted_in_one_revision() {
    let mut engine = engine();
    let (first, _) = engine.grant(seconds(5), Duration::ZERO).expect("it is short");
    let (second, _) = engine.grant(seconds(4), Duration::ZERO).expect("it is short");
    commit(&mut engine, vec![leased("c", first), leased("a", first), leased("b", second)]);
    assert_eq!(engine.next_expiry(), Some(seconds(4)));
    assert_eq!(engine.expire(seconds(3)), []);
    assert_eq!(engine.expire(seconds(9)), [second, first]);
    let expected = [event(3, "-b"), event(4, "-a"), event(4, "-c")];
    assert_eq!(told(&engine, 2), expected);
    assert_eq!(engine.next_expiry(), None);
}

#[test]
fn a_lease_without_keys_ends_without_a_revision() {
    let mut engine = engine();
    let (lease, _) = engine.grant(seconds(5), Duration::ZERO).expect("it is short");
    assert!(engine.revoke(lease));
    assert!(!engine.revoke(lease));
    assert_eq!(engine.revision(), Revision(1));
}

#[test]
fn a_renewed_lease_has_its_whole_time_again() {
    let mut engine = engine();
    let (lease, ttl) = engine.grant(Duration::from_millis(4001), seconds(0)).expect("short");
    assert_eq!(ttl, seconds(5));
    assert_eq!(engine.renew(lease, seconds(4)), Some(seconds(5)));
    assert_eq!(engine.expire(seconds(8)), []);
    assert_eq!(engine.expire(seconds(9)), [lease]);
    assert_eq!(engine.renew(lease, seconds(9)), None);
}

#[test]
fn a_leases_time_has_bounds() {
    let mut engine = engine();
    let (_, ttl) = engine.grant(Duration::ZERO, Duration::ZERO).expect("it is lengthened");
    assert_eq!(ttl, seconds(2));
    assert!(engine.grant(seconds(9_000_000_001), Duration::ZERO).is_err());
}

#[test]
fn a_compacted_history_is_not_told() {
    let mut engine = engine();
    for name in ["a", "b", "c"] {
        commit(&mut engine, vec![put(name)]);
    }
    commit(&mut engine, vec![delete("a")]);
    engine.compact(Revision(3));
    let refused = engine.changes_after(Revision(2)).map(Iterator::count);
    assert_eq!(refused, Err(Compacted(Revision(3))));
    assert_eq!(told(&engine, 3), [event(4, "+c"), event(5, "-a")]);
    let snapshot = engine.snapshot();
    assert_eq!(snapshot.deletions, [Deletion { key: key("a"), revision: Revision(5) }]);
    assert_eq!(snapshot.deletions_since, Revision(3));
    engine.compact(Revision(99));
    assert_eq!(engine.snapshot().deletions_since, Revision(5));
}

#[test]
fn a_restored_engine_goes_on_with_fresh_leases_and_without_history() {
    let mut engine = engine();
    let (lease, ttl) = engine.grant(seconds(5), Duration::ZERO).expect("it is short");
    commit(&mut engine, vec![leased("a", lease)]);
    let snapshot = engine.snapshot();
    let state = State {
        cluster: engine.cluster(),
        revision: engine.revision(),
        lease_last: engine.lease_last(),
        leases: vec![(lease, ttl)],
        entries: snapshot.entries.clone(),
    };
    let mut restored = Engine::restore(Limits::default(), state, seconds(100));
    assert_eq!(restored.snapshot().entries, snapshot.entries);
    assert_eq!(restored.snapshot().deletions_since, Revision(2));
    assert_eq!(restored.next_expiry(), Some(seconds(105)));
    assert_ne!(restored.grant(seconds(5), seconds(100)).expect("it is short").0, lease);
    assert_eq!(restored.expire(seconds(105))[0], lease);
    assert_eq!(told(&restored, 2), [event(3, "-a")]);
}

fn operation() -> impl Strategy<Value = Op> {
    let name = prop_oneof![Just("a"), Just("b"), Just("c"), Just("d")];
    let leaf = (name, any::<bool>(), 0..4i64).prop_map(|(name, deletes, lease)| {
        if deletes { delete(name) } else { leased(name, LeaseId(lease)) }
    });
    leaf.prop_recursive(2, 8, 3, |inner| {
        (compare(), vec(inner.clone(), 0..3), vec(inner, 0..3)).prop_map(
            |(compare, then, otherwise)| Op::Txn(Txn { compares: vec![compare], then, otherwise }),
        )
    })
}

fn compare() -> impl Strategy<Value = Compare> {
    let name = prop_oneof![Just("a"), Just("b"), Just("c"), Just("d")];
    (name, 0..4, 0..12i64).prop_map(|(name, kind, number)| match kind {
        0 => Compare::ModRevision(key(name), Revision(number)),
        1 => Compare::CreateRevision(key(name), Revision(number)),
        2 => Compare::Value(key(name), key(if number % 2 == 0 { "value" } else { "" })),
        _ => Compare::Lease(key(name), LeaseId(number % 4)),
    })
}

proptest! {
    /// Replaying the history over an old snapshot gives the new one: nothing is skipped, told
    /// twice, or told other than it is stored.
    #[test]
    fn history_leads_from_any_snapshot_to_the_present(
        txns in vec((vec(compare(), 0..2), vec(operation(), 0..4), vec(operation(), 0..3)), 1..30),
        from in 0..30usize,
    ) {
        let mut engine = engine();
        for _ in 0..3 {
            engine.grant(seconds(5), Duration::ZERO).expect("it is short");
        }
        let mut old = engine.snapshot();
        for (index, (compares, then, otherwise)) in txns.into_iter().enumerate() {
            if index == from {
                old = engine.snapshot();
            }
            let before = engine.revision();
            let answer = engine.commit(&Txn { compares, then, otherwise });
            let told = engine.changes_after(before).expect("it is kept").count();
            prop_assert!(told <= 1);
            prop_assert_eq!(engine.revision().0, before.0 + told as i64);
            if let Ok(answer) = answer {
                prop_assert_eq!(answer.revision, engine.revision());
            } else {
                prop_assert_eq!(told, 0);
            }
            if index % 7 == 6 {
                engine.revoke(LeaseId(index as i64 % 3 + 1));
            }
        }
        let mut entries: BTreeMap<Key, KeyValue> =
            old.entries.into_iter().map(|entry| (entry.key.clone(), entry)).collect();
        for revision in engine.changes_after(old.revision).expect("it is kept") {
            for change in &revision.changes {
                match change {
                    Change::Put(entry) => {
                        prop_assert_eq!(entry.mod_revision, revision.revision);
                        entries.insert(entry.key.clone(), entry.clone());
                    }
                    Change::Delete(key) => prop_assert!(entries.remove(key).is_some()),
                }
            }
        }
        prop_assert_eq!(entries.into_values().collect::<Vec<_>>(), engine.snapshot().entries);
    }
}
