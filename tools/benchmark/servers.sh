# shellcheck shell=bash
# Starts and stops the servers that `tools/bench` measures, each with fresh data.

declare -A label=([zookeeper]=ZooKeeper [etcd]='zkshim on etcd' [embedded]='zkshim embedded'
    [bare]='etcd, one txn an operation' [two]='2 zkshims on one etcd' [three]='3 zkshims on one etcd')
pids=()
etcd_quota=()

stop_servers() {
    # Last started, first stopped: zkshim before its etcd.
    while [ ${#pids[@]} -gt 0 ]; do
        kill "${pids[-1]}" 2>/dev/null || true
        wait "${pids[-1]}" 2>/dev/null || true
        unset 'pids[-1]'
    done
}
trap stop_servers EXIT

# Below the range from which the system gives out ports by itself.
free_port() {
    local port
    while true; do
        port=$((RANDOM % 12000 + 20000))
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
    done
    echo "$port"
}

# Runs a server in the background, with its output in a file.
start() {
    local log=$1
    shift
    "$@" >"$log" 2>&1 </dev/null &
    pids+=($!)
}

# Whether who listens on a port answers a question with these words.
answers() {
    local port=$1 question=$2 words=$3 answer
    answer=$(
        exec 2>/dev/null
        exec 3<>"/dev/tcp/127.0.0.1/$port" || exit 1
        # shellcheck disable=SC2059 # The question has escapes.
        printf "$question" >&3
        cat <&3
    ) || return 1
    [[ $answer == *"$words"* ]]
}

wait_until_serving() {
    local port=$1 logs=$2 question=(srvr Mode:)
    [ "${3:-}" != etcd ] || question=('GET /health HTTP/1.0\r\n\r\n' '"health":"true"')
    # A million znodes take a while on a busy machine.
    for _ in $(seq 1200); do
        answers "$port" "${question[@]}" && return
        kill -0 "${pids[-1]}" 2>/dev/null || break
        sleep 0.1
    done
    echo "bench: no server on port $port; the end of its log:" >&2
    tail -n 20 "$logs"/*.log >&2
    exit 1
}

start_zookeeper() {
    local port=$1 data=$2 jars
    jars=$(tools/zookeeper/fetch)
    cat >"$data/zoo.cfg" <<END
tickTime=2000
dataDir=$data/data
clientPort=$port
clientPortAddress=127.0.0.1
admin.enableServer=false
maxClientCnxns=0
maxSessionTimeout=${max_session_timeout:-40000}
END
    echo '<configuration><root level="OFF"/></configuration>' >"$data/logback.xml"
    # The heap is what zkServer.sh gives it.
    start "$data/zookeeper.log" java -Xmx1000m -cp "$data:$jars/*" \
        org.apache.zookeeper.server.quorum.QuorumPeerMain "$data/zoo.cfg"
    watched=("--pid" "zookeeper=${pids[-1]}")
}

start_bare() {
    local port=$1 data=$2 peer
    client=http://127.0.0.1:$port
    peer=http://127.0.0.1:$(free_port)
    start "$data/etcd.log" "$(tools/etcd/build)" --data-dir "$data/etcd" "${etcd_quota[@]}" \
        --listen-client-urls "$client" --advertise-client-urls "$client" \
        --listen-peer-urls "$peer" --initial-advertise-peer-urls "$peer" \
        --initial-cluster "default=$peer"
    watched=("--pid" "etcd=${pids[-1]}")
}

start_etcd() {
    local port=$1 data=$2
    start_bare "$(free_port)" "$data"
    start_shim "$port" "$data"
}

start_two() {
    start_etcd "$1" "$2"
    add_shim "$2"
}

start_three() {
    start_two "$1" "$2"
    add_shim "$2"
}

# One more zkshim on the etcd that runs.
add_shim() {
    local port
    wait_until_serving "${addrs##*:}" "$1"
    port=$(free_port)
    addrs+=,127.0.0.1:$port
    start_shim "$port" "$1"
}

start_shim() {
    local port=$1 data=$2 name=zkshim
    [ ${#watched[@]} -le 2 ] || name=zkshim-$((${#watched[@]} / 2))
    start "$data/zkshim-$port.log" target/release/zkshim serve --listen "127.0.0.1:$port" --tick-time 2000 \
        --max-connections 200000 --max-client-connections 0 \
        --max-session-timeout "${max_session_timeout:-40000}" \
        --store etcd --etcd-endpoints "$client"
    watched+=("--pid" "$name=${pids[-1]}")
}

start_embedded() {
    local port=$1 data=$2
    start "$data/zkshim-$port.log" target/release/zkshim serve --listen "127.0.0.1:$port" --tick-time 2000 \
        --max-connections 200000 --max-client-connections 0 \
        --max-session-timeout "${max_session_timeout:-40000}" \
        --store embedded --data-dir "$data/data"
    watched=("--pid" "zkshim=${pids[-1]}")
}


# Starts a server and sets `run` to the command that puts load on it, and `server` to its process.
serve() {
    port=$(free_port)
    addrs=127.0.0.1:$port
    client=
    data=$work/$1
    rm -rf "$data"
    mkdir -p "$data"
    "start_$1" "$port" "$data"
    case $1 in
    bare) wait_until_serving "$port" "$data" etcd ;;
    *) wait_until_serving "${addrs##*:}" "$data" ;;
    esac
    server=${pids[-1]}
    run=("$zkbench" run --label "${label[$1]}" --run "$this_run" "${watched[@]}" --addr "$addrs")
    [ -z "$client" ] || run+=(--etcd-metrics "${client#http://}")
    [ "$1" != bare ] || run+=(--etcd)
}

stop_serving() {
    stop_servers
    rm -rf "$data"
}
