// Topics: created, written, read, changed, moved, deleted.

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.zookeeper.data.Stat;

class Topics extends Steps {
    static final String TOPIC = "events";
    static final int PARTITIONS = 6;
    static final int RECORDS = 200;

    static void registration() throws Exception {
        await("two brokers", () -> children("/brokers/ids").size() == 2);
        for (int broker = 1; broker <= 2; broker++) {
            Stat stat = stat("/brokers/ids/" + broker);
            check(stat.getEphemeralOwner() != 0, "a broker's znode is ephemeral");
            // A multi makes it without data and sets the data.
            equal(1, stat.getVersion(), "the version of a broker's znode");
        }
        check(brokerEpoch(1) != brokerEpoch(2), "each broker has an epoch of its own");
        await("a controller", () -> controller() != 0);
        equal(1, controllerEpoch(), "the controller's epoch");
        Collection<Node> nodes = of(admin.describeCluster().nodes());
        equal(2, nodes.size(), "the cluster's size");
        String id = of(admin.describeCluster().clusterId());
        check(data("/cluster/id").contains(id), "the cluster's id");
    }

    static void topic() throws Exception {
        NewTopic topic = new NewTopic(TOPIC, 4, (short) 2);
        of(admin.createTopics(List.of(topic)).all());
        Throwable again = refused(() -> of(admin.createTopics(List.of(topic)).all()));
        equal(TopicExistsException.class, again.getClass(), "created again");
        of(admin.createPartitions(Map.of(TOPIC, NewPartitions.increaseTo(PARTITIONS))).all());
        await("all replicas in sync", () -> all(TOPIC, PARTITIONS, inSync(2)));
        String partitions = "/brokers/topics/" + TOPIC + "/partitions";
        equal(PARTITIONS, children(partitions).size(), "the partitions' znodes");
    }

    static void produceAndConsume() throws Exception {
        produce(settings(plain), TOPIC, "first-", RECORDS);
        Set<String> found = consume(TOPIC, "first", RECORDS);
        Set<String> expected = new HashSet<>();
        for (int i = 0; i < RECORDS; i++) {
            expected.add("first-" + i);
        }
        equal(expected, found, "what is read");
        // The ids of producers are handed out in blocks, by a versioned setData.
        check(data("/latest_producer_id_block").contains("block_end"), "the block of producers");
    }

    static void configuration() throws Exception {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, TOPIC);
        set(topic, "retention.ms", "123456789");
        check(data("/config/topics/" + TOPIC).contains("123456789"), "the topic's znode");
        // Each broker hears of it by the sequential znode that announces the change.
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "");
        set(broker, "message.max.bytes", "1234567");
        for (int id = 1; id <= 2; id++) {
            ConfigResource one = new ConfigResource(ConfigResource.Type.BROKER, "" + id);
            await("the setting at broker " + id, () -> "1234567".equals(
                    of(admin.describeConfigs(List.of(one)).all()).get(one)
                            .get("message.max.bytes").value()));
        }
        check(children("/config/changes").size() >= 2, "changes are announced");
    }

    private static void set(ConfigResource resource, String name, String value) throws Exception {
        AlterConfigOp change =
                new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
        of(admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all());
    }

    static void clientQuota() throws Exception {
        ClientQuotaEntity entity =
                new ClientQuotaEntity(Map.of(ClientQuotaEntity.CLIENT_ID, "c"));
        ClientQuotaAlteration.Op rate =
                new ClientQuotaAlteration.Op("producer_byte_rate", 1_000_000.0);
        ClientQuotaAlteration change = new ClientQuotaAlteration(entity, List.of(rate));
        of(admin.alterClientQuotas(List.of(change)).all());
        Map<ClientQuotaEntity, Map<String, Double>> found =
                of(admin.describeClientQuotas(ClientQuotaFilter.all()).entities());
        equal(Map.of(entity, Map.of("producer_byte_rate", 1_000_000.0)), found, "quotas");
    }

    static void reassignment() throws Exception {
        reassign(List.of(2), 1);
        reassign(List.of(1, 2), 2);
        equal(null, data("/admin/reassign_partitions"), "the old form of a reassignment");
    }

    private static void reassign(List<Integer> replicas, int count) throws Exception {
        Map<TopicPartition, Optional<NewPartitionReassignment>> wanted = new HashMap<>();
        for (int i = 0; i < PARTITIONS; i++) {
            wanted.put(new TopicPartition(TOPIC, i),
                    Optional.of(new NewPartitionReassignment(replicas)));
        }
        of(admin.alterPartitionReassignments(wanted).all());
        await("the reassignment's end",
                () -> of(admin.listPartitionReassignments().reassignments()).isEmpty()
                        && all(TOPIC, PARTITIONS, inSync(count)));
    }

    /** Many at once, so that the controller's writes are pipelined. */
    static void topicDeleted() throws Exception {
        List<String> names = new ArrayList<>();
        List<NewTopic> topics = new ArrayList<>();
        for (int i = 0; i < 10; i++) {
            names.add("short-lived-" + i);
            topics.add(new NewTopic("short-lived-" + i, 3, (short) 2));
        }
        ExecutorService threads = Executors.newFixedThreadPool(4);
        List<Future<Void>> created = new ArrayList<>();
        for (NewTopic topic : topics) {
            Callable<Void> create = () -> of(admin.createTopics(List.of(topic)).all());
            created.add(threads.submit(create));
        }
        for (Future<Void> one : created) {
            one.get(PATIENCE_MS, TimeUnit.MILLISECONDS);
        }
        threads.shutdown();
        names.add(TOPIC);
        of(admin.deleteTopics(names).all());
        await("the topics' end", () -> children("/admin/delete_topics").isEmpty()
                && children("/brokers/topics").equals(List.of("__consumer_offsets")));
        for (String name : names) {
            equal(null, stat("/config/topics/" + name), "the configuration of " + name);
        }
        check(of(admin.listTopics().names()).isEmpty(), "no topic is listed");
    }
}
