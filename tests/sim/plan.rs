//! What kind of run a seed makes.

use crate::etcd::Odds;
use crate::random::Random;
use crate::script::{Decision, Script};
use std::time::Duration;

/// What a run is like; drawn from its seed.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) shims: usize,
    pub(crate) clients: usize,
    /// How long faults and work go on.
    pub(crate) busy: Duration,
    pub(crate) tick: Duration,
    /// The longest way between client and shim, one way.
    pub(crate) network_ms: u64,
    /// The longest way between shim and etcd, one way.
    pub(crate) etcd_ms: u64,
    /// The longest time that the stream is behind.
    pub(crate) lag_ms: u64,
    /// etcd's members; one may be cut off as long as most are left.
    pub(crate) members: usize,
    /// The longest time that a member is behind its leader.
    pub(crate) member_ms: u64,
    pub(crate) odds: Odds,
    /// The mean time between two faults; none if there are no faults.
    pub(crate) fault_every: Option<Duration>,
    /// The mean time that a client thinks.
    pub(crate) think_ms: u64,
    /// How many requests a client has under way at most.
    pub(crate) pipeline: usize,
    /// The only shim of an embedded store.
    pub(crate) sole: bool,
    /// Some multis are very large, and some sessions have very many ephemerals.
    pub(crate) heavy: bool,
    /// etcd's `--max-txn-ops`.
    pub(crate) txn_ops_max: usize,
    /// How often containers and TTL nodes are looked through.
    pub(crate) container_check: Duration,
    /// How long a session may go without its key.
    pub(crate) session_key_delay: Duration,
    /// Much happens just after a client has got its session.
    pub(crate) churn: bool,
    /// How far the shims' clocks may be apart.
    pub(crate) skew_ms: i64,
    /// What zxids are above revisions.
    pub(crate) offset: i64,
    /// Some subtrees have quotas.
    pub(crate) quotas: bool,
    /// Hard limits are enforced.
    pub(crate) enforce_quota: bool,
}

impl Plan {
    pub(crate) fn draw(random: &mut Random, wide: bool) -> Self {
        let faults = random.pick(&[0, 1, 1, 2, 2]);
        let odds = match faults {
            0 => Odds::default(),
            1 => Odds { answer_lost: 10, late: 5, lost: 5, refused: 2 },
            _ => Odds { answer_lost: 40, late: 40, lost: 20, refused: 10 },
        };
        let fault_every = match faults {
            0 => None,
            1 => Some(Duration::from_secs(8)),
            _ => Some(Duration::from_secs(2)),
        };
        let shims = random.pick(&[1, 2, 2, 3, 3, 4]);
        let sole = shims == 1 && random.chance(400);
        Self {
            shims,
            clients: 2 + random.below(6),
            busy: Duration::from_secs(20 + random.below(40) as u64),
            tick: Duration::from_millis(random.pick(&[500, 1000, 2000])),
            network_ms: random.pick(&[2, 10, 60]),
            etcd_ms: random.pick(&[2, 8, 40]),
            lag_ms: random.pick(&[2, 20, 150, 600]),
            members: if sole { 1 } else { random.pick(&[1, 3, 3, 3]) },
            member_ms: if sole { 0 } else { random.pick(&[0, 2, 20, 200]) },
            odds: if sole { Odds::default() } else { odds },
            fault_every,
            think_ms: random.pick(&[60, 150, 400]),
            pipeline: random.pick(&[1, 3, 8]),
            sole,
            heavy: random.chance(100),
            txn_ops_max: random.pick(&[128, 128, 512, 2048]),
            container_check: Duration::from_secs(random.pick(&[1, 5, 20])),
            session_key_delay: Duration::from_millis(random.pick(&[0, 500, 2000, 2000])),
            churn: random.chance(400),
            skew_ms: random.pick(if wide { &[5_000, 3_600_000] } else { &[0, 0, 200, 500] }),
            offset: random.pick(&[0, 0, 1000, 1 << 40]),
            quotas: random.chance(300),
            // Two shims may exceed a limit together, and then nobody's verdict is wrong.
            enforce_quota: random.chance(600) && shims == 1,
        }
    }

    /// Without what the script leaves out.
    pub(crate) fn with(mut self, script: &mut Script) -> Self {
        let parts = [
            (Decision::Net, &mut self.network_ms),
            (Decision::Far, &mut self.etcd_ms),
            (Decision::Lag, &mut self.lag_ms),
        ];
        for (decision, delay_ms) in parts {
            if !script.takes(decision) {
                *delay_ms = 1;
            }
        }
        if !script.takes(Decision::Behind) {
            self.member_ms = 0;
        }
        self
    }

    /// How long a client may wait for its session though nothing goes wrong: a linearizable read,
    /// a renewal, and the move; what the read and the move tell comes through the stream.
    pub(crate) fn handshake_max(&self) -> Duration {
        let stream_ms = self.member_ms + self.lag_ms;
        let ways_ms = 2 * self.network_ms + 6 * self.etcd_ms;
        Duration::from_millis(ways_ms + 2 * stream_ms)
    }

    /// How much later than its timeout a silent session may end, if nothing goes wrong: the rest
    /// of its tick, and the way of the txn that ends it, which may wait for others.
    pub(crate) fn late_max(&self) -> Duration {
        2 * self.tick + Duration::from_secs(2)
    }
}
