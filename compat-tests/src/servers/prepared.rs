//! Trees that no client could make: nodes whose data version would take days to reach.
//!
//! A real ZooKeeper gets them as a transaction log, zkshim as writes to its store.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::runtime;
use tokio::sync::mpsc;
use tokio::time::timeout;
use zkshim::keeper::keyspace::{Birth, NodeValue, Slot};
use zkshim::keeper::tree;
use zkshim::keeper::tree::record::Kind;
use zkshim::keeper::txn::{LeaseId, Op, StoreCommand, StoreEvent, Token, Txn};
use zkshim::store::{Store, StoreOptions};

use crate::conformance::wire::{open_acl, record};

/// A top-level node without data.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    /// Its path.
    pub path: &'static str,
    /// The version of its data.
    pub version: i32,
}

/// Some moment in 2023, in milliseconds since 1970.
const BIRTH_MS: i64 = 1_700_000_000_000;

/// Writes `version-2/log.1` of a data directory: a create and a setData for each node.
///
/// The layout is that of `FileTxnLog`: a header, then for each transaction its Adler-32, its
/// length, its bytes, and the byte `B`.
///
/// # Errors
/// The file cannot be written.
pub fn write_transaction_log(data_directory: &Path, nodes: &[Node]) -> Result<()> {
    let directory = data_directory.join("version-2");
    fs::create_dir_all(&directory).context("make the directory of the log")?;
    let mut log = record().raw(b"ZKLG").int(2).long(0);
    let mut zxid = 0;
    for Node { path, version } in nodes {
        let created = record().string(path).buffer(b"").acls(&open_acl()).flag(false).int(1);
        let set = record().string(path).buffer(b"").int(*version);
        for (kind, body) in [(1, created), (5, set)] {
            zxid += 1;
            // TxnHeader: client, cxid, zxid, time, type.
            let header = record().long(0).int(0).long(zxid).long(BIRTH_MS).int(kind);
            let transaction = header.raw(&body.bytes()).bytes();
            log = log.long(adler32(&transaction)).buffer(&transaction).byte(b'B');
        }
    }
    fs::write(directory.join("log.1"), log.bytes()).context("write the log")
}

fn adler32(bytes: &[u8]) -> i64 {
    const MODULUS: u32 = 65521;
    let (mut low, mut high) = (1, 0);
    for byte in bytes {
        low = (low + u32::from(*byte)) % MODULUS;
        high = (high + low) % MODULUS;
    }
    i64::from((high << 16) | low)
}

/// Writes the nodes to an empty store that no zkshim uses yet.
///
/// # Errors
/// The store cannot be opened or refuses.
pub fn write_store(options: StoreOptions, nodes: &[Node]) -> Result<()> {
    let put = |Node { path, version }: &Node| {
        let value = NodeValue {
            data: Some(bytes::Bytes::new()),
            kind: Kind::Persistent,
            ctime: BIRTH_MS,
            mtime: BIRTH_MS,
            version: *version,
            birth: Birth::Key,
        };
        let key = Slot::Node(tree::Path::from(*path)).key();
        Op::Put { key, value: value.encode(), lease: LeaseId::NONE }
    };
    let then = nodes.iter().map(put).collect();
    let txn = Txn { then, ..Txn::default() };
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("make a runtime")?.block_on(async {
        let (sender, mut events) = mpsc::channel(64);
        let store = Store::open(options, sender).await.context("open the store")?;
        store.send(StoreCommand::Commit(Token(1), txn));
        loop {
            let event = timeout(Duration::from_secs(30), events.recv()).await;
            match event.context("wait for the store")?.context("the store is gone")? {
                StoreEvent::Committed(_, Ok(_)) => break,
                StoreEvent::Committed(_, Err(error)) => bail!("write to the store: {error:?}"),
                _ => {}
            }
        }
        store.close().await;
        Ok(())
    })
}
