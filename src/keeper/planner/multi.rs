//! multi: several writes as one. Source: `PrepRequestProcessor`, `OpCode.multi`;
//! `FinalRequestProcessor` for the results.

use crate::keeper::error::ErrorCode;
use crate::keeper::keyspace::{self, Slot, Step, StepKind};
use crate::keeper::planner::create::{Mode, ModeKind};
use crate::keeper::planner::{Planner, Write};
use crate::keeper::request::{Body, Create, CreateOpcode, MultiOperation, MultiResult};
use crate::keeper::tree::Path;
use crate::keeper::tree::record::Record;
use crate::keeper::zxid::Revision;
use rustc_hash::FxHashMap;

impl Planner<'_, '_> {
    /// Each operation sees the earlier ones. The first that fails takes all of them back; one that
    /// refers to nothing takes the results back as well.
    pub(super) fn plan_multi(&mut self, operations: &[MultiOperation]) -> Result<Body, ErrorCode> {
        let mark = self.overlay.mark();
        let mut results = Vec::with_capacity(operations.len());
        let mut steps = Vec::new();
        for operation in operations {
            match self.plan_operation(operation, &mut steps) {
                Ok(result) => results.push(result),
                Err(ErrorCode::MarshallingError) => return Err(ErrorCode::MarshallingError),
                Err(code) => {
                    self.take_back(mark);
                    return Ok(Body::Multi(failed(operations.len(), results.len(), code)));
                }
            }
        }
        self.keep_net_result(steps);
        Ok(Body::Multi(results))
    }

    fn plan_operation(
        &mut self,
        operation: &MultiOperation,
        steps: &mut Vec<Step>,
    ) -> Result<MultiResult, ErrorCode> {
        Ok(match operation {
            MultiOperation::Create(create) => {
                let (result, path) = self.plan_multi_create(create)?;
                self.add_step(steps, StepKind::Created, path, None);
                result
            }
            MultiOperation::Delete(delete) => {
                let before = delete.path.as_deref().and_then(|path| self.overlay.find(path));
                let before = before.cloned();
                self.plan_delete(delete)?;
                let path = self.overlay.share(delete.path.as_deref().unwrap_or_default());
                self.add_step(steps, StepKind::Deleted, path, before);
                MultiResult::Delete
            }
            MultiOperation::SetData(set) => {
                let (path, stat) = self.plan_set_data(set)?;
                self.add_step(steps, StepKind::DataChanged, path, None);
                MultiResult::SetData(stat)
            }
            MultiOperation::Check(check) => {
                self.plan_check(check)?;
                MultiResult::Check
            }
        })
    }

    /// The kind of znode follows from the mode alone here, unlike in a single create, and so does
    /// the form of the result.
    fn plan_multi_create(&mut self, create: &Create) -> Result<(MultiResult, Path), ErrorCode> {
        let mode = Mode::from_flags(create.flags).ok_or(ErrorCode::BadArguments)?;
        let is_ttl = mode.kind == ModeKind::Ttl;
        if is_ttl {
            self.check_ttl(create.ttl_ms)?;
        }
        let container = create.opcode == CreateOpcode::CreateContainer;
        let mode = if container { Mode { kind: ModeKind::Container, ..mode } } else { mode };
        let created = self.create(create, mode, create.ttl_ms)?;
        let path = self.overlay.share(&created.path);
        let with_stat = matches!(mode.kind, ModeKind::Container | ModeKind::Ttl)
            || create.opcode == CreateOpcode::Create2;
        let result = if with_stat {
            MultiResult::Create2(created.path, created.stat)
        } else {
            MultiResult::Create(created.path)
        };
        Ok((result, path))
    }

    fn add_step(&self, steps: &mut Vec<Step>, kind: StepKind, path: Path, before: Option<Record>) {
        let acl = match &before {
            Some(record) => record.acl().cloned(),
            None => self.overlay.find(&path).and_then(|record| record.acl().cloned()),
        };
        steps.push(Step { kind, path, acl });
    }

    /// etcd takes one write a key: what is left is the net result. Where a znode changed more
    /// than once, the steps are written down for the replicas' watches.
    fn keep_net_result(&mut self, steps: Vec<Step>) {
        let tree = self.overlay.tree();
        let taken_over = &self.taken_over;
        self.plan.writes.retain(|slot, write| {
            let existed = |path: &Path, revision: fn(&Record) -> Revision| {
                let node = tree.find(path);
                node.is_some_and(|node| revision(&node.record) != Revision::NEVER)
            };
            write.value.is_some()
                || taken_over.contains(slot)
                || match slot {
                    Slot::Node(path) => existed(path, |record| record.keys().node),
                    Slot::Creates(path) => existed(path, |record| record.keys().creates),
                    Slot::Acl(path) => existed(path, |record| record.keys().acl),
                    Slot::Pzxid(path) => existed(path, |record| record.keys().pzxid),
                    _ => true,
                }
        });
        let mut seen: FxHashMap<&Path, u32> = FxHashMap::default();
        for step in &steps {
            *seen.entry(&step.path).or_default() += 1;
        }
        if seen.values().any(|times| *times > 1) {
            let slot = Slot::Steps(self.settings.shim, u64::from(self.request.0));
            let value = Some(keyspace::encode_steps(&steps));
            self.overlay.mark_written(&slot, self.request);
            self.plan.writes.insert(slot, Write { value, lease: self.settings.shim_lease });
        }
    }
}

/// The results of a multi that failed: code 0 before the operation that failed, the code, and
/// RuntimeInconsistency for what was not tried.
fn failed(count: usize, failed_at: usize, code: ErrorCode) -> Vec<MultiResult> {
    (0..count)
        .map(|index| {
            MultiResult::Error(match index.cmp(&failed_at) {
                std::cmp::Ordering::Less => None,
                std::cmp::Ordering::Equal => Some(code),
                std::cmp::Ordering::Greater => Some(ErrorCode::RuntimeInconsistency),
            })
        })
        .collect()
}
