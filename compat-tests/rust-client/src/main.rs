//! zookeeper-client through what its users lean on; each step asserts what it sees.
//!
//! Arguments: a connect string that leads straight to the servers, and one through a relay.
//! Prints `ok STEP` or `failed STEP: reason` for each step. `ask WHAT` asks the test for trouble on
//! the relay (cut, hold, release, move); it answers `done`.

use std::env;
use std::fmt::Debug;
use std::io::stdin;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::runtime::Builder;
use tokio::time::{sleep, timeout};
use zookeeper_client::{Client, Error, SessionState};

mod operations;

const SESSION_TIMEOUT: Duration = Duration::from_secs(6);
const PATIENCE: Duration = Duration::from_secs(20);

/// Where the servers are.
pub struct Servers {
    /// Straight to all of them.
    pub direct: String,
    /// Through a relay to one of them.
    pub relayed: String,
}

impl Servers {
    /// A new session, straight to any server.
    pub async fn connect(&self) -> Result<Client> {
        connect(&self.direct).await
    }
}

/// A new session.
pub async fn connect(hosts: &str) -> Result<Client> {
    let connector = Client::connector().with_session_timeout(SESSION_TIMEOUT);
    within("a session", connector.connect(hosts)).await?.context("connect")
}

/// What a future gives, if it does in time.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> Result<T> {
    timeout(PATIENCE, future).await.with_context(|| format!("{what} does not come"))
}

/// Waits for a state of the session, whatever comes before.
pub async fn await_state(client: &Client, expected: SessionState) -> Result<()> {
    let mut states = client.state_watcher();
    within(&format!("{expected}"), async {
        while states.peek_state() != expected {
            states.changed().await;
        }
    })
    .await
}

/// Waits until a node is gone, as the client's server sees it after a sync.
pub async fn await_end(client: &Client, path: &str) -> Result<()> {
    within("its end", async {
        loop {
            client.sync("/").await?;
            if client.check_stat(path).await?.is_none() {
                return Ok(());
            }
            sleep(Duration::from_millis(20)).await;
        }
    })
    .await?
}

/// Asserts that both are the same.
pub fn equal<T: PartialEq + Debug>(expected: T, found: T) -> Result<()> {
    ensure!(expected == found, "{found:?}, not {expected:?}");
    Ok(())
}

/// Asserts that a request is refused in that way.
pub fn refused<T, E: Into<Error>>(expected: Error, found: Result<T, E>) -> Result<()> {
    match found.map_err(Into::into) {
        Ok(_) => bail!("it is not refused, as {expected:?}"),
        Err(error) => equal(expected, error),
    }
}

/// Asks the test for trouble on the relay.
pub fn ask(what: &str) -> Result<()> {
    println!("ask {what}");
    let mut line = String::new();
    stdin().read_line(&mut line).context("hear from the test")?;
    equal("done", line.trim_end())
}

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    let (Some(direct), Some(relayed)) = (arguments.next(), arguments.next()) else {
        eprintln!("two connect strings are needed");
        return ExitCode::from(2);
    };
    let servers = Servers { direct, relayed };
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    let passed = runtime.block_on(operations::run(&servers));
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
