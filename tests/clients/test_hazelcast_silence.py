"""Members of Hazelcast that take connections and say nothing."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from eo_kafka.clients.hazelcast.client import HazelcastSettings, client, close_clients
from eo_kafka.errors import EoKafkaError, ReadTimeout
from eo_kafka.testing.processes import wait_until

CONNECT_S = 2


class Silent:
    """Listens, and says nothing."""

    def __init__(self, listener: socket.socket) -> None:
        self.taken: list[socket.socket] = []
        self._listener = listener
        self.address = f"127.0.0.1:{listener.getsockname()[1]}"
        threading.Thread(target=self._take, daemon=True).start()

    def _take(self) -> None:
        while True:
            try:
                self.taken.append(self._listener.accept()[0])
            except OSError:
                return


@pytest.fixture
def two() -> Iterator[list[Silent]]:
    with ExitStack() as stack:
        listeners = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in "ab"]
        yield [Silent(listener) for listener in listeners]


@pytest.mark.parametrize("tls", [(), (("ssl_enabled", True),)], ids=["clear", "tls"])
def test_a_member_that_says_nothing_keeps_nobody_from_the_next_one(
    two: list[Silent], tls: tuple[tuple[str, Any], ...]
) -> None:
    members = tuple(one.address for one in two)
    settings = HazelcastSettings(members, "dev", True, CONNECT_S * 1000, 5000, None, tls)
    raised: list[EoKafkaError] = []

    def ask() -> None:
        try:
            client(settings)
        except EoKafkaError as error:
            raised.append(error)

    asks = threading.Thread(target=ask, daemon=True)
    asks.start()
    wait_until(lambda: two[0].taken or two[1].taken, "a member is asked")
    closes = threading.Thread(target=close_clients, daemon=True)
    closes.start()
    closes.join(CONNECT_S / 4)
    assert not closes.is_alive(), "who needs no client of this cluster does not wait for one"
    assert asks.is_alive()
    began = time.monotonic()
    asks.join(CONNECT_S + 10)
    assert not asks.is_alive()
    assert time.monotonic() - began < CONNECT_S + 10
    assert isinstance(raised[0], ReadTimeout)
    assert all(one.taken for one in two), "both were asked"
