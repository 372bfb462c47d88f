//! A lock as clients build it: a queue of ephemeral sequential znodes, whose first holds it.
//!
//! The name of an own znode begins with a value that nobody else uses, as Curator's protected
//! nodes do, so that it is found again when the answer to its create was lost.

use crate::conformance::wire::event;
use crate::differential::chance::Chance;
use crate::history::client::Client;
use crate::history::record::{Answer, Mode, Request, What};

/// Where a client stands with a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Place {
    /// Nowhere.
    #[default]
    None,
    /// It may have a znode in the queue.
    Unsure,
    /// It has this znode in the queue.
    Queued(String),
    /// It is the first in the queue.
    Held(String),
    /// It wants this znode to go.
    Leaving(String),
}

/// See the file's text.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    lock: String,
    value: String,
    place: Place,
}

impl Queue {
    /// A few steps: into the queue, to its head, out of it.
    pub(crate) async fn turn(
        &mut self,
        client: &mut Client,
        chance: &mut Chance,
        locks: &[String],
        value: &str,
    ) -> Option<()> {
        let before = self.place.clone();
        self.step(client, chance, locks, value).await?;
        let is_held = matches!(self.place, Place::Held(_));
        if self.place != before && !is_held && self.place != Place::None {
            self.step(client, chance, locks, value).await?;
        }
        Some(())
    }

    async fn step(
        &mut self,
        client: &mut Client,
        chance: &mut Chance,
        locks: &[String],
        value: &str,
    ) -> Option<()> {
        match self.place.clone() {
            Place::None => {
                self.lock = locks.get(chance.below(locks.len()))?.clone();
                value.clone_into(&mut self.value);
                self.place = Place::Unsure;
                let path = format!("{}/{value}-", self.lock);
                let data = value.to_owned();
                let create = Request::Create { path, data, mode: Mode::EphemeralSequential };
                if let Answer::Path(path) = client.ask(create).await? {
                    self.place = Place::Queued(path);
                }
                Some(())
            }
            Place::Unsure => self.search(client).await,
            Place::Queued(own) => {
                let is_disturbed = client
                    .events
                    .iter()
                    .any(|(kind, path)| *kind == event::DELETED && path.starts_with(&self.lock));
                if is_disturbed || chance.percent(50) {
                    client.events.clear();
                    return self.look(client, own).await;
                }
                Some(())
            }
            Place::Held(own) if chance.percent(60) => {
                client.write(What::Given { lock: self.lock.clone() });
                self.place = Place::Leaving(own.clone());
                self.leave(client, own).await
            }
            Place::Held(_) => Some(()),
            Place::Leaving(own) => self.leave(client, own).await,
        }
    }

    /// The session was this one before a connect; if it is over, so is the place in the queue.
    pub(crate) fn session_is(&mut self, before: i64, client: &mut Client) {
        if client.session() != before {
            self.give_up(client);
        }
    }

    /// The session is about to end, or has ended.
    pub(crate) fn give_up(&mut self, client: &mut Client) {
        if let Place::Held(_) = self.place {
            client.write(What::Given { lock: self.lock.clone() });
        }
        self.place = Place::None;
    }

    async fn search(&mut self, client: &mut Client) -> Option<()> {
        // A create that was cut off may be under way to where it is read; no longer after a sync.
        let sync = Request::Sync { path: self.lock.clone() };
        let list = Request::Children { path: self.lock.clone(), watch: false };
        let answers = client.exchange(vec![sync, list]).await?;
        let Some(Answer::Children(names, _)) = answers.last() else { return Some(()) };
        let start = format!("{}-", self.value);
        self.place = match names.iter().find(|name| name.starts_with(&start)) {
            Some(name) => Place::Queued(format!("{}/{name}", self.lock)),
            None => Place::None,
        };
        Some(())
    }

    async fn look(&mut self, client: &mut Client, own: String) -> Option<()> {
        let list = Request::Children { path: self.lock.clone(), watch: false };
        let Answer::Children(names, _) = client.ask(list).await? else { return Some(()) };
        let number = |name: &str| name.get(name.len().checked_sub(10)?..)?.parse::<u64>().ok();
        let mine = number(&own);
        let before = names.iter().filter(|name| number(name) < mine);
        let Some(previous) = before.max_by_key(|name| number(name)) else {
            let lock = self.lock.clone();
            // It may have gone with a session that is over: then it is not in the list.
            if names.iter().any(|name| own.ends_with(name.as_str())) {
                client.write(What::Taken { lock });
                self.place = Place::Held(own);
            } else {
                self.place = Place::None;
            }
            return Some(());
        };
        let path = format!("{}/{previous}", self.lock);
        client.ask(Request::Exists { path, watch: true }).await.map(drop)
    }

    async fn leave(&mut self, client: &mut Client, own: String) -> Option<()> {
        client.ask(Request::Delete { path: own, version: -1 }).await?;
        self.place = Place::None;
        Some(())
    }
}
