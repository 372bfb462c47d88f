// What the steps lean on: clients, checks with patience, and the protocol with the test.
//
// Prints `ok STEP` or `failed STEP: reason` for each step. `ask WHAT` asks the test for trouble on
// the relay (cut, hold, release, move); it answers `done`.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.zookeeper.data.Stat;

class Steps {
    static final int SESSION_TIMEOUT_MS = 6000;

    /** How long anything may take that does not wait for a session's end. */
    static final long PATIENCE_MS = 20_000;

    private static final BufferedReader INPUT = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8));

    /** A connect string that leads straight to all servers. */
    static String direct;

    /** A connect string that leads to one server, through a relay. */
    static String relayed;

    private static int failures;

    interface Step {
        void run() throws Exception;
    }

    interface Body {
        void run(CuratorFramework client) throws Exception;
    }

    static void step(String name, Step step) {
        try {
            step.run();
            System.out.println("ok " + name);
        } catch (Throwable reason) {
            failures++;
            reason.printStackTrace();
            System.out.println("failed " + name + ": " + reason.toString().replace('\n', ' '));
        }
    }

    /** Ends the program, whatever threads a failed step has left. */
    static void end() {
        System.exit(failures == 0 ? 0 : 1);
    }

    static CuratorFramework connect(String connectString) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.builder()
                .connectString(connectString)
                .sessionTimeoutMs(SESSION_TIMEOUT_MS)
                .connectionTimeoutMs(15_000)
                .retryPolicy(new ExponentialBackoffRetry(200, 10, 2000))
                .build();
        client.start();
        check(client.blockUntilConnected((int) PATIENCE_MS, TimeUnit.MILLISECONDS), "connected");
        return client;
    }

    static CuratorFramework connect() throws Exception {
        return connect(direct);
    }

    /** Runs the same with so many clients at once. */
    static void inParallel(int count, Body body) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(count);
        List<Future<Void>> results = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            results.add(threads.submit(() -> {
                try (CuratorFramework client = connect()) {
                    body.run(client);
                }
                return null;
            }));
        }
        for (Future<Void> result : results) {
            result.get(3 * PATIENCE_MS, TimeUnit.MILLISECONDS);
        }
        threads.shutdown();
    }

    static <T> Future<T> inBackground(Callable<T> body) {
        ExecutorService thread = Executors.newSingleThreadExecutor();
        Future<T> result = thread.submit(body);
        thread.shutdown();
        return result;
    }

    static <T> T result(Future<T> future) throws Exception {
        return future.get(PATIENCE_MS, TimeUnit.MILLISECONDS);
    }

    static BlockingQueue<ConnectionState> states(CuratorFramework client) {
        BlockingQueue<ConnectionState> states = new LinkedBlockingQueue<>();
        client.getConnectionStateListenable().addListener((source, state) -> states.add(state));
        return states;
    }

    /** The next element has to be that one. */
    static <T> void expect(BlockingQueue<T> queue, T expected) throws InterruptedException {
        equal(expected, queue.poll(PATIENCE_MS, TimeUnit.MILLISECONDS), "next");
    }

    static void await(String what, Callable<Boolean> holds) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(PATIENCE_MS);
        while (!holds.call()) {
            check(System.nanoTime() < deadline, what + " does not come");
            Thread.sleep(20);
        }
    }

    /** Reads what is true now: another session's write may have gone through another server. */
    static Stat stat(CuratorFramework client, String path) throws Exception {
        fresh(client);
        return client.checkExists().forPath(path);
    }

    static void fresh(CuratorFramework client) throws Exception {
        BlockingQueue<Integer> results = new LinkedBlockingQueue<>();
        client.getZookeeperClient().getZooKeeper()
                .sync("/", (result, path, context) -> results.add(result), null);
        expect(results, 0);
    }

    static long sessionId(CuratorFramework client) throws Exception {
        return client.getZookeeperClient().getZooKeeper().getSessionId();
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] data) {
        return new String(data, StandardCharsets.UTF_8);
    }

    static void ask(String what) throws Exception {
        System.out.println("ask " + what);
        equal("done", INPUT.readLine(), "the test's answer");
    }

    static void throwsThat(Class<? extends Exception> kind, Step step) {
        try {
            step.run();
        } catch (Exception thrown) {
            equal(kind, thrown.getClass(), "thrown");
            return;
        }
        throw new IllegalStateException("nothing is thrown, not " + kind);
    }

    static void equal(Object expected, Object found, String what) {
        check(Objects.equals(expected, found), what + ": " + found + ", not " + expected);
    }

    static void check(boolean holds, String what) {
        if (!holds) {
            throw new IllegalStateException(what);
        }
    }
}
