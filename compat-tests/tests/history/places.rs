//! Places in a recorded history: requests with their answers, and events with what followed.

use compat_tests::differential::chance::Chance;
use compat_tests::history::record::{Answer, History, Request, What};

/// A request with its answer, by their places in the logs.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) log: usize,
    pub(crate) sent: usize,
    pub(crate) answered: usize,
    pub(crate) request: Request,
    pub(crate) zxid: i64,
    pub(crate) answer: Answer,
    /// It left behind a sync that was not answered yet.
    pub(crate) is_synced: bool,
}

pub(crate) fn pairs(history: &History) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for (number, log) in history.logs.iter().enumerate() {
        let mut open: Vec<(usize, i32, &Request, bool)> = Vec::new();
        for (index, entry) in log.entries.iter().enumerate() {
            match &entry.what {
                What::Opened { .. } => open.clear(),
                What::Sent { xid, request } if *xid > 0 => {
                    let is_synced =
                        open.iter().any(|(_, _, other, _)| matches!(other, Request::Sync { .. }));
                    open.push((index, *xid, request, is_synced));
                }
                What::Answered { xid, zxid, answer } if *xid > 0 => {
                    let (sent, _, request, is_synced) = open.remove(0);
                    let (request, answer) = (request.clone(), answer.clone());
                    let zxid = *zxid;
                    let (log, answered) = (number, index);
                    pairs.push(Pair { log, sent, answered, request, zxid, answer, is_synced });
                }
                _ => {}
            }
        }
    }
    pairs
}

pub(crate) fn is_register(path: &str) -> bool {
    path.contains("/registers/")
}

pub(crate) fn pick(
    history: &History,
    chance: &mut Chance,
    fits: impl Fn(&Pair) -> bool,
) -> Option<(Vec<Pair>, Pair)> {
    let all = pairs(history);
    let fitting: Vec<&Pair> = all.iter().filter(|pair| fits(pair)).collect();
    if fitting.is_empty() {
        return None;
    }
    let one = fitting.get(chance.below(fitting.len()))?;
    let one = (*one).clone();
    Some((all, one))
}

pub(crate) fn tell(history: &mut History, pair: &Pair, told: Answer, header: i64) {
    let entry = &mut history.logs[pair.log].entries[pair.answered];
    if let What::Answered { answer, zxid, .. } = &mut entry.what {
        (*answer, *zxid) = (told, header);
    }
}

/// Whether somebody was told that his write has this zxid: of one whose answer was lost it may
/// be that nobody knows.
pub(crate) fn is_told(all: &[Pair], zxid: i64) -> bool {
    all.iter().any(|pair| pair.request.is_write() && pair.answer.is_ok() && pair.zxid == zxid)
}

/// Events that are followed by an answer that shows as much, on the same connection.
pub(crate) fn events(history: &History) -> Vec<(usize, usize, usize)> {
    let mut events = Vec::new();
    let all = pairs(history);
    for (number, log) in history.logs.iter().enumerate() {
        for (index, entry) in log.entries.iter().enumerate() {
            let What::Event { zxid: event, path, .. } = &entry.what else { continue };
            // What is certain is that registers and names change; others may be ephemeral.
            if *event < 0 || !is_register(path) || !is_told(&all, *event) {
                continue;
            }
            let follows = log.entries[index + 1..]
                .iter()
                .take_while(|entry| !matches!(entry.what, What::Opened { .. } | What::Cut { .. }))
                .position(|entry| match &entry.what {
                    What::Answered { xid, zxid, .. } => *xid > 0 && zxid >= event,
                    _ => false,
                });
            if let Some(answer) = follows {
                events.push((number, index, index + 1 + answer));
            }
        }
    }
    events
}

pub(crate) fn some_event(history: &History, chance: &mut Chance) -> Option<(usize, usize, usize)> {
    let events = events(history);
    (!events.is_empty()).then(|| events[chance.below(events.len())])
}
