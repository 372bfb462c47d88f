// What a Kyuubi server or engine does with ZooKeeper, by the client stack that it ships:
// registration, the watcher that de-registers, reconnect, loss of the session, lock and counters.
// The recipes are those that Kyuubi's ZookeeperDiscoveryClient uses, in its order.
//
// Arguments: a connect string that leads straight to the servers, and one through a relay.
// Prints `ok STEP` or `failed STEP: reason` for each step. `ask WHAT` asks the test for trouble on
// the relay (cut, hold, release, move); it answers `done`.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kyuubi.shaded.curator.framework.CuratorFramework;
import org.apache.kyuubi.shaded.curator.framework.CuratorFrameworkFactory;
import org.apache.kyuubi.shaded.curator.framework.api.CuratorWatcher;
import org.apache.kyuubi.shaded.curator.framework.recipes.atomic.AtomicValue;
import org.apache.kyuubi.shaded.curator.framework.recipes.atomic.DistributedAtomicInteger;
import org.apache.kyuubi.shaded.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.kyuubi.shaded.curator.framework.recipes.nodes.PersistentNode;
import org.apache.kyuubi.shaded.curator.framework.state.ConnectionState;
import org.apache.kyuubi.shaded.curator.retry.ExponentialBackoffRetry;
import org.apache.kyuubi.shaded.curator.retry.RetryForever;
import org.apache.kyuubi.shaded.zookeeper.CreateMode;
import org.apache.kyuubi.shaded.zookeeper.KeeperException.NodeExistsException;
import org.apache.kyuubi.shaded.zookeeper.WatchedEvent;
import org.apache.kyuubi.shaded.zookeeper.Watcher.Event.EventType;
import org.apache.kyuubi.shaded.zookeeper.data.Stat;

public final class KyuubiSteps {
    /** Kyuubi asks for 60 s; here the end of a session has to be waited for. */
    private static final int SESSION_TIMEOUT_MS = 6000;

    /** How long anything may take that does not wait for a session's end. */
    private static final long PATIENCE_MS = 20_000;

    private static final byte[] DATA = "127.0.0.1:10009".getBytes(StandardCharsets.UTF_8);

    private static final BufferedReader INPUT = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8));

    private final String direct;
    private final String relayed;
    private int failures;

    private KyuubiSteps(String direct, String relayed) {
        this.direct = direct;
        this.relayed = relayed;
    }

    public static void main(String[] arguments) throws Exception {
        KyuubiSteps steps = new KyuubiSteps(arguments[0], arguments[1]);
        steps.step("namespace", steps::namespace);
        steps.step("registration", steps::registration);
        steps.step("sequence", steps::sequence);
        steps.step("data-changed-then-deleted", steps::dataChangedThenDeleted);
        steps.step("own-delete-event-before-reply", steps::ownDeleteEventBeforeReply);
        steps.step("close-removes-registration", steps::closeRemovesRegistration);
        steps.step("reconnect", () -> steps.reconnect("/reconnect", "cut"));
        steps.step("move", () -> steps.reconnect("/move", "move"));
        steps.step("short-outage", steps::shortOutage);
        steps.step("session-loss", steps::sessionLoss);
        steps.step("engine-lock", steps::engineLock);
        steps.step("engine-lock-contended", steps::engineLockContended);
        steps.step("engine-lock-of-a-lost-holder", steps::engineLockOfALostHolder);
        steps.step("counter", steps::counter);
        steps.step("counter-contended", steps::counterContended);
        steps.step("lookup", steps::lookup);
        System.exit(steps.failures == 0 ? 0 : 1);
    }

    // --- 2.4: registration ---

    private void namespace() throws Exception {
        try (CuratorFramework client = connect(direct)) {
            createNamespace(client, "/namespace");
            check(client.checkExists().forPath("/namespace") != null, "the namespace is there");
            createNamespace(client, "/namespace");
            createNamespace(client, "/namespace_1.10_USER_SPARK_SQL/anna/default");
            Stat parent = client.checkExists().forPath("/namespace_1.10_USER_SPARK_SQL/anna");
            equal(1, parent.getNumChildren(), "children of the created parent");
            equal(0L, parent.getEphemeralOwner(), "owner of the created parent");
        }
    }

    private void registration() throws Exception {
        try (CuratorFramework client = connect(direct)) {
            Instance instance = new Instance(client, "/registration");
            equal("/registration/serverUri=127.0.0.1:10009;version=1.10.0;sequence=0000000000",
                    instance.path, "path");
            Stat stat = client.checkExists().forPath(instance.path);
            equal(sessionId(client), stat.getEphemeralOwner(), "owner");
            equal(new String(DATA, StandardCharsets.UTF_8),
                    text(client.getData().forPath(instance.path)), "data");
            instance.node.close();
            equal(null, client.checkExists().forPath(instance.path), "after the close");
        }
    }

    private void sequence() throws Exception {
        try (CuratorFramework client = connect(direct)) {
            for (int i = 0; i < 3; i++) {
                Instance instance = new Instance(client, "/sequence");
                check(instance.path.endsWith(";sequence=000000000" + i), instance.path);
                instance.node.close();
            }
        }
    }

    // --- 2.5: the watcher that de-registers ---

    private void dataChangedThenDeleted() throws Exception {
        try (CuratorFramework client = connect(direct);
                CuratorFramework operator = connect(direct)) {
            Instance instance = new Instance(client, "/deregister");
            fresh(operator);
            operator.setData().forPath(instance.path, DATA);
            equal(EventType.NodeDataChanged, instance.nextEvent(), "first event");
            operator.setData().forPath(instance.path, DATA);
            equal(EventType.NodeDataChanged, instance.nextEvent(), "second event");
            operator.delete().forPath(instance.path);
            equal(EventType.NodeDeleted, instance.nextEvent(), "third event");
            await("the instance has left", () -> instance.left);
            // PersistentNode may have created it once more before it was closed.
            await("it is gone", () -> stat(operator, instance.path) == null);
            Thread.sleep(1000);
            equal(null, stat(operator, instance.path), "a second later");
        }
    }

    private void ownDeleteEventBeforeReply() throws Exception {
        try (CuratorFramework client = connect(direct)) {
            String path = "/own-delete";
            client.create().withMode(CreateMode.EPHEMERAL).forPath(path, DATA);
            LinkedBlockingQueue<String> order = new LinkedBlockingQueue<>();
            client.checkExists()
                    .usingWatcher((CuratorWatcher) event -> order.add("" + event.getType()))
                    .forPath(path);
            // Watchers and background replies are called by one thread, in the order of the wire.
            client.delete().inBackground((source, event) -> order.add("reply")).forPath(path);
            equal("NodeDeleted", order.poll(PATIENCE_MS, TimeUnit.MILLISECONDS), "first");
            equal("reply", order.poll(PATIENCE_MS, TimeUnit.MILLISECONDS), "second");
        }
    }

    private void closeRemovesRegistration() throws Exception {
        try (CuratorFramework operator = connect(direct)) {
            CuratorFramework client = connect(direct);
            Instance instance = new Instance(client, "/close");
            check(stat(operator, instance.path) != null, "it is registered");
            client.close();
            equal(null, stat(operator, instance.path), "after the close's reply");
        }
    }

    // --- 2.4 and 2.6: reconnect and loss ---

    private void reconnect(String namespace, String trouble) throws Exception {
        try (CuratorFramework client = connect(relayed);
                CuratorFramework operator = connect(direct)) {
            LinkedBlockingQueue<ConnectionState> states = states(client);
            Instance instance = new Instance(client, namespace);
            Stat before = stat(operator, instance.path);
            long session = sessionId(client);
            ask(trouble);
            expect(states, ConnectionState.SUSPENDED);
            expect(states, ConnectionState.RECONNECTED);
            // PersistentNode writes its data again after each reconnect.
            equal(EventType.NodeDataChanged, instance.nextEvent(), "event");
            Stat after = stat(operator, instance.path);
            equal(session, sessionId(client), "session");
            equal(before.getCzxid(), after.getCzxid(), "czxid");
            equal(before.getEphemeralOwner(), after.getEphemeralOwner(), "owner");
            check(after.getVersion() > before.getVersion(), "the data was written again");
            operator.delete().forPath(instance.path);
            equal(EventType.NodeDeleted, instance.nextEvent(), "event after the delete");
        }
    }

    private void shortOutage() throws Exception {
        try (CuratorFramework client = connect(relayed);
                CuratorFramework operator = connect(direct)) {
            LinkedBlockingQueue<ConnectionState> states = states(client);
            Instance instance = new Instance(client, "/outage");
            Stat before = stat(operator, instance.path);
            ask("hold");
            expect(states, ConnectionState.SUSPENDED);
            Thread.sleep(SESSION_TIMEOUT_MS / 4);
            ask("release");
            expect(states, ConnectionState.RECONNECTED);
            Stat after = stat(operator, instance.path);
            equal(before.getCzxid(), after.getCzxid(), "czxid");
        }
    }

    private void sessionLoss() throws Exception {
        try (CuratorFramework client = connect(relayed);
                CuratorFramework operator = connect(direct)) {
            LinkedBlockingQueue<ConnectionState> states = states(client);
            Instance instance = new Instance(client, "/loss");
            Stat before = stat(operator, instance.path);
            ask("hold");
            await("the session's end", () -> stat(operator, instance.path) == null);
            ask("release");
            expect(states, ConnectionState.SUSPENDED);
            expect(states, ConnectionState.LOST);
            expect(states, ConnectionState.RECONNECTED);
            await("it is back", () -> stat(operator, instance.path) != null);
            Stat after = stat(operator, instance.path);
            check(after.getCzxid() > before.getCzxid(), "it was created anew");
            equal(sessionId(client), after.getEphemeralOwner(), "new owner");
            check(after.getEphemeralOwner() != before.getEphemeralOwner(), "another session");
        }
    }

    // --- 2.7: lock, counters, lookup ---

    private void engineLock() throws Exception {
        try (CuratorFramework one = connect(direct); CuratorFramework two = connect(direct)) {
            String path = "/kyuubi_1.10.0_USER_SPARK_SQL_lock/anna/default";
            InterProcessSemaphoreMutex first = new InterProcessSemaphoreMutex(one, path);
            InterProcessSemaphoreMutex second = new InterProcessSemaphoreMutex(two, path);
            check(first.acquire(PATIENCE_MS, TimeUnit.MILLISECONDS), "the first gets the lock");
            equal(1, one.getChildren().forPath(path + "/leases").size(), "leases");
            check(!second.acquire(1, TimeUnit.SECONDS), "the second has to wait");
            fresh(one);
            equal(0, one.getChildren().forPath(path + "/locks").size(), "waiting after that");
            first.release();
            check(second.acquire(PATIENCE_MS, TimeUnit.MILLISECONDS), "the second gets it");
            second.release();
            fresh(one);
            equal(0, one.getChildren().forPath(path + "/leases").size(), "leases at the end");
        }
    }

    private void engineLockContended() throws Exception {
        AtomicInteger inside = new AtomicInteger();
        AtomicInteger rounds = new AtomicInteger();
        inParallel(4, client -> {
            InterProcessSemaphoreMutex lock = new InterProcessSemaphoreMutex(client, "/contended");
            for (int i = 0; i < 5; i++) {
                check(lock.acquire(PATIENCE_MS * 2, TimeUnit.MILLISECONDS), "the lock comes");
                equal(1, inside.incrementAndGet(), "holders");
                Thread.sleep(10);
                inside.decrementAndGet();
                rounds.incrementAndGet();
                lock.release();
            }
            return null;
        });
        equal(20, rounds.get(), "rounds");
    }

    private void engineLockOfALostHolder() throws Exception {
        try (CuratorFramework two = connect(direct)) {
            CuratorFramework one = connect(direct);
            InterProcessSemaphoreMutex first = new InterProcessSemaphoreMutex(one, "/lost");
            check(first.acquire(PATIENCE_MS, TimeUnit.MILLISECONDS), "the first gets the lock");
            InterProcessSemaphoreMutex second = new InterProcessSemaphoreMutex(two, "/lost");
            ExecutorService waiter = Executors.newSingleThreadExecutor();
            Future<Boolean> acquired = waiter.submit(
                    () -> second.acquire(PATIENCE_MS, TimeUnit.MILLISECONDS));
            Thread.sleep(500);
            check(!acquired.isDone(), "the second waits");
            one.close();
            check(acquired.get(), "it gets the lock when the holder's session has ended");
            second.release();
            waiter.shutdown();
        }
    }

    private void counter() throws Exception {
        try (CuratorFramework client = connect(direct)) {
            String path = "/kyuubi_1.10.0_USER_SPARK_SQL_seqNum/anna/pool";
            for (int i = 0; i < 10; i++) {
                equal(i, getAndIncrement(client, path), "counter");
            }
            byte[] data = client.getData().forPath(path);
            equal(4, data.length, "bytes");
            equal(10, ByteBuffer.wrap(data).getInt(), "value");
            equal(9, client.checkExists().forPath(path).getVersion(), "version");
        }
    }

    private void counterContended() throws Exception {
        inParallel(4, client -> {
            for (int i = 0; i < 10; i++) {
                getAndIncrement(client, "/counter");
            }
            return null;
        });
        try (CuratorFramework client = connect(direct)) {
            fresh(client);
            equal(40, ByteBuffer.wrap(client.getData().forPath("/counter")).getInt(), "value");
        }
    }

    private void lookup() throws Exception {
        try (CuratorFramework server = connect(direct)) {
            Instance instance = new Instance(server, "/lookup");
            for (int i = 0; i < 10; i++) {
                // Every user's session opens a ZooKeeper session of its own.
                try (CuratorFramework client = connect(direct)) {
                    fresh(client);
                    List<String> names = client.getChildren().forPath("/lookup");
                    equal(1, names.size(), "instances");
                    String path = "/lookup/" + names.get(names.size() - 1);
                    equal(instance.path, path, "path");
                    equal(text(DATA), text(client.getData().forPath(path)), "data");
                }
            }
        }
    }

    // --- what the steps lean on ---

    /** A registered instance with its de-register watcher, as Kyuubi's ServiceDiscovery. */
    private static final class Instance implements CuratorWatcher {
        final CuratorFramework client;
        final PersistentNode node;
        final String path;
        final LinkedBlockingQueue<EventType> events = new LinkedBlockingQueue<>();
        volatile boolean left;

        Instance(CuratorFramework client, String namespace) throws Exception {
            this.client = client;
            createNamespace(client, namespace);
            String prefix = namespace + "/serverUri=127.0.0.1:10009;version=1.10.0;sequence=";
            node = new PersistentNode(
                    client, CreateMode.EPHEMERAL_SEQUENTIAL, false, prefix, DATA);
            node.start();
            check(node.waitForInitialCreate(120, TimeUnit.SECONDS), "the node is created");
            path = node.getActualPath();
            check(watch() != null, "the node is there for its watcher");
        }

        @Override
        public void process(WatchedEvent event) throws Exception {
            if (event.getType() == EventType.None) {
                return;
            }
            if (event.getType() == EventType.NodeDataChanged) {
                watch();
            } else if (event.getType() == EventType.NodeDeleted) {
                node.close();
                left = true;
            }
            events.add(event.getType());
        }

        private Stat watch() throws Exception {
            return client.checkExists().usingWatcher(this).forPath(path);
        }

        EventType nextEvent() throws InterruptedException {
            return events.poll(PATIENCE_MS, TimeUnit.MILLISECONDS);
        }
    }

    private static CuratorFramework connect(String connectString) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.builder()
                .connectString(connectString)
                .sessionTimeoutMs(SESSION_TIMEOUT_MS)
                .connectionTimeoutMs(15_000)
                .retryPolicy(new ExponentialBackoffRetry(1000, 3))
                .build();
        client.start();
        check(client.blockUntilConnected((int) PATIENCE_MS, TimeUnit.MILLISECONDS), "connected");
        return client;
    }

    private static void createNamespace(CuratorFramework client, String path) throws Exception {
        try {
            client.create().creatingParentsIfNeeded().withMode(CreateMode.PERSISTENT).forPath(path);
        } catch (NodeExistsException there) {
            // The usual case: another instance was first.
        }
    }

    private static int getAndIncrement(CuratorFramework client, String path) throws Exception {
        DistributedAtomicInteger counter =
                new DistributedAtomicInteger(client, path, new RetryForever(20));
        AtomicValue<Integer> value = counter.increment();
        check(value.succeeded(), "the increment succeeds");
        return value.preValue();
    }

    private interface Body {
        Void run(CuratorFramework client) throws Exception;
    }

    private void inParallel(int count, Body body) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(count);
        List<Future<Void>> results = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            results.add(threads.submit(() -> {
                try (CuratorFramework client = connect(direct)) {
                    return body.run(client);
                }
            }));
        }
        for (Future<Void> result : results) {
            result.get();
        }
        threads.shutdown();
    }

    private static LinkedBlockingQueue<ConnectionState> states(CuratorFramework client) {
        LinkedBlockingQueue<ConnectionState> states = new LinkedBlockingQueue<>();
        client.getConnectionStateListenable().addListener((source, state) -> states.add(state));
        return states;
    }

    private static void expect(LinkedBlockingQueue<ConnectionState> states, ConnectionState state)
            throws InterruptedException {
        equal(state, states.poll(PATIENCE_MS, TimeUnit.MILLISECONDS), "connection state");
    }

    private static void await(String what, Callable<Boolean> holds) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(PATIENCE_MS);
        while (!holds.call()) {
            check(System.nanoTime() < deadline, what + " does not come");
            Thread.sleep(50);
        }
    }

    /** Reads what is true now: another session's write may have gone through another server. */
    private static Stat stat(CuratorFramework client, String path) throws Exception {
        fresh(client);
        return client.checkExists().forPath(path);
    }

    private static void fresh(CuratorFramework client) throws Exception {
        LinkedBlockingQueue<Integer> results = new LinkedBlockingQueue<>();
        client.getZookeeperClient().getZooKeeper()
                .sync("/", (result, path, context) -> results.add(result), null);
        equal(0, results.poll(PATIENCE_MS, TimeUnit.MILLISECONDS), "result of the sync");
    }

    private static long sessionId(CuratorFramework client) throws Exception {
        return client.getZookeeperClient().getZooKeeper().getSessionId();
    }

    private static String text(byte[] data) {
        return new String(data, StandardCharsets.UTF_8);
    }

    private static void ask(String what) throws Exception {
        System.out.println("ask " + what);
        equal("done", INPUT.readLine(), "the test's answer");
    }

    private static void equal(Object expected, Object found, String what) {
        check(Objects.equals(expected, found), what + ": " + found + ", not " + expected);
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new IllegalStateException(what);
        }
    }

    private interface Step {
        void run() throws Exception;
    }

    private void step(String name, Step step) {
        try {
            step.run();
            System.out.println("ok " + name);
        } catch (Exception reason) {
            failures++;
            reason.printStackTrace();
            System.out.println("failed " + name + ": " + reason.toString().replace('\n', ' '));
        }
    }
}
