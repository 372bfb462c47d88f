//! A write and the tree give a reply, guards and writes; nothing is changed but the overlay.
//!
//! Checks stand in ZooKeeper's order (`PrepRequestProcessor.pRequest2Txn`). A failure is planned
//! like a success: its guards prove that the check fails.

pub mod change;
mod create;
mod multi;
pub mod session;

use crate::keeper::acl::{self, Identity};
use crate::keeper::error::ErrorCode;
use crate::keeper::keyspace::{ShimId, Slot};
use crate::keeper::overlay::{Mark, Overlay, RequestIndex};
use crate::keeper::request::{Body, Operation, SessionId};
use crate::keeper::tree::Path;
use crate::keeper::tree::quota::{self, HardLimits, Usage};
use crate::keeper::tree::record::Record;
use crate::keeper::txn::{Compare, LeaseId, Op};
use crate::keeper::zxid::{Revision, ZxidOffset};
use bytes::Bytes;
use indexmap::{IndexMap, IndexSet};
use rustc_hash::FxBuildHasher;
use std::time::Duration;

/// What must hold of one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Guard {
    /// The key.
    pub slot: Slot,
    /// What must hold.
    pub test: Test,
}

/// See [`Guard`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Test {
    /// Unchanged since this revision; [`Revision::NEVER`] is absent.
    Unchanged(Revision),
    /// The same incarnation.
    Created(Revision),
    /// On this lease.
    Lease(LeaseId),
    /// What a batch under way makes of it, and nobody since.
    Value(Bytes),
}

impl Guard {
    /// The compare for etcd.
    pub fn compare(&self) -> Compare {
        let key = self.slot.key();
        match &self.test {
            &Test::Unchanged(revision) => Compare::ModRevision(key, revision),
            &Test::Created(revision) => Compare::CreateRevision(key, revision),
            &Test::Lease(lease) => Compare::Lease(key, lease),
            Test::Value(value) => Compare::Value(key, value.clone()),
        }
    }
}

/// What becomes of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The new value; `None` deletes.
    pub value: Option<Bytes>,
    /// The lease, for a put.
    pub lease: LeaseId,
}

impl Write {
    /// The operation for etcd.
    pub fn op(&self, slot: &Slot) -> Op {
        match &self.value {
            Some(value) => Op::Put { key: slot.key(), value: value.clone(), lease: self.lease },
            None => Op::Delete(slot.key()),
        }
    }
}

/// Writes by key, in the order in which watches are told of them.
pub type Writes = IndexMap<Slot, Write, FxBuildHasher>;

/// Guards, each once: the operations of a multi often rest on the same key, and etcd takes few
/// compares in a txn.
pub type Guards = IndexSet<Guard, FxBuildHasher>;

/// What a write of a client, or of this shim, will do.
#[derive(Debug)]
pub struct Plan {
    /// What must hold, except of keys that the batch itself has written before.
    pub guards: Guards,
    /// Keys that the plan rests on and the batch itself has written before.
    pub depends: Vec<Slot>,
    /// What is written. Empty for a failure.
    pub writes: Writes,
    /// The reply; zxids of this very txn are [`crate::keeper::zxid::Zxid::PENDING`].
    pub outcome: Result<Body, ErrorCode>,
    /// Which znodes come and go, in order. Empty for a failure.
    pub effects: Vec<Effect>,
    /// The Stats in the reply whose children are counted once the txn is applied, in order.
    pub told: Vec<Told>,
    /// How the zxids in the reply were made.
    pub offset: ZxidOffset,
    /// It writes what an earlier request of the batch writes, and must wait for the next one.
    pub must_wait: bool,
    /// It rests on something that is under way and cannot be proved: it must wait for that.
    pub behind: bool,
}

/// A znode that a plan makes or removes, as the Stat of its parent shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It is created.
    Created(Path),
    /// It is deleted.
    Deleted(Path),
}

/// A Stat in a reply, of a znode whose children may change before the plan is applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The znode.
    pub path: Path,
    /// So many of the plan's effects come before it.
    pub after: usize,
}

/// What is the same for all requests of a shim.
#[derive(Clone, Debug)]
pub struct Settings {
    /// See [`crate::keeper::Options`].
    pub skip_acl: bool,
    /// See [`crate::keeper::Options`].
    pub ttl_nodes: bool,
    /// See [`crate::keeper::Options`].
    pub enforce_quota: bool,
    /// How revisions become zxids.
    pub offset: ZxidOffset,
    /// This shim.
    pub shim: ShimId,
    /// The shim's lease, which its own keys are on.
    pub shim_lease: LeaseId,
}

/// Who writes, and when.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    /// The session and what guards it; `None` is this shim itself.
    pub session: Option<SessionFence>,
    /// What the session's connection was when the request was read.
    pub identities: &'a [Identity],
    /// ctime and mtime.
    pub unix_ms: i64,
}

/// A session as a guard sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionFence {
    /// Its id.
    pub session: SessionId,
    /// Its key's mod_revision.
    pub revision: Revision,
    /// Its lease.
    pub lease: LeaseId,
}

/// Plans one request onto an overlay.
#[derive(Debug)]
pub struct Planner<'p, 't> {
    overlay: &'p mut Overlay<'t>,
    settings: &'p Settings,
    writer: Writer<'p>,
    request: RequestIndex,
    /// Where the overlay was before this request.
    begun: Mark,
    plan: Plan,
    /// Keys that this request writes and an earlier one of the batch has written.
    taken_over: Vec<Slot>,
    /// It rests on, or writes, what a batch under way writes.
    follows: bool,
}

impl<'p, 't> Planner<'p, 't> {
    /// A planner for one request. The overlay keeps what is planned; take it back by its mark if
    /// the plan is not used.
    pub fn new(
        overlay: &'p mut Overlay<'t>,
        settings: &'p Settings,
        writer: Writer<'p>,
        request: RequestIndex,
    ) -> Self {
        let plan = Plan {
            guards: Guards::default(),
            depends: Vec::new(),
            writes: Writes::default(),
            outcome: Ok(Body::Empty),
            effects: Vec::new(),
            told: Vec::new(),
            offset: settings.offset,
            must_wait: false,
            behind: false,
        };
        let (begun, taken_over) = (overlay.mark(), Vec::new());
        let follows = false;
        let mut planner =
            Self { overlay, settings, writer, request, begun, plan, taken_over, follows };
        if let Some(fence) = writer.session {
            planner.guard(Slot::Session(fence.session), Test::Unchanged(fence.revision));
        }
        planner
    }

    /// Plan a client's write.
    ///
    /// # Panics
    /// If the operation is not a write.
    pub fn plan(mut self, operation: &Operation) -> Plan {
        let mark = self.overlay.mark();
        let outcome = match operation {
            Operation::Create(create) => self.plan_create(create),
            Operation::Delete(delete) => self.plan_delete(delete).map(|()| Body::Empty),
            Operation::SetData(set) => self.plan_set_data(set).map(|(_, stat)| Body::Stat(stat)),
            Operation::SetAcl(set) => self.plan_set_acl(set),
            Operation::Multi(operations) => self.plan_multi(operations),
            other => unreachable!("{other:?} is not a write"),
        };
        if outcome.is_err() {
            self.take_back(mark);
        }
        // Its net result is found by what the tree holds.
        self.plan.behind |= self.follows && matches!(operation, Operation::Multi(_));
        self.plan.outcome = outcome;
        self.plan
    }

    /// A failure changes nothing; what it rests on stays.
    fn take_back(&mut self, mark: Mark) {
        self.overlay.roll_back(mark);
        self.plan.writes.clear();
        self.plan.effects.clear();
        self.plan.told.clear();
    }

    /// The reply carries a znode's Stat as it is now.
    fn tell(&mut self, path: &Path) {
        self.plan.told.push(Told { path: path.clone(), after: self.plan.effects.len() });
    }

    fn guard(&mut self, slot: Slot, test: Test) {
        if self.overlay.writer(&slot).is_some() {
            self.plan.depends.push(slot);
            return;
        }
        let ahead = self.overlay.value_ahead(&slot);
        self.follows |= ahead.is_some();
        match ahead {
            Some(value) => self.guard_ahead(slot, test, value),
            None => self.rest_on(Guard { slot, test }),
        }
    }

    fn rest_on(&mut self, guard: Guard) {
        if !self.is_proved(&guard) {
            self.plan.guards.insert(guard);
        }
    }

    /// The batch proves it by itself, since only a batch changes it: see [`Overlay::prove`].
    fn is_proved(&self, guard: &Guard) -> bool {
        let (Slot::Node(path) | Slot::Creates(path) | Slot::Acl(path) | Slot::Pzxid(path)) =
            &guard.slot
        else {
            return false;
        };
        let leased = || self.overlay.find(path).is_some_and(|record| record.keys().is_leased());
        let absent = guard.test == Test::Unchanged(Revision::NEVER);
        self.overlay.is_proved() && (absent || !leased())
    }

    /// A guard of a key that a batch under way writes: its revision is not known, so its value
    /// must tell that nobody has written it since. The number of children ever created only grows
    /// as long as the parent is the same; the value of a znode tells all that a plan rests on.
    fn guard_ahead(&mut self, slot: Slot, test: Test, value: Option<&Bytes>) {
        /// A longer one would have to be sent twice.
        const VALUE_MAX: usize = 4096;
        let incarnation = |planner: &Self, path: &Path| {
            let record = planner.overlay.find(path)?;
            let (keys, created) = (record.keys(), record.created());
            let known = keys.node_created != Revision::PENDING && created != Revision::PENDING;
            known.then_some(keys)
        };
        let proved = match (&slot, value, &test) {
            (_, Some(_), Test::Created(created)) if *created != Revision::PENDING => Some(test),
            (Slot::Node(_), None, Test::Unchanged(_)) => Some(Test::Unchanged(Revision::NEVER)),
            (Slot::Creates(path), Some(value), Test::Unchanged(_)) => {
                incarnation(self, path).map(|keys| {
                    self.guard_exists(path, keys);
                    Test::Value(value.clone())
                })
            }
            (Slot::Node(path), Some(value), Test::Unchanged(_)) if value.len() <= VALUE_MAX => {
                incarnation(self, path).map(|_| Test::Value(value.clone()))
            }
            _ => None,
        };
        match proved {
            Some(test) => self.rest_on(Guard { slot, test }),
            None => self.plan.behind = true,
        }
    }

    fn write(&mut self, slot: Slot, value: Option<Bytes>, lease: LeaseId) {
        if let Some(writer) = self.overlay.writer(&slot) {
            let merges = matches!(slot, Slot::Creates(_) | Slot::Pzxid(_));
            if writer != self.request {
                self.plan.must_wait |= !merges;
                self.taken_over.push(slot.clone());
            }
            self.plan.depends.push(slot.clone());
        }
        self.follows |= self.overlay.value_ahead(&slot).is_some();
        self.overlay.mark_written(&slot, self.request);
        self.plan.writes.insert(slot, Write { value, lease });
    }

    fn delete_key(&mut self, slot: Slot, revision: Revision) {
        if revision != Revision::NEVER {
            self.write(slot, None, LeaseId::NONE);
        }
    }

    fn permits(&self, record: &Record, wanted: i32) -> bool {
        let Some(acl) = record.acl() else { return true };
        self.settings.skip_acl || acl::permits(acl, wanted, self.writer.identities)
    }

    /// Guard that a znode still has the ACL that was looked at.
    fn guard_acl(&mut self, path: &Path, record_acl: Revision) {
        self.guard(Slot::Acl(path.clone()), Test::Unchanged(record_acl));
    }

    /// Hard limits hold for the deepest subtree with a quota, if it has its statistics. What they
    /// are, and how much there is, is as it was before the whole request: the operations of a
    /// multi do not see each other here. The verdict comes from the tree and is not proved: two
    /// shims may together exceed a limit. Source: `ZooKeeperServer.checkQuota`, which asks the
    /// database and not the changes that are outstanding.
    fn check_quota(&self, path: &str, change: Usage) -> Result<(), ErrorCode> {
        if !self.settings.enforce_quota {
            return Ok(());
        }
        let tree = self.overlay.tree();
        let Some((root, usage)) = tree.quotas().deepest(path) else { return Ok(()) };
        let limits = self.overlay.find_as_of(self.begun, &quota::limits_of(root));
        let text = limits.and_then(|limits| limits.data.as_deref()).unwrap_or_default();
        let limits = HardLimits::parse(text).map_err(|_| ErrorCode::MarshallingError)?;
        if self.overlay.find_as_of(self.begun, &quota::stats_of(root)).is_none() {
            return Ok(());
        }
        let planned = self.overlay.planned_usage(self.begun, root);
        // What is already exceeded keeps nobody from a change that does not count.
        let exceeds =
            |limit: i64, now: i64, more: i64| limit > -1 && more != 0 && now + more > limit;
        let count = exceeds(limits.count, usage.count + planned.count, change.count);
        let bytes = exceeds(limits.bytes, usage.bytes + planned.bytes, change.bytes);
        if count || bytes { Err(ErrorCode::QuotaExceeded) } else { Ok(()) }
    }

    fn guard_absent(&mut self, path: &str) {
        let path = self.overlay.share(path);
        self.guard(Slot::Node(path), Test::Unchanged(Revision::NEVER));
    }
}

/// Whether the session may be timed at all; a guard against a clock that runs away.
pub fn clamp_timeout(wanted_ms: i32, min: Duration, max: Duration) -> Duration {
    Duration::from_millis(u64::try_from(wanted_ms).unwrap_or(0)).clamp(min, max)
}

#[cfg(test)]
mod guards;
#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::request::{
        Create, CreateOpcode, Delete, MultiOperation, MultiResult, SetData,
    };
    use crate::keeper::tree::record::Kind;
    use crate::keeper::tree::{self, Tree};

    fn create(path: &str) -> Create {
        Create {
            opcode: CreateOpcode::Create,
            path: Some(path.into()),
            data: None,
            acl: Some(tree::open_acl()),
            flags: 0,
            ttl_ms: -1,
        }
    }

    fn settings() -> Settings {
        Settings {
            skip_acl: false,
            ttl_nodes: false,
            enforce_quota: false,
            offset: ZxidOffset::default(),
            shim: ShimId(1),
            shim_lease: LeaseId::NONE,
        }
    }

    #[test]
    fn a_thousand_creates_under_one_parent_rest_on_few_keys() {
        let create = |number: i32| MultiOperation::Create(create(&format!("/n{number}")));
        let tree = Tree::new();
        let mut overlay = Overlay::new(&tree);
        let settings = settings();
        let writer = Writer { session: None, identities: &[], unix_ms: 0 };
        let planner = Planner::new(&mut overlay, &settings, writer, RequestIndex(0));
        let plan = planner.plan(&Operation::Multi((0..1000).map(create).collect()));
        assert!(matches!(plan.outcome, Ok(Body::Multi(_))), "{:?}", plan.outcome);
        assert_eq!(plan.writes.len(), 1001, "the znodes and the parent's count");
        let on: Vec<_> = plan.guards.iter().map(|guard| guard.slot.key()).collect();
        assert!(on.len() < 5, "{on:?}");
    }

    fn with_data(data: &'static str) -> Record {
        Record::blank(Kind::Persistent).with_data(data)
    }

    /// `/q` with these limits, and without statistics.
    fn limited(limits: &'static str) -> Tree {
        let mut tree = Tree::new();
        tree.insert("/q", with_data(""));
        tree.insert("/zookeeper/quota/q", with_data(""));
        tree.insert(&quota::limits_of("/q"), with_data(limits));
        tree
    }

    fn outcome_of(tree: &Tree, operation: &Operation) -> Result<Body, ErrorCode> {
        let settings = Settings { enforce_quota: true, ..settings() };
        let mut overlay = Overlay::new(tree);
        let writer = Writer { session: None, identities: &[], unix_ms: 0 };
        Planner::new(&mut overlay, &settings, writer, RequestIndex(0)).plan(operation).outcome
    }

    #[test]
    fn limits_without_statistics_are_not_enforced() {
        let mut tree = limited("count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=1");
        let outcome =
            |tree: &Tree| outcome_of(tree, &Operation::Create(create("/q/a"))).map(|_| ());
        assert_eq!(outcome(&tree), Ok(()));
        tree.insert(&quota::stats_of("/q"), with_data(""));
        assert_eq!(outcome(&tree), Err(ErrorCode::QuotaExceeded));
    }

    #[test]
    fn operations_of_a_multi_are_held_to_the_usage_before_it() {
        let mut tree = limited("countHardLimit=2");
        tree.insert(&quota::stats_of("/q"), with_data(""));
        let create = |path: &str| MultiOperation::Create(create(path));
        let twice = Operation::Multi(vec![create("/q/a"), create("/q/b")]);
        let Ok(Body::Multi(results)) = outcome_of(&tree, &twice) else { panic!("it is a multi") };
        assert!(matches!(results[..], [MultiResult::Create(_), MultiResult::Create(_)]));
        tree.insert("/q/c", with_data(""));
        let delete = Delete { path: Some("/q/c".into()), version: -1 };
        let instead = Operation::Multi(vec![MultiOperation::Delete(delete), create("/q/a")]);
        let codes = [None, Some(ErrorCode::QuotaExceeded)].map(MultiResult::Error);
        assert_eq!(outcome_of(&tree, &instead), Ok(Body::Multi(codes.to_vec())));
    }

    #[test]
    fn a_limit_that_is_exceeded_stops_only_what_moves_its_figure() {
        let mut tree = limited("byteHardLimit=3");
        tree.insert(&quota::stats_of("/q"), with_data(""));
        tree.insert("/q/a", with_data("12345"));
        let set = |data: &'static str| {
            let data = Some(Bytes::from_static(data.as_bytes()));
            let set = SetData { path: Some("/q/a".into()), data, version: -1 };
            outcome_of(&tree, &Operation::SetData(set)).map(|_| ())
        };
        assert_eq!((set("54321"), set("123")), (Ok(()), Ok(())));
        assert_eq!(set("1234"), Err(ErrorCode::QuotaExceeded));
        assert!(outcome_of(&tree, &Operation::Create(create("/q/b"))).is_ok());
    }
}
