//! What a client of the workload does when it is its turn: a little of everything, on few znodes.
//!
//! Each turn gives `None` if the connection was lost in its midst.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::differential::chance::Chance;
use crate::history::client::Client;
use crate::history::places::Places;
use crate::history::queue::Queue;
use crate::history::record::{Answer, Mode, Request};

/// Sequential znodes of one client that it leaves alone; the oldest go first.
const KEPT: usize = 3;

/// One client with all that it has in mind.
pub(crate) struct Worker {
    pub(crate) client: Client,
    pub(crate) chance: Chance,
    pub(crate) places: Arc<Places>,
    number: usize,
    values: u64,
    pace: Duration,
    versions: BTreeMap<String, i32>,
    made: Vec<String>,
    queue: Queue,
}

#[derive(Clone, Copy)]
enum Turn {
    Register,
    Name,
    Sequence,
    Lock,
    Pair,
    Token,
    Own,
    List,
    Leave,
    Drop,
    Vanish,
}

impl Worker {
    pub(crate) fn new(
        number: usize,
        client: Client,
        seed: u64,
        places: Arc<Places>,
        pace: Duration,
    ) -> Self {
        Self {
            client,
            chance: Chance::new(seed),
            places,
            number,
            values: 0,
            pace,
            versions: BTreeMap::new(),
            made: Vec::new(),
            queue: Queue::default(),
        }
    }

    /// Works until told to stop, and ends its session then.
    pub(crate) async fn work(&mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            if !self.client.is_connected() {
                self.arrive().await;
                continue;
            }
            if self.turn().await.is_none() {
                continue;
            }
            let micros = usize::try_from(self.pace.as_micros()).unwrap_or(usize::MAX / 2);
            let think = self.chance.below(2 * micros + 1);
            let think = Duration::from_micros(u64::try_from(think).unwrap_or_default());
            // A lost connection shows at the next turn.
            let _ = self.client.idle(think).await;
        }
        self.queue.give_up(&mut self.client);
        // What was cut off is only known to be over once the session has ended.
        for _ in 0..20 {
            if self.client.session() == 0 || self.client.connect().await {
                break;
            }
        }
        if self.client.is_connected() {
            self.client.close().await;
        }
    }

    async fn arrive(&mut self) {
        let session = self.client.session();
        let is_there = self.client.connect().await;
        self.queue.session_is(session, &mut self.client);
        if session != 0 && self.client.session() == 0 && self.chance.percent(50) {
            // What one server has refused, another must refuse, too.
            self.client.haunt().await;
        }
        // Sessions that have hardly begun are moved, too.
        if session == 0 && is_there && self.chance.percent(50) {
            if self.chance.percent(50) {
                // A lost connection shows at the next turn.
                let _ = self.register().await;
            }
            self.client.cut("the client has hardly begun");
        }
    }

    async fn turn(&mut self) -> Option<()> {
        let turn = self.chance.weighted(&[
            (240, Turn::Register),
            (180, Turn::Name),
            (100, Turn::Sequence),
            (220, Turn::Lock),
            (70, Turn::Pair),
            (60, Turn::Token),
            (80, Turn::Own),
            (40, Turn::List),
            (6, Turn::Leave),
            (4, Turn::Drop),
            (2, Turn::Vanish),
        ]);
        match turn {
            Turn::Register => self.register().await,
            Turn::Name => self.name().await,
            Turn::Sequence => self.sequence().await,
            Turn::Lock => {
                let value = self.value();
                let Self { queue, client, chance, places, .. } = self;
                queue.turn(client, chance, &places.locks, &value).await
            }
            Turn::Pair => self.pair().await,
            Turn::Token => self.token().await,
            Turn::Own => self.own().await,
            Turn::List => self.list().await,
            Turn::Leave => {
                self.queue.give_up(&mut self.client);
                if self.client.close().await && self.chance.percent(50) {
                    self.client.haunt().await;
                }
                None
            }
            Turn::Drop => {
                self.client.cut("the client feels like it");
                None
            }
            Turn::Vanish => {
                self.queue.give_up(&mut self.client);
                self.client.abandon();
                None
            }
        }
    }

    /// No two writes carry the same.
    fn value(&mut self) -> String {
        self.values += 1;
        format!("{}.{}", self.number, self.values)
    }

    fn some(&mut self, from: &[String]) -> String {
        from.get(self.chance.below(from.len())).cloned().unwrap_or_default()
    }

    /// Any version, or the one seen last.
    fn version(&mut self, path: &str) -> i32 {
        if self.chance.percent(50) { -1 } else { self.versions.get(path).copied().unwrap_or(0) }
    }

    async fn ask(&mut self, requests: Vec<Request>) -> Option<Vec<Answer>> {
        let answers = self.client.exchange(requests.clone()).await?;
        for (request, answer) in requests.iter().zip(&answers) {
            if let (
                Request::Set { path, .. } | Request::Get { path, .. },
                Answer::Stat(stat) | Answer::Data(_, stat),
            ) = (request, answer)
            {
                self.versions.insert(path.clone(), stat.version);
            }
        }
        Some(answers)
    }

    async fn register(&mut self) -> Option<()> {
        let places = Arc::clone(&self.places);
        let path = self.some(&places.registers);
        let get = Request::Get { path: path.clone(), watch: self.chance.percent(30) };
        let set =
            Request::Set { path: path.clone(), data: self.value(), version: self.version(&path) };
        let sync = Request::Sync { path };
        let requests = match self.chance.below(10) {
            0..3 => vec![set],
            3..5 => vec![get],
            5..8 => vec![sync, get],
            8 => vec![set, get],
            _ => vec![get.clone(), set, get],
        };
        self.ask(requests).await.map(drop)
    }

    async fn name(&mut self) -> Option<()> {
        let places = Arc::clone(&self.places);
        let path = self.some(&places.names);
        let mode = if self.chance.percent(40) { Mode::Ephemeral } else { Mode::Plain };
        let create = Request::Create { path: path.clone(), data: self.value(), mode };
        let delete = Request::Delete { path: path.clone(), version: self.version(&path) };
        let watch = self.chance.percent(40);
        let look = if self.chance.percent(50) {
            Request::Exists { path: path.clone(), watch }
        } else {
            Request::Get { path: path.clone(), watch }
        };
        let set =
            Request::Set { path: path.clone(), data: self.value(), version: self.version(&path) };
        let sync = Request::Sync { path };
        let requests = match self.chance.below(12) {
            0..4 => vec![create],
            4..6 => vec![delete],
            6 => vec![set],
            7..9 => vec![sync, look],
            9 => vec![look],
            10 => vec![create, delete],
            _ => vec![delete, create, look],
        };
        self.ask(requests).await.map(drop)
    }

    async fn sequence(&mut self) -> Option<()> {
        if self.made.len() > KEPT {
            let path = self.made.remove(0);
            self.ask(vec![Request::Delete { path, version: -1 }]).await?;
        }
        let parent = self.places.sequence.clone();
        let mut requests = Vec::new();
        for _ in 0..1 + self.chance.below(3) {
            let path = format!("{parent}/n-");
            requests.push(Request::Create { path, data: self.value(), mode: Mode::Sequential });
        }
        for answer in self.ask(requests).await? {
            if let Answer::Path(path) = answer {
                self.made.push(path);
            }
        }
        Some(())
    }

    async fn pair(&mut self) -> Option<()> {
        let places = Arc::clone(&self.places);
        let [first, second] = places.pairs.get(self.chance.below(places.pairs.len()))?.clone();
        let data = self.value();
        let version = self.version(&first);
        let set = |path: &str| Request::Set { path: path.to_owned(), data: data.clone(), version };
        let get = |path: &str| Request::Get { path: path.to_owned(), watch: false };
        let both = Request::Multi(vec![set(&first), set(&second)]);
        let sync = Request::Sync { path: first.clone() };
        let requests = match self.chance.below(4) {
            0 => vec![both],
            1 => vec![both, get(&first), get(&second)],
            _ => vec![sync, get(&first), get(&second)],
        };
        self.ask(requests).await.map(drop)
    }

    async fn token(&mut self) -> Option<()> {
        let places = Arc::clone(&self.places);
        let [mut from, mut to] = places.tokens.get(self.chance.below(places.tokens.len()))?.clone();
        if self.chance.percent(50) {
            std::mem::swap(&mut from, &mut to);
        }
        let delete = Request::Delete { path: from.clone(), version: -1 };
        let create = Request::Create { path: to.clone(), data: self.value(), mode: Mode::Plain };
        let looks = [&from, &to].map(|path| Request::Exists { path: path.clone(), watch: true });
        let requests = match self.chance.below(3) {
            0 => [vec![Request::Sync { path: from.clone() }], looks.to_vec()].concat(),
            1 => vec![Request::Multi(vec![create, delete])],
            _ => vec![Request::Multi(vec![delete, create])],
        };
        self.ask(requests).await.map(drop)
    }

    /// Many requests at once, of which a cut leaves the first few.
    async fn own(&mut self) -> Option<()> {
        let path = self.places.own.get(self.number)?.clone();
        let mut requests = Vec::new();
        for _ in 0..2 + self.chance.below(8) {
            let (path, data) = (path.clone(), self.value());
            requests.push(match self.chance.below(5) {
                0 => Request::Get { path, watch: false },
                _ => Request::Set { path, data, version: -1 },
            });
        }
        if self.chance.percent(5) {
            // Sent, and the line cut at once: nobody knows how many of them are done.
            self.client.exchange_and_cut(requests).await;
            return None;
        }
        self.ask(requests).await.map(drop)
    }

    async fn list(&mut self) -> Option<()> {
        let path = self.places.names_parent();
        let list = Request::Children { path: path.clone(), watch: self.chance.percent(60) };
        let sync = Request::Sync { path };
        let requests = if self.chance.percent(50) { vec![sync, list] } else { vec![list] };
        self.ask(requests).await.map(drop)
    }
}
