//! What waits becomes one txn (group commit), and what is under way is remembered.
//!
//! A flat batch stands or falls as one. A nested batch has a txn for each group of requests that
//! rest on one another, so that a group's conflict harms no other.

mod base;
mod claims;
mod room;

pub use base::{Base, BatchNumber};
pub use claims::{Claims, claimable};
pub use room::{Limits, Room};

use crate::keeper::batch::base::BOOKKEEPING_PUTS;
use crate::keeper::keyspace::Slot;
use crate::keeper::overlay::RequestIndex;
use crate::keeper::planner::{Guard, Plan, Write, Writes};
use crate::keeper::request::SessionId;
use crate::keeper::txn::{Key, LeaseId, Op, Txn};
use bytes::Bytes;
use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::time::Duration;

/// Whether one group's conflict takes all others with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// All or nothing: the cheapest.
    Flat,
    /// Each group for itself.
    Nested,
}

/// A request that has joined a batch.
#[derive(Debug)]
pub struct Entry<W> {
    /// What it is, for whoever sent the batch.
    pub work: W,
    /// How it was planned; its guards and writes are the group's now.
    pub plan: Plan,
    /// It writes something.
    pub writes: bool,
    group: usize,
}

#[derive(Debug, Default)]
struct Group {
    guards: IndexSet<Guard, FxBuildHasher>,
    writes: Writes,
    /// Written if the guards do not hold.
    claims: IndexSet<Slot, FxBuildHasher>,
    merged_into: Option<usize>,
}

impl Group {
    fn claim_ops(&self, lease: LeaseId) -> Vec<Op> {
        let claim = |slot: &Slot| Op::Put { key: slot.key(), value: Bytes::new(), lease };
        self.claims.iter().map(claim).collect()
    }
}

/// A batch in the making.
#[derive(Debug)]
pub struct Builder<W> {
    shape: Shape,
    limits: Limits,
    groups: Vec<Group>,
    entries: Vec<Entry<W>>,
    bytes: usize,
    guards: usize,
    writes: usize,
    claims: usize,
    /// Nothing joins the first request.
    alone: bool,
    base: Base,
    of_session: FxHashMap<SessionId, usize>,
    of_slot: FxHashMap<Slot, usize>,
}

/// A request does not fit beside those that have joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl<W> Builder<W> {
    /// An empty batch.
    pub fn new(shape: Shape, limits: Limits) -> Self {
        Self {
            shape,
            limits,
            groups: Vec::new(),
            entries: Vec::new(),
            bytes: 0,
            guards: 0,
            writes: 0,
            claims: 0,
            alone: false,
            base: Base::Nothing,
            of_session: FxHashMap::default(),
            of_slot: FxHashMap::default(),
        }
    }

    /// An empty batch for one large request: if that is too much, it is to blame.
    pub fn alone(limits: Limits) -> Self {
        Self { alone: true, ..Self::new(Shape::Flat, limits) }
    }

    /// The batch holds only if this does: one guard more.
    pub fn rest_on(&mut self, base: Base) {
        self.base = base;
    }

    /// The number of the next request.
    pub fn next_index(&self) -> RequestIndex {
        RequestIndex(u32::try_from(self.entries.len()).unwrap_or(u32::MAX))
    }

    /// How many requests have joined.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Nothing has joined.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether a plan fits, with what it claims. A plan that does not fit into an empty batch
    /// never will.
    pub fn check(
        &self,
        session: Option<SessionId>,
        plan: &Plan,
        claims: &[Slot],
    ) -> Result<(), Full> {
        if self.alone && !self.is_empty() {
            return Err(Full);
        }
        let added = plan_bytes(plan) + claims_bytes(claims);
        let fits = match self.shape {
            Shape::Flat => {
                let own = usize::from(self.base != Base::Nothing);
                let level = (own + self.guards + plan.guards.len()).max(self.claims + claims.len());
                let writes = self.writes + plan.writes.len() + claims.len();
                level <= self.limits.operations_max && writes <= self.limits.writes_max(level)
            }
            Shape::Nested => {
                let half = self.limits.operations_max / 2;
                let mut guards = plan.guards.len();
                let mut writes = plan.writes.len() + claims.len();
                for group in self.found_groups(session, plan) {
                    guards += self.groups[group].guards.len();
                    writes += self.groups[group].writes.len();
                }
                self.groups.len() + BOOKKEEPING_PUTS < half && guards <= half && writes <= half
            }
        };
        if fits && self.bytes + added <= self.limits.bytes_max.max(added) {
            Ok(())
        } else {
            Err(Full)
        }
    }

    /// The batch is flat and holds more guards than writes, as those of setData do where each
    /// znode is guarded.
    pub fn is_bound_by_guards(&self) -> bool {
        self.shape == Shape::Flat && self.guards > self.writes && !self.base.is_whole()
    }

    /// Take a planned request in. The caller has checked that it fits.
    pub fn join(&mut self, session: Option<SessionId>, work: W, mut plan: Plan) {
        self.bytes += plan_bytes(&plan);
        let writes = !plan.writes.is_empty();
        let group = self.group_of(session, &plan);
        for guard in plan.guards.drain(..) {
            if self.groups[group].guards.insert(guard) {
                self.guards += 1;
            }
        }
        for (slot, write) in plan.writes.drain(..) {
            if self.shape == Shape::Nested {
                self.of_slot.insert(slot.clone(), group);
            }
            if self.groups[group].writes.insert(slot, write).is_none() {
                self.writes += 1;
            }
        }
        self.entries.push(Entry { work, plan, writes, group });
    }

    fn group_of(&mut self, session: Option<SessionId>, plan: &Plan) -> usize {
        if self.shape == Shape::Flat && !self.groups.is_empty() {
            return 0;
        }
        let found = self.found_groups(session, plan);
        let group = match found.split_first() {
            None => {
                self.groups.push(Group::default());
                self.groups.len() - 1
            }
            Some((first, others)) => {
                for other in others {
                    let taken = std::mem::take(&mut self.groups[*other]);
                    self.groups[*other].merged_into = Some(*first);
                    self.groups[*first].guards.extend(taken.guards);
                    self.groups[*first].writes.extend(taken.writes);
                    self.groups[*first].claims.extend(taken.claims);
                }
                *first
            }
        };
        if let Some(session) = session {
            self.of_session.insert(session, group);
        }
        group
    }

    /// The groups that a plan rests on.
    fn found_groups(&self, session: Option<SessionId>, plan: &Plan) -> Vec<usize> {
        let mut found: Vec<usize> = plan
            .depends
            .iter()
            .filter_map(|slot| self.of_slot.get(slot))
            .chain(session.and_then(|session| self.of_session.get(&session)))
            .map(|group| self.root(*group))
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    fn root(&self, mut group: usize) -> usize {
        while let Some(into) = self.groups[group].merged_into {
            group = into;
        }
        group
    }

    /// The request that joined last claims these keys if its group conflicts once more; if it
    /// does not, its claims go. The caller has checked that they fit.
    pub fn claim(&mut self, claims: Vec<Slot>, lease: LeaseId) {
        let Some(entry) = self.entries.last() else { return };
        let group = self.root(entry.group);
        self.bytes += claims_bytes(&claims);
        for slot in claims {
            self.groups[group].writes.insert(slot.clone(), Write { value: None, lease });
            // Requests of one group may claim one key; etcd takes no key twice.
            if self.groups[group].claims.insert(slot) {
                self.writes += 1;
                self.claims += 1;
            }
        }
    }

    /// Close the batch: the txn, and what is to be remembered of it.
    pub fn finish(mut self, number: BatchNumber) -> (Txn, Batch<W>) {
        for index in 0..self.entries.len() {
            self.entries[index].group = self.root(self.entries[index].group);
        }
        let writes_anything = self.writes > 0;
        let mut written = FxHashMap::default();
        let mut guarded = Vec::new();
        let of_group = |group: &Group| {
            let value = |(slot, write): (&Slot, &Write)| (slot.clone(), write.value.clone());
            group.writes.iter().map(value).collect::<Vec<_>>()
        };
        let values = match self.shape {
            Shape::Flat => self.groups.first().map(of_group).unwrap_or_default(),
            Shape::Nested => Vec::new(),
        };
        for (index, group) in self.groups.iter().enumerate() {
            written.extend(group.writes.keys().map(|slot| (slot.clone(), index)));
            guarded.extend(group.guards.iter().map(|guard| guard.slot.clone()));
        }
        let mut txn = match self.shape {
            Shape::Flat => self.flat_txn(number.lease),
            Shape::Nested => self.nested_txn(number.lease),
        };
        if writes_anything {
            txn.then.extend(number.puts());
        }
        txn.compares.extend(self.base.compare());
        let batch = Batch {
            shape: self.shape,
            number: number.number,
            entries: self.entries,
            written,
            guarded,
            writes_anything,
            sent_at: Duration::ZERO,
            values,
            chained: false,
            base: self.base,
        };
        (txn, batch)
    }

    fn flat_txn(&self, lease: LeaseId) -> Txn {
        let Some(group) = self.groups.first() else { return Txn::default() };
        let otherwise = group.claim_ops(lease);
        let compares: Vec<_> = group.guards.iter().map(Guard::compare).collect();
        let ops: Vec<Op> = group.writes.iter().map(|(slot, write)| write.op(slot)).collect();
        if ops.len() + BOOKKEEPING_PUTS <= self.limits.operations_max {
            return Txn { compares, then: ops, otherwise };
        }
        let width = self.limits.width(compares.len().max(otherwise.len()));
        let size = self.limits.operations_max.saturating_sub(width).max(1);
        let nested = |ops: &[Op]| Op::Txn(Txn { then: ops.to_vec(), ..Txn::default() });
        Txn { compares, then: ops.chunks(size).map(nested).collect(), otherwise }
    }

    fn nested_txn(&self, lease: LeaseId) -> Txn {
        let mut then = Vec::new();
        for group in self.groups.iter().filter(|group| group.merged_into.is_none()) {
            then.push(Op::Txn(Txn {
                compares: group.guards.iter().map(Guard::compare).collect(),
                then: group.writes.iter().map(|(slot, write)| write.op(slot)).collect(),
                otherwise: group.claim_ops(lease),
            }));
        }
        Txn { compares: Vec::new(), then, otherwise: Vec::new() }
    }
}

fn plan_bytes(plan: &Plan) -> usize {
    let written = plan
        .writes
        .iter()
        .map(|(slot, write)| slot_bytes(slot) + write.value.as_ref().map_or(0, Bytes::len));
    written.sum::<usize>() + plan.guards.iter().map(|guard| slot_bytes(&guard.slot)).sum::<usize>()
}

/// A claim is put in one branch and deleted in the other.
fn claims_bytes(claims: &[Slot]) -> usize {
    2 * claims.iter().map(slot_bytes).sum::<usize>()
}

fn slot_bytes(slot: &Slot) -> usize {
    /// The prefix, tags and numbers around a path.
    const OVERHEAD: usize = 48;
    match slot {
        Slot::Node(path) | Slot::Creates(path) | Slot::Acl(path) | Slot::Pzxid(path) => {
            path.len() + OVERHEAD
        }
        Slot::Claim(slot, _) => slot_bytes(slot) + OVERHEAD,
        Slot::Session(_)
        | Slot::Steps(..)
        | Slot::Batch(_)
        | Slot::Ended(_)
        | Slot::Spent(_)
        | Slot::Last
        | Slot::Secret
        | Slot::Meta => OVERHEAD,
    }
}

/// A batch under way.
#[derive(Debug)]
pub struct Batch<W> {
    /// See [`Shape`].
    pub shape: Shape,
    /// What the stream will name it by.
    pub number: u64,
    /// Its requests, in order.
    pub entries: Vec<Entry<W>>,
    /// It leaves a trace in the stream, whatever becomes of its groups.
    pub writes_anything: bool,
    /// When it was sent.
    pub sent_at: Duration,
    written: FxHashMap<Slot, usize>,
    guarded: Vec<Slot>,
    values: Vec<(Slot, Option<Bytes>)>,
    /// Its sessions may have more in the batches behind it.
    pub chained: bool,
    /// What it rests on as a whole.
    pub base: Base,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It took effect.
    Done,
    /// Its plan had become wrong.
    Conflict,
    /// Its group writes nothing, and so leaves no trace.
    NoTrace,
}

impl<W> Batch<W> {
    /// The keys that it writes.
    pub fn written(&self) -> impl ExactSizeIterator<Item = &Slot> {
        self.written.keys()
    }

    /// What the keys of a flat one will hold; asked once.
    pub fn take_values(&mut self) -> Vec<(Slot, Option<Bytes>)> {
        std::mem::take(&mut self.values)
    }

    /// The keys that it guards.
    pub fn guarded(&self) -> &[Slot] {
        &self.guarded
    }

    /// What the revision that names the batch says of each entry. `contains` tells whether the
    /// revision changed a key.
    pub fn fates(&self, contains: impl Fn(&Key) -> bool) -> Vec<Fate> {
        if self.shape == Shape::Flat {
            return self.entries.iter().map(|_| Fate::Done).collect();
        }
        let mut of_group: FxHashMap<usize, bool> = FxHashMap::default();
        // A claim may be written in either branch.
        let decisive = self.written.iter().filter(|(slot, _)| !matches!(slot, Slot::Claim(..)));
        for (slot, group) in decisive {
            let done = of_group.entry(*group).or_default();
            *done = *done || contains(&slot.key());
        }
        let fate = |entry: &Entry<W>| match of_group.get(&entry.group) {
            Some(true) => Fate::Done,
            Some(false) => Fate::Conflict,
            None => Fate::NoTrace,
        };
        self.entries.iter().map(fate).collect()
    }
}

#[cfg(test)]
mod tests;
