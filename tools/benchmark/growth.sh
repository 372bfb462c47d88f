# shellcheck shell=bash
# What zkshim costs etcd with more sessions and more shims: measured here, and simulated beyond.

measure_growth() {
    local connections
    for connections in 1 100 1000 10000; do
        idle_on etcd idle "$connections"
    done
    idle_on etcd idle-own 1000
    idle_on two idle 1000
    idle_on three idle 1000
    writes_on etcd
    writes_on two
    writes_on three
}

# A fresh server each: of sessions that end, leases are kept for the next ones. The sessions ping
# twice while they are looked at.
idle_on() {
    printf '\n== %s: %d sessions, %s\n' "${label[$1]}" "$3" "$2"
    serve "$1"
    "${run[@]}" --workload "$2" --connections "$3" --session-timeout-ms 20000 --warm-up-ms 0 \
        --duration-ms 13333 --json "$work/growth.jsonl.new"
    stop_serving
}

writes_on() {
    local write
    printf '\n== %s: writes\n' "${label[$1]}"
    serve "$1"
    write=("${run[@]}" --workload set,create --connections 64 --in-flight 16 --warm-up-ms 500
        --duration-ms 1500)
    "${write[@]}" >/dev/null
    "${write[@]}" --json "$work/growth.jsonl.new"
    stop_serving
}

simulate() {
    local model=("$zkbench" model --run "$this_run" --json "$work/model.jsonl.new")
    printf '\n== simulations\n'
    "${model[@]}" --shims 1 --sessions 1000,10000,100000,1000000
    "${model[@]}" --shims 3,10 --sessions 100000
    "${model[@]}" --shims 1,2,3,10 --writers 1000
}
