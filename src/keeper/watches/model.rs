//! A model of the watches that does nothing but follow the wording of the rules, and the
//! property that the tables agree with it.

use std::collections::BTreeSet;

use proptest::prelude::*;

use crate::keeper::request::ConnectionId;
use crate::keeper::watches::tests::{KINDS, pairs};
use crate::keeper::watches::{Table, WatchKind, Watches};

/// The rules word for word over one flat set.
#[derive(Debug, Default)]
struct Model {
    registered: BTreeSet<(bool, String, ConnectionId, char)>,
}

impl Model {
    fn add(&mut self, table: Table, path: &str, connection: ConnectionId, mode: char) {
        self.registered.insert((table == Table::Data, path.to_owned(), connection, mode));
    }

    fn fire(&mut self, table: Table, path: &str) -> BTreeSet<ConnectionId> {
        let data = table == Table::Data;
        let above = |ancestor: &str| {
            ancestor != path && (ancestor == "/" || path.starts_with(&format!("{ancestor}/")))
        };
        let matches = |entry: &&(bool, String, ConnectionId, char)| {
            entry.0 == data && (entry.1 == path || (entry.3 == 'R' && above(&entry.1)))
        };
        let fired = self.registered.iter().filter(matches).map(|entry| entry.2).collect();
        self.registered.retain(|(d, p, _, mode)| !(*d == data && p == path && *mode == 'S'));
        fired
    }

    fn selects(kind: WatchKind, data: bool, mode: char) -> bool {
        match kind {
            WatchKind::Children => !data && mode == 'S',
            WatchKind::Data => data && mode == 'S',
            WatchKind::Any => true,
            WatchKind::Persistent => mode == 'P',
            WatchKind::Recursive => mode == 'R',
        }
    }

    fn remove(&mut self, connection: ConnectionId, path: &str, kind: WatchKind) -> bool {
        let before = self.registered.len();
        self.registered.retain(|(data, p, c, mode)| {
            !(p == path && *c == connection && Self::selects(kind, *data, *mode))
        });
        self.registered.len() < before
    }

    fn pairs(&self, data: bool) -> BTreeSet<(ConnectionId, &str)> {
        let entries = self.registered.iter().filter(|entry| entry.0 == data);
        entries.map(|entry| (entry.2, entry.1.as_str())).collect()
    }
}

#[derive(Clone, Debug)]
enum Step {
    Add(Table),
    AddPersistent,
    AddRecursive,
    Fire(Table),
    FireDeleted,
    Remove(WatchKind),
    RemoveConnection,
}

fn step() -> impl Strategy<Value = (Step, &'static str, ConnectionId)> {
    let table = prop_oneof![Just(Table::Data), Just(Table::Child)];
    let step = prop_oneof![
        4 => table.clone().prop_map(Step::Add),
        2 => Just(Step::AddPersistent),
        2 => Just(Step::AddRecursive),
        4 => table.prop_map(Step::Fire),
        2 => Just(Step::FireDeleted),
        3 => prop::sample::select(&KINDS[..]).prop_map(Step::Remove),
        1 => Just(Step::RemoveConnection),
    ];
    let paths = prop::sample::select(&["/", "/a", "/a/b", "/a/b/c", "/ab", "/a/c"][..]);
    (step, paths, (1..5u64).prop_map(ConnectionId))
}

proptest! {
    #[test]
    fn tables_and_model_agree(steps in prop::collection::vec(step(), 0..60)) {
        let (mut watches, mut model) = (Watches::default(), Model::default());
        let mut fired = Vec::new();
        for (step, path, connection) in steps {
            match step {
                Step::Add(table) => {
                    watches.add(table, path, connection);
                    model.add(table, path, connection, 'S');
                }
                Step::AddPersistent => {
                    watches.add_persistent(path, connection);
                    model.add(Table::Data, path, connection, 'P');
                    model.add(Table::Child, path, connection, 'P');
                }
                Step::AddRecursive => {
                    watches.add_recursive(path, connection);
                    model.add(Table::Data, path, connection, 'R');
                }
                Step::Fire(table) => {
                    watches.fire(table, path, &mut fired);
                    prop_assert_eq!(&fired, &Vec::from_iter(model.fire(table, path)));
                }
                Step::FireDeleted => {
                    watches.fire_deleted(path, &mut fired);
                    let mut expected = model.fire(Table::Data, path);
                    expected.extend(model.fire(Table::Child, path));
                    prop_assert_eq!(&fired, &Vec::from_iter(expected));
                }
                Step::Remove(kind) => {
                    let was_there = watches.contains(connection, path, kind);
                    prop_assert_eq!(watches.remove(connection, path, kind), was_there);
                    prop_assert_eq!(model.remove(connection, path, kind), was_there);
                }
                Step::RemoveConnection => {
                    watches.connection_gone(connection);
                    watches.remove_gone(usize::MAX);
                    model.registered.retain(|entry| entry.2 != connection);
                }
            }
            let data = model.pairs(true);
            prop_assert_eq!(watches.total(), data.len() + model.pairs(false).len());
            prop_assert_eq!(watches.data_entries(), data.len());
            prop_assert_eq!(pairs(&watches), data.clone());
            let paths: BTreeSet<_> = data.iter().map(|pair| pair.1).collect();
            prop_assert_eq!(watches.data_paths(), paths.len());
            let connections: BTreeSet<_> = data.iter().map(|pair| pair.0).collect();
            prop_assert_eq!(watches.data_connections(), connections.len());
        }
    }
}
