//! Compares what two servers showed for one script.
//!
//! The zxids of the two are mapped by the changes that both answered with success, in order. A
//! write that fails takes a zxid on the real server and none on zkshim, and zkshim may give the
//! writes of one batch the same zxid; what is compared is the place among the changes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::conformance::session::ConnectResponse;
use crate::conformance::wire::{hex, op};
use crate::differential::answer::{Header, Token, header, multi_changed, tokens};
use crate::differential::deviations::{Deviation, excuse};
use crate::differential::order::{events_first, sort_ends, without_pings};
use crate::differential::play::{BatchLog, Seen};
use crate::differential::script::slot_name;

/// Where two servers differ.
#[derive(Clone, Debug)]
pub struct Difference {
    /// In which batch.
    pub batch: usize,
    /// What a slot saw, on the real server and on zkshim, and why that is not the same.
    pub text: String,
}

/// How often each known deviation was met.
pub type Excused = BTreeMap<Deviation, usize>;

/// One server's values that stand for another's.
#[derive(Default)]
struct Mapping {
    /// The zxids of each change, on both.
    changes: Vec<(i64, i64)>,
    /// Where the batch in hand starts among them.
    batch_start: usize,
    /// The zxids of sessions' ends on the real server: their events have no order.
    ends: Vec<i64>,
    /// The sessions' ids on both.
    sessions: Vec<(i64, i64)>,
    /// How many of them were there before the batch in hand.
    opened_before: usize,
    /// The newest zxid that each slot of zkshim was told.
    newest: BTreeMap<usize, i64>,
}

/// The first difference, if there is one.
///
/// # Errors
/// The difference.
pub fn compare(
    oracle: &[BatchLog],
    shim: &[BatchLog],
    excused: &mut Excused,
) -> Result<(), Difference> {
    let mut mapping = Mapping::default();
    for (left, right) in oracle.iter().zip(shim) {
        let batch = left.batch;
        mapping.batch(left, right, excused).map_err(|text| Difference { batch, text })?;
    }
    if oracle.len() != shim.len() {
        let text = format!("{} batches were played, and {}", oracle.len(), shim.len());
        return Err(Difference { batch: 0, text });
    }
    Ok(())
}

impl Mapping {
    fn batch(
        &mut self,
        oracle: &BatchLog,
        shim: &BatchLog,
        excused: &mut Excused,
    ) -> Result<(), String> {
        self.opened_before = self.sessions.len();
        self.sessions.extend(oracle.opened.iter().copied().zip(shim.opened.iter().copied()));
        let (left, right) = (by_slot(oracle), by_slot(shim));
        self.batch_start = self.changes.len();
        for (slot, seen) in &left {
            let other = right.get(slot).map(Vec::as_slice).unwrap_or_default();
            self.learn(seen, other)?;
        }
        let slots: BTreeSet<usize> = left.keys().chain(right.keys()).copied().collect();
        for slot in slots {
            let (mut one, mut other) = (seen_by(&left, slot), seen_by(&right, slot));
            let (oracle, shim) = (one.clone(), other.clone());
            let (pings, other_pings) = (without_pings(&mut one), without_pings(&mut other));
            equal("answers to pings", &pings, &other_pings)
                .map_err(|text| report(slot, &oracle, &shim, &text))?;
            sort_ends(&self.ends, &mut one, &mut other);
            self.advance(slot, &shim).map_err(|text| report(slot, &oracle, &shim, &text))?;
            let Err(strict) = self.slot(&one, &other, excused) else { continue };
            // Again, with the events of what shares a revision before its answers.
            let is_shared = events_first(&mut one) | events_first(&mut other);
            if !is_shared || self.slot(&one, &other, excused).is_err() {
                return Err(report(slot, &oracle, &shim, &strict));
            }
            *excused.entry(Deviation::EventsOfOneRevision).or_default() += 1;
        }
        Ok(())
    }

    /// Takes in the changes that both servers answered with success.
    fn learn(&mut self, oracle: &[&Seen], shim: &[&Seen]) -> Result<(), String> {
        let answers = |seen: &[&Seen]| -> Vec<(Option<usize>, i32, Vec<u8>)> {
            let answers = seen.iter().filter_map(|seen| match seen {
                Seen::Answer { opcode: op::PING, .. } => None,
                Seen::Answer { step, opcode, frame } => Some((*step, *opcode, frame.clone())),
                _ => None,
            });
            answers.collect()
        };
        for ((step, opcode, left), (_, _, right)) in answers(oracle).iter().zip(answers(shim)) {
            let (Ok((one, body)), Ok((other, _))) = (header(left), header(&right)) else {
                continue;
            };
            if step.is_none() || !is_change(*opcode, one, body) || other.error != 0 {
                continue;
            }
            let last = self.changes.last().copied().unwrap_or((0, 0));
            if *opcode == op::CLOSE_SESSION {
                self.ends.push(one.zxid);
                // A session that has no key yet ends without a revision.
                if other.zxid == last.1 {
                    continue;
                }
            }
            let is_shared = self.changes.len() > self.batch_start && other.zxid == last.1;
            if one.zxid <= last.0 || !(is_shared || other.zxid > last.1) {
                return Err(format!(
                    "the change of step {step:?} has zxid {} and {}, the one before {} and {}",
                    one.zxid, other.zxid, last.0, last.1
                ));
            }
            self.changes.push((one.zxid, other.zxid));
        }
        Ok(())
    }

    fn slot(&self, oracle: &[&Seen], shim: &[&Seen], excused: &mut Excused) -> Result<(), String> {
        for (index, (one, other)) in oracle.iter().zip(shim).enumerate() {
            self.seen(one, other, excused).map_err(|why| format!("at {index}: {why}"))?;
        }
        if oracle.len() == shim.len() { Ok(()) } else { Err("their number".to_owned()) }
    }

    fn seen(&self, oracle: &Seen, shim: &Seen, excused: &mut Excused) -> Result<(), String> {
        match (oracle, shim) {
            (Seen::Event(left), Seen::Event(right)) => {
                let ((one, left), (other, right)) = both_headers(left, right)?;
                if (one.zxid == -1) != (other.zxid == -1) {
                    return Err("zxid -1 of an event".to_owned());
                }
                if one.zxid != -1 {
                    self.exact(one.zxid, other.zxid)?;
                }
                equal("event", &(one.error, left), &(other.error, right))
            }
            (
                Seen::Answer { step, opcode, frame: left },
                Seen::Answer { step: same, frame: right, .. },
            ) => {
                equal("step", step, same)?;
                let ((one, left), (other, right)) = both_headers(left, right)?;
                if step.is_some() {
                    equal("xid", &one.xid, &other.xid)?;
                }
                let is_excused = excuse(*opcode, (one, left), (other, right));
                if let Some(deviation) = is_excused {
                    *excused.entry(deviation).or_default() += 1;
                    return Ok(());
                }
                equal("error code", &one.error, &other.error)?;
                self.answer_zxid(*opcode, (one, left), other)?;
                let (left, right) =
                    (tokens(*opcode, one.error, left), tokens(*opcode, other.error, right));
                self.tokens(&left, &right)
            }
            (Seen::Handshake(one), Seen::Handshake(other)) => {
                equal("protocol", &one.protocol, &other.protocol)?;
                if other.timeout_ms > 0 && other.timeout_ms < one.timeout_ms && self.is_known(one) {
                    *excused.entry(Deviation::TimeoutOfTheLease).or_default() += 1;
                } else {
                    equal("timeout", &one.timeout_ms, &other.timeout_ms)?;
                }
                equal("readOnly", &one.read_only, &other.read_only)?;
                equal("password", &one.password.len(), &other.password.len())?;
                self.session(one.session, other.session)
            }
            (Seen::Refused, Seen::Handshake(other)) if other.timeout_ms == 0 => {
                *excused.entry(Deviation::UnknownSessionFromTheFuture).or_default() += 1;
                Ok(())
            }
            (one, other) => equal("what was seen", one, other),
        }
    }

    fn answer_zxid(
        &self,
        opcode: i32,
        (one, body): (Header, &[u8]),
        other: Header,
    ) -> Result<(), String> {
        if one.zxid <= 0 || other.zxid <= 0 {
            return equal("zxid in the header", &one.zxid, &other.zxid);
        }
        let learnt = self.changes.binary_search_by_key(&one.zxid, |(zxid, _)| *zxid).is_ok();
        if is_change(opcode, one, body) && (learnt || opcode != op::CLOSE_SESSION) {
            return self.exact(one.zxid, other.zxid);
        }
        let after = self.changes.partition_point(|(zxid, _)| *zxid <= one.zxid);
        let floor = after.checked_sub(1).and_then(|index| self.changes.get(index));
        let floor = floor.map_or(0, |(_, zxid)| *zxid);
        let (next, may_share) = match self.changes.get(after) {
            // A failed write may have been proved together with the next change.
            Some((_, zxid)) => (*zxid, after >= self.batch_start),
            None => (i64::MAX, false),
        };
        if other.zxid < floor
            || (other.zxid >= next && other.zxid != floor && !may_share)
            || other.zxid > next
        {
            return Err(format!(
                "zxid in the header {:#x}: change {after} and before the next, but {:#x} is not \
                 in {floor:#x}..{next:#x}",
                one.zxid, other.zxid
            ));
        }
        Ok(())
    }

    /// No zxid on a connection to zkshim is below the one before.
    fn advance(&mut self, slot: usize, seen: &[&Seen]) -> Result<(), String> {
        for seen in seen {
            let zxid = match seen {
                Seen::Answer { frame, .. } | Seen::Event(frame) => {
                    header(frame).map(|it| it.0.zxid)
                }
                _ => continue,
            };
            let newest = self.newest.entry(slot).or_default();
            match zxid {
                Ok(zxid) if zxid > 0 && zxid < *newest => {
                    return Err(format!("zkshim's zxid went back from {newest:#x} to {zxid:#x}"));
                }
                Ok(zxid) => *newest = zxid.max(*newest),
                Err(_) => {}
            }
        }
        Ok(())
    }

    fn exact(&self, oracle: i64, shim: i64) -> Result<(), String> {
        match self.changes.binary_search_by_key(&oracle, |(zxid, _)| *zxid) {
            Ok(index) => match self.changes.get(index) {
                Some((_, want)) if *want == shim => Ok(()),
                want => Err(format!("the zxid of change {index}: {shim:#x}, not {want:x?}")),
            },
            // From before the script: of one of the nodes that are always there.
            Err(0) if oracle == 0 || shim == 0 => equal("zxid", &oracle, &shim),
            Err(0) => match self.changes.first() {
                Some((_, first)) if shim >= *first => Err("a zxid from before".to_owned()),
                _ => Ok(()),
            },
            Err(_) => Err(format!("zxid {oracle:#x} of no change (zkshim: {shim:#x})")),
        }
    }

    /// Whether a handshake resumes a session rather than opens one.
    fn is_known(&self, response: &ConnectResponse) -> bool {
        let opened = self.opened_before;
        self.sessions.iter().take(opened).any(|(one, _)| *one == response.session)
    }

    fn session(&self, oracle: i64, shim: i64) -> Result<(), String> {
        let known = |(one, other): &&(i64, i64)| *one == oracle || *other == shim;
        match self.sessions.iter().find(known) {
            Some(pair) if *pair == (oracle, shim) => Ok(()),
            None if (oracle == 0) == (shim == 0) => Ok(()),
            _ => Err(format!("session {oracle:#x} and {shim:#x}")),
        }
    }

    fn tokens(&self, oracle: &[Token], shim: &[Token]) -> Result<(), String> {
        for (one, other) in oracle.iter().zip(shim) {
            match (one, other) {
                (Token::Zxid(one), Token::Zxid(other)) => self.exact(*one, *other)?,
                (Token::Time(one), Token::Time(other)) => {
                    equal("time is 0", &(*one == 0), &(*other == 0))?;
                }
                (Token::Session(one), Token::Session(other)) => self.session(*one, *other)?,
                (one, other) => equal("body", one, other)?,
            }
        }
        equal("number of parts", &oracle.len(), &shim.len())
    }
}

/// Whether an answer tells of a change of the tree.
fn is_change(opcode: i32, header: Header, body: &[u8]) -> bool {
    let writes = [
        op::CREATE,
        op::CREATE2,
        op::CREATE_CONTAINER,
        op::CREATE_TTL,
        op::DELETE,
        op::SET_DATA,
        op::SET_ACL,
        op::CLOSE_SESSION,
    ];
    header.error == 0 && (writes.contains(&opcode) || (opcode == op::MULTI && multi_changed(body)))
}

fn seen_by<'a>(seen: &BTreeMap<usize, Vec<&'a Seen>>, slot: usize) -> Vec<&'a Seen> {
    seen.get(&slot).cloned().unwrap_or_default()
}

fn by_slot(log: &BatchLog) -> BTreeMap<usize, Vec<&Seen>> {
    let mut slots: BTreeMap<usize, Vec<&Seen>> = BTreeMap::new();
    for (slot, seen) in &log.seen {
        slots.entry(*slot).or_default().push(seen);
    }
    slots
}

type Parts<'a> = (Header, &'a [u8]);

fn both_headers<'a>(left: &'a [u8], right: &'a [u8]) -> Result<(Parts<'a>, Parts<'a>), String> {
    match (header(left), header(right)) {
        (Ok(one), Ok(other)) => Ok((one, other)),
        _ => Err("a frame without a header".to_owned()),
    }
}

fn equal<T: PartialEq + fmt::Debug>(what: &str, oracle: &T, shim: &T) -> Result<(), String> {
    if oracle == shim {
        return Ok(());
    }
    Err(format!("{what}: {oracle:?}, but zkshim {shim:?}"))
}

fn report(slot: usize, oracle: &[&Seen], shim: &[&Seen], why: &str) -> String {
    let mut text = format!("{why}\n");
    for (name, seen) in [("ZooKeeper", oracle), ("zkshim", shim)] {
        text += &format!("  slot {} of {name}:\n", slot_name(slot));
        for (index, seen) in seen.iter().enumerate() {
            text += &format!("    {index:>3}: {}\n", describe(seen));
        }
    }
    text
}

fn describe(seen: &Seen) -> String {
    match seen {
        Seen::Answer { step, opcode, frame } => {
            let what = step.map_or_else(|| "sync".to_owned(), |step| format!("step {step}"));
            match header(frame) {
                Ok((Header { xid, zxid, error }, body)) => format!(
                    "answer to {what} (op {opcode}): xid {xid} zxid {zxid:#x} error {error} {}",
                    hex(body)
                ),
                Err(_) => format!("answer to {what}: {}", hex(frame)),
            }
        }
        Seen::Event(frame) => {
            let path = frame.get(28..).map(String::from_utf8_lossy).unwrap_or_default();
            format!("event {} {path:?}", hex(frame.get(..28).unwrap_or(frame)))
        }
        other => format!("{other:?}"),
    }
}
