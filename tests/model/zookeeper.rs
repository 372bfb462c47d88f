//! ZooKeeper as one reads its rules: a map of znodes, and each operation word for word.
//!
//! It is slow and knows nothing of etcd, shims or batches. The section numbers are those of the
//! protocol's description: checks in their order, then the effects.

use std::collections::BTreeMap;

use bytes::Bytes;
use jute::{Acl, Stat};
use zkshim::keeper::error::ErrorCode;
use zkshim::keeper::request::EventKind;

/// A znode. What can be counted is not stored.
#[derive(Clone, Debug)]
struct Znode {
    data: Option<Bytes>,
    acl: Vec<Acl>,
    czxid: i64,
    mzxid: i64,
    pzxid: i64,
    ctime: i64,
    mtime: i64,
    version: i32,
    aversion: i32,
    /// How many children were ever created.
    creations: i32,
    owner: i64,
}

/// Who asks, and when; `zxid` is what the transaction gets if it succeeds.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) session: i64,
    /// `digest` ids that the connection has proved.
    pub(crate) users: Vec<String>,
    pub(crate) zxid: i64,
    pub(crate) unix_ms: i64,
}

/// A change that watches are told of, with the ACLs that decide who may know: the znode's own
/// and its parent's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) kind: EventKind,
    pub(crate) path: String,
    pub(crate) acl: Vec<Acl>,
    pub(crate) parent_acl: Vec<Acl>,
}

/// See the file's text.
#[derive(Clone, Debug)]
pub(crate) struct ZooKeeper {
    znodes: BTreeMap<String, Znode>,
    /// What happened since it was taken last.
    pub(crate) told: Vec<Told>,
}

const RESERVED: [&str; 4] = ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"];

const READ: i32 = 1;
const WRITE: i32 = 2;
const CREATE: i32 = 4;
const DELETE: i32 = 8;
const ADMIN: i32 = 16;

/// How a create was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Create {
    pub(crate) path: String,
    pub(crate) data: Option<Bytes>,
    pub(crate) acl: Vec<Acl>,
    pub(crate) ephemeral: bool,
    pub(crate) sequential: bool,
}

impl ZooKeeper {
    /// A fresh server.
    pub(crate) fn new() -> Self {
        let mut znodes = BTreeMap::new();
        for path in RESERVED {
            let config = path == "/zookeeper/config";
            let znode = Znode {
                data: Some(Bytes::new()),
                acl: vec![world(if config { READ } else { 31 })],
                czxid: 0,
                mzxid: 0,
                pzxid: 0,
                ctime: 0,
                mtime: 0,
                version: 0,
                aversion: if config { -1 } else { 0 },
                creations: 0,
                owner: 0,
            };
            znodes.insert(path.to_owned(), znode);
        }
        Self { znodes, told: Vec::new() }
    }

    /// Every path.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &String> {
        self.znodes.keys()
    }

    /// The children's names, sorted.
    pub(crate) fn children(&self, path: &str) -> Vec<String> {
        let is_child = |other: &&String| *other != "/" && parent(other) == path;
        let children = self.znodes.keys().filter(is_child);
        children.map(|child| child.rsplit('/').next().unwrap_or_default().to_owned()).collect()
    }

    /// The znode's Stat.
    pub(crate) fn stat(&self, path: &str) -> Option<Stat> {
        let znode = self.znodes.get(path)?;
        let children = self.children(path).len() as i32;
        Some(Stat {
            czxid: znode.czxid,
            mzxid: znode.mzxid,
            ctime: znode.ctime,
            mtime: znode.mtime,
            version: znode.version,
            cversion: znode.creations.wrapping_mul(2).wrapping_sub(children),
            aversion: znode.aversion,
            ephemeral_owner: znode.owner,
            data_length: znode.data.as_ref().map_or(0, Bytes::len) as i32,
            num_children: children,
            pzxid: znode.pzxid,
        })
    }

    /// The znode's data and ACL.
    pub(crate) fn content(&self, path: &str) -> Option<(Option<Bytes>, Vec<Acl>)> {
        self.znodes.get(path).map(|znode| (znode.data.clone(), znode.acl.clone()))
    }

    fn permits(&self, path: &str, wanted: i32, caller: &Caller) -> Result<(), ErrorCode> {
        let acl = &self.znodes[path].acl;
        if permits(acl, wanted, &caller.users) { Ok(()) } else { Err(ErrorCode::NoAuth) }
    }

    /// 4.4, from the check of the path on.
    pub(crate) fn create(&mut self, ask: &Create, caller: &Caller) -> Result<String, ErrorCode> {
        if !ask.path.contains('/') || ask.path.contains('\0') {
            return Err(ErrorCode::BadArguments);
        }
        let acl = normal(&ask.acl, caller)?;
        let parent = parent(&ask.path).to_owned();
        let Some(above) = self.znodes.get(&parent) else { return Err(ErrorCode::NoNode) };
        let (creations, ephemeral) = (above.creations, above.owner != 0);
        self.permits(&parent, CREATE, caller)?;
        let mut path = ask.path.clone();
        if ask.sequential {
            path.push_str(&format!("{creations:010}"));
        }
        if !is_valid(&path) {
            return Err(ErrorCode::BadArguments);
        }
        if self.znodes.contains_key(&path) {
            return Err(ErrorCode::NodeExists);
        }
        if ephemeral {
            return Err(ErrorCode::NoChildrenForEphemerals);
        }
        let znode = Znode {
            data: ask.data.clone(),
            acl,
            czxid: caller.zxid,
            mzxid: caller.zxid,
            pzxid: caller.zxid,
            ctime: caller.unix_ms,
            mtime: caller.unix_ms,
            version: 0,
            aversion: 0,
            creations: 0,
            owner: if ask.ephemeral { caller.session } else { 0 },
        };
        self.znodes.insert(path.clone(), znode);
        let above = self.znodes.get_mut(&parent).expect("it was found");
        above.creations += 1;
        above.pzxid = caller.zxid;
        self.tell(EventKind::NodeCreated, &path);
        Ok(path)
    }

    /// 4.5.
    pub(crate) fn delete(
        &mut self,
        path: &str,
        version: i32,
        caller: &Caller,
    ) -> Result<(), ErrorCode> {
        if !path.contains('/') || path.contains('\0') || RESERVED.contains(&path) {
            return Err(ErrorCode::BadArguments);
        }
        let above = parent(path);
        if !self.znodes.contains_key(above) {
            return Err(ErrorCode::NoNode);
        }
        self.permits(above, DELETE, caller)?;
        let znode = self.znodes.get(path).ok_or(ErrorCode::NoNode)?;
        if version != -1 && version != znode.version {
            return Err(ErrorCode::BadVersion);
        }
        if !self.children(path).is_empty() {
            return Err(ErrorCode::NotEmpty);
        }
        self.remove(path, caller.zxid);
        Ok(())
    }

    fn remove(&mut self, path: &str, zxid: i64) {
        self.tell(EventKind::NodeDeleted, path);
        self.znodes.remove(path);
        self.znodes.get_mut(parent(path)).expect("it has a parent").pzxid = zxid;
    }

    /// 4.6.
    pub(crate) fn set_data(
        &mut self,
        path: &str,
        data: Option<Bytes>,
        version: i32,
        caller: &Caller,
    ) -> Result<Stat, ErrorCode> {
        self.check_place(path, WRITE, caller)?;
        let znode = self.znodes.get_mut(path).expect("it was found");
        if version != -1 && version != znode.version {
            return Err(ErrorCode::BadVersion);
        }
        znode.data = data;
        znode.mzxid = caller.zxid;
        znode.mtime = caller.unix_ms;
        znode.version += 1;
        self.tell(EventKind::NodeDataChanged, path);
        Ok(self.stat(path).expect("it was found"))
    }

    /// 4.6.
    pub(crate) fn set_acl(
        &mut self,
        path: &str,
        acl: &[Acl],
        version: i32,
        caller: &Caller,
    ) -> Result<Stat, ErrorCode> {
        if !is_valid(path) {
            return Err(ErrorCode::BadArguments);
        }
        let acl = normal(acl, caller)?;
        self.check_place(path, ADMIN, caller)?;
        let znode = self.znodes.get_mut(path).expect("it was found");
        if version != -1 && version != znode.aversion {
            return Err(ErrorCode::BadVersion);
        }
        znode.acl = acl;
        znode.aversion += 1;
        Ok(self.stat(path).expect("it was found"))
    }

    /// 4.6.
    pub(crate) fn check(&self, path: &str, version: i32, caller: &Caller) -> Result<(), ErrorCode> {
        self.check_place(path, READ, caller)?;
        if version != -1 && version != self.znodes[path].version {
            return Err(ErrorCode::BadVersion);
        }
        Ok(())
    }

    fn check_place(&self, path: &str, wanted: i32, caller: &Caller) -> Result<(), ErrorCode> {
        if !is_valid(path) {
            return Err(ErrorCode::BadArguments);
        }
        if !self.znodes.contains_key(path) {
            return Err(ErrorCode::NoNode);
        }
        self.permits(path, wanted, caller)
    }

    /// 8.3: all ephemerals of a session in one transaction.
    pub(crate) fn end_session(&mut self, session: i64, zxid: i64) {
        let owned = self.znodes.iter().filter(|(_, znode)| znode.owner == session);
        let owned: Vec<String> = owned.map(|(path, _)| path.clone()).collect();
        for path in owned {
            self.remove(&path, zxid);
        }
    }

    /// 4.7: whether a caller may read, for exists, getData and getChildren.
    pub(crate) fn read(&self, path: &str, caller: &Caller) -> Result<(), ErrorCode> {
        let path = if path.is_empty() { "/" } else { path };
        if !self.znodes.contains_key(path) {
            return Err(ErrorCode::NoNode);
        }
        self.permits(path, READ, caller)
    }

    fn tell(&mut self, kind: EventKind, path: &str) {
        let acl = |path: &str| self.znodes.get(path).map(|znode| znode.acl.clone());
        let acl_here = acl(path).unwrap_or_default();
        let parent_acl = acl(parent(path)).unwrap_or_default();
        self.told.push(Told { kind, path: path.to_owned(), acl: acl_here, parent_acl });
    }
}

/// 4.1: everything before the last `/`; the root for top-level znodes.
pub(crate) fn parent(path: &str) -> &str {
    match path.rfind('/') {
        None | Some(0) => "/",
        Some(at) => &path[..at],
    }
}

/// 4.1, V(path), for paths of plain letters.
fn is_valid(path: &str) -> bool {
    path == "/"
        || (path.starts_with('/')
            && !path.ends_with('/')
            && !path.contains("//")
            && !path.contains('\0')
            && path.split('/').all(|part| part != "." && part != ".."))
}

/// 4.2.
pub(crate) fn permits(acl: &[Acl], wanted: i32, users: &[String]) -> bool {
    acl.iter().any(|entry| {
        let (scheme, id) = (entry.id.scheme.as_deref(), entry.id.id.as_deref());
        let meant = match scheme {
            Some("world") => true,
            _ => users.iter().any(|user| Some(user.as_str()) == id),
        };
        entry.perms & wanted != 0 && meant
    })
}

/// 4.2: what is stored for an ACL of `world` and `auth` entries.
fn normal(acl: &[Acl], caller: &Caller) -> Result<Vec<Acl>, ErrorCode> {
    let mut stored = Vec::new();
    for (index, entry) in acl.iter().enumerate() {
        if acl[..index].contains(entry) {
            continue;
        }
        if entry.id.scheme.as_deref() == Some("auth") {
            if caller.users.is_empty() {
                return Err(ErrorCode::InvalidAcl);
            }
            stored.extend(caller.users.iter().map(|user| Acl {
                perms: entry.perms,
                id: jute::Id { scheme: Some("digest".into()), id: Some(user.as_str().into()) },
            }));
        } else {
            stored.push(entry.clone());
        }
    }
    if stored.is_empty() { Err(ErrorCode::InvalidAcl) } else { Ok(stored) }
}

fn world(perms: i32) -> Acl {
    Acl { perms, id: jute::Id { scheme: Some("world".into()), id: Some("anyone".into()) } }
}
