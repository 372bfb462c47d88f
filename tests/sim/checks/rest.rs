//! What must hold of the keys once nothing moves any more, and of znodes that go by themselves.

use crate::model::{Model, is_system};
use std::collections::{BTreeMap, BTreeSet};
use zkshim::keeper::keyspace::{ShimId, Slot, StepKind};
use zkshim::keeper::tree::record::Kind;
use zkshim::keeper::txn::LeaseId;
use zkshim::keeper::zxid::Revision;

/// What the names of TTL nodes begin with that no client deletes.
pub(crate) const TTL_NAMES: &str = "/a/ttl";

pub(crate) fn check(model: &Model) -> Result<(), String> {
    let last = model.last();
    let mut sessions = BTreeSet::new();
    let mut shims: BTreeMap<ShimId, BTreeSet<LeaseId>> = BTreeMap::new();
    for entry in model.entries() {
        match Slot::parse(&entry.key) {
            Some(Slot::Session(_)) if !sessions.insert(entry.lease) => {
                return Err(format!("two sessions are on lease {:?}", entry.lease));
            }
            // Whichever of them a shim has, they are on one lease.
            Some(Slot::Batch(shim) | Slot::Claim(_, shim) | Slot::Ended(shim)) => {
                shims.entry(shim).or_default().insert(entry.lease);
            }
            _ => {}
        }
    }
    check_shims(&shims, &sessions)?;
    let shims: BTreeSet<LeaseId> = shims.into_values().flatten().collect();
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

/// What shims have of their own is each on its shim's lease, and on nobody else's.
fn check_shims(
    shims: &BTreeMap<ShimId, BTreeSet<LeaseId>>,
    sessions: &BTreeSet<LeaseId>,
) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for (shim, leases) in shims {
        let foreign = |lease| sessions.contains(lease) || *lease == LeaseId::NONE;
        if leases.len() > 1 || leases.iter().any(foreign) || !seen.is_disjoint(leases) {
            return Err(format!("keys of {shim:?} are on the leases {leases:?}"));
        }
        seen.extend(leases);
    }
    Ok(())
}

/// TTL nodes that no client deletes go only when their time is up, by some shim's clock.
pub(crate) fn check_expired(model: &Model, at: Revision, unix_ms: i64) -> Result<(), String> {
    for told in model.told(at) {
        if told.kind != StepKind::Deleted || !told.path.starts_with(TTL_NAMES) {
            continue;
        }
        let Some(node) = model.node(&told.path, Revision(at.0 - 1)) else { continue };
        if let Kind::Ttl(ttl_ms) = node.value.kind
            && node.value.mtime + ttl_ms > unix_ms
        {
            return Err(format!(
                "{} went before its time: {:?} at {unix_ms}",
                told.path, node.value
            ));
        }
    }
    Ok(())
}

/// Containers that were used, and TTL nodes, are gone when nobody has needed them for long.
pub(crate) fn check_tidy(model: &Model) -> Result<(), String> {
    let last = model.last();
    for path in model.paths(last) {
        let Some(node) = model.node(&path, last) else { continue };
        let empty = model.children(&path, last).is_empty();
        let stays = match node.value.kind {
            Kind::Container => model.creates(&path, last) > 0,
            Kind::Ttl(_) => true,
            Kind::Persistent | Kind::Ephemeral(_) => false,
        };
        if empty && stays {
            return Err(format!("{path} is left: {:?}", node.value));
        }
    }
    Ok(())
}
