"""Finds the cluster for the control plane.

kafka-python chooses a server at random and gives it all the time there is, also one that takes
connections and answers nothing: a broker that was stopped, or is cut off behind a balancer. Here
each that takes a connection has a few seconds, one after the other.
"""

from __future__ import annotations

import functools
import logging
import random
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from ...core.patience import patience_s
from .outages import SILENT, address_of, connection_problem

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_MS = 15_000
TIMEOUT_S = 30.0  # of brokers that have not served anybody yet
# A worker outlives its query by a minute; its connections need not. Longer than any request takes.
CONNECTION_IDLE_MS = 20_000
LOOK_S = 1.0  # for a connection, before that
PATIENCE_S = 3.0  # where there are several servers; in the next round twice as long


def connected(control: Mapping[str, Any]) -> Any:
    """A KafkaAdminClient that has found the cluster. Raises what kafka-python raises."""
    from kafka.errors import KafkaTimeoutError

    servers = [name.strip() for name in control["bootstrap_servers"].split(",") if name.strip()]
    random.shuffle(servers)
    timeout_s = patience_s(control["bootstrap_servers"], TIMEOUT_S)
    deadline = time.monotonic() + timeout_s
    each_s = PATIENCE_S if len(servers) > 1 else timeout_s
    while True:
        for wanted in _ways(servers):
            within_s = min(each_s, max(0.0, deadline - time.monotonic()))
            try:
                return _connected_to(wanted, control, within_s)
            except KafkaTimeoutError:
                if time.monotonic() >= deadline:
                    raise
        each_s *= 2


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


def _connected_to(servers: list[str], control: Mapping[str, Any], within_s: float) -> Any:
    from kafka.admin import KafkaAdminClient
    from kafka.net.compat import KafkaNetClient

    if sys.flags.optimize:
        _read_without_assert()
    made: list[Any] = []

    def make(**config: Any) -> Any:
        # Nobody reads its metrics, and they are a tenth of what a request costs
        made.append(KafkaNetClient(**{**config, "metrics": None}))
        _wait_where_throttled(made[0]._manager, control["bootstrap_servers"])
        return made[0]

    try:
        return KafkaAdminClient(
            **{**control, "bootstrap_servers": servers},
            kafka_client=make,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            bootstrap_timeout_ms=int(within_s * 1000),
            connections_max_idle_ms=CONNECTION_IDLE_MS,
            max_in_flight_requests_per_connection=1000,  # EndTxn for all tasks in one round
        )
    except BaseException:
        for client in made:  # its thread goes on, and nobody has it
            client.close()
        raise


def _wait_where_throttled(manager: Any, servers: str) -> None:
    """Send on to a broker that throttles us: it reads what was sent when the time is over.
    kafka-python refuses to send meanwhile, and a question of several requests is never answered."""
    connection_to = manager.get_connection

    def throttled(answer: Any) -> None:
        if getattr(answer, "throttle_time_ms", 0):
            _tell(servers)

    def get_connection(*args: Any, **named: Any) -> Any:
        connection = connection_to(*args, **named)
        connection._maybe_throttle = throttled
        return connection

    manager.get_connection = get_connection


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
