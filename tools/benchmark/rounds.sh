# shellcheck shell=bash
# The workloads: each server once in a round, so that what is compared ran at about the same time.

# Runs those of the workloads that were asked for, with loads and options.
load() {
    local chosen
    chosen=$(wanted "$1")
    shift
    [ -z "$chosen" ] || "${run[@]}" --workload "$chosen" --warm-up-ms "$warm_up_ms" \
        --duration-ms "$duration_ms" "$@"
}

measure_round() {
    local round=$1 name=$2
    printf '\n== round %d of %d: %s\n' "$round" "$rounds" "${label[$name]}"
    serve "$name"
    run+=(--round "$round")
    case $name in
    bare) measure_writes ;;
    two | three) measure_locks ;;
    *) measure_all ;;
    esac
    stop_serving
}

# Not counted: the Java compiler and all caches get to know the work first.
warm_up() {
    warm_up_ms=1000 duration_ms=100 load "$1" --connections 8 --in-flight 8 >/dev/null
    run+=(--json "$results.new")
}

measure_writes() {
    warm_up set,create
    load set,create --connections 1,8,64
    load set,create --connections 8,64 --in-flight 16
}

measure_locks() {
    warm_up lock
    load lock --connections 1,8,64
}

measure_all() {
    local singles=get,exists,children,set,create,eseq,mixed
    warm_up "$singles,session,lock,watch"
    load "$singles" --connections 1,8,64
    load "$singles,set-own" --connections 8,64 --in-flight 16
    # A ping each two seconds. Before many sessions have ended: their leases are kept for a while.
    duration_ms=2000 load idle --connections 1000 --session-timeout-ms 6000
    load session,lock,watch --connections 1,8,64
    load watch --connections 1000
    # So many sessions get their keys in etcd within the first seconds.
    warm_up_ms=5000 duration_ms=3000 load watch --connections 10000
}
