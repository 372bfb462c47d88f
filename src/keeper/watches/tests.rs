//! What fires for whom: the rows that were measured on a real server, by name.

use std::collections::BTreeSet;

use crate::keeper::path;
use crate::keeper::request::{ConnectionId, EventKind};
use crate::keeper::watches::{Table, WatchKind, Watches};

const A: ConnectionId = ConnectionId(1);
const B: ConnectionId = ConnectionId(2);

pub(super) const KINDS: [WatchKind; 5] = [
    WatchKind::Children,
    WatchKind::Data,
    WatchKind::Any,
    WatchKind::Persistent,
    WatchKind::Recursive,
];

/// The data table's pairs.
pub(super) fn pairs(watches: &Watches) -> BTreeSet<(ConnectionId, &str)> {
    let of = |connection| {
        let paths = watches.data_paths_of(connection).into_iter().flatten();
        paths.map(move |path| (connection, &**path))
    };
    watches.data_watchers().flat_map(of).collect()
}

type Told = (ConnectionId, EventKind, String);

/// Fires what a change of the tree fires, and keeps who is told what.
#[derive(Default)]
struct Scene {
    watches: Watches,
    told: Vec<Told>,
}

impl Scene {
    fn new(leave: impl FnOnce(&mut Watches)) -> Self {
        let mut scene = Self::default();
        leave(&mut scene.watches);
        scene
    }

    fn create(&mut self, path: &str) -> &mut Self {
        self.fire(Table::Data, EventKind::NodeCreated, path);
        self.fire(Table::Child, EventKind::NodeChildrenChanged, path::parent_or_root(path));
        self
    }

    fn delete(&mut self, path: &str) -> &mut Self {
        let mut fired = Vec::new();
        self.watches.fire_deleted(path, &mut fired);
        self.note(&fired, EventKind::NodeDeleted, path);
        self.fire(Table::Child, EventKind::NodeChildrenChanged, path::parent_or_root(path));
        self
    }

    fn set(&mut self, path: &str) -> &mut Self {
        self.fire(Table::Data, EventKind::NodeDataChanged, path);
        self
    }

    fn fire(&mut self, table: Table, kind: EventKind, path: &str) {
        let mut fired = vec![ConnectionId(99)];
        self.watches.fire(table, path, &mut fired);
        self.note(&fired, kind, path);
    }

    fn note(&mut self, fired: &[ConnectionId], kind: EventKind, path: &str) {
        self.told.extend(fired.iter().map(|connection| (*connection, kind, path.to_owned())));
    }

    /// What A was told since the last call, as the type's number and the path: `3 /x`.
    fn heard(&mut self) -> String {
        let told = std::mem::take(&mut self.told);
        let lines = told.iter().filter(|(connection, _, _)| *connection == A);
        let lines: Vec<_> =
            lines.map(|(_, kind, path)| format!("{} {path}", *kind as i32)).collect();
        lines.join(", ")
    }
}

/// What A hears of each change of `/x` and of what is below it, with the watch left anew for
/// each: created, set, deleted; child created, set, deleted; grandchild created, set, deleted.
fn heard_of_each_change(leave: fn(&mut Watches)) -> [String; 9] {
    let changes: [fn(&mut Scene) -> &mut Scene; 9] = [
        |scene| scene.create("/x"),
        |scene| scene.set("/x"),
        |scene| scene.delete("/x"),
        |scene| scene.create("/x/c"),
        |scene| scene.set("/x/c"),
        |scene| scene.delete("/x/c"),
        |scene| scene.create("/x/c/g"),
        |scene| scene.set("/x/c/g"),
        |scene| scene.delete("/x/c/g"),
    ];
    changes.map(|change| change(&mut Scene::new(leave)).heard())
}

#[test]
fn a_data_watch_hears_of_its_znode_only() {
    assert_eq!(
        heard_of_each_change(|watches| watches.add(Table::Data, "/x", A)),
        ["1 /x", "3 /x", "2 /x", "", "", "", "", "", ""]
    );
}

#[test]
fn a_child_watch_hears_of_children_and_of_deletion() {
    assert_eq!(
        heard_of_each_change(|watches| watches.add(Table::Child, "/x", A)),
        ["", "", "2 /x", "4 /x", "", "4 /x", "", "", ""]
    );
}

#[test]
fn a_persistent_watch_hears_what_both_standard_ones_hear() {
    assert_eq!(
        heard_of_each_change(|watches| watches.add_persistent("/x", A)),
        ["1 /x", "3 /x", "2 /x", "4 /x", "", "4 /x", "", "", ""]
    );
}

#[test]
fn a_recursive_watch_hears_of_everything_below_under_its_own_path() {
    assert_eq!(
        heard_of_each_change(|watches| watches.add_recursive("/x", A)),
        ["1 /x", "3 /x", "2 /x", "1 /x/c", "3 /x/c", "2 /x/c", "1 /x/c/g", "3 /x/c/g", "2 /x/c/g"]
    );
}

#[test]
fn a_standard_watch_is_used_up_by_its_first_event() {
    let mut scene = Scene::new(|watches| watches.add(Table::Data, "/miss", A));
    assert_eq!(scene.create("/miss").delete("/miss").create("/miss").heard(), "1 /miss");
    scene.watches.add(Table::Child, "/w", A);
    assert_eq!(scene.set("/w/n").create("/w/k").create("/w/k2").heard(), "4 /w");
    assert_eq!(scene.watches.total(), 0);
}

#[test]
fn leaving_a_watch_twice_is_leaving_it_once() {
    let mut scene = Scene::new(|watches| {
        watches.add(Table::Data, "/x", A);
        watches.add(Table::Data, "/x", A);
        watches.add_persistent("/p", A);
        watches.add_persistent("/p", A);
    });
    assert_eq!(scene.set("/x").set("/x").heard(), "3 /x");
    assert!(scene.watches.remove(A, "/p", WatchKind::Persistent));
    assert_eq!(scene.set("/p").create("/p/c").heard(), "");
}

#[test]
fn deletion_uses_up_data_and_child_watch_with_one_event() {
    let mut scene = Scene::new(|watches| {
        watches.add(Table::Data, "/x", A);
        watches.add(Table::Child, "/x", A);
    });
    assert_eq!(scene.delete("/x").heard(), "2 /x");
    assert!(!scene.watches.contains(A, "/x", WatchKind::Any));
}

#[test]
fn deletion_under_a_recursive_ancestor_uses_up_the_child_watch() {
    let mut scene = Scene::new(|watches| {
        watches.add_recursive("/rr", A);
        watches.add(Table::Child, "/rr/a", A);
    });
    assert_eq!(scene.delete("/rr/a").heard(), "2 /rr/a");
    assert!(!scene.watches.contains(A, "/rr/a", WatchKind::Children));
}

#[test]
fn recursive_and_persistent_together_hear_of_a_new_child_twice() {
    let mut scene = Scene::new(|watches| {
        watches.add_recursive("/x", A);
        watches.add_persistent("/x", A);
    });
    assert_eq!(scene.create("/x/c").heard(), "1 /x/c, 4 /x");
}

#[test]
fn recursive_and_child_watch_together_hear_of_a_new_child_twice() {
    let mut scene = Scene::new(|watches| {
        watches.add_recursive("/rr", A);
        watches.add(Table::Child, "/rr", A);
    });
    assert_eq!(scene.create("/rr/a").create("/rr/b").heard(), "1 /rr/a, 4 /rr, 1 /rr/b");
}

#[test]
fn all_modes_and_a_recursive_ancestor_make_one_event() {
    let mut scene = Scene::new(|watches| {
        watches.add(Table::Data, "/x", A);
        watches.add_persistent("/x", A);
        watches.add_recursive("/x", A);
        watches.add_recursive("/", A);
    });
    assert_eq!(scene.set("/x").heard(), "3 /x");
    assert_eq!(scene.set("/x").heard(), "3 /x");
    assert!(!scene.watches.contains(A, "/x", WatchKind::Data));
}

#[test]
fn a_persistent_watch_stays_through_deletion_and_creation() {
    let mut scene = Scene::new(|watches| watches.add_persistent("/pp", A));
    scene.create("/pp").set("/pp").create("/pp/c").set("/pp/c").create("/pp/c/g");
    scene.delete("/pp/c/g").delete("/pp/c").delete("/pp").create("/pp");
    assert_eq!(scene.heard(), "1 /pp, 3 /pp, 4 /pp, 4 /pp, 2 /pp, 1 /pp");
}

#[test]
fn a_recursive_watch_stays_and_never_tells_of_children_lists() {
    let mut scene = Scene::new(|watches| watches.add_recursive("/rr", A));
    scene.create("/rr").set("/rr").create("/rr/a").set("/rr/a").create("/rr/a/b");
    scene.delete("/rr/a/b").delete("/rr/a").delete("/rr").create("/rrx").create("/rr");
    assert_eq!(
        scene.heard(),
        "1 /rr, 3 /rr, 1 /rr/a, 3 /rr/a, 1 /rr/a/b, 2 /rr/a/b, 2 /rr/a, 2 /rr, 1 /rr"
    );
}

#[test]
fn a_recursive_watch_on_the_root_hears_everything() {
    let mut scene = Scene::new(|watches| watches.add_recursive("/", A));
    scene.create("/k").set("/zookeeper").set("/zookeeper/quota").set("/");
    assert_eq!(scene.heard(), "1 /k, 3 /zookeeper, 3 /zookeeper/quota, 3 /");
}

#[test]
fn the_operations_of_a_multi_fire_one_after_the_other() {
    let mut scene = Scene::new(|watches| {
        watches.add(Table::Child, "/mw", A);
        watches.add(Table::Data, "/mw/a", A);
        watches.add(Table::Data, "/mw/b", A);
    });
    scene.create("/mw/a").create("/mw/b").set("/mw/a").delete("/mw/b");
    assert_eq!(scene.heard(), "1 /mw/a, 4 /mw, 1 /mw/b");

    let mut scene = Scene::new(|watches| {
        watches.add_persistent("/mw", A);
        watches.add_recursive("/mw", A);
    });
    scene.create("/mw/c").set("/mw/c").delete("/mw/c");
    assert_eq!(scene.heard(), "1 /mw/c, 4 /mw, 3 /mw/c, 2 /mw/c, 4 /mw");
}

#[test]
fn the_ephemerals_of_a_closed_session_fire_in_pairs() {
    let mut scene = Scene::new(|watches| {
        watches.add_persistent("/p", A);
        watches.add_recursive("/p", A);
    });
    scene.delete("/p/1").delete("/p/2").delete("/p/3");
    assert_eq!(scene.heard(), "2 /p/1, 4 /p, 2 /p/2, 4 /p, 2 /p/3, 4 /p");
}

#[test]
fn paths_that_no_znode_has_never_fire() {
    let mut scene = Scene::new(|watches| {
        watches.add(Table::Data, "", A);
        watches.add_recursive("/dw/", A);
        watches.add_persistent("x//", A);
    });
    assert_eq!(scene.set("/").set("/dw").create("/dw/c").create("/x").heard(), "");
    assert_eq!(scene.watches.total(), 4);
}

#[test]
fn removing_a_data_watch_leaves_the_persistent_one() {
    let mut scene = Scene::new(|watches| {
        watches.add_persistent("/x", A);
        watches.add(Table::Data, "/x", A);
    });
    assert!(scene.watches.remove(A, "/x", WatchKind::Data));
    assert!(!scene.watches.remove(A, "/x", WatchKind::Data));
    assert_eq!(scene.set("/x").heard(), "3 /x");
}

#[test]
fn each_kind_sees_its_own_modes() {
    let found = |leave: fn(&mut Watches)| {
        let scene = Scene::new(leave);
        KINDS.map(|kind| scene.watches.contains(A, "/x", kind))
    };
    let [children, data, any, persistent, recursive] = [0, 1, 2, 3, 4];
    let only = |kinds: &[usize]| {
        [children, data, any, persistent, recursive].map(|kind| kinds.contains(&kind))
    };
    assert_eq!(found(|watches| watches.add(Table::Child, "/x", A)), only(&[children, any]));
    assert_eq!(found(|watches| watches.add(Table::Data, "/x", A)), only(&[data, any]));
    assert_eq!(found(|watches| watches.add_persistent("/x", A)), only(&[any, persistent]));
    assert_eq!(found(|watches| watches.add_recursive("/x", A)), only(&[any, recursive]));
    assert_eq!(found(|watches| watches.add_recursive("/x", B)), only(&[]));
    assert_eq!(found(|watches| watches.add_recursive("/", A)), only(&[]));
}

#[test]
fn each_kind_removes_its_own_modes_and_tells_nobody() {
    for kind in KINDS {
        let mut scene = Scene::new(|watches| {
            watches.add(Table::Data, "/x", A);
            watches.add(Table::Child, "/x", A);
            watches.add_persistent("/x", A);
            watches.add_recursive("/x", A);
            watches.add(Table::Data, "/x", B);
        });
        assert!(scene.watches.remove(A, "/x", kind), "{kind:?}");
        assert!(!scene.watches.remove(A, "/x", kind), "{kind:?}");
        for other in KINDS {
            let gone = other == kind || kind == WatchKind::Any;
            assert_eq!(scene.watches.contains(A, "/x", other), !gone, "{kind:?}, then {other:?}");
        }
        assert!(scene.watches.contains(B, "/x", WatchKind::Data));
    }
}

#[test]
fn kinds_have_the_numbers_of_the_wire() {
    let kinds = [1, 2, 3, 4, 5].map(WatchKind::from_number);
    assert_eq!(kinds, KINDS.map(Some));
    assert_eq!([0, 6, 9, -1].map(WatchKind::from_number), [None; 4]);
}

#[test]
fn a_closed_connection_takes_its_watches_along_and_no_others() {
    let mut scene = Scene::new(|watches| {
        watches.add(Table::Data, "/x", A);
        watches.add(Table::Child, "/x", A);
        watches.add_persistent("/y", A);
        watches.add_recursive("/", A);
        watches.add(Table::Data, "/x", B);
    });
    scene.watches.connection_gone(A);
    scene.watches.remove_gone(usize::MAX);
    assert_eq!(scene.watches.total(), 1);
    scene.set("/x").set("/y").create("/z");
    assert_eq!(scene.told, [(B, EventKind::NodeDataChanged, "/x".to_owned())]);
}

#[test]
fn connections_are_told_in_the_order_of_their_ids() {
    let mut watches = Watches::default();
    for id in [5, 3, 9, 1] {
        watches.add(Table::Data, "/x", ConnectionId(id));
    }
    watches.add_recursive("/", ConnectionId(4));
    watches.add_recursive("/", ConnectionId(3));
    let mut fired = Vec::new();
    watches.fire(Table::Data, "/x", &mut fired);
    assert_eq!(fired, [1, 3, 4, 5, 9].map(ConnectionId));
}

#[test]
fn counts_are_those_of_the_four_letter_words() {
    let mut watches = Watches::default();
    watches.add(Table::Child, "/c", A);
    watches.add_persistent("/p", A);
    watches.add_recursive("/p", A);
    watches.add_recursive("/r", B);
    assert_eq!(watches.total(), 4);
    assert_eq!(watches.data_entries(), 2);
    assert_eq!(watches.data_paths(), 2);
    assert_eq!(watches.data_connections(), 2);
    assert_eq!(pairs(&watches), BTreeSet::from([(A, "/p"), (B, "/r")]));
}

#[test]
fn ten_thousand_watchers_of_one_path_leave_nothing_behind() {
    let mut watches = Watches::default();
    for id in 0..10_000 {
        watches.add(Table::Data, "/x", ConnectionId(id));
    }
    let mut fired = Vec::new();
    watches.fire(Table::Data, "/x", &mut fired);
    assert_eq!(fired.len(), 10_000);
    let left = (watches.total(), watches.data_paths(), watches.data_connections());
    assert_eq!(left, (0, 0, 0));
}

#[test]
fn the_memory_of_a_connections_watches_is_counted_until_they_go() {
    let mut watches = Watches::default();
    let connection = ConnectionId(1);
    watches.add(Table::Data, "/a", connection);
    let one = watches.bytes(connection);
    assert!(one > 2);
    watches.add(Table::Data, "/a", connection);
    assert_eq!(watches.bytes(connection), one, "the same watch twice is one");
    watches.add_persistent(&"/long".repeat(1000), connection);
    assert!(watches.bytes(connection) > 2 * 5000);
    watches.remove(connection, &"/long".repeat(1000), WatchKind::Persistent);
    assert_eq!(watches.bytes(connection), one);
    watches.fire(Table::Data, "/a", &mut Vec::new());
    assert_eq!(watches.bytes(connection), 0);
}

#[test]
fn the_watches_of_a_connection_that_is_gone_go_by_and_by() {
    let mut watches = Watches::default();
    let path = |number: usize| format!("/{number}");
    for number in 0..100 {
        watches.add(Table::Data, &path(number), A);
        watches.add_recursive(&path(number), A);
        watches.add(Table::Child, &path(number), A);
        watches.add(Table::Child, &path(number), B);
    }
    let of_b = watches.bytes(B);
    assert_eq!(watches.total_bytes(), watches.bytes(A) + of_b);
    watches.connection_gone(A);
    assert_eq!((watches.bytes(A), watches.total_bytes()), (0, of_b), "it counts no more");
    watches.remove_gone(30);
    assert_eq!(watches.total(), 270);
    let mut fired = Vec::new();
    for number in 0..100 {
        watches.fire_deleted(&path(number), &mut fired);
        assert!(fired.contains(&B), "whoever is there hears of it");
    }
    while watches.has_gone() {
        watches.remove_gone(30);
    }
    let left = (watches.total(), watches.data_paths(), watches.total_bytes());
    assert_eq!(left, (0, 0, 0));
    watches.fire(Table::Data, "/1/2", &mut fired);
    assert_eq!(fired, [], "recursive ones as well");
}

#[test]
fn a_part_of_what_is_gone_is_no_more_than_was_asked_for() {
    let mut watches = Watches::default();
    for connection in [A, B] {
        for number in 0..10 {
            watches.add_persistent(&format!("/{number}"), connection);
        }
        watches.connection_gone(connection);
    }
    for left in [33, 26, 19, 12, 5, 0] {
        watches.remove_gone(7);
        assert_eq!(watches.total(), left);
    }
    assert!(!watches.has_gone());
}
