//! The thread that owns the engine and the disk. While it waits for the disk, commands gather;
//! all that gathered is one write, so one fsync answers many.

use crate::keeper::txn::{CommitError, StoreCommand, StoreEvent};
use crate::store::StoreError;
use crate::store::embedded::clock::Clock;
use crate::store::embedded::delta::Delta;
use crate::store::embedded::disk::Disk;
use crate::store::embedded::engine::Engine;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Everything that the thread works with.
pub(super) struct Worker {
    pub(super) engine: Engine,
    pub(super) disk: Disk,
    pub(super) commands: Receiver<StoreCommand>,
    pub(super) events: mpsc::Sender<StoreEvent>,
    pub(super) clock: Clock,
}

impl Worker {
    /// Works until nobody can hand in commands any more, or nobody listens.
    /// If the disk fails, `failed` is told, and whatever is asked after that is refused.
    pub(super) fn run(mut self, failed: impl FnOnce(StoreError)) {
        let loaded = StoreEvent::Loaded(self.engine.snapshot());
        if self.events.blocking_send(loaded).is_err() {
            return;
        }
        while let Some(batch) = self.gather() {
            match self.turn(&batch) {
                Ok(Some(told)) => {
                    if told.into_iter().any(|event| self.events.blocking_send(event).is_err()) {
                        return;
                    }
                }
                Ok(None) => {}
                Err(error) => {
                    let reason = error.to_string();
                    tracing::error!(error = reason, "the store's disk failed");
                    failed(error);
                    self.refuse_all(batch, &reason);
                    return;
                }
            }
        }
    }

    /// What there is to do next; empty if only time has passed, `None` at the end.
    fn gather(&mut self) -> Option<Vec<StoreCommand>> {
        self.clock.advance(Instant::now(), Duration::ZERO);
        let mut wait = Duration::MAX;
        let first = match self.engine.next_expiry() {
            Some(expiry) => {
                wait = self.clock.wait(expiry);
                match self.commands.recv_timeout(wait) {
                    Ok(command) => Some(command),
                    Err(RecvTimeoutError::Timeout) => None,
                    Err(RecvTimeoutError::Disconnected) => return None,
                }
            }
            None => Some(self.commands.recv().ok()?),
        };
        self.clock.advance(Instant::now(), wait);
        Some(first.into_iter().chain(self.commands.try_iter().take(BATCH_MAX)).collect())
    }

    /// Runs a batch, makes it durable, and returns what is to be told.
    fn turn(&mut self, batch: &[StoreCommand]) -> Result<Option<Vec<StoreEvent>>, StoreError> {
        let before = self.engine.revision();
        let now = self.clock.served();
        let mut delta = Delta::default();
        delta.leases.extend(self.engine.expire(now).into_iter().map(|lease| (lease, None)));
        let answers: Vec<StoreEvent> =
            batch.iter().map(|command| self.answer(command, now, &mut delta)).collect();
        let history = self.engine.changes_after(before).expect("the last batch is kept");
        delta.changes.extend(history.cloned());
        if delta.is_empty() && answers.is_empty() {
            return Ok(None);
        }
        if !delta.is_empty() {
            self.disk.write(&delta)?;
        }
        self.engine.compact(self.engine.revision());
        let changed = delta.changes.into_iter().map(StoreEvent::Changed);
        Ok(Some(changed.chain(answers).collect()))
    }

    fn answer(&mut self, command: &StoreCommand, now: Duration, delta: &mut Delta) -> StoreEvent {
        match command {
            StoreCommand::Commit(token, txn) => {
                StoreEvent::Committed(*token, self.engine.commit(txn))
            }
            StoreCommand::Barrier(token) => {
                StoreEvent::BarrierPassed(*token, Ok(self.engine.revision()))
            }
            StoreCommand::Progress => StoreEvent::Progress(self.engine.revision()),
            StoreCommand::Grant(token, ttl) => {
                let granted = self.engine.grant(*ttl, now);
                if let Ok((lease, ttl)) = &granted {
                    delta.leases.push((*lease, Some(*ttl)));
                }
                StoreEvent::Granted(*token, granted)
            }
            StoreCommand::Revoke(token, lease) => {
                if self.engine.revoke(*lease) {
                    delta.leases.push((*lease, None));
                }
                StoreEvent::Revoked(*token, Ok(()))
            }
            StoreCommand::Renew(lease) => {
                let ttl = self.engine.renew(*lease, now).unwrap_or(Duration::ZERO);
                StoreEvent::Renewed(*lease, Some(ttl))
            }
        }
    }

    /// Answers everything with the failure, until nobody asks any more. Of the batch that was
    /// being written nobody knows whether it survives.
    fn refuse_all(self, batch: Vec<StoreCommand>, reason: &str) {
        let unknown = CommitError::Unknown(reason.into());
        let refused = CommitError::Refused(reason.into());
        let written = batch.into_iter().map(|command| refuse(command, &unknown, reason));
        let later = self.commands.iter().map(|command| refuse(command, &refused, reason));
        for event in written.chain(later).flatten() {
            if self.events.blocking_send(event).is_err() {
                return;
            }
        }
    }
}

/// How many commands share one write at most, so that answers do not wait without a bound.
const BATCH_MAX: usize = 4096;

fn refuse(command: StoreCommand, commit: &CommitError, reason: &str) -> Option<StoreEvent> {
    let reason = reason.to_owned();
    Some(match command {
        StoreCommand::Commit(token, _) => StoreEvent::Committed(token, Err(commit.clone())),
        StoreCommand::Barrier(token) => StoreEvent::BarrierPassed(token, Err(reason)),
        StoreCommand::Progress => return None,
        StoreCommand::Grant(token, _) => StoreEvent::Granted(token, Err(reason)),
        StoreCommand::Revoke(token, _) => StoreEvent::Revoked(token, Err(reason)),
        StoreCommand::Renew(lease) => StoreEvent::Renewed(lease, None),
    })
}
