// What two nodes of HBase, each a master and a region server, do with ZooKeeper, seen through
// HBase's own client and in the tree.
//
// Argument: ZooKeeper's connect string. The client finds HBase by the hbase-site.xml of its class
// path. Prints `ok STEP` or `failed STEP: reason` for each step. `ask WHAT` asks the test to do
// that to a node or to a ZooKeeper; it answers `done`.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.HRegionLocation;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.replication.ReplicationPeerConfig;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;

public final class HBaseSteps {
    /** How long anything may take, a session's end and the start of a node included. */
    private static final long PATIENCE_MS = 80_000;

    private static final TableName TABLE = TableName.valueOf("events");
    private static final byte[] FAMILY = Bytes.toBytes("f");

    private static final BufferedReader INPUT = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8));

    private static String server;
    private static ZooKeeper zookeeper;
    private static Connection connection;
    private static Admin admin;
    private static int failures;

    interface Step {
        void run() throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        CountDownLatch connected = new CountDownLatch(1);
        server = arguments[0].split(",")[0];
        zookeeper = new ZooKeeper(arguments[0], 20_000, event -> {
            if (event.getState() == KeeperState.SyncConnected) {
                connected.countDown();
            }
        });
        check(connected.await(PATIENCE_MS, TimeUnit.MILLISECONDS), "connected");
        step("registration", HBaseSteps::registration);
        connection = ConnectionFactory.createConnection(HBaseConfiguration.create());
        admin = connection.getAdmin();
        step("table", HBaseSteps::table);
        step("snapshot", HBaseSteps::snapshot);
        step("replication-peer", HBaseSteps::replicationPeer);
        step("server-killed", HBaseSteps::serverKilled);
        step("node-killed", HBaseSteps::nodeKilled);
        step("table-deleted", HBaseSteps::tableDeleted);
        System.exit(failures == 0 ? 0 : 1);
    }

    /** One master is in charge, one waits, and both region servers serve. */
    private static void registration() throws Exception {
        await("two nodes", () -> stat("/hbase/master") != null
                && children("/hbase/backup-masters").size() == 1
                && children("/hbase/rs").size() == 2);
        await("hbase:meta", () -> stat("/hbase/meta-region-server") != null);
        for (String name : children("/hbase/rs")) {
            check(stat("/hbase/rs/" + name).getEphemeralOwner() != 0, name + " is ephemeral");
        }
        check(stat("/hbase/master").getEphemeralOwner() != 0, "the master is ephemeral");
        equal(0L, stat("/hbase/hbaseid").getEphemeralOwner(), "the owner of the cluster's id");
    }

    private static void table() throws Exception {
        byte[][] splits = {Bytes.toBytes("3"), Bytes.toBytes("6")};
        admin.createTable(TableDescriptorBuilder.newBuilder(TABLE)
                .setColumnFamily(ColumnFamilyDescriptorBuilder.of(FAMILY)).build(), splits);
        put("first", 100);
        equal(100, rows().size(), "rows");
        admin.disableTable(TABLE);
        admin.enableTable(TABLE);
        equal(100, rows().size(), "rows of the table that was disabled");
        equal(3, connection.getRegionLocator(TABLE).getAllRegionLocations().size(), "regions");
    }

    /** All region servers take part, and meet in ZooKeeper (ZKProcedureCoordinator). */
    private static void snapshot() throws Exception {
        admin.snapshot("moment", TABLE);
        equal(1, admin.listSnapshots().size(), "snapshots");
        admin.flush(TABLE);
        admin.deleteSnapshot("moment");
        await("nothing is left of it", () -> children("/hbase/online-snapshot/acquired").isEmpty()
                && children("/hbase/online-snapshot/reached").isEmpty());
    }

    /** The other cluster is no more than its id, in the same tree. */
    private static void replicationPeer() throws Exception {
        zookeeper.create("/other", null, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        zookeeper.create("/other/hbaseid", Bytes.toBytes("4b4d3f3e-0000-0000-0000-000000000000"),
                Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        admin.addReplicationPeer("other", ReplicationPeerConfig.newBuilder()
                .setClusterKey(server + ":/other").build(), false);
        check(stat("/hbase/replication/peers/other/peer-state") != null, "the peer's znode");
        equal(1, admin.listReplicationPeers().size(), "peers");
        admin.removeReplicationPeer("other");
        equal(null, stat("/hbase/replication/peers/other"), "the removed peer's znode");
    }

    /** HBase ends a node whose session is lost, so nobody's may be. */
    private static void serverKilled() throws Exception {
        Set<String> before = new HashSet<>(children("/hbase/rs"));
        long master = stat("/hbase/master").getCzxid();
        ask("kill-server-of " + stat("/hbase/master").getEphemeralOwner());
        put("second", 20);
        equal(120, rows().size(), "rows");
        ask("start-server");
        equal(before, new HashSet<>(children("/hbase/rs")), "the region servers");
        equal(master, stat("/hbase/master").getCzxid(), "the master's znode");
    }

    /** The other master takes over, and has what the region server left put in order. */
    private static void nodeKilled() throws Exception {
        ServerName killed = admin.getMaster();
        long master = stat("/hbase/master").getCzxid();
        ask("kill-node " + killed.getPort());
        await("the other master", () -> {
            // Read once: the old one's may go at any time.
            Stat now = stat("/hbase/master");
            return now != null && now.getCzxid() > master;
        });
        await("the region server's end", () -> children("/hbase/rs").size() == 1);
        // It takes its own znode away once it is the master.
        await("no master that waits", () -> children("/hbase/backup-masters").isEmpty());
        await("all rows", () -> rows().size() == 120);
        put("third", 20);
        Set<ServerName> serving = new HashSet<>();
        for (HRegionLocation one : connection.getRegionLocator(TABLE).getAllRegionLocations()) {
            serving.add(one.getServerName());
        }
        equal(1, serving.size(), "servers of regions");
        ask("start-node " + killed.getPort());
        await("its return", () -> children("/hbase/rs").size() == 2
                && children("/hbase/backup-masters").size() == 1);
        equal(140, rows().size(), "rows");
    }

    private static void tableDeleted() throws Exception {
        admin.disableTable(TABLE);
        admin.deleteTable(TABLE);
        check(!admin.tableExists(TABLE), "the table is gone");
    }

    private static void put(String prefix, int count) throws Exception {
        try (Table table = connection.getTable(TABLE)) {
            List<Put> puts = new ArrayList<>();
            for (int i = 0; i < count; i++) {
                byte[] row = Bytes.toBytes(i % 10 + prefix + i);
                puts.add(new Put(row).addColumn(FAMILY, row, row));
            }
            table.put(puts);
        }
    }

    private static Set<String> rows() throws Exception {
        Set<String> rows = new HashSet<>();
        try (Table table = connection.getTable(TABLE);
                ResultScanner scanner = table.getScanner(new Scan())) {
            for (Result result : scanner) {
                rows.add(Bytes.toString(result.getRow()));
            }
        }
        return rows;
    }

    /** Reads again while this program's own client looks for another server. */
    private static <T> T read(Callable<T> read) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(PATIENCE_MS);
        while (true) {
            try {
                return read.call();
            } catch (KeeperException.ConnectionLossException moving) {
                check(System.nanoTime() < deadline, "there is no server");
                Thread.sleep(50);
            }
        }
    }

    private static Stat stat(String path) throws Exception {
        return read(() -> zookeeper.exists(path, false));
    }

    private static List<String> children(String path) throws Exception {
        try {
            return read(() -> zookeeper.getChildren(path, false));
        } catch (KeeperException.NoNodeException none) {
            return List.of();
        }
    }

    private static void step(String name, Step step) {
        long begin = System.nanoTime();
        try {
            step.run();
            System.out.println("ok " + name);
        } catch (Throwable reason) {
            failures++;
            reason.printStackTrace();
            System.out.println("failed " + name + ": " + reason.toString().replace('\n', ' '));
        }
        long taken = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - begin);
        System.err.println("step " + name + " took " + taken + " ms");
    }

    private static void await(String what, Callable<Boolean> holds) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(PATIENCE_MS);
        while (!holds.call()) {
            check(System.nanoTime() < deadline, what + " does not come");
            Thread.sleep(50);
        }
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
}
