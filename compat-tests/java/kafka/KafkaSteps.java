// What two brokers of Kafka 3.9 do with ZooKeeper, seen through their own clients and in the tree.
//
// Arguments: ZooKeeper's connect string, the brokers' plain addresses, those with a log-in.

import org.apache.kafka.clients.admin.Admin;

public final class KafkaSteps extends Steps {
    public static void main(String[] arguments) throws Exception {
        zookeeper = connect(arguments[0]);
        plain = arguments[1];
        secured = arguments[2];
        admin = Admin.create(settings(plain));
        step("registration", Topics::registration);
        step("topic", Topics::topic);
        step("produce-and-consume", Topics::produceAndConsume);
        step("configuration", Topics::configuration);
        step("client-quota", Topics::clientQuota);
        step("reassignment", Topics::reassignment);
        step("scram-and-acl", Security::scramAndAcl);
        step("delegation-token", Security::delegationToken);
        step("server-killed", Faults::serverKilled);
        step("controller-killed", Faults::controllerKilled);
        step("preferred-leader", Faults::preferredLeader);
        step("session-expired", Faults::sessionExpired);
        step("controlled-shutdown", Faults::controlledShutdown);
        step("topic-deleted", Topics::topicDeleted);
        end();
    }
}
