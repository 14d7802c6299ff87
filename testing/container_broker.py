"""Kafka in a container, by testcontainers, for `--eo-kafka=container`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec

from ..broker.jars import DEFAULT_VERSION
from ..broker.settings import LOOPBACK, free_port
from ..broker.storage import new_cluster_id

IMAGE = "EO_KAFKA_KAFKA_IMAGE"  # names another one than the official, with VERSION for the version
DATA = "/var/lib/kafka/data"
HOST_PORT = 19092  # of the listener for clients on this machine
START_TIMEOUT_S = 180
_STARTED = "Kafka Server started"


def why_not() -> str:
    """Why no container can be started here; empty if one can, as far as a quick look tells."""
    if find_spec("testcontainers") is None:
        return "testcontainers is not installed: pip install 'eo-kafka[testing]'"
    from testcontainers.core.docker_client import DockerClient

    try:
        DockerClient(timeout=10).client.ping()
    except Exception as error:  # which kinds there are is not testcontainers' interface
        return f"no Docker engine answers: {error}"
    return ""


@contextmanager
def kafka_in_container() -> Iterator[str]:
    """Its address; the container ends with the block. It has Kafka's defaults. (testcontainers' own
    KafkaContainer is for Confluent's images.)"""
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.network import Network
    from testcontainers.core.wait_strategies import LogMessageWaitStrategy

    port = free_port()
    with Network() as network:
        image = os.environ.get(IMAGE) or "apache/kafka:VERSION"
        container = DockerContainer(image.replace("VERSION", DEFAULT_VERSION))
        container.ports[f"{HOST_PORT}/tcp"] = (LOOPBACK, port)  # type: ignore[assignment]
        container.with_network(network).with_network_aliases("kafka")
        container.waiting_for(
            LogMessageWaitStrategy(_STARTED).with_startup_timeout(START_TIMEOUT_S)
        )
        for name, value in broker_settings({1: "kafka"}, 1, port, new_cluster_id()).items():
            container.with_env(name, value)
        with container:
            yield f"{LOOPBACK}:{port}"


def broker_settings(
    names: Mapping[int, str], node_id: int, port: int, cluster_id: str
) -> dict[str, str]:
    """The variables of one of the brokers, of which these are the names in their network. Clients
    on this machine come by `port`."""
    voters = ",".join(f"{number}@{name}:9093" for number, name in names.items())
    copies, majority = ("3", "2") if len(names) >= 3 else ("1", "1")
    return {
        "CLUSTER_ID": cluster_id,
        "KAFKA_NODE_ID": str(node_id),
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": voters,
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT,HOST:PLAINTEXT,"
        "CONTROLLER:PLAINTEXT",
        "KAFKA_LISTENERS": f"PLAINTEXT://:9092,HOST://:{HOST_PORT},CONTROLLER://:9093",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://{names[node_id]}:9092,HOST://127.0.0.1:{port}",
        "KAFKA_LOG_DIRS": DATA,
        "KAFKA_DEFAULT_REPLICATION_FACTOR": copies,
        "KAFKA_MIN_INSYNC_REPLICAS": majority,
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": copies,
        "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": copies,
        "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": majority,
    }
