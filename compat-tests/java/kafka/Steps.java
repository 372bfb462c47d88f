// What the steps lean on: clients of Kafka and of ZooKeeper, checks with patience, and the
// protocol with the test.
//
// Prints `ok STEP` or `failed STEP: reason` for each step. `ask WHAT` asks the test to do that to
// a broker or to a ZooKeeper; it answers `done`.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Objects;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;

class Steps {
    /** How long anything may take, a session's end and the start of a broker included. */
    static final long PATIENCE_MS = 60_000;

    static final String CHROOT = "/kafka/one";

    private static final BufferedReader INPUT = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8));

    /** Where ordinary connections of the super user go. */
    static String plain;

    /** Where users have to log in. */
    static String secured;

    static ZooKeeper zookeeper;

    static Admin admin;

    private static int failures;

    interface Step {
        void run() throws Exception;
    }

    static void step(String name, Step step) {
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

    /** Ends the program, whatever threads a failed step has left. */
    static void end() {
        System.exit(failures == 0 ? 0 : 1);
    }

    static ZooKeeper connect(String connectString) throws Exception {
        CountDownLatch connected = new CountDownLatch(1);
        ZooKeeper client = new ZooKeeper(connectString, 20_000, event -> {
            if (event.getState() == KeeperState.SyncConnected) {
                connected.countDown();
            }
        });
        check(connected.await(PATIENCE_MS, TimeUnit.MILLISECONDS), "connected");
        return client;
    }

    static Properties settings(String bootstrap) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("request.timeout.ms", "30000");
        settings.put("reconnect.backoff.max.ms", "200");
        settings.put("metadata.max.age.ms", "1000");
        return settings;
    }

    /** Settings of a client that logs in by SCRAM, with a password or with a token. */
    static Properties login(String user, String password, String more) {
        Properties settings = settings(secured);
        settings.put("security.protocol", "SASL_PLAINTEXT");
        settings.put("sasl.mechanism", "SCRAM-SHA-256");
        settings.put("sasl.jaas.config", "org.apache.kafka.common.security.scram.ScramLoginModule"
                + " required username=\"" + user + "\" password=\"" + password + "\"" + more + ";");
        return settings;
    }

    static KafkaProducer<String, String> producer(Properties settings) {
        settings.put("acks", "all");
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    /** Sends so many records named after a prefix, and waits until all of them are accepted. */
    static void produce(Properties settings, String topic, String prefix, int count)
            throws Exception {
        try (KafkaProducer<String, String> producer = producer(settings)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int i = 0; i < count; i++) {
                sent.add(producer.send(new ProducerRecord<>(topic, prefix + i, prefix + i)));
            }
            for (Future<RecordMetadata> one : sent) {
                one.get(PATIENCE_MS, TimeUnit.MILLISECONDS);
            }
        }
    }

    /** What a group that has read nothing yet finds; at least so many records. */
    static Set<String> consume(String topic, String group, int count) {
        Properties settings = settings(plain);
        settings.put("group.id", group);
        settings.put("auto.offset.reset", "earliest");
        Set<String> found = new HashSet<>();
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(PATIENCE_MS);
            while (found.size() < count && System.nanoTime() < deadline) {
                for (ConsumerRecord<String, String> one : consumer.poll(Duration.ofMillis(200))) {
                    found.add(one.value());
                }
            }
            consumer.commitSync();
        }
        return found;
    }

    /** The partitions as some broker knows them: none if it has not heard of the topic yet. */
    static List<TopicPartitionInfo> partitions(String topic) throws Exception {
        try {
            return of(admin.describeTopics(List.of(topic)).allTopicNames()).get(topic).partitions();
        } catch (ExecutionException thrown) {
            equal(UnknownTopicOrPartitionException.class, thrown.getCause().getClass(), "thrown");
            return List.of();
        }
    }

    /** Whether all of so many partitions are like that. */
    static boolean all(String topic, int count, Predicate<TopicPartitionInfo> like)
            throws Exception {
        List<TopicPartitionInfo> partitions = partitions(topic);
        return partitions.size() == count && partitions.stream().allMatch(like);
    }

    /** Whether a partition has so many replicas, all of them in sync. */
    static Predicate<TopicPartitionInfo> inSync(int replicas) {
        return partition -> partition.leader() != null && partition.isr().size() == replicas
                && partition.replicas().size() == replicas;
    }

    static Predicate<TopicPartitionInfo> ledBy(int broker) {
        return partition -> partition.leader() != null && partition.leader().id() == broker;
    }

    static <T> T of(KafkaFuture<T> future) throws Exception {
        return future.get(PATIENCE_MS, TimeUnit.MILLISECONDS);
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

    /** The data of a znode, or null if there is none. */
    static String data(String path) throws Exception {
        try {
            byte[] data = read(() -> zookeeper.getData(CHROOT + path, false, null));
            return data == null ? "" : new String(data, StandardCharsets.UTF_8);
        } catch (KeeperException.NoNodeException none) {
            return null;
        }
    }

    static Stat stat(String path) throws Exception {
        return read(() -> zookeeper.exists(CHROOT + path, false));
    }

    static List<String> children(String path) throws Exception {
        try {
            return read(() -> zookeeper.getChildren(CHROOT + path, false));
        } catch (KeeperException.NoNodeException none) {
            return List.of();
        }
    }

    /** The broker that is in charge, or 0. */
    static int controller() throws Exception {
        String data = data("/controller");
        if (data == null) {
            return 0;
        }
        return data.contains("\"brokerid\":1,") ? 1 : 2;
    }

    static int controllerEpoch() throws Exception {
        return Integer.parseInt(data("/controller_epoch"));
    }

    /** Kafka's broker epoch, or 0 if the broker is not registered. */
    static long brokerEpoch(int broker) throws Exception {
        Stat stat = stat("/brokers/ids/" + broker);
        return stat == null ? 0 : stat.getCzxid();
    }

    static void await(String what, Callable<Boolean> holds) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(PATIENCE_MS);
        while (!holds.call()) {
            check(System.nanoTime() < deadline, what + " does not come");
            Thread.sleep(50);
        }
    }

    static void ask(String what) throws Exception {
        System.out.println("ask " + what);
        equal("done", INPUT.readLine(), "the test's answer");
    }

    /** The cause of a failed future. */
    static Throwable refused(Callable<?> body) throws Exception {
        try {
            body.call();
        } catch (ExecutionException thrown) {
            return thrown.getCause();
        }
        throw new IllegalStateException("it is not refused");
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
