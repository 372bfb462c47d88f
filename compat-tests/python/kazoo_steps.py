"""kazoo through the recipes that its users lean on; each step asserts what it sees.

Arguments: a connect string that leads straight to the servers, and one through a relay.
Prints `ok STEP` or `failed STEP: reason` for each step. `ask WHAT` asks the test for trouble on
the relay (cut, hold, release, move); it answers `done`.
"""

import os
import queue
import sys
import threading
import time
import traceback

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import (
    BadVersionError,
    LockTimeout,
    NoAuthError,
    NodeExistsError,
    NoChildrenForEphemeralsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.protocol.states import EventType
from kazoo.security import make_digest_acl

DIRECT, RELAYED = sys.argv[1], sys.argv[2]
PATIENCE_S = 20
SESSION_TIMEOUT_S = 6


class Client:
    """A started client as a context: closed at the end of the step."""

    def __init__(self, hosts=DIRECT, **options):
        self.client = KazooClient(hosts=hosts, timeout=SESSION_TIMEOUT_S, **options)

    def __enter__(self):
        self.client.start(timeout=PATIENCE_S)
        return self.client

    def __exit__(self, *_):
        self.client.stop()
        self.client.close()


def raises(error, call, *arguments, **keywords):
    try:
        call(*arguments, **keywords)
    except error:
        return
    raise AssertionError(f"{call} raises no {error}")


def equal(expected, found):
    assert expected == found, f"{found!r}, not {expected!r}"


def fresh(client):
    """Brings the client's server up to date: others' writes may have gone through another one."""
    client.sync("/")
    return client


def eventually(what, holds):
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"{what} does not come"
        time.sleep(0.05)


def ask(what):
    print(f"ask {what}", flush=True)
    equal("done", sys.stdin.readline().strip())


def create_read_write_delete():
    with Client() as zk:
        equal("/basic", zk.create("/basic", b"one"))
        raises(NodeExistsError, zk.create, "/basic", b"two")
        raises(NoNodeError, zk.create, "/absent/child", b"")
        data, stat = zk.get("/basic")
        equal((b"one", 0, 3, 0), (data, stat.version, stat.dataLength, stat.ephemeralOwner))
        equal(1, zk.set("/basic", b"three").version)
        raises(BadVersionError, zk.set, "/basic", b"x", version=0)
        equal(2, zk.set("/basic", b"", version=1).version)
        equal(b"", zk.get("/basic")[0])
        zk.ensure_path("/basic/a/b")
        equal(["a"], zk.get_children("/basic"))
        equal(1, zk.get_children("/basic", include_data=True)[1].numChildren)
        raises(NotEmptyError, zk.delete, "/basic")
        raises(BadVersionError, zk.delete, "/basic/a/b", version=7)
        zk.delete("/basic", recursive=True)
        equal(None, zk.exists("/basic"))
        raises(NoNodeError, zk.get, "/basic")
        raises(NoNodeError, zk.delete, "/basic")


def create_with_stat():
    with Client() as zk:
        path, stat = zk.create("/with-stat", b"data", include_data=True)
        equal("/with-stat", path)
        equal(zk.exists("/with-stat"), stat)


def ephemeral_and_sequence():
    with Client() as zk:
        zk.create("/parent")
        names = [zk.create("/parent/n-", sequence=True) for _ in range(3)]
        equal([f"/parent/n-{i:010d}" for i in range(3)], names)
        with Client() as other:
            path = other.create("/parent/e-", ephemeral=True, sequence=True)
            equal("/parent/e-0000000003", path)
            equal(other.client_id[0], fresh(zk).exists(path).ephemeralOwner)
            raises(NoChildrenForEphemeralsError, other.create, path + "/child")
        equal(None, fresh(zk).exists(path))
        zk.delete(names[2])
        equal("/parent/n-0000000004", zk.create("/parent/n-", sequence=True))


def watches_fire_once():
    with Client() as zk, Client() as other:
        events = queue.Queue()

        def seen():
            event = events.get(timeout=PATIENCE_S)
            return event.type, event.path

        equal(None, zk.exists("/watched", watch=events.put))
        other.create("/watched", b"")
        equal((EventType.CREATED, "/watched"), seen())
        zk.get("/watched", watch=events.put)
        other.set("/watched", b"1")
        other.set("/watched", b"2")
        equal((EventType.CHANGED, "/watched"), seen())
        zk.get_children("/watched", watch=events.put)
        other.create("/watched/child")
        equal((EventType.CHILD, "/watched"), seen())
        zk.exists("/watched/child", watch=events.put)
        other.delete("/watched/child")
        equal((EventType.DELETED, "/watched/child"), seen())
        zk.sync("/watched")
        assert events.empty(), "a watch fired twice"


def data_and_children_watch():
    with Client() as zk, Client() as other:
        seen, children = queue.Queue(), queue.Queue()
        zk.DataWatch("/recipe", lambda data, stat: seen.put(data))
        equal(None, seen.get(timeout=PATIENCE_S))
        other.create("/recipe", b"0")
        equal(b"0", seen.get(timeout=PATIENCE_S))
        zk.ChildrenWatch("/recipe", lambda names: children.put(sorted(names)))
        equal([], children.get(timeout=PATIENCE_S))
        for i in range(1, 4):
            other.set("/recipe", b"%d" % i)
            equal(b"%d" % i, seen.get(timeout=PATIENCE_S))
            other.create(f"/recipe/{i}")
            equal([str(n) for n in range(1, i + 1)], children.get(timeout=PATIENCE_S))


def transaction():
    with Client() as zk:
        zk.create("/transaction", b"")
        commit = zk.transaction()
        commit.check("/transaction", version=0)
        commit.create("/transaction/a", b"1")
        commit.set_data("/transaction/a", b"2")
        commit.create("/transaction/b", b"")
        commit.delete("/transaction/b")
        results = commit.commit()
        equal([True, "/transaction/a", 1, "/transaction/b", True],
              [getattr(result, "version", result) for result in results])
        equal(b"2", zk.get("/transaction/a")[0])
        equal(["a"], zk.get_children("/transaction"))


def transaction_rolls_back():
    with Client() as zk:
        zk.create("/rollback", b"")
        refused = zk.transaction()
        refused.create("/rollback/a", b"")
        refused.delete("/rollback/absent")
        refused.create("/rollback/b", b"")
        kinds = [type(result) for result in refused.commit()]
        equal([RolledBackError, NoNodeError, RuntimeInconsistency], kinds)
        equal([], zk.get_children("/rollback"))


def digest_acl_is_kept():
    with Client(auth_data=[("digest", "anna:secret")]) as zk:
        acl = [make_digest_acl("anna", "secret", all=True)]
        zk.create("/secret", b"mine", acl=acl)
        found, stat = zk.get_acls("/secret")
        equal((acl, 0), (found, stat.aversion))
        equal(b"mine", zk.get("/secret")[0])
        equal(1, zk.set_acls("/secret", acl).aversion)


def digest_acl_is_enforced():
    acl = [make_digest_acl("anna", "secret", all=True)]
    with Client(auth_data=[("digest", "anna:secret")]) as zk, Client() as stranger:
        zk.create("/closed", b"mine", acl=acl)
        raises(NoAuthError, fresh(stranger).get, "/closed")
        raises(NoAuthError, stranger.create, "/closed/child")
        stranger.add_auth("digest", "anna:secret")
        equal(b"mine", stranger.get("/closed")[0])


def lock():
    with Client() as one, Client() as two:
        first, second = one.Lock("/lock", "one"), two.Lock("/lock", "two")
        assert first.acquire(timeout=PATIENCE_S)
        raises(LockTimeout, second.acquire, timeout=1)
        assert not second.acquire(blocking=False)
        equal(["one"], fresh(two).Lock("/lock").contenders())
        first.release()
        assert second.acquire(timeout=PATIENCE_S)
        second.release()
        equal([], fresh(one).get_children("/lock"))


def lock_contended():
    inside, rounds = [], []

    def body():
        with Client() as zk:
            guard = zk.Lock("/contended-lock")
            for _ in range(5):
                with guard:
                    inside.append(1)
                    rounds.append(len(inside))
                    time.sleep(0.01)
                    inside.pop()

    threads = [threading.Thread(target=body) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=PATIENCE_S * 2)
    equal([1] * 20, rounds)


def lock_of_a_closed_holder():
    with Client() as waiting:
        holder = KazooClient(hosts=DIRECT, timeout=SESSION_TIMEOUT_S)
        holder.start(timeout=PATIENCE_S)
        assert holder.Lock("/orphan").acquire(timeout=PATIENCE_S)
        threading.Timer(0.5, holder.stop).start()
        assert waiting.Lock("/orphan").acquire(timeout=PATIENCE_S)


def election():
    led = queue.Queue()
    with Client() as one, Client() as two:
        release = threading.Event()

        def lead(name, wait):
            led.put(name)
            if wait:
                release.wait(PATIENCE_S)

        first = threading.Thread(
            target=lambda: one.Election("/election", "one").run(lead, "one", True))
        first.start()
        equal("one", led.get(timeout=PATIENCE_S))
        second = threading.Thread(
            target=lambda: two.Election("/election", "two").run(lead, "two", False))
        second.start()
        eventually("both stand", lambda: len(fresh(one).Election("/election").contenders()) == 2)
        equal(["one", "two"], one.Election("/election").contenders())
        assert led.empty(), "there are two leaders"
        release.set()
        equal("two", led.get(timeout=PATIENCE_S))
        first.join(PATIENCE_S)
        second.join(PATIENCE_S)


def party():
    with Client() as one, Client() as two:
        first, second = one.Party("/party", "one"), two.Party("/party", "two")
        first.join()
        second.join()
        fresh(one)
        equal(["one", "two"], sorted(first))
        second.leave()
        eventually("the other leaves", lambda: list(first) == ["one"])


def counter():
    def body():
        with Client() as zk:
            value = zk.Counter("/counter")
            for _ in range(10):
                value += 1

    threads = [threading.Thread(target=body) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=PATIENCE_S * 2)
    with Client() as zk:
        equal(40, fresh(zk).Counter("/counter").value)


def barrier():
    with Client() as one, Client() as two:
        one.Barrier("/barrier").create()
        assert not fresh(two).Barrier("/barrier").wait(timeout=1), "the barrier does not hold"
        threading.Timer(0.5, one.Barrier("/barrier").remove).start()
        assert two.Barrier("/barrier").wait(timeout=PATIENCE_S)


def double_barrier():
    passed = queue.Queue()

    def body():
        with Client() as zk:
            gate = zk.DoubleBarrier("/double", 2)
            gate.enter()
            passed.put("in")
            gate.leave()
            passed.put("out")

    first = threading.Thread(target=body)
    first.start()
    time.sleep(0.5)
    assert passed.empty(), "it is let in alone"
    second = threading.Thread(target=body)
    second.start()
    first.join(PATIENCE_S)
    second.join(PATIENCE_S)
    equal(["in", "in", "out", "out"], sorted(passed.get_nowait() for _ in range(4)))


def survives(trouble):
    path = f"/survives-{trouble}"
    with Client(RELAYED) as zk, Client() as other:
        states, data = queue.Queue(), queue.Queue()
        zk.add_listener(lambda state: states.put(state) and None)
        zk.create(path, b"0", ephemeral=True)
        zk.DataWatch(path, lambda value, stat: data.put(value))
        equal(b"0", data.get(timeout=PATIENCE_S))
        session, before = zk.client_id, fresh(other).exists(path)
        ask(trouble)
        equal(KazooState.SUSPENDED, states.get(timeout=PATIENCE_S))
        equal(KazooState.CONNECTED, states.get(timeout=PATIENCE_S))
        equal(session, zk.client_id)
        equal(before, other.exists(path))
        other.set(path, b"1")
        equal(b"1", data.get(timeout=PATIENCE_S))


def survives_a_cut():
    survives("cut")


def survives_a_move():
    survives("move")


def session_is_lost():
    with Client(RELAYED) as zk, Client() as other:
        states = queue.Queue()
        zk.create("/lost", ephemeral=True)
        session = zk.client_id
        zk.add_listener(lambda state: states.put(state) and None)
        assert fresh(other).exists("/lost"), "it is not there"
        ask("hold")
        equal(KazooState.SUSPENDED, states.get(timeout=PATIENCE_S))
        eventually("the session's end", lambda: other.exists("/lost") is None)
        ask("release")
        equal(KazooState.LOST, states.get(timeout=PATIENCE_S))
        equal(KazooState.CONNECTED, states.get(timeout=PATIENCE_S))
        assert session != zk.client_id, "the session is the old one"


def server_version():
    with Client() as zk:
        assert zk.server_version() >= (3, 9), zk.server_version()
        equal("imok", zk.command(b"ruok"))


STEPS = [
    create_read_write_delete,
    create_with_stat,
    ephemeral_and_sequence,
    watches_fire_once,
    data_and_children_watch,
    transaction,
    transaction_rolls_back,
    digest_acl_is_kept,
    digest_acl_is_enforced,
    lock,
    lock_contended,
    lock_of_a_closed_holder,
    election,
    party,
    counter,
    barrier,
    double_barrier,
    survives_a_cut,
    survives_a_move,
    session_is_lost,
    server_version,
]


def main():
    failures = 0
    for step in STEPS:
        name = step.__name__
        try:
            step()
            print(f"ok {name}", flush=True)
        except Exception as reason:  # whatever it is, it is this step's verdict
            failures += 1
            traceback.print_exc()
            text = f"{type(reason).__name__} {reason}".replace("\n", " ")
            print(f"failed {name}: {text}", flush=True)
    # Threads of a failed step must not keep the program.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1 if failures else 0)


main()
