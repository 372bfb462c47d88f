//! A case of the suite: its number, what it says, what it needs, and the code that runs it.

use anyhow::Result;

use crate::conformance::context::Context;

/// How the server must be set up for a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Profile {
    /// As ZooKeeper comes, with all four-letter words allowed.
    Default,
    /// TTL nodes allowed, containers and TTL nodes checked every 500 ms.
    Ttl,
    /// Hard quotas enforced.
    Quota,
    /// A node `/version-max` whose data version is 2147483647.
    VersionMax,
}

/// What a case asks of the servers and of its neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// The set-up of the server.
    pub profile: Profile,
    /// Nothing was ever done on the server.
    pub fresh: bool,
    /// No other case may run at the same time.
    pub alone: bool,
    /// Two servers of one tree.
    pub two_servers: bool,
    /// The real server would stop serving on this input.
    pub breaks_zookeeper: bool,
    /// A real ensemble would stop serving on this input, a single server does not.
    pub breaks_ensemble: bool,
    /// About how long the case waits; long ones start first.
    pub seconds: u32,
}

/// One case.
#[derive(Clone, Copy)]
pub struct Case {
    /// Its number, such as `W5`.
    pub id: &'static str,
    /// What it says, in one line.
    pub title: &'static str,
    /// What it needs.
    pub needs: Needs,
    /// Runs it; an error is a failure.
    pub run: fn(&Context<'_>) -> Result<()>,
}

/// A group of cases.
#[derive(Clone, Copy)]
pub struct Section {
    /// Its number, such as `10.6`.
    pub number: &'static str,
    /// What it is about.
    pub title: &'static str,
    /// Its cases, in parts, each from one file.
    pub parts: &'static [&'static [Case]],
}

/// A case that needs nothing special.
#[must_use]
pub const fn case(
    id: &'static str,
    title: &'static str,
    run: fn(&Context<'_>) -> Result<()>,
) -> Case {
    let needs = Needs {
        profile: Profile::Default,
        fresh: false,
        alone: false,
        two_servers: false,
        breaks_zookeeper: false,
        breaks_ensemble: false,
        seconds: 0,
    };
    Case { id, title, needs, run }
}

impl Case {
    /// Needs another set-up of the server.
    #[must_use]
    pub const fn profile(mut self, profile: Profile) -> Self {
        self.needs.profile = profile;
        self
    }

    /// Needs a server on which nothing was done yet.
    #[must_use]
    pub const fn fresh(mut self) -> Self {
        self.needs.fresh = true;
        self.alone()
    }

    /// Counts transactions or watches the whole tree.
    #[must_use]
    pub const fn alone(mut self) -> Self {
        self.needs.alone = true;
        self
    }

    /// Moves a session between servers.
    #[must_use]
    pub const fn two_servers(mut self) -> Self {
        self.needs.two_servers = true;
        self
    }

    /// Sends what the real server does not survive.
    #[must_use]
    pub const fn breaks_zookeeper(mut self) -> Self {
        self.needs.breaks_zookeeper = true;
        self
    }

    /// Sends a write that cannot be decoded. `PrepRequestProcessor` makes it an error of the last
    /// zxid again; the leader's followers wait for that zxid for ever.
    #[must_use]
    pub const fn breaks_ensemble(mut self) -> Self {
        self.needs.breaks_ensemble = true;
        self
    }

    /// Waits about so many seconds.
    #[must_use]
    pub const fn slow(mut self, seconds: u32) -> Self {
        self.needs.seconds = seconds;
        self
    }
}
