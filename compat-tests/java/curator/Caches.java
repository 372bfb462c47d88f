// CuratorCache and persistent watches: what is there, what changed, in order and nothing missed.

import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.cache.ChildData;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.CuratorCacheListener;
import org.apache.curator.framework.recipes.watch.PersistentWatcher;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.zookeeper.AddWatchMode;
import org.apache.zookeeper.KeeperException.NoWatcherException;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.Watcher.Event.EventType;
import org.apache.zookeeper.Watcher.WatcherType;
import org.apache.zookeeper.ZooKeeper;

final class Caches extends Steps {
    private static void fill(CuratorFramework client, String root) throws Exception {
        client.create().forPath(root, bytes("root"));
        for (String name : List.of("/a", "/a/b", "/c")) {
            client.create().forPath(root + name, bytes(name));
        }
    }

    /** Each event as text, and `initialized` for the end of the first load. */
    private static BlockingQueue<String> follow(CuratorCache cache) {
        BlockingQueue<String> seen = new LinkedBlockingQueue<>();
        cache.listenable().addListener(CuratorCacheListener.builder()
                .forInitialized(() -> seen.add("initialized"))
                .forCreates(node -> seen.add("created " + node.getPath()))
                .forChanges((old, now) -> seen.add("changed " + now.getPath() + " from "
                        + text(old.getData()) + " to " + text(now.getData())))
                .forDeletes(old -> seen.add("deleted " + old.getPath()))
                .build());
        return seen;
    }

    private static Set<String> nextFew(BlockingQueue<String> queue, int count) throws Exception {
        Set<String> seen = new TreeSet<>();
        for (int i = 0; i < count; i++) {
            seen.add(queue.poll(PATIENCE_MS, TimeUnit.MILLISECONDS));
        }
        return seen;
    }

    static void cache() throws Exception {
        try (CuratorFramework one = connect(); CuratorFramework two = connect()) {
            fill(one, "/cache");
            fresh(two);
            try (CuratorCache cache = CuratorCache.build(two, "/cache")) {
                BlockingQueue<String> seen = follow(cache);
                cache.start();
                equal(new TreeSet<>(Set.of("created /cache", "created /cache/a",
                        "created /cache/a/b", "created /cache/c")), nextFew(seen, 4), "loaded");
                expect(seen, "initialized");
                one.create().forPath("/cache/a/b/d", bytes("d"));
                expect(seen, "created /cache/a/b/d");
                one.setData().forPath("/cache/a/b/d", bytes("e"));
                expect(seen, "changed /cache/a/b/d from d to e");
                one.setData().forPath("/cache", bytes("more"));
                expect(seen, "changed /cache from root to more");
                one.delete().forPath("/cache/a/b/d");
                expect(seen, "deleted /cache/a/b/d");
                // Not below the root, though it begins like it.
                one.create().forPath("/cache-beside");
                one.transaction().forOperations(
                        one.transactionOp().create().forPath("/cache/t1", bytes("1")),
                        one.transactionOp().create().forPath("/cache/t2", bytes("2")));
                equal(new TreeSet<>(Set.of("created /cache/t1", "created /cache/t2")),
                        nextFew(seen, 2), "of one transaction");
                one.delete().deletingChildrenIfNeeded().forPath("/cache");
                equal(6, nextFew(seen, 6).size(), "deleted");
                equal(0, cache.size(), "left");
                one.create().forPath("/cache", bytes("anew"));
                expect(seen, "created /cache");
                equal(null, seen.poll(100, TimeUnit.MILLISECONDS), "one more");
            }
        }
    }

    static void cacheOfOneNode() throws Exception {
        try (CuratorFramework one = connect(); CuratorFramework two = connect()) {
            fill(one, "/cache-one");
            fresh(two);
            try (CuratorCache cache = CuratorCache.build(
                    two, "/cache-one", CuratorCache.Options.SINGLE_NODE_CACHE)) {
                BlockingQueue<String> seen = follow(cache);
                cache.start();
                expect(seen, "created /cache-one");
                expect(seen, "initialized");
                one.setData().forPath("/cache-one/a", bytes("x"));
                one.setData().forPath("/cache-one", bytes("x"));
                expect(seen, "changed /cache-one from root to x");
                equal(1, cache.size(), "nodes");
            }
        }
    }

    static void cacheAfter(String trouble) throws Exception {
        String root = "/cache-" + trouble;
        try (CuratorFramework one = connect(); CuratorFramework two = connect(relayed)) {
            fill(one, root);
            fresh(two);
            BlockingQueue<ConnectionState> states = states(two);
            try (CuratorCache cache = CuratorCache.build(two, root)) {
                BlockingQueue<String> seen = follow(cache);
                cache.start();
                nextFew(seen, 4);
                expect(seen, "initialized");
                ask(trouble);
                expect(states, ConnectionState.SUSPENDED);
                one.create().forPath(root + "/new", bytes("new"));
                one.setData().forPath(root + "/a", bytes("changed"));
                one.delete().forPath(root + "/c");
                expect(states, ConnectionState.RECONNECTED);
                equal(new TreeSet<>(Set.of("created " + root + "/new",
                        "changed " + root + "/a from /a to changed", "deleted " + root + "/c")),
                        nextFew(seen, 3), "while it was away");
                one.setData().forPath(root + "/a", bytes("again"));
                expect(seen, "changed " + root + "/a from changed to again");
            }
        }
    }

    /** Curator's replacement for the old PathChildrenCache, which reads children and data. */
    @SuppressWarnings("deprecation")
    static void cacheBridge() throws Exception {
        try (CuratorFramework one = connect(); CuratorFramework two = connect()) {
            fill(one, "/children");
            fresh(two);
            BlockingQueue<String> seen = new LinkedBlockingQueue<>();
            try (var cache = new org.apache.curator.framework.recipes.cache.PathChildrenCache(
                    two, "/children", true)) {
                cache.getListenable().addListener((client, event) -> {
                    ChildData data = event.getData();
                    seen.add(event.getType() + (data == null ? "" : " " + data.getPath()));
                });
                cache.start(org.apache.curator.framework.recipes.cache.PathChildrenCache
                        .StartMode.POST_INITIALIZED_EVENT);
                equal(new TreeSet<>(Set.of("CHILD_ADDED /children/a", "CHILD_ADDED /children/c",
                        "INITIALIZED")), nextFew(seen, 3), "loaded");
                one.create().forPath("/children/d");
                expect(seen, "CHILD_ADDED /children/d");
                one.setData().forPath("/children/d", bytes("data"));
                expect(seen, "CHILD_UPDATED /children/d");
                one.delete().forPath("/children/d");
                expect(seen, "CHILD_REMOVED /children/d");
            }
        }
    }

    static void persistentWatcher() throws Exception {
        try (CuratorFramework one = connect(); CuratorFramework two = connect(relayed)) {
            BlockingQueue<String> seen = new LinkedBlockingQueue<>();
            try (PersistentWatcher watcher = new PersistentWatcher(two, "/watched", true)) {
                BlockingQueue<String> resets = new LinkedBlockingQueue<>();
                watcher.getResetListenable().addListener(() -> resets.add("set"));
                watcher.getListenable().addListener(event -> add(seen, event));
                watcher.start();
                expect(resets, "set");
                steps(one, seen);
                ask("cut");
                expect(seen, "None null");
                expect(seen, "None null");
                expect(resets, "set");
                // An answer on the new connection shows that the client's own watches are set
                // again: "set" may still tell of the first connection.
                fresh(two);
                steps(one, seen);
            }
            one.create().forPath("/watched");
            fresh(two);
            equal(null, seen.poll(), "after the watcher is closed");
        }
    }

    private static void add(BlockingQueue<String> seen, WatchedEvent event) {
        seen.add(event.getType() + " " + event.getPath());
    }

    private static void steps(CuratorFramework one, BlockingQueue<String> seen) throws Exception {
        one.create().forPath("/watched");
        one.create().forPath("/watched/child");
        one.setData().forPath("/watched/child", bytes("data"));
        one.setData().forPath("/watched", bytes("data"));
        one.delete().deletingChildrenIfNeeded().forPath("/watched");
        expect(seen, "NodeCreated /watched");
        expect(seen, "NodeCreated /watched/child");
        expect(seen, "NodeDataChanged /watched/child");
        expect(seen, "NodeDataChanged /watched");
        expect(seen, "NodeDeleted /watched/child");
        expect(seen, "NodeDeleted /watched");
    }

    /** By the client itself: Curator's own remove leaves out what it does not know of. */
    static void addAndRemoveWatches() throws Exception {
        try (CuratorFramework one = connect(); CuratorFramework two = connect()) {
            one.create().forPath("/plain");
            fresh(two);
            ZooKeeper client = two.getZookeeperClient().getZooKeeper();
            BlockingQueue<String> seen = new LinkedBlockingQueue<>();
            Watcher watcher = event -> add(seen, event);
            client.addWatch("/plain", watcher, AddWatchMode.PERSISTENT);
            one.create().forPath("/plain/child");
            one.setData().forPath("/plain/child", bytes("unseen"));
            one.setData().forPath("/plain", bytes("seen"));
            expect(seen, "NodeChildrenChanged /plain");
            expect(seen, "NodeDataChanged /plain");
            client.removeWatches("/plain", watcher, WatcherType.Any, false);
            expect(seen, "PersistentWatchRemoved /plain");
            one.setData().forPath("/plain", bytes("unseen"));
            fresh(two);
            equal(null, seen.poll(), "after it is removed");
            throwsThat(NoWatcherException.class,
                    () -> client.removeWatches("/plain", watcher, WatcherType.Any, false));

            client.getData("/plain", watcher, null);
            client.getChildren("/plain", watcher);
            client.removeAllWatches("/plain", WatcherType.Data, false);
            expect(seen, "DataWatchRemoved /plain");
            one.setData().forPath("/plain", bytes("unseen"));
            one.create().forPath("/plain/other");
            expect(seen, "NodeChildrenChanged /plain");
            BlockingQueue<String> types = new LinkedBlockingQueue<>();
            two.watchers().add().withMode(AddWatchMode.PERSISTENT_RECURSIVE)
                    .usingWatcher((Watcher) event -> types.add("" + event.getType()))
                    .forPath("/plain");
            one.delete().forPath("/plain/other");
            expect(types, "" + EventType.NodeDeleted);
        }
    }
}
