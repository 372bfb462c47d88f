//! The program: flags → `Config` → run → exit code.

use std::process::ExitCode;

use anyhow::Context;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use tokio::net::TcpListener;
use tokio::runtime::{self, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use zkshim::config::{Cli, Command, Config};
use zkshim::store::StoreOptions;
use zkshim::{driver, server, telemetry};

/// A write passes through many small pieces of memory: a quarter of this program's time went to
/// glibc's allocator, which also kept what was freed.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// A value that makes no sense, as clap has it for what it refuses itself.
const BAD_USAGE: u8 = 2;

fn main() -> ExitCode {
    let Cli { command: Command::Serve(args) } = Cli::read();
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
    let served = runtime(config.worker_threads).and_then(|runtime| runtime.block_on(serve(config)));
    match served {
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

/// One thread needs no scheduler that moves tasks between threads.
fn runtime(worker_threads: usize) -> anyhow::Result<Runtime> {
    let mut builder = match worker_threads {
        1 => runtime::Builder::new_current_thread(),
        _ => runtime::Builder::new_multi_thread(),
    };
    builder.worker_threads(worker_threads).enable_all().build().context("start threads")
}

async fn serve(config: Config) -> anyhow::Result<()> {
    let stopping = CancellationToken::new();
    stop_on_signal(stopping.clone())?;
    let listener = TcpListener::bind(&config.listen)
        .await
        .with_context(|| format!("listen on {}", config.listen))?;
    announce(&config, &listener);
    let mut core = driver::run(config.keeper, config.store);
    let serving = server::run(listener, config.server, core.handle(), stopping.clone());
    tokio::pin!(serving);
    let failure = tokio::select! {
        () = &mut serving => None,
        failure = core.failed() => Some(failure),
    };
    if let Some(failure) = failure {
        stopping.cancel();
        serving.await;
        core.stop().await;
        return Err(failure.into());
    }
    core.stop().await;
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
