//! create, create2, createContainer and createTTL. Source:
//! `PrepRequestProcessor.pRequest2TxnCreate`, `EphemeralType.validateTTL`.

use crate::keeper::acl;
use crate::keeper::error::ErrorCode;
use crate::keeper::keyspace::{self, Birth, NodeValue, Slot};
use crate::keeper::path;
use crate::keeper::planner::{Effect, Planner, Test};
use crate::keeper::request::{Body, Create, CreateOpcode, Data};
use crate::keeper::tree::quota::{self, Usage};
use crate::keeper::tree::record::{Keys, Kind, Record};
use crate::keeper::tree::{self, Path};
use crate::keeper::txn::LeaseId;
use crate::keeper::zxid::Revision;
use bytes::Bytes;
use jute::{Acl, Stat, Text};
use std::sync::Arc;

/// The longest time to live, 2^40 - 1 ms: what fits beside the marks in upstream's
/// ephemeralOwner (`EphemeralType.TTL`).
const TTL_MS_MAX: i64 = (1 << 40) - 1;

/// `CreateMode`, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mode {
    pub(super) kind: ModeKind,
    pub(super) sequential: bool,
}

/// See [`Mode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ModeKind {
    Persistent,
    Ephemeral,
    Container,
    Ttl,
}

impl Mode {
    /// `CreateMode.fromFlag`.
    pub(super) fn from_flags(flags: i32) -> Option<Self> {
        let (kind, sequential) = match flags {
            0 => (ModeKind::Persistent, false),
            1 => (ModeKind::Ephemeral, false),
            2 => (ModeKind::Persistent, true),
            3 => (ModeKind::Ephemeral, true),
            4 => (ModeKind::Container, false),
            5 => (ModeKind::Ttl, false),
            6 => (ModeKind::Ttl, true),
            _ => return None,
        };
        Some(Self { kind, sequential })
    }
}

/// What a create made.
pub(super) struct Created {
    pub(super) path: Text,
    pub(super) stat: Stat,
}

impl Planner<'_, '_> {
    pub(super) fn plan_create(&mut self, create: &Create) -> Result<Body, ErrorCode> {
        let mode = Mode::from_flags(create.flags).ok_or(ErrorCode::BadArguments)?;
        let ttl_ms = if create.opcode == CreateOpcode::CreateTtl { create.ttl_ms } else { -1 };
        if mode.kind == ModeKind::Ttl {
            self.check_ttl(ttl_ms)?;
        } else if create.opcode == CreateOpcode::CreateTtl {
            // With a ttl of -1 the real server passes this and then stops serving.
            return Err(ErrorCode::BadArguments);
        }
        let kind = match (create.opcode, mode.kind) {
            (CreateOpcode::CreateContainer, _) => ModeKind::Container,
            (CreateOpcode::CreateTtl, _) => ModeKind::Ttl,
            (_, ModeKind::Ephemeral) => ModeKind::Ephemeral,
            (_, ModeKind::Persistent | ModeKind::Container | ModeKind::Ttl) => ModeKind::Persistent,
        };
        let created = self.create(create, Mode { kind, sequential: mode.sequential }, ttl_ms)?;
        Ok(match create.opcode {
            CreateOpcode::Create => Body::Path(Some(created.path)),
            _ => Body::PathStat(created.path, created.stat),
        })
    }

    pub(super) fn check_ttl(&self, ttl_ms: i64) -> Result<(), ErrorCode> {
        if !self.settings.ttl_nodes {
            return Err(ErrorCode::Unimplemented);
        }
        if !(1..=TTL_MS_MAX).contains(&ttl_ms) {
            return Err(ErrorCode::BadArguments);
        }
        Ok(())
    }

    /// From the check of the path on; the mode is decided.
    pub(super) fn create(
        &mut self,
        create: &Create,
        mode: Mode,
        ttl_ms: i64,
    ) -> Result<Created, ErrorCode> {
        let asked = create.path.as_deref().ok_or(ErrorCode::MarshallingError)?;
        if !path::has_slash_and_no_nul(asked) {
            return Err(ErrorCode::BadArguments);
        }
        let acl = acl::normalize(create.acl.as_deref(), self.writer.identities)?;
        let (path, parent_path) = self.check_place(asked, mode.sequential)?;
        let bytes = create.data.as_ref().map_or(0, Bytes::len);
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.check_quota(&path, Usage { count: 1, bytes })?;
        let kind = match mode.kind {
            ModeKind::Persistent => Kind::Persistent,
            ModeKind::Container => Kind::Container,
            ModeKind::Ttl => Kind::Ttl(ttl_ms),
            ModeKind::Ephemeral => match self.writer.session {
                Some(fence) => Kind::Ephemeral(fence.session),
                None => Kind::Persistent,
            },
        };
        let stat = self.write_created(create, &path, &parent_path, kind, acl);
        Ok(Created { path: Text::from(&*path), stat })
    }

    /// The checks that need the tree. The new znode's path and its parent's.
    fn check_place(&mut self, asked: &str, sequential: bool) -> Result<(Path, Path), ErrorCode> {
        let parent_path = self.overlay.share(path::parent(asked));
        let Some(parent) = self.overlay.find(&parent_path) else {
            self.guard_absent(&parent_path);
            return Err(ErrorCode::NoNode);
        };
        let (keys, creates) = (parent.keys(), parent.creates());
        let ephemeral = parent.owner().is_some();
        let allowed = self.permits(parent, acl::perms::CREATE);
        self.guard_acl(&parent_path, keys.acl);
        if !allowed {
            return Err(ErrorCode::NoAuth);
        }
        let path: Path = if sequential {
            path::with_sequence(asked, creates).into()
        } else {
            self.overlay.share(asked)
        };
        if !path::is_valid(&path) {
            self.guard_exists(&parent_path, keys);
            return Err(ErrorCode::BadArguments);
        }
        if let Some(existing) = self.overlay.find(&path) {
            let created = existing.keys().node_created;
            if sequential {
                self.guard(Slot::Creates(parent_path), Test::Unchanged(keys.creates));
            }
            if created != Revision::NEVER {
                self.guard(Slot::Node(path), Test::Created(created));
            }
            return Err(ErrorCode::NodeExists);
        }
        if ephemeral {
            self.guard(Slot::Node(parent_path), Test::Unchanged(keys.node));
            return Err(ErrorCode::NoChildrenForEphemerals);
        }
        self.guard(Slot::Creates(parent_path.clone()), Test::Unchanged(keys.creates));
        if keys.creates == Revision::NEVER {
            self.guard_exists(&parent_path, keys);
        }
        Ok((path, parent_path))
    }

    /// Guard that a znode is still the incarnation that was looked at; the four that cannot be
    /// deleted need none.
    pub(super) fn guard_exists(&mut self, path: &Path, keys: Keys) {
        if !path::is_reserved(path) {
            self.guard(Slot::Node(path.clone()), Test::Created(keys.node_created));
        }
    }

    fn write_created(
        &mut self,
        create: &Create,
        path: &Path,
        parent_path: &Path,
        kind: Kind,
        acl: Vec<Acl>,
    ) -> Stat {
        let lease = match (kind, self.writer.session) {
            (Kind::Ephemeral(_), Some(fence)) => fence.lease,
            _ => LeaseId::NONE,
        };
        let acl: Option<Arc<[Acl]>> = (!tree::is_open(&acl)).then(|| acl.into());
        // Deleted earlier in this multi: etcd keeps the key, so the value says that it is born
        // here, and the counter's key tells the incarnations apart.
        let before = self.overlay.below(path).map(|record| record.keys().node_created);
        let birth = if before.is_some() { Birth::Here } else { Birth::Key };
        if let Some(acl) = &acl {
            let value = keyspace::encode_acl(0, acl);
            self.write(Slot::Acl(path.clone()), Some(value), lease);
        }
        let now = self.writer.unix_ms;
        // A statistics node is born with what its subtree holds, whatever the client wrote.
        let data = match quota::subtree_of_stats(path) {
            Some(root) => Some(Bytes::from(self.overlay.tree().usage(root).text())),
            None => create.data.clone(),
        };
        let value =
            NodeValue { data: data.clone(), kind, ctime: now, mtime: now, version: 0, birth };
        self.write(Slot::Node(path.clone()), Some(value.encode()), lease);
        if before.is_some() {
            let value = keyspace::encode_creates(0);
            self.write(Slot::Creates(path.clone()), Some(value), lease);
        }
        let creates = self.overlay.find(parent_path).map_or(0, |parent| parent.creates());
        let creates = creates.wrapping_add(1);
        let value = keyspace::encode_creates(creates);
        self.write(Slot::Creates(parent_path.clone()), Some(value), LeaseId::NONE);
        let pending = |written: bool| if written { Revision::PENDING } else { Revision::NEVER };
        let mut record = Record::born(kind, Revision::PENDING);
        record.data = data.as_deref().map(Data::from);
        record.set_times(now, now);
        if acl.is_some() {
            record.set_acl(acl, 0, Revision::PENDING);
        }
        record.change_keys(|keys| {
            keys.node_created = before.unwrap_or(Revision::PENDING);
            keys.node = Revision::PENDING;
            keys.creates = pending(before.is_some());
            keys.lease = lease;
        });
        let stat = record.stat(self.settings.offset);
        self.overlay.insert(path, record);
        self.plan.effects.push(Effect::Created(path.clone()));
        self.overlay.update(parent_path, |parent| {
            parent.more().creates = creates;
            parent.more().pzxid = Revision::PENDING;
            parent.change_keys(|keys| keys.creates = Revision::PENDING);
        });
        stat
    }
}
