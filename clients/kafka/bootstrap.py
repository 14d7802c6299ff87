"""Finds the cluster for the control plane.

kafka-python chooses a server at random and gives it all the time there is, also one that takes
connections and answers nothing: a broker that was stopped, or is cut off behind a balancer. Here
each that takes a connection has a few seconds, one after the other.
"""

from __future__ import annotations

import functools
import logging
import random
import ssl
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from .outages import SILENT, address_of, connection_problem

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_MS = 15_000
TIMEOUT_S = 30.0  # of brokers that have not served anybody yet
# A worker outlives its query by a minute; its connections need not. Longer than any request takes.
CONNECTION_IDLE_MS = 20_000
CONNECT_TIMEOUT_MS = 10_000  # with TLS and the login; less than a request that waits for it has
# Bounds how long it goes on waiting when Kafka is back: kafka-python's own bound is 30 s, and each
# process of a batch waits by itself.
RECONNECT_MAX_MS = 1_000
LOOK_S = 1.0  # for a connection, before that
PATIENCE_S = 3.0  # where there are several servers; in the next round twice as long, up to
TURN_MAX_S = 12.0  # what a connection needs: one that is not answered says nothing of the next


def connected(control: Mapping[str, Any], within_s: float | None = None) -> Any:
    """A KafkaAdminClient that has found the cluster, `within_s`, by default TIMEOUT_S. Raises what
    kafka-python raises; ssl.SSLError where one of the two sides does not trust the other's
    certificate."""
    from kafka.errors import KafkaTimeoutError

    servers = [name.strip() for name in control["bootstrap_servers"].split(",") if name.strip()]
    random.shuffle(servers)
    deadline = time.monotonic() + (within_s or TIMEOUT_S)
    each_s = PATIENCE_S if len(servers) > 1 else TURN_MAX_S
    distrust: list[ssl.SSLError] = []
    while True:
        for wanted in _ways(servers):
            turn_s = min(each_s, max(0.0, deadline - time.monotonic()))
            try:
                return _connected_to(wanted, control, turn_s, distrust)
            except KafkaTimeoutError:
                if time.monotonic() >= deadline and distrust:
                    raise distrust[-1] from None
                if time.monotonic() >= deadline:
                    raise
        each_s = min(TURN_MAX_S, 2 * each_s)


def _ways(servers: list[str]) -> Iterator[list[str]]:
    """One after the other of those that take a connection; all, if none does. The only one is not
    looked at: there is nobody else to go to."""
    none = True
    for server in servers if len(servers) > 1 else ():
        if not _refuses(server):
            none = False
            yield [server]
    if none:
        yield servers


def _refuses(server: str) -> bool:
    found = address_of(server)
    return found is not None and connection_problem(*found, LOOK_S) not in (None, SILENT)


def _connected_to(
    servers: list[str],
    control: Mapping[str, Any],
    within_s: float,
    distrust: list[ssl.SSLError],
) -> Any:
    from kafka.admin import KafkaAdminClient
    from kafka.net.compat import KafkaNetClient

    if sys.flags.optimize:
        _read_without_assert()
    made: list[Any] = []

    changed = {
        "metrics": None,  # nobody reads them, and they are a tenth of what a request costs
        "socket_connection_setup_timeout_ms": CONNECT_TIMEOUT_MS,
        "socket_connection_setup_timeout_max_ms": CONNECT_TIMEOUT_MS,
    }

    def make(**config: Any) -> Any:
        made.append(KafkaNetClient(**{**config, **changed}))
        _look_at_each(made[0]._manager, control["bootstrap_servers"])
        _connect_in_time(made[0]._manager, distrust)
        return made[0]

    try:
        return KafkaAdminClient(
            **{**control, "bootstrap_servers": servers},
            kafka_client=make,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            reconnect_backoff_max_ms=RECONNECT_MAX_MS,
            bootstrap_timeout_ms=int(within_s * 1000),
            connections_max_idle_ms=CONNECTION_IDLE_MS,
            max_in_flight_requests_per_connection=1000,  # EndTxn for all tasks in one round
        )
    except BaseException:
        for client in made:  # its thread goes on, and nobody has it
            client.close()
        raise


def _look_at_each(manager: Any, servers: str) -> None:
    """Two things that each connection does otherwise than kafka-python's.

    It sends on to a broker that throttles us, which reads what was sent when the time is over.
    kafka-python refuses to send meanwhile, and a question of several requests is never answered.

    It learns what its broker knows. kafka-python goes by the first broker that it ever met, and an
    EndTxn 5, say, would never be sent by a query under which the brokers were upgraded.
    """
    connection_to = manager.get_connection

    def throttled(answer: Any) -> None:
        if getattr(answer, "throttle_time_ms", 0):
            _tell(servers)

    def get_connection(*args: Any, **named: Any) -> Any:
        connection = connection_to(*args, **named)
        if connection._maybe_throttle is not throttled:  # a new one
            connection._maybe_throttle = throttled
            connection.broker_version_data = None
        return connection

    manager.get_connection = get_connection


def _connect_in_time(manager: Any, distrust: list[ssl.SSLError]) -> None:
    """End a TLS handshake when the time for a connection is over. kafka-python bounds what comes
    before and behind it, and waits for the handshake itself without limit: for a broker that was
    stopped, and whose kernel takes connections. One that fails goes into `distrust`, where it is
    of certificates: kafka-python tells of a time that is over only."""
    from kafka.errors import KafkaTimeoutError
    from kafka.future import Future

    build, net = manager._build_transport, manager._net

    async def in_time(node: Any, timeout_at: float) -> Any:
        made = Future()

        async def make() -> None:
            try:
                made.success(await build(node, timeout_at=timeout_at))
            except Exception as error:
                why = error.__context__
                if isinstance(why, ssl.SSLError) and not isinstance(why, ssl.SSLEOFError):
                    distrust.append(why)
                made.failure(error)

        def give_up() -> None:
            if not made.is_done:
                net.cancel(task)  # that drops its socket
                made.failure(KafkaTimeoutError(f"{node.host}:{node.port}: no TLS handshake"))

        task = net.call_soon(make)
        timer = net.call_at(timeout_at, give_up)
        try:
            return await made
        finally:
            net.cancel(timer)

    manager._build_transport = in_time


@functools.cache
def _tell(servers: str) -> None:
    log.warning(
        "Kafka at %s throttles this client: it, or all clients of its user, are over a quota "
        "(kafka-configs --describe --entity-type users, or clients). Batches take longer.",
        servers,
    )


def _read_without_assert() -> None:
    """kafka-python reads past empty tagged fields within an `assert`, which `python -O` and
    PYTHONOPTIMIZE leave out: then no answer of a broker could be read."""
    from kafka.protocol.schemas.fields.codecs.tagged_fields import TaggedFields
    from kafka.protocol.schemas.fields.codecs.types import UnsignedVarInt32

    TaggedFields.decode_empty = UnsignedVarInt32.decode
