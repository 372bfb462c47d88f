//! The kinds of faults, and how each is made and mended.

use std::time::Duration;

use clap::ValueEnum;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Kind {
    /// A shim is killed (SIGKILL) and started again.
    ShimKill,
    /// A shim is told to end (SIGTERM) and started again.
    ShimTerm,
    /// A shim is stopped for two seconds (SIGSTOP), then goes on.
    ShimPause,
    /// A shim is stopped for longer than its clients' timeouts.
    ShimPauseLong,
    /// A shim and etcd do not hear each other.
    ShimCut,
    /// A shim does not hear etcd.
    ShimDeaf,
    /// etcd does not hear a shim.
    ShimMute,
    /// A shim and the member that it is connected to do not hear each other.
    ShimMemberCut,
    /// A shim and etcd's leader do not hear each other.
    ShimLeaderCut,
    /// A machine with clients does not reach the shim that they are on.
    ClientCut,
    /// etcd's leader is killed and started again.
    LeaderKill,
    /// A follower is killed and started again.
    FollowerKill,
    /// etcd's leader is told to end and started again.
    LeaderTerm,
    /// etcd's leader is stopped for six seconds.
    LeaderPause,
    /// A follower is stopped for six seconds.
    FollowerPause,
    /// etcd's leader and the other members do not hear each other; the shims hear all.
    LeaderCut,
    /// A follower and the other members do not hear each other; the shims hear all.
    FollowerCut,
    /// Two members are killed and started again.
    MajorityKill,
    /// Every packet is late, between all machines.
    Slow,
    /// Packets are lost, between all machines.
    Loss,
    /// Another member is made the leader.
    LeaderMove,
    /// etcd forgets its history.
    Compact,
    /// etcd forgets its history while a shim is stopped.
    CompactPaused,
    /// Each member's database is rewritten.
    Defragment,
    /// etcd's database is full; then there is room again.
    NoSpace,
    /// A member's disk is full; then there is room, and the member is started again.
    DiskFull,
    /// A member is lost for good, and another one takes its place.
    MemberReplace,
    /// All members are stopped and begin anew from a snapshot taken some seconds before.
    Restore,
    /// The same, and one shim is stopped until etcd is further than it was before.
    RestorePaused,
    /// The same as another cluster, with a revision above all that there were.
    RestoreBumped,
}

/// From when on the recovery is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// What remains can serve: from the fault.
    Fault,
    /// Nothing can serve before the fault is mended: from then.
    Mended,
}

impl Kind {
    /// Every kind, in the order of tables.
    #[must_use]
    pub fn all() -> &'static [Self] {
        Self::value_variants()
    }

    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// One sentence.
    #[must_use]
    pub fn sentence(self) -> String {
        let value = self.to_possible_value();
        let help = value.and_then(|value| value.get_help().map(ToString::to_string));
        help.unwrap_or_default()
    }

    /// How long it lasts before it is mended.
    #[must_use]
    pub fn lasts(self) -> Duration {
        Duration::from_millis(match self {
            Self::LeaderMove | Self::Compact | Self::Defragment => 0,
            Self::ShimPause | Self::Restore | Self::RestorePaused | Self::RestoreBumped => 2_000,
            Self::ShimKill | Self::ShimTerm | Self::MemberReplace => 3_000,
            Self::LeaderKill | Self::FollowerKill | Self::LeaderTerm => 5_000,
            Self::NoSpace | Self::DiskFull | Self::CompactPaused | Self::MajorityKill => 6_000,
            Self::LeaderPause | Self::FollowerPause | Self::Slow | Self::Loss => 6_000,
            Self::ShimCut | Self::ShimDeaf | Self::ShimMute => 12_000,
            Self::ShimMemberCut | Self::ShimLeaderCut => 12_000,
            Self::ClientCut | Self::LeaderCut | Self::FollowerCut => 12_000,
            Self::ShimPauseLong => 16_000,
        })
    }

    /// From when on the recovery is measured.
    #[must_use]
    pub fn since(self) -> Since {
        match self {
            Self::MajorityKill | Self::NoSpace => Since::Mended,
            _ if self.is_restore() => Since::Mended,
            _ => Since::Fault,
        }
    }

    /// After how long the clients must work again, if that is promised.
    #[must_use]
    pub fn goal(self) -> Option<Duration> {
        match self {
            Self::ShimKill | Self::ShimTerm => Some(Duration::from_secs(3)),
            Self::LeaderKill
            | Self::LeaderTerm
            | Self::LeaderPause
            | Self::LeaderCut
            | Self::LeaderMove
            | Self::FollowerKill
            | Self::FollowerPause
            | Self::FollowerCut
            | Self::ShimMemberCut
            | Self::ShimLeaderCut
            | Self::MemberReplace
            | Self::DiskFull => Some(Duration::from_secs(5)),
            _ => None,
        }
    }

    /// Whether etcd is set back, so that acknowledged writes are lost.
    #[must_use]
    pub fn is_restore(self) -> bool {
        matches!(self, Self::Restore | Self::RestorePaused | Self::RestoreBumped)
    }

    /// Whether a client with a timeout of 60 s keeps its connection.
    #[must_use]
    pub fn keeps_long_sessions_connected(self) -> bool {
        matches!(
            self,
            Self::LeaderKill
                | Self::LeaderTerm
                | Self::LeaderPause
                | Self::LeaderCut
                | Self::LeaderMove
                | Self::FollowerKill
                | Self::FollowerPause
                | Self::FollowerCut
                | Self::Compact
                | Self::Defragment
                | Self::ShimPause
                | Self::ShimMemberCut
                | Self::ShimLeaderCut
                | Self::MemberReplace
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_name_and_a_sentence() {
        for kind in Kind::all() {
            assert!(!kind.name().is_empty() && kind.sentence().contains(' '), "{kind:?}");
        }
    }
}
