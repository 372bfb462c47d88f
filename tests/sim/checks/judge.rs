//! What ZooKeeper says to a write, by the wording of its rules, at one revision of the model.

use crate::checks::quotas::Usage;
use crate::model::{Model, is_system};
use jute::Acl;
use std::collections::BTreeMap;
use zkshim::keeper::acl::{self, Identity, perms};
use zkshim::keeper::error::ErrorCode;
use zkshim::keeper::path;
use zkshim::keeper::request::{Create, Delete, MultiOperation, Operation, SetAcl, SetData};
use zkshim::keeper::tree::record::Kind;
use zkshim::keeper::zxid::Revision;

#[derive(Clone, Debug)]
struct View {
    version: i32,
    aversion: i32,
    creates: i32,
    children: i32,
    acl: Vec<Acl>,
    ephemeral: bool,
    length: i64,
}

/// The tree at a revision, with what earlier operations of a multi would change.
struct Judge<'m> {
    model: &'m Model,
    /// Who asks.
    identities: &'m [Identity],
    at: Revision,
    changed: BTreeMap<String, Option<View>>,
}

/// Whether an operation would fail, and which operation of a multi.
pub(crate) fn judge(
    model: &Model,
    at: Revision,
    identities: &[Identity],
    operation: &Operation,
) -> Result<(), (usize, ErrorCode)> {
    let mut judge = Judge { model, identities, at, changed: BTreeMap::new() };
    match operation {
        Operation::Create(create) => judge.create(create),
        Operation::Delete(delete) => judge.delete(delete),
        Operation::SetData(set) => judge.change(set),
        Operation::SetAcl(set) => judge.set_acl(set),
        Operation::Multi(operations) => {
            for (index, operation) in operations.iter().enumerate() {
                let verdict = match operation {
                    MultiOperation::Create(create) => judge.create(create),
                    MultiOperation::Delete(delete) => judge.delete(delete),
                    MultiOperation::SetData(set) => judge.change(set),
                    MultiOperation::Check(check) => {
                        judge.check(check.path.as_deref(), check.version)
                    }
                };
                verdict.map_err(|code| (index, code))?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
    .map_err(|code| (0, code))
}

impl Judge<'_> {
    fn find(&self, path: &str) -> Option<View> {
        if let Some(changed) = self.changed.get(path) {
            return changed.clone();
        }
        let stat = self.model.stat(path, self.at)?;
        let node = self.model.node(path, self.at);
        Some(View {
            version: stat.version,
            aversion: stat.aversion,
            creates: self.model.creates(path, self.at),
            children: stat.num_children,
            acl: self.model.permissions(path, self.at)?,
            length: self.model.length(path, self.at),
            ephemeral: node.is_some_and(|node| matches!(node.value.kind, Kind::Ephemeral(_))),
        })
    }

    fn permits(&self, view: &View, wanted: i32) -> Result<(), ErrorCode> {
        let may = acl::permits(&view.acl, wanted, self.identities);
        if may { Ok(()) } else { Err(ErrorCode::NoAuth) }
    }

    fn create(&mut self, create: &Create) -> Result<(), ErrorCode> {
        let acl = acl::normalize(create.acl.as_deref(), self.identities)?;
        let asked = create.path.as_deref().unwrap_or_default();
        let parent_path = path::parent_or_root(asked).to_owned();
        let mut parent = self.find(&parent_path).ok_or(ErrorCode::NoNode)?;
        self.permits(&parent, perms::CREATE)?;
        let sequential = matches!(create.flags, 2 | 3);
        let path = match sequential {
            true => path::with_sequence(asked, parent.creates),
            false => asked.to_owned(),
        };
        if self.find(&path).is_some() {
            return Err(ErrorCode::NodeExists);
        }
        if parent.ephemeral {
            return Err(ErrorCode::NoChildrenForEphemerals);
        }
        let length = create.data.as_ref().map_or(0, |data| data.len() as i64);
        self.check_quota(&path, Usage { count: 1, bytes: length })?;
        parent.creates += 1;
        parent.children += 1;
        self.changed.insert(parent_path, Some(parent));
        let view = View {
            version: 0,
            aversion: 0,
            creates: 0,
            children: 0,
            acl,
            ephemeral: matches!(create.flags, 1 | 3),
            length,
        };
        self.changed.insert(path, Some(view));
        Ok(())
    }

    fn delete(&mut self, delete: &Delete) -> Result<(), ErrorCode> {
        let path = delete.path.as_deref().unwrap_or_default();
        if is_system(path) {
            return Err(ErrorCode::BadArguments);
        }
        let parent_path = path::parent_or_root(path).to_owned();
        let mut parent = self.find(&parent_path).ok_or(ErrorCode::NoNode)?;
        self.permits(&parent, perms::DELETE)?;
        let view = self.find(path).ok_or(ErrorCode::NoNode)?;
        if delete.version != -1 && delete.version != view.version {
            return Err(ErrorCode::BadVersion);
        }
        if view.children != 0 {
            return Err(ErrorCode::NotEmpty);
        }
        parent.children -= 1;
        self.changed.insert(parent_path, Some(parent));
        self.changed.insert(path.to_owned(), None);
        Ok(())
    }

    /// As it was before the whole request.
    fn check_quota(&self, path: &str, change: Usage) -> Result<(), ErrorCode> {
        let exceeds = self.model.exceeds(path, self.at, change);
        if exceeds { Err(ErrorCode::QuotaExceeded) } else { Ok(()) }
    }

    fn change(&mut self, set: &SetData) -> Result<(), ErrorCode> {
        let (path, version) = (set.path.as_deref().unwrap_or_default(), set.version);
        let length = set.data.as_ref().map_or(0, |data| data.len() as i64);
        let mut view = self.find(path).ok_or(ErrorCode::NoNode)?;
        self.permits(&view, perms::WRITE)?;
        self.check_quota(path, Usage { count: 0, bytes: length - view.length })?;
        view.length = length;
        if version != -1 && version != view.version {
            return Err(ErrorCode::BadVersion);
        }
        view.version += 1;
        self.changed.insert(path.to_owned(), Some(view));
        Ok(())
    }

    fn check(&self, path: Option<&str>, version: i32) -> Result<(), ErrorCode> {
        let view = self.find(path.unwrap_or_default()).ok_or(ErrorCode::NoNode)?;
        self.permits(&view, perms::READ)?;
        let wrong = version != -1 && version != view.version;
        if wrong { Err(ErrorCode::BadVersion) } else { Ok(()) }
    }

    fn set_acl(&self, set: &SetAcl) -> Result<(), ErrorCode> {
        acl::normalize(set.acl.as_deref(), self.identities)?;
        let path = set.path.as_deref().unwrap_or_default();
        let view = self.find(path).ok_or(ErrorCode::NoNode)?;
        self.permits(&view, perms::ADMIN)?;
        let wrong = set.version != -1 && set.version != view.aversion;
        if wrong { Err(ErrorCode::BadVersion) } else { Ok(()) }
    }
}
