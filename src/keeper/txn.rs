//! etcd's model as plain values: what the core asks of a store, and what a store tells it.
//!
//! Keys are opaque here and relative to the prefix under which a tree lives; stores put the
//! prefix in front and take it off again.

use crate::keeper::zxid::Revision;
use bytes::Bytes;
use std::time::Duration;

/// A key, relative to the tree's prefix.
pub type Key = Bytes;

/// The number of an etcd lease. 0 is "no lease".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub i64);

impl LeaseId {
    /// A key without a lease.
    pub const NONE: Self = Self(0);
}

/// The core's own number for something that it asked of the store. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// What must hold for a txn to take its *then* branch. All are equalities.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Compare {
    /// The key was last changed at this revision; [`Revision::NEVER`] says that it is absent.
    ModRevision(Key, Revision),
    /// The key's present incarnation was created at this revision.
    CreateRevision(Key, Revision),
    /// The key is attached to this lease.
    Lease(Key, LeaseId),
    /// The key is there and has this value.
    Value(Key, Bytes),
}

/// One operation of a txn's branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Write a key. A put without a lease detaches the key from the lease that it had.
    Put {
        /// What is written.
        key: Key,
        /// The new value.
        value: Bytes,
        /// The lease that the key is attached to from now on.
        lease: LeaseId,
    },
    /// Delete a key; nothing happens if it is absent.
    Delete(Key),
    /// A txn inside the txn.
    Txn(Txn),
}

/// A transaction: if all compares hold, the operations of `then`, else those of `otherwise`.
/// All compares, of nested txns as well, see the state before the whole txn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Txn {
    /// What must hold.
    pub compares: Vec<Compare>,
    /// What is done if everything holds.
    pub then: Vec<Op>,
    /// What is done if anything does not.
    pub otherwise: Vec<Op>,
}

/// What the store answered to a txn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxnAnswer {
    /// The store's revision after the txn (of the answer's header).
    pub revision: Revision,
    /// Whether the compares of the outermost txn held.
    pub succeeded: bool,
    /// One entry for each [`Op::Txn`] on the first level of the branch that was taken, in order:
    /// whether its compares held.
    pub nested: Vec<bool>,
}

/// Why a txn has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitError {
    /// The store refused and nothing happened, for a reason that concerns this txn's size:
    /// too many operations, or too many bytes.
    TooLarge(String),
    /// The store refused and nothing happened: some put names a lease that does not exist.
    LeaseNotFound,
    /// The store refused and nothing happened, for any other reason (no space, no permission).
    Refused(String),
    /// It is not known whether the txn was applied, nor whether it still will be.
    Unknown(String),
}

/// One change of one key, as the store's history tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The key was written.
    Put(KeyValue),
    /// The key was deleted, or its lease ended.
    Delete(Key),
}

/// A key with all that etcd knows of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: Key,
    /// Its value.
    pub value: Bytes,
    /// When its present incarnation was created.
    pub create_revision: Revision,
    /// When it was last written.
    pub mod_revision: Revision,
    /// The lease it is attached to.
    pub lease: LeaseId,
}

/// All changes of one revision, in the order of the txn's operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevisionChanges {
    /// Where in the history this is.
    pub revision: Revision,
    /// What changed; never empty.
    pub changes: Vec<Change>,
}

/// A deletion that a store's history still knows: the key, and when it was deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// The key that was deleted.
    pub key: Key,
    /// When.
    pub revision: Revision,
}

/// What a store found in its history once it had told of its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastDeletions {
    /// The revision of the snapshot that this belongs to.
    pub until: Revision,
    /// Deletions up to then, oldest first.
    pub deletions: Vec<Deletion>,
    /// Every deletion after this revision is among them.
    pub since: Revision,
}

/// The whole content of the prefix at one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The revision that was read. The changes that follow begin after it.
    pub revision: Revision,
    /// Every key, sorted.
    pub entries: Vec<KeyValue>,
    /// Deletions in the part of the history before `revision` that is not compacted yet,
    /// oldest first; or none, if they are told afterwards ([`StoreEvent::Deleted`]).
    pub deletions: Vec<Deletion>,
    /// Every deletion after this revision is in `deletions`.
    pub deletions_since: Revision,
    /// The store's own identity (etcd's cluster id).
    pub cluster: u64,
    /// What was told before is not, or not all, in the history of this: etcd was restored from a
    /// backup, or replaced.
    pub is_another_history: bool,
}

/// Something the core asks of the store. Each is answered by one [`StoreEvent`] with the same
/// token, in any order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreCommand {
    /// Run a txn once; never send it twice. It is linearizable, also if it has compares alone.
    /// Answered by [`StoreEvent::Committed`].
    Commit(Token, Txn),
    /// A linearizable read of nothing, sent after this call. Answered by
    /// [`StoreEvent::BarrierPassed`].
    Barrier(Token),
    /// Make the stream say how far it is, when it has nothing to deliver. Answered by
    /// [`StoreEvent::Progress`], or by nothing.
    Progress,
    /// Grant a lease. Answered by [`StoreEvent::Granted`].
    Grant(Token, Duration),
    /// End a lease and all its keys, in one revision. Answered by [`StoreEvent::Revoked`].
    Revoke(Token, LeaseId),
    /// Renew a lease. Answered by [`StoreEvent::Renewed`].
    Renew(LeaseId),
}

/// What a store tells the core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreEvent {
    /// The content at one revision: the first thing told, and told again whenever the history
    /// that the stream needed was compacted away.
    Loaded(Snapshot),
    /// What was deleted before the load and is not in its snapshot.
    Deleted(PastDeletions),
    /// The next revision that changed something.
    Changed(RevisionChanges),
    /// Everything up to this revision has been told.
    Progress(Revision),
    /// The store takes txns of so many bytes at most; `None`: of as many as it was told to expect.
    /// Told when it is learnt, and when it changes.
    TxnBytesMax(Option<usize>),
    /// The end of a [`StoreCommand::Commit`].
    Committed(Token, Result<TxnAnswer, CommitError>),
    /// The end of a [`StoreCommand::Barrier`]: the store's revision, or why there is none.
    BarrierPassed(Token, Result<Revision, String>),
    /// The end of a [`StoreCommand::Grant`]: the lease and the time that it really has.
    Granted(Token, Result<(LeaseId, Duration), String>),
    /// The end of a [`StoreCommand::Revoke`]. A lease that did not exist is `Ok`.
    Revoked(Token, Result<(), String>),
    /// A lease was renewed, and has this much time again; `Some(ZERO)` says that it is gone, and
    /// `None` that nothing could be learnt.
    Renewed(LeaseId, Option<Duration>),
}
