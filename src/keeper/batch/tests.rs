//! Batches by themselves: groups, fates, limits, and what keeps two batches apart.

use super::*;
use crate::keeper::keyspace::ShimId;
use crate::keeper::planner::{Test, Write};
use crate::keeper::request::Body;
use crate::keeper::txn::CommitError;
use crate::keeper::txn::Token;
use crate::keeper::zxid::{Revision, ZxidOffset};
use crate::store::embedded::engine::Engine;
use crate::store::embedded::limits::Limits as StoreLimits;
use proptest::prelude::*;

const NUMBER: BatchNumber = BatchNumber { shim: ShimId(1), lease: LeaseId::NONE, number: 1 };

fn node(path: &str) -> Slot {
    Slot::Node(path.into())
}

fn creates(path: &str) -> Slot {
    Slot::Creates(path.into())
}

fn plan(guards: &[Slot], writes: &[Slot], depends: &[Slot]) -> Plan {
    let test = Test::Unchanged(Revision::NEVER);
    let write = Write { value: Some(Bytes::from_static(b"v")), lease: LeaseId::NONE };
    Plan {
        guards: guards
            .iter()
            .map(|slot| Guard { slot: slot.clone(), test: test.clone() })
            .collect(),
        depends: depends.to_vec(),
        writes: writes.iter().map(|slot| (slot.clone(), write.clone())).collect(),
        outcome: Ok(Body::Empty),
        effects: Vec::new(),
        told: Vec::new(),
        offset: ZxidOffset::default(),
        must_wait: false,
        behind: false,
    }
}

fn claim(slot: Slot) -> Slot {
    Slot::Claim(Box::new(slot), NUMBER.shim)
}

fn builder(shape: Shape) -> Builder<&'static str> {
    Builder::new(shape, Limits::default())
}

fn keys(ops: &[Op]) -> Vec<String> {
    let name = |key: &Key| String::from_utf8_lossy(key).into_owned();
    let mut keys = Vec::new();
    for op in ops {
        match op {
            Op::Put { key, .. } | Op::Delete(key) => keys.push(name(key)),
            Op::Txn(nested) => keys.push(format!("[{}]", self::keys(&nested.then).join(" "))),
        }
    }
    keys
}

#[test]
fn a_write_waits_for_every_batch_that_guards_its_key() {
    let mut claims = Claims::default();
    let batches = [Token(1), Token(2)].map(|token| {
        let mut builder = builder(Shape::Flat);
        builder.join(None, "proves that /a exists", plan(&[node("/a")], &[], &[]));
        let (_, batch) = builder.finish(NUMBER);
        claims.add(token, &batch);
        batch
    });
    let write = plan(&[], &[node("/a")], &[]);
    assert_eq!(claims.in_the_way(&write), Some(Token(2)));
    claims.remove(Token(2), &batches[1]);
    assert_eq!(claims.in_the_way(&write), Some(Token(1)), "it must not wait for what is over");
    claims.remove(Token(1), &batches[0]);
    assert_eq!(claims.in_the_way(&write), None);
}

#[test]
fn batches_that_only_guard_a_key_run_side_by_side() {
    let mut claims = Claims::default();
    let mut first = builder(Shape::Flat);
    first.join(None, "writes", plan(&[node("/a")], &[node("/b")], &[]));
    let (_, batch) = first.finish(NUMBER);
    claims.add(Token(1), &batch);
    assert_eq!(claims.in_the_way(&plan(&[node("/a")], &[node("/c")], &[])), None);
    assert_eq!(claims.in_the_way(&plan(&[node("/b")], &[], &[])), Some(Token(1)), "reads");
    assert_eq!(claims.in_the_way(&plan(&[], &[node("/b")], &[])), Some(Token(1)), "writes");
}

#[test]
fn requests_that_rest_on_one_another_form_one_group() {
    let mut builder = builder(Shape::Nested);
    let (one, two) = (Some(SessionId(1)), Some(SessionId(2)));
    builder.join(one, "creates /a", plan(&[creates("/")], &[node("/a"), creates("/")], &[]));
    builder.join(two, "creates /x/b", plan(&[creates("/x")], &[node("/x/b")], &[]));
    builder.join(one, "of the same session", plan(&[node("/c")], &[node("/c")], &[]));
    builder.join(None, "rests on /a", plan(&[], &[node("/a/d")], &[node("/a")]));
    let (txn, _) = builder.finish(NUMBER);
    let expect = ["[n/a c/ n/c n/a/d]", "[n/x/b]", "l", "x0000000000000001"];
    assert_eq!(keys(&txn.then), expect);
    assert!(txn.compares.is_empty(), "a group's conflict must not take the others with it");
}

#[test]
fn groups_that_a_later_request_connects_become_one() {
    let mut builder = builder(Shape::Nested);
    builder.join(None, "first", plan(&[node("/a")], &[node("/a")], &[]));
    builder.join(None, "second", plan(&[node("/b")], &[node("/b")], &[]));
    builder.join(None, "both", plan(&[], &[node("/c")], &[node("/b"), node("/a")]));
    let (txn, batch) = builder.finish(NUMBER);
    assert_eq!(keys(&txn.then), ["[n/a n/b n/c]", "l", "x0000000000000001"]);
    let lost = batch.fates(|_| false);
    assert_eq!(lost, [Fate::Conflict; 3]);
}

#[test]
fn a_groups_fate_is_told_by_its_keys_and_not_by_its_claims() {
    let mut builder = builder(Shape::Nested);
    builder.join(None, "conflicts", plan(&[node("/a")], &[node("/a")], &[]));
    builder.claim(vec![claim(node("/a"))], LeaseId(1));
    builder.join(None, "takes effect", plan(&[node("/b")], &[node("/b")], &[]));
    builder.join(None, "fails", plan(&[node("/c")], &[], &[]));
    let claim = claim(node("/a")).key();
    let (txn, batch) = builder.finish(NUMBER);
    let changed = [claim, node("/b").key()];
    let fates = batch.fates(|key| changed.contains(key));
    assert_eq!(fates, [Fate::Conflict, Fate::Done, Fate::NoTrace]);
    let Some(Op::Txn(group)) = txn.then.first() else { panic!("the first group is nested") };
    assert_eq!(keys(&group.otherwise).len(), 1, "the claim is made when the group conflicts");
}

#[test]
fn a_key_is_claimed_once_however_many_want_it() {
    let mut builder = builder(Shape::Nested);
    for request in ["first", "second"] {
        builder.join(Some(SessionId(1)), request, plan(&[], &[creates("/p")], &[creates("/p")]));
        builder.claim(vec![claim(creates("/p"))], LeaseId(1));
    }
    let (txn, _) = builder.finish(NUMBER);
    let Some(Op::Txn(group)) = txn.then.first() else { panic!("the group is nested") };
    assert_eq!(keys(&group.otherwise), ["wc/p/0000000000000001"]);
}

#[test]
fn a_thousand_creates_under_one_parent_fit_into_one_txn() {
    let paths: Vec<Slot> = (0..1000).map(|number| node(&format!("/p/{number}"))).collect();
    let mut builder = builder(Shape::Flat);
    let multi = plan(&[creates("/p")], &paths, &[]);
    assert_eq!(builder.check(None, &multi, &[]), Ok(()));
    builder.join(None, "multi", multi);
    let (txn, _) = builder.finish(NUMBER);
    assert!(Engine::new(StoreLimits::default(), 1).commit(&txn).is_ok());
}

#[test]
fn a_thousand_guards_fit_into_no_txn() {
    let paths: Vec<Slot> = (0..1000).map(|number| node(&format!("/p/{number}"))).collect();
    assert_eq!(builder(Shape::Flat).check(None, &plan(&paths, &paths, &[]), &[]), Err(Full));
}

#[test]
fn nothing_joins_a_request_that_goes_alone() {
    let mut builder = Builder::alone(Limits::default());
    let small = plan(&[], &[node("/a")], &[]);
    assert_eq!(builder.check(None, &small, &[]), Ok(()));
    builder.join(None, "large", plan(&[], &[node("/b")], &[]));
    assert_eq!(builder.check(None, &small, &[]), Err(Full));
}

proptest! {
    /// A request is made of (guards, writes, whether it is of the same session as the one
    /// before, claims). Keys do not repeat, which makes the txn as large as it can be.
    #[test]
    fn what_fits_is_not_too_large_for_etcd(
        nested in any::<bool>(),
        requests in prop::collection::vec(
            (0..40_usize, 0..90_usize, any::<bool>(), 0..5_usize),
            1..60,
        ),
    ) {
        let shape = if nested { Shape::Nested } else { Shape::Flat };
        let mut builder = builder(shape);
        let (mut session, mut number) = (0, 0);
        for (guards, writes, same, claims) in requests {
            session += i64::from(!same);
            let mut fresh = |count: usize| -> Vec<Slot> {
                number += count;
                (number - count..number).map(|number| node(&format!("/{number}"))).collect()
            };
            let plan = plan(&fresh(guards), &fresh(writes), &[]);
            let claims: Vec<Slot> = fresh(claims).into_iter().map(claim).collect();
            let who = Some(SessionId(session));
            if builder.check(who, &plan, &claims).is_ok() {
                builder.join(who, "request", plan);
                builder.claim(claims, LeaseId::NONE);
            }
        }
        let (txn, _) = builder.finish(NUMBER);
        let result = Engine::new(StoreLimits::default(), 1).commit(&txn);
        prop_assert!(!matches!(result, Err(CommitError::TooLarge(_))), "{result:?}");
    }
}
