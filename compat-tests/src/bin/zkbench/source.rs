//! Requests of the pipelined workloads, each with what its reply must be.

use anyhow::{Context, Result, ensure};

use crate::connection::Connection;
use crate::frames::{CreateMode, Op, Reader, Reply, Stat};
use crate::workload::Workload;
use crate::znodes::DATA;

/// Children under the znode that `children` lists.
pub(crate) const CHILDREN: i32 = 100;

/// How their names start.
pub(crate) const CHILD_PREFIX: &str = "child-";

/// Of how many operations of `mixed` one is a write.
const MIXED_PERIOD: u64 = 10;

const DATA_BYTES: i32 = DATA.len() as i32;

/// Makes the requests of one connection and knows what they should have done.
#[derive(Debug)]
pub(crate) struct Source {
    workload: Workload,
    /// The znodes to use in turn; the first is the one to create under.
    znodes: Vec<Znode>,
    /// Tells the connections' creates apart.
    index: usize,
    /// Whether nobody else sets the znodes, so that their versions are known.
    sole_writer: bool,
    sent: u64,
    /// What was created, for the clean-up.
    pub(crate) created: Vec<String>,
}

/// A znode that is read or set.
#[derive(Debug)]
struct Znode {
    path: String,
    version_sent: i32,
    version_seen: i32,
}

/// What the reply to a request must show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// The standard data of the znode with this index; the version, if it is known.
    Data { znode: usize, version: Option<i32> },
    /// A `Stat` that belongs to the standard data.
    Exists,
    /// All the children.
    Children,
    /// The `Stat` after a `setData` of the znode with this index; the version, if it is known.
    Set { znode: usize, version: Option<i32> },
    /// The path of the create with this number.
    Created { number: u64 },
    /// A path with a sequence number higher than the one before.
    Sequential,
}

impl Source {
    /// The requests of the connection with this index, on at least one znode.
    pub(crate) fn new(
        workload: Workload,
        paths: Vec<String>,
        index: usize,
        sole_writer: bool,
    ) -> Self {
        let znode = |path| Znode { path, version_sent: 0, version_seen: 0 };
        let znodes = paths.into_iter().map(znode).collect();
        Self { workload, znodes, index, sole_writer, sent: 0, created: Vec::new() }
    }

    /// Queues the next request.
    pub(crate) fn queue(&mut self, connection: &mut Connection) -> (i32, Expect) {
        let number = self.sent;
        self.sent += 1;
        let path = self.path();
        match self.workload {
            Workload::Exists => {
                (connection.queue(Op::Exists { path, watch: false }), Expect::Exists)
            }
            Workload::Children => (connection.queue(Op::GetChildren { path }), Expect::Children),
            Workload::Set | Workload::SetOwn => self.queue_set(connection, number),
            Workload::Mixed if number.is_multiple_of(MIXED_PERIOD) => {
                self.queue_set(connection, number / MIXED_PERIOD)
            }
            Workload::Create => {
                let path = self.numbered(number);
                let op = Op::Create { path: &path, data: &DATA, mode: CreateMode::Persistent };
                (connection.queue(op), Expect::Created { number })
            }
            Workload::Eseq => {
                let path = format!("{path}/e-");
                let mode = CreateMode::EphemeralSequential;
                let op = Op::Create { path: &path, data: &DATA, mode };
                (connection.queue(op), Expect::Sequential)
            }
            _ => {
                let znode = self.turn(number);
                let expect = Expect::Data { znode, version: self.known_version(znode) };
                let path = &self.znodes[znode].path;
                (connection.queue(Op::GetData { path, watch: false }), expect)
            }
        }
    }

    fn queue_set(&mut self, connection: &mut Connection, number: u64) -> (i32, Expect) {
        let znode = self.turn(number);
        let xid = connection.queue(Op::SetData { path: &self.znodes[znode].path, data: &DATA });
        self.znodes[znode].version_sent += 1;
        (xid, Expect::Set { znode, version: self.known_version(znode) })
    }

    /// The znode whose turn it is.
    fn turn(&self, number: u64) -> usize {
        (number % self.znodes.len() as u64) as usize
    }

    /// The znode to create under.
    fn path(&self) -> &str {
        &self.znodes[0].path
    }

    /// The version that all requests sent so far lead to.
    fn known_version(&self, znode: usize) -> Option<i32> {
        let known = self.sole_writer || self.workload == Workload::Get;
        known.then_some(self.znodes[znode].version_sent)
    }

    fn numbered(&self, number: u64) -> String {
        format!("{}/n-{:03}-{number:08}", self.path(), self.index)
    }

    /// Holds a reply against what it must be.
    pub(crate) fn check(&mut self, expect: Expect, reply: &Reply) -> Result<()> {
        ensure!(reply.err == 0, "error code {}", reply.err);
        let mut reader = Reader::new(&reply.body);
        match expect {
            Expect::Data { znode, version } => {
                let data = reader.buffer()?.context("null data")?;
                ensure!(data == DATA, "wrong data of {} bytes", data.len());
                let stat = reader.stat()?;
                let seen = &mut self.znodes[znode].version_seen;
                ensure!(stat.version >= *seen, "version fell to {}", stat.version);
                *seen = stat.version;
                check_stat(stat, version.unwrap_or(stat.version))?;
            }
            Expect::Exists => check_stat(reader.stat()?, 0)?,
            Expect::Children => {
                let count = reader.count_strings(CHILD_PREFIX)?;
                ensure!(count == CHILDREN, "{count} children instead of {CHILDREN}");
            }
            Expect::Set { znode, version } => {
                let stat = reader.stat()?;
                let seen = &mut self.znodes[znode].version_seen;
                ensure!(stat.version > *seen, "version fell to {}", stat.version);
                *seen = stat.version;
                check_stat(stat, version.unwrap_or(stat.version))?;
            }
            Expect::Created { number } => {
                let (path, wanted) = (reader.string()?, self.numbered(number));
                ensure!(path == wanted, "created {path} instead of {wanted}");
                self.created.push(path);
            }
            Expect::Sequential => {
                let path = reader.string()?;
                check_sequence(&path, self.path(), self.created.last())?;
                self.created.push(path);
            }
        }
        reader.end()
    }
}

fn check_stat(stat: Stat, version: i32) -> Result<()> {
    let wanted = Stat { version, data_bytes: DATA_BYTES, children: 0 };
    ensure!(stat == wanted, "{stat:?} instead of {wanted:?}");
    Ok(())
}

/// Names of one width compare as their numbers do.
fn check_sequence(path: &str, parent: &str, before: Option<&String>) -> Result<()> {
    let number = path.strip_prefix(parent).and_then(|rest| rest.strip_prefix("/e-"));
    let number = number.with_context(|| format!("created {path}"))?;
    let well_formed = number.len() == 10 && number.bytes().all(|byte| byte.is_ascii_digit());
    ensure!(well_formed, "created {path}");
    let rises = before.is_none_or(|before| before.as_str() < path);
    ensure!(rises, "created {path} after {before:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut, Bytes, BytesMut};

    use super::*;

    fn source(workload: Workload) -> Source {
        Source::new(workload, vec!["/p".into(), "/q".into()], 1, true)
    }

    fn reply(body: impl FnOnce(&mut BytesMut)) -> Reply {
        let mut bytes = BytesMut::new();
        body(&mut bytes);
        Reply { xid: 1, zxid: 1, err: 0, body: bytes.freeze() }
    }

    fn put_stat(out: &mut BytesMut, version: i32, data_bytes: i32) {
        out.put_bytes(0, 32);
        out.put_i32(version);
        out.put_bytes(0, 16);
        out.put_i32(data_bytes);
        out.put_bytes(0, 12);
    }

    #[test]
    fn data_of_another_version_is_a_wrong_answer() {
        let body = |version| {
            reply(|out| {
                out.put_i32(100);
                out.put_slice(&DATA);
                put_stat(out, version, 100);
            })
        };
        let mut get = source(Workload::Get);
        assert!(get.check(Expect::Data { znode: 0, version: Some(3) }, &body(3)).is_ok());
        assert!(get.check(Expect::Data { znode: 0, version: Some(4) }, &body(3)).is_err());
        assert!(get.check(Expect::Data { znode: 0, version: None }, &body(4)).is_ok());
        assert!(get.check(Expect::Data { znode: 0, version: None }, &body(3)).is_err());
    }

    #[test]
    fn an_error_code_is_a_wrong_answer() {
        let refused = Reply { xid: 1, zxid: 1, err: -101, body: Bytes::new() };
        let told = source(Workload::Exists).check(Expect::Exists, &refused);
        assert_eq!(told.expect_err("an error").to_string(), "error code -101");
    }

    #[test]
    fn versions_must_rise_even_where_others_write() {
        let mut set = source(Workload::Set);
        let expect = Expect::Set { znode: 0, version: None };
        assert!(set.check(expect, &reply(|out| put_stat(out, 4, 100))).is_ok());
        assert!(set.check(expect, &reply(|out| put_stat(out, 4, 100))).is_err());
        assert!(set.check(expect, &reply(|out| put_stat(out, 9, 100))).is_ok());
        let other = Expect::Set { znode: 1, version: None };
        assert!(set.check(other, &reply(|out| put_stat(out, 1, 100))).is_ok());
    }

    #[test]
    fn sequence_numbers_have_ten_digits_and_rise() {
        let first = "/p/e-0000000009".to_owned();
        assert!(check_sequence(&first, "/p", None).is_ok());
        assert!(check_sequence("/p/e-0000000010", "/p", Some(&first)).is_ok());
        assert!(check_sequence("/p/e-0000000009", "/p", Some(&first)).is_err());
        assert!(check_sequence("/p/e-10", "/p", None).is_err());
        assert!(check_sequence("/q/e-0000000010", "/p", None).is_err());
    }

    #[test]
    fn a_list_must_be_complete() {
        let list = |count: i32| {
            reply(|out| {
                out.put_i32(count);
                for _ in 0..count {
                    out.put_i32(6);
                    out.put_slice(CHILD_PREFIX.as_bytes());
                }
            })
        };
        let mut children = source(Workload::Children);
        assert!(children.check(Expect::Children, &list(CHILDREN)).is_ok());
        assert!(children.check(Expect::Children, &list(CHILDREN - 1)).is_err());
    }
}
