//! Stat: mzxid names one state of a znode, and so does a version within one life of it.

use std::collections::BTreeMap;

use crate::history::check::facts::{Facts, Operation};
use crate::history::record::{Answer, Request, Stat};

#[derive(Clone, Debug, Default)]
struct State<'a> {
    version: i32,
    czxid: i64,
    mzxid: i64,
    owner: i64,
    data: Option<&'a str>,
}

/// See the file's text.
pub(crate) fn check_stats(facts: &Facts<'_>, violations: &mut Vec<String>) {
    let mut by_mzxid: BTreeMap<(&str, i64), State<'_>> = BTreeMap::new();
    let mut by_version: BTreeMap<(&str, i64, i32), State<'_>> = BTreeMap::new();
    for operation in &facts.operations {
        for (path, state) in told(operation) {
            let slots = [
                by_mzxid.entry((path, state.mzxid)).or_insert_with(|| state.clone()),
                by_version
                    .entry((path, state.czxid, state.version))
                    .or_insert_with(|| state.clone()),
            ];
            for slot in slots {
                if !agree(slot, &state) {
                    violations.push(format!(
                        "{path} was told to be {slot:?}, and here it is not: {}",
                        operation.show()
                    ));
                }
            }
        }
    }
}

fn agree<'a>(known: &mut State<'a>, told: &State<'a>) -> bool {
    let is_same = known.data.is_none() || told.data.is_none() || known.data == told.data;
    known.data = known.data.or(told.data);
    is_same
        && (known.version, known.czxid, known.mzxid, known.owner)
            == (told.version, told.czxid, told.mzxid, told.owner)
}

/// The states of znodes that an answer tells.
fn told<'a>(operation: &Operation<'a>) -> Vec<(&'a str, State<'a>)> {
    if !operation.is_ok() {
        return Vec::new();
    }
    let from = |stat: &Stat, data: Option<&'a str>| State {
        version: stat.version,
        czxid: stat.czxid,
        mzxid: stat.mzxid,
        owner: stat.owner,
        data,
    };
    let mut states = Vec::new();
    for (index, request) in operation.request.steps().iter().enumerate() {
        let answer = match operation.answer {
            Some(Answer::Results(results)) => results.get(index),
            answer => answer,
        };
        match (request, answer) {
            (Request::Create { data, mode, .. }, Some(Answer::Path(path))) => {
                let owner = if mode.is_ephemeral() { operation.session } else { 0 };
                let (czxid, mzxid) = (operation.zxid, operation.zxid);
                states.push((
                    path.as_str(),
                    State { version: 0, czxid, mzxid, owner, data: Some(data) },
                ));
            }
            (Request::Set { path, data, .. }, Some(Answer::Stat(stat))) => {
                states.push((path, from(stat, Some(data))));
            }
            (Request::Get { path, .. }, Some(Answer::Data(data, stat))) => {
                states.push((path, from(stat, Some(data))));
            }
            (Request::Exists { path, .. }, Some(Answer::Stat(stat))) => {
                states.push((path, from(stat, None)));
            }
            _ => {}
        }
    }
    states
}
