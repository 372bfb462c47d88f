//! A read and the tree give a reply, and the watch that it leaves. Source:
//! `FinalRequestProcessor.processRequest`.

use crate::keeper::acl::{self, Identity};
use crate::keeper::error::ErrorCode;
use crate::keeper::request::{Body, MultiReadOperation, MultiResult, Operation, Read, SessionId};
use crate::keeper::tree::record::Record;
use crate::keeper::tree::{self, Tree};
use crate::keeper::watches::Table;
use crate::keeper::zxid::ZxidOffset;
use jute::{Acl, ClientInfo, Text};

/// The most data and names in one reply to a multiRead. Clients refuse far less by default.
const MULTI_READ_BYTES_MAX: usize = 64 << 20;

/// Who reads, and under which rules.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    /// The session, for getEphemerals.
    pub session: SessionId,
    /// What its connection is.
    pub identities: &'a [Identity],
    /// ACLs are not looked at.
    pub skip_acl: bool,
    /// How revisions become zxids.
    pub offset: ZxidOffset,
}

/// What a read gives.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    /// For the reply.
    pub outcome: Result<Body, ErrorCode>,
    /// The watch to leave.
    pub watch: Option<(Table, Text)>,
}

impl From<Result<Body, ErrorCode>> for Answer {
    fn from(outcome: Result<Body, ErrorCode>) -> Self {
        Self { outcome, watch: None }
    }
}

impl Reader<'_> {
    /// Answer a read. The tree changes only in what it remembers for the next reader.
    ///
    /// # Panics
    /// If the operation is not a read.
    pub fn read(&self, tree: &mut Tree, operation: &Operation) -> Answer {
        match operation {
            Operation::Exists(read) => self.exists(tree, read),
            Operation::GetData(read) => self.watching(read, Table::Data, |path| {
                let record = self.readable(tree, path)?;
                Ok(Body::Data(record.data.clone(), record.stat(self.offset)))
            }),
            Operation::GetChildren(read) => self.watching(read, Table::Child, |path| {
                self.readable(tree, path)?;
                Ok(Body::Names(tree.names(path).ok_or(ErrorCode::NoNode)?))
            }),
            Operation::GetChildren2(read) => self.watching(read, Table::Child, |path| {
                let stat = self.readable(tree, path)?.stat(self.offset);
                Ok(Body::NamesStat(tree.names(path).ok_or(ErrorCode::NoNode)?, stat))
            }),
            Operation::GetAcl(path) => self.acl(tree, path.as_ref()).into(),
            Operation::GetAllChildrenNumber(path) => self.descendants(tree, path.as_ref()).into(),
            Operation::GetEphemerals(prefix) => self.ephemerals(tree, prefix.as_deref()).into(),
            Operation::MultiRead(operations) => self.multi(tree, operations).into(),
            Operation::WhoAmI => Ok(self.who_am_i()).into(),
            other => unreachable!("{other:?} is not a read"),
        }
    }

    fn exists(&self, tree: &Tree, read: &Read) -> Answer {
        let Some(path) = &read.path else { return Err(ErrorCode::MarshallingError).into() };
        if path.contains('\0') {
            return Err(ErrorCode::BadArguments).into();
        }
        let watch = read.watch.then(|| (Table::Data, path.clone()));
        match self.readable(tree, path) {
            Ok(record) => Answer { outcome: Ok(Body::Stat(record.stat(self.offset))), watch },
            Err(ErrorCode::NoNode) => Answer { outcome: Err(ErrorCode::NoNode), watch },
            Err(code) => Err(code).into(),
        }
    }

    /// A read whose watch stays only if it succeeds.
    fn watching(
        &self,
        read: &Read,
        table: Table,
        answer: impl FnOnce(&Text) -> Result<Body, ErrorCode>,
    ) -> Answer {
        let Some(path) = &read.path else { return Err(ErrorCode::MarshallingError).into() };
        let outcome = answer(path);
        let watch = (read.watch && outcome.is_ok()).then(|| (table, path.clone()));
        Answer { outcome, watch }
    }

    fn readable<'t>(&self, tree: &'t Tree, path: &str) -> Result<&'t Record, ErrorCode> {
        let record = &tree.find(path).ok_or(ErrorCode::NoNode)?.record;
        if self.permits(record, acl::perms::READ) { Ok(record) } else { Err(ErrorCode::NoAuth) }
    }

    fn permits(&self, record: &Record, wanted: i32) -> bool {
        let Some(acl) = record.acl() else { return true };
        self.skip_acl || acl::permits(acl, wanted, self.identities)
    }

    fn acl(&self, tree: &Tree, path: Option<&Text>) -> Result<Body, ErrorCode> {
        let path = path.ok_or(ErrorCode::MarshallingError)?;
        let record = &tree.find(path).ok_or(ErrorCode::NoNode)?.record;
        if !self.permits(record, acl::perms::READ | acl::perms::ADMIN) {
            return Err(ErrorCode::NoAuth);
        }
        let stat = record.stat(self.offset);
        let acl: Vec<Acl> = match record.acl() {
            None => tree::open_acl(),
            Some(acl) if self.permits(record, acl::perms::ADMIN) => acl.to_vec(),
            Some(acl) => acl::masked(acl),
        };
        Ok(Body::Acl(acl, stat))
    }

    /// The empty path counts the root itself as well, for there it is a child of itself
    /// (`DataTree.getAllChildrenNumber`).
    fn descendants(&self, tree: &Tree, path: Option<&Text>) -> Result<Body, ErrorCode> {
        let path = path.ok_or(ErrorCode::MarshallingError)?;
        self.readable(tree, path)?;
        let count = tree.descendants(path) + usize::from(path.is_empty());
        Ok(Body::Number(i32::try_from(count).unwrap_or(i32::MAX)))
    }

    fn ephemerals(&self, tree: &Tree, prefix: Option<&str>) -> Result<Body, ErrorCode> {
        let prefix = match prefix {
            Some(prefix) if !prefix.trim().is_empty() && prefix != tree::ROOT => prefix,
            _ => "",
        };
        let owned = tree.ephemerals(self.session).filter(|path| path.starts_with(prefix));
        Ok(Body::Names(tree::encode_names(owned.map(|path| path.as_bytes().to_vec()))))
    }

    /// A reply that is too large for anyone is refused: a znode can be asked for again and again
    /// in one list.
    fn multi(&self, tree: &mut Tree, operations: &[MultiReadOperation]) -> Result<Body, ErrorCode> {
        let mut results = Vec::with_capacity(operations.len());
        let mut bytes = 0;
        for operation in operations {
            let result = self.multi_operation(tree, operation);
            bytes += match &result {
                Ok(MultiResult::GetData(Some(data), _)) => data.len(),
                Ok(MultiResult::GetChildren(names)) => names.0.len(),
                _ => 0,
            };
            if bytes > MULTI_READ_BYTES_MAX {
                return Err(ErrorCode::MarshallingError);
            }
            results.push(result.unwrap_or_else(|code| MultiResult::Error(Some(code))));
        }
        Ok(Body::Multi(results))
    }

    fn multi_operation(
        &self,
        tree: &mut Tree,
        operation: &MultiReadOperation,
    ) -> Result<MultiResult, ErrorCode> {
        match operation {
            MultiReadOperation::GetData(path) => {
                let path = path.as_ref().ok_or(ErrorCode::MarshallingError)?;
                let record = self.readable(tree, path)?;
                Ok(MultiResult::GetData(record.data.clone(), record.stat(self.offset)))
            }
            MultiReadOperation::GetChildren(path) => {
                let path = path.as_ref().ok_or(ErrorCode::MarshallingError)?;
                self.readable(tree, path)?;
                Ok(MultiResult::GetChildren(tree.names(path).ok_or(ErrorCode::NoNode)?))
            }
        }
    }

    fn who_am_i(&self) -> Body {
        let identities = self.identities.iter().map(|identity| ClientInfo {
            auth_scheme: Some(identity.scheme.clone()),
            user: Some(acl::user_name(identity)),
        });
        Body::Identities(identities.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::tree::record::Kind;

    const STRANGER: Reader<'_> =
        Reader { session: SessionId(1), identities: &[], skip_acl: false, offset: ZxidOffset(0) };

    fn tree_with_closed_znode() -> Tree {
        let mut tree = Tree::new();
        let mut record = Record::blank(Kind::Persistent);
        let id = jute::Id { scheme: Some("digest".into()), id: Some("u:h".into()) };
        record.more().acl = Some([Acl { perms: acl::perms::ALL, id }].into());
        tree.insert("/closed", record);
        tree
    }

    fn check(operation: Operation, expect: Result<(), ErrorCode>, watch: bool) {
        let answer = STRANGER.read(&mut tree_with_closed_znode(), &operation);
        assert_eq!(answer.outcome.map(|_| ()), expect, "{operation:?}");
        assert_eq!(answer.watch.is_some(), watch, "{operation:?}");
    }

    fn read(path: &str) -> Read {
        Read { path: Some(path.into()), watch: true }
    }

    #[test]
    fn watches_are_left_as_the_real_server_leaves_them() {
        check(Operation::Exists(read("/")), Ok(()), true);
        check(Operation::Exists(read("/missing")), Err(ErrorCode::NoNode), true);
        check(Operation::Exists(read("/closed")), Err(ErrorCode::NoAuth), false);
        check(Operation::Exists(read("/a\0")), Err(ErrorCode::BadArguments), false);
        check(Operation::GetData(read("")), Ok(()), true);
        check(Operation::GetData(read("/missing")), Err(ErrorCode::NoNode), false);
        check(Operation::GetData(read("/closed")), Err(ErrorCode::NoAuth), false);
        check(Operation::GetChildren2(read("/a\0")), Err(ErrorCode::NoNode), false);
    }

    #[test]
    fn a_null_path_is_a_marshalling_error() {
        let null = || Read { path: None, watch: true };
        for operation in [
            Operation::Exists(null()),
            Operation::GetData(null()),
            Operation::GetChildren(null()),
            Operation::GetAcl(None),
            Operation::GetAllChildrenNumber(None),
        ] {
            check(operation, Err(ErrorCode::MarshallingError), false);
        }
    }

    #[test]
    fn a_multi_read_of_more_than_anybody_takes_is_refused() {
        let mut tree = Tree::new();
        let record = Record::blank(Kind::Persistent).with_data(vec![0; 1 << 20]);
        tree.insert("/large", record);
        let mut outcome = |count| {
            let operations = vec![MultiReadOperation::GetData(Some("/large".into())); count];
            STRANGER.read(&mut tree, &Operation::MultiRead(operations)).outcome.map(|_| ())
        };
        assert_eq!(outcome(64), Ok(()));
        assert_eq!(outcome(65), Err(ErrorCode::MarshallingError));
        assert_eq!(outcome(5000), Err(ErrorCode::MarshallingError));
    }

    #[test]
    fn the_empty_path_counts_one_more_than_the_root() {
        let mut tree = Tree::new();
        let mut count = |path: &str| {
            STRANGER.read(&mut tree, &Operation::GetAllChildrenNumber(Some(path.into()))).outcome
        };
        assert_eq!(count("/"), Ok(Body::Number(3)));
        assert_eq!(count(""), Ok(Body::Number(4)));
        assert_eq!(count("/zookeeper/quota"), Ok(Body::Number(0)));
    }
}
