//! How far the stream of changes has told, for those who must not believe an older history.

use crate::keeper::zxid::Revision;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// How far the stream of changes has told.
///
/// **Invariant:** it is never ahead of what was told, so a linearizable read that is sent after a
/// look at it, and answered with less, was answered by an etcd that was set back.
#[derive(Clone, Debug, Default)]
pub(super) struct Frontier(Arc<AtomicI64>);

impl Frontier {
    /// Everything up to here has been told. It falls when another history is told.
    pub(super) fn reached(&self, revision: Revision) {
        self.0.store(revision.0, Ordering::SeqCst);
    }

    /// Up to where everything has been told.
    pub(super) fn revision(&self) -> Revision {
        Revision(self.0.load(Ordering::SeqCst))
    }
}
