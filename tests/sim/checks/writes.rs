//! Each write carries data that no other does, so that it is found in the history: once if it was
//! answered with success, never if it failed, at most once if it was not answered, and then not
//! after the session was served on another connection.

use crate::checks::Sent;
use crate::checks::replies::failure;
use crate::checks::sessions::Sessions;
use bytes::Bytes;
use std::collections::BTreeMap;
use zkshim::keeper::keyspace::{NodeValue, Slot};
use zkshim::keeper::request::{ConnectionId, MultiOperation, Operation, Reply, SessionId};
use zkshim::keeper::tree::quota::subtree_of_stats;
use zkshim::keeper::txn::{Change, RevisionChanges};
use zkshim::keeper::zxid::Revision;

#[derive(Debug)]
struct Write {
    session: SessionId,
    connection: ConnectionId,
    found: Option<Revision>,
    failed: bool,
}

/// See the file's text.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    writes: BTreeMap<Bytes, Write>,
}

impl Writes {
    pub(crate) fn sent(&mut self, session: SessionId, connection: ConnectionId, sent: &Sent) {
        for data in data_of(&sent.operation) {
            let write = Write { session, connection, found: None, failed: false };
            self.writes.insert(data, write);
        }
    }

    pub(crate) fn revision(
        &mut self,
        changes: &RevisionChanges,
        sessions: &Sessions,
    ) -> Result<(), String> {
        let revision = changes.revision;
        for change in &changes.changes {
            let Change::Put(entry) = change else { continue };
            let Some(Slot::Node(path)) = Slot::parse(&entry.key) else { continue };
            if subtree_of_stats(&path).is_some() {
                // The shim says what is in it.
                continue;
            }
            let data = NodeValue::decode(entry.value.clone()).and_then(|value| value.data);
            let Some(data) = data.filter(|data| !data.is_empty()) else { continue };
            let Some(write) = self.writes.get_mut(&data) else {
                return Err(format!("{path} got data that nobody sent"));
            };
            if write.failed || write.found.is_some() {
                return Err(format!("{data:?} of {path} was written again, or after it failed"));
            }
            write.found = Some(revision);
            if let Some(later) = sessions.later_connection(write.session, write.connection) {
                return Err(format!(
                    "{data:?} of {:?} took effect after the session was served on {later:?}",
                    write.connection
                ));
            }
        }
        Ok(())
    }

    pub(crate) fn answered(
        &mut self,
        session: SessionId,
        sent: &Sent,
        reply: &Reply,
    ) -> Result<(), String> {
        let failed = failure(reply).is_some();
        let remaining = if failed { data_of(&sent.operation) } else { remains(&sent.operation) };
        for data in remaining {
            let Some(write) = self.writes.get_mut(&data) else { continue };
            let expected = if failed { None } else { Some(Revision(reply.zxid.0)) };
            if write.found != expected {
                return Err(format!(
                    "{data:?} of {session:?} is in the history at {:?}; its reply: {reply:?}",
                    write.found
                ));
            }
            write.failed = failed;
        }
        Ok(())
    }
}

/// All the data that a request carries.
fn data_of(operation: &Operation) -> Vec<Bytes> {
    match operation {
        Operation::Create(create) => create.data.iter().cloned().collect(),
        Operation::SetData(set) => set.data.iter().cloned().collect(),
        Operation::Multi(operations) => operations
            .iter()
            .filter_map(|operation| match operation {
                MultiOperation::Create(create) => create.data.clone(),
                MultiOperation::SetData(set) => set.data.clone(),
                MultiOperation::Delete(_) | MultiOperation::Check(_) => None,
            })
            .collect(),
        _ => Vec::new(),
    }
}

/// What a request leaves behind once all of it is done.
fn remains(operation: &Operation) -> Vec<Bytes> {
    let Operation::Multi(operations) = operation else { return data_of(operation) };
    let mut left: BTreeMap<(String, usize), Bytes> = BTreeMap::new();
    for (index, operation) in operations.iter().enumerate() {
        match operation {
            MultiOperation::Create(create) => {
                let sequential = matches!(create.flags, 2 | 3);
                let path = create.path.as_deref().unwrap_or_default().to_owned();
                let data = create.data.clone().unwrap_or_default();
                left.insert((path, if sequential { index + 1 } else { 0 }), data);
            }
            MultiOperation::SetData(set) => {
                let path = set.path.as_deref().unwrap_or_default().to_owned();
                left.insert((path, 0), set.data.clone().unwrap_or_default());
            }
            MultiOperation::Delete(delete) => {
                left.remove(&(delete.path.as_deref().unwrap_or_default().to_owned(), 0));
            }
            MultiOperation::Check(_) => {}
        }
    }
    left.into_values().collect()
}
