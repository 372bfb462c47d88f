//! What must hold of the keys once nothing moves any more.

use crate::model::{Model, is_system};
use std::collections::BTreeSet;
use zkshim::keeper::keyspace::Slot;
use zkshim::keeper::txn::LeaseId;

pub(crate) fn check(model: &Model) -> Result<(), String> {
    let last = model.last();
    let mut sessions = BTreeSet::new();
    let mut shims = BTreeSet::new();
    for entry in model.entries() {
        match Slot::parse(&entry.key) {
            Some(Slot::Session(_)) if !sessions.insert(entry.lease) => {
                return Err(format!("two sessions are on lease {:?}", entry.lease));
            }
            Some(Slot::Batch(_)) => {
                shims.insert(entry.lease);
            }
            _ => {}
        }
    }
    for entry in model.entries() {
        let Some(slot) = Slot::parse(&entry.key) else {
            return Err(format!("key {:?} is none of ours", entry.key));
        };
        let beside = match &slot {
            Slot::Creates(path) | Slot::Acl(path) | Slot::Pzxid(path) => Some(path),
            _ => None,
        };
        if let Some(path) = beside
            && !is_system(path)
            && !model.exists(path, last)
        {
            return Err(format!("{slot:?} is there without its znode"));
        }
        let known = sessions.contains(&entry.lease) || shims.contains(&entry.lease);
        if entry.lease != LeaseId::NONE && !known {
            return Err(format!("{slot:?} is on a lease without its session"));
        }
    }
    Ok(())
}
