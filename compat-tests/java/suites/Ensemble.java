package zkshim.suites;

import java.io.File;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;

/** Several zkshim on one etcd, in the place of the members of a ZooKeeper ensemble. */
public final class Ensemble {
    private final List<Zkshim> members = new ArrayList<>();

    /** As many members as that, not started, with a tree of their own. */
    public Ensemble(int count, File directory, int tickMs) throws IOException {
        if (System.getProperty("zkshim.etcd") == null) {
            throw new IOException("an ensemble needs an etcd");
        }
        for (int i = 0; i < count; i++) {
            members.add(new Zkshim("127.0.0.1", 0)
                    .keptIn(directory, directory.getPath())
                    .flag("--tick-time", tickMs)
                    .flag("--max-client-connections", 0)
                    .flagOf("--super-digest",
                            "zookeeper.DigestAuthenticationProvider.superDigest")
                    .switchOf("--skip-acl", "zookeeper.skipACL", "yes")
                    .switchOf("--ttl-nodes", "zookeeper.extendedTypesEnabled", "true")
                    .switchOf("--enforce-quota", "zookeeper.enforceQuota", "true"));
        }
    }

    /** A member, counted from 1. */
    public Zkshim member(int number) {
        return members.get(number - 1);
    }

    /** The port of a member, counted from 1. */
    public String address(int number) {
        return "127.0.0.1:" + member(number).port();
    }

    /** All members, as clients are told of them. */
    public String addresses() {
        List<String> all = new ArrayList<>();
        for (int i = 1; i <= members.size(); i++) {
            all.add(address(i));
        }
        return String.join(",", all);
    }

    /** Starts those that do not run. */
    public void start() throws IOException {
        for (Zkshim member : members) {
            if (!member.isRunning()) {
                member.start();
            }
        }
    }

    /** Stops those that run. */
    public void stop() {
        members.forEach(Zkshim::stop);
    }
}
