"""Finds the cluster for the control plane.

kafka-python chooses a server at random and gives it all the time there is, also one that takes
connections and answers nothing: a broker that was stopped, or is cut off behind a balancer. Here
one after the other has a few seconds.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import Any

REQUEST_TIMEOUT_MS = 15_000
# A worker outlives its query by a minute; its connections need not. Longer than any request takes.
CONNECTION_IDLE_MS = 20_000
TIMEOUT_S = 30.0
PATIENCE_S = 3.0  # with one of several servers at first, then twice as long


def connected(control: Mapping[str, Any]) -> Any:
    """A KafkaAdminClient that has found the cluster. Raises what kafka-python raises."""
    from kafka.errors import KafkaTimeoutError

    servers = [server.strip() for server in control["bootstrap_servers"].split(",")]
    random.shuffle(servers)
    deadline = time.monotonic() + TIMEOUT_S
    patience_s = PATIENCE_S if len(servers) > 1 else TIMEOUT_S
    while True:
        for server in servers:
            within_s = min(patience_s, max(0.0, deadline - time.monotonic()))
            try:
                return _connected_to(server, control, within_s)
            except KafkaTimeoutError:
                if time.monotonic() >= deadline:
                    raise
        patience_s *= 2


def _connected_to(server: str, control: Mapping[str, Any], within_s: float) -> Any:
    from kafka.admin import KafkaAdminClient
    from kafka.net.compat import KafkaNetClient

    made: list[Any] = []

    def make(**config: Any) -> Any:
        made.append(KafkaNetClient(**config))
        return made[0]

    try:
        return KafkaAdminClient(
            **{**control, "bootstrap_servers": server},
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
