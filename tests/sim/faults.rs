//! What goes wrong, and how it is mended.

use crate::breaks::Break;
use crate::client::Link;
use crate::random::{Random, Source};
use crate::script::Decision;
use crate::world::{Event, Start, World, millis};
use std::time::Duration;
use zkshim::keeper::keyspace::Slot;
use zkshim::keeper::request::ConnectionId;
use zkshim::keeper::txn::{Op, Txn};
use zkshim::keeper::zxid::Revision;

/// Something that was done, and is to be undone.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    Paused(Start),
    Dead(usize),
    /// What it missed may be forgotten by then.
    Unlinked(Start, bool),
    Out,
    /// A member of etcd is cut off from the others.
    Cut(usize),
    /// A shim whose member is cut off finds another.
    Astray(Start),
}

impl World {
    /// The next fault, unless the script leaves it out.
    pub(crate) fn fault(&mut self, number: u64) {
        let every = self.plan.fault_every.unwrap_or(Duration::from_secs(3));
        let part = self.chance.of(Source::Faults).below(1000) as f64 / 1000.0;
        let next = self.now + every.mul_f64(0.1 + 1.8 * part);
        self.break_rules();
        if self.faulty || self.breaks.is_some() {
            self.schedule(next, Event::Fault(number + 1));
        }
        if !self.faulty || !self.script.takes(Decision::Fault(number)) {
            return;
        }
        self.faults += 1;
        let mut random = self.chance.once(Source::Fault(number));
        let random = &mut random;
        let shim = random.below(self.shims.len());
        let mut drawn = random.below(100);
        if self.breaks == Some(Break::FenceIgnored) && random.chance(400) {
            // Only what comes late runs into the fence.
            drawn = 60;
        }
        match drawn {
            0..17 => self.pause(shim, random),
            17..30 => self.kill(shim, random),
            30..40 if !self.plan.sole => self.unlink(shim, false, random),
            40..44 if !self.plan.sole => self.unlink(shim, true, random),
            44..49 if self.plan.members > 1 => self.cut_member(random),
            49..54 if !self.plan.sole => self.go_out(random),
            54..60 => self.compact(random),
            60..69 if !self.plan.sole => self.slow_down(shim, random),
            69..72 if !self.plan.sole => self.end_some_lease(random),
            72..75 => self.set_clock(shim, random),
            75..90 => self.cut_some_wire(random),
            _ => self.silence_some_client(random),
        }
        self.note_touch();
    }

    /// A member hears of the others no more. Most of its shims find another after a while.
    fn cut_member(&mut self, random: &mut Random) {
        if self.etcd.members.iter().any(|member| member.cut) {
            return;
        }
        let member = random.below(self.plan.members);
        let time = random.millis(100, 20_000);
        self.note(|_| format!("member {member} is cut off for {time:?}"));
        self.etcd.members[member].cut_off(self.now);
        self.schedule(self.now + time, Event::Mend(Fault::Cut(member)));
        for shim in 0..self.shims.len() {
            let (finds, after) = (random.chance(600), random.millis(300, 4000));
            if finds && self.shims[shim].member == member {
                let start = self.start_of(shim);
                self.schedule(self.now + after, Event::Mend(Fault::Astray(start)));
            }
        }
    }

    /// The member is back, and will have all that it has missed; its shims are told.
    fn rejoin(&mut self, member: usize) {
        if !std::mem::take(&mut self.etcd.members[member].cut) {
            return;
        }
        self.note(|_| format!("member {member} is back"));
        let source = Source::Member(member, millis(self.now));
        let at = self.now + self.chance.once(source).millis(0, self.plan.member_ms);
        let revision = self.revision();
        self.etcd.members[member].hear(revision, at);
        for shim in 0..self.shims.len() {
            if self.shims[shim].member == member && self.shims[shim].linked {
                self.shims[shim].steady_since = self.now;
                self.resume_stream(shim, false);
            }
        }
    }

    /// A shim goes to a member that hears of the others.
    fn find_member(&mut self, shim: usize) {
        let there = &self.shims[shim];
        if there.keeper.is_none() || !self.etcd.members[there.member].cut {
            return;
        }
        let member = self.etcd.pick_member(self.chance.of(Source::Shim(shim)));
        self.note(|_| format!("shim {shim} goes to member {member}"));
        self.shims[shim].member = member;
        self.shims[shim].steady_since = self.now;
        if self.shims[shim].linked {
            self.resume_stream(shim, false);
        }
    }

    /// A wall clock jumps.
    fn set_clock(&mut self, shim: usize, random: &mut Random) {
        let long = self.plan.skew_ms;
        if long > 0 {
            let skew_ms = random.below(2 * long as usize) as i64 - long;
            self.note(|_| format!("the clock of shim {shim} is {skew_ms} ms ahead now"));
            self.shims[shim].skew_ms = skew_ms;
            self.checks.clock_is_ahead(skew_ms);
        }
    }

    /// A lease is gone that a shim keeps for the next session, or for itself.
    fn end_some_lease(&mut self, random: &mut Random) {
        let sessions = self.checks.model.entries().filter_map(|entry| {
            let session = matches!(Slot::parse(&entry.key), Some(Slot::Session(_)));
            session.then_some(entry.lease)
        });
        let taken = sessions.collect();
        self.checks.sessions.disturbed(None, self.now);
        self.etcd.end_some_lease(random, &taken);
        self.etcd_moved();
    }

    fn pause(&mut self, shim: usize, random: &mut Random) {
        if self.shims[shim].keeper.is_none() || self.shims[shim].paused {
            return;
        }
        let long = if random.chance(100) { 70_000 } else { 6_000 };
        let time = random.millis(50, long);
        self.note(|_| format!("shim {shim} stands still for {time:?}"));
        self.shims[shim].paused = true;
        self.shims[shim].paused_at = self.now;
        self.disturbed(shim);
        let start = self.start_of(shim);
        self.schedule(self.now + time, Event::Mend(Fault::Paused(start)));
    }

    pub(crate) fn kill(&mut self, shim: usize, random: &mut Random) {
        if self.shims[shim].keeper.take().is_none() {
            return;
        }
        let long = if self.faulty { (50, 8_000) } else { (30_000, 90_000) };
        let time = random.millis(long.0, long.1);
        self.note(|_| format!("shim {shim} dies for {time:?}"));
        self.disturbed(shim);
        if self.etcd.embedded {
            self.etcd.out_until = Some(Duration::MAX);
        }
        for client in 0..self.clients.len() {
            let at = self.now + random.millis(0, 100);
            if let Some(connection) = self.connection_to(client, shim) {
                self.schedule(at, Event::HangUp(connection));
            }
        }
        self.schedule(self.now + time, Event::Mend(Fault::Dead(shim)));
    }

    fn connection_to(&self, client: usize, shim: usize) -> Option<ConnectionId> {
        let connection = match self.clients[client].link {
            Link::Away => return None,
            Link::Opening(connection, _) | Link::Open(connection) => connection,
        };
        let wire = self.wires.get(&connection)?;
        (wire.start == self.start_of(shim) && wire.open_at_client).then_some(connection)
    }

    /// `forget`: what it misses is compacted meanwhile.
    pub(crate) fn unlink(&mut self, shim: usize, forget: bool, random: &mut Random) {
        if self.shims[shim].keeper.is_none() || !self.shims[shim].linked {
            return;
        }
        let time = random.millis(50, 12_000);
        self.note(|_| format!("shim {shim} loses etcd for {time:?}"));
        self.shims[shim].linked = false;
        let start = self.start_of(shim);
        self.schedule(self.now + time, Event::Mend(Fault::Unlinked(start, forget)));
    }

    /// For a while nothing that a shim sends to etcd arrives in time, though it arrives; and its
    /// clients go elsewhere.
    fn slow_down(&mut self, shim: usize, random: &mut Random) {
        let time = random.millis(100, 2000);
        self.note(|_| format!("shim {shim} is far from etcd for {time:?}"));
        self.shims[shim].slow_until = self.now + time;
        for client in 0..self.clients.len() {
            let (goes, at) = (random.chance(700), self.now + random.millis(0, 2000));
            if let Some(connection) = self.connection_to(client, shim).filter(|_| goes) {
                self.schedule(at, Event::Break(connection));
            }
        }
    }

    fn go_out(&mut self, random: &mut Random) {
        if self.etcd.out_until.is_some() {
            return;
        }
        let long = if random.chance(300) { 15_000 } else { 3_000 };
        let until = self.now + random.millis(200, long);
        self.note(|_| format!("etcd is out until {until:?}"));
        self.etcd.out_until = Some(until);
        self.schedule(until, Event::Mend(Fault::Out));
    }

    fn compact(&mut self, random: &mut Random) {
        let back = random.pick(&[0, 0, 5, 50]);
        let at = Revision(self.revision().0 - back);
        self.note(|_| format!("history up to {at} is forgotten"));
        self.etcd.engine.compact(at);
    }

    fn cut_some_wire(&mut self, random: &mut Random) {
        let client = random.below(self.clients.len());
        match self.clients[client].link {
            Link::Away => {}
            Link::Opening(connection, _) | Link::Open(connection) => self.break_wire(connection),
        }
    }

    pub(crate) fn break_wire(&mut self, connection: ConnectionId) {
        self.note(|_| format!("{connection:?} breaks"));
        self.drop_wire(connection);
        self.schedule(self.now, Event::HangUp(connection));
    }

    /// A client has just got a session, new or not.
    pub(crate) fn just_opened(&mut self, index: usize, connection: ConnectionId) {
        self.clients[index].opened += 1;
        let number = self.clients[index].opened;
        // A short session, as of those who look for a server.
        let short = self.clients[index].home.is_none()
            && self.chance.once(Source::Closed(index, number)).chance(40);
        if short && self.script.takes(Decision::Opened(index, number)) {
            self.say_goodbye(index);
            return;
        }
        let usual = self.clients[index].home.is_some() || !self.plan.churn || !self.faulty;
        let mut random = self.chance.once(Source::Opened(index, number));
        let drawn = random.below(100);
        if usual || drawn >= 60 || !self.script.takes(Decision::Opened(index, number)) {
            return;
        }
        let soon = self.now + random.millis(0, 300);
        let shim = self.wires[&connection].start.shim;
        match drawn {
            0..15 => self.schedule(soon, Event::Break(connection)),
            15..25 => self.kill(shim, &mut random),
            25..35 => self.pause(shim, &mut random),
            35..45 => {
                let time = self.clients[index].timeout.mul_f64(random.below(2500) as f64 / 1000.0);
                self.note(|_| format!("client {index} is silent for {time:?}"));
                self.clients[index].silent_until = self.now + time;
            }
            45..50 => {
                // It goes with its first write on the way.
                self.first_write(index, &mut random);
                self.schedule(soon, Event::Break(connection));
            }
            50..55 if !self.plan.sole => self.slow_down(shim, &mut random),
            55..57 if !self.plan.sole => {
                // It closes what has no key yet, when its shim has lost etcd or is about to.
                let (lost, left) = (random.millis(0, 600), random.millis(100, 1500));
                let start = self.start_of(shim);
                self.schedule(self.now + lost, Event::Unlink(start, random));
                self.clients[index].silent_until = self.now + left;
                self.schedule(self.now + left, Event::Goodbye(index, connection));
            }
            _ => self.say_goodbye(index),
        }
    }

    fn silence_some_client(&mut self, random: &mut Random) {
        let client = random.below(self.clients.len());
        let timeout = self.clients[client].timeout;
        let time = timeout.mul_f64(0.2 + random.below(2000) as f64 / 1000.0);
        self.note(|_| format!("client {client} is silent for {time:?}"));
        self.clients[client].silent_until = self.now + time;
    }

    /// Undo.
    pub(crate) fn mend(&mut self, fault: Fault) {
        match fault {
            Fault::Paused(start) => {
                if self.shims[start.shim].number == start.number {
                    self.note(|_| format!("shim {} moves again", start.shim));
                    self.wake(start.shim);
                }
            }
            Fault::Dead(shim) => {
                if self.shims[shim].keeper.is_none() {
                    self.start(shim);
                }
            }
            Fault::Unlinked(start, forget) => {
                let there = &mut self.shims[start.shim];
                if there.number == start.number && !there.linked {
                    there.linked = true;
                    there.steady_since = self.now;
                    self.note(|_| format!("shim {} has etcd again", start.shim));
                    self.find_member(start.shim);
                    if forget {
                        let last = self.revision();
                        self.etcd.engine.compact(last);
                    }
                    self.resume_stream(start.shim, false);
                }
            }
            Fault::Out => {
                if self.etcd.out_until.is_some() && !self.etcd.embedded {
                    self.note(|_| "etcd is back".into());
                    self.etcd.recover(self.now);
                    self.checks.sessions.disturbed(None, self.now);
                    for shim in &mut self.shims {
                        shim.steady_since = self.now;
                    }
                    self.etcd_moved();
                }
            }
            Fault::Cut(member) => self.rejoin(member),
            Fault::Astray(start) => {
                if self.shims[start.shim].number == start.number {
                    self.find_member(start.shim);
                }
            }
        }
        self.note_touch();
    }

    /// Everything is mended, and stays so.
    pub(crate) fn calm_down(&mut self) {
        self.note(|_| "calm".into());
        self.faulty = false;
        self.mend(Fault::Out);
        for member in 0..self.etcd.members.len() {
            self.mend(Fault::Cut(member));
        }
        for shim in 0..self.shims.len() {
            self.mend(Fault::Dead(shim));
            let start = self.start_of(shim);
            self.mend(Fault::Unlinked(start, false));
            self.mend(Fault::Paused(start));
        }
        for client in &mut self.clients {
            client.silent_until = Duration::ZERO;
        }
        for shim in &mut self.shims {
            shim.slow_until = Duration::ZERO;
        }
    }

    /// See [`Break`]: those that etcd itself commits.
    fn break_rules(&mut self) {
        let Some(breaks) = self.breaks else { return };
        match breaks {
            Break::LeasesCut => {
                if let Some(lease) = self.etcd.pick_lease(self.chance.of(Source::Break)) {
                    self.etcd.engine.revoke(lease);
                }
            }
            Break::SessionFirst => {
                let model = &self.checks.model;
                let last = model.last();
                let ephemeral = model.paths(last).into_iter().find(|path| {
                    model.stat(path, last).is_some_and(|stat| stat.ephemeral_owner != 0)
                });
                if let Some(path) = ephemeral {
                    let owner = model.stat(&path, last).map_or(0, |stat| stat.ephemeral_owner);
                    let session = zkshim::keeper::request::SessionId(owner);
                    let gone = Slot::Session(session).key();
                    let txn = Txn { then: vec![Op::Delete(gone)], ..Txn::default() };
                    let _ = self.etcd.engine.commit(&txn);
                }
            }
            Break::WrittenTwice => self.write_twice(),
            _ => return,
        }
        self.etcd_moved();
    }

    /// A znode gets what it had before once more.
    fn write_twice(&mut self) {
        let model = &self.checks.model;
        let last = model.last();
        let twice = model.paths(last).into_iter().find_map(|path| {
            let stat = model.stat(&path, last)?;
            let slot = Slot::Node(path.as_str().into());
            let entry = model.key(&slot, last).filter(|_| stat.version > 0)?;
            let mut value = zkshim::keeper::keyspace::NodeValue::decode(entry.value.clone())?;
            value.version += 1;
            Some(Op::Put { key: slot.key(), value: value.encode(), lease: entry.lease })
        });
        if let Some(put) = twice {
            let _ = self.etcd.engine.commit(&Txn { then: vec![put], ..Txn::default() });
        }
    }
}
