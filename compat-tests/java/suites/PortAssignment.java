package org.apache.zookeeper;

import java.io.IOException;
import java.util.HashSet;
import java.util.Set;
import zkshim.suites.Zkshim;

/**
 * In the place of the class of ZooKeeper's tests that counts ports up from a fixed one: free ones
 * instead, so that runs side by side do not meet.
 */
public final class PortAssignment {
    private static final Set<Integer> GIVEN = new HashSet<>();

    private PortAssignment() {}

    public static synchronized int unique() {
        try {
            int port = Zkshim.freePort();
            return GIVEN.add(port) ? port : unique();
        } catch (IOException e) {
            throw new IllegalStateException("find a free port", e);
        }
    }
}
