//! What each request guards: exactly what must still hold for its answer, or its failure, to be
//! right. `n/p@3` is "unchanged since revision 3", `n/p#3` "of the incarnation of 3", `n/p~7`
//! "on lease 7"; revision 0 is absence, `?` a revision that is yet to come.

use super::*;
use crate::keeper::error::ErrorCode::{
    BadVersion, InvalidAcl, NoAuth, NoChildrenForEphemerals, NoNode, NodeExists, NotEmpty,
};
use crate::keeper::request::{
    Check, Create, CreateOpcode, Delete, MultiOperation, MultiResult, SetAcl, SetData,
};
use crate::keeper::tree::Tree;
use crate::keeper::tree::record::{Kind, Record};
use jute::Acl;

const FENCE: SessionFence =
    SessionFence { session: SessionId(1), revision: Revision(9), lease: LeaseId(7) };

const SETTINGS: Settings = Settings {
    skip_acl: false,
    ttl_nodes: false,
    enforce_quota: false,
    offset: ZxidOffset(0),
    shim: ShimId(1),
    shim_lease: LeaseId(8),
};

/// `/p` (created 3, set 4, two children created, last at 6, ACL set at 5), `/p/c`, `/e` owned by
/// the session, `/leaf` which never had a child, and `/shut`, where nobody may do anything.
fn tree() -> Tree {
    let mut tree = Tree::new();
    let record = |kind, created: i64, node: i64, creates: i64, acl: i64| {
        let revision = |number: i64| Revision(number);
        let mut record = Record::born(kind, revision(created));
        record.more().creates = i32::from(creates > 0) * 2;
        record.change_keys(|keys| {
            keys.node = revision(node);
            keys.creates = revision(creates);
            keys.acl = revision(acl);
        });
        record
    };
    tree.insert("/p", record(Kind::Persistent, 3, 4, 6, 5));
    tree.insert("/p/c", record(Kind::Persistent, 6, 6, 0, 0));
    tree.insert("/leaf", record(Kind::Persistent, 2, 2, 0, 0));
    let mut shut = record(Kind::Persistent, 2, 2, 0, 2);
    let id = jute::Id { scheme: Some("digest".into()), id: Some("u:h".into()) };
    shut.more().acl = Some([Acl { perms: 31, id }].into());
    tree.insert("/shut", shut);
    let mut ephemeral = record(Kind::Ephemeral(FENCE.session), 8, 8, 0, 0);
    ephemeral.change_keys(|keys| keys.lease = FENCE.lease);
    tree.insert("/e", ephemeral);
    tree
}

fn plan_on(overlay: &mut Overlay<'_>, operation: &Operation, request: u32) -> Plan {
    let writer = Writer { session: Some(FENCE), identities: &[], unix_ms: 1 };
    Planner::new(overlay, &SETTINGS, writer, RequestIndex(request)).plan(operation)
}

fn plan(operation: &Operation) -> Plan {
    let tree = tree();
    plan_on(&mut Overlay::new(&tree), operation, 0)
}

fn key(slot: &Slot) -> String {
    match slot {
        Slot::Session(session) => format!("s{}", session.0),
        other => String::from_utf8_lossy(&other.key()).into_owned(),
    }
}

fn guards(plan: &Plan) -> String {
    let number = |revision: Revision| match revision {
        Revision::PENDING => "?".to_owned(),
        revision => revision.to_string(),
    };
    let one = |guard: &Guard| {
        let test = match &guard.test {
            Test::Unchanged(revision) => format!("@{}", number(*revision)),
            Test::Created(revision) => format!("#{}", number(*revision)),
            Test::Lease(lease) => format!("~{}", lease.0),
            Test::Value(value) => format!("={value:?}"),
        };
        key(&guard.slot) + &test
    };
    plan.guards.iter().map(one).collect::<Vec<_>>().join(" ")
}

fn writes(plan: &Plan) -> String {
    let one = |(slot, write): (&Slot, &Write)| {
        let sign = if write.value.is_some() { '+' } else { '-' };
        let lease = if write.lease == FENCE.lease { "*" } else { "" };
        format!("{sign}{}{lease}", key(slot))
    };
    plan.writes.iter().map(one).collect::<Vec<_>>().join(" ")
}

fn succeeds(operation: &Operation, expected_guards: &str, expected_writes: &str) {
    let plan = plan(operation);
    assert!(plan.outcome.is_ok(), "{operation:?}: {:?}", plan.outcome);
    assert_eq!(guards(&plan), expected_guards, "{operation:?}");
    assert_eq!(writes(&plan), expected_writes, "{operation:?}");
}

fn fails(operation: &Operation, code: ErrorCode, expected_guards: &str) {
    let plan = plan(operation);
    assert_eq!(plan.outcome, Err(code), "{operation:?}");
    assert_eq!(guards(&plan), expected_guards, "{operation:?}");
    assert_eq!(writes(&plan), "", "{operation:?}");
}

fn acl(perms: i32) -> Vec<Acl> {
    let id = jute::Id { scheme: Some("world".into()), id: Some("anyone".into()) };
    vec![Acl { perms, id }]
}

fn creation(path: &str, flags: i32, perms: i32) -> Create {
    Create {
        opcode: CreateOpcode::Create,
        path: Some(path.into()),
        data: None,
        acl: Some(acl(perms)),
        flags,
        ttl_ms: -1,
    }
}

fn create(path: &str) -> Operation {
    Operation::Create(creation(path, 0, 31))
}

fn delete(path: &str, version: i32) -> Operation {
    Operation::Delete(Delete { path: Some(path.into()), version })
}

fn set(path: &str, version: i32) -> Operation {
    Operation::SetData(SetData { path: Some(path.into()), data: None, version })
}

fn set_acl(path: &str, version: i32) -> Operation {
    Operation::SetAcl(SetAcl { path: Some(path.into()), acl: Some(acl(1)), version })
}

#[test]
fn a_create_rests_on_its_parents_counter_and_acl() {
    succeeds(&create("/p/new"), "s1@9 a/p@5 c/p@6", "+n/p/new +c/p");
    let ephemeral = Operation::Create(creation("/p/new", 3, 1));
    let expected = "+a/p/new0000000002* +n/p/new0000000002* +c/p";
    succeeds(&ephemeral, "s1@9 a/p@5 c/p@6", expected);
}

#[test]
fn a_first_child_rests_on_its_parents_incarnation_too() {
    succeeds(&create("/leaf/new"), "s1@9 a/leaf@0 c/leaf@0 n/leaf#2", "+n/leaf/new +c/leaf");
    succeeds(&create("/new"), "s1@9 a/@0 c/@0", "+n/new +c/");
}

#[test]
fn a_create_that_fails_proves_the_check_that_fails() {
    fails(&create("/x/new"), NoNode, "s1@9 n/x@0");
    fails(&create("/shut/new"), NoAuth, "s1@9 a/shut@2");
    fails(&create("/p/c"), NodeExists, "s1@9 a/p@5 n/p/c#6");
    fails(&create("/e/new"), NoChildrenForEphemerals, "s1@9 a/e@0 n/e@8");
    let no_acl = Operation::Create(Create { acl: Some(Vec::new()), ..creation("/x/new", 0, 1) });
    fails(&no_acl, InvalidAcl, "s1@9");
}

#[test]
fn a_delete_proves_that_nothing_else_is_known_of_the_znode() {
    succeeds(&delete("/leaf", -1), "s1@9 a/@0 n/leaf#2 c/leaf@0 p/leaf@0 a/leaf@0", "-n/leaf +p/");
    succeeds(&delete("/e", 0), "s1@9 a/@0 n/e@8 c/e@0 p/e@0 a/e@0", "-n/e +p/");
}

#[test]
fn a_delete_that_fails_proves_the_check_that_fails() {
    fails(&delete("/x/y", -1), NoNode, "s1@9 n/x@0");
    fails(&delete("/p/x", -1), NoNode, "s1@9 a/p@5 n/p/x@0");
    fails(&delete("/shut/x", -1), NoAuth, "s1@9 a/shut@2");
    fails(&delete("/p", 7), BadVersion, "s1@9 a/@0 n/p@4");
    fails(&delete("/p", -1), NotEmpty, "s1@9 a/@0 n/p/c#6");
}

#[test]
fn a_change_rests_on_the_znode_and_its_acl() {
    succeeds(&set("/p", 0), "s1@9 a/p@5 n/p@4", "+n/p");
    succeeds(&set("/e", -1), "s1@9 a/e@0 n/e@8", "+n/e*");
    succeeds(&set_acl("/e", -1), "s1@9 a/e@0 n/e@8", "+a/e*");
    fails(&set("/p", 3), BadVersion, "s1@9 a/p@5 n/p@4");
    fails(&set_acl("/p", 3), BadVersion, "s1@9 a/p@5 n/p@4");
    fails(&set("/shut", 3), NoAuth, "s1@9 a/shut@2");
    fails(&set("/x", 3), NoNode, "s1@9 n/x@0");
}

#[test]
fn a_multi_that_fails_proves_everything_up_to_the_failure() {
    let multi = Operation::Multi(vec![
        MultiOperation::Check(Check { path: Some("/p".into()), version: 0 }),
        MultiOperation::Create(creation("/leaf/new", 0, 31)),
        MultiOperation::Create(creation("/leaf/new", 0, 31)),
        MultiOperation::Check(Check { path: Some("/e".into()), version: 0 }),
    ]);
    let plan = plan(&multi);
    assert_eq!(guards(&plan), "s1@9 a/p@5 n/p@4 a/leaf@0 c/leaf@0 n/leaf#2");
    assert_eq!(writes(&plan), "");
    let codes = [None, None, Some(NodeExists), Some(ErrorCode::RuntimeInconsistency)];
    let expected = codes.map(MultiResult::Error).to_vec();
    assert_eq!(plan.outcome, Ok(Body::Multi(expected)));
}

#[test]
fn what_the_batch_itself_has_written_is_not_guarded() {
    let tree = tree();
    let mut overlay = Overlay::new(&tree);
    plan_on(&mut overlay, &create("/new"), 0);
    let child = plan_on(&mut overlay, &create("/new/x"), 1);
    assert_eq!(guards(&child), "s1@9 a/new@0 c/new@0");
    assert_eq!(child.depends, [Slot::Node("/new".into())]);
    assert!(!child.must_wait);
    let exists = plan_on(&mut overlay, &create("/new"), 2);
    assert_eq!(exists.outcome, Err(NodeExists));
    assert_eq!(guards(&exists), "s1@9 a/@0");
}

#[test]
fn what_only_batches_change_is_not_guarded_where_the_batch_proves_it() {
    let proved = |operation: &Operation| {
        let tree = tree();
        let mut overlay = Overlay::new(&tree);
        overlay.prove(true);
        guards(&plan_on(&mut overlay, operation, 0))
    };
    // The session is on a lease, and so is /e; nothing else is.
    let persistent = [set("/p", 0), set("/p", 3), create("/p/new"), create("/p/c"), set("/x", 0)];
    for operation in persistent.iter().chain(&[delete("/leaf", -1), delete("/p", -1)]) {
        assert_eq!(proved(operation), "s1@9", "{operation:?}");
    }
    for operation in [set("/e", -1), set("/e", 7), delete("/e", 0), create("/e/new")] {
        assert_eq!(proved(&operation), "s1@9 n/e@8", "{operation:?}");
    }
    let tree = tree();
    let mut overlay = Overlay::new(&tree);
    overlay.prove(true);
    let writer = Writer { session: Some(FENCE), identities: &[], unix_ms: 1 };
    let planner = Planner::new(&mut overlay, &SETTINGS, writer, RequestIndex(0));
    assert_eq!(guards(&planner.plan_close()), "s1@9 n/e~7");
}

#[test]
fn a_second_change_of_a_znode_waits_and_counters_merge() {
    let tree = tree();
    let mut overlay = Overlay::new(&tree);
    plan_on(&mut overlay, &set("/p", -1), 0);
    assert!(plan_on(&mut overlay, &set("/p", -1), 1).must_wait);
    let tree = self::tree();
    let mut overlay = Overlay::new(&tree);
    plan_on(&mut overlay, &create("/p/x"), 0);
    let second = plan_on(&mut overlay, &create("/p/y"), 1);
    assert!(!second.must_wait);
    assert_eq!(second.depends, [Slot::Creates("/p".into()), Slot::Creates("/p".into())]);
}

#[test]
fn a_close_deletes_what_is_on_its_own_lease_alone() {
    let tree = tree();
    let mut overlay = Overlay::new(&tree);
    let writer = Writer { session: Some(FENCE), identities: &[], unix_ms: 1 };
    let planner = Planner::new(&mut overlay, &SETTINGS, writer, RequestIndex(0));
    let plan = planner.plan_close();
    assert_eq!(guards(&plan), "s1@9 n/e~7 a/e@0");
    assert_eq!(writes(&plan), "-n/e +p/ -s1");
}

#[test]
fn a_znode_created_anew_in_a_multi_says_so_and_resets_its_counter() {
    let multi = Operation::Multi(vec![
        MultiOperation::Delete(Delete { path: Some("/leaf".into()), version: -1 }),
        MultiOperation::Create(creation("/leaf", 0, 31)),
    ]);
    let plan = plan(&multi);
    assert_eq!(guards(&plan), "s1@9 a/@0 n/leaf#2 c/leaf@0 p/leaf@0 a/leaf@0 c/@0");
    let steps = "+x0000000000000001/0000000000000000";
    assert_eq!(writes(&plan), format!("+n/leaf +p/ +c/leaf +c/ {steps}"));
    let put = &plan.writes[&Slot::Node("/leaf".into())].value;
    let value = put.clone().and_then(crate::keeper::keyspace::NodeValue::decode);
    assert_eq!(value.map(|value| value.birth), Some(crate::keeper::keyspace::Birth::Here));
}
