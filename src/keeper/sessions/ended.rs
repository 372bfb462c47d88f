//! Sessions that have ended lately: who comes back with one of them is refused, although its
//! password proves that it was given out and nothing in etcd says what became of it.

use crate::keeper::request::SessionId;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::time::Duration;

/// Sessions that are remembered at most; of more the oldest are forgotten.
const REMEMBERED_MAX: usize = 1 << 20;

/// See the file's text.
#[derive(Debug, Default)]
pub struct Ended {
    until: FxHashMap<SessionId, Duration>,
    /// As they came, which is nearly the order in which they are forgotten.
    order: VecDeque<(Duration, SessionId)>,
}

impl Ended {
    /// A session has ended, and is to be remembered until then.
    pub fn insert(&mut self, session: SessionId, now: Duration, until: Duration) {
        while let Some((due, oldest)) = self.order.front().copied() {
            if due > now && self.order.len() < REMEMBERED_MAX {
                break;
            }
            self.order.pop_front();
            if self.until.get(&oldest) == Some(&due) {
                self.until.remove(&oldest);
            }
        }
        self.until.insert(session, until);
        self.order.push_back((until, session));
    }

    /// Whether a session has ended.
    pub fn contains(&self, session: SessionId) -> bool {
        self.until.contains_key(&session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_ended_is_remembered_for_its_time() {
        let mut ended = Ended::default();
        let seconds = Duration::from_secs;
        ended.insert(SessionId(1), seconds(0), seconds(40));
        ended.insert(SessionId(2), seconds(10), seconds(50));
        assert!(ended.contains(SessionId(1)));
        ended.insert(SessionId(1), seconds(30), seconds(70));
        ended.insert(SessionId(3), seconds(45), seconds(85));
        assert!(ended.contains(SessionId(1)), "it was told again");
        ended.insert(SessionId(4), seconds(60), seconds(99));
        assert!(!ended.contains(SessionId(2)));
        assert!(ended.contains(SessionId(1)) && ended.contains(SessionId(3)));
    }
}
