// LeaderLatch and LeaderSelector: one leader at a time, the next one when it goes.

import java.util.Collection;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderLatchListener;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.leader.Participant;

final class Leaders extends Steps {
    static void latch() throws Exception {
        String path = "/latch";
        try (CuratorFramework one = connect();
                CuratorFramework two = connect();
                CuratorFramework three = connect()) {
            LeaderLatch first = started(one, path, "first");
            check(first.await(PATIENCE_MS, TimeUnit.MILLISECONDS), "the first leads");
            LeaderLatch second = started(two, path, "second");
            LeaderLatch third = started(three, path, "third");
            await("three participants", () -> participants(first) == 3);
            fresh(three);
            equal("first", third.getLeader().getId(), "the leader as the third sees it");
            check(!second.hasLeadership() && !third.hasLeadership(), "only one leads");
            first.close();
            check(second.await(PATIENCE_MS, TimeUnit.MILLISECONDS), "the second is next");
            check(!third.hasLeadership(), "still only one leads");
            // Its session ends with its client: its node goes without a delete.
            two.close();
            check(third.await(PATIENCE_MS, TimeUnit.MILLISECONDS), "the third is last");
            fresh(three);
            equal(1, third.getParticipants().size(), "participants at the end");
            third.close();
        }
    }

    private static LeaderLatch started(CuratorFramework client, String path, String id)
            throws Exception {
        LeaderLatch latch = new LeaderLatch(client, path, id);
        latch.start();
        // In line before the next one comes.
        await("the latch of " + id, () -> latch.getOurPath() != null
                && stat(client, latch.getOurPath()) != null);
        return latch;
    }

    private static int participants(LeaderLatch latch) throws Exception {
        Collection<Participant> all = latch.getParticipants();
        equal(1L, all.stream().filter(Participant::isLeader).count(), "leaders");
        return all.size();
    }

    static void latchAfter(String trouble) throws Exception {
        try (CuratorFramework client = connect(relayed); CuratorFramework other = connect()) {
            String path = "/latch-" + trouble;
            BlockingQueue<String> turns = new LinkedBlockingQueue<>();
            try (LeaderLatch latch = new LeaderLatch(client, path, "relayed")) {
                latch.addListener(listener(turns));
                latch.start();
                expect(turns, "leads");
                long session = sessionId(client);
                ask(trouble);
                expect(turns, "leads no more");
                // The node is still there, so nobody else can have led meanwhile.
                expect(turns, "leads");
                equal(session, sessionId(client), "session");
                fresh(other);
                equal(1, other.getChildren().forPath(path).size(), "in line");
            }
        }
    }

    private static LeaderLatchListener listener(BlockingQueue<String> turns) {
        return new LeaderLatchListener() {
            @Override
            public void isLeader() {
                turns.add("leads");
            }

            @Override
            public void notLeader() {
                turns.add("leads no more");
            }
        };
    }

    static void latchOfALostSession() throws Exception {
        try (CuratorFramework client = connect(relayed); CuratorFramework other = connect()) {
            String path = "/latch-lost";
            BlockingQueue<String> turns = new LinkedBlockingQueue<>();
            try (LeaderLatch lost = new LeaderLatch(client, path, "lost")) {
                LeaderLatch next = new LeaderLatch(other, path, "next");
                lost.addListener(listener(turns));
                lost.start();
                expect(turns, "leads");
                next.start();
                await("both in line", () -> participants(next) == 2);
                ask("hold");
                expect(turns, "leads no more");
                check(next.await(PATIENCE_MS, TimeUnit.MILLISECONDS), "the next one leads");
                ask("release");
                await("it is in line again", () -> {
                    fresh(other);
                    return participants(next) == 2;
                });
                check(next.hasLeadership() && !lost.hasLeadership(), "it is the last in line");
                next.close();
                expect(turns, "leads");
            }
        }
    }

    static void selector() throws Exception {
        AtomicInteger leaders = new AtomicInteger();
        AtomicInteger turns = new AtomicInteger();
        inParallel(4, client -> {
            BlockingQueue<String> done = new LinkedBlockingQueue<>();
            LeaderSelectorListenerAdapter body = new LeaderSelectorListenerAdapter() {
                @Override
                public void takeLeadership(CuratorFramework leader) throws Exception {
                    done.add(leaders.incrementAndGet() == 1 ? "alone" : "not alone");
                    Thread.sleep(50);
                    leaders.decrementAndGet();
                    turns.incrementAndGet();
                }
            };
            try (LeaderSelector selector = new LeaderSelector(client, "/selector", body)) {
                selector.start();
                expect(done, "alone");
                await("the end of its turn", () -> !selector.hasLeadership());
            }
        });
        equal(4, turns.get(), "turns");
    }

    static void selectorTakesTurns() throws Exception {
        try (CuratorFramework one = connect(); CuratorFramework two = connect()) {
            BlockingQueue<String> turns = new LinkedBlockingQueue<>();
            try (LeaderSelector first = requeued(one, "first", turns);
                    LeaderSelector second = requeued(two, "second", turns)) {
                first.start();
                await("the first leads", first::hasLeadership);
                second.start();
                await("both in line", () -> {
                    fresh(one);
                    return first.getParticipants().size() == 2;
                });
                equal("first", first.getLeader().getId(), "leader");
                for (int i = 0; i < 2; i++) {
                    first.interruptLeadership();
                    await("the second's turn", second::hasLeadership);
                    await("the first is in line", () -> {
                        fresh(two);
                        return second.getParticipants().size() == 2;
                    });
                    second.interruptLeadership();
                    await("the first's turn", first::hasLeadership);
                    await("the second is in line", () -> {
                        fresh(one);
                        return first.getParticipants().size() == 2;
                    });
                }
                for (String name : new String[] {"first", "second", "first", "second", "first"}) {
                    expect(turns, name);
                }
            }
        }
    }

    private static LeaderSelector requeued(
            CuratorFramework client, String name, BlockingQueue<String> turns) {
        LeaderSelector selector = new LeaderSelector(client, "/turns",
                new LeaderSelectorListenerAdapter() {
                    @Override
                    public void takeLeadership(CuratorFramework leader) throws Exception {
                        turns.add(name);
                        Thread.sleep(10 * PATIENCE_MS);
                    }
                });
        selector.setId(name);
        selector.autoRequeue();
        return selector;
    }
}
