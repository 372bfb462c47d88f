// A ZooKeeper session for the tests to look and act with, by the client that HiveServer2 uses.
//
// Reads commands from standard input and prints one answer a line:
//   children PATH   the names, one a line, then `end`
//   stat PATH       `czxid version ephemeralOwner`, or `none`
//   data PATH       the data as text
//   delete PATH     `done`
//   session         the session id
// Reads are up to date, for whichever server a write went through: a sync goes first.
// An error is printed as `error: ...`. The session is never renewed: `session` shows a loss.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import org.apache.zookeeper.KeeperException.ConnectionLossException;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;

public final class Znodes {
    private static final int ATTEMPTS = 10;

    public static void main(String[] arguments) throws Exception {
        CountDownLatch connected = new CountDownLatch(1);
        int timeoutMs = Integer.parseInt(arguments[1]);
        try (ZooKeeper zooKeeper = new ZooKeeper(arguments[0], timeoutMs, event -> {
            if (event.getState() == KeeperState.SyncConnected) {
                connected.countDown();
            }
        })) {
            connected.await();
            System.out.println("ready");
            BufferedReader input = new BufferedReader(
                    new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                String[] words = line.split(" ", 2);
                System.out.println(answer(zooKeeper, words[0], words.length > 1 ? words[1] : ""));
            }
        }
    }

    private static String answer(ZooKeeper zooKeeper, String command, String path)
            throws InterruptedException {
        Exception last = null;
        for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
            try {
                return perform(zooKeeper, command, path);
            } catch (ConnectionLossException lost) {
                // Between two servers: the client is looking for the next one.
                last = lost;
                Thread.sleep(500);
            } catch (Exception refused) {
                return "error: " + refused;
            }
        }
        return "error: " + last;
    }

    private static String perform(ZooKeeper zooKeeper, String command, String path)
            throws Exception {
        // Requests of a session are done in their order, so nobody has to wait for its reply.
        zooKeeper.sync("/", (result, name, context) -> { }, null);
        switch (command) {
            case "children": {
                StringBuilder names = new StringBuilder();
                for (String name : zooKeeper.getChildren(path, false)) {
                    names.append(name).append('\n');
                }
                return names.append("end").toString();
            }
            case "stat": {
                Stat stat = zooKeeper.exists(path, false);
                return stat == null
                        ? "none"
                        : stat.getCzxid() + " " + stat.getVersion() + " "
                                + stat.getEphemeralOwner();
            }
            case "data":
                return new String(zooKeeper.getData(path, false, null), StandardCharsets.UTF_8);
            case "delete":
                zooKeeper.delete(path, -1);
                return "done";
            case "session":
                return Long.toString(zooKeeper.getSessionId());
            default:
                return "error: no command " + command;
        }
    }
}
