//! What is shown on one connection in an order that servers are free in.

use crate::conformance::wire::op;
use crate::differential::answer::header;
use crate::differential::play::Seen;

/// Puts the events of a session's end, which have no order, in one order on both sides. `ends` are
/// the zxids of such ends on the real server.
pub fn sort_ends(ends: &[i64], oracle: &mut [&Seen], shim: &mut [&Seen]) {
    let mut start = 0;
    while let Some(first) = oracle.get(start) {
        let zxid = event_zxid(first);
        if !zxid.is_some_and(|zxid| ends.contains(&zxid)) {
            start += 1;
            continue;
        }
        let count = oracle.iter().skip(start).take_while(|seen| event_zxid(seen) == zxid).count();
        let range = start..start + count;
        if let (Some(one), Some(other)) = (oracle.get_mut(range.clone()), shim.get_mut(range)) {
            one.sort_by_key(event_body);
            other.sort_by_key(event_body);
        }
        start += count;
    }
}

/// Takes the answers to pings out; how many there were. They need not wait for slow writes.
pub fn without_pings(seen: &mut Vec<&Seen>) -> usize {
    let before = seen.len();
    seen.retain(|seen| !matches!(seen, Seen::Answer { opcode: op::PING, .. }));
    before - seen.len()
}

/// Puts events before the answers to writes that came with them, where there is more than one
/// such answer; whether there was such a place.
pub fn events_first(seen: &mut [&Seen]) -> bool {
    let mut found = false;
    for run in seen.chunk_by_mut(|one, next| is_of_a_write(one) && is_of_a_write(next)) {
        let is_answer = |seen: &&Seen| matches!(seen, Seen::Answer { .. });
        if run.iter().filter(|seen| is_answer(seen)).count() > 1 {
            found = true;
            run.sort_by_key(is_answer);
        }
    }
    found
}

fn is_of_a_write(seen: &Seen) -> bool {
    let writes = [
        op::CREATE,
        op::CREATE2,
        op::CREATE_CONTAINER,
        op::CREATE_TTL,
        op::DELETE,
        op::SET_DATA,
        op::SET_ACL,
        op::MULTI,
    ];
    match seen {
        Seen::Answer { opcode, .. } => writes.contains(opcode),
        Seen::Event(_) => event_zxid(seen).is_some_and(|zxid| zxid != -1),
        _ => false,
    }
}

fn event_zxid(seen: &Seen) -> Option<i64> {
    match seen {
        Seen::Event(frame) => header(frame).ok().map(|(header, _)| header.zxid),
        _ => None,
    }
}

fn event_body(seen: &&Seen) -> Option<Vec<u8>> {
    match seen {
        Seen::Event(frame) => frame.get(16..).map(<[u8]>::to_vec),
        _ => None,
    }
}
