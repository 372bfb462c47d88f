// Brokers and ZooKeeper servers that are killed, frozen and stopped.

import java.util.Set;
import java.util.function.Predicate;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartitionInfo;

class Faults extends Steps {
    /** Nobody's session is lost, and what is announced afterwards is heard. */
    static void serverKilled() throws Exception {
        long first = brokerEpoch(1);
        long second = brokerEpoch(2);
        int inCharge = controller();
        int epoch = controllerEpoch();
        long session = stat("/controller").getEphemeralOwner();
        ask("kill-server-of " + session);
        produce(settings(plain), Topics.TOPIC, "server-killed-", 20);
        Topics.configuration();
        ask("start-server");
        equal(first, brokerEpoch(1), "the first broker's epoch");
        equal(second, brokerEpoch(2), "the second broker's epoch");
        equal(inCharge, controller(), "the controller");
        equal(epoch, controllerEpoch(), "the controller's epoch");
    }

    static void controllerKilled() throws Exception {
        int killed = controller();
        int other = 3 - killed;
        int epoch = controllerEpoch();
        long brokerEpoch = brokerEpoch(killed);
        ask("kill-broker " + killed);
        await("the other controller", () -> controller() == other);
        equal(epoch + 1, controllerEpoch(), "the controller's epoch");
        await("its session's end", () -> brokerEpoch(killed) == 0);
        await("one leader for all", () -> everyPartition(ledBy(other)));
        produce(settings(plain), Topics.TOPIC, "alone-", 20);
        ask("start-broker " + killed);
        await("its return", () -> brokerEpoch(killed) > brokerEpoch);
        await("all replicas in sync", Faults::everyReplicaInSync);
        equal(other, controller(), "the controller");
    }

    /** After the reassignment, broker 1 is the preferred leader of all partitions. */
    static void preferredLeader() throws Exception {
        of(admin.electLeaders(ElectionType.PREFERRED, null).all());
        await("the preferred leader", () -> everyPartition(ledBy(1)));
        equal(null, data("/admin/preferred_replica_election"), "the old form of an election");
    }

    /** A broker that was frozen for longer than its session comes back with another. */
    static void sessionExpired() throws Exception {
        int frozen = controller();
        int other = 3 - frozen;
        long session = stat("/brokers/ids/" + frozen).getEphemeralOwner();
        ask("freeze-broker " + frozen);
        await("its session's end", () -> brokerEpoch(frozen) == 0);
        await("the other controller", () -> controller() == other);
        ask("resume-broker " + frozen);
        await("its return", () -> brokerEpoch(frozen) != 0);
        check(stat("/brokers/ids/" + frozen).getEphemeralOwner() != session, "another session");
        await("all replicas in sync", Faults::everyReplicaInSync);
        equal(other, controller(), "the controller");
        produce(settings(plain), Topics.TOPIC, "thawed-", 20);
    }

    /** A broker that is told to end hands over its partitions and closes its session. */
    static void controlledShutdown() throws Exception {
        int stopped = controller();
        int other = 3 - stopped;
        ask("stop-broker " + stopped);
        // Its session was closed before it ended, so nothing has to be waited for but the sync.
        zookeeper.sync("/", (result, path, context) -> { }, null);
        equal(0L, brokerEpoch(stopped), "the stopped broker's epoch");
        await("the other controller", () -> controller() == other);
        await("one leader for all", () -> everyPartition(ledBy(other)));
        ask("start-broker " + stopped);
        await("its return", () -> brokerEpoch(stopped) != 0);
        await("all replicas in sync", Faults::everyReplicaInSync);
        Set<String> all = consume(Topics.TOPIC, "last", Topics.RECORDS + 61);
        for (String prefix : new String[] {"server-killed-", "alone-", "thawed-"}) {
            for (int i = 0; i < 20; i++) {
                check(all.contains(prefix + i), prefix + i + " is read");
            }
        }
    }

    /** As ZooKeeper has it, too: a broker that was away tells at first what it knew before. */
    private static boolean everyReplicaInSync() throws Exception {
        for (int partition = 0; partition < Topics.PARTITIONS; partition++) {
            String partitions = "/brokers/topics/" + Topics.TOPIC + "/partitions/";
            String state = data(partitions + partition + "/state");
            if (!state.contains("\"isr\":[1,2]") && !state.contains("\"isr\":[2,1]")) {
                return false;
            }
        }
        return everyPartition(inSync(2));
    }

    private static boolean everyPartition(Predicate<TopicPartitionInfo> like) throws Exception {
        return all(Topics.TOPIC, Topics.PARTITIONS, like);
    }
}
