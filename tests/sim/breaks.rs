//! Rules broken on purpose, to see that the checks notice.

use crate::random::Random;
use zkshim::keeper::Output;
use zkshim::keeper::error::ErrorCode;
use zkshim::keeper::keyspace::Slot;
use zkshim::keeper::request::{Body, Connected, Outgoing, Reply};
use zkshim::keeper::txn::{Compare, LeaseId, Op, StoreCommand, Txn};
use zkshim::keeper::zxid::Revision;

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Break {
    /// Some events are never sent.
    EventsLost,
    /// Some events are sent twice.
    EventsTwice,
    /// Clients are told of their writes before etcd has them.
    AnswersEarly,
    /// Shims end sessions long after their time.
    EndsLate,
    /// Leases end long after their time.
    LeasesLast,
    /// A write whose outcome is not known is sent again, whatever has happened since.
    UnknownRepeated,
    /// A member of etcd that is behind says how far etcd is.
    BarriersLie,
    /// Txns of compares alone are answered by the member that was asked, by what it last knew.
    ComparesLocal,
    /// So are reads of how far etcd is, also by a member that is cut off.
    BarriersLocal,
    /// Replies leave before the events of the same revision.
    RepliesFirst,
    /// Some replies leave in another order.
    RepliesSwapped,
    /// Writes take effect although the session has moved or ended.
    FenceIgnored,
    /// Writes take effect although what they rest on has changed.
    GuardsIgnored,
    /// Writes take effect although another shim has written, where that is all they rest on.
    OthersIgnored,
    /// Leases end early.
    LeasesCut,
    /// A session goes before its ephemerals.
    SessionFirst,
    /// Some replies tell of an older tree.
    ZxidsFall,
    /// A write is carried out twice.
    WrittenTwice,
    /// Clients that come back are told that their session is gone.
    Refusals,
    /// No lease ends by itself, and no shim ends a session.
    SilenceKept,
    /// Clients are told of writes that were never carried out.
    WritesLost,
    /// What clients read is not what is there.
    DataGarbled,
    /// Clients are told of failures for which there is no reason.
    FailuresInvented,
    /// Shims do not tell one another of sessions that ended without a key.
    EndsUntold,
    /// A shim that has lost etcd says that a session is closed, and does nothing.
    ClosesUnheard,
    /// A session's first key is written whatever other shims have said of it.
    RefusalsForgotten,
    /// What a shim has of its own is on no lease.
    ClaimsStay,
    /// The steps of its multis are on no lease.
    StepsStay,
    /// Shims enforce no quota.
    QuotasForgotten,
    /// The statistics of a quota are as they were when they began.
    StatisticsStay,
    /// Some of what a shim says is without the tree's zxid offset.
    OffsetForgotten,
}

impl Break {
    /// All of them.
    pub(crate) const ALL: [Self; 31] = [
        Self::EventsLost,
        Self::EventsTwice,
        Self::AnswersEarly,
        Self::EndsLate,
        Self::LeasesLast,
        Self::UnknownRepeated,
        Self::BarriersLie,
        Self::ComparesLocal,
        Self::BarriersLocal,
        Self::RepliesFirst,
        Self::RepliesSwapped,
        Self::FenceIgnored,
        Self::GuardsIgnored,
        Self::OthersIgnored,
        Self::LeasesCut,
        Self::SessionFirst,
        Self::ZxidsFall,
        Self::WrittenTwice,
        Self::Refusals,
        Self::SilenceKept,
        Self::WritesLost,
        Self::DataGarbled,
        Self::FailuresInvented,
        Self::EndsUntold,
        Self::ClosesUnheard,
        Self::RefusalsForgotten,
        Self::ClaimsStay,
        Self::StepsStay,
        Self::OffsetForgotten,
        Self::QuotasForgotten,
        Self::StatisticsStay,
    ];

    /// What a shim puts out.
    pub(crate) fn outputs(self, outputs: &mut Vec<Output>, random: &mut Random) {
        let is_event = |output: &Output| matches!(output, Output::Send(_, Outgoing::Event(_)));
        match self {
            Self::EventsLost => outputs.retain(|output| !is_event(output) || random.chance(900)),
            Self::EventsTwice => {
                let events: Vec<Output> =
                    outputs.iter().filter(|one| is_event(one)).cloned().collect();
                outputs.extend(events.into_iter().filter(|_| random.chance(100)));
            }
            Self::RepliesFirst => outputs.sort_by_key(is_event),
            Self::RepliesSwapped => swap_replies(outputs, random),
            Self::Refusals => {
                for output in outputs {
                    if let Output::Send(_, outgoing) = output {
                        self.falsify(outgoing, random);
                    }
                }
            }
            Self::StatisticsStay
            | Self::WritesLost
            | Self::DataGarbled
            | Self::FailuresInvented
            | Self::ZxidsFall => {
                for output in outputs {
                    if let Output::Send(_, outgoing) = output
                        && random.chance(50)
                    {
                        self.falsify(outgoing, random);
                    }
                }
            }
            _ => {}
        }
    }

    fn falsify(self, outgoing: &mut Outgoing, random: &mut Random) {
        match (self, outgoing) {
            (Self::Refusals, Outgoing::Connected(answer)) if random.chance(300) => {
                *answer = Connected::Refused;
            }
            (Self::ZxidsFall, Outgoing::Reply(Reply { zxid, .. })) => zxid.0 = (zxid.0 - 3).max(1),
            (Self::WritesLost, Outgoing::Reply(Reply { outcome, .. }))
                if *outcome == Err(ErrorCode::NodeExists) =>
            {
                *outcome = Ok(Body::Path(Some("/a".into())));
            }
            (
                Self::StatisticsStay,
                Outgoing::Reply(Reply { outcome: Ok(Body::Data(Some(data), _)), .. }),
            ) if data.starts_with(b"count=") => *data = "count=1,bytes=0".into(),
            (
                Self::DataGarbled,
                Outgoing::Reply(Reply { outcome: Ok(Body::Data(data, _)), .. }),
            ) => {
                *data = Some("garbled".into());
            }
            (Self::FailuresInvented, Outgoing::Reply(Reply { outcome, .. }))
                if *outcome == Err(ErrorCode::NoNode) =>
            {
                *outcome = Err(ErrorCode::NotEmpty);
            }
            _ => {}
        }
    }

    /// What reaches etcd. `false` if it does not.
    pub(crate) fn command(self, command: &mut StoreCommand) -> bool {
        let StoreCommand::Commit(_, txn) = command else { return true };
        match self {
            Self::FenceIgnored => strip(txn, |compare| {
                if matches!(compare, Compare::ModRevision(key, _) | Compare::Value(key, _)
                    if matches!(Slot::parse(key), Some(Slot::Last)))
                {
                    return false;
                }
                let (Compare::ModRevision(key, at) | Compare::CreateRevision(key, at)) = compare
                else {
                    return true;
                };
                // Its absence is no fence: it is what a first key rests on.
                *at == Revision::NEVER || !matches!(Slot::parse(key), Some(Slot::Session(_)))
            }),
            Self::OthersIgnored => strip(txn, |compare| {
                let (Compare::ModRevision(key, _)
                | Compare::CreateRevision(key, _)
                | Compare::Lease(key, _)
                | Compare::Value(key, _)) = compare;
                !matches!(Slot::parse(key), Some(Slot::Last))
            }),
            Self::GuardsIgnored => strip(txn, |_| false),
            Self::RefusalsForgotten => strip(txn, |compare| {
                let Compare::ModRevision(key, _) = compare else { return true };
                !matches!(Slot::parse(key), Some(Slot::Spent(_) | Slot::Last))
            }),
            Self::EndsUntold => {
                leave_out(&mut txn.then, |key| matches!(Slot::parse(key), Some(Slot::Ended(_))))
            }
            Self::ClaimsStay => unlease(txn, |slot| matches!(slot, Slot::Claim(..))),
            Self::StepsStay => unlease(txn, |slot| matches!(slot, Slot::Steps(..))),
            Self::SilenceKept => return !ends_a_session(txn),
            _ => {}
        }
        true
    }
}

/// The same without what it rests on.
pub(crate) fn unguarded(command: &StoreCommand) -> StoreCommand {
    let mut command = command.clone();
    if let StoreCommand::Commit(_, txn) = &mut command {
        strip(txn, |_| false);
    }
    command
}

fn swap_replies(outputs: &mut [Output], random: &mut Random) {
    for index in 1..outputs.len() {
        let same = match (&outputs[index - 1], &outputs[index]) {
            (Output::Send(first, Outgoing::Reply(_)), Output::Send(second, Outgoing::Reply(_))) => {
                first == second
            }
            _ => false,
        };
        if same && random.chance(200) {
            outputs.swap(index - 1, index);
        }
    }
}

fn strip(txn: &mut Txn, keep: fn(&Compare) -> bool) {
    txn.compares.retain(keep);
    for op in &mut txn.then {
        if let Op::Txn(nested) = op {
            strip(nested, keep);
        }
    }
}

fn leave_out(ops: &mut Vec<Op>, what: fn(&[u8]) -> bool) {
    ops.retain(|op| !matches!(op, Op::Put { key, .. } if what(key)));
    for op in ops {
        if let Op::Txn(nested) = op {
            leave_out(&mut nested.then, what);
        }
    }
}

/// Such keys are put on no lease.
fn unlease(txn: &mut Txn, which: fn(&Slot) -> bool) {
    for op in txn.then.iter_mut().chain(&mut txn.otherwise) {
        match op {
            Op::Put { key, lease, .. } if Slot::parse(key).as_ref().is_some_and(which) => {
                *lease = LeaseId::NONE;
            }
            Op::Txn(nested) => unlease(nested, which),
            _ => {}
        }
    }
}

/// A session's key is written for the first time.
pub(crate) fn writes_first_key(txn: &Txn) -> bool {
    let is_first = |compare: &Compare| {
        let Compare::ModRevision(key, Revision::NEVER) = compare else { return false };
        matches!(Slot::parse(key), Some(Slot::Session(_)))
    };
    txn.compares.iter().any(is_first)
        || txn.then.iter().any(|op| matches!(op, Op::Txn(nested) if writes_first_key(nested)))
}

/// It changes nothing, whatever it finds.
pub(crate) fn is_read(txn: &Txn) -> bool {
    txn.then.is_empty() && txn.otherwise.is_empty()
}

pub(crate) fn ends_a_session(txn: &Txn) -> bool {
    txn.then.iter().any(|op| match op {
        Op::Delete(key) => matches!(Slot::parse(key), Some(Slot::Session(_))),
        Op::Txn(nested) => ends_a_session(nested),
        Op::Put { .. } => false,
    })
}
