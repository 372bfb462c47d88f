//! The watch stream of each shim: it comes from the shim's member of etcd, lags behind that, breaks
//! off, and goes on where it was or begins with a snapshot.

use crate::random::Source;
use crate::shim::Input;
use crate::world::{Event, Start, World, millis};
use std::time::Duration;
use zkshim::keeper::txn::{PastDeletions, RevisionChanges, StoreEvent};
use zkshim::keeper::zxid::Revision;

impl World {
    /// The watch begins, or goes on where it was broken off.
    pub(crate) fn resume_stream(&mut self, shim: usize, afresh: bool) {
        self.shims[shim].resumed += 1;
        let cursor = self.shims[shim].cursor;
        let mut missed = Vec::new();
        match self.etcd.engine.changes_after(cursor) {
            Ok(changes) if !afresh => missed.extend(changes.cloned().map(StoreEvent::Changed)),
            _ => missed.push(StoreEvent::Loaded(self.etcd.engine.snapshot())),
        }
        if let Some(StoreEvent::Loaded(_)) = missed.last() {
            self.disturbed(shim);
        }
        if self.shims[shim].linked && !self.is_stream_alive(shim) {
            return;
        }
        if let Some(StoreEvent::Loaded(snapshot)) = missed.last_mut()
            && !self.etcd.embedded
            && self.chance.once(Source::Stream(shim, millis(self.now))).chance(700)
        {
            // etcd's history is read only once there is something to serve.
            let (until, since) = (snapshot.revision, snapshot.deletions_since);
            let deletions = std::mem::take(&mut snapshot.deletions);
            snapshot.deletions_since = until;
            let past = StoreEvent::Deleted(PastDeletions { until, deletions, since });
            let source = Source::Stream(shim, millis(self.now) + 1);
            let at = self.now + self.chance.once(source).millis(0, 3000);
            let (start, resumed) = (self.start_of(shim), self.shims[shim].resumed);
            self.schedule(at, Event::Stream(start, resumed, past));
        }
        for event in missed {
            let revision = match &event {
                StoreEvent::Changed(changes) => changes.revision,
                _ => self.revision(),
            };
            self.stream(shim, event, revision);
        }
    }

    /// Its member hears of what is new.
    fn is_stream_alive(&self, shim: usize) -> bool {
        !self.etcd.members[self.shims[shim].member].cut
    }

    /// Members hear of a revision, each in its time.
    pub(crate) fn tell_members(&mut self, revision: Revision) {
        for member in 0..self.etcd.members.len() {
            let source = Source::Member(member, millis(self.now));
            let at = self.now + self.chance.once(source).millis(0, self.plan.member_ms);
            self.etcd.members[member].hear(revision, at);
        }
    }

    pub(crate) fn tell_streams(&mut self, changes: &RevisionChanges) {
        for shim in 0..self.shims.len() {
            let there = &self.shims[shim];
            if there.keeper.is_some() && there.linked && self.is_stream_alive(shim) {
                self.stream(shim, StoreEvent::Changed(changes.clone()), changes.revision);
            }
        }
    }

    pub(crate) fn stream_progress(&mut self, start: Start) {
        if self.shims[start.shim].number == start.number {
            let member = self.shims[start.shim].member;
            let applied = self.etcd.members[member].applied(self.now);
            self.stream(start.shim, StoreEvent::Progress(applied), applied);
        }
    }

    /// Something leaves a shim's member once that has applied a revision.
    pub(crate) fn stream(&mut self, shim: usize, event: StoreEvent, revision: Revision) {
        let source = Source::Stream(shim, millis(self.now));
        let lag = self.chance.once(source).millis(0, self.plan.lag_ms);
        let applied_at = self.etcd.members[self.shims[shim].member].applies_at(revision);
        let at = self.shims[shim].last_streamed.max(self.now.max(applied_at) + lag);
        self.shims[shim].last_streamed = at;
        let (start, resumed) = (self.start_of(shim), self.shims[shim].resumed);
        self.schedule(at, Event::Stream(start, resumed, event));
    }

    /// What a shim had given up has come to be after all.
    pub(crate) fn was_late(&mut self, by: Start, before: Revision, sent_at: Duration) {
        let made = self.revision();
        if made > before && self.shims[by.shim].number == by.number {
            self.shims[by.shim].late.insert(made, sent_at);
        }
    }

    pub(crate) fn streamed(&mut self, start: Start, resumed: u64, event: StoreEvent) {
        let there = &mut self.shims[start.shim];
        if there.number != start.number || there.resumed != resumed || !there.linked {
            return;
        }
        match &event {
            StoreEvent::Changed(changes) => there.cursor = changes.revision,
            StoreEvent::Progress(revision) => there.cursor = *revision,
            StoreEvent::Loaded(snapshot) => there.cursor = snapshot.revision,
            _ => {}
        }
        if let StoreEvent::Changed(changes) = &event {
            let revision = changes.revision;
            if let Some(sent_at) = there.late.remove(&revision)
                && let Some(lost) = &mut there.lost_since
            {
                // It came to the leader after that, and the stream says what came of it.
                *lost = (*lost).max(sent_at);
            }
            self.note(|_| format!("shim {} applies {revision}", start.shim));
        }
        self.input(start, Input::Store(event));
    }
}
