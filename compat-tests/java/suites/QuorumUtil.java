package org.apache.zookeeper.test;

import java.io.IOException;
import zkshim.suites.Ensemble;

/**
 * In the place of the class of ZooKeeper's tests that runs an ensemble inside the process. It has
 * what tests of clients use; those that look into a server find nothing.
 */
public class QuorumUtil {
    public final int N;
    public final int ALL;
    public boolean disableJMXTest;
    private final Ensemble ensemble;

    /** What a test learns of a member. */
    public static class PeerStruct {
        public int id;
        public int clientPort;
    }

    public QuorumUtil(int n, int syncLimit) {
        N = n;
        ALL = 2 * n + 1;
        try {
            ensemble = new Ensemble(ALL, ClientBase.createTmpDir(), 2000);
        } catch (IOException e) {
            throw new IllegalStateException("make an ensemble", e);
        }
    }

    public QuorumUtil(int n) {
        this(n, 3);
    }

    public PeerStruct getPeer(int id) {
        PeerStruct peer = new PeerStruct();
        peer.id = id;
        peer.clientPort = ensemble.member(id).port();
        return peer;
    }

    public void startAll() throws IOException {
        ensemble.start();
    }

    public void startQuorum() throws IOException {
        for (int i = 1; i <= N + 1; i++) {
            start(i);
        }
    }

    public void start(int id) throws IOException {
        ensemble.member(id).start();
    }

    public void restart(int id) throws IOException {
        shutdown(id);
        start(id);
    }

    public void shutdown(int id) {
        ensemble.member(id).stop();
    }

    public void shutdownAll() {
        ensemble.stop();
    }

    public void tearDown() {
        ensemble.stop();
    }

    public String getConnString() {
        return ensemble.addresses();
    }

    public String getConnectionStringForServer(int id) {
        return ensemble.address(id);
    }

    /** No member leads; the first passes for it. */
    public int getLeaderServer() {
        return 1;
    }
}
