//! Batches that leave before the ones before them have come back.
//!
//! A batch that is planned on what others under way will have made carries their proof: it holds
//! only if the shim's number key still has the number of the batch before it. So the batches of a
//! chain come to pass in their order, each only if all before it did. If one fails, those behind
//! it fail for certain, and all their requests are planned again in their order.

use crate::keeper::ahead::Ahead;
use crate::keeper::batch::{Base, Batch, Claims};
use crate::keeper::keyspace::ShimId;
use crate::keeper::machine::serve::{Turn, turn};
use crate::keeper::machine::{Carried, Keeper};
use crate::keeper::overlay::Planned;
use crate::keeper::request::Operation;
use crate::keeper::sessions::{Stay, Work};
use crate::keeper::txn::Token;
use crate::keeper::zxid::Revision;
use std::collections::VecDeque;
use std::time::Duration;

/// etcd reads requests side by side, and proposes a small one before a large one that came
/// earlier: what follows is sent when the one before has been read, so long for each write.
const READ_FOR: Duration = Duration::from_micros(5);

/// A batch of the chain.
#[derive(Debug)]
struct Flight {
    token: Token,
    /// Whose number it puts, and which; none if it writes nothing.
    link: Option<(ShimId, u64)>,
    /// It holds only behind the batch before it.
    follows: bool,
    /// It proves that nobody has written before it: what comes behind need only prove the rest.
    whole: bool,
    /// Sessions that may have more in the batches behind it.
    stays: Vec<Stay>,
    /// When it was refused, by the store's revision.
    refused_at: Option<Revision>,
    /// It is known to have failed; `true`: for no reason of its own.
    failed: Option<bool>,
}

impl Flight {
    fn new(token: Token, link: Option<(ShimId, u64)>, follows: bool) -> Self {
        let stays = Vec::new();
        Self { token, link, follows, whole: false, stays, refused_at: None, failed: None }
    }
}

/// See the file's text.
#[derive(Debug, Default)]
pub(super) struct Chain {
    flights: VecDeque<Flight>,
    /// What they will have made.
    pub(super) ahead: Ahead,
    /// The keys that they rest on and write.
    pub(super) claims: Claims,
    /// One of them will never be known: nothing follows until all are done.
    broken: bool,
    /// When the last of them was applied.
    applied: Revision,
    /// Nothing follows before this time.
    follow_at: Duration,
}

impl Chain {
    pub(super) fn last(&self) -> Option<Token> {
        self.flights.back().map(|flight| flight.token)
    }

    /// The number that the next batch must find.
    pub(super) fn last_link(&self) -> Option<(ShimId, u64)> {
        self.flights.iter().rev().find_map(|flight| flight.link)
    }

    /// When the next batch may follow, if one is under way.
    pub(super) fn follow_at(&self) -> Option<Duration> {
        (!self.flights.is_empty()).then_some(self.follow_at)
    }

    pub(super) fn has_failed(&self) -> bool {
        self.flights.iter().any(|flight| flight.failed.is_some())
    }

    pub(super) fn tokens(&self) -> impl Iterator<Item = Token> {
        self.flights.iter().map(|flight| flight.token)
    }

    fn find(&mut self, token: Token) -> Option<&mut Flight> {
        self.flights.iter_mut().find(|flight| flight.token == token)
    }

    /// The batch that writes which this one follows, if it is still under way.
    fn before(&self, token: Token) -> Option<Token> {
        let index = self.flights.iter().position(|flight| flight.token == token)?;
        let mut earlier = self.flights.iter().take(index).rev();
        earlier.find(|flight| flight.link.is_some()).map(|flight| flight.token)
    }

    /// The store has refused a batch at this revision.
    pub(super) fn refused(&mut self, token: Token, revision: Revision) {
        self.find(token).into_iter().for_each(|flight| flight.refused_at = Some(revision));
    }

    /// A batch is known by the stream.
    pub(super) fn landed(&mut self, revision: Revision) {
        self.applied = revision;
    }
}

/// Whether it needs a place in the store's history.
pub(super) fn is_write(work: &Work) -> bool {
    match work {
        Work::Open { .. } | Work::Expire => true,
        Work::Attach { rewrite } => *rewrite,
        Work::Request(_, operation) => turn(operation) == Turn::Write,
    }
}

/// Whether it is the only one of its session in a batch, and nothing of the session leaves before
/// it has come back.
pub(super) fn stands_alone(work: &Work) -> bool {
    match work {
        Work::Open { .. } | Work::Attach { .. } | Work::Expire => true,
        Work::Request(_, operation) => matches!(operation, Operation::CloseSession),
    }
}

impl Keeper {
    /// Whether the next batch may be planned on what is under way.
    pub(super) fn may_follow(&self) -> bool {
        let shim = self.settings.shim;
        // Quotas are judged by the tree alone.
        !self.settings.enforce_quota
            && (self.chain.flights.is_empty() || !self.chain.broken)
            && self.chain.flights.iter().all(|flight| {
                flight.failed.is_none()
                    && flight.link.is_none_or(|(owner, _)| owner == shim)
                    && !self.unknown.contains_key(&flight.token)
            })
    }

    /// What the next flat batch rests on as a whole.
    pub(super) fn base(&self, follows: bool) -> Base {
        if !follows {
            return Base::Nothing;
        }
        let last = self.chain.last_link();
        if self.is_alone() { Base::Last(last.or(self.replica.last)) } else { Base::behind(last) }
    }

    /// Nobody but the batches of the chain is known to write, and each of them proves it.
    fn is_alone(&self) -> bool {
        self.replica.has_meta
            && self.now.monotonic >= self.alone_from
            && self.batches.len() == self.chain.flights.len()
            && self.chain.flights.iter().all(|flight| flight.whole || flight.link.is_none())
    }

    /// A batch was refused, and the tree has what there was then.
    pub(super) fn refused(&mut self, token: Token) {
        let Some(batch) = self.batches.get(&token) else { return };
        if !batch.writes_anything
            && let Some(before) = self.chain.before(token)
        {
            self.wait_behind(token, before);
            return;
        }
        let overtaken = batch.base.is_overtaken(self.replica.last);
        self.plan_again(token, overtaken);
    }

    /// A batch without writes came to the store before the one that it follows.
    fn wait_behind(&mut self, token: Token, before: Token) {
        let mut stays = self.take_apart(token, false);
        stays.dedup();
        for stay in stays {
            let Some(local) = self.locals.find_stay(stay) else { continue };
            local.blocked = self.ending.contains_key(&stay.session);
            self.behind.entry(before).or_default().push(stay.session);
        }
        self.batch_out_of_the_way(token);
    }

    /// A flat batch has left as a part of the chain.
    pub(super) fn take_off(&mut self, token: Token, batch: &mut Batch<Carried>, planned: Planned) {
        batch.chained = batch.writes_anything;
        self.chain.broken &= !self.chain.flights.is_empty();
        let writes = u32::try_from(batch.written().len()).unwrap_or(u32::MAX);
        self.chain.follow_at = self.now.monotonic + READ_FOR.saturating_mul(writes);
        self.chain.claims.add(token, batch);
        let link = batch.writes_anything.then_some((self.settings.shim, batch.number));
        let mut stays = Vec::new();
        if batch.writes_anything {
            let values = batch.take_values();
            self.chain.ahead.add(batch.number, planned, values);
            let entries = batch.entries.iter().filter_map(|entry| match &entry.work {
                Carried::Session(stay, pending) if !stands_alone(&pending.work) => Some(*stay),
                _ => None,
            });
            stays.extend(entries);
            stays.dedup();
        }
        for stay in &stays {
            if let Some(local) = self.locals.find_stay(*stay) {
                local.under_way += 1;
                local.blocked = false;
            }
        }
        let follows = self.chain.last_link().is_some();
        let flight = Flight {
            whole: batch.base.is_whole(),
            stays: stays.clone(),
            ..Flight::new(token, link, follows)
        };
        self.chain.flights.push_back(flight);
        stays.into_iter().for_each(|stay| self.proceed(stay.session));
    }

    /// A batch of the shim's own has left behind the others, or before those that come.
    pub(super) fn take_off_internal(&mut self, token: Token, number: u64, follows: bool) {
        let link = Some((self.settings.shim, number));
        self.chain.flights.push_back(Flight::new(token, link, follows));
    }

    /// A batch is not under way any more.
    pub(super) fn leave_chain(&mut self, token: Token, batch: &Batch<Carried>) {
        let Some(index) = self.chain.flights.iter().position(|flight| flight.token == token) else {
            return;
        };
        let Some(flight) = self.chain.flights.remove(index) else { return };
        self.chain.claims.remove(token, batch);
        self.chain.ahead.remove(batch.number);
        for stay in flight.stays {
            if let Some(local) = self.locals.find_stay(stay) {
                local.under_way = local.under_way.saturating_sub(1);
            }
        }
    }

    /// A batch of the chain has failed. `true`: it is not in the chain, or rests on nothing there
    /// that is still under way, and nothing rests on it.
    pub(super) fn fails_alone(&mut self, token: Token, blameless: bool) -> bool {
        let Some(flight) = self.chain.find(token) else { return true };
        if flight.link.is_none() {
            return true;
        }
        flight.failed = Some(blameless);
        self.break_chain();
        false
    }

    /// If the first batch that writes has failed, so have all behind it.
    pub(super) fn break_chain(&mut self) {
        let Some(first) = self.chain.flights.iter().position(|flight| flight.link.is_some()) else {
            return;
        };
        let Some(flight) = self.chain.flights.get(first) else { return };
        let Some(blameless) = flight.failed else { return };
        // It came to the store before the batch that it follows.
        let early = flight.follows && flight.refused_at.is_some_and(|at| at < self.chain.applied);
        if !blameless && !early {
            self.conflicted();
        }
        let tokens: Vec<Token> = self.chain.tokens().skip(first).collect();
        tracing::debug!(batches = tokens.len(), early, "a batch failed, and those behind it");
        self.chain.ahead.clear();
        let mut stays: Vec<Vec<Stay>> = Vec::new();
        for (index, token) in tokens.iter().enumerate().rev() {
            let lost = index == 0 && !blameless && !early;
            stays.push(self.take_apart(*token, lost));
        }
        // In the order in which they came.
        let stays = stays.into_iter().rev().flatten();
        self.unblock_all(stays.map(|stay| (stay, false)).collect());
        tokens.into_iter().for_each(|token| self.batch_out_of_the_way(token));
    }

    /// A batch will never be known. What was planned on it may still come to pass.
    pub(super) fn abandon_chain(&mut self) {
        self.chain.broken = true;
        self.chain.ahead.clear();
    }
}
