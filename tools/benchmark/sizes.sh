# shellcheck shell=bash
# What servers take when they are full, how long a start takes then, and what writes cost then.

# Fills a server with znodes, then with sessions, and looks at its memory; then starts it again.
# Writes a line of JSON.
measure_sizes() {
    local name=$1 holder empty filled joined again etcd=0 began ms cpu_ms pings
    printf '\n== %s: %d znodes, %d sessions\n' "${label[$name]}" "$znodes" "$sessions"
    serve "$name"
    empty=$(memory_kib "$name" "$server")
    fill /sizes "$znodes"
    filled=$(memory_kib "$name" "$server")
    if [ "$name" = etcd ]; then
        etcd=$(resident_kib "${pids[0]}")
        beside_znodes "$znodes"
    fi
    pings=$(cpu_of_pings)

    # A new start, so that nothing of the filling is in what sessions take.
    restart
    again=$(memory_kib "$name" "$server")
    # The sessions stay for as long as the process that has them.
    "$zkbench" sizes --addr "$addrs" "${watched[@]}" --sessions "$sessions" --hold-ms 3600000 \
        >"$data/sessions.log" 2>&1 </dev/null &
    holder=$!
    until grep -qs '^sessions' "$data/sessions.log"; do
        kill -0 "$holder" 2>/dev/null || { cat "$data/sessions.log" >&2 && exit 1; }
        sleep 0.2
    done
    joined=$(memory_kib "$name" "$server")
    kill "$holder" 2>/dev/null || true
    wait "$holder" 2>/dev/null || true

    printf '{"run":"%s","server":"%s","znodes":%d,"sessions":%d,"limited":"%s","empty_kib":%d,' \
        "$this_run" "${label[$name]}" "$znodes" "$sessions" "$limited" "$empty" \
        >>"$work/sizes.jsonl.new"
    printf '"filled_kib":%d,"started_kib":%d,"joined_kib":%d,"etcd_kib":%d,"start_ms":%d,' \
        "$filled" "$again" "$joined" "$etcd" "$ms" >>"$work/sizes.jsonl.new"
    printf '"start_cpu_ms":%d,"ping_us":%s}\n' "$cpu_ms" "$pings" >>"$work/sizes.jsonl.new"
    tail -n 1 "$work/sizes.jsonl.new"
    stop_serving
}

fill() {
    "$zkbench" sizes --addr "$addrs" "${watched[@]}" --root "$1" --znodes "$2"
}

# What a write costs etcd beside few znodes.
measure_few() {
    printf '\n== %s: 1000 znodes\n' "${label[etcd]}"
    serve etcd
    fill /sizes 1000
    beside_znodes 1000
    stop_serving
}

# What a write costs etcd beside so many znodes. The first run is not counted.
beside_znodes() {
    local write=("${run[@]}" --workload set,create --connections 8 --in-flight 16
        --warm-up-ms 500 --duration-ms 1500)
    # The word after --label.
    write[3]="${label[etcd]}, $1 znodes"
    "${write[@]}" >/dev/null
    "${write[@]}" --json "$work/znodes.jsonl.new"
}

# Stops the server that was started last and starts it again: sets `server`, how long it took until
# it served, and the processor time of all its processes until then.
restart() {
    local all=$((${#pids[@]})) pid
    kill "$server"
    wait "$server" 2>/dev/null || true
    unset 'pids[-1]'
    cpu_ms=0
    for pid in "${pids[@]}"; do cpu_ms=$((cpu_ms - $(cpu_ms_of "$pid"))); done
    began=$(date +%s%N)
    watched=("${watched[@]:0:$((2 * (all - 1)))}")
    case $name in
    etcd) start_shim "$port" "$data" ;;
    *) "start_$name" "$port" "$data" ;;
    esac
    wait_until_serving "$port" "$data"
    ms=$((($(date +%s%N) - began) / 1000000))
    for pid in "${pids[@]}"; do cpu_ms=$((cpu_ms + $(cpu_ms_of "$pid"))); done
    server=${pids[-1]}
}

# Linux shows 100 ticks a second.
cpu_ms_of() {
    sed 's/.*) //' "/proc/$1/stat" | awk '{ print ($12 + $13) * 10 }'
}

# What a server keeps in memory: a Java heap once it is collected, else what is resident soon after
# the last work.
memory_kib() {
    if [ "$1" = zookeeper ]; then
        jcmd "$2" GC.run >/dev/null
        jcmd "$2" GC.run >/dev/null
        jcmd "$2" GC.heap_info | sed -n 's/.*total.*used \([0-9]*\)K.*/\1/p'
    else
        sleep 5
        resident_kib "$2"
    fi
}

resident_kib() {
    sed -n 's/^VmRSS:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$1/status"
}

# Microseconds of processor time for a ping, all processes together.
cpu_of_pings() {
    local idle=1000
    [ "$sessions" -ge "$idle" ] || idle=$sessions
    rm -f "$work/idle.jsonl"
    "${run[@]}" --workload idle --connections "$idle" --session-timeout-ms 6000 \
        --warm-up-ms 3000 --duration-ms 6000 --json "$work/idle.jsonl" >/dev/null
    tail -n 1 "$work/idle.jsonl" | tr ',' '\n' | awk -F: '
        /"name"/ { own = /zkbench/ }
        /"cpu_us_per_op"/ && !own { sum += $2 }
        END { printf "%.1f", sum }'
    rm -f "$work/idle.jsonl"
}
