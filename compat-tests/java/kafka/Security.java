// Users, what they may do, and tokens: all of it is kept in ZooKeeper, and announced there.

import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.errors.SaslAuthenticationException;
import org.apache.kafka.common.errors.TopicAuthorizationException;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.token.delegation.DelegationToken;

class Security extends Steps {
    private static final AclBinding MAY_WRITE = new AclBinding(
            new ResourcePattern(ResourceType.TOPIC, Topics.TOPIC, PatternType.LITERAL),
            new AccessControlEntry("User:alice", "*", AclOperation.WRITE,
                    AclPermissionType.ALLOW));

    static void scramAndAcl() throws Exception {
        ScramCredentialInfo kind = new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096);
        of(admin.alterUserScramCredentials(
                List.of(new UserScramCredentialUpsertion("alice", kind, "secret"))).all());
        check(data("/config/users/alice").contains("SCRAM-SHA-256"), "alice's znode");
        awaitLogin(login("alice", "secret", ""));
        try (KafkaProducer<String, String> alice = producer(login("alice", "secret", ""))) {
            // Each record goes to another partition, so both brokers have to know.
            for (int partition = 0; partition < 2; partition++) {
                int to = partition;
                Throwable refusal = refused(() -> send(alice, to));
                equal(TopicAuthorizationException.class, refusal.getClass(), "without an ACL");
            }
            of(admin.createAcls(List.of(MAY_WRITE)).all());
            await("the ACL", () -> List.of(MAY_WRITE).equals(
                    List.copyOf(of(admin.describeAcls(AclBindingFilter.ANY).values()))));
            check(data("/kafka-acl/Topic/" + Topics.TOPIC).contains("User:alice"), "its znode");
            for (int partition = 0; partition < Topics.PARTITIONS; partition++) {
                int to = partition;
                await("leave to write", () -> allowed(alice, to));
            }
        }
    }

    /** Each broker hears of a user, or of a token, by a znode that announces it. */
    private static void awaitLogin(Properties settings) throws Exception {
        for (String broker : secured.split(",")) {
            settings.put("bootstrap.servers", broker);
            await("a log-in at " + broker, () -> {
                try (Admin user = Admin.create(settings)) {
                    of(user.describeCluster().clusterId());
                    return true;
                } catch (ExecutionException thrown) {
                    equal(SaslAuthenticationException.class, thrown.getCause().getClass(),
                            "refused");
                    return false;
                }
            });
        }
        settings.put("bootstrap.servers", secured);
    }

    private static boolean allowed(KafkaProducer<String, String> producer, int partition)
            throws Exception {
        try {
            send(producer, partition);
            return true;
        } catch (ExecutionException refusal) {
            equal(TopicAuthorizationException.class, refusal.getCause().getClass(), "refused");
            return false;
        }
    }

    private static RecordMetadata send(KafkaProducer<String, String> producer, int partition)
            throws Exception {
        return producer.send(new ProducerRecord<>(Topics.TOPIC, partition, "alice", "alice"))
                .get(PATIENCE_MS, TimeUnit.MILLISECONDS);
    }

    static void delegationToken() throws Exception {
        DelegationToken token;
        try (Admin alice = Admin.create(login("alice", "secret", ""))) {
            token = of(alice.createDelegationToken().delegationToken());
        }
        String id = token.tokenInfo().tokenId();
        check(children("/delegation_token/tokens").contains(id), "the token's znode");
        Properties settings = login(id, token.hmacAsBase64String(), " tokenauth=\"true\"");
        awaitLogin(settings);
        try (KafkaProducer<String, String> holder = producer(settings)) {
            for (int partition = 0; partition < Topics.PARTITIONS; partition++) {
                send(holder, partition);
            }
        }
        of(admin.deleteAcls(List.of(AclBindingFilter.ANY)).all());
        try (KafkaProducer<String, String> alice = producer(login("alice", "secret", ""))) {
            await("no leave any more", () -> !allowed(alice, 0));
        }
    }
}
