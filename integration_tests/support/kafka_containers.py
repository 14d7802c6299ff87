"""Kafka in containers of the official image's layout: brokers to kill, pause, cut off and replace.

Each has Kafka's defaults but for what a broker must be told: who and where it is, and how many
copies the internal topics of so many brokers can have. Clients on this machine come by a port that
is published on the loopback address.
"""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from docker_engine import docker
from eo_kafka.broker.settings import free_port
from eo_kafka.broker.storage import new_cluster_id
from eo_kafka.testing.container_broker import (
    DATA,
    HOST_PORT,
    START_TIMEOUT_S,
    broker_settings,
)
from eo_kafka.testing.processes import wait_until


@dataclass
class Broker:
    """One container. `data` outlives it: a volume."""

    node_id: int
    name: str
    port: int
    data: str
    options: list[str] = field(default_factory=list)  # of `docker run`

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        docker("kill", self.name)

    def pause(self) -> None:
        """Freeze it: its connections stay, and it answers nothing."""
        docker("pause", self.name)

    def unpause(self) -> None:
        docker("unpause", self.name)

    def start(self) -> None:
        """Start a container that has ended, with its data."""
        docker("start", self.name)

    def stop(self) -> None:
        """End it in order."""
        docker("stop", "--time", 60, self.name)

    @property
    def running(self) -> bool:
        return docker("inspect", "--format", "{{.State.Running}}", self.name) == "true"

    def log(self) -> str:
        return docker("logs", "--tail", 40, self.name)

    def sh(self, command: str) -> str:
        """Run something in it; it need not succeed."""
        return docker("exec", self.name, "bash", "-c", command, check=False)


class KafkaContainers:
    """Brokers that form one Kafka; `with` starts and removes them. `options` go to `docker run`, by
    node (0: every node). `data_options` say how the volumes of data are made."""

    def __init__(
        self,
        image: str,
        nodes: int = 1,
        options: Mapping[int, Sequence[str]] | None = None,
        data_options: Sequence[str] = (),
    ) -> None:
        self.image = image
        self.network = f"eo-kafka-{uuid.uuid4().hex[:8]}"
        self._cluster_id = new_cluster_id()
        self._data_options = list(data_options)
        options = options or {}
        self.brokers = [
            Broker(
                node_id,
                f"{self.network}-{node_id}",
                free_port(),
                f"{self.network}-{node_id}",
                [*options.get(0, ()), *options.get(node_id, ())],
            )
            for node_id in range(1, nodes + 1)
        ]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{broker.port}" for broker in self.brokers)

    def __enter__(self) -> KafkaContainers:
        try:
            docker("network", "create", self.network)
            for broker in self.brokers:
                docker("volume", "create", *self._data_options, broker.data)
                self.run(broker)
            self.await_all()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        names = [broker.name for broker in self.brokers]
        docker("rm", "--force", *names, check=False)
        docker("volume", "rm", *(broker.data for broker in self.brokers), check=False)
        docker("network", "rm", self.network, check=False)

    def run(self, broker: Broker, image: str | None = None) -> None:
        """A new container on the broker's data, of another image if one is named."""
        names = {one.node_id: one.name for one in self.brokers}
        settings = broker_settings(names, broker.node_id, broker.port, self._cluster_id)
        docker(
            *("run", "--detach", "--name", broker.name, "--network", self.network),
            *("--publish", f"127.0.0.1:{broker.port}:{HOST_PORT}"),
            *("--volume", f"{broker.data}:{DATA}"),
            *(f"--env={name}={value}" for name, value in settings.items()),
            *broker.options,
            image or self.image,
        )

    def replace(self, broker: Broker, image: str) -> None:
        """Another container, of another image, on the data of one that has ended."""
        docker("rm", broker.name)
        self.run(broker, image)

    def cut_off(self, broker: Broker) -> None:
        """From the other brokers and from clients."""
        docker("network", "disconnect", self.network, broker.name)

    def reconnect(self, broker: Broker) -> None:
        docker("network", "connect", self.network, broker.name)

    def part_from_others(self, broker: Broker) -> None:
        """From the other brokers, and not from clients."""
        address = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
        process = docker("inspect", "--format", "{{.State.Pid}}", broker.name)
        for other in self.brokers:
            if other is not broker:
                nowhere = f"{docker('inspect', '--format', address, other.name)}/32"
                route = ["ip", "route", "add", "blackhole", nowhere]
                subprocess.run(["nsenter", "-t", process, "-n", *route], check=True)

    def await_all(self) -> None:
        """Return once every broker answers, knows all others, and every replica is in sync."""
        for broker in self.brokers:
            wait_until(lambda: self._ready(broker), f"{broker.name} is ready", START_TIMEOUT_S)  # noqa: B023

    def _ready(self, broker: Broker) -> bool:
        if not broker.running:
            raise AssertionError(f"{broker.name} has ended:\n{broker.log()}")
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{broker.port}", "log_level": 0})
        try:
            metadata = admin.list_topics(timeout=2)
        except KafkaException:
            return False
        if metadata.orig_broker_id not in (-1, broker.node_id):  # -1: by the bootstrap connection
            return False
        partitions = [
            one for topic in metadata.topics.values() for one in topic.partitions.values()
        ]
        return len(metadata.brokers) == len(self.brokers) and all(
            len(one.isrs) == len(one.replicas) for one in partitions
        )
