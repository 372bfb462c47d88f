//! delete, setData, setACL and check. Source: `PrepRequestProcessor.pRequest2Txn`.

use crate::keeper::acl;
use crate::keeper::error::ErrorCode;
use crate::keeper::keyspace::{self, Birth, NodeValue, Slot};
use crate::keeper::path;
use crate::keeper::planner::{Effect, Planner, Test};
use crate::keeper::request::{Body, Check, Data, Delete, SetAcl, SetData};
use crate::keeper::tree::quota::Usage;
use crate::keeper::tree::record::{Kind, Record};
use crate::keeper::tree::{self, Path};
use crate::keeper::txn::LeaseId;
use crate::keeper::zxid::Revision;
use jute::{Acl, Stat};
use std::sync::Arc;

/// The expected version that any version meets.
const ANY_VERSION: i32 = -1;

impl Planner<'_, '_> {
    pub(super) fn plan_delete(&mut self, delete: &Delete) -> Result<(), ErrorCode> {
        let asked = delete.path.as_deref().ok_or(ErrorCode::MarshallingError)?;
        if !path::has_slash_and_no_nul(asked) || path::is_reserved(asked) {
            return Err(ErrorCode::BadArguments);
        }
        let parent_path = self.overlay.share(path::parent(asked));
        let Some(parent) = self.overlay.find(&parent_path) else {
            self.guard_absent(&parent_path);
            return Err(ErrorCode::NoNode);
        };
        let (parent_acl, allowed) = (parent.keys().acl, self.permits(parent, acl::perms::DELETE));
        self.guard_acl(&parent_path, parent_acl);
        if !allowed {
            return Err(ErrorCode::NoAuth);
        }
        let Some(record) = self.overlay.find(asked) else {
            self.guard_absent(asked);
            return Err(ErrorCode::NoNode);
        };
        let (keys, version, children) = (record.keys(), record.version, record.children());
        let path = self.overlay.share(asked);
        if delete.version != ANY_VERSION {
            self.guard(Slot::Node(path.clone()), Test::Unchanged(keys.node));
            if delete.version != version {
                return Err(ErrorCode::BadVersion);
            }
        }
        if children != 0 {
            if let Some((child, record)) = self.overlay.settled_child(&path) {
                let test = Test::Created(record.keys().node_created);
                self.guard(Slot::Node(child), test);
            } else {
                self.plan.depends.push(Slot::Creates(path));
            }
            return Err(ErrorCode::NotEmpty);
        }
        if delete.version == ANY_VERSION {
            self.guard(Slot::Node(path.clone()), Test::Created(keys.node_created));
        }
        self.guard(Slot::Creates(path.clone()), Test::Unchanged(keys.creates));
        self.guard(Slot::Pzxid(path.clone()), Test::Unchanged(keys.pzxid));
        self.guard_acl(&path, keys.acl);
        self.write_deleted(&path);
        Ok(())
    }

    /// A container that has lost its last child, or a TTL node whose time is up. Source:
    /// `PrepRequestProcessor`, `OpCode.deleteContainer`; nobody's permission is asked. `false` if
    /// it may not go any more: it may have been written while this waited for its turn.
    pub fn plan_expire_node(&mut self, path: &Path) -> bool {
        let Some(record) = self.overlay.find(path) else { return false };
        let keys = record.keys();
        if !has_expired(record, self.writer.unix_ms) {
            return false;
        }
        self.guard(Slot::Node(path.clone()), Test::Unchanged(keys.node));
        self.guard(Slot::Creates(path.clone()), Test::Unchanged(keys.creates));
        self.guard(Slot::Pzxid(path.clone()), Test::Unchanged(keys.pzxid));
        self.guard_acl(path, keys.acl);
        self.write_deleted(path);
        true
    }

    /// The keys of a znode go, and its parent learns when.
    pub(super) fn write_deleted(&mut self, path: &Path) {
        let Some(record) = self.overlay.find(path) else { return };
        let keys = record.keys();
        let parent_path = self.overlay.share(path::parent(path));
        self.write(Slot::Node(path.clone()), None, LeaseId::NONE);
        self.delete_key(Slot::Creates(path.clone()), keys.creates);
        self.delete_key(Slot::Acl(path.clone()), keys.acl);
        self.delete_key(Slot::Pzxid(path.clone()), keys.pzxid);
        let value = keyspace::encode_pzxid(None);
        self.write(Slot::Pzxid(parent_path.clone()), Some(value), LeaseId::NONE);
        self.overlay.remove(path);
        self.plan.effects.push(Effect::Deleted(path.clone()));
        self.overlay.update(&parent_path, |parent| {
            parent.more().pzxid = Revision::PENDING;
            parent.change_keys(|keys| keys.pzxid = Revision::PENDING);
        });
    }

    pub(super) fn plan_set_data(&mut self, set: &SetData) -> Result<(Path, Stat), ErrorCode> {
        let (path, mut record) = self.check_changed(set.path.as_deref(), acl::perms::WRITE)?;
        self.guard(Slot::Node(path.clone()), Test::Unchanged(record.modified()));
        let length = |data: Option<&[u8]>| data.map_or(0, <[u8]>::len);
        let (after, before) = (length(set.data.as_deref()), length(record.data.as_deref()));
        let bytes =
            i64::try_from(after).unwrap_or(i64::MAX) - i64::try_from(before).unwrap_or(i64::MAX);
        self.check_quota(&path, Usage { count: 0, bytes })?;
        if set.version != ANY_VERSION && set.version != record.version {
            return Err(ErrorCode::BadVersion);
        }
        record.version = record.version.wrapping_add(1);
        record.set_mtime(self.writer.unix_ms);
        record.data = set.data.as_deref().map(Data::from);
        let value = NodeValue {
            data: set.data.clone(),
            kind: record.kind(),
            ctime: record.ctime(),
            mtime: record.mtime(),
            version: record.version,
            birth: birth(&record),
        };
        record.set_modified(Revision::PENDING);
        self.write(Slot::Node(path.clone()), Some(value.encode()), record.keys().lease);
        let stat = record.stat(self.settings.offset);
        self.overlay.update(&path, |node| *node = record);
        self.tell(&path);
        Ok((path, stat))
    }

    pub(super) fn plan_set_acl(&mut self, set: &SetAcl) -> Result<Body, ErrorCode> {
        let asked = set.path.as_deref().ok_or(ErrorCode::BadArguments)?;
        if !path::is_valid(asked) {
            return Err(ErrorCode::BadArguments);
        }
        let acl = acl::normalize(set.acl.as_deref(), self.writer.identities)?;
        let (path, mut record) = self.check_changed(Some(asked), acl::perms::ADMIN)?;
        self.guard(Slot::Node(path.clone()), Test::Unchanged(record.modified()));
        if set.version != ANY_VERSION && set.version != record.aversion() {
            return Err(ErrorCode::BadVersion);
        }
        let aversion = record.aversion().wrapping_add(1);
        let value = keyspace::encode_acl(aversion, &acl);
        let acl: Option<Arc<[Acl]>> = (!tree::is_open(&acl)).then(|| acl.into());
        record.set_acl(acl, aversion, Revision::PENDING);
        self.write(Slot::Acl(path.clone()), Some(value), record.keys().lease);
        let stat = record.stat(self.settings.offset);
        self.overlay.update(&path, |node| *node = record);
        self.tell(&path);
        Ok(Body::Stat(stat))
    }

    pub(super) fn plan_check(&mut self, check: &Check) -> Result<(), ErrorCode> {
        let (path, record) = self.check_changed(check.path.as_deref(), acl::perms::READ)?;
        self.guard(Slot::Node(path), Test::Unchanged(record.modified()));
        if check.version != ANY_VERSION && check.version != record.version {
            return Err(ErrorCode::BadVersion);
        }
        Ok(())
    }

    /// The checks that setData, setACL and check begin with: path, existence, permission.
    fn check_changed(
        &mut self,
        asked: Option<&str>,
        wanted: i32,
    ) -> Result<(Path, Record), ErrorCode> {
        let asked = asked.ok_or(ErrorCode::BadArguments)?;
        if !path::is_valid(asked) {
            return Err(ErrorCode::BadArguments);
        }
        let Some(record) = self.overlay.find(asked) else {
            self.guard_absent(asked);
            return Err(ErrorCode::NoNode);
        };
        let (record, allowed) = (record.clone(), self.permits(record, wanted));
        let path = self.overlay.share(asked);
        self.guard_acl(&path, record.keys().acl);
        if !allowed {
            return Err(ErrorCode::NoAuth);
        }
        Ok((path, record))
    }
}

/// Whether a znode may go by itself. Source: `ContainerManager.getCandidates`.
pub fn has_expired(record: &Record, unix_ms: i64) -> bool {
    if record.children() > 0 {
        return false;
    }
    match record.kind() {
        Kind::Container => record.creates() > 0,
        Kind::Ttl(ttl_ms) => unix_ms.saturating_sub(record.mtime()) > ttl_ms,
        Kind::Persistent | Kind::Ephemeral(_) => false,
    }
}

/// What a put of a znode says of its czxid.
fn birth(record: &Record) -> Birth {
    match record.created() {
        created if created == record.keys().node_created => Birth::Key,
        Revision::NEVER => Birth::Key,
        Revision::PENDING => Birth::Here,
        created => Birth::At(created),
    }
}
