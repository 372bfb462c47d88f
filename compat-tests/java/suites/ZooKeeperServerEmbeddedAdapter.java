package org.apache.curator.test;

import java.io.File;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import zkshim.suites.Zkshim;

/**
 * In the place of the class of curator-test that runs a ZooKeeper inside the process: starts a
 * zkshim with the settings that a test asked for. The members of a cluster are several on one
 * etcd.
 */
public class ZooKeeperServerEmbeddedAdapter implements ZooKeeperMainFace {
    private volatile Zkshim zkshim;

    @Override
    public void start(QuorumPeerConfigBuilder config) {
        try {
            Properties properties = config.buildProperties();
            File directory = new File(properties.getProperty("dataDir"));
            int port = Integer.parseInt(properties.getProperty("clientPort"));
            int tick = Integer.parseInt(properties.getProperty("tickTime"));
            zkshim = new Zkshim("127.0.0.1", port)
                    .keptIn(directory, cluster(properties))
                    .flag("--tick-time", tick)
                    .flag("--min-session-timeout", properties.getProperty("minSessionTimeout"))
                    .flag("--max-session-timeout",
                            properties.getProperty("maxSessionTimeout", "" + 20 * tick))
                    .flag("--max-client-connections",
                            properties.getProperty("maxClientCnxns", "60"))
                    .flagOf("--container-check-interval-ms", "znode.container.checkIntervalMs")
                    .flagOf("--super-digest",
                            "zookeeper.DigestAuthenticationProvider.superDigest")
                    .switchOf("--ttl-nodes", "zookeeper.extendedTypesEnabled", "true");
            zkshim.start();
        } catch (Exception e) {
            throw new FailedServerStartException(e);
        }
    }

    /** What all members of a cluster have in common and no other server has. */
    private static String cluster(Properties properties) {
        Map<Object, String> members = new TreeMap<>();
        properties.forEach((name, value) -> {
            if (name.toString().startsWith("server.")) {
                // The client ports, at the end, may differ before all are bound.
                members.put(name, value.toString().split(";")[0]);
            }
        });
        return members.isEmpty() ? properties.getProperty("dataDir") : members.toString();
    }

    @Override
    public int getClientPort() {
        return zkshim.port();
    }

    @Override
    public void kill() {
        if (zkshim != null) {
            zkshim.kill();
        }
    }

    @Override
    public void close() {
        if (zkshim != null) {
            zkshim.stop();
        }
    }
}
