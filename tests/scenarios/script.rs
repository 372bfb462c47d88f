//! Transcripts: steps with their reasons, what they do, and what came of it.
//!
//! A step is a reason (lines that begin with `#`), commands, a line `----`, and the output up to
//! an empty line. The commands are listed in `Script::command`.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use zkshim::keeper::Options;
use zkshim::keeper::keyspace::LAYOUT;
use zkshim::keeper::request::{
    Connect, Connected, ConnectionId, Operation, Outgoing, Request, SessionId, Xid,
};
use zkshim::keeper::txn::{CommitError, LeaseId, StoreCommand};
use zkshim::keeper::zxid::{Revision, Zxid};
use zkshim::store::embedded::engine::Engine;

use crate::ask;
use crate::show::{self, Names};
use crate::world::{Loss, Seen, Traffic, World, is_foreign};

/// One step of a transcript.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) reason: Vec<String>,
    pub(crate) commands: Vec<String>,
    pub(crate) output: Vec<String>,
}

/// Cuts a transcript into steps. A step without a reason or without a command is refused.
pub(crate) fn parse(text: &str) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    for block in text.split("\n\n").filter(|block| !block.trim().is_empty()) {
        let mut step = Step::default();
        let mut after = false;
        for line in block.trim_matches('\n').lines() {
            match line {
                "----" => after = true,
                line if after => step.output.push(line.to_owned()),
                line if line.starts_with('#') && step.commands.is_empty() => {
                    step.reason.push(line.to_owned());
                }
                line => step.commands.push(line.to_owned()),
            }
        }
        if step.reason.is_empty() || step.commands.is_empty() || !after {
            return Err(format!("a step needs a reason, commands and ----:\n{block}"));
        }
        steps.push(step);
    }
    Ok(steps)
}

/// The transcript's text.
pub(crate) fn print(steps: &[Step]) -> String {
    let blocks: Vec<String> = steps
        .iter()
        .map(|step| {
            let lines = step.reason.iter().chain(&step.commands).cloned();
            let lines = lines.chain(["----".to_owned()]).chain(step.output.iter().cloned());
            lines.collect::<Vec<_>>().join("\n")
        })
        .collect();
    blocks.join("\n\n") + "\n"
}

struct Client {
    connection: ConnectionId,
    xid: i32,
    asked: BTreeMap<i32, String>,
    accepted: Option<(SessionId, Bytes)>,
}

/// The state of a transcript while it runs.
pub(crate) struct Script {
    world: World,
    names: Names,
    clients: BTreeMap<String, Client>,
    trace: bool,
    shown: Revision,
    backup: Option<Engine>,
    output: Vec<String>,
}

impl Script {
    pub(crate) fn new() -> Self {
        Self {
            world: World::new(),
            names: Names::default(),
            clients: BTreeMap::new(),
            trace: false,
            shown: Revision(1),
            backup: None,
            output: Vec::new(),
        }
    }

    /// Runs a step and returns what it printed.
    pub(crate) fn run(&mut self, commands: &[String]) -> Vec<String> {
        for command in commands {
            self.command(command);
            self.look();
        }
        std::mem::take(&mut self.output)
    }

    fn command(&mut self, line: &str) {
        if let Some((client, requests)) = line.split_once(": ") {
            match client.split_once('*') {
                Some((client, times)) => self.repeat(client, times, requests),
                None => self.request(client, requests),
            }
            return;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["start", shim, ref rest @ ..] => self.start(shim, rest),
            ["kill", shim] => self.kill(shim),
            ["connect", client, "to", shim, ref rest @ ..] => {
                self.connect(client, None, shim, rest);
            }
            ["resume", session, "as", client, "on", shim, ref rest @ ..] => {
                self.connect(client, Some(session), shim, rest);
            }
            ["drop", client] => self.world.disconnect(self.clients[client].connection),
            ["advance", by] => self.world.advance(duration(by)),
            ["wall-clock", "back", by] => self.world.set_back_wall_clock(duration(by)),
            ["hold", shim, ref what @ ..] => {
                self.world.shim(shim).held.extend(traffic(what));
            }
            ["release", shim, ref what @ ..] => {
                let what = traffic(what);
                self.world.shim(shim).held.retain(|held| !what.contains(held));
                self.world.settle();
            }
            ["tell", shim, count] => {
                let count = count.parse().expect("how many revisions");
                let told = self.world.force_stream(shim, count);
                assert_eq!(told, count, "there were fewer revisions to tell");
            }
            ["pass", shim] => self.world.force_commit(shim),
            ["overtake", shim] => self.world.force_last_commit(shim),
            ["lose", shim, "answer"] => self.world.lose_commit(shim, Loss::Answer),
            ["lose", shim, "txn"] => self.world.lose_commit(shim, Loss::Txn),
            ["lose", shim, "lease"] => self.world.lose_grant(shim),
            ["swallow", shim, "lease"] => self.world.swallow_grant(shim),
            ["lose", shim, "sight"] => self.world.lose_commit(shim, Loss::Adrift),
            ["arrive", shim] => {
                let held = self.world.arrive(shim);
                self.output.push(if held { "it takes effect" } else { "it is fenced" }.to_owned());
            }
            ["refuse", shim, why] => self.world.refuse_commit(shim, refusal(why)),
            ["compact"] => {
                let revision = self.world.engine.revision();
                self.world.engine.compact(revision);
            }
            ["load", shim, ref what @ ..] => self.load(shim, what),
            ["lose-lease", session] => self.lose_lease(session),
            ["lose-shim-lease"] => self.lose_shim_lease(),
            ["lose-idle-leases"] => self.lose_idle_leases(),
            ["answer", shim, which] => {
                self.world.force_answer(shim, which.parse().expect("which answer"));
            }
            ["raise", offset] => self.world.put_meta(LAYOUT, offset.parse().expect("an offset")),
            ["layout", number] => self.world.put_meta(number.parse().expect("a layout"), 0),
            ["foreign"] => self.world.change_foreign_key(),
            ["backup"] => self.backup = Some(self.world.engine.clone()),
            ["restore"] => self.world.engine = self.backup.take().expect("there is a backup"),
            ["revisions"] => self.revisions(),
            ["status", shim] => self.status(shim),
            ["trace", state] => self.trace = state == "on",
            _ => panic!("no such command: {line}"),
        }
    }

    fn load(&mut self, shim: &str, what: &[&str]) {
        assert!(matches!(what, [] | ["another", "history"]), "no such load: {what:?}");
        self.world.load_as(shim, !what.is_empty());
    }

    fn start(&mut self, shim: &str, flags: &[&str]) {
        let seed = shim.bytes().last().expect("a name");
        let mut options: Options = World::options(seed);
        options.sole = flags.contains(&"sole");
        if flags.contains(&"hasty") {
            options.writes_worth_a_batch = 1;
        }
        if flags.contains(&"alone") {
            options.alone_after = Options::ALONE_AFTER;
        }
        if flags.contains(&"late-keys") {
            options.session_key_delay = Duration::from_secs(1);
        }
        self.world.start(shim, options);
    }

    fn kill(&mut self, shim: &str) {
        self.world.kill(shim);
    }

    fn connect(&mut self, client: &str, session: Option<&str>, shim: &str, rest: &[&str]) {
        let named = |name: &str| {
            rest.iter().find_map(|word| word.split_once('=').filter(|word| word.0 == name))
        };
        let known = session.map(|session| {
            let accepted = self.clients.values().filter_map(|client| client.accepted.clone());
            let by_name = |(id, _): &(SessionId, Bytes)| self.names.session(*id) == session;
            accepted.clone().find(by_name).unwrap_or((SessionId(0x77), Bytes::new()))
        });
        let (session, mut password) = known.unwrap_or((SessionId(0), Bytes::new()));
        if rest.contains(&"wrong-password") {
            password = Bytes::from_static(&[0; 16]);
        }
        let timeout = named("timeout").map_or(Duration::from_secs(10), |(_, by)| duration(by));
        let seen = named("seen").map_or(0, |(_, zxid)| zxid.parse().expect("a zxid"));
        let connect = Connect {
            last_zxid_seen: Zxid(seen),
            timeout_ms: i32::try_from(timeout.as_millis()).expect("short enough"),
            session,
            password,
        };
        let connection = self.world.connect(shim, connect);
        let fresh = Client { connection, xid: 0, asked: BTreeMap::new(), accepted: None };
        self.clients.insert(client.to_owned(), fresh);
    }

    fn request(&mut self, name: &str, requests: &str) {
        let client = self.clients.get_mut(name).expect("the client has connected");
        let mut batch = Vec::new();
        for text in requests.split(" ; ") {
            let operation = ask::operation(text);
            client.xid += 1;
            let xid = if operation == Operation::Ping { Xid::PING.0 } else { client.xid };
            client.asked.insert(xid, text.to_owned());
            batch.push(Request { xid: Xid(xid), operation });
        }
        let connection = client.connection;
        self.world.request(connection, batch);
    }

    /// One request many times, at once. What comes of it is counted only.
    fn repeat(&mut self, client: &str, times: &str, request: &str) {
        let requests = vec![request; times.parse().expect("how often")].join(" ; ");
        self.look();
        let before = self.output.len();
        self.request(client, &requests);
        self.look();
        let answers = self.output.len() - before;
        self.output.truncate(before);
        self.output.push(format!("{client} <- {answers} answers"));
    }

    /// etcd's lease of the shims' own keys ends before its time.
    fn lose_shim_lease(&mut self) {
        let entries = self.world.engine.snapshot().entries;
        let own = entries.iter().find(|entry| entry.key.starts_with(b"x")).expect("it has written");
        assert!(self.world.engine.revoke(own.lease), "a shim has a lease");
        self.world.settle();
    }

    /// etcd's leases that hold no key end before their time.
    fn lose_idle_leases(&mut self) {
        let entries = self.world.engine.snapshot().entries;
        for lease in (1..=self.world.engine.lease_last().0).map(LeaseId) {
            if !entries.iter().any(|entry| entry.lease == lease) {
                self.world.engine.revoke(lease);
            }
        }
    }

    /// etcd's lease of a session ends before its time, as after an operator's mistake.
    fn lose_lease(&mut self, session: &str) {
        let named = self.names.sessions.iter().find(|(_, name)| *name == session);
        let (id, _) = named.expect("the session was accepted");
        let key = zkshim::keeper::keyspace::Slot::Session(*id).key();
        let lease = self.world.engine.get(&key).expect("the session is there").lease;
        assert!(self.world.engine.revoke(lease), "a session has a lease");
        self.world.settle();
    }

    /// What the store's history holds since it was shown last.
    fn revisions(&mut self) {
        let history = self.world.engine.changes_after(self.shown).expect("not compacted");
        let history: Vec<_> = history.cloned().collect();
        let ours = history.iter().filter(|changes| !is_foreign(changes));
        self.output.extend(ours.map(|changes| self.names.revision(changes)));
        self.shown = self.world.engine.revision();
    }

    fn status(&mut self, shim: &str) {
        let status = self.world.shim(shim).keeper.status();
        self.output.push(format!(
            "{}, zxid {}, {} znodes, {} ephemerals, {} sessions, {} watches, {} outstanding",
            if status.serving { "serving" } else { "not serving" },
            status.zxid.0,
            status.znodes,
            status.ephemerals,
            status.sessions,
            status.watches,
            status.outstanding,
        ));
    }

    /// Prints what has happened since the last look.
    fn look(&mut self) {
        for seen in std::mem::take(&mut self.world.seen) {
            match seen {
                Seen::Sent(connection, outgoing) => self.sent(connection, outgoing),
                Seen::Closed(connection) => {
                    let line = format!("{} is closed", self.client(connection));
                    self.output.push(line);
                }
                Seen::Asked(shim, command) if self.trace => self.asked(&shim, &command),
                Seen::Asked(..) => {}
            }
        }
    }

    fn sent(&mut self, connection: ConnectionId, outgoing: Outgoing) {
        let name = self.client(connection);
        let line = match outgoing {
            Outgoing::Connected(Connected::Accepted { timeout_ms, session, password }) => {
                self.names.sessions.entry(session).or_insert_with(|| name.clone());
                let client = self.clients.get_mut(&name).expect("it has a name");
                client.accepted = Some((session, password));
                let session = self.names.session(session);
                format!("{name} <- session {session}, timeout {timeout_ms} ms")
            }
            Outgoing::Connected(Connected::Refused) => format!("{name} <- expired"),
            Outgoing::Reply(reply) => {
                let client = self.clients.get_mut(&name).expect("it has a name");
                let asked = client.asked.remove(&reply.xid.0).unwrap_or_else(|| "?".to_owned());
                let outcome = self.names.outcome(&reply.outcome);
                format!("{name} <- {asked}: {outcome} @{}", reply.zxid.0)
            }
            Outgoing::Event(event) => {
                let kind = show::event(event.kind);
                format!("{name} <- {kind} {} @{}", &*event.path, event.zxid.0)
            }
        };
        self.output.push(line);
    }

    /// The client's name. Its first answer may come before `connect` has filed it.
    fn client(&self, connection: ConnectionId) -> String {
        let known = self.clients.iter().find(|(_, client)| client.connection == connection);
        known.map_or_else(|| format!("{connection:?}"), |(name, _)| name.clone())
    }

    fn asked(&mut self, shim: &str, command: &StoreCommand) {
        let line = match command {
            StoreCommand::Commit(_, txn) => self.names.txn(txn),
            StoreCommand::Barrier(_) => "barrier".to_owned(),
            StoreCommand::Progress => "progress".to_owned(),
            StoreCommand::Grant(_, ttl) => format!("grant {ttl:?}"),
            StoreCommand::Revoke(..) => "revoke".to_owned(),
            StoreCommand::Renew(_) => "renew".to_owned(),
        };
        // The heartbeat goes on all the time, and says nothing.
        if !matches!(command, StoreCommand::Barrier(_) | StoreCommand::Progress) {
            self.output.push(format!("{shim} -> {line}"));
        }
    }
}

fn duration(text: &str) -> Duration {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1),
        None => (text.strip_suffix('s').expect("ms or s"), 1000),
    };
    Duration::from_millis(number.parse::<u64>().expect("a number") * unit)
}

fn traffic(words: &[&str]) -> Vec<Traffic> {
    let one = |word: &&str| match *word {
        "commits" => Traffic::Commits,
        "barriers" => Traffic::Barriers,
        "leases" => Traffic::Leases,
        "renewals" => Traffic::Renewals,
        "answers" => Traffic::Answers,
        "stream" => Traffic::Stream,
        other => panic!("no such traffic: {other}"),
    };
    if words == ["everything"] {
        return Traffic::ALL.to_vec();
    }
    words.iter().map(one).collect()
}

fn refusal(why: &str) -> CommitError {
    match why {
        "lease" => CommitError::LeaseNotFound,
        "large" => CommitError::TooLarge("too many operations in txn request".to_owned()),
        "space" => CommitError::Refused("mvcc: database space exceeded".to_owned()),
        other => panic!("no such refusal: {other}"),
    }
}
