//! Writes on their way out: what waits is planned and goes into the next batch.

use crate::keeper::batch::{
    Base, Batch, BatchNumber, Builder, Claims, Full, Room, Shape, claimable,
};
use crate::keeper::keyspace::{SessionValue, ShimId, Slot};
use crate::keeper::machine::chain::{Chain, is_write, stands_alone};
use crate::keeper::machine::spent::first_key;
use crate::keeper::machine::{Carried, Internal, Keeper, Registration};
use crate::keeper::overlay::{Overlay, RequestIndex};
use crate::keeper::planner::{Plan, Planner, SessionFence, Settings, Writer};
use crate::keeper::replica::Replica;
use crate::keeper::request::{Operation, SessionId};
use crate::keeper::sessions::{Local, Pending, Stay, Work};
use crate::keeper::time::Now;
use crate::keeper::txn::{LeaseId, StoreCommand, Token};
use crate::keeper::zxid::Revision;
use rustc_hash::FxHashMap;
use std::time::Duration;

/// Batches under way at most. More would make each smaller, and a put in a small batch costs
/// etcd several times what it costs in a large one.
const IN_FLIGHT_MAX: usize = 3;

/// Requests in a batch: with more, the store waits while they are planned and answered, and the
/// shim while they are written.
const GATHERED_MAX: usize = 512;

/// Batches stay nested for so many once the guards of a flat one were what filled it.
const NESTED_FOR_GUARDS: u32 = 16;

/// The most ephemerals that go with their session in one txn: two guards each. More are left to
/// the lease.
const EPHEMERALS_A_CLOSE_MAX: usize = 60;

/// After so many conflicts in a row a request claims the keys that it writes.
const CONFLICTS_BEFORE_CLAIM: u32 = 2;

/// How long a claim holds others back at most.
const CLAIM_HOLDS: Duration = Duration::from_millis(50);

/// What became of a session's run of writes.
enum Run {
    /// Some have joined, or there was none.
    Joined,
    /// None can join while this batch is under way.
    Behind(Token),
    /// None can join before this time, unless a claim goes.
    Held(Duration),
    /// None has joined; the next batch may have room.
    Next,
    /// None has joined, and the batch is full.
    Full,
    /// The head does not fit into any batch.
    NeverFits,
}

/// What planning needs, apart from the sessions.
pub(super) struct Desk<'d, 't> {
    pub(super) overlay: Overlay<'t>,
    pub(super) replica: &'t Replica,
    pub(super) settings: &'d Settings,
    claims: &'d Claims,
    /// What is under way in the chain, and whether this batch is planned on it.
    chain: &'t Chain,
    follows: bool,
    /// What the batch rests on as a whole.
    base: Base,
    room: &'d Room,
    claims_seen: &'d FxHashMap<(Slot, ShimId), Duration>,
    now: Duration,
    pub(super) unix_ms: i64,
}

impl Keeper {
    /// Send what is there to send.
    pub(super) fn pump(&mut self) {
        let now = self.now.monotonic;
        if self.loaded && self.barriers.is_due(now) {
            let token = self.next_token();
            self.barriers.sent(token, now);
            self.command(StoreCommand::Barrier(token));
        }
        self.break_chain();
        let Registration::Done(lease) = self.registration else { return };
        if self.loaded && now >= self.words_hold_until {
            self.send_words(lease);
        }
        while self.loaded && now >= self.hold_until && self.may_send() {
            let sent = self.send_batch(lease) | self.send_internal(lease);
            if !sent {
                break;
            }
        }
    }

    /// Nothing is sent before: it would be refused again.
    pub(super) fn hold_all_until(&mut self, until: Duration) {
        (self.hold_until, self.words_hold_until) = (until, until);
    }

    /// A lone write leaves at once. While a batch is under way the next one gathers, unless there
    /// is enough to fill one.
    fn may_send(&self) -> bool {
        // One whose outcome is unknown holds nobody up but its own sessions.
        let under_way = self.batches.len() - self.unknown.len();
        if under_way == 0 {
            return true;
        }
        if under_way >= IN_FLIGHT_MAX {
            return false;
        }
        let decided = |token| !self.unknown.contains_key(&token);
        if self.nested_left > 0 && self.chain.tokens().any(decided) {
            return false;
        }
        if self.chain.has_failed() && self.chain.tokens().all(decided) {
            return false;
        }
        if self.chain.follow_at().is_some_and(|at| at > self.now.monotonic) {
            return false;
        }
        // One is worth its costs if it is not small beside what is under way.
        let busy: usize = self.batches.values().map(|batch| batch.entries.len()).sum();
        let worth = self.options.writes_worth_a_batch.max(busy / 2);
        let mut waiting = 0;
        for session in self.ready.iter().take(worth) {
            waiting += self.locals.peek(*session).map_or(0, |local| local.queue.len());
            if waiting >= worth {
                return true;
            }
        }
        self.internal.len() >= worth
    }

    fn send_batch(&mut self, lease: LeaseId) -> bool {
        if self.ready.is_empty() {
            return false;
        }
        let shape = if self.nested_left > 0 { Shape::Nested } else { Shape::Flat };
        let follows = shape == Shape::Flat && self.may_follow();
        let base = self.base(follows);
        let mut builder = Builder::new(shape, self.room.gathers());
        builder.rest_on(base);
        let mut never_fits = Vec::new();
        let mut again = Vec::new();
        let mut full = false;
        let (replica, settings) = (&self.replica, &self.settings);
        let claims = (&self.claims, &self.claims_seen);
        let chain = (&self.chain, follows);
        let mut desk = Desk::new(replica, settings, claims, chain, &self.room, self.now);
        desk.rest_on(base);
        while let Some(session) = self.ready.pop_front() {
            let Some(stay) = self.locals.stay(session) else { continue };
            let Some(local) = self.locals.find_stay(stay) else { continue };
            local.scheduled = false;
            if local.blocked {
                continue;
            }
            match desk.take_run(stay, local, &mut builder) {
                Run::Joined => {}
                Run::Held(until) => self.held.push((until, session)),
                Run::Behind(token) => self.behind.entry(token).or_default().push(session),
                Run::Next => again.push(session),
                Run::Full => {
                    full = builder.is_bound_by_guards();
                    again.push(session);
                    break;
                }
                Run::NeverFits => never_fits.push(session),
            }
            if builder.len() >= GATHERED_MAX {
                break;
            }
        }
        let planned = follows.then(|| desk.overlay.into_planned());
        if full {
            // Nested txns have room for more guards.
            self.nested_left = self.nested_left.max(NESTED_FOR_GUARDS);
        }
        for session in again.into_iter().rev() {
            if let Some(local) = self.locals.find(session) {
                local.scheduled = true;
                self.ready.push_front(session);
            }
        }
        for session in never_fits {
            self.find_more_room(session);
        }
        let Some((token, mut batch)) = self.send_built(builder, lease) else { return false };
        match planned {
            Some(planned) => self.take_off(token, &mut batch, planned),
            None => self.claims.add(token, &batch),
        }
        self.batches.insert(token, batch);
        true
    }

    fn send_built(
        &mut self,
        builder: Builder<Carried>,
        lease: LeaseId,
    ) -> Option<(Token, Batch<Carried>)> {
        if builder.is_empty() {
            return None;
        }
        self.batch_number += 1;
        let number = self.batch_number;
        let (txn, mut batch) =
            builder.finish(BatchNumber { shim: self.settings.shim, lease, number });
        batch.sent_at = self.now.monotonic;
        let token = self.next_token();
        if batch.writes_anything {
            self.numbers.insert(number, token);
        }
        self.command(StoreCommand::Commit(token, txn));
        Some((token, batch))
    }

    /// Other shims believe a session until they have heard of its end: such a word rests on
    /// nothing, and waits for nothing that is under way but other words.
    fn send_words(&mut self, lease: LeaseId) {
        if self.batches.len() > IN_FLIGHT_MAX {
            return;
        }
        let Some(sessions) = self.words.pop_front() else { return };
        let mut builder = Builder::new(Shape::Nested, self.room.gathers());
        let (replica, settings) = (&self.replica, &self.settings);
        let claims = (&self.claims, &self.claims_seen);
        let chain = (&self.chain, false);
        let mut desk = Desk::new(replica, settings, claims, chain, &self.room, self.now);
        let word = Internal::Ended(sessions);
        let Some(plan) = desk.plan_internal(&word, builder.next_index()) else { return };
        builder.join(None, Carried::Internal(word), plan);
        if let Some((token, batch)) = self.send_built(builder, lease) {
            self.batches.insert(token, batch);
        }
    }

    /// What the shim has to do by itself goes in batches of its own, each thing a group, so that
    /// another shim that does the same harms no client.
    fn send_internal(&mut self, lease: LeaseId) -> bool {
        if self.internal.is_empty() {
            return false;
        }
        let follows = self.may_follow();
        let after = if follows { self.chain.last_link() } else { None };
        let mut builder = Builder::new(Shape::Nested, self.room.gathers());
        builder.rest_on(Base::behind(after));
        let mut revokes = Vec::new();
        let (replica, settings) = (&self.replica, &self.settings);
        let claims = (&self.claims, &self.claims_seen);
        let chain = (&self.chain, false);
        let mut desk = Desk::new(replica, settings, claims, chain, &self.room, self.now);
        for _ in 0..self.internal.len() {
            let Some(internal) = self.internal.pop_front() else { break };
            if let Internal::Revoke(session) = internal {
                let record = self.replica.sessions.get(&session);
                if let Some(lease) = record.filter(|record| record.value.closing) {
                    revokes.push((session, lease.lease));
                    continue;
                }
                if !self.ends_here(session) {
                    continue;
                }
            }
            let mark = desk.overlay.mark();
            let Some(plan) = desk.plan_internal(&internal, builder.next_index()) else {
                continue;
            };
            let waits = plan.must_wait || desk.in_the_way(&plan).is_some();
            if waits || builder.check(None, &plan, &[]).is_err() {
                desk.overlay.roll_back(mark);
                self.internal.push_back(internal);
                continue;
            }
            builder.join(None, Carried::Internal(internal), plan);
        }
        for (session, lease) in revokes {
            self.revoke(session, lease);
        }
        let Some((token, batch)) = self.send_built(builder, lease) else { return false };
        if follows && batch.writes_anything {
            self.take_off_internal(token, batch.number, after.is_some());
        }
        self.claims.add(token, &batch);
        self.batches.insert(token, batch);
        true
    }
}

impl<'d, 't> Desk<'d, 't> {
    fn new(
        replica: &'t Replica,
        settings: &'d Settings,
        (claims, claims_seen): (&'d Claims, &'d FxHashMap<(Slot, ShimId), Duration>),
        (chain, follows): (&'t Chain, bool),
        room: &'d Room,
        now: Now,
    ) -> Self {
        Self {
            overlay: Overlay::on(&replica.tree, follows.then_some(&chain.ahead)),
            chain,
            follows,
            replica,
            settings,
            claims,
            base: Base::Nothing,
            room,
            claims_seen,
            now: now.monotonic,
            unix_ms: now.unix_ms,
        }
    }

    fn rest_on(&mut self, base: Base) {
        self.base = base;
        self.overlay.prove(base.is_whole());
    }
}

impl Desk<'_, '_> {
    /// The consecutive writes at the head of a session's queue join the batch, as far as they
    /// can.
    fn take_run(&mut self, stay: Stay, local: &mut Local, builder: &mut Builder<Carried>) -> Run {
        let session = stay.session;
        if local.under_way > 0 {
            let may_follow = |head: &Pending| is_write(&head.work) && !stands_alone(&head.work);
            if !local.queue.front().is_some_and(may_follow) {
                return Run::Joined;
            }
            if !self.follows {
                return self.chain.last().map_or(Run::Next, Run::Behind);
            }
        }
        let mut joined = 0;
        while let Some(head) = local.queue.front() {
            let alone = stands_alone(&head.work);
            if !is_write(&head.work) || (alone && joined > 0) {
                break;
            }
            let mark = self.overlay.mark();
            let Some(plan) = self.plan(session, local, head, builder.next_index()) else { break };
            let mut claims = if head.conflicts >= CONFLICTS_BEFORE_CLAIM {
                claimable(&plan, self.settings.shim)
            } else {
                Vec::new()
            };
            let obstacle = if let Some(token) = self.in_the_way(&plan) {
                Some(Run::Behind(token))
            } else if let Some(until) = self.held_until(&plan) {
                Some(Run::Held(until))
            } else if plan.must_wait {
                Some(Run::Next)
            } else {
                self.find_room(session, &plan, &mut claims, builder).err()
            };
            if let Some(obstacle) = obstacle {
                self.overlay.roll_back(mark);
                if joined == 0 {
                    return obstacle;
                }
                break;
            }
            let Some(pending) = local.queue.pop_front() else { break };
            builder.join(Some(session), Carried::Session(stay, pending), plan);
            builder.claim(claims, self.settings.shim_lease);
            joined += 1;
            if alone {
                break;
            }
        }
        local.blocked = joined > 0;
        Run::Joined
    }

    /// A batch under way that a plan may not run beside.
    fn in_the_way(&self, plan: &Plan) -> Option<Token> {
        let beside = self.claims.in_the_way(plan);
        if self.follows {
            beside.or_else(|| plan.behind.then(|| self.chain.last()).flatten())
        } else {
            beside.or_else(|| self.chain.claims.in_the_way(plan))
        }
    }

    /// Another shim that has lost a key too often goes first, for a while. Of two claims the
    /// older one counts.
    fn held_until(&self, plan: &Plan) -> Option<Duration> {
        if self.replica.claims.is_empty() {
            return None;
        }
        plan.writes
            .keys()
            .filter_map(|slot| {
                let claims = self.replica.claims.get(slot)?;
                let ours = claims.get(&self.settings.shim).copied().unwrap_or(Revision::PENDING);
                let (first, _) = claims
                    .iter()
                    .filter(|(_, created)| **created < ours)
                    .min_by_key(|(_, created)| **created)?;
                let seen = self.claims_seen.get(&(slot.clone(), *first))?;
                Some(*seen + CLAIM_HOLDS).filter(|until| *until > self.now)
            })
            .max()
    }

    fn find_room(
        &self,
        session: SessionId,
        plan: &Plan,
        claims: &mut Vec<Slot>,
        builder: &mut Builder<Carried>,
    ) -> Result<(), Run> {
        match builder.check(Some(session), plan, claims) {
            Ok(()) => Ok(()),
            Err(Full) if !builder.is_empty() => Err(Run::Full),
            Err(Full) => {
                // A large request goes flat, where more fits, or else alone, and claims nothing.
                claims.clear();
                *builder = Builder::new(Shape::Flat, self.room.gathers());
                builder.rest_on(self.base);
                if builder.check(Some(session), plan, claims).is_ok() {
                    return Ok(());
                }
                *builder = Builder::alone(self.room.most());
                builder.rest_on(self.base);
                // It is judged by itself, and answered behind what is under way.
                let too_much = || self.chain.last().map_or(Run::NeverFits, Run::Behind);
                builder.check(Some(session), plan, claims).map_err(|Full| too_much())
            }
        }
    }

    /// `None` if the session is gone.
    fn plan(
        &mut self,
        session: SessionId,
        local: &Local,
        pending: &Pending,
        request: RequestIndex,
    ) -> Option<Plan> {
        let record = self.replica.sessions.get(&session);
        let fence = record.map(|record| SessionFence {
            session,
            revision: record.revision,
            lease: record.lease,
        });
        let value = |closing| SessionValue {
            password: record.map_or(local.password(), |record| record.value.password),
            timeout_ms: u32::try_from(local.timeout().as_millis()).unwrap_or(u32::MAX),
            owner: self.settings.shim,
            closing,
        };
        let writer =
            Writer { session: fence, identities: &pending.identities, unix_ms: self.unix_ms };
        let opening = matches!(pending.work, Work::Open { .. });
        if fence.is_none() && !opening {
            return None;
        }
        let planner = Planner::new(&mut self.overlay, self.settings, writer, request);
        Some(match &pending.work {
            Work::Open { told } => {
                let first = first_key(local.key, *told);
                planner.plan_open(session, &value(false), local.lease, first)
            }
            Work::Attach { .. } => planner.plan_rewrite(&value(false)),
            Work::Expire | Work::Request(_, Operation::CloseSession) => {
                let owned = self.replica.tree.ephemerals_of(session);
                if local.unsettled || owned > EPHEMERALS_A_CLOSE_MAX {
                    planner.plan_rewrite(&value(true))
                } else {
                    planner.plan_close()
                }
            }
            Work::Request(_, operation) => planner.plan(operation),
        })
    }
}
