package zkshim.suites;

import java.io.File;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.List;
import java.util.Map;
import org.apache.zookeeper.server.ServerCnxn;
import org.apache.zookeeper.server.ServerCnxnFactory;
import org.apache.zookeeper.server.ZooKeeperServer;

/**
 * Where ZooKeeper's tests would open a client port for a server inside themselves, this starts a
 * zkshim on that port. The server that it is handed is asked for its settings and never started.
 */
public class StandInFactory extends ServerCnxnFactory {
    private InetSocketAddress address;
    private int clientsMax;
    private Zkshim zkshim;

    @Override
    public void configure(InetSocketAddress address, int clientsMax, int backlog, boolean secure)
            throws IOException {
        if (secure) {
            throw new IOException("zkshim has no TLS port");
        }
        this.address = address;
        this.clientsMax = clientsMax;
    }

    @Override
    public void startup(ZooKeeperServer server, boolean start)
            throws IOException, InterruptedException {
        setZooKeeperServer(server);
        boolean any = address.getAddress().isAnyLocalAddress();
        // Without a scope (%lo).
        String host = any ? "127.0.0.1" : address.getAddress().getHostAddress().split("%")[0];
        File directory = server.getTxnLogFactory().getDataLogDir();
        zkshim = new Zkshim(host.contains(":") ? "[" + host + "]" : host, address.getPort())
                .keptIn(directory, directory.getPath())
                .flag("--tick-time", server.getTickTime())
                .flag("--min-session-timeout", server.getMinSessionTimeout())
                .flag("--max-session-timeout", server.getMaxSessionTimeout())
                .flag("--max-client-connections", Math.max(clientsMax, 0))
                .flagOf("--jute-max-buffer", "jute.maxbuffer")
                .flagOf("--super-digest", "zookeeper.DigestAuthenticationProvider.superDigest")
                .switchOf("--skip-acl", "zookeeper.skipACL", "yes")
                .switchOf("--ttl-nodes", "zookeeper.extendedTypesEnabled", "true")
                .switchOf("--enforce-quota", "zookeeper.enforceQuota", "true");
        zkshim.start();
        address = new InetSocketAddress(address.getAddress(), zkshim.port());
    }

    @Override
    public void shutdown() {
        if (zkshim != null) {
            zkshim.stop();
        }
    }

    @Override
    public int getLocalPort() {
        return address.getPort();
    }

    @Override
    public InetSocketAddress getLocalAddress() {
        return address;
    }

    @Override
    public int getMaxClientCnxnsPerHost() {
        return clientsMax;
    }

    @Override
    public void setMaxClientCnxnsPerHost(int max) {
        clientsMax = max;
    }

    @Override
    public Iterable<ServerCnxn> getConnections() {
        return List.of();
    }

    @Override
    public Iterable<Map<String, Object>> getAllConnectionInfo(boolean brief) {
        return List.of();
    }

    @Override
    public int getSocketListenBacklog() {
        return -1;
    }

    @Override
    public void join() {}

    @Override
    public void start() {}

    @Override
    public void reconfigure(InetSocketAddress address) {
        throw new UnsupportedOperationException("a test moves the port");
    }

    @Override
    public void closeAll(ServerCnxn.DisconnectReason reason) {
        throw new UnsupportedOperationException("a test closes connections inside the server");
    }

    @Override
    public void resetAllConnectionStats() {}
}
