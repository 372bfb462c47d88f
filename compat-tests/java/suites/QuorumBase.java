package org.apache.zookeeper.test;

import java.io.IOException;
import java.util.Map;
import org.apache.zookeeper.TestableZooKeeper;
import org.apache.zookeeper.server.quorum.QuorumPeer;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import zkshim.suites.Ensemble;

/**
 * In the place of the class of ZooKeeper's tests that runs five servers inside the process. It has
 * what tests of clients use; those that look into a server find nothing.
 */
public class QuorumBase extends ClientBase {
    private Ensemble ensemble;

    @BeforeEach
    @Override
    public void setUp() throws Exception {
        setUp(false, false);
    }

    protected void setUp(boolean withObservers) throws Exception {
        setUp(withObservers, false);
    }

    protected void setUp(boolean withObservers, boolean withOracle) throws Exception {
        setupTestEnv();
        setUpAll();
        ensemble = new Ensemble(5, createTmpDir(testBaseDir, true), 2000);
        ensemble.start();
        hostPort = ensemble.addresses();
    }

    @AfterEach
    @Override
    public void tearDown() throws Exception {
        tearDownAll();
        shutdownServers();
    }

    void startServers() throws Exception {
        ensemble.start();
    }

    public void shutdownServers() {
        if (ensemble != null) {
            ensemble.stop();
        }
    }

    @Override
    protected TestableZooKeeper createClient() throws IOException, InterruptedException {
        return createClient(hostPort);
    }

    @Override
    protected TestableZooKeeper createClient(String hp) throws IOException, InterruptedException {
        return createClient(new CountdownWatcher(), hp);
    }

    /** No member leads; the first passes for the leader, the last for an observer. */
    protected TestableZooKeeper createClient(
            CountdownWatcher watcher, QuorumPeer.ServerState state)
            throws IOException, InterruptedException {
        Map<QuorumPeer.ServerState, Integer> members = Map.of(
                QuorumPeer.ServerState.LEADING, 1,
                QuorumPeer.ServerState.FOLLOWING, 2,
                QuorumPeer.ServerState.OBSERVING, 5);
        return createClient(watcher, ensemble.address(members.get(state)));
    }
}
