// Curator 5.9's recipes, each with the guarantees that its users lean on.
//
// Arguments: a connect string that leads straight to the servers, and one through a relay.

public final class CuratorSteps extends Steps {
    public static void main(String[] arguments) {
        direct = arguments[0];
        relayed = arguments[1];
        step("leader-latch", Leaders::latch);
        step("leader-latch-cut", () -> Leaders.latchAfter("cut"));
        step("leader-latch-move", () -> Leaders.latchAfter("move"));
        step("leader-latch-session-loss", Leaders::latchOfALostSession);
        step("leader-selector", Leaders::selector);
        step("leader-selector-requeue", Leaders::selectorTakesTurns);
        step("mutex", Locks::mutex);
        step("mutex-contended", Locks::mutexContended);
        step("mutex-revoked", Locks::mutexRevoked);
        step("semaphore", Locks::semaphore);
        step("semaphore-contended", Locks::semaphoreContended);
        step("read-write-lock", Locks::readWriteLock);
        step("multi-lock", Locks::multiLock);
        step("barrier", Locks::barrier);
        step("double-barrier", Locks::doubleBarrier);
        step("persistent-node", Nodes::persistentNode);
        step("persistent-node-session-loss", Nodes::persistentNodeAfterASessionLoss);
        step("group-member", Nodes::groupMember);
        step("transaction", Nodes::transaction);
        step("transaction-rolls-back", Nodes::transactionRollsBack);
        step("create-modes", Nodes::createModes);
        step("container-goes", Nodes::containerGoes);
        step("ttl-goes", Nodes::ttlGoes);
        step("persistent-ttl-node", Nodes::persistentTtlNode);
        step("acl", Nodes::acl);
        step("cache", Caches::cache);
        step("cache-of-one-node", Caches::cacheOfOneNode);
        step("cache-cut", () -> Caches.cacheAfter("cut"));
        step("cache-move", () -> Caches.cacheAfter("move"));
        step("cache-bridge", Caches::cacheBridge);
        step("persistent-watcher", Caches::persistentWatcher);
        step("add-and-remove-watches", Caches::addAndRemoveWatches);
        step("service-discovery", Discovery::registersAndFinds);
        step("service-cache", Discovery::cacheFollows);
        step("service-provider", Discovery::providerChooses);
        step("shared-count", Counters::sharedCount);
        step("shared-value", Counters::sharedValue);
        step("atomic-long", Counters::atomicLong);
        step("atomic-long-contended", Counters::atomicLongContended);
        step("simple-queue", Counters::simpleQueue);
        step("queue", Counters::queue);
        step("priority-queue", Counters::priorityQueue);
        end();
    }
}
