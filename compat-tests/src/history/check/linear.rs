//! Is there an order of all operations that explains their results? A checker after Wing, Gong
//! and Lowe, which goes through the history in time and keeps all states that are possible.
//!
//! At each moment it has a set of configurations: a state, and which of the operations under way
//! have taken effect in it. When an operation ends, each configuration must have it: where it has
//! not, it is put into effect there, after any of the others under way (Lowe's just-in-time
//! linearization, with the configurations themselves as memory). What only shows the
//! state takes effect as soon as it can.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashSet};
use std::hash::Hash;

/// More configurations than this in one history, and nothing is said.
const CONFIGURATIONS_MAX: usize = 2_000_000;

/// An operation in time.
#[derive(Clone, Debug)]
pub struct Call<Op> {
    /// The operation.
    pub op: Op,
    /// It took effect after this, if at all.
    pub from: u64,
    /// And before this.
    pub until: u64,
    /// Whether it took effect.
    pub is_certain: bool,
    /// Whether it shows what is there and changes nothing, in whatever state it has its result.
    pub only_shows: bool,
    /// It took effect only after this one, by index, had; of two that are not certain the later
    /// did not without the earlier.
    pub after: Option<usize>,
}

/// What is wrong with a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault<State> {
    /// No order of the operations gives this one, by index, its result; these states came
    /// nearest to it.
    Unexplained(usize, Vec<State>),
    /// It would take too long to find out.
    TooHard(usize),
}

type Configuration<State> = (State, BTreeSet<usize>);

/// Looks for an order of the operations that explains all results. `apply` gives the state after
/// an operation, or `None` if it cannot have its result in this state; an operation whose result
/// nobody knows always has one.
///
/// # Errors
/// There is none, or it is not found in time.
pub fn check<State: Clone + Eq + Hash, Op>(
    initial: State,
    calls: &[Call<Op>],
    apply: impl Fn(&State, &Op) -> Option<State>,
) -> Result<(), Fault<State>> {
    // Starts come before ends: what meets in one instant was under way at the same time. Of ends
    // in one instant the later ones come first, so that they still wait for the earlier.
    let starts = calls.iter().enumerate().map(|(index, call)| (call.from, false, Reverse(index)));
    let ends = calls.iter().enumerate().map(|(index, call)| (call.until, true, Reverse(index)));
    let mut moments: Vec<_> = starts.chain(ends).collect();
    moments.sort_unstable();
    let mut search = Search {
        calls,
        apply,
        awaited: calls.iter().filter_map(|call| call.after).collect(),
        under_way: BTreeSet::new(),
        possible: HashSet::from([(initial, BTreeSet::new())]),
        seen: 0,
    };
    for (moment, is_end, Reverse(index)) in moments {
        if !is_end {
            search.under_way.insert(index);
        } else if calls[index].is_certain || moment < u64::MAX {
            search.end(index)?;
        }
    }
    Ok(())
}

struct Search<'a, State, Op, Apply> {
    calls: &'a [Call<Op>],
    apply: Apply,
    /// Those that others wait for, under way already or not.
    awaited: HashSet<usize>,
    under_way: BTreeSet<usize>,
    possible: HashSet<Configuration<State>>,
    seen: usize,
}

impl<State, Op, Apply> Search<'_, State, Op, Apply>
where
    State: Clone + Eq + Hash,
    Apply: Fn(&State, &Op) -> Option<State>,
{
    /// The operation is over: afterwards it has taken effect in all configurations, or, if it is
    /// not certain, it never will.
    fn end(&mut self, index: usize) -> Result<(), Fault<State>> {
        let is_certain = self.calls[index].is_certain;
        let before = std::mem::take(&mut self.possible);
        let mut known: HashSet<Configuration<State>> = HashSet::new();
        let mut left: Vec<Configuration<State>> = before.iter().cloned().collect();
        while let Some((state, mut done)) = left.pop() {
            self.settle(&state, &mut done);
            if done.remove(&index) {
                self.possible.insert((state, done));
                continue;
            }
            for other in &self.under_way {
                if let Some(next) = self.put_into_effect(&state, &done, *other)
                    && (next.0 != state || self.is_needed(*other))
                    && known.insert(next.clone())
                {
                    left.push(next);
                }
            }
            self.seen += 1;
            if self.seen > CONFIGURATIONS_MAX {
                return Err(Fault::TooHard(index));
            }
        }
        if !is_certain {
            self.possible.extend(before.iter().filter(|(_, done)| !done.contains(&index)).cloned());
        }
        self.under_way.remove(&index);
        if self.possible.is_empty() {
            let mut states: Vec<State> = Vec::new();
            for (state, _) in before {
                if !states.contains(&state) && states.len() < 3 {
                    states.push(state);
                }
            }
            return Err(Fault::Unexplained(index, states));
        }
        Ok(())
    }

    /// What must happen and only shows what is there now may as well happen now: nothing else
    /// can come of it later. (That of a read something is learned of the state is a change.)
    fn settle(&self, state: &State, done: &mut BTreeSet<usize>) {
        loop {
            let idle = self.under_way.iter().find(|other| {
                let call = &self.calls[**other];
                call.is_certain
                    && call.only_shows
                    && self
                        .put_into_effect(state, done, **other)
                        .is_some_and(|next| next.0 == *state)
            });
            match idle {
                Some(idle) => done.insert(*idle),
                None => return,
            };
        }
    }

    /// Whether it makes a difference that this one happens, even if it changes nothing: it must,
    /// or others wait for it.
    fn is_needed(&self, index: usize) -> bool {
        self.calls[index].is_certain || self.awaited.contains(&index)
    }

    fn put_into_effect(
        &self,
        state: &State,
        done: &BTreeSet<usize>,
        index: usize,
    ) -> Option<Configuration<State>> {
        let call = &self.calls[index];
        let waits = |before: usize| self.under_way.contains(&before) && !done.contains(&before);
        if done.contains(&index) || call.after.is_some_and(waits) {
            return None;
        }
        let state = (self.apply)(state, &call.op)?;
        let mut done = done.clone();
        done.insert(index);
        Some((state, done))
    }
}

#[cfg(test)]
mod tests;
