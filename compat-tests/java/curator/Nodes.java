// Znodes of every kind: who keeps them there, when they go, in one step or not at all.

import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.api.transaction.CuratorTransactionResult;
import org.apache.curator.framework.api.transaction.OperationType;
import org.apache.curator.framework.recipes.nodes.GroupMember;
import org.apache.curator.framework.recipes.nodes.PersistentNode;
import org.apache.curator.framework.recipes.nodes.PersistentTtlNode;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.KeeperException.BadVersionException;
import org.apache.zookeeper.KeeperException.InvalidACLException;
import org.apache.zookeeper.KeeperException.NoAuthException;
import org.apache.zookeeper.KeeperException.NoChildrenForEphemeralsException;
import org.apache.zookeeper.KeeperException.NoNodeException;
import org.apache.zookeeper.KeeperException.NodeExistsException;
import org.apache.zookeeper.KeeperException.NotEmptyException;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooDefs.Perms;
import org.apache.zookeeper.data.ACL;
import org.apache.zookeeper.data.Id;
import org.apache.zookeeper.data.Stat;

final class Nodes extends Steps {
    static void persistentNode() throws Exception {
        try (CuratorFramework client = connect(); CuratorFramework other = connect()) {
            try (PersistentNode node = new PersistentNode(
                    client, CreateMode.EPHEMERAL, false, "/kept/node", bytes("one"))) {
                node.start();
                check(node.waitForInitialCreate(PATIENCE_MS, TimeUnit.MILLISECONDS), "created");
                Stat before = stat(other, "/kept/node");
                equal(sessionId(client), before.getEphemeralOwner(), "owner");
                other.delete().forPath("/kept/node");
                await("it is back", () -> {
                    Stat after = stat(other, "/kept/node");
                    return after != null && after.getCzxid() > before.getCzxid();
                });
                node.setData(bytes("two"));
                await("the new data", () -> {
                    fresh(other);
                    return "two".equals(text(other.getData().forPath("/kept/node")));
                });
                node.close();
                equal(null, stat(other, "/kept/node"), "after the close");
                check(stat(other, "/kept") != null, "the parent is there");
            }
        }
    }

    static void persistentNodeAfterASessionLoss() throws Exception {
        try (CuratorFramework client = connect(relayed); CuratorFramework other = connect()) {
            BlockingQueue<ConnectionState> states = states(client);
            try (PersistentNode node = new PersistentNode(
                    client, CreateMode.EPHEMERAL, false, "/kept-lost", bytes("data"))) {
                node.start();
                check(node.waitForInitialCreate(PATIENCE_MS, TimeUnit.MILLISECONDS), "created");
                Stat before = stat(other, "/kept-lost");
                ask("hold");
                expect(states, ConnectionState.SUSPENDED);
                await("it goes with the session", () -> stat(other, "/kept-lost") == null);
                ask("release");
                await("it is back", () -> stat(other, "/kept-lost") != null);
                Stat after = stat(other, "/kept-lost");
                equal(sessionId(client), after.getEphemeralOwner(), "new owner");
                check(before.getEphemeralOwner() != after.getEphemeralOwner(), "another session");
                expect(states, ConnectionState.LOST);
                expect(states, ConnectionState.RECONNECTED);
            }
        }
    }

    static void groupMember() throws Exception {
        try (CuratorFramework two = connect()) {
            CuratorFramework one = connect();
            GroupMember first = new GroupMember(one, "/group", "first", bytes("1"));
            try (GroupMember second = new GroupMember(two, "/group", "second", bytes("2"))) {
                first.start();
                second.start();
                for (GroupMember member : List.of(first, second)) {
                    await("both", () -> member.getCurrentMembers().keySet()
                            .equals(Set.of("first", "second")));
                }
                first.setThisData(bytes("3"));
                await("the first's data", () -> "3".equals(
                        text(second.getCurrentMembers().get("first"))));
                one.close();
                await("the first's leaving", () -> second.getCurrentMembers().size() == 1);
            }
        }
    }

    static void transaction() throws Exception {
        try (CuratorFramework client = connect()) {
            List<CuratorTransactionResult> results = client.transaction().forOperations(
                    client.transactionOp().create().forPath("/tx", bytes("parent")),
                    client.transactionOp().create()
                            .withMode(CreateMode.PERSISTENT_SEQUENTIAL).forPath("/tx/n-"),
                    client.transactionOp().create()
                            .withMode(CreateMode.EPHEMERAL).forPath("/tx/ephemeral"),
                    client.transactionOp().setData().forPath("/tx", bytes("changed")),
                    client.transactionOp().check().withVersion(1).forPath("/tx"),
                    client.transactionOp().create().forPath("/tx/short-lived"),
                    client.transactionOp().delete().forPath("/tx/short-lived"));
            List<OperationType> types = new ArrayList<>();
            results.forEach(result -> types.add(result.getType()));
            equal(List.of(OperationType.CREATE, OperationType.CREATE, OperationType.CREATE,
                    OperationType.SET_DATA, OperationType.CHECK, OperationType.CREATE,
                    OperationType.DELETE), types, "types");
            equal("/tx/n-0000000000", results.get(1).getResultPath(), "sequential path");
            Stat stat = client.checkExists().forPath("/tx");
            equal(stat.getVersion(), results.get(3).getResultStat().getVersion(), "version");
            equal(1, stat.getVersion(), "version");
            equal(4, stat.getCversion(), "cversion");
            equal(2, stat.getNumChildren(), "children");
            equal(stat.getCzxid(), stat.getMzxid(), "one zxid");
            equal(stat.getCzxid(), stat.getPzxid(), "one zxid");
            equal(stat.getCzxid(), client.checkExists().forPath("/tx/ephemeral").getCzxid(),
                    "one zxid");
        }
    }

    static void transactionRollsBack() throws Exception {
        try (CuratorFramework client = connect()) {
            client.create().forPath("/tx-back", bytes("data"));
            long mzxid = client.checkExists().forPath("/tx-back").getMzxid();
            try {
                client.transaction().forOperations(
                        client.transactionOp().create().forPath("/tx-back/child"),
                        client.transactionOp().setData().forPath("/tx-back", bytes("other")),
                        client.transactionOp().check().withVersion(7).forPath("/tx-back"),
                        client.transactionOp().delete().forPath("/tx-back/child"));
                throw new IllegalStateException("the check does not fail");
            } catch (BadVersionException failed) {
                List<Integer> codes = new ArrayList<>();
                failed.getResults().forEach(result -> codes.add(
                        ((org.apache.zookeeper.OpResult.ErrorResult) result).getErr()));
                equal(List.of(0, 0, KeeperException.Code.BADVERSION.intValue(),
                        KeeperException.Code.RUNTIMEINCONSISTENCY.intValue()), codes, "codes");
            }
            equal(0, client.getChildren().forPath("/tx-back").size(), "children");
            equal("data", text(client.getData().forPath("/tx-back")), "data");
            equal(mzxid, client.checkExists().forPath("/tx-back").getMzxid(), "mzxid");
        }
    }

    static void createModes() throws Exception {
        try (CuratorFramework client = connect()) {
            Stat created = new Stat();
            equal("/modes/a/b", client.create().storingStatIn(created)
                    .creatingParentContainersIfNeeded().forPath("/modes/a/b", bytes("b")), "path");
            equal(client.checkExists().forPath("/modes/a/b"), created, "stat of the create");
            for (int i = 0; i < 3; i++) {
                equal("/modes/s-000000000" + (i + 1), client.create()
                        .withMode(CreateMode.PERSISTENT_SEQUENTIAL).forPath("/modes/s-"), "path");
            }
            String path = client.create().withProtection()
                    .withMode(CreateMode.EPHEMERAL_SEQUENTIAL).forPath("/modes/p-");
            check(path.matches("/modes/_c_[-0-9a-f]{36}-p-0000000004"), path);
            throwsThat(NodeExistsException.class, () -> client.create().forPath("/modes/a"));
            throwsThat(NoNodeException.class, () -> client.create().forPath("/absent/a"));
            throwsThat(NoChildrenForEphemeralsException.class,
                    () -> client.create().forPath(path + "/child"));
            throwsThat(NotEmptyException.class, () -> client.delete().forPath("/modes/a"));
            throwsThat(BadVersionException.class,
                    () -> client.setData().withVersion(4).forPath("/modes/a", bytes("")));
            client.create().orSetData().forPath("/modes/a/b", bytes("again"));
            equal("again", text(client.getData().forPath("/modes/a/b")), "data");
            client.delete().quietly().forPath("/modes/nothing");
            client.delete().guaranteed().deletingChildrenIfNeeded().forPath("/modes");
            equal(null, client.checkExists().forPath("/modes"), "after the delete");
        }
    }

    static void containerGoes() throws Exception {
        try (CuratorFramework client = connect()) {
            client.createContainers("/container");
            // Containers and TTL nodes have a mark for an owner, which no client is told.
            equal(0L, client.checkExists().forPath("/container").getEphemeralOwner(), "owner");
            client.create().forPath("/container/child");
            Thread.sleep(1500);
            check(client.checkExists().forPath("/container") != null, "it has a child");
            client.delete().forPath("/container/child");
            await("the container goes", () -> stat(client, "/container") == null);
        }
    }

    static void ttlGoes() throws Exception {
        try (CuratorFramework client = connect()) {
            client.create().withTtl(1000).withMode(CreateMode.PERSISTENT_WITH_TTL)
                    .forPath("/ttl", bytes("data"));
            equal(0L, client.checkExists().forPath("/ttl").getEphemeralOwner(), "owner");
            String sequential = client.create().withTtl(600_000)
                    .withMode(CreateMode.PERSISTENT_SEQUENTIAL_WITH_TTL).forPath("/ttl-");
            check(sequential.matches("/ttl-\\d{10}"), sequential);
            await("it goes", () -> stat(client, "/ttl") == null);
            check(stat(client, sequential) != null, "the other is there");
        }
    }

    static void persistentTtlNode() throws Exception {
        try (CuratorFramework client = connect(); CuratorFramework other = connect()) {
            PersistentTtlNode node =
                    new PersistentTtlNode(client, "/ttl-node", 2000, bytes("data"));
            node.start();
            check(node.waitForInitialCreate(PATIENCE_MS, TimeUnit.MILLISECONDS), "created");
            // It is touched in time, again and again.
            Thread.sleep(4500);
            check(stat(other, "/ttl-node") != null, "it is kept");
            client.close();
            await("left alone, it goes", () -> stat(other, "/ttl-node") == null);
        }
    }

    static void acl() throws Exception {
        try (CuratorFramework anyone = connect();
                CuratorFramework owner = CuratorFrameworkFactory.builder()
                        .connectString(direct)
                        .sessionTimeoutMs(SESSION_TIMEOUT_MS)
                        .retryPolicy(new ExponentialBackoffRetry(200, 10))
                        .authorization("digest", bytes("user:password"))
                        .build()) {
            owner.start();
            owner.create().withACL(Ids.CREATOR_ALL_ACL).forPath("/guarded", bytes("secret"));
            fresh(anyone);
            throwsThat(NoAuthException.class, () -> anyone.getData().forPath("/guarded"));
            throwsThat(NoAuthException.class, () -> anyone.getACL().forPath("/guarded"));
            throwsThat(NoAuthException.class, () -> anyone.create().forPath("/guarded/child"));
            throwsThat(InvalidACLException.class,
                    () -> anyone.create().withACL(Ids.CREATOR_ALL_ACL).forPath("/no-creator"));
            List<ACL> acl = owner.getACL().forPath("/guarded");
            Id user = new Id("digest", "user:tpUq/4Pn5A64fVZyQ0gOJ8ZWqkY=");
            equal(List.of(new ACL(Perms.ALL, user)), acl, "the creator's ACL");
            List<ACL> changed = new ArrayList<>(acl);
            changed.add(new ACL(Perms.READ, Ids.ANYONE_ID_UNSAFE));
            equal(1, owner.setACL().withVersion(0).withACL(changed).forPath("/guarded")
                    .getAversion(), "aversion");
            fresh(anyone);
            equal("secret", text(anyone.getData().forPath("/guarded")), "data");
            equal("user:x", anyone.getACL().forPath("/guarded").get(0).getId().getId(), "masked");
            throwsThat(NoAuthException.class,
                    () -> anyone.setData().forPath("/guarded", bytes("mine")));
        }
    }
}
