"""Repairs three faults of Hazelcast's client 5.7, in its private parts.

`integration_tests/maps/test_hazelcast_internals.py` shows two, and fails when the waker is mended;
`tests/clients/test_hazelcast_silence.py` shows the third.
"""

from __future__ import annotations

import os
import time
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hazelcast import HazelcastClient

# What the client uses of `time`. Near the time of day, by which clients of others have timers.
_began = time.time() - time.monotonic()
_steady = SimpleNamespace(time=lambda: _began + time.monotonic(), sleep=time.sleep)


def fix_waker(client: HazelcastClient) -> bool:
    """Repair how client 5.7 wakes its network loop; False where there is nothing to repair.

    It clears the flag "was woken" before it empties the pipe through which it was. A wake-up in
    between leaves flag set and pipe empty for good, no later one is sent, and every request waits
    for the loop's 10 ms. Emptying first leaves no such moment.
    """
    loop = getattr(getattr(client, "_reactor", None), "_loop", None)
    waker = getattr(loop, "waker", None)
    pipe = getattr(waker, "_read_fd", None)
    if waker is None or pipe is None:
        return False

    def handle_read() -> None:
        try:
            while len(os.read(pipe, 4096)) == 4096:
                pass
        except OSError:
            pass  # empty, or closed at shutdown
        waker.awake = False

    waker.handle_read = handle_read
    return True


def steady_clock() -> None:
    """Give the client a clock that nobody sets. Before the first client of a process.

    All that client 5.7 does by and by is a timer of `time.time()`: heartbeats, connecting to
    members again, trying requests again, giving them up. Where a machine's clock is set back, none
    of that happens for as long, and requests that depend on it are never answered.
    """
    from hazelcast import connection, invocation, reactor

    for module in (connection, invocation, reactor):
        module.time = _steady


@cache
def bound_login() -> None:
    """Give up members that take a connection and do not answer the login. Before the first client.

    Client 5.7 waits for that answer for ever, beside other members: `connection_timeout` ends with
    TCP's part, heartbeats begin behind the login. Half of the time for connecting leaves the next
    member its turn.
    """
    from hazelcast.connection import ConnectionManager

    unbound = ConnectionManager._authenticate

    def authenticate(manager: Any, connection: Any) -> Any:
        answer = unbound(manager, connection)
        longest_s = manager._config.cluster_connect_timeout / 2

        def give_up() -> None:
            if not answer.done():
                connection.close_connection(None, OSError("no answer to the login"))

        if longest_s > 0:  # -1 is for ever
            manager._reactor.add_timer(longest_s, give_up)
        return answer

    ConnectionManager._authenticate = authenticate
