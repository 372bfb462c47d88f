//! What etcd refuses before it applies a txn: too many operations, too many bytes, a key put
//! twice. The rules are those of etcd's `v3rpc/key.go` (`checkTxnRequest`, `checkIntervals`).

use crate::keeper::txn::{CommitError, Compare, Key, LeaseId, Op, Txn};
use std::collections::BTreeSet;
use std::time::Duration;

/// The limits of an etcd that was started without flags; managed ones raise some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `--max-txn-ops`: compares, or operations of a branch, whichever are more, summed along
    /// the deepest path of nested txns.
    pub txn_ops_max: usize,
    /// `--max-request-bytes`: a txn that may write, as protobuf.
    pub request_bytes_max: usize,
    /// The shortest lease granted; shorter ones are lengthened. etcd's is one and a half
    /// election timeouts.
    pub lease_ttl_min: Duration,
    /// The longest lease granted; longer ones are refused (`lease.MaxLeaseTTL`).
    pub lease_ttl_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            txn_ops_max: 128,
            request_bytes_max: 1_572_864,
            lease_ttl_min: Duration::from_secs(2),
            lease_ttl_max: Duration::from_secs(9_000_000_000),
        }
    }
}

impl Limits {
    /// Refuses what etcd refuses whatever its content is, in etcd's order.
    ///
    /// # Errors
    /// [`CommitError::TooLarge`] or [`CommitError::Refused`], with etcd's own words.
    pub(super) fn check(&self, txn: &Txn) -> Result<(), CommitError> {
        let bytes = txn_len(txn);
        // The transport's own limit, which also holds for txns that only compare.
        if bytes > self.request_bytes_max.saturating_add(GRPC_OVERHEAD_BYTES) {
            return Err(CommitError::TooLarge("received message larger than max".into()));
        }
        check_count(txn, self.txn_ops_max)?;
        written_keys(&txn.then)?;
        written_keys(&txn.otherwise)?;
        // A txn without any operation is read, not logged, and only logging asks for the size.
        let reads_only = txn.then.is_empty() && txn.otherwise.is_empty();
        if !reads_only && bytes.saturating_add(LOG_OVERHEAD_BYTES) > self.request_bytes_max {
            return Err(CommitError::TooLarge("etcdserver: request is too large".into()));
        }
        Ok(())
    }
}

/// What etcd adds to its request limit for the transport's (`grpcOverheadBytes`).
const GRPC_OVERHEAD_BYTES: usize = 512 * 1024;

/// About what the raft request around a txn takes: its header with a 64-bit id, two tags and
/// two lengths.
const LOG_OVERHEAD_BYTES: usize = 20;

fn check_count(txn: &Txn, ops_max: usize) -> Result<(), CommitError> {
    let count = txn.compares.len().max(txn.then.len()).max(txn.otherwise.len());
    let Some(rest) = ops_max.checked_sub(count) else {
        let reason = "etcdserver: too many operations in txn request";
        return Err(CommitError::TooLarge(reason.into()));
    };
    for op in txn.then.iter().chain(&txn.otherwise) {
        if let Op::Txn(nested) = op {
            check_count(nested, rest)?;
        }
    }
    Ok(())
}

#[derive(Default)]
struct Written<'a> {
    puts: BTreeSet<&'a Key>,
    deletes: BTreeSet<&'a Key>,
}

/// The keys that a branch may put and delete. A key is put once, and a delete of it stands
/// only behind the put, in a sibling txn.
fn written_keys(ops: &[Op]) -> Result<Written<'_>, CommitError> {
    let mut all = Written::default();
    for op in ops {
        if let Op::Delete(key) = op {
            all.deletes.insert(key);
        }
    }
    for op in ops {
        let Op::Txn(nested) = op else { continue };
        let then = written_keys(&nested.then)?;
        let otherwise = written_keys(&nested.otherwise)?;
        for key in &then.puts {
            insert_put(&mut all, key)?;
        }
        // Only one of the branches is taken, so both may put the same key.
        for key in &otherwise.puts {
            if !then.puts.contains(key) {
                insert_put(&mut all, key)?;
            }
        }
        all.deletes.extend(then.deletes);
        all.deletes.extend(otherwise.deletes);
    }
    for op in ops {
        if let Op::Put { key, .. } = op {
            insert_put(&mut all, key)?;
        }
    }
    Ok(all)
}

fn insert_put<'a>(all: &mut Written<'a>, key: &'a Key) -> Result<(), CommitError> {
    if all.deletes.contains(key) || !all.puts.insert(key) {
        let reason = "etcdserver: duplicate key given in txn request";
        return Err(CommitError::Refused(reason.into()));
    }
    Ok(())
}

/// The length of `etcdserverpb.TxnRequest`.
fn txn_len(txn: &Txn) -> usize {
    let compares: usize = txn.compares.iter().map(|compare| field_len(compare_len(compare))).sum();
    let ops = txn.then.iter().chain(&txn.otherwise);
    compares.saturating_add(ops.map(|op| field_len(op_len(op))).sum())
}

/// `etcdserverpb.Compare`: result EQUAL is 0 and takes nothing.
fn compare_len(compare: &Compare) -> usize {
    let (key, number) = match compare {
        Compare::ModRevision(key, revision) | Compare::CreateRevision(key, revision) => {
            (key, revision.0)
        }
        Compare::Lease(key, lease) => (key, lease.0),
        Compare::Value(key, value) => return 4 + bytes_len(key.len()) + bytes_len(value.len()),
    };
    // The target takes two bytes; the number is inside a oneof, so it is written even when 0.
    4 + bytes_len(key.len()) + varint_len(number as u64)
}

/// `etcdserverpb.RequestOp`.
fn op_len(op: &Op) -> usize {
    match op {
        Op::Put { key, value, lease } => {
            let lease = match *lease {
                LeaseId::NONE => 0,
                LeaseId(id) => 1 + varint_len(id as u64),
            };
            field_len(bytes_len(key.len()) + bytes_len(value.len()) + lease)
        }
        Op::Delete(key) => field_len(bytes_len(key.len())),
        Op::Txn(nested) => field_len(txn_len(nested)),
    }
}

/// A length-delimited field with a one-byte tag.
fn field_len(content: usize) -> usize {
    1 + varint_len(content as u64) + content
}

/// A bytes field of proto3: absent when empty.
fn bytes_len(content: usize) -> usize {
    if content == 0 { 0 } else { field_len(content) }
}

fn varint_len(number: u64) -> usize {
    (64 - (number | 1).leading_zeros() as usize).div_ceil(7)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::zxid::Revision;
    use bytes::Bytes;

    fn put(key: &str) -> Op {
        sized_put(key, 1)
    }

    fn sized_put(key: &str, bytes: usize) -> Op {
        let key = Key::copy_from_slice(key.as_bytes());
        Op::Put { key, value: Bytes::from(vec![b'v'; bytes]), lease: LeaseId::NONE }
    }

    fn delete(key: &str) -> Op {
        Op::Delete(Key::copy_from_slice(key.as_bytes()))
    }

    fn nested(then: Vec<Op>, otherwise: Vec<Op>) -> Op {
        Op::Txn(Txn { compares: vec![], then, otherwise })
    }

    fn puts(from: usize, count: usize) -> Vec<Op> {
        (from..from + count).map(|i| put(&format!("{i}"))).collect()
    }

    fn check(then: Vec<Op>) -> Result<(), CommitError> {
        Limits::default().check(&Txn { compares: vec![], then, otherwise: vec![] })
    }

    fn is_duplicate(then: Vec<Op>) -> bool {
        matches!(check(then), Err(CommitError::Refused(reason)) if reason.contains("duplicate"))
    }

    fn is_too_large(then: Vec<Op>) -> bool {
        matches!(check(then), Err(CommitError::TooLarge(_)))
    }

    #[test]
    fn the_largest_branch_counts() {
        assert_eq!(check(puts(0, 128)), Ok(()));
        assert!(is_too_large(puts(0, 129)));
        let compare = Compare::ModRevision(Key::from_static(b"k"), Revision(1));
        let compares = |count| Txn { compares: vec![compare.clone(); count], ..Txn::default() };
        assert_eq!(Limits::default().check(&compares(128)), Ok(()));
        assert!(Limits::default().check(&compares(129)).is_err());
    }

    #[test]
    fn levels_add_up_along_a_path_but_siblings_do_not() {
        let groups = |outer: usize, inner: usize| {
            (0..outer).map(|i| nested(puts(i * 1000, inner), vec![])).collect::<Vec<_>>()
        };
        assert_eq!(check(groups(64, 64)), Ok(()));
        assert_eq!(check(groups(127, 1)), Ok(()));
        assert!(is_too_large(groups(64, 65)));
        assert!(is_too_large(groups(128, 1)));
    }

    #[test]
    fn a_key_is_put_once_and_not_deleted_beside_it() {
        assert!(is_duplicate(vec![put("a"), put("a")]));
        assert!(is_duplicate(vec![put("a"), delete("a")]));
        assert!(is_duplicate(vec![put("a"), nested(vec![put("a")], vec![])]));
        assert!(is_duplicate(vec![nested(vec![put("a")], vec![]), delete("a")]));
        assert_eq!(check(vec![delete("a"), delete("a")]), Ok(()));
    }

    #[test]
    fn both_branches_of_one_nested_txn_may_put_a_key() {
        assert_eq!(check(vec![nested(vec![put("a")], vec![put("a")])]), Ok(()));
        assert!(is_duplicate(vec![nested(vec![put("a")], vec![put("a")]), put("a")]));
    }

    #[test]
    fn put_then_delete_passes_in_siblings_and_delete_then_put_does_not() {
        let put_a = nested(vec![put("a")], vec![]);
        let delete_a = nested(vec![delete("a")], vec![]);
        assert_eq!(check(vec![put_a.clone(), delete_a.clone()]), Ok(()));
        assert!(is_duplicate(vec![delete_a, put_a]));
    }

    #[test]
    fn bytes_are_counted_where_they_are_logged() {
        assert_eq!(check(vec![sized_put("a", 1_572_000)]), Ok(()));
        assert!(is_too_large(vec![sized_put("a", 1_572_864)]));
        let halves = nested(vec![sized_put("a", 800_000), sized_put("b", 800_000)], vec![]);
        assert!(is_too_large(vec![halves]));
    }

    #[test]
    fn a_txn_that_only_compares_may_be_longer_than_one_that_is_logged() {
        let limits = Limits { request_bytes_max: 1000, ..Limits::default() };
        let key = Key::from(vec![b'k'; 2000]);
        let compares = vec![Compare::ModRevision(key, Revision(1))];
        let mut txn = Txn { compares, ..Txn::default() };
        assert_eq!(limits.check(&txn), Ok(()));
        txn.otherwise = vec![nested(vec![], vec![])];
        assert!(matches!(limits.check(&txn), Err(CommitError::TooLarge(_))));
    }

    #[test]
    fn varints_take_seven_bits_a_byte() {
        for (number, length) in [(0, 1), (127, 1), (128, 2), (16_383, 2), (16_384, 3)] {
            assert_eq!(varint_len(number), length, "{number}");
        }
        assert_eq!(varint_len(u64::MAX), 10);
    }
}
