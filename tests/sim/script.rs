//! The decisions of a run: what goes wrong and what clients do, each with a name, so that a run
//! can be played again with some of them left out.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// Something that may as well be left out. Its name is what `SIM_ONLY` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Decision {
    /// `net`: messages between clients and shims take a while, each another.
    Net,
    /// `far`: so do calls to etcd.
    Far,
    /// `lag`: the watch streams are behind.
    Lag,
    /// `behind`: so are the members of etcd.
    Behind,
    /// `j2`: a client takes part.
    Join(usize),
    /// `f7`: a fault.
    Fault(u64),
    /// `w2.14`: a turn of a client's work.
    Work(usize, u64),
    /// `o2.3`: what happens just after a client has got a session.
    Opened(usize, u64),
    /// `r2.3`: a client comes back with a session that it has closed.
    Return(usize, u64),
    /// `c1.20`: what a shim asks of etcd in a moment goes wrong.
    Call(usize, u64),
}

/// Which decisions are taken, and which were.
#[derive(Debug, Default)]
pub(crate) struct Script {
    only: Option<BTreeSet<Decision>>,
    taken: Vec<Decision>,
    known: BTreeSet<Decision>,
}

impl Script {
    /// All decisions, or these alone.
    pub(crate) fn new(only: Option<&[Decision]>) -> Self {
        Self { only: only.map(|only| only.iter().copied().collect()), ..Self::default() }
    }

    /// Whether it is taken; asked when the time has come.
    pub(crate) fn takes(&mut self, decision: Decision) -> bool {
        let takes = self.only.as_ref().is_none_or(|only| only.contains(&decision));
        if takes && self.known.insert(decision) {
            self.taken.push(decision);
        }
        takes
    }

    /// What was decided up to now, in order.
    pub(crate) fn taken(&self) -> &[Decision] {
        &self.taken
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Net => write!(out, "net"),
            Self::Far => write!(out, "far"),
            Self::Lag => write!(out, "lag"),
            Self::Behind => write!(out, "behind"),
            Self::Join(client) => write!(out, "j{client}"),
            Self::Fault(number) => write!(out, "f{number}"),
            Self::Work(client, number) => write!(out, "w{client}.{number}"),
            Self::Opened(client, number) => write!(out, "o{client}.{number}"),
            Self::Return(client, number) => write!(out, "r{client}.{number}"),
            Self::Call(shim, number) => write!(out, "c{shim}.{number}"),
        }
    }
}

impl FromStr for Decision {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let unknown = || format!("{name:?} is no decision's name");
        let number = |text: &str| text.parse::<u64>().map_err(|_| unknown());
        let pair = |text: &str| {
            let (who, which) = text.split_once('.').ok_or_else(unknown)?;
            Ok::<_, String>((number(who)? as usize, number(which)?))
        };
        let (kind, rest) = name.split_at_checked(1).ok_or_else(unknown)?;
        Ok(match (name, kind) {
            ("net", _) => Self::Net,
            ("far", _) => Self::Far,
            ("lag", _) => Self::Lag,
            ("behind", _) => Self::Behind,
            (_, "j") => Self::Join(number(rest)? as usize),
            (_, "f") => Self::Fault(number(rest)?),
            (_, "w") => pair(rest).map(|(client, number)| Self::Work(client, number))?,
            (_, "o") => pair(rest).map(|(client, number)| Self::Opened(client, number))?,
            (_, "r") => pair(rest).map(|(client, number)| Self::Return(client, number))?,
            (_, "c") => pair(rest).map(|(shim, number)| Self::Call(shim, number))?,
            _ => return Err(unknown()),
        })
    }
}

#[test]
fn the_names_of_decisions_are_read_back() {
    use Decision::{Behind, Call, Far, Fault, Join, Lag, Net, Opened, Return, Work};
    let all = [
        Return(4, 1),
        Net,
        Far,
        Lag,
        Behind,
        Join(3),
        Fault(17),
        Work(0, 5),
        Opened(1, 2),
        Call(12, 0),
    ];
    for decision in all {
        assert_eq!(decision.to_string().parse(), Ok(decision));
    }
    for unknown in ["", "x", "f", "w3", "c1.", "network"] {
        assert!(unknown.parse::<Decision>().is_err(), "{unknown}");
    }
}
