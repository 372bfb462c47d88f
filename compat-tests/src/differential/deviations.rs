//! Where zkshim differs from the real server on purpose, beside the zxids of failed writes.

use crate::conformance::wire::op;
use crate::differential::answer::{Header, Token, tokens};

/// A known deviation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Deviation {
    /// The real server expands `auth` in an ACL in the order of a hash set.
    AuthExpansionOrder,
    /// Writes of one batch may share a revision, and its events leave before its answers: the event
    /// of a later write may come before the answer to an earlier one.
    EventsOfOneRevision,
    /// A session that is resumed with a longer timeout gets what its lease can hold.
    TimeoutOfTheLease,
    /// A session that is unknown and has seen a zxid that was never reached has expired, so that
    /// clients of a server that was replaced start afresh; the real server refuses the connection.
    UnknownSessionFromTheFuture,
    /// The real server leaves half a body behind the header of a multiRead that breaks midway;
    /// clients do not read it.
    BodyOfBrokenMultiRead,
}

/// The deviation that explains why two answers to one request differ, if they do.
#[must_use]
pub fn excuse(
    opcode: i32,
    (one, left): (Header, &[u8]),
    (other, right): (Header, &[u8]),
) -> Option<Deviation> {
    if one.error != other.error || left == right {
        return None;
    }
    match opcode {
        op::MULTI_READ if one.error != 0 && right.is_empty() => {
            Some(Deviation::BodyOfBrokenMultiRead)
        }
        op::GET_ACL if one.error == 0 => {
            let acl = |body| -> Vec<Token> {
                let tokens = tokens(opcode, 0, body);
                tokens.into_iter().filter(|token| matches!(token, Token::Raw(_))).collect()
            };
            let (left, right) = (acl(left), acl(right));
            let is_reordered = left != right && sorted(&left) == sorted(&right);
            is_reordered.then_some(Deviation::AuthExpansionOrder)
        }
        _ => None,
    }
}

/// An ACL's count and its entries (perms, scheme, id), sorted; last come two parts of the Stat.
fn sorted(tokens: &[Token]) -> Vec<Vec<Token>> {
    let entries = tokens.get(1..).unwrap_or_default().chunks(3);
    let mut entries: Vec<Vec<Token>> = entries.map(<[Token]>::to_vec).collect();
    entries.sort_by_key(|entry| format!("{entry:?}"));
    entries
}
