//! What a shim asks of etcd, on its way there and back.

use crate::breaks::{Break, ends_a_session, is_read, unguarded, writes_first_key};
use crate::etcd::{Fate, refused, unanswered};
use crate::random::Source;
use crate::script::Decision;
use crate::shim::Input;
use crate::world::{Event, Start, World, millis};
use std::time::Duration;
use zkshim::keeper::txn::{StoreCommand, StoreEvent, TxnAnswer};

/// What a shim asks of etcd in so many milliseconds goes wrong together.
const CALLS_WINDOW_MS: u64 = 100;

impl World {
    /// A command is on its way to etcd.
    pub(crate) fn call(&mut self, shim: usize, command: StoreCommand) {
        let start = self.start_of(shim);
        let odds = if self.faulty { self.plan.odds } else { Default::default() };
        // By the time, not by the number of calls, which depends on all that was asked before.
        let window = millis(self.now) / CALLS_WINDOW_MS;
        let mut fate = odds.draw(self.chance.once(Source::Call(shim, window)), &command);
        if fate != Fate::Answered && !self.script.takes(Decision::Call(shim, window)) {
            fate = Fate::Answered;
        }
        if self.breaks == Some(Break::AnswersEarly) {
            self.answer_early(shim, &command);
        }
        let at = self.now + self.etcd_delay(shim);
        self.schedule(at, Event::Call(start, command, fate));
    }

    /// See [`Break::AnswersEarly`]: what will be in the history, unless others come between.
    fn answer_early(&mut self, shim: usize, command: &StoreCommand) {
        let StoreCommand::Commit(_, txn) = command else { return };
        let (before, mut guess) = (self.revision(), self.etcd.engine.clone());
        let planned = guess.commit(txn).is_ok().then(|| guess.changes_after(before).ok()).flatten();
        let changes = planned.and_then(|mut changes| changes.next().cloned());
        if let Some(changes) = changes {
            let revision = changes.revision;
            self.stream(shim, StoreEvent::Changed(changes), revision);
        }
    }

    /// How long the way to etcd takes, one way.
    fn etcd_delay(&self, shim: usize) -> Duration {
        let source = Source::Calls(shim, millis(self.now));
        self.chance.once(source).millis(0, self.plan.etcd_ms)
    }

    /// What becomes of a call, now that it should reach etcd.
    fn fate(&self, start: Start, command: &StoreCommand, drawn: Fate) -> Fate {
        let mut random = self.chance.once(Source::Calls(start.shim, millis(self.now)));
        if !self.is_in_touch(start.shim) {
            let late = random.millis(500, 9000);
            return random.pick(&[Fate::Lost, Fate::Lost, Fate::Late(late)]);
        }
        let slow = self.now < self.shims[start.shim].slow_until;
        if slow && matches!(command, StoreCommand::Commit(..)) {
            return Fate::Late(random.millis(1000, 9000));
        }
        drawn
    }

    pub(crate) fn called(&mut self, start: Start, command: StoreCommand, fate: Fate) {
        if let Some(answer) = self.answered_by_member(start, &command) {
            let at = self.now + self.etcd_delay(start.shim);
            self.schedule(at, Event::Answer(start, command, answer));
            return;
        }
        let there = &self.shims[start.shim];
        if self.etcd.embedded && (there.number != start.number || there.keeper.is_none()) {
            // The store is in the same process.
            return;
        }
        let mut fate = self.fate(start, &command, fate);
        if fate != Fate::Answered {
            self.disturbed(start.shim);
        }
        let mut command = command;
        self.break_call(start, &mut command, &mut fate);
        let soon = self.now + self.etcd_delay(start.shim);
        let given_up = self.now
            + self.chance.once(Source::Calls(start.shim, millis(self.now))).millis(300, 2000);
        let answer = match fate {
            Fate::Answered | Fate::AnswerLost => {
                let answer = match &command {
                    StoreCommand::Progress => {
                        self.stream_progress(start);
                        None
                    }
                    command => {
                        let mut answer = self.etcd.call(command, self.now);
                        if let Some(StoreEvent::Granted(_, Ok((lease, _)))) = &answer {
                            self.checks.told.granted(start, *lease);
                        }
                        if let Some(StoreEvent::BarrierPassed(_, Ok(revision))) = &mut answer
                            && self.breaks == Some(Break::BarriersLie)
                        {
                            revision.0 = (revision.0 - 5).max(1);
                        }
                        answer
                    }
                };
                self.etcd_moved();
                answer
            }
            Fate::Late(after) => {
                // Only what changes something matters once nobody waits for it.
                if !matches!(command, StoreCommand::Barrier(_) | StoreCommand::Progress) {
                    self.schedule(
                        self.now + after,
                        Event::LateCall(command.clone(), start, self.now),
                    );
                }
                None
            }
            Fate::Lost => None,
            Fate::Refused => refused(&command),
        };
        let known = matches!(fate, Fate::Answered | Fate::Refused);
        let (at, answer) = match answer {
            // The member that was asked answers, and has applied by then what it tells of.
            Some(answer) if known => (soon.max(self.applied_by(start, &answer)), Some(answer)),
            _ => (given_up, unanswered(&command)),
        };
        if matches!(answer, Some(StoreEvent::Committed(_, Err(_)))) {
            self.note(|_| format!("{command:?} gets {answer:?}"));
        }
        if let Some(answer) = answer {
            self.schedule(at, Event::Answer(start, command, answer));
        }
    }

    /// See [`Break`]: what is broken on the way.
    fn break_call(&mut self, start: Start, command: &mut StoreCommand, fate: &mut Fate) {
        if self.breaks.is_some_and(|breaks| !breaks.command(command)) {
            *fate = Fate::Lost;
        }
        match (self.breaks, &*command) {
            (Some(Break::EndsLate), StoreCommand::Commit(_, txn)) if ends_a_session(txn) => {
                *fate = Fate::Late(Duration::from_secs(40));
            }
            (Some(Break::RefusalsForgotten), StoreCommand::Commit(_, txn))
                if writes_first_key(txn) =>
            {
                // Only what comes late runs into a refusal.
                let random = self.chance.of(Source::Break);
                if random.chance(600) {
                    *fate = Fate::Late(random.millis(2_000, 25_000));
                }
            }
            (Some(Break::UnknownRepeated), StoreCommand::Commit(..))
                if matches!(*fate, Fate::AnswerLost | Fate::Late(_)) =>
            {
                let again = self.now + Duration::from_secs(10);
                self.schedule(again, Event::LateCall(unguarded(command), start, self.now));
            }
            _ => {}
        }
    }

    /// When a shim's member has applied what an answer tells of.
    fn applied_by(&self, start: Start, answer: &StoreEvent) -> Duration {
        let revision = match answer {
            StoreEvent::Committed(_, Ok(answer)) => answer.revision,
            StoreEvent::BarrierPassed(_, Ok(revision)) => *revision,
            _ => return Duration::ZERO,
        };
        self.etcd.members[self.shims[start.shim].member].applies_at(revision)
    }

    /// See [`Break::ComparesLocal`] and [`Break::BarriersLocal`]: a member answers by itself.
    fn answered_by_member(&mut self, start: Start, command: &StoreCommand) -> Option<StoreEvent> {
        let there = &self.shims[start.shim];
        let breaks = self.breaks.filter(|_| there.linked && self.etcd.out_until.is_none())?;
        let applied = self.etcd.members[there.member].applied(self.now);
        match (breaks, command) {
            (Break::ComparesLocal, StoreCommand::Commit(token, txn)) if is_read(txn) => {
                let holds = |compare| self.checks.model.holds(compare, applied);
                let succeeded = txn.compares.iter().all(holds);
                let answer = TxnAnswer { revision: applied, succeeded, nested: Vec::new() };
                Some(StoreEvent::Committed(*token, Ok(answer)))
            }
            (Break::BarriersLocal, StoreCommand::Barrier(token)) => {
                Some(StoreEvent::BarrierPassed(*token, Ok(applied)))
            }
            _ => None,
        }
    }

    pub(crate) fn answered(&mut self, start: Start, command: &StoreCommand, event: StoreEvent) {
        let there = &self.shims[start.shim];
        let alone = matches!(self.breaks, Some(Break::ComparesLocal | Break::BarriersLocal));
        let heard = there.linked && (alone || !self.etcd.members[there.member].cut);
        let event = if heard { Some(event) } else { unanswered(command) };
        self.note(|_| format!("shim {}: {event:?}", start.shim));
        if let Some(event) = event {
            self.input(start, Input::Store(event));
        }
    }
}
