//! Plays seeds to a pair of servers, cleans up after each, and shrinks what differs.

use std::fmt;
use std::net::SocketAddr;
use std::thread;

use anyhow::{Context, Result};

use crate::conformance::client::Client;
use crate::conformance::session::ConnectRequest;
use crate::conformance::wire::{op, record};
use crate::differential::compare::{Difference, Excused, compare};
use crate::differential::generate;
use crate::differential::play::play;
use crate::differential::script::Script;
use crate::differential::servers::Pair;
use crate::differential::shrink::shrink;

/// The nodes that are always there.
const SYSTEM: [&str; 3] = ["/zookeeper", "/zookeeper/config", "/zookeeper/quota"];

const NOT_AGAIN: &str = "(it did not differ when it was played again) ";

/// Plays scripts, each below a root of its own.
pub struct Runner<'a> {
    pair: &'a Pair,
    roots: usize,
    /// Known deviations that were met.
    pub excused: Excused,
    /// Requests that were answered alike.
    pub requests: usize,
}

/// A seed that differs, shrunk.
#[derive(Debug)]
pub struct Finding {
    /// The seed.
    pub seed: u64,
    /// Its number of requests.
    pub ops: usize,
    /// The smallest script that was found to differ.
    pub script: Script,
    /// How that one differs.
    pub difference: Difference,
}

impl<'a> Runner<'a> {
    /// Works on a pair of servers.
    #[must_use]
    pub fn new(pair: &'a Pair) -> Self {
        Self { pair, roots: 0, excused: Excused::new(), requests: 0 }
    }

    /// Plays a seed, or only some of its steps; gives what differs, not shrunk.
    ///
    /// # Errors
    /// A server is gone.
    pub fn play(
        &mut self,
        seed: u64,
        ops: usize,
        only: Option<&[usize]>,
    ) -> Result<(Script, Option<Difference>)> {
        let root = format!("/fuzz{:05}", self.roots);
        self.roots += 1;
        let whole = generate::script(seed, &root, ops);
        let script = only.map_or_else(|| whole.clone(), |numbers| whole.only(numbers));
        let (oracle, shim) = thread::scope(|scope| {
            let side = |servers: &'a [SocketAddr]| {
                let script = &script;
                scope.spawn(move || {
                    let logs = play(servers, script)?;
                    clean_up(servers)?;
                    anyhow::Ok(logs)
                })
            };
            let (oracle, shim) = (side(&self.pair.oracle), side(&self.pair.shim));
            (oracle.join(), shim.join())
        });
        let joined = "playing a script does not panic";
        let oracle = oracle.expect(joined).context("play to ZooKeeper")?;
        let shim = shim.expect(joined).context("play to zkshim")?;
        let difference = compare(&oracle, &shim, &mut self.excused).err();
        Ok((script, difference))
    }

    /// Plays a seed and shrinks it if it differs.
    ///
    /// # Errors
    /// A server is gone.
    pub fn seed(&mut self, seed: u64, ops: usize) -> Result<Option<Finding>> {
        let (script, difference) = self.play(seed, ops, None)?;
        let Some(difference) = difference else {
            self.requests += script.requests();
            return Ok(None);
        };
        let (again, repeated) = self.play(seed, ops, None)?;
        let Some(difference) = repeated else {
            let difference =
                Difference { text: format!("{NOT_AGAIN}{}", difference.text), ..difference };
            return Ok(Some(Finding { seed, ops, script, difference }));
        };
        let script = again;
        let (numbers, difference) = shrink(script.numbers(), difference, |numbers| {
            Ok(self.play(seed, ops, Some(numbers))?.1)
        })?;
        Ok(Some(Finding { seed, ops, script: script.only(&numbers), difference }))
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "DIFFERENCE in seed {}, batch {}:", self.seed, self.difference.batch)?;
        writeln!(f, "{}{}", self.script, self.difference.text)?;
        let numbers = self.script.numbers();
        let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
        let (seed, ops, numbers) = (self.seed, self.ops, numbers.join(","));
        write!(f, "Replay: zk-differential --seed {seed} --ops {ops} --only {numbers}")
    }
}

/// Deletes all that scripts can make. The super user may.
fn clean_up(servers: &[SocketAddr]) -> Result<()> {
    let address = servers.first().context("a side has a server")?;
    let mut client = Client::connect(*address, &ConnectRequest::default(), 0, None)?;
    client.auth_digest("super:test")?;
    client.call(op::SYNC, record().string("/"))?.ok()?;
    let mut found = vec!["/".to_owned()];
    let mut next = 0;
    while let Some(path) = found.get(next).cloned() {
        next += 1;
        let reply = client.get_children(&path, false)?;
        let base = path.trim_end_matches('/');
        let names = reply.names().with_context(|| format!("children of {path}"))?;
        found.extend(names.iter().map(|name| format!("{base}/{name}")));
    }
    for path in found.iter().skip(1).rev().filter(|path| !SYSTEM.contains(&path.as_str())) {
        client.delete(path, -1)?.ok().with_context(|| format!("delete {path}"))?;
    }
    client.close()?;
    Ok(())
}
