import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryForever;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.data.Stat;

/**
 * Holds a lock and an ephemeral with Curator while servers are broken around it. Says the same
 * as python/faults_holder.py.
 */
public final class Holder {
    public static void main(String[] arguments) throws Exception {
        String name = arguments[1];
        AtomicBoolean lost = new AtomicBoolean();
        CuratorFramework client =
                CuratorFrameworkFactory.builder()
                        .connectString(arguments[0])
                        .sessionTimeoutMs(10_000)
                        .connectionTimeoutMs(10_000)
                        .retryPolicy(new RetryForever(200))
                        .build();
        client.getConnectionStateListenable()
                .addListener(
                        (framework, state) -> {
                            if (state == ConnectionState.LOST) {
                                lost.set(true);
                                System.out.println("lost");
                            }
                        });
        client.start();
        client.blockUntilConnected();
        long session = client.getZookeeperClient().getZooKeeper().getSessionId();
        String here = "/faults/curator-" + name;
        client.create().withMode(CreateMode.EPHEMERAL).forPath(here);
        InterProcessMutex lock = new InterProcessMutex(client, "/faults/curator-lock");
        System.out.println("waiting");
        lock.acquire();
        System.out.println("held");
        new BufferedReader(new InputStreamReader(System.in)).readLine();
        Stat stat = client.checkExists().forPath(here);
        if (lost.get()) {
            System.out.println("failed the session was lost");
        } else if (stat == null || stat.getEphemeralOwner() != session) {
            System.out.println("failed the ephemeral is gone");
        } else if (!lock.isAcquiredInThisProcess()) {
            System.out.println("failed the lock is not held");
        } else {
            lock.release();
            System.out.println("ok");
        }
        client.close();
    }
}
