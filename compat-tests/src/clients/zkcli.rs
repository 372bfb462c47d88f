//! ZooKeeper's own command line client, `zkCli.sh`: a typed session against a transcript, and
//! single commands with their exit status.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::clients::jars;
use crate::clients::program::Program;

/// How long a command or an event may take; a JVM starts meanwhile.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the client prints for a command that says nothing else: the end of an answer.
const MARKER: (&str, &str) = ("printwatches", "printwatches is on");

/// A command of a transcript, and what has to come of it.
struct Step<'a> {
    command: &'a str,
    answer: Vec<&'a str>,
    events: Vec<&'a str>,
}

/// Types the commands of a transcript and compares all that is printed with it; gives their number.
///
/// # Errors
/// The client cannot be run, or something differs; the message has the command.
pub fn run_transcript(connect_string: &str, transcript: &str) -> Result<usize> {
    let mut session = Session::start(connect_string)?;
    let steps = parse(transcript)?;
    for step in &steps {
        let command = step.command.replace("{servers}", connect_string);
        let answer = session.perform(&command)?;
        ensure!(
            matches_lines(&step.answer, &answer),
            "{command:?} prints {answer:#?}, not {:#?}",
            step.answer
        );
        for &event in &step.events {
            session.expect_event(event).with_context(|| format!("after {command:?}"))?;
        }
        ensure!(session.events.is_empty(), "{command:?} makes {:?} as well", session.events);
    }
    Ok(steps.len())
}

/// Runs one command and gives what it prints, without what concerns the connection, and its exit
/// code.
///
/// # Errors
/// The client cannot be run, or is ended by a signal.
pub fn run_once(connect_string: &str, words: &[&str]) -> Result<(Vec<String>, i32)> {
    let mut command = client(connect_string)?;
    let output = command.args(words).output().context("run zkCli")?;
    let code = output.status.code().context("find zkCli's exit code")?;
    let mut lines = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        if !is_noise(line) && event(line).is_none() {
            lines.push(line.to_owned());
        }
    }
    Ok((lines, code))
}

/// A shell that puts what the client says on either stream in one, in its order.
fn client(connect_string: &str) -> Result<Command> {
    let mut command = Command::new("sh");
    command
        .args(["-c", "exec java \"$@\" 2>&1", "sh"])
        .args(["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"])
        .arg(format!("{}/*", jars("zkcli")?.display()))
        .args(["org.apache.zookeeper.ZooKeeperMain", "-server", connect_string])
        .env("LC_ALL", "C.UTF-8");
    Ok(command)
}

struct Session {
    program: Program,
    events: Vec<String>,
}

impl Session {
    fn start(connect_string: &str) -> Result<Self> {
        let program = Program::start("zkCli", client(connect_string)?)?;
        let mut session = Self { program, events: Vec::new() };
        // Its greeting, which comes while it connects.
        session.perform("sync /")?;
        Ok(session)
    }

    fn perform(&mut self, command: &str) -> Result<Vec<String>> {
        self.program.say(command)?;
        self.program.say(MARKER.0)?;
        let mut answer = Vec::new();
        loop {
            let line = self.next_line()?;
            if line == MARKER.1 {
                return Ok(answer);
            }
            if !self.take_event(&line) && !is_noise(&line) {
                answer.push(line);
            }
        }
    }

    fn expect_event(&mut self, expected: &str) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.events.iter().position(|seen| seen == expected) {
                self.events.remove(at);
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "no event {expected}");
            let line = self.next_line()?;
            ensure!(self.take_event(&line) || is_noise(&line), "{line:?}, not {expected}");
        }
    }

    fn next_line(&mut self) -> Result<String> {
        self.program.hear(PATIENCE)?.with_context(|| format!("zkCli ends: {:?}", self.events))
    }

    fn take_event(&mut self, line: &str) -> bool {
        let Some(event) = event(line) else { return false };
        if !event.starts_with("None ") {
            self.events.push(event);
        }
        true
    }
}

/// Type and path of an event, from `WatchedEvent state:... type:... path:... zxid: ...`.
fn event(line: &str) -> Option<String> {
    let rest = line.strip_prefix("WatchedEvent state:")?;
    let (_, rest) = rest.split_once(" type:")?;
    let (kind, rest) = rest.split_once(" path:")?;
    let (path, _) = rest.rsplit_once(" zxid: ")?;
    Some(format!("{kind} {path}"))
}

/// Whether a line is only layout, or of the connection.
fn is_noise(line: &str) -> bool {
    line.trim().is_empty() || line == "WATCHER::" || line.starts_with("Connecting to ")
}

fn parse(transcript: &str) -> Result<Vec<Step<'_>>> {
    let mut steps: Vec<Step<'_>> = Vec::new();
    for line in transcript.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(command) = line.strip_prefix("> ") {
            steps.push(Step { command, answer: Vec::new(), events: Vec::new() });
            continue;
        }
        let Some(step) = steps.last_mut() else { bail!("{line:?} is before any command") };
        match line.strip_prefix("! ") {
            Some(event) => step.events.push(event),
            None => step.answer.push(line),
        }
    }
    Ok(steps)
}

fn matches_lines(patterns: &[&str], lines: &[String]) -> bool {
    match patterns {
        ["..."] => true,
        _ => {
            patterns.len() == lines.len()
                && patterns.iter().zip(lines).all(|(pattern, line)| matches(pattern, line))
        }
    }
}

/// Whether a line is the pattern, in which `*` stands for anything.
#[must_use]
pub fn matches(pattern: &str, line: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| line.strip_prefix(first)) else {
        return false;
    };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
        assert!(matches("as it is", "as it is"));
        assert!(!matches("as it is", "as it is not"));
        assert!(matches("0x*", "0x"));
        assert!(matches("[/e*, /e*]", "[/e1, /e2]"));
        assert!(!matches("[/e*, /e*]", "[/e1]"));
        assert!(!matches("a*a", "a"));
    }

    #[test]
    fn a_transcript_is_commands_answers_and_events() {
        let steps = parse("# why\n\n> set /a 1\n! NodeDataChanged /a\n> get /a\n1\n");
        let steps = steps.expect("it is well-formed");
        let told: Vec<_> = steps.iter().map(|s| (s.command, &s.answer, &s.events)).collect();
        assert_eq!(
            told,
            [("set /a 1", &vec![], &vec!["NodeDataChanged /a"]), ("get /a", &vec!["1"], &vec![])]
        );
        assert!(parse("1\n> get /a").is_err());
        let printed = "WatchedEvent state:SyncConnected type:NodeCreated path:/a b zxid: 15";
        assert_eq!(event(printed).as_deref(), Some("NodeCreated /a b"));
    }
}
