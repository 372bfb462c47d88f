//! The program: flags → `Config` → run → exit code.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use clap::Parser;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use zkshim::config::{Cli, Command, Config};
use zkshim::driver::{Clock, Driver, Handle, Input};
use zkshim::store::{Store, StoreError, StoreOptions};
use zkshim::{server, telemetry};

/// Events of the store that may wait for the driver.
const STORE_EVENTS_WAITING_MAX: usize = 1024;

/// A value that makes no sense, as clap has it for what it refuses itself.
const BAD_USAGE: u8 = 2;

fn main() -> ExitCode {
    let Cli { command: Command::Serve(args) } = Cli::parse();
    let seed = match seed() {
        Ok(seed) => seed,
        Err(error) => return fail(&error),
    };
    let config = match Config::check(&args, seed) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(BAD_USAGE);
        }
    };
    telemetry::start(&config.telemetry);
    match serve(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

fn fail(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {error:#}");
    ExitCode::FAILURE
}

/// What ids and passwords are drawn from: nobody can foresee it.
fn seed() -> anyhow::Result<[u8; 32]> {
    let mut seed = [0; 32];
    ChaCha20Rng::try_from_os_rng()
        .context("get random bytes from the system")?
        .fill_bytes(&mut seed);
    Ok(seed)
}

#[tokio::main]
async fn serve(config: Config) -> anyhow::Result<()> {
    let stopping = CancellationToken::new();
    stop_on_signal(stopping.clone())?;
    let listener = TcpListener::bind(&config.listen)
        .await
        .with_context(|| format!("listen on {}", config.listen))?;
    let (events, store_events) = mpsc::channel(STORE_EVENTS_WAITING_MAX);
    let store = Store::open(config.store.clone(), events).await.context("open the store")?;
    announce(&config, &listener);
    let store = Arc::new(store);
    let commands = Arc::clone(&store);
    let (driver, handle) = Driver::new(
        config.keeper,
        Clock::Boot,
        move |command| commands.send(command),
        store_events,
    );
    let driver = tokio::spawn(driver.run());
    let serving = server::run(listener, config.server, handle.clone(), stopping.clone());
    let outcome = until_the_end(serving, &store, stopping).await;
    stop(handle, driver, store).await?;
    outcome.context("go on with the store")
}

/// Serves until it is told to stop, or until the store is broken.
async fn until_the_end(
    serving: impl Future<Output = ()>,
    store: &Store,
    stopping: CancellationToken,
) -> Result<(), StoreError> {
    tokio::pin!(serving);
    let failure = tokio::select! {
        () = &mut serving => return Ok(()),
        failure = store.failed() => failure,
    };
    tracing::error!(error = %failure, "the store is broken");
    stopping.cancel();
    serving.await;
    Err(failure)
}

/// Ends the driver, then the store, which finishes what it was handed.
async fn stop(
    handle: Handle,
    driver: tokio::task::JoinHandle<()>,
    store: Arc<Store>,
) -> anyhow::Result<()> {
    // A driver that has ended by itself needs not be told.
    let _ = handle.send(Input::Shutdown).await;
    driver.await.context("drive the core")?;
    if let Some(store) = Arc::into_inner(store) {
        store.close().await;
    }
    tracing::info!("stopped");
    Ok(())
}

fn stop_on_signal(stopping: CancellationToken) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("listen to SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listen to SIGINT")?;
    tokio::spawn(async move {
        let name = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        };
        tracing::info!(signal = name, "stopping");
        stopping.cancel();
    });
    Ok(())
}

/// Says what this server is, once.
fn announce(config: &Config, listener: &TcpListener) {
    let address = listener.local_addr().map_or_else(|_| config.listen.clone(), |a| a.to_string());
    let version = &config.server.shown.version;
    match &config.store {
        StoreOptions::Embedded(options) => tracing::info!(
            %address,
            version,
            data_dir = %options.data_dir.display(),
            "listening, on the embedded store: one server, not replicated; \
             --store etcd shares the tree among many"
        ),
        StoreOptions::Etcd(options) => tracing::info!(
            %address,
            version,
            endpoints = ?options.endpoints,
            prefix = options.prefix,
            "listening, on etcd"
        ),
    }
}
