"""Holds a lock and an ephemeral with kazoo while servers are broken around it.

Says `waiting`, then `held` once the lock is its own, `lost` whenever its session has ended, and
after a line on its standard input `ok`, or `failed` with the reason.
"""

import sys
import threading

from kazoo.client import KazooClient, KazooState


def say(line):
    print(line, flush=True)


def main():
    hosts, name = sys.argv[1], sys.argv[2]
    retry = {"max_tries": -1, "delay": 0.1, "max_delay": 1}
    client = KazooClient(hosts=hosts, timeout=10, connection_retry=retry, command_retry=retry)
    lost = threading.Event()

    def watch(state):
        if state == KazooState.LOST:
            lost.set()
            say("lost")

    client.start(timeout=60)
    client.add_listener(watch)
    session = client.client_id[0]
    here = "/faults/kazoo-" + name
    client.retry(client.create, here, b"", ephemeral=True)
    lock = client.Lock("/faults/kazoo-lock", name)
    say("waiting")
    lock.acquire()
    say("held")
    sys.stdin.readline()
    if lost.is_set():
        say("failed the session was lost")
        return
    stat = client.retry(client.exists, here)
    if stat is None or stat.ephemeralOwner != session:
        say("failed the ephemeral is gone")
        return
    contenders = client.retry(lock.contenders)
    if not lock.is_acquired or contenders[:1] != [name]:
        say("failed the lock is not held: %r" % (contenders,))
        return
    lock.release()
    # The end of a session by its own client is none of its listener's business.
    client.remove_listener(watch)
    client.stop()
    client.close()
    say("ok")


main()
