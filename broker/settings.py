"""What `server.properties` of a node says, and which ports it listens on."""

from __future__ import annotations

import random
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eo_kafka.broker.errors import PortTaken

LOOPBACK = "127.0.0.1"
# Below the range from which Linux, macOS and Windows take ports for outgoing connections: a client
# that keeps trying a dead broker's port could otherwise be given that very port, and connect to
# itself, and the broker could not come back to it.
_PORTS = range(20_000, 32_768)


@dataclass(frozen=True)
class Node:
    """One broker and controller of a quorum."""

    id: int
    port: int
    controller_port: int


def free_port(wanted: int = 0, who: str = "Kafka") -> int:
    """`wanted`, or for 0 a random port, that nobody listens on now (but may a moment later).

    Raises PortTaken if somebody listens on the wanted one.
    """
    if wanted and not _is_free(wanted):
        raise PortTaken(
            f"{who} cannot listen on {LOOPBACK}:{wanted}: another process holds that port. "
            f"Choose another one, or 0 for any that is free."
        )
    while wanted == 0:
        candidate = random.choice(_PORTS)  # noqa: S311 - no secret
        if _is_free(candidate):
            wanted = candidate
    return wanted


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Kafka will
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def server_properties(
    node: Node, quorum: Sequence[Node], data: Path, overrides: Mapping[str, object]
) -> str:
    """The text of the node's `server.properties`. `overrides` win."""
    copies = min(3, len(quorum))
    in_sync = 2 if copies == 3 else 1
    settings: dict[str, object] = {
        "node.id": node.id,
        "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://{LOOPBACK}:{node.port},"
        f"CONTROLLER://{LOOPBACK}:{node.controller_port}",
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{node.port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ",".join(
            f"{one.id}@{LOOPBACK}:{one.controller_port}" for one in quorum
        ),
        "log.dirs": data,
        "auto.create.topics.enable": "false",
        "default.replication.factor": copies,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
        # the default of 50 partitions each is what the first use of a fresh broker waits for
        "offsets.topic.num.partitions": 8,
        "transaction.state.log.num.partitions": 8,
        "group.initial.rebalance.delay.ms": 0,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
        # a broker that was killed is let in again when its old session has run out, 9 s by default
        "broker.session.timeout.ms": 3000,
        "broker.heartbeat.interval.ms": 500,
        # 128 MB of a small heap by default
        "log.cleaner.dedupe.buffer.size": 16 * 1024 * 1024,
        **overrides,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())
