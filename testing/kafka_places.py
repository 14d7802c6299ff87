"""Where a test's Kafka comes from: decided here and nowhere else."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from ..broker.embedded import KafkaBroker, cluster
from ..broker.errors import BrokerError
from ..clients.kafka.first_contact import nobody_listens
from . import container_broker, shared_servers
from .proxy import Proxy, proxied_broker

PROCESS = "process"  # the option's default: a broker that is a process of this machine
CONTAINER = "container"  # where an engine answers; else a process
VARIABLE = "EO_KAFKA_TEST_BOOTSTRAP"  # an address, where nobody can give options
ANSWER_S = 3.0


@dataclass(frozen=True)
class Place:
    """A Kafka. `servers` is for the test itself, `job_servers` for its jobs: with a proxy, behind
    it. `brokers` are those that the test may kill; none where others use them, too. `stays` says
    that it lives on when the tests have ended."""

    servers: str
    job_servers: str
    brokers: tuple[KafkaBroker, ...] = ()
    proxy: Proxy | None = None
    stays: bool = False


def shared_place(option: str | None, nodes: int) -> Place:
    """The Kafka that all workers of a run share: of the option's address, or started by the first
    that needs it."""
    wanted = option or os.environ.get(VARIABLE) or PROCESS
    if wanted == CONTAINER and nodes == 1 and not container_broker.why_not():
        kafka = container_broker.kafka_in_container
        found = shared_servers.address_of("kafka", kafka, str)
        return Place(found, found)
    if wanted not in (PROCESS, CONTAINER):
        if problem := nobody_listens(wanted, ANSWER_S):
            raise BrokerError(problem)
        return Place(wanted, wanted, stays=True)
    if nodes == 1:
        found = shared_servers.address_of("kafka", KafkaBroker, lambda one: one.bootstrap_servers)
    else:
        found = shared_servers.address_of(
            f"kafka-{nodes}", lambda: cluster(nodes), lambda all_: all_.bootstrap_servers
        )
    return Place(found, found)


@contextmanager
def own_place(nodes: int, properties: Mapping[str, object]) -> Iterator[Place]:
    """A Kafka for one test, whose brokers it may kill. One alone is behind a proxy."""
    if nodes == 1:
        with proxied_broker(properties) as (broker, proxy):
            behind = f"{broker.bootstrap_servers.rpartition(':')[0]}:{proxy.port}"
            yield Place(broker.bootstrap_servers, behind, (broker,), proxy)
    else:
        with cluster(nodes, properties=properties) as started:
            servers = started.bootstrap_servers
            yield Place(servers, servers, started.brokers)
