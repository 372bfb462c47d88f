//! Txns to etcd: what is sent, and what an error says about whether it happened.

use crate::keeper::txn::{CommitError, Compare, Key, Op, Txn, TxnAnswer};
use crate::keeper::zxid::Revision;
use crate::store::etcd::connection::{describe, is_said_by_etcd};
use crate::store::etcd::link::Link;
use crate::store::etcd::prefix::Prefix;
use etcd_client::proto::PbTxnOpResponse;
use etcd_client::{CompareOp, GetOptions, PutOptions, TxnOp};
use std::time::Duration;
use tokio::time::Instant;
use tonic::{Code, Status};

/// Runs a txn once. It is never sent again, whatever happens.
///
/// # Errors
/// Only what etcd surely did not do is definite; see [`CommitError`].
pub(super) async fn commit(
    link: &Link,
    prefix: &Prefix,
    timeout: Duration,
    txn: Txn,
) -> Result<TxnAnswer, CommitError> {
    let txn = to_etcd(prefix, txn);
    let deadline = Instant::now() + timeout;
    let waiting = tokio::time::timeout_at(deadline, link.connected()).await;
    let connection = waiting.map_err(|_| CommitError::Unknown("not connected to etcd".into()))?;
    let mut kv = connection.kv.clone();
    let answer = tokio::select! {
        // An answer that is there counts.
        biased;
        answer = tokio::time::timeout_at(deadline, kv.txn(txn)) => answer,
        () = link.replaced(&connection) => {
            return Err(CommitError::Unknown("another member is asked now".into()));
        }
    };
    let error = match answer {
        Ok(Ok(answer)) => return from_etcd(&answer),
        Ok(Err(etcd_client::Error::GRpcStatus(status))) => classify(&status),
        Ok(Err(other)) => CommitError::Unknown(describe(&other)),
        Err(_) => CommitError::Unknown(format!("no answer from etcd within {timeout:?}")),
    };
    if matches!(error, CommitError::Unknown(_)) {
        link.suspect(&connection);
    }
    Err(error)
}

fn to_etcd(prefix: &Prefix, txn: Txn) -> etcd_client::Txn {
    let compares: Vec<_> =
        txn.compares.iter().map(|compare| compare_to_etcd(prefix, compare)).collect();
    let mut then = ops_to_etcd(prefix, txn.then);
    let otherwise = ops_to_etcd(prefix, txn.otherwise);
    if then.is_empty() && otherwise.is_empty() {
        then.push(read_of_nothing(prefix));
    }
    etcd_client::Txn::new().when(compares).and_then(then).or_else(otherwise)
}

/// Makes etcd agree with its leader before it compares. Without any operation it takes a txn for
/// a serializable read and compares with what the member has, however old that is
/// (`txn.IsTxnSerializable`).
fn read_of_nothing(prefix: &Prefix) -> TxnOp {
    TxnOp::get(prefix.add(&Key::new()), Some(GetOptions::new().with_count_only()))
}

fn compare_to_etcd(prefix: &Prefix, compare: &Compare) -> etcd_client::Compare {
    use etcd_client::Compare as Etcd;
    match compare {
        Compare::ModRevision(key, revision) => {
            Etcd::mod_revision(prefix.add(key), CompareOp::Equal, revision.0)
        }
        Compare::CreateRevision(key, revision) => {
            Etcd::create_revision(prefix.add(key), CompareOp::Equal, revision.0)
        }
        Compare::Lease(key, lease) => Etcd::lease(prefix.add(key), CompareOp::Equal, lease.0),
        Compare::Value(key, value) => {
            Etcd::value(prefix.add(key), CompareOp::Equal, value.as_ref())
        }
    }
}

fn ops_to_etcd(prefix: &Prefix, ops: Vec<Op>) -> Vec<TxnOp> {
    let to_etcd = |op| match op {
        Op::Put { key, value, lease } => {
            let options = PutOptions::new().with_lease(lease.0);
            TxnOp::put(prefix.add(&key), value, Some(options))
        }
        Op::Delete(key) => TxnOp::delete(prefix.add(&key), None),
        Op::Txn(nested) => TxnOp::txn(to_etcd(prefix, nested)),
    };
    ops.into_iter().map(to_etcd).collect()
}

fn from_etcd(answer: &etcd_client::TxnResponse) -> Result<TxnAnswer, CommitError> {
    let header = answer.header();
    let header = header.ok_or_else(|| CommitError::Unknown("an answer without a header".into()))?;
    let nested = answer.0.responses.iter().filter_map(|answer| match &answer.response {
        Some(PbTxnOpResponse::ResponseTxn(nested)) => Some(nested.succeeded),
        _ => None,
    });
    Ok(TxnAnswer {
        revision: Revision(header.revision()),
        succeeded: answer.succeeded(),
        nested: nested.collect(),
    })
}

/// Whether anything can have happened. Codes alone do not tell: the transport uses the same
/// ones. So etcd's own words are asked for (`rpctypes/error.go`), and of these the unavailable
/// and the internal ones come also from a txn that was already under way.
fn classify(status: &Status) -> CommitError {
    let message = status.message();
    let said = || message.to_owned();
    if message.contains("received message larger than max") {
        return CommitError::TooLarge(said());
    }
    if !is_said_by_etcd(message) {
        return CommitError::Unknown(format!("{:?}: {message}", status.code()));
    }
    match status.code() {
        Code::InvalidArgument
            if message.contains("too many operations") || message.contains("too large") =>
        {
            CommitError::TooLarge(said())
        }
        Code::NotFound if message.contains("lease not found") => CommitError::LeaseNotFound,
        Code::InvalidArgument
        | Code::NotFound
        | Code::ResourceExhausted
        | Code::PermissionDenied
        | Code::Unauthenticated
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::DataLoss => CommitError::Refused(said()),
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::AlreadyExists
        | Code::Aborted
        | Code::Internal
        | Code::Unavailable => CommitError::Unknown(said()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(code: Code, message: &str) -> &'static str {
        match classify(&Status::new(code, message)) {
            CommitError::TooLarge(_) => "too large",
            CommitError::LeaseNotFound => "lease not found",
            CommitError::Refused(_) => "refused",
            CommitError::Unknown(_) => "unknown",
        }
    }

    #[test]
    fn what_etcd_refused_is_definite() {
        use Code::{InvalidArgument, NotFound, PermissionDenied, ResourceExhausted};
        for (code, message, expected) in [
            (InvalidArgument, "etcdserver: too many operations in txn request", "too large"),
            (InvalidArgument, "etcdserver: request is too large", "too large"),
            (ResourceExhausted, "grpc: received message larger than max (9 vs. 8)", "too large"),
            (InvalidArgument, "etcdserver: duplicate key given in txn request", "refused"),
            (NotFound, "etcdserver: requested lease not found", "lease not found"),
            (ResourceExhausted, "etcdserver: mvcc: database space exceeded", "refused"),
            (ResourceExhausted, "etcdserver: too many requests", "refused"),
            (PermissionDenied, "etcdserver: permission denied", "refused"),
            (Code::Unauthenticated, "etcdserver: invalid auth token", "refused"),
            (Code::DataLoss, "etcdserver: corrupt cluster", "refused"),
        ] {
            assert_eq!(check(code, message), expected, "{message}");
        }
    }

    #[test]
    fn what_may_have_happened_is_unknown() {
        for (code, message) in [
            (Code::Unavailable, "etcdserver: request timed out"),
            (Code::Unavailable, "etcdserver: leader changed"),
            (Code::Unavailable, "etcdserver: no leader"),
            (Code::Unknown, "transport error"),
            (Code::Cancelled, "operation was canceled"),
            (Code::DeadlineExceeded, "context deadline exceeded"),
            // The codes that the transport makes of HTTP/2's calm and security errors.
            (Code::ResourceExhausted, "h2 protocol error: too_many_pings"),
            (Code::PermissionDenied, "h2 protocol error: inadequate security"),
            // Our own limit, after the server has done it.
            (Code::OutOfRange, "Error, decoded message length too large"),
        ] {
            assert_eq!(check(code, message), "unknown", "{message}");
        }
    }
}
