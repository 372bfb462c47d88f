//! A server with the embedded store that is killed (SIGKILL) again and again under load: at any
//! moment, while it brings its journal into its pages, and while it starts. Whatever was
//! acknowledged must be there, once, and whole.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};

use crate::differential::chance::Chance;
use crate::faults::checks::{judge, read};
use crate::faults::load::{Load, prepare};
use crate::faults::record::Record;
use crate::servers::zkshim::{Zkshim, ZkshimOptions};

/// What each client writes of its own: at this size a journal is full every second or two.
const PADDING_BYTES: usize = 200_000;
/// So often all clients must have been served since the last kill.
const KILLS_BETWEEN_WORK: usize = 5;
/// How long that may take.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long it is waited for the moment that a kill is meant for.
const MOMENT_MAX: Duration = Duration::from_secs(8);

/// When a server is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moment {
    /// Whenever.
    Any,
    /// The pages of the database are being written.
    Saving,
    /// It was started a moment before.
    Starting,
    /// It is starting, and brings what is in the journal into the pages.
    Recovering,
}

/// What the kills showed.
#[derive(Debug)]
pub struct Report {
    /// How many there were, by what they were meant for, and how many of them came as meant.
    pub kills: BTreeMap<Moment, (usize, usize)>,
    /// Writes that were acknowledged, to znodes of the clients' own alone.
    pub writes: usize,
    /// What must not be.
    pub violations: Vec<String>,
}

/// Kills a server so many times.
///
/// # Errors
/// The rig itself does not work, or the server does not serve again.
pub fn run(seed: u64, kills: usize) -> Result<Report> {
    let mut chance = Chance::new(seed);
    let options = ZkshimOptions::embedded().flag("--max-session-timeout", "60000");
    let options = options.flag("--max-client-connections", "0");
    let mut server = Zkshim::start(&options)?;
    let data = server.argument("--data-dir=").context("find the data directory")?;
    let pages = PathBuf::from(data).join("zkshim.redb");
    let servers = [server.address()];
    prepare(&servers)?;
    let record = Arc::new(Record::default());
    let load = Load::start(&[None, None, None], &servers, &record, PADDING_BYTES)?;
    let mut struck: BTreeMap<Moment, (usize, usize)> = BTreeMap::new();
    let mut started = Instant::now();
    for number in 0..kills {
        let moment = chance.weighted(&[
            (3, Moment::Any),
            (3, Moment::Saving),
            (2, Moment::Starting),
            (2, Moment::Recovering),
        ]);
        // A kill during the start is one more, right after another.
        let starts = matches!(moment, Moment::Starting | Moment::Recovering);
        if starts {
            server.kill()?;
            server.spawn_again()?;
        } else {
            server.wait_until_serving()?;
        }
        let as_meant = wait_for(moment, &pages, &mut chance);
        server.kill()?;
        server.spawn_again()?;
        let counts = struck.entry(moment).or_default();
        *counts = (counts.0 + 1, counts.1 + usize::from(as_meant));
        if number % KILLS_BETWEEN_WORK == KILLS_BETWEEN_WORK - 1 {
            server.wait_until_serving()?;
            wait_for_work(&record, started)?;
            started = Instant::now();
        }
    }
    server.wait_until_serving()?;
    wait_for_work(&record, Instant::now())?;
    load.stop();
    judge(&record, &read(server.address())?);
    let (writes, violations) = record.with(|told| {
        let lives = told.lives.values();
        let writes = lives.map(|life| life.writes_acknowledged.len()).sum();
        (writes, std::mem::take(&mut told.violations))
    });
    if !violations.is_empty() {
        eprintln!("{}", server.log());
    }
    Ok(Report { kills: struck, writes, violations })
}

/// Waits for the moment to kill; whether it came.
fn wait_for(moment: Moment, pages: &PathBuf, chance: &mut Chance) -> bool {
    let mut within = |ms: usize| Duration::from_millis(chance.below(ms) as u64);
    match moment {
        Moment::Any => sleep(within(1500)),
        Moment::Starting => sleep(within(200)),
        Moment::Saving | Moment::Recovering => {
            let before = modified(pages);
            let until = Instant::now() + MOMENT_MAX;
            while modified(pages) == before {
                if Instant::now() > until {
                    return false;
                }
                sleep(Duration::from_micros(200));
            }
            sleep(within(6));
        }
    }
    true
}

fn modified(file: &PathBuf) -> Option<SystemTime> {
    fs::metadata(file).and_then(|metadata| metadata.modified()).ok()
}

/// Waits until each client that writes has a write that was begun after this moment.
fn wait_for_work(record: &Record, since: Instant) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    loop {
        let idle: Vec<usize> = record.with(|told| {
            let works = |(_, life): &(&usize, &crate::faults::record::Life)| {
                life.writes && life.works_again(since).is_none()
            };
            told.lives.iter().filter(works).map(|(number, _)| *number).collect()
        });
        if idle.is_empty() {
            return Ok(());
        }
        ensure!(Instant::now() < until, "clients {idle:?} do not work again within {PATIENCE:?}");
        sleep(Duration::from_millis(20));
    }
}
