// Locks, semaphores and barriers: who may go on, and who has to wait.

import java.util.Arrays;
import java.util.Collection;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.barriers.DistributedBarrier;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.locks.Locker;
import org.apache.curator.framework.recipes.locks.Revoker;

final class Locks extends Steps {
    static void mutex() throws Exception {
        try (CuratorFramework two = connect()) {
            CuratorFramework one = connect();
            InterProcessMutex first = new InterProcessMutex(one, "/mutex");
            InterProcessMutex second = new InterProcessMutex(two, "/mutex");
            gets(first);
            gets(first);
            check(!second.acquire(300, TimeUnit.MILLISECONDS), "the second has to wait");
            fresh(two);
            equal(1, second.getParticipantNodes().size(), "in line after it gave up");
            first.release();
            check(first.isOwnedByCurrentThread(), "held twice, released once");
            first.release();
            gets(second);
            second.release();
            gets(first);
            Future<Boolean> waits = inBackground(
                    () -> second.acquire(PATIENCE_MS, TimeUnit.MILLISECONDS));
            await("both in line", () -> {
                fresh(two);
                return second.getParticipantNodes().size() == 2;
            });
            check(!waits.isDone(), "the second waits");
            // The holder's session ends without a release.
            one.close();
            check(result(waits), "the lock of a closed holder comes");
        }
    }

    private static void gets(InterProcessLock lock) throws Exception {
        check(lock.acquire(PATIENCE_MS, TimeUnit.MILLISECONDS), "the lock comes");
    }

    private static boolean comesNot(InterProcessLock lock) throws Exception {
        return !lock.acquire(300, TimeUnit.MILLISECONDS);
    }

    static void mutexContended() throws Exception {
        AtomicInteger inside = new AtomicInteger();
        AtomicInteger rounds = new AtomicInteger();
        inParallel(6, client -> {
            InterProcessMutex lock = new InterProcessMutex(client, "/contended");
            for (int i = 0; i < 5; i++) {
                try (Locker held = new Locker(lock, 2 * PATIENCE_MS, TimeUnit.MILLISECONDS)) {
                    equal(1, inside.incrementAndGet(), "holders");
                    Thread.sleep(2);
                    inside.decrementAndGet();
                    rounds.incrementAndGet();
                }
            }
        });
        equal(30, rounds.get(), "rounds");
    }

    static void mutexRevoked() throws Exception {
        try (CuratorFramework one = connect(); CuratorFramework two = connect()) {
            InterProcessMutex lock = new InterProcessMutex(one, "/revoked");
            BlockingQueue<String> asked = new LinkedBlockingQueue<>();
            lock.makeRevocable(revoked -> asked.add("revoked"));
            gets(lock);
            fresh(two);
            Collection<String> nodes = new InterProcessMutex(two, "/revoked").getParticipantNodes();
            Revoker.attemptRevoke(two, nodes.iterator().next());
            expect(asked, "revoked");
            lock.release();
        }
    }

    static void semaphore() throws Exception {
        try (CuratorFramework two = connect()) {
            CuratorFramework one = connect();
            InterProcessSemaphoreV2 first = new InterProcessSemaphoreV2(one, "/semaphore", 3);
            InterProcessSemaphoreV2 second = new InterProcessSemaphoreV2(two, "/semaphore", 3);
            first.setNodeData(bytes("first"));
            Collection<Lease> held = first.acquire(2, PATIENCE_MS, TimeUnit.MILLISECONDS);
            equal("first", text(held.iterator().next().getData()), "data of a lease");
            Lease last = second.acquire(PATIENCE_MS, TimeUnit.MILLISECONDS);
            check(last != null, "the third lease comes");
            equal(null, second.acquire(300, TimeUnit.MILLISECONDS), "a fourth lease");
            fresh(two);
            equal(3, second.getParticipantNodes().size(), "leases");
            second.returnLease(last);
            check(second.acquire(PATIENCE_MS, TimeUnit.MILLISECONDS) != null, "it is free again");
            // The leases of a session end with it.
            Future<Collection<Lease>> waits = inBackground(
                    () -> second.acquire(2, PATIENCE_MS, TimeUnit.MILLISECONDS));
            Thread.sleep(200);
            check(!waits.isDone(), "nothing is free");
            one.close();
            equal(2, result(waits).size(), "leases of a closed holder");
        }
    }

    static void semaphoreContended() throws Exception {
        AtomicInteger inside = new AtomicInteger();
        AtomicInteger insideMax = new AtomicInteger();
        inParallel(5, client -> {
            InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(client, "/leases", 2);
            for (int i = 0; i < 3; i++) {
                Lease lease = semaphore.acquire(2 * PATIENCE_MS, TimeUnit.MILLISECONDS);
                check(lease != null, "a lease comes");
                insideMax.accumulateAndGet(inside.incrementAndGet(), Math::max);
                Thread.sleep(20);
                inside.decrementAndGet();
                semaphore.returnLease(lease);
            }
        });
        check(insideMax.get() <= 2, insideMax + " at once");
    }

    static void readWriteLock() throws Exception {
        try (CuratorFramework one = connect(); CuratorFramework two = connect()) {
            InterProcessReadWriteLock first = new InterProcessReadWriteLock(one, "/read-write");
            InterProcessReadWriteLock second = new InterProcessReadWriteLock(two, "/read-write");
            gets(first.readLock());
            gets(second.readLock());
            check(comesNot(second.writeLock()), "a writer waits for readers");
            first.readLock().release();
            second.readLock().release();
            gets(first.writeLock());
            check(comesNot(second.readLock()), "a reader waits for the writer");
            check(comesNot(second.writeLock()), "a writer waits for the writer");
            // The writer may read as well, and keep that when it is no writer any more.
            gets(first.readLock());
            first.writeLock().release();
            gets(second.readLock());
            check(comesNot(second.writeLock()), "a writer waits for the first's read lock");
            first.readLock().release();
            second.readLock().release();
            gets(second.writeLock());
            second.writeLock().release();
        }
    }

    static void multiLock() throws Exception {
        try (CuratorFramework one = connect(); CuratorFramework two = connect()) {
            InterProcessMultiLock both =
                    new InterProcessMultiLock(one, Arrays.asList("/multi-1", "/multi-2"));
            InterProcessMutex last = new InterProcessMutex(two, "/multi-2");
            gets(last);
            check(comesNot(both), "one of the two is held");
            // What it got of the two it has given back.
            InterProcessMutex free = new InterProcessMutex(two, "/multi-1");
            gets(free);
            free.release();
            last.release();
            gets(both);
            check(comesNot(last), "it holds both");
            both.release();
            gets(last);
            last.release();
        }
    }

    static void barrier() throws Exception {
        try (CuratorFramework one = connect(); CuratorFramework two = connect()) {
            DistributedBarrier set = new DistributedBarrier(one, "/barrier");
            DistributedBarrier waits = new DistributedBarrier(two, "/barrier");
            check(waits.waitOnBarrier(1, TimeUnit.SECONDS), "there is none yet");
            set.setBarrier();
            set.setBarrier();
            fresh(two);
            check(!waits.waitOnBarrier(200, TimeUnit.MILLISECONDS), "it holds");
            Future<Boolean> passes = inBackground(
                    () -> waits.waitOnBarrier(PATIENCE_MS, TimeUnit.MILLISECONDS));
            Thread.sleep(100);
            check(!passes.isDone(), "it still holds");
            set.removeBarrier();
            check(result(passes), "it is gone");
        }
    }

    static void doubleBarrier() throws Exception {
        AtomicInteger entered = new AtomicInteger();
        AtomicInteger leaving = new AtomicInteger();
        AtomicInteger number = new AtomicInteger();
        inParallel(3, client -> {
            int mine = number.incrementAndGet();
            DistributedDoubleBarrier barrier =
                    new DistributedDoubleBarrier(client, "/double-barrier", 3);
            Thread.sleep(100L * mine);
            entered.incrementAndGet();
            check(barrier.enter(PATIENCE_MS, TimeUnit.MILLISECONDS), "all come");
            equal(3, entered.get(), "who entered before the first was let in");
            Thread.sleep(100L * mine);
            leaving.incrementAndGet();
            check(barrier.leave(PATIENCE_MS, TimeUnit.MILLISECONDS), "all leave");
            equal(3, leaving.get(), "who left before the first was let out");
        });
    }
}
