//! etcd as the shims see it: the engine behind calls that may be lost, refused, late or unknown,
//! members that may be behind it or cut off, and a watch stream for each shim that may lag.

use crate::random::Random;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;
use zkshim::keeper::txn::{CommitError, LeaseId, StoreCommand, StoreEvent};
use zkshim::keeper::zxid::Revision;
use zkshim::store::embedded::engine::Engine;
use zkshim::store::embedded::limits::Limits;

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is carried out and answered.
    Answered,
    /// It is carried out, but the answer is lost.
    AnswerLost,
    /// It is given up, and carried out all the same some time later.
    Late(Duration),
    /// It never arrives.
    Lost,
    /// etcd refuses it.
    Refused,
}

/// A delay of the embedded store that may be ordinary work, or be waited for on purpose.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// How often calls go wrong, out of a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Odds {
    pub(crate) answer_lost: usize,
    pub(crate) late: usize,
    pub(crate) lost: usize,
    pub(crate) refused: usize,
}

impl Odds {
    pub(crate) fn draw(&self, mut random: Random, command: &StoreCommand) -> Fate {
        // The store adapters try a renewal again by themselves.
        if matches!(command, StoreCommand::Renew(_) | StoreCommand::Progress) {
            return Fate::Answered;
        }
        let mut drawn = random.below(1000);
        let late = random.millis(10, 9000);
        for (odds, fate) in [
            (self.answer_lost, Fate::AnswerLost),
            (self.late, Fate::Late(late)),
            (self.lost, Fate::Lost),
            (self.refused, Fate::Refused),
        ] {
            if drawn < odds {
                return fate;
            }
            drawn -= odds;
        }
        Fate::Answered
    }
}

/// A member: it knows the history so far as it has applied it. What needs the leader's word goes
/// through it to the engine, which is what the leader has.
#[derive(Debug, Default)]
pub(crate) struct Member {
    /// It does not hear of the others; who asks it alone is told what it last knew.
    pub(crate) cut: bool,
    applied: Revision,
    /// What it will have applied, and when.
    coming: VecDeque<(Duration, Revision)>,
}

impl Member {
    /// It hears of a revision, and will have applied it then.
    pub(crate) fn hear(&mut self, revision: Revision, at: Duration) {
        if !self.cut {
            let before = self.coming.back().map_or(Duration::ZERO, |(before, _)| *before);
            self.coming.push_back((at.max(before), revision));
        }
    }

    /// What it has applied by now.
    pub(crate) fn applied(&mut self, now: Duration) -> Revision {
        while let Some((at, revision)) = self.coming.front().copied()
            && at <= now
        {
            self.coming.pop_front();
            self.applied = revision;
        }
        self.applied
    }

    /// When it has applied a revision that it has heard of.
    pub(crate) fn applies_at(&self, revision: Revision) -> Duration {
        let heard = self.coming.iter().find(|(_, heard)| *heard >= revision);
        heard.map_or(Duration::ZERO, |(at, _)| *at)
    }

    /// It hears of nobody from now on.
    pub(crate) fn cut_off(&mut self, now: Duration) {
        self.applied(now);
        self.coming.clear();
        self.cut = true;
    }
}

/// The engine, its members, and which leases it has.
#[derive(Debug)]
pub(crate) struct Etcd {
    pub(crate) engine: Engine,
    pub(crate) members: Vec<Member>,
    leases: BTreeSet<LeaseId>,
    /// No member answers until then.
    pub(crate) out_until: Option<Duration>,
    /// It is in the process of the only shim, and lives and dies with it.
    pub(crate) embedded: bool,
    /// How long an embedded one has stood still with its shim: that costs no lease its life (see
    /// `store/embedded/clock.rs`).
    stood_still: Duration,
    /// What the world has seen of the history.
    pub(crate) seen: Revision,
}

impl Etcd {
    pub(crate) fn new(txn_ops_max: usize, members: usize) -> Self {
        let engine = Engine::new(Limits { txn_ops_max, ..Limits::default() }, 7);
        let seen = engine.revision();
        let member = || Member { applied: seen, ..Member::default() };
        let members = (0..members).map(|_| member()).collect();
        Self {
            engine,
            members,
            leases: BTreeSet::new(),
            out_until: None,
            embedded: false,
            stood_still: Duration::ZERO,
            seen,
        }
    }

    /// What its clock for leases shows.
    fn clock(&self, now: Duration) -> Duration {
        now.saturating_sub(self.stood_still)
    }

    /// Its shim's process stood still for so long. What may be ordinary work counts.
    pub(crate) fn moves_again(&mut self, stood_still: Duration) {
        if self.embedded && stood_still > PAUSE_MAX {
            self.stood_still += stood_still;
        }
    }

    /// When the next lease ends.
    pub(crate) fn next_expiry(&self) -> Option<Duration> {
        self.engine.next_expiry().map(|next| next + self.stood_still)
    }

    /// A member that hears of the others.
    pub(crate) fn pick_member(&self, random: &mut Random) -> usize {
        let well: Vec<usize> =
            (0..self.members.len()).filter(|member| !self.members[*member].cut).collect();
        random.pick(&well)
    }

    /// Carry a command out. The stream answers [`StoreCommand::Progress`], not this.
    pub(crate) fn call(&mut self, command: &StoreCommand, now: Duration) -> Option<StoreEvent> {
        let clock = self.clock(now);
        Some(match command {
            StoreCommand::Commit(token, txn) => {
                StoreEvent::Committed(*token, self.engine.commit(txn))
            }
            StoreCommand::Barrier(token) => {
                StoreEvent::BarrierPassed(*token, Ok(self.engine.revision()))
            }
            StoreCommand::Progress => return None,
            StoreCommand::Grant(token, ttl) => {
                let granted = self.engine.grant(*ttl, clock);
                self.leases.extend(granted.iter().map(|granted| granted.0));
                StoreEvent::Granted(*token, granted)
            }
            StoreCommand::Revoke(token, lease) => {
                self.engine.revoke(*lease);
                self.leases.remove(lease);
                StoreEvent::Revoked(*token, Ok(()))
            }
            StoreCommand::Renew(lease) => {
                let ttl = self.engine.renew(*lease, clock).unwrap_or(Duration::ZERO);
                StoreEvent::Renewed(*lease, Some(ttl))
            }
        })
    }

    /// Leases whose time is over end, unless nobody is there to end them.
    pub(crate) fn expire(&mut self, now: Duration) {
        if self.out_until.is_none() {
            for lease in self.engine.expire(self.clock(now)) {
                self.leases.remove(&lease);
            }
        }
    }

    /// A new leader gives every lease its whole time again (`lessor.Promote`).
    pub(crate) fn recover(&mut self, now: Duration) {
        self.out_until = None;
        let clock = self.clock(now);
        for lease in &self.leases {
            self.engine.renew(*lease, clock);
        }
    }

    /// An embedded store starts: what it keeps is what is there, and no history.
    pub(crate) fn restart(&mut self, now: Duration) {
        let now_there = self.engine.revision();
        self.engine.compact(now_there);
        self.recover(now);
    }

    /// Something ends a lease that no session is on, for whatever reason.
    pub(crate) fn end_some_lease(&mut self, random: &mut Random, taken: &BTreeSet<LeaseId>) {
        let free: Vec<LeaseId> = self.leases.difference(taken).copied().collect();
        if !free.is_empty() {
            let lease = random.pick(&free);
            self.engine.revoke(lease);
            self.leases.remove(&lease);
        }
    }

    pub(crate) fn leases(&self) -> usize {
        self.leases.len()
    }

    /// Some lease, for breaking a rule with.
    pub(crate) fn pick_lease(&self, random: &mut Random) -> Option<LeaseId> {
        self.leases.iter().nth(random.below(self.leases.len())).copied()
    }
}

/// What a shim is told of a call that had no answer.
pub(crate) fn unanswered(command: &StoreCommand) -> Option<StoreEvent> {
    let reason = || "no answer".to_owned();
    Some(match command {
        StoreCommand::Commit(token, _) => {
            StoreEvent::Committed(*token, Err(CommitError::Unknown(reason())))
        }
        StoreCommand::Barrier(token) => StoreEvent::BarrierPassed(*token, Err(reason())),
        StoreCommand::Progress => return None,
        StoreCommand::Grant(token, _) => StoreEvent::Granted(*token, Err(reason())),
        StoreCommand::Revoke(token, _) => StoreEvent::Revoked(*token, Err(reason())),
        StoreCommand::Renew(lease) => StoreEvent::Renewed(*lease, None),
    })
}

/// What a shim is told of a call that etcd refused.
pub(crate) fn refused(command: &StoreCommand) -> Option<StoreEvent> {
    match command {
        StoreCommand::Commit(token, _) => {
            Some(StoreEvent::Committed(*token, Err(CommitError::Refused("no space".into()))))
        }
        other => unanswered(other),
    }
}
