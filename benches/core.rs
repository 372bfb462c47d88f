//! What the parts of the core cost, each by itself: the tree, reads, plans of writes, the
//! application of a revision, and the tables of watches.

use std::hint::black_box;

use bytes::Bytes;
use criterion::{BatchSize, Criterion};
use jute::Text;
use zkshim::keeper::keyspace::{self, Birth, NodeValue, ShimId, Slot};
use zkshim::keeper::overlay::{Overlay, RequestIndex};
use zkshim::keeper::planner::{Planner, SessionFence, Settings, Writer};
use zkshim::keeper::reader::Reader;
use zkshim::keeper::replica::Replica;
use zkshim::keeper::request::{
    ConnectionId, Create, CreateOpcode, Operation, Read, SessionId, SetData,
};
use zkshim::keeper::tree::record::{Kind, Record};
use zkshim::keeper::tree::{self, Tree};
use zkshim::keeper::txn::{Change, KeyValue, LeaseId, RevisionChanges};
use zkshim::keeper::watches::{Table, Watches};
use zkshim::keeper::zxid::{Revision, ZxidOffset};

const DATA: &[u8] = &[b'z'; 100];
const PARENT: &str = "/parent";
/// The flags of such a create (`CreateMode`).
const EPHEMERAL_SEQUENTIAL: i32 = 3;

fn child(number: usize) -> String {
    format!("{PARENT}/child-{number:010}")
}

/// A parent with so many children.
fn tree_of(children: usize) -> Tree {
    let mut tree = Tree::new();
    let record = || Record::blank(Kind::Persistent).with_data(DATA);
    tree.insert(PARENT, record());
    for number in 0..children {
        tree.insert(&child(number), record());
    }
    tree
}

fn trees(criterion: &mut Criterion) {
    criterion.bench_function("tree: insert 1,000 children", |bencher| {
        bencher.iter(|| tree_of(black_box(1000)));
    });
    criterion.bench_function("tree: list 1,000 children after a change", |bencher| {
        let mut tree = tree_of(1000);
        bencher.iter(|| {
            tree.remove(&child(0));
            tree.insert(&child(0), Record::blank(Kind::Persistent));
            tree.names(PARENT)
        });
    });
}

fn reads(criterion: &mut Criterion) {
    let mut tree = tree_of(100);
    let session = SessionId(1);
    let offset = ZxidOffset::default();
    let reader = Reader { session, identities: &[], skip_acl: false, offset };
    let read = |path: String| Read { path: Some(Text::from(path)), watch: false };
    let data = Operation::GetData(read(child(50)));
    criterion.bench_function("reader: getData", |bencher| {
        bencher.iter(|| reader.read(&mut tree, black_box(&data)));
    });
    let children = Operation::GetChildren(read(PARENT.to_owned()));
    criterion.bench_function("reader: getChildren of 100", |bencher| {
        bencher.iter(|| reader.read(&mut tree, black_box(&children)));
    });
}

fn plans(criterion: &mut Criterion) {
    let tree = tree_of(100);
    let settings = Settings {
        skip_acl: false,
        ttl_nodes: false,
        enforce_quota: false,
        offset: ZxidOffset::default(),
        shim: ShimId(1),
        shim_lease: LeaseId::NONE,
    };
    let (session, revision, lease) = (SessionId(1), Revision(2), LeaseId(3));
    let fence = SessionFence { session, revision, lease };
    let writer = Writer { session: Some(fence), identities: &[], unix_ms: 1 };
    let plan = |operation: &Operation| {
        let mut overlay = Overlay::new(&tree);
        Planner::new(&mut overlay, &settings, writer, RequestIndex(0)).plan(operation)
    };
    let data = Some(Bytes::from_static(DATA));
    let path = |number| Some(Text::from(child(number)));
    let create = Operation::Create(Create {
        opcode: CreateOpcode::Create,
        path: path(1000),
        data: data.clone(),
        acl: Some(tree::open_acl()),
        flags: 0,
        ttl_ms: -1,
    });
    let set = Operation::SetData(SetData { path: path(50), data, version: -1 });
    for (name, operation) in [("create", create), ("setData", set)] {
        assert!(plan(&operation).outcome.is_ok(), "{name} can be planned");
        criterion.bench_function(&format!("planner: {name}"), |bencher| {
            bencher.iter(|| plan(black_box(&operation)));
        });
    }
    let sequential = Operation::Create(Create {
        opcode: CreateOpcode::Create,
        path: Some(Text::from(child(0))),
        data: Some(Bytes::from_static(DATA)),
        acl: Some(tree::open_acl()),
        flags: EPHEMERAL_SEQUENTIAL,
        ttl_ms: -1,
    });
    // Each sees what those before it in the batch will have made.
    criterion.bench_function("planner: 64 ephemeral-sequential creates in a batch", |bencher| {
        bencher.iter(|| {
            let mut overlay = Overlay::new(&tree);
            for index in 0..64 {
                let planner = Planner::new(&mut overlay, &settings, writer, RequestIndex(index));
                assert!(planner.plan(black_box(&sequential)).outcome.is_ok());
            }
        });
    });
}

/// A revision that sets the data of so many children, and their creation.
fn sets(revision: i64, changes: usize) -> RevisionChanges {
    let value = NodeValue {
        data: Some(Bytes::from_static(DATA)),
        kind: Kind::Persistent,
        ctime: 1,
        mtime: 2,
        version: 3,
        birth: Birth::Key,
    };
    let value = value.encode();
    let put = |key: Bytes, value: Bytes| {
        let (create_revision, mod_revision) = (Revision(2), Revision(revision));
        Change::Put(KeyValue { key, value, create_revision, mod_revision, lease: LeaseId::NONE })
    };
    let child = |number| put(Slot::Node(child(number).into()).key(), value.clone());
    let mut all = vec![put(Slot::Batch(ShimId(1)).key(), keyspace::own::encode_number(7))];
    if revision == 2 {
        all.push(put(Slot::Node(PARENT.into()).key(), value.clone()));
    }
    all.extend((0..changes).map(child));
    RevisionChanges { revision: Revision(revision), changes: all }
}

fn revisions(criterion: &mut Criterion) {
    for changes in [1, 100] {
        let mut replica = Replica::new(ShimId(1));
        replica.apply(sets(2, changes));
        let mut revision = 2;
        criterion.bench_function(&format!("replica: apply {changes} setData"), |bencher| {
            bencher.iter_batched(
                || {
                    revision += 1;
                    sets(revision, changes)
                },
                |changes| replica.apply(changes),
                BatchSize::SmallInput,
            );
        });
    }
}

fn watches(criterion: &mut Criterion) {
    for watchers in [1, 1000] {
        let mut watches = Watches::default();
        let mut fired = Vec::new();
        criterion.bench_function(&format!("watches: set and fire {watchers}"), |bencher| {
            bencher.iter(|| {
                for connection in 0..watchers {
                    watches.add(Table::Data, black_box(PARENT), ConnectionId(connection));
                }
                watches.fire(Table::Data, PARENT, &mut fired);
                assert_eq!(fired.len() as u64, watchers);
            });
        });
        // Persistent ones are not used up, so that firing stands alone.
        let mut watches = Watches::default();
        for connection in 0..watchers {
            watches.add_persistent(PARENT, ConnectionId(connection));
        }
        criterion.bench_function(&format!("watches: fire {watchers}"), |bencher| {
            bencher.iter(|| {
                watches.fire(Table::Data, black_box(PARENT), &mut fired);
                assert_eq!(fired.len() as u64, watchers);
            });
        });
    }
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    trees(&mut criterion);
    reads(&mut criterion);
    plans(&mut criterion);
    revisions(&mut criterion);
    watches(&mut criterion);
    criterion.final_summary();
}
