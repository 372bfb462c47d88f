//! What must hold of the keys once nothing moves any more, and of znodes that go by themselves.

use crate::checks::told::Told;
use crate::model::{Model, is_system};
use crate::world::Start;
use std::collections::{BTreeMap, BTreeSet};
use zkshim::keeper::keyspace::{ShimId, Slot, StepKind};
use zkshim::keeper::tree::record::Kind;
use zkshim::keeper::txn::LeaseId;
use zkshim::keeper::zxid::Revision;

/// What the names of TTL nodes begin with that no client deletes.
pub(crate) const TTL_NAMES: &str = "/a/ttl";

/// `alive` are the shims that live.
pub(crate) fn check(model: &Model, told: &Told, alive: &[Start]) -> Result<(), String> {
    let last = model.last();
    let mut sessions = BTreeSet::new();
    let mut shims: BTreeMap<ShimId, BTreeSet<LeaseId>> = BTreeMap::new();
    for entry in model.entries() {
        match Slot::parse(&entry.key) {
            Some(Slot::Session(_)) if !sessions.insert(entry.lease) => {
                return Err(format!("two sessions are on lease {:?}", entry.lease));
            }
            Some(
                Slot::Batch(shim) | Slot::Steps(shim, _) | Slot::Claim(_, shim) | Slot::Ended(shim),
            ) => {
                shims.entry(shim).or_default().insert(entry.lease);
            }
            _ => {}
        }
    }
    check_shims(&shims, &sessions, told, alive)?;
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
        let right = match &slot {
            Slot::Batch(_) | Slot::Steps(..) | Slot::Claim(..) | Slot::Ended(_) => true,
            Slot::Session(_) => entry.lease != LeaseId::NONE,
            Slot::Node(_) | Slot::Creates(_) | Slot::Acl(_) => {
                entry.lease == LeaseId::NONE || sessions.contains(&entry.lease)
            }
            Slot::Pzxid(_) | Slot::Spent(_) | Slot::Last | Slot::Secret | Slot::Meta => {
                entry.lease == LeaseId::NONE
            }
        };
        if !right {
            return Err(format!("{slot:?} is on {:?}, without its session", entry.lease));
        }
    }
    Ok(())
}

/// What a shim has of its own is on a lease that it was granted and that no session is on, all of
/// it on one. Only if it died while it fenced something off, before its old lease was revoked,
/// there are two, until both lapse.
fn check_shims(
    shims: &BTreeMap<ShimId, BTreeSet<LeaseId>>,
    sessions: &BTreeSet<LeaseId>,
    told: &Told,
    alive: &[Start],
) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for (shim, leases) in shims {
        let holders: BTreeSet<Option<Start>> =
            leases.iter().map(|lease| told.holder(*lease)).collect();
        let lives = holders.iter().flatten().any(|start| alive.contains(start));
        let one_owner = holders.len() == 1 && !holders.contains(&None);
        let foreign = !sessions.is_disjoint(leases) || !seen.is_disjoint(leases);
        if !one_owner || foreign || leases.len() > if lives { 1 } else { 2 } {
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
