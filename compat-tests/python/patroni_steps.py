"""Two members of a Patroni cluster, as its own ZooKeeper class does it; no PostgreSQL is run.

Arguments: a connect string that leads straight to the servers, and one through a relay.
Prints `ok STEP` or `failed STEP: reason` for each step. `ask WHAT` asks the test for trouble on
the relay (cut, hold, release, move); it answers `done`.
"""

import logging
import os
import sys
import threading
import time
import traceback

from patroni.dcs import get_dcs

DIRECT, RELAYED = sys.argv[1], sys.argv[2]
PATIENCE_S = 40
TTL_S = 6


def member(name, hosts=DIRECT):
    """What a Patroni daemon has in its hands: its connection, and what it says of itself."""
    times = {"ttl": TTL_S, "loop_wait": 4, "retry_timeout": 4}
    dcs = get_dcs({"scope": "cluster", "name": name, "zookeeper": {"hosts": hosts}} | times)
    dcs.reload_config(times)
    return dcs


def fresh(dcs):
    """The cluster as it is now: others' writes may have gone through another server."""
    dcs._client.sync("/")
    return dcs.get_cluster()


def equal(expected, found):
    assert expected == found, f"{found!r}, not {expected!r}"


def eventually(what, holds):
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            if holds():
                return
        except Exception:
            # Patroni's own loop comes again after an error, too.
            traceback.print_exc()
        assert time.monotonic() < deadline, f"{what} does not come"
        time.sleep(0.1)


def ask(what):
    print(f"ask {what}", flush=True)
    equal("done", sys.stdin.readline().strip())


def initialized_once():
    assert first.initialize(sysid="1234")
    assert not second.initialize(sysid="5678"), "the second initializes, too"
    equal("1234", fresh(second).initialize)


def members_touch_themselves():
    for dcs in (first, second):
        dcs.get_cluster()
        assert dcs.touch_member({"state": "running", "conn_url": "postgres://" + dcs._name})
    found = {one.name: one.session for one in fresh(first).members}
    equal({"first": first._client.client_id[0], "second": second._client.client_id[0]}, found)


def one_leader():
    assert first.attempt_to_acquire_leader()
    assert not second.attempt_to_acquire_leader(), "there are two leaders"
    cluster = fresh(first)
    equal(("first", first._client.client_id[0]), (cluster.leader.name, cluster.leader.session))
    assert first.update_leader(cluster, 42, {"slot": 7})
    equal(42, fresh(second).status.last_lsn)


def settings_with_versions():
    assert second.set_config_value('{"ttl": 6}')
    equal(6, fresh(first).config.data["ttl"])
    first.manual_failover("first", "second")
    cluster = fresh(second)
    equal("second", cluster.failover.candidate)
    assert second.manual_failover("", "", version=cluster.failover.version)
    assert not fresh(first).failover, "the failover is still there"
    state = first.write_sync_state("first", ["second"], 0)
    assert state, "the state is not written"
    state = first.write_sync_state("first", [], 0, version=state.version)
    assert state, "the state is not written again"
    stale = first.write_sync_state("first", ["x"], 0, version=state.version + 5)
    assert not stale, "a stale version is taken"


def leader_steps_down():
    """The session is closed, and the leader's key is gone before that is confirmed."""
    leader = fresh(second).leader
    woken = []

    def watch():
        begin = time.monotonic()
        second.watch(leader.version or 1, PATIENCE_S)
        woken.append(time.monotonic() - begin)

    watcher = threading.Thread(target=watch)
    watcher.start()
    time.sleep(0.2)
    assert first.delete_leader(leader, 43)
    cluster = fresh(second)
    assert cluster.is_unlocked(), f"the leader is {cluster.leader}"
    watcher.join(PATIENCE_S)
    assert woken and woken[0] < TTL_S, f"the watcher was woken after {woken}"
    assert second.attempt_to_acquire_leader()
    assert second.delete_leader(fresh(second).leader)


def leader_keeps_its_place(trouble):
    """A new connection, here or at another server, is the same session."""
    relayed = member("relayed", RELAYED)
    try:
        eventually("leadership", relayed.attempt_to_acquire_leader)
        session = relayed._client.client_id[0]
        ask(trouble)
        eventually("an update", lambda: relayed.update_leader(relayed.get_cluster(), 50))
        leader = fresh(first).leader
        equal(("relayed", session), (leader.name, leader.session))
    finally:
        close(relayed)
    assert fresh(first).is_unlocked(), "a closed session leads"


def leader_is_replaced():
    """One that is cut off for longer than its ttl finds another leader when it comes back."""
    lost = member("lost", RELAYED)
    try:
        assert lost.attempt_to_acquire_leader()
        old = lost._client.client_id[0]
        ask("hold")
        begin = time.monotonic()
        eventually("leadership", lambda: fresh(first) and first.attempt_to_acquire_leader())
        taken = time.monotonic() - begin
        assert taken < TTL_S + 5, f"the leader was gone after {taken} s"
        ask("release")
        eventually("a session", lambda: lost._client.connected
                   and lost._client.client_id[0] not in (0, old))
        eventually("the new leader", lambda: lost.get_cluster().leader.name == "first")
        assert not lost.attempt_to_acquire_leader(), "there are two leaders"
    finally:
        close(lost)


def cluster_removed():
    first.delete_cluster()
    cluster = fresh(second)
    equal((None, None, []), (cluster.initialize, cluster.leader, cluster.members))


def close(dcs):
    dcs._client.stop()
    dcs._client.close()


STEPS = {
    "initialized_once": initialized_once,
    "members_touch_themselves": members_touch_themselves,
    "one_leader": one_leader,
    "settings_with_versions": settings_with_versions,
    "leader_steps_down": leader_steps_down,
    "leader_keeps_its_place_cut": lambda: leader_keeps_its_place("cut"),
    "leader_keeps_its_place_moved": lambda: leader_keeps_its_place("move"),
    "leader_is_replaced": leader_is_replaced,
    "cluster_removed": cluster_removed,
}

logging.basicConfig(stream=sys.stderr, level=logging.INFO)
first, second = member("first"), member("second")
failed = 0
for name, step in STEPS.items():
    try:
        step()
        print(f"ok {name}", flush=True)
    except BaseException as reason:
        failed = 1
        traceback.print_exc()
        print(f"failed {name}: {reason!r}".replace("\n", " "), flush=True)
sys.stdout.flush()
# Whatever threads a failed step has left.
os._exit(failed)
