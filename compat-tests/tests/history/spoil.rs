//! Damage to recorded histories: what each kind of broken promise would look like.
//!
//! Each kind of damage is done at a place drawn by chance, where it means something; it gives
//! `None` if the history has no such place.

use compat_tests::conformance::wire::code;
use compat_tests::differential::chance::Chance;
use compat_tests::history::record::{Answer, Entry, History, Request, What};

use crate::places::{Pair, is_register, is_told, pairs, pick, some_event, tell};

/// One kind of damage.
pub(crate) struct Damage {
    pub(crate) name: &'static str,
    /// The rules of which one at least must be found broken.
    pub(crate) rules: &'static [&'static str],
    pub(crate) spoil: fn(&mut History, &mut Chance) -> Option<()>,
}

const fn damage(
    name: &'static str,
    rules: &'static [&'static str],
    spoil: fn(&mut History, &mut Chance) -> Option<()>,
) -> Damage {
    Damage { name, rules, spoil }
}

/// All kinds.
pub(crate) const DAMAGES: &[Damage] = &[
    damage("a write that nobody sent", &["linearizability"], forget_a_write),
    damage("an acknowledged write is lost", &["linearizability"], lose_a_write),
    damage("a write is done twice", &["linearizability"], double_a_write),
    damage("two reads change places", &["reads", "Stat", "linearizability"], swap_two_reads),
    damage("a read after a sync is stale", &["linearizability"], read_stale),
    damage("a read is older than its header", &["reads"], read_old),
    damage("a read goes back", &["order of zxids", "reads"], fall_back),
    damage("a read makes up data", &["Stat"], garble),
    damage("answers change places", &["Stat", "linearizability"], swap_answers),
    damage("a failure is made up", &["linearizability"], invent_a_failure),
    damage("a failure is passed off as a success", &["linearizability"], invent_a_success),
    damage("a write has a lower zxid than one before it", &["order in real time"], lower_a_write),
    damage("one number is given twice", &["sequence"], repeat_a_number),
    damage("a number is skipped", &["sequence"], skip_a_number),
    damage("half of a multi is seen", &["reads", "linearizability"], halve_a_multi),
    damage("a lock is held twice", &["locks"], hold_twice),
    damage("a child is missing", &["lists"], hide_a_child),
    damage("a child is a ghost", &["lists"], add_a_child),
    damage("an event is lost", &["watches"], lose_an_event),
    damage("an event comes twice", &["watches"], double_an_event),
    damage("an event comes after the answer", &["order of zxids"], delay_an_event),
    damage("a session ends while its client talks", &["sessions"], expire_early),
    damage("an ephemeral is gone too early", &["linearizability"], lose_an_ephemeral),
    damage("an ephemeral outlives its session", &["linearizability"], keep_an_ephemeral),
];

fn is_set_of_register(pair: &Pair) -> bool {
    matches!(&pair.request, Request::Set { path, .. } if is_register(path)) && pair.answer.is_ok()
}

/// The state of a register that a read shows.
fn shown(pair: &Pair) -> Option<(&str, i64)> {
    match (&pair.request, &pair.answer) {
        (Request::Get { path, .. }, Answer::Data(_, stat)) if is_register(path) => {
            Some((path, stat.mzxid))
        }
        _ => None,
    }
}

fn forget_a_write(history: &mut History, chance: &mut Chance) -> Option<()> {
    let (_, pair) = pick(history, chance, is_set_of_register)?;
    let entries = &mut history.logs[pair.log].entries;
    entries.remove(pair.answered);
    entries.remove(pair.sent);
    Some(())
}

/// It is answered as if it had been done, and leaves no trace.
fn lose_a_write(history: &mut History, chance: &mut Chance) -> Option<()> {
    let (_, pair) = pick(history, chance, |pair| {
        matches!(&pair.request, Request::Delete { .. })
            && pair.answer == Answer::Error(code::NO_NODE)
    })?;
    tell(history, &pair, Answer::Done, pair.zxid);
    Some(())
}

fn double_a_write(history: &mut History, chance: &mut Chance) -> Option<()> {
    let (_, pair) = pick(history, chance, is_set_of_register)?;
    let entries = &mut history.logs[pair.log].entries;
    let again = [entries[pair.sent].clone(), entries[pair.answered].clone()];
    // Right behind itself, before anything that was pipelined with it.
    let follows = entries[pair.sent + 1..pair.answered]
        .iter()
        .all(|entry| !matches!(entry.what, What::Sent { .. } | What::Answered { .. }));
    if !follows {
        return None;
    }
    entries.splice(pair.answered + 1..pair.answered + 1, again);
    Some(())
}

fn swap_two_reads(history: &mut History, chance: &mut Chance) -> Option<()> {
    let (all, pair) = pick(history, chance, |pair| shown(pair).is_some())?;
    let (path, mzxid) = shown(&pair)?;
    let other = all.iter().find(|other| {
        shown(other).is_some_and(|(same, differs)| {
            same == path && differs != mzxid && is_told(&all, differs)
        })
    })?;
    if !is_told(&all, mzxid) {
        return None;
    }
    tell(history, &pair, other.answer.clone(), pair.zxid);
    tell(history, other, pair.answer.clone(), other.zxid);
    Some(())
}

/// Some older state of a register, as somebody has read it.
fn older(all: &[Pair], pair: &Pair) -> Option<Answer> {
    let (path, mzxid) = shown(pair)?;
    let before = all.iter().filter(|other| {
        shown(other).is_some_and(|(same, earlier)| same == path && earlier < mzxid)
    });
    before.max_by_key(|other| shown(other).map(|(_, mzxid)| mzxid)).map(|pair| pair.answer.clone())
}

fn read_stale(history: &mut History, chance: &mut Chance) -> Option<()> {
    let (all, pair) = pick(history, chance, |pair| {
        pair.is_synced && shown(pair).is_some_and(|(_, mzxid)| mzxid < pair.zxid)
    })?;
    let stale = older(&all, &pair)?;
    // The change that is not shown must have been over before the sync.
    let sync = history.logs[pair.log].entries[pair.sent - 1].at;
    let (path, mzxid) = shown(&pair)?;
    let is_over = all.iter().any(|other| {
        let set = matches!(&other.request, Request::Set { path: same, .. } if same == path);
        set && other.zxid == mzxid && history.logs[other.log].entries[other.answered].at < sync
    });
    is_over.then(|| tell(history, &pair, stale, pair.zxid))
}

fn read_old(history: &mut History, chance: &mut Chance) -> Option<()> {
    let (all, pair) = pick(history, chance, |pair| shown(pair).is_some())?;
    let stale =
        older(&all, &pair).filter(|_| shown(&pair).is_some_and(|(_, at)| is_told(&all, at)))?;
    tell(history, &pair, stale, pair.zxid);
    Some(())
}

fn fall_back(history: &mut History, chance: &mut Chance) -> Option<()> {
    let (_, pair) = pick(history, chance, |pair| shown(pair).is_some() && pair.sent > 50)?;
    tell(history, &pair, pair.answer.clone(), 1);
    Some(())
}

fn garble(history: &mut History, chance: &mut Chance) -> Option<()> {
    let (all, pair) = pick(history, chance, |pair| shown(pair).is_some())?;
    let Answer::Data(_, stat) = pair.answer else { return None };
    if !is_told(&all, stat.mzxid) {
        return None;
    }
    tell(history, &pair, Answer::Data("nobody wrote this".to_owned(), stat), pair.zxid);
    Some(())
}

/// Two requests of one pipeline get each other's answers.
fn swap_answers(history: &mut History, chance: &mut Chance) -> Option<()> {
    let is_own =
        |pair: &Pair| matches!(&pair.request, Request::Set { path, .. } if path.contains("/own/"));
    let (all, pair) = pick(history, chance, |pair| is_own(pair) && pair.answer.is_ok())?;
    let next = all.iter().find(|next| {
        next.log == pair.log && next.sent == pair.sent + 1 && is_own(next) && next.answer.is_ok()
    })?;
    tell(history, &pair, next.answer.clone(), next.zxid);
    tell(history, next, pair.answer.clone(), pair.zxid);
    Some(())
}

fn invent_a_failure(history: &mut History, chance: &mut Chance) -> Option<()> {
    let (_, pair) = pick(history, chance, is_set_of_register)?;
    tell(history, &pair, Answer::Error(code::NO_NODE), pair.zxid);
    Some(())
}

fn invent_a_success(history: &mut History, chance: &mut Chance) -> Option<()> {
    let (_, pair) = pick(history, chance, |pair| pair.answer == Answer::Error(code::NODE_EXISTS))?;
    let Request::Create { path, .. } = &pair.request else { return None };
    tell(history, &pair, Answer::Path(path.clone()), pair.zxid);
    Some(())
}

fn lower_a_write(history: &mut History, chance: &mut Chance) -> Option<()> {
    let (_, pair) = pick(history, chance, |pair| is_set_of_register(pair) && pair.log > 0)?;
    tell(history, &pair, pair.answer.clone(), 2);
    Some(())
}

fn sequential(pair: &Pair) -> bool {
    matches!(&pair.request, Request::Create { mode, path, .. } if mode.is_sequential() && path.contains("/sequence/"))
        && pair.answer.is_ok()
}

fn repeat_a_number(history: &mut History, chance: &mut Chance) -> Option<()> {
    let (all, pair) = pick(history, chance, sequential)?;
    let other = all.iter().find(|other| sequential(other) && other.answer != pair.answer)?;
    tell(history, &pair, other.answer.clone(), pair.zxid);
    Some(())
}

/// As when a create is done twice, and told once.
fn skip_a_number(history: &mut History, chance: &mut Chance) -> Option<()> {
    let all = pairs(history);
    let last = all.iter().filter(|pair| sequential(pair)).max_by_key(|pair| pair.zxid)?;
    let Answer::Path(path) = &last.answer else { return None };
    let (start, number) = path.split_at(path.len() - 10);
    let skipped = number.parse::<usize>().ok()? + 1000 + chance.below(1000);
    tell(history, last, Answer::Path(format!("{start}{skipped:010}")), last.zxid);
    Some(())
}

/// The second of a pair is read as it was before.
fn halve_a_multi(history: &mut History, chance: &mut Chance) -> Option<()> {
    let second = |pair: &Pair| match (&pair.request, &pair.answer) {
        (Request::Get { path, .. }, Answer::Data(_, stat)) if path.contains("/pairs/b") => {
            Some((path.clone(), stat.mzxid))
        }
        _ => None,
    };
    let (all, pair) = pick(history, chance, |pair| second(pair).is_some())?;
    let (path, mzxid) = second(&pair)?;
    if !is_told(&all, mzxid) {
        return None;
    }
    let before = all.iter().find(|other| {
        second(other).is_some_and(|(same, earlier)| same == path && earlier < mzxid)
    })?;
    tell(history, &pair, before.answer.clone(), pair.zxid);
    Some(())
}

fn hold_twice(history: &mut History, chance: &mut Chance) -> Option<()> {
    let mut holds = Vec::new();
    for (number, log) in history.logs.iter().enumerate() {
        for (index, entry) in log.entries.iter().enumerate() {
            if let What::Taken { lock } = &entry.what {
                holds.push((number, index, lock.clone()));
            }
        }
    }
    if holds.is_empty() {
        return None;
    }
    let (number, index, lock) = holds.get(chance.below(holds.len()))?.clone();
    let log = &history.logs[number].entries;
    let given = log[index..].iter().find(|entry| matches!(entry.what, What::Given { .. }))?.at;
    let middle = log[index].at + (given - log[index].at) / 2;
    let other = (number + 1) % (history.logs.len() - 1);
    let entries = &mut history.logs[other].entries;
    let place = entries.iter().position(|entry| entry.at > middle)?;
    let talks =
        entries[place..].iter().take(20).any(|entry| matches!(entry.what, What::Sent { .. }));
    let connected = entries[..place]
        .iter()
        .rev()
        .find_map(|entry| match entry.what {
            What::Opened { .. } => Some(true),
            What::Refused | What::Abandoned | What::Cut { .. } => Some(false),
            _ => None,
        })
        .unwrap_or(false);
    (talks && connected && given > middle + 1000).then(|| {
        let entry = |at, what| Entry { at, what };
        entries.insert(place, entry(middle + 2, What::Given { lock: lock.clone() }));
        entries.insert(place, entry(middle + 1, What::Taken { lock }));
    })
}

fn change_a_list(
    history: &mut History,
    chance: &mut Chance,
    change: impl Fn(&mut Vec<String>) -> Option<()>,
) -> Option<()> {
    let (_, pair) = pick(history, chance, |pair| {
        matches!((&pair.request, &pair.answer),
            (Request::Children { path, .. }, Answer::Children(names, _))
                if path.contains("/locks/") && !names.is_empty())
    })?;
    let Answer::Children(mut names, mut stat) = pair.answer.clone() else { return None };
    change(&mut names)?;
    stat.children = i32::try_from(names.len()).ok()?;
    tell(history, &pair, Answer::Children(names, stat), pair.zxid);
    Some(())
}

/// Not one of an ephemeral: those may go at any time.
fn hide_a_child(history: &mut History, chance: &mut Chance) -> Option<()> {
    let (_, pair) = pick(history, chance, |pair| {
        matches!((&pair.request, &pair.answer),
            (Request::Children { path, .. }, Answer::Children(names, _))
                if path.ends_with("/own") && !names.is_empty())
    })?;
    let Answer::Children(mut names, mut stat) = pair.answer.clone() else { return None };
    names.pop();
    stat.children -= 1;
    tell(history, &pair, Answer::Children(names, stat), pair.zxid);
    Some(())
}

fn add_a_child(history: &mut History, chance: &mut Chance) -> Option<()> {
    change_a_list(history, chance, |names| {
        names.push("nobody-0000009999".to_owned());
        Some(())
    })
}

fn lose_an_event(history: &mut History, chance: &mut Chance) -> Option<()> {
    let (number, index, _) = some_event(history, chance)?;
    history.logs[number].entries.remove(index);
    Some(())
}

fn double_an_event(history: &mut History, chance: &mut Chance) -> Option<()> {
    let (number, index, _) = some_event(history, chance)?;
    let again = history.logs[number].entries[index].clone();
    history.logs[number].entries.insert(index, again);
    Some(())
}

fn delay_an_event(history: &mut History, chance: &mut Chance) -> Option<()> {
    let (number, index, answer) = some_event(history, chance)?;
    let entries = &mut history.logs[number].entries;
    let mut event = entries.remove(index);
    // The answer has moved up by one.
    event.at = entries[answer - 1].at;
    entries.insert(answer, event);
    Some(())
}

/// A client that comes back at once is refused.
fn expire_early(history: &mut History, chance: &mut Chance) -> Option<()> {
    let mut resumed = Vec::new();
    for (number, log) in history.logs.iter().enumerate() {
        for (index, entry) in log.entries.iter().enumerate() {
            if let What::Opened { resumed: true, timeout_ms, .. } = entry.what {
                let before = index.checked_sub(1).map(|before| &log.entries[before]);
                let is_soon = before.is_some_and(|cut| {
                    matches!(cut.what, What::Cut { .. }) && entry.at - cut.at < timeout_ms * 100_000
                });
                if is_soon {
                    resumed.push((number, index));
                }
            }
        }
    }
    if resumed.is_empty() {
        return None;
    }
    let (number, index) = resumed[chance.below(resumed.len())];
    let entries = &mut history.logs[number].entries;
    let at = entries[index].at;
    // Nothing is known of what came after it: the client has a new session then.
    entries.truncate(index);
    entries.push(Entry { at, what: What::Refused });
    Some(())
}

/// One that is read is said to be gone, and its session goes on.
fn lose_an_ephemeral(history: &mut History, chance: &mut Chance) -> Option<()> {
    let owner = |pair: &Pair| match (&pair.request, &pair.answer) {
        (Request::Get { path, .. }, Answer::Data(_, stat))
        | (Request::Exists { path, .. }, Answer::Stat(stat)) => {
            (pair.is_synced && stat.owner != 0).then(|| (path.clone(), stat.owner))
        }
        _ => None,
    };
    let (all, pair) = pick(history, chance, |pair| owner(pair).is_some())?;
    let (path, owner) = owner(&pair)?;
    let at = |pair: &Pair, index: usize| history.logs[pair.log].entries[index].at;
    let (from, until) = (at(&pair, pair.sent - 1), at(&pair, pair.answered));
    let ends = |what: &What| match what {
        What::Abandoned | What::Refused => true,
        What::Sent { request, .. } => *request == Request::Close,
        _ => false,
    };
    let is_alive = history.logs.iter().any(|log| {
        let is_owner =
            |entry: &Entry| matches!(entry.what, What::Opened { session, .. } if session == owner);
        let life = log.entries.iter().skip_while(|entry| !is_owner(entry));
        let end = life.clone().find(|entry| ends(&entry.what));
        life.count() > 0 && end.is_none_or(|entry| entry.at > until)
    });
    // Nobody may be about to delete it.
    let is_deleted = all.iter().any(|other| {
        matches!(&other.request, Request::Delete { path: same, .. } if *same == path)
            && at(other, other.sent) < until
            && at(other, other.answered) > from
    });
    if !is_alive || is_deleted {
        return None;
    }
    tell(history, &pair, Answer::Error(code::NO_NODE), pair.zxid);
    Some(())
}

/// A read after the end of a session still shows its znode.
fn keep_an_ephemeral(history: &mut History, chance: &mut Chance) -> Option<()> {
    let mut closed = Vec::new();
    for pair in pairs(history) {
        if pair.request == Request::Close && pair.answer.is_ok() {
            let entries = &history.logs[pair.log].entries;
            let session = entries[..pair.sent].iter().rev().find_map(|entry| match entry.what {
                What::Opened { session, .. } => Some(session),
                _ => None,
            });
            closed.extend(session.map(|session| (session, entries[pair.answered].at)));
        }
    }
    let (all, pair) = pick(history, chance, |pair| match (&pair.request, &pair.answer) {
        (Request::Get { path, .. }, Answer::Error(_)) => pair.is_synced && path.contains("/names/"),
        _ => false,
    })?;
    let Request::Get { path, .. } = &pair.request else { return None };
    let sync = history.logs[pair.log].entries[pair.sent - 1].at;
    let shown = all.iter().find_map(|other| match (&other.request, &other.answer) {
        (Request::Get { path: same, .. }, Answer::Data(data, stat)) if same == path => {
            let is_over = closed.iter().any(|(session, at)| *session == stat.owner && *at < sync);
            is_over.then(|| Answer::Data(data.clone(), *stat))
        }
        _ => None,
    })?;
    tell(history, &pair, shown, pair.zxid);
    Some(())
}
