//! The load that is recorded: clients that get into each other's way, and an auditor in the end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use tokio::runtime;
use tokio::task::JoinSet;

use crate::history::client::{Client, Journal};
use crate::history::places::Places;
use crate::history::record::{Answer, History, Log, Mode, Request, Run};
use crate::history::turns::Worker;

/// How long the steward looks for a server that serves, at the start and in the end.
const STEWARD_PATIENCE: Duration = Duration::from_secs(90);
/// Reads that the auditor sends at once.
const AUDIT_AT_ONCE: usize = 40;

/// A workload for servers of one tree; started, it runs until it is stopped.
#[derive(Clone, Debug)]
pub struct Workload {
    servers: Vec<SocketAddr>,
    seed: u64,
    /// How many clients there are.
    pub clients: usize,
    /// The session timeout that they ask for.
    pub session_timeout: Duration,
    /// How long a client waits between two turns, on average.
    pub pace: Duration,
}

/// A workload that runs, in a thread of its own.
pub struct Running {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    thread: JoinHandle<Result<History>>,
}

impl Workload {
    /// Eight clients with sessions of 6 s that act about every 5 ms.
    #[must_use]
    pub fn new(servers: Vec<SocketAddr>, seed: u64) -> Self {
        Self {
            servers,
            seed,
            clients: 8,
            session_timeout: Duration::from_secs(6),
            pace: Duration::from_millis(5),
        }
    }

    /// Makes the znodes that are needed, below one of its own, and lets the clients loose.
    ///
    /// # Errors
    /// There is no server, or no thread.
    pub fn start(self) -> Result<Running> {
        ensure!(!self.servers.is_empty(), "a workload needs a server");
        let stop = Arc::new(AtomicBool::new(false));
        let answered = Arc::new(AtomicU64::new(0));
        let (shared_stop, shared_answered) = (Arc::clone(&stop), Arc::clone(&answered));
        let thread = std::thread::Builder::new()
            .name("workload".to_owned())
            .spawn(move || {
                let runtime = runtime::Builder::new_current_thread().enable_all().build();
                let runtime = runtime.context("start a runtime")?;
                runtime.block_on(self.run(&shared_stop, &shared_answered))
            })
            .context("start the workload's thread")?;
        Ok(Running { stop, answered, thread })
    }

    async fn run(&self, stop: &Arc<AtomicBool>, answered: &Arc<AtomicU64>) -> Result<History> {
        let began = Instant::now();
        let servers: Arc<[SocketAddr]> = self.servers.clone().into();
        let client = |first: usize| {
            let journal = Journal::new(began, Arc::clone(answered));
            Client::new(Arc::clone(&servers), first, self.session_timeout, journal)
        };
        let mut steward = client(self.clients);
        let root = furnish(&mut steward).await?;
        let places = Arc::new(Places::new(&root, self.clients));
        demand(&mut steward, places.furniture()).await?;

        let mut workers = JoinSet::new();
        for number in 0..self.clients {
            let seed = self.seed.wrapping_mul(1_000_003).wrapping_add(number as u64);
            let places = Arc::clone(&places);
            let mut worker = Worker::new(number, client(number), seed, places, self.pace);
            let stop = Arc::clone(stop);
            workers.spawn(async move {
                worker.work(&stop).await;
                (number, worker.client.into_log())
            });
        }
        let mut logs: Vec<Log> = vec![Log::default(); self.clients];
        while !workers.is_empty() {
            tokio::select! {
                joined = workers.join_next() => if let Some(joined) = joined {
                    let (number, log) = joined.context("a client panicked")?;
                    logs[number] = log;
                },
                // The steward's session is kept alive; a cut is mended when it is needed.
                _ = steward.idle(Duration::from_secs(1)), if steward.is_connected() => {}
            }
        }
        audit(&mut steward, &places).await.context("audit")?;
        logs.push(steward.into_log());
        let servers = self.servers.iter().map(ToString::to_string).collect();
        Ok(History { run: Run { seed: self.seed, root, servers }, logs })
    }
}

impl Running {
    /// How many answers all clients have got so far; grows as long as somebody is served.
    #[must_use]
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Whether it has ended by itself, which it does only if it could not start.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Lets the clients end their sessions, reads everything, and gives what was recorded.
    ///
    /// # Errors
    /// No server could be reached at the start or in the end, for longer than a minute.
    pub fn stop(self) -> Result<History> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the workload panicked"))?
    }
}

/// Makes the root: its number tells one run from another.
async fn furnish(steward: &mut Client) -> Result<String> {
    let create = Request::Create {
        path: "/history-".to_owned(),
        data: String::new(),
        mode: Mode::Sequential,
    };
    match demand(steward, vec![create]).await?.as_slice() {
        [Answer::Path(path)] => Ok(path.clone()),
        other => bail!("the root is answered by {other:?}"),
    }
}

/// Sends requests one by one, again and again if need be.
async fn demand(steward: &mut Client, requests: Vec<Request>) -> Result<Vec<Answer>> {
    let deadline = Instant::now() + STEWARD_PATIENCE;
    let mut answers = Vec::new();
    for request in requests {
        answers.push(loop {
            ensure!(Instant::now() < deadline, "no server answers {request:?}");
            if steward.connect().await
                && let Some(answer) = steward.ask(request.clone()).await
            {
                break answer;
            }
        });
    }
    Ok(answers)
}

/// Reads all that is left, after a sync.
async fn audit(steward: &mut Client, places: &Places) -> Result<()> {
    for parent in places.parents() {
        let names =
            loop_until(steward, &[Request::Children { path: parent.clone(), watch: false }])
                .await?
                .into_iter()
                .find_map(|answer| match answer {
                    Answer::Children(names, _) => Some(names),
                    _ => None,
                })
                .with_context(|| format!("list {parent}"))?;
        let read = |name: &String| Request::Get { path: format!("{parent}/{name}"), watch: false };
        let reads: Vec<Request> = names.iter().map(read).collect();
        for some in reads.chunks(AUDIT_AT_ONCE) {
            loop_until(steward, some).await?;
        }
    }
    steward.close().await;
    Ok(())
}

async fn loop_until(steward: &mut Client, reads: &[Request]) -> Result<Vec<Answer>> {
    let deadline = Instant::now() + STEWARD_PATIENCE;
    let requests = [&[Request::Sync { path: "/".to_owned() }], reads].concat();
    while Instant::now() < deadline {
        if steward.connect().await
            && let Some(answers) = steward.exchange(requests.clone()).await
        {
            return Ok(answers);
        }
    }
    bail!("no server lets the auditor read")
}
