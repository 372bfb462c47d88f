# shellcheck shell=bash
# What the page says beside its figures.

# How long this disk takes to make a small write durable, in microseconds: at the end of a growing
# file, or in place as in a log that has its space already (argument "notrunc").
durable_us() {
    local began ended
    began=$(date +%s%N)
    dd if=/dev/zero of="$work/durable" bs=512 count=200 oflag=dsync ${1:+conv=$1} status=none
    ended=$(date +%s%N)
    echo $(((ended - began) / 200000))
}

conditions() {
    local cpu memory growing in_place
    cpu=$(sed -n '/^model name/ { s/^[^:]*: //p; q }' /proc/cpuinfo)
    memory=$(awk '/^MemTotal:/ { printf "%.0f", $2 / 1048576 }' /proc/meminfo)
    growing=$(durable_us)
    in_place=$(durable_us notrunc)
    rm -f "$work/durable"
    cat <<END
# Benchmarks

Written by \`make bench\`; change that, not this page.
zkshim, on etcd and with its embedded store, beside ZooKeeper on one machine; *Conditions* below says \
what the words mean.

- Machine: $(nproc) × ${cpu:-$(uname -m)}, $memory GiB of memory, Linux $(uname -r); \
load before the start: $(cut -d ' ' -f 1 /proc/loadavg).
- Disk: $(stat -f -c %T "$work"); a small write is durable after $in_place µs in place, \
$growing µs at the end of a growing file.
- ZooKeeper 3.9.5, Java $(java -version 2>&1 | sed -n '1 s/.*"\(.*\)".*/\1/p'); \
etcd $(sed -n '/etcd\/server\/v3 v/ { s/.* v//p; q }' tools/etcd/go.mod); both with their defaults, \
and one process each. All of them fsync a write before they answer it.
- Figures are medians of $rounds rounds of $duration_ms ms each, ratios are taken within a round.
END
}

terms() {
    cat <<END
## Conditions

- Servers and load generator run on this one machine and share its processors.
- One server at a time, each with fresh data, standing alone (no replication).
- ZooKeeper with its defaults: the log is fsynced before an answer, \
requests that wait share an fsync.
- etcd with its defaults: the log is fsynced before an answer. zkshim keeps nothing itself.
- zkshim embedded: the store is fsynced before an answer, requests that wait share an fsync.
- Of ratios of operations, more than 1 is better; of latency and processor time, less than 1.
- *connections × in flight*: so many connections, each with so many requests under way.
- *set* and *mixed*: each connection uses as many znodes of its own in turn as it has requests in flight; \
*set-own*: each connection sets one znode of its own.
- *etcd, one txn an operation*: etcd alone, and a gRPC client that sends it a txn for each operation \
(a compare and a put), as many at once as the others have requests, over one connection.
- *CPU µs/op* is the processor time of all threads of all server processes for an operation; \
the load generator's is not in it.
- *session*: TCP connect, start, getChildren2, getData, closeSession.
- *lock*: create, getChildren, watch the one before, delete; all connections want the same lock, and are \
spread over the zkshims where there are several.
- *watch*: an operation is one event delivered and its watch set again; \
the latency is from setData to the last event.
- *idle*: an operation is a ping; each session sends one in two seconds. \
It and *watch* begin once etcd has all that the sessions write at their start.
- A run in which nothing was finished is left out (of 10,000 watchers, in a short time).
- *What an operation costs etcd* is what its counters (\`/metrics\`) grew by, by the operations counted; \
*bytes sent* are those to all its clients, the histories that zkshim follows among them.
END
}
