// Service discovery: instances come, change and go with their sessions.

import java.util.Collection;
import java.util.Set;
import java.util.TreeSet;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.x.discovery.ServiceCache;
import org.apache.curator.x.discovery.ServiceDiscovery;
import org.apache.curator.x.discovery.ServiceDiscoveryBuilder;
import org.apache.curator.x.discovery.ServiceInstance;
import org.apache.curator.x.discovery.ServiceProvider;
import org.apache.curator.x.discovery.ServiceType;
import org.apache.curator.x.discovery.strategies.RoundRobinStrategy;

final class Discovery extends Steps {
    private static ServiceDiscovery<String> discovery(CuratorFramework client, String basePath)
            throws Exception {
        ServiceDiscovery<String> discovery = ServiceDiscoveryBuilder.builder(String.class)
                .client(client).basePath(basePath).watchInstances(true).build();
        discovery.start();
        return discovery;
    }

    private static ServiceInstance<String> instance(String id, int port) throws Exception {
        return ServiceInstance.<String>builder().name("service").id(id).address("127.0.0.1")
                .port(port).payload("payload of " + id).serviceType(ServiceType.DYNAMIC).build();
    }

    static void registersAndFinds() throws Exception {
        try (CuratorFramework one = connect(); CuratorFramework two = connect()) {
            try (ServiceDiscovery<String> registers = discovery(one, "/discovery");
                    ServiceDiscovery<String> finds = discovery(two, "/discovery")) {
                registers.registerService(instance("a", 1));
                registers.registerService(instance("b", 2));
                fresh(two);
                equal(Set.of("service"), Set.copyOf(finds.queryForNames()), "names");
                Collection<ServiceInstance<String>> all = finds.queryForInstances("service");
                equal(2, all.size(), "instances");
                ServiceInstance<String> found = finds.queryForInstance("service", "a");
                equal("payload of a", found.getPayload(), "payload");
                equal(sessionId(one), stat(two, "/discovery/service/a").getEphemeralOwner(),
                        "owner");
                registers.updateService(instance("a", 3));
                await("the new port", () -> {
                    fresh(two);
                    return finds.queryForInstance("service", "a").getPort() == 3;
                });
                registers.unregisterService(instance("b", 2));
                fresh(two);
                equal(null, finds.queryForInstance("service", "b"), "after it has left");
            }
            equal(null, stat(two, "/discovery/service/a"), "after all have left");
        }
    }

    private static Set<String> ids(ServiceCache<String> cache) {
        Set<String> ids = new TreeSet<>();
        cache.getInstances().forEach(instance -> ids.add(instance.getId()));
        return ids;
    }

    static void cacheFollows() throws Exception {
        try (CuratorFramework two = connect()) {
            CuratorFramework one = connect();
            try (ServiceDiscovery<String> finds = discovery(two, "/service-cache");
                    ServiceCache<String> cache =
                            finds.serviceCacheBuilder().name("service").build()) {
                ServiceDiscovery<String> registers = discovery(one, "/service-cache");
                registers.registerService(instance("a", 1));
                fresh(two);
                cache.start();
                // Curator tells its listeners by a thread of their own; the start does not wait.
                await("the first", () -> ids(cache).equals(Set.of("a")));
                registers.registerService(instance("b", 2));
                await("the second", () -> ids(cache).equals(Set.of("a", "b")));
                registers.unregisterService(instance("a", 1));
                await("the first leaves", () -> ids(cache).equals(Set.of("b")));
                // The session ends without a word of the recipe.
                one.close();
                await("the second leaves", () -> ids(cache).isEmpty());
            }
        }
    }

    static void providerChooses() throws Exception {
        try (CuratorFramework one = connect(); CuratorFramework two = connect();
                ServiceDiscovery<String> registers = discovery(one, "/provider");
                ServiceDiscovery<String> finds = discovery(two, "/provider");
                ServiceProvider<String> provider = finds.serviceProviderBuilder()
                        .serviceName("service").providerStrategy(new RoundRobinStrategy<>())
                        .build()) {
            provider.start();
            equal(null, provider.getInstance(), "before there is any");
            for (int i = 0; i < 3; i++) {
                registers.registerService(instance("i" + i, i + 1));
            }
            await("all three", () -> provider.getAllInstances().size() == 3);
            Set<String> chosen = new TreeSet<>();
            for (int i = 0; i < 3; i++) {
                chosen.add(provider.getInstance().getId());
            }
            equal(Set.of("i0", "i1", "i2"), chosen, "in turn");
        }
    }
}
