"""One Kafka in a container by testcontainers, for `--eo-kafka=container`: the same broker as
KafkaContainers', from the official image or the local one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import docker_engine
import shared_servers
from eo_kafka.broker.jars import DEFAULT_VERSION
from eo_kafka.broker.settings import LOOPBACK, free_port
from eo_kafka.broker.storage import new_cluster_id
from kafka_containers import HOST_PORT, START_TIMEOUT_S, broker_settings

STARTED = r"Kafka Server started"  # the official image's log and the local one's


@contextmanager
def kafka_in_container() -> Iterator[str]:
    """Its address; the container ends with the block. (testcontainers' own KafkaContainer is for
    Confluent's images.)"""
    os.environ["DOCKER_HOST"] = shared_servers.address_of(
        "engine", docker_engine.running_engine, str
    )
    # removes containers when we die; it comes from a registry, and an engine of ours does the same
    os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.network import Network
    from testcontainers.core.wait_strategies import LogMessageWaitStrategy

    port = free_port()
    ready = LogMessageWaitStrategy(STARTED).with_startup_timeout(int(START_TIMEOUT_S))
    with Network() as network:
        container = DockerContainer(docker_engine.kafka_image(DEFAULT_VERSION))
        container.ports[f"{HOST_PORT}/tcp"] = (LOOPBACK, port)  # type: ignore[assignment]
        container.with_network(network).with_network_aliases("kafka").waiting_for(ready)
        for name, value in broker_settings({1: "kafka"}, 1, port, new_cluster_id()).items():
            container.with_env(name, value)
        with container:
            yield f"{LOOPBACK}:{port}"
