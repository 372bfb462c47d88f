//! What a request may take of the memory, told by its first bytes.

use crate::wire::opcode;

/// The length prefix, the xid and the opcode.
const HEAD_BYTES: usize = 12;

/// What the request at the start of `buffer` may take of the memory for as long as it waits:
/// a list of little things is several times as large once it is taken apart. `None` if too
/// little is there to tell. A handshake has no opcode, and is taken for some request or other.
pub fn weight(buffer: &[u8]) -> Option<usize> {
    let head = buffer.first_chunk::<HEAD_BYTES>()?;
    let [a, b, c, d, _, _, _, _, e, f, g, h] = *head;
    let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
    Some(length.saturating_mul(growth(i32::from_be_bytes([e, f, g, h]))))
}

fn growth(opcode: i32) -> usize {
    match opcode {
        opcode::MULTI
        | opcode::MULTI_READ
        | opcode::SET_WATCHES
        | opcode::SET_WATCHES2
        | opcode::SET_ACL => 8,
        opcode::CREATE | opcode::CREATE2 | opcode::CREATE_CONTAINER | opcode::CREATE_TTL => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(opcode: i32, expect: usize) {
        let buffer = [&1000_i32.to_be_bytes()[..], &7_i32.to_be_bytes(), &opcode.to_be_bytes()];
        assert_eq!(weight(&buffer.concat()), Some(expect));
    }

    #[test]
    fn lists_of_little_things_grow_when_they_are_taken_apart() {
        check(opcode::SET_DATA, 1000);
        check(opcode::CREATE, 2000);
        check(opcode::MULTI, 8000);
        check(-77, 1000);
    }

    #[test]
    fn the_head_has_to_be_there() {
        assert_eq!(weight(&[0; 11]), None);
        assert_eq!(weight(&[0xff; 12]), Some(0xffff_ffff));
    }
}
