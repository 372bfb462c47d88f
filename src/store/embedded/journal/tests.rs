//! What is read from a journal whose last append was cut off, that is damaged, or is another's.

use super::*;
use crate::keeper::txn::LeaseId;
use std::time::Duration;

const CLUSTER: u64 = 42;

fn delta(number: u64) -> Delta {
    let ttl = Duration::from_secs(number * 1000);
    Delta { leases: vec![(LeaseId(number as i64), Some(ttl))], ..Delta::default() }
}

/// A file with these records, and space behind them.
fn file(numbers: impl IntoIterator<Item = u64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in numbers {
        let mut record = Vec::new();
        encode(CLUSTER, number, &delta(number), &mut record);
        bytes.extend(record);
    }
    bytes.extend([0; 100]);
    bytes
}

/// The numbers of what is recovered, or whether it is damaged.
fn check(contents: [Vec<u8>; 2], saved: u64) -> Result<Vec<u64>, String> {
    let deltas = recover(&contents, CLUSTER, saved)?;
    assert!(deltas.iter().all(|(number, found)| *found == delta(*number)));
    Ok(deltas.into_iter().map(|(number, _)| number).collect())
}

#[test]
fn what_is_not_saved_is_recovered_from_both_files_in_order() {
    assert_eq!(check([file(5..8), file(1..5)], 2), Ok(vec![3, 4, 5, 6, 7]));
    assert_eq!(check([file(1..5), file(5..8)], 6), Ok(vec![7]));
    assert_eq!(check([file(1..5), file([])], 4), Ok(vec![]));
    assert_eq!(check([file([]), file([])], 0), Ok(vec![]));
    assert_eq!(check([Vec::new(), Vec::new()], 9), Ok(vec![]));
}

#[test]
fn older_records_behind_the_new_ones_are_left_alone() {
    let mut first = file(9..11);
    first.truncate(first.len() - 100);
    first.extend(file(3..5));
    assert_eq!(check([first, file(5..9)], 4), Ok(vec![5, 6, 7, 8, 9, 10]));
}

#[test]
fn an_append_that_was_cut_off_is_not_there() {
    let (before, whole) = (file(1..3).len() - 100, file(1..4).len() - 100);
    for kept in before..whole {
        let mut bytes = file(1..4);
        bytes[kept..whole].fill(0);
        let recovered = check([bytes, file([])], 0).expect("nothing durable is missing");
        // A record that ends in zeros may be whole already.
        assert!(recovered == [1, 2] || recovered == [1, 2, 3], "{kept}: {recovered:?}");
        assert!(kept + 9 > whole || recovered == [1, 2], "{kept}: {recovered:?}");
    }
}

#[test]
fn a_flipped_bit_before_other_records_is_damage_whichever_it_is() {
    let whole = file(1..4);
    let last = file(1..3).len() - 100;
    for at in 0..last {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        assert!(check([bytes, file([])], 0).is_err(), "byte {at}");
    }
    let mut bytes = whole.clone();
    bytes[40] ^= 1;
    assert!(check([bytes, file(4..6)], 0).is_err());
}

#[test]
fn a_gap_between_the_pages_and_the_journal_is_damage() {
    assert!(check([file(5..8), file([])], 3).is_err());
    assert!(check([file(5..8), file(1..4)], 2).is_err());
}

#[test]
fn the_records_of_another_store_are_not_read() {
    assert!(matches!(recover(&[file(1..4)], CLUSTER + 1, 0), Ok(deltas) if deltas.is_empty()));
}
