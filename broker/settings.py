"""Writes a node's `server.properties` and picks its ports."""

from __future__ import annotations

import random
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .errors import PortTaken

LOOPBACK = "127.0.0.1"
# Below the range from which Linux, macOS and Windows take ports for outgoing connections: a client
# that keeps trying a dead broker's port could otherwise be given that very port, and connect to
# itself, and the broker could not come back to it.
_PORTS = range(20_000, 32_768)
_given: deque[int] = deque(maxlen=1000)  # by this process, which may not listen there yet


@dataclass(frozen=True)
class Node:
    """One broker and controller of a quorum."""

    id: int
    port: int
    controller_port: int


def free_port(wanted: int = 0, who: str = "Kafka") -> int:
    """`wanted`, or for 0 a random port, that nobody listens on now (but may a moment later). No two
    calls of a process get the same one: a broker asks for several before it listens.

    Raises PortTaken if somebody listens on the wanted one.
    """
    if wanted and not _is_free(wanted):
        raise PortTaken(
            f"{who} cannot listen on {LOOPBACK}:{wanted}: another process holds that port. "
            f"Choose another one, or 0 for any that is free."
        )
    while wanted == 0:
        candidate = random.choice(_PORTS)  # noqa: S311 - no secret
        if candidate not in _given and _is_free(candidate):
            _given.append(candidate)
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


def _copies(nodes: int) -> int:
    return min(3, nodes)


def _majority(nodes: int) -> int:
    return 2 if nodes >= 3 else 1


@dataclass(frozen=True)
class Difference:
    """A setting that is not Kafka's default, `value` for so many nodes."""

    name: str
    value: Callable[[int], int]
    default: int
    reason: str


_COPIES = "three copies, or as many as there are nodes"
_MAJORITY = "a majority of the copies"
_FIRST_USE = "the first use of a fresh broker waits for all of them"
# All that differs from Kafka's defaults, besides identity, addresses and the data's folder: what a
# node on one's own machine needs. Whoever needs more says so, and why, where the broker is started.
DIFFERENCES = (
    Difference("default.replication.factor", _copies, 1, _COPIES),
    Difference("min.insync.replicas", _majority, 1, _MAJORITY),
    Difference("offsets.topic.replication.factor", _copies, 3, _COPIES),
    Difference("transaction.state.log.replication.factor", _copies, 3, _COPIES),
    Difference("transaction.state.log.min.isr", _majority, 2, _MAJORITY),
    Difference("share.coordinator.state.topic.replication.factor", _copies, 3, _COPIES),
    Difference("share.coordinator.state.topic.min.isr", _majority, 2, _MAJORITY),
    Difference("offsets.topic.num.partitions", lambda _: 8, 50, _FIRST_USE),
    Difference("transaction.state.log.num.partitions", lambda _: 8, 50, _FIRST_USE),
    Difference("group.initial.rebalance.delay.ms", lambda _: 0, 3000, "no other member is to come"),
    Difference(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        lambda _: 1000,
        10_000,
        "a transaction that has timed out is aborted soon after",
    ),
    Difference(
        "broker.session.timeout.ms",
        lambda _: 3000,
        9000,
        "a broker that was killed may come back only when its old session has run out",
    ),
    Difference("broker.heartbeat.interval.ms", lambda _: 500, 2000, "some of them in a session"),
    Difference("log.cleaner.dedupe.buffer.size", lambda _: 16 << 20, 128 << 20, "a small heap"),
)


def server_properties(
    node: Node, quorum: Sequence[Node], data: Path, overrides: Mapping[str, object]
) -> str:
    """The text of the node's `server.properties`. `overrides` win."""
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
        **{one.name: one.value(len(quorum)) for one in DIFFERENCES},
        **overrides,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())
