// Shared values, counters and queues: nothing is lost, nothing is taken twice.

import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.atomic.AtomicValue;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.queue.DistributedPriorityQueue;
import org.apache.curator.framework.recipes.queue.DistributedQueue;
import org.apache.curator.framework.recipes.queue.QueueBuilder;
import org.apache.curator.framework.recipes.queue.QueueConsumer;
import org.apache.curator.framework.recipes.queue.QueueSerializer;
import org.apache.curator.framework.recipes.queue.SimpleDistributedQueue;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.framework.recipes.shared.SharedCountListener;
import org.apache.curator.framework.recipes.shared.SharedCountReader;
import org.apache.curator.framework.recipes.shared.SharedValue;
import org.apache.curator.framework.recipes.shared.VersionedValue;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryForever;

final class Counters extends Steps {
    static void sharedCount() throws Exception {
        try (CuratorFramework one = connect();
                CuratorFramework two = connect();
                SharedCount first = new SharedCount(one, "/shared-count", 7);
                SharedCount second = new SharedCount(two, "/shared-count", 9)) {
            first.start();
            fresh(two);
            BlockingQueue<Integer> seen = new LinkedBlockingQueue<>();
            second.addListener(new SharedCountListener() {
                @Override
                public void countHasChanged(SharedCountReader count, int value) {
                    seen.add(value);
                }

                @Override
                public void stateChanged(CuratorFramework client, ConnectionState state) {
                }
            });
            second.start();
            equal(7, second.getCount(), "the first one's seed");
            VersionedValue<Integer> old = second.getVersionedValue();
            first.setCount(8);
            expect(seen, 8);
            check(!second.trySetCount(old, 1), "another's change is not overwritten");
            check(second.trySetCount(second.getVersionedValue(), 10), "the present one is");
            await("the other's value", () -> first.getCount() == 10);
        }
    }

    static void sharedValue() throws Exception {
        try (CuratorFramework one = connect();
                CuratorFramework two = connect();
                SharedValue first = new SharedValue(one, "/shared-value", bytes("seed"));
                SharedValue second = new SharedValue(two, "/shared-value", bytes("other"))) {
            first.start();
            fresh(two);
            second.start();
            first.setValue(bytes(""));
            await("an empty value", () -> second.getValue().length == 0);
            check(second.trySetValue(second.getVersionedValue(), bytes("more")), "it is set");
            await("the other's value", () -> "more".equals(text(first.getValue())));
        }
    }

    private static DistributedAtomicLong atomic(CuratorFramework client, String path) {
        return new DistributedAtomicLong(client, path, new RetryForever(5));
    }

    static void atomicLong() throws Exception {
        try (CuratorFramework client = connect()) {
            DistributedAtomicLong value = atomic(client, "/atomic");
            equal(0L, value.get().postValue(), "at first");
            check(value.initialize(5L), "it is initialized once");
            check(!value.initialize(6L), "and not twice");
            AtomicValue<Long> added = value.add(10L);
            equal(5L, added.preValue(), "before");
            equal(15L, added.postValue(), "after");
            check(!value.compareAndSet(5L, 1L).succeeded(), "the old value is not there");
            check(value.compareAndSet(15L, 1L).succeeded(), "the present value is");
            equal(-1L, value.subtract(2L).postValue(), "after a subtraction");
            value.forceSet(100L);
            equal(99L, value.decrement().postValue(), "at the end");
        }
    }

    static void atomicLongContended() throws Exception {
        Set<Long> given = new ConcurrentSkipListSet<>();
        inParallel(4, client -> {
            DistributedAtomicLong value = atomic(client, "/atomic-contended");
            for (int i = 0; i < 10; i++) {
                AtomicValue<Long> got = value.increment();
                check(got.succeeded() && given.add(got.postValue()), "given twice");
            }
        });
        equal(40, given.size(), "values");
        try (CuratorFramework client = connect()) {
            fresh(client);
            equal(40L, atomic(client, "/atomic-contended").get().postValue(), "value");
        }
    }

    static void simpleQueue() throws Exception {
        try (CuratorFramework one = connect(); CuratorFramework two = connect()) {
            SimpleDistributedQueue gives = new SimpleDistributedQueue(one, "/simple-queue");
            SimpleDistributedQueue takes = new SimpleDistributedQueue(two, "/simple-queue");
            equal(null, takes.poll(), "nothing is there");
            for (int i = 0; i < 5; i++) {
                check(gives.offer(bytes("item " + i)), "it is put");
            }
            fresh(two);
            equal("item 0", text(takes.peek()), "first");
            equal("item 0", text(takes.poll()), "first");
            equal("item 1", text(takes.remove()), "second");
            equal("item 2", text(takes.take()), "third");
        }
        Set<String> taken = new ConcurrentSkipListSet<>();
        inParallel(2, client -> {
            fresh(client);
            SimpleDistributedQueue queue = new SimpleDistributedQueue(client, "/simple-queue");
            for (byte[] item = queue.poll(); item != null; item = queue.poll()) {
                check(taken.add(text(item)), "taken twice");
            }
        });
        equal(Set.of("item 3", "item 4"), taken, "the rest");
    }

    private static final class Consumer implements QueueConsumer<String> {
        final BlockingQueue<String> items = new LinkedBlockingQueue<>();

        @Override
        public void consumeMessage(String item) {
            items.add(item);
        }

        @Override
        public void stateChanged(CuratorFramework client, ConnectionState state) {
        }
    }

    private static final QueueSerializer<String> TEXT = new QueueSerializer<>() {
        @Override
        public byte[] serialize(String item) {
            return bytes(item);
        }

        @Override
        public String deserialize(byte[] data) {
            return text(data);
        }
    };

    static void queue() throws Exception {
        try (CuratorFramework one = connect(); CuratorFramework two = connect()) {
            Consumer consumer = new Consumer();
            try (DistributedQueue<String> gives =
                            QueueBuilder.builder(one, null, TEXT, "/queue").buildQueue();
                    DistributedQueue<String> takes =
                            QueueBuilder.builder(two, consumer, TEXT, "/queue").buildQueue()) {
                gives.start();
                for (int i = 0; i < 10; i++) {
                    gives.put("item " + i);
                }
                check(gives.flushPuts(PATIENCE_MS, TimeUnit.MILLISECONDS), "all are put");
                takes.start();
                for (int i = 0; i < 10; i++) {
                    expect(consumer.items, "item " + i);
                }
                gives.put("one more");
                expect(consumer.items, "one more");
                await("it is empty", () -> stat(one, "/queue").getNumChildren() == 0);
            }
        }
    }

    static void priorityQueue() throws Exception {
        try (CuratorFramework one = connect(); CuratorFramework two = connect()) {
            Consumer consumer = new Consumer();
            try (DistributedPriorityQueue<String> gives = QueueBuilder
                            .builder(one, null, TEXT, "/priority").buildPriorityQueue(0);
                    DistributedPriorityQueue<String> takes = QueueBuilder
                            .builder(two, consumer, TEXT, "/priority").buildPriorityQueue(0)) {
                gives.start();
                for (int priority : new int[] {3, -1, 2, 0, 1}) {
                    gives.put("item " + priority, priority);
                }
                check(gives.flushPuts(PATIENCE_MS, TimeUnit.MILLISECONDS), "all are put");
                takes.start();
                List<String> items = new ArrayList<>();
                for (int i = 0; i < 5; i++) {
                    items.add(consumer.items.poll(PATIENCE_MS, TimeUnit.MILLISECONDS));
                }
                equal(List.of("item -1", "item 0", "item 1", "item 2", "item 3"), items, "order");
                equal(5, new TreeSet<>(items).size(), "items");
            }
        }
    }
}
