//! The end of a run: everybody is served again, everything is looked at, everybody leaves, and
//! nothing is left.

use crate::client::Link;
use crate::random::Source;
use crate::world::{Start, World};
use jute::Text;
use std::time::Duration;
use zkshim::keeper::keyspace::Slot;
use zkshim::keeper::request::{Operation, Read, SessionId};
use zkshim::keeper::zxid::Revision;

/// Within this time after everything is mended every client is served.
const SERVED_AFTER: Duration = Duration::from_secs(5);

impl World {
    /// Some seconds after the last fault.
    pub(crate) fn check_served(&mut self) -> Result<(), String> {
        for (index, shim) in self.shims.iter().enumerate() {
            let serving = shim.keeper.as_ref().is_some_and(|keeper| keeper.status().serving);
            if !serving {
                return Err(format!("shim {index} does not serve, long after the last fault"));
            }
        }
        for (index, client) in self.clients.iter().enumerate().filter(|(_, c)| !c.leaving) {
            let open = matches!(client.link, Link::Open(_));
            // Who gives up before a handshake can be over is served only now and then.
            let patient = client.patience() > self.plan.handshake_max();
            if !open && patient && self.now > client.away_since + SERVED_AFTER {
                return Err(format!("client {index} is not served, long after the last fault"));
            }
        }
        Ok(())
    }

    /// The clients at home read everything that there is.
    pub(crate) fn look_at_everything(&mut self) {
        let paths = self.checks.model.paths(self.checks.model.last());
        for index in self.plan.clients..self.clients.len() {
            let mut asked = Vec::new();
            for path in &paths {
                let path = Some(Text::from(path.as_str()));
                let read = Read { path, watch: false };
                let xid = self.clients[index].next_xid();
                asked.push((xid, Operation::GetData(read.clone())));
                let xid = self.clients[index].next_xid();
                asked.push((xid, Operation::GetChildren2(read)));
            }
            self.ask(index, asked);
        }
    }

    /// The shims that live.
    fn alive(&self) -> Vec<Start> {
        let alive = (0..self.shims.len()).filter(|shim| self.shims[*shim].keeper.is_some());
        alive.map(|shim| self.start_of(shim)).collect()
    }

    /// Nobody has anything under way.
    pub(crate) fn check_at_rest(&mut self) -> Result<(), String> {
        let settled = self.now.saturating_sub(SERVED_AFTER);
        let last = self.checks.model.last_at(settled);
        for (index, shim) in self.shims.iter().enumerate() {
            let Some(keeper) = &shim.keeper else { return Err(format!("shim {index} is dead")) };
            let status = keeper.status();
            if status.outstanding != 0 {
                return Err(format!("shim {index} at rest: {status:?}"));
            }
            let at = Revision(status.zxid.0 - self.plan.offset);
            if at < last {
                return Err(format!("shim {index} is at {}, etcd at {last}", status.zxid));
            }
            if status.znodes != self.checks.model.paths(at).len() {
                return Err(format!("shim {index} has {} znodes at {at}", status.znodes));
            }
        }
        for (index, client) in self.clients.iter().enumerate() {
            if !client.under_way.is_empty() {
                return Err(format!("client {index} waits for {} replies", client.under_way.len()));
            }
            if !matches!(client.link, Link::Open(_)) && !client.closing && !client.leaving {
                return Err(format!("client {index} at rest is not connected"));
            }
        }
        self.checks.at_rest(&self.alive())
    }

    /// Some say goodbye, the others fall silent.
    pub(crate) fn leave(&mut self) {
        for index in 0..self.clients.len() {
            self.clients[index].leaving = true;
            if self.chance.of(Source::Client(index)).chance(500) {
                self.say_goodbye(index);
            }
        }
        // Sessions end although their shim is gone.
        let mut random = self.chance.once(Source::Fault(u64::MAX));
        let shim = random.below(self.shims.len());
        if self.plan.fault_every.is_some() && !self.plan.sole && random.chance(300) {
            self.kill(shim, &mut random);
        }
    }

    /// All sessions have ended, and their ephemerals with them.
    pub(crate) fn check_left(&mut self) -> Result<(), String> {
        let late: Vec<SessionId> =
            self.checks.sessions.overdue(self.now, Duration::from_secs(50)).into_iter().collect();
        if !late.is_empty() {
            return Err(format!("sessions that should have expired: {late:?}"));
        }
        let left = self
            .checks
            .model
            .entries()
            .find(|entry| matches!(Slot::parse(&entry.key), Some(Slot::Session(_))));
        match left {
            Some(entry) => Err(format!("a session is left: {:?}", Slot::parse(&entry.key))),
            None => Ok(()),
        }
    }

    /// Leases that nobody needs have lapsed.
    pub(crate) fn check_empty(&mut self) -> Result<(), String> {
        if self.etcd.leases() > self.shims.len() {
            return Err(format!("{} leases are left", self.etcd.leases()));
        }
        if self.plan.skew_ms <= 5_000 {
            crate::checks::check_tidy(&self.checks.model)?;
        }
        self.checks.at_rest(&self.alive())
    }
}
