//! What zkshim asks of etcd with more sessions and more shims than there is room for: its core,
//! which is the server's own, runs in simulated time, and its commands are counted.

mod world;

use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::costs::{Counts, between, each};
use crate::model::world::World;

/// A line of the results of simulations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind")]
pub(crate) enum Modelled {
    /// Sessions that only ping.
    Idle {
        /// Which code, and when.
        run: String,
        /// How many shims they are spread over.
        shims: usize,
        /// How many.
        sessions: usize,
        /// What all of it cost for a session until the last had its key.
        start_per_session: Counts,
        /// What it cost in a second afterwards.
        per_second: Counts,
    },
    /// Clients that write again and again.
    Writes {
        /// Which code, and when.
        run: String,
        /// What they do.
        work: Work,
        /// How many shims they are spread over.
        shims: usize,
        /// How many.
        clients: usize,
        /// What a write cost.
        per_op: Counts,
    },
}

/// What clients write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Work {
    /// Each sets a znode of its own.
    Set,
    /// All create under one parent.
    Create,
}

/// Reads a file of such lines of JSON.
pub(crate) fn parse(lines: &str) -> Result<Vec<Modelled>> {
    let lines = lines.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| serde_json::from_str(line).context("read the simulations")).collect()
}

/// How long a session may be silent; it pings and has its lease renewed three times as often.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);
/// Sessions that begin in a second.
const STARTS_PER_SECOND: u32 = 20_000;
/// What is looked at: as long as two pings of a session are apart, twice.
const STEADY: Duration = TIMEOUT.saturating_mul(2).checked_div(3).expect("three is not zero");
/// All keys are written so long after the last session began.
const SETTLED_AFTER: Duration = Duration::from_secs(5);
/// Before the setData count, and while they do.
const WRITES_FOR: Duration = Duration::from_millis(500);

/// Idle sessions, spread over shims.
///
/// # Errors
/// A session was refused, or lost its lease.
pub(crate) fn idle(run: String, shims: usize, sessions: usize) -> Result<Modelled> {
    let mut world = World::started(shims)?;
    let before = world.counts();
    let apart = Duration::from_secs(1) / STARTS_PER_SECOND;
    world.open(sessions, apart);
    let count = u32::try_from(sessions).context("so many sessions")?;
    world.pass(apart * count + SETTLED_AFTER)?;
    world.check_served(sessions)?;
    let settled = world.counts();
    world.pass(STEADY)?;
    world.check_served(sessions)?;
    let (start, steady) = (between(&before, &settled), between(&settled, &world.counts()));
    Ok(Modelled::Idle {
        run,
        shims,
        sessions,
        start_per_session: each(start, sessions as f64),
        per_second: each(steady, STEADY.as_secs_f64()),
    })
}

/// Clients with one write under way each, spread over shims.
///
/// # Errors
/// As [`idle`].
pub(crate) fn writes(run: String, work: Work, shims: usize, clients: usize) -> Result<Modelled> {
    let mut world = World::started(shims)?;
    world.open(clients, Duration::from_micros(50));
    world.pass(SETTLED_AFTER)?;
    world.check_served(clients)?;
    world.begin_to_write(work);
    world.pass(WRITES_FOR)?;
    let (before, written) = (world.counts(), world.written());
    world.pass(WRITES_FOR)?;
    let ops = (world.written() - written).max(1) as f64;
    let per_op = each(between(&before, &world.counts()), ops);
    Ok(Modelled::Writes { run, work, shims, clients, per_op })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_session_costs_one_renewal_in_a_third_of_its_timeout_and_nothing_else() {
        let modelled = idle(String::new(), 2, 300).expect("it runs");
        let Modelled::Idle { start_per_session, per_second, .. } = modelled else {
            panic!("{modelled:?}")
        };
        for nothing in ["Raft entries", "puts", "leases granted", "leases revoked"] {
            assert_eq!(per_second[nothing], 0.0, "{nothing}: {per_second:?}");
        }
        let renewals = per_second["leases renewed"] * (TIMEOUT / 3).as_secs_f64();
        // And one of each shim's own.
        assert!((300.0..304.0).contains(&renewals), "{renewals} in a third of the timeout");
        assert!((1.0..1.5).contains(&start_per_session["leases granted"]), "{start_per_session:?}");
    }

    /// What it costs so many shims.
    fn per_op(work: Work, shims: usize) -> Counts {
        let modelled = writes(String::new(), work, shims, 60).expect("it runs");
        let Modelled::Writes { per_op, .. } = modelled else { panic!("{modelled:?}") };
        per_op
    }

    #[test]
    fn what_several_write_shares_its_txns() {
        for work in [Work::Set, Work::Create] {
            let per_op = per_op(work, 1);
            assert!(per_op["Raft entries"] < 0.1, "{per_op:?}");
            assert!((1.0..1.2).contains(&per_op["puts"]), "{per_op:?}");
            assert_eq!((per_op["leases granted"], per_op["failed txns"]), (0.0, 0.0));
        }
    }

    #[test]
    fn shims_get_in_each_others_way_only_where_they_write_the_same() {
        assert_eq!(per_op(Work::Set, 2)["failed txns"], 0.0);
        assert!(per_op(Work::Create, 2)["failed txns"] > 0.0);
    }
}
