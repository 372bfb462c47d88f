//! Multi and multiRead requests: all kinds of parts, sound and unsound.

use crate::conformance::wire::{Writer, op, record};
use crate::differential::chance::Chance;
use crate::differential::generate::record_of;
use crate::differential::script::Request;
use crate::differential::vocabulary::ENTRY_WITH_NULLS;

/// A multi of up to eight operations, now and then many.
pub fn multi(chance: &mut Chance, root: &str) -> Request {
    let count = if chance.percent(2) { 40 } else { chance.below(9) };
    let odd = chance.percent(6);
    let kinds = [
        (30, op::CREATE),
        (12, op::CREATE2),
        (5, op::CREATE_CONTAINER),
        (4, op::CREATE_TTL),
        (18, op::DELETE),
        (22, op::SET_DATA),
        (10, op::CHECK),
    ];
    let parts = (0..count).map(|_| {
        let kind = if odd && chance.percent(30) {
            chance.pick(&[op::SET_ACL, op::GET_DATA, op::EXISTS, op::SYNC, op::DELETE_CONTAINER, 0])
        } else {
            chance.weighted(&kinds)
        };
        part(chance, root, kind)
    });
    let parts: Vec<(Writer, String)> = parts.collect();
    finish(chance, op::MULTI, &parts)
}

/// A multiRead of up to eight reads.
pub fn multi_read(chance: &mut Chance, root: &str) -> Request {
    let odd = chance.percent(6);
    let parts: Vec<(Writer, String)> = (0..chance.below(9))
        .map(|_| {
            let kind = if odd && chance.percent(30) {
                chance.pick(&[op::EXISTS, op::GET_CHILDREN2, op::CREATE, op::CHECK])
            } else {
                chance.pick(&[op::GET_DATA, op::GET_CHILDREN])
            };
            part(chance, root, kind)
        })
        .collect();
    finish(chance, op::MULTI_READ, &parts)
}

fn part(chance: &mut Chance, root: &str, kind: i32) -> (Writer, String) {
    let (mut body, mut text) = record_of(chance, root, kind);
    // The real server trips over a null id and then forgets to take back the operations before
    // it: names and numbers that it never gave are taken for a while.
    while text.contains(ENTRY_WITH_NULLS) {
        (body, text) = record_of(chance, root, kind);
    }
    (record().int(kind).byte(0).int(-1).raw(&body.bytes()), format!("{kind}:{text}"))
}

fn finish(chance: &mut Chance, opcode: i32, parts: &[(Writer, String)]) -> Request {
    let body = parts.iter().fold(record(), |body, (part, _)| body.raw(&part.clone().bytes()));
    let (end, how) = match chance.below(100) {
        0..96 => (record().int(-1).byte(1).int(-1), ""),
        96 => (record(), " without end"),
        97 => (record().int(1).byte(1).int(0), " with an odd end"),
        _ => (record().int(-1).byte(0).int(-1), " with an end that is not done"),
    };
    let texts: Vec<&str> = parts.iter().map(|(_, text)| text.as_str()).collect();
    let text = format!("multi{how} {{ {} }}", texts.join("; "));
    Request::new(opcode, body.raw(&end.bytes()), text)
}
