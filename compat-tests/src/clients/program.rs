//! A client program that talks with its test by lines: commands in, results out.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::NamedTempFile;

/// A running program; killed when it is dropped.
pub struct Program {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: NamedTempFile,
}

impl Program {
    /// Starts a program. What it says on its standard error is shown when something fails.
    ///
    /// # Errors
    /// It cannot be run.
    pub fn start(name: &str, mut command: Command) -> Result<Self> {
        let errors = NamedTempFile::new().context("make a file for the program's errors")?;
        let shared = errors.reopen().context("open the file of errors")?;
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(shared)
            .spawn()
            .with_context(|| format!("run {name}"))?;
        let output = child.stdout.take().context("take the program's output")?;
        let input = child.stdin.take();
        let (sender, lines) = channel();
        thread::spawn(move || {
            // Ends with the program's output, or when nobody listens any more.
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self { name: name.to_owned(), child, input, lines, errors })
    }

    /// Sends a line to the program.
    ///
    /// # Errors
    /// It has ended.
    pub fn say(&mut self, line: &str) -> Result<()> {
        let Some(input) = &mut self.input else { bail!("{} was told that it is over", self.name) };
        let sent = writeln!(input, "{line}").and_then(|()| input.flush());
        sent.with_context(|| format!("tell {} {line:?}", self.name))
    }

    /// The program's next line, or `None` if it has no more to say.
    ///
    /// # Errors
    /// It stays silent for longer than that.
    pub fn hear(&mut self, timeout: Duration) -> Result<Option<String>> {
        match self.lines.recv_timeout(timeout) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => {
                bail!("{} is silent for {timeout:?}\n{}", self.name, self.errors())
            }
        }
    }

    /// Waits for the end of a program that has no more to say.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn finish(&mut self) -> Result<ExitStatus> {
        self.input = None;
        self.child.wait().with_context(|| format!("wait for {}", self.name))
    }

    /// What the program wrote to its standard error so far.
    #[must_use]
    pub fn errors(&self) -> String {
        match fs::read(self.errors.path()) {
            Ok(bytes) => format!("--- {} ---\n{}", self.name, String::from_utf8_lossy(&bytes)),
            Err(error) => format!("--- {}: {error} ---", self.name),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a program to its end and gives the lines that it printed.
///
/// # Errors
/// It fails, or takes longer than that between two lines; the message has what it said.
pub fn run_to_end(name: &str, command: Command, timeout: Duration) -> Result<Vec<String>> {
    let mut program = Program::start(name, command)?;
    program.input = None;
    let mut lines = Vec::new();
    while let Some(line) = program.hear(timeout)? {
        lines.push(line);
    }
    let status = program.finish()?;
    if !status.success() {
        bail!("{name} ended with {status}\n{}\n{}", lines.join("\n"), program.errors());
    }
    Ok(lines)
}
