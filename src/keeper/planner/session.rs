//! Writes of a session's own key: birth, move and end.

use crate::keeper::keyspace::{self, SessionValue, Slot, own};
use crate::keeper::planner::{Plan, Planner, Test};
use crate::keeper::request::SessionId;
use crate::keeper::tree::Path;
use crate::keeper::txn::LeaseId;
use crate::keeper::zxid::Revision;

/// Who else may write a session's first key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstKey {
    /// Nobody: no client knows the session.
    Only,
    /// Its client knows the session: whoever believes its password.
    Own,
    /// This shim has believed the password: the shim that made it.
    Foreign,
}

impl Planner<'_, '_> {
    /// A new session. The writer has no fence: nothing of it exists.
    pub fn plan_open(
        mut self,
        session: SessionId,
        value: &SessionValue,
        lease: LeaseId,
        first: FirstKey,
    ) -> Plan {
        self.guard(Slot::Session(session), Test::Unchanged(Revision::NEVER));
        if first != FirstKey::Only {
            self.guard(Slot::Spent(session), Test::Unchanged(Revision::NEVER));
        }
        if first == FirstKey::Foreign {
            self.write(Slot::Spent(session), Some(own::encode_spent()), LeaseId::NONE);
        }
        self.write(Slot::Session(session), Some(value.encode()), lease);
        self.plan
    }

    /// The session's key is written again: it moves to this shim, or whatever is still under way
    /// on it is fenced off, or its end is marked.
    pub fn plan_rewrite(mut self, value: &SessionValue) -> Plan {
        if let Some(fence) = self.writer.session {
            self.write(Slot::Session(fence.session), Some(value.encode()), fence.lease);
        }
        self.plan
    }

    /// The session ends: its key and its ephemerals go in this one txn. A znode that somebody
    /// else has created anew under the same path has another lease and fails the guard.
    pub fn plan_close(mut self) -> Plan {
        let Some(fence) = self.writer.session else { return self.plan };
        let tree = self.overlay.tree();
        let mut owned: Vec<Path> = tree.ephemerals(fence.session).collect();
        owned.sort_unstable();
        for path in owned {
            let Some(record) = self.overlay.find(&path) else {
                self.plan.depends.push(Slot::Node(path));
                continue;
            };
            let acl = record.keys().acl;
            self.guard(Slot::Node(path.clone()), Test::Lease(fence.lease));
            self.guard_acl(&path, acl);
            self.write_deleted(&path);
        }
        self.write(Slot::Session(fence.session), None, LeaseId::NONE);
        self.plan
    }

    /// The layout and the zxid offset of a store that nobody has used yet, or that has an older
    /// layout since this revision.
    pub fn plan_meta(mut self, since: Revision) -> Plan {
        self.guard(Slot::Meta, Test::Unchanged(since));
        let value = own::encode_meta(self.settings.offset.0);
        self.write(Slot::Meta, Some(value), LeaseId::NONE);
        self.plan
    }

    /// What sessions' passwords are made from, in a store where nobody has said it.
    pub fn plan_secret(mut self, secret: [u8; 32]) -> Plan {
        self.guard(Slot::Secret, Test::Unchanged(Revision::NEVER));
        self.write(Slot::Secret, Some(own::encode_secret(secret)), LeaseId::NONE);
        self.plan
    }

    /// Sessions that have ended at this shim and never had a key.
    pub fn plan_ended(mut self, sessions: &[SessionId]) -> Plan {
        let (slot, lease) = (Slot::Ended(self.settings.shim), self.settings.shim_lease);
        self.write(slot, Some(own::encode_ended(sessions)), lease);
        self.plan
    }

    /// A session that has no key gets none, whoever is about to write it.
    pub fn plan_spend(mut self, session: SessionId) -> Plan {
        self.guard(Slot::Session(session), Test::Unchanged(Revision::NEVER));
        self.write(Slot::Spent(session), Some(own::encode_spent()), LeaseId::NONE);
        self.plan
    }

    /// Whatever [`Self::plan_spend`] was against cannot be under way any more.
    pub fn plan_forget(mut self, session: SessionId, spent: Revision) -> Plan {
        self.guard(Slot::Spent(session), Test::Unchanged(spent));
        self.write(Slot::Spent(session), None, LeaseId::NONE);
        self.plan
    }

    /// A container or TTL node goes by itself.
    pub fn plan_expiry(mut self, path: &Path) -> Option<Plan> {
        self.plan_expire_node(path).then_some(self.plan)
    }

    /// pzxid of a parent whose child went with its lease, which touches no key of the parent.
    pub fn plan_pzxid(mut self, path: &Path, deleted: Revision) -> Option<Plan> {
        let record = self.overlay.find(path)?;
        let keys = record.keys();
        self.guard_exists(path, keys);
        self.guard(Slot::Pzxid(path.clone()), Test::Unchanged(keys.pzxid));
        let value = keyspace::encode_pzxid(Some(deleted));
        self.write(Slot::Pzxid(path.clone()), Some(value), LeaseId::NONE);
        Some(self.plan)
    }
}
