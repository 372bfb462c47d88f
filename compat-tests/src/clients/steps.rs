//! A client program that goes through named steps and asks for trouble between them.
//!
//! It prints `ok NAME` or `failed NAME: reason` for each step; `ask COMMAND` means that it waits
//! for the test to do that (`cut`, `hold`, `release`, `move`) and to say `done`.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail, ensure};

use crate::clients::program::Program;
use crate::clients::relay::Relay;
use crate::clients::under_test::UnderTest;

/// A step of the slowest kind waits for a session to expire.
const SILENCE_MAX: Duration = Duration::from_secs(90);

/// What became of the steps, by name.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The steps whose assertions held.
    pub passed: BTreeSet<String>,
    /// The steps that failed.
    pub failed: BTreeSet<String>,
}

/// Runs a program of steps with two more arguments: a connect string that leads straight to all
/// servers, and one that goes through a relay to one of them.
///
/// # Errors
/// It does not keep to the protocol, is silent for too long, or its exit status does not fit.
pub fn run(name: &str, mut command: Command, servers: &UnderTest) -> Result<Outcome> {
    let relay = Relay::start(servers.first()?)?;
    command.arg(servers.connect_string()).arg(relay.address().to_string());
    let mut places = [servers.last()?, servers.first()?].into_iter().cycle();
    run_with(name, command, |what| trouble(&relay, what, &mut places))
}

/// Runs a program of steps that asks for trouble of its own kind.
///
/// # Errors
/// It does not keep to the protocol, is silent for too long, or its exit status does not fit; or
/// the trouble cannot be made.
pub fn run_with(
    name: &str,
    command: Command,
    mut trouble: impl FnMut(&str) -> Result<()>,
) -> Result<Outcome> {
    let mut program = Program::start(name, command)?;
    let mut outcome = Outcome::default();
    while let Some(line) = program.hear(SILENCE_MAX)? {
        match line.split_once(' ') {
            Some(("ok", step)) => {
                outcome.passed.insert(step.to_owned());
            }
            Some(("failed", rest)) => {
                let (step, reason) = rest.split_once(": ").unwrap_or((rest, ""));
                eprintln!("{name}: {step} failed: {reason}");
                outcome.failed.insert(step.to_owned());
            }
            Some(("ask", what)) => {
                trouble(what)?;
                program.say("done")?;
            }
            _ => bail!("{name} says {line:?}\n{}", program.errors()),
        }
    }
    let status = program.finish()?;
    if !outcome.failed.is_empty() {
        eprintln!("{}", program.errors());
    }
    if status.success() != outcome.failed.is_empty() {
        bail!("{name} ended with {status} after {outcome:?}\n{}", program.errors());
    }
    Ok(outcome)
}

fn trouble(relay: &Relay, what: &str, places: &mut impl Iterator<Item = SocketAddr>) -> Result<()> {
    match what {
        "cut" => relay.cut(),
        "hold" => relay.hold(),
        "release" => relay.release(),
        "move" => match places.next() {
            Some(place) => relay.lead_to(place),
            None => bail!("there is no server to move to"),
        },
        _ => bail!("a program asks for {what:?}"),
    }
    Ok(())
}

/// Programs that log an error of ZooKeeper only when they do not expect it: a log may hold
/// `expected` ones alone, and must show that ZooKeeper's client logs at all.
///
/// # Errors
/// It holds others, or nothing of ZooKeeper's client.
pub fn check_log(log: &str, expected: &str) -> Result<()> {
    let strange = |line: &&str| line.contains("KeeperErrorCode") && !line.contains(expected);
    let found: Vec<&str> = log.lines().filter(strange).collect();
    ensure!(log.contains("Session establishment complete"), "ZooKeeper's client logs nothing");
    ensure!(found.is_empty(), "the log has {found:#?}");
    Ok(())
}
