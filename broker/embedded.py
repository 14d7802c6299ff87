"""A real Apache Kafka on this machine, as a context manager: one node, or a cluster of them.

    with KafkaBroker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

    with cluster(nodes=3) as kafka:
        kafka.brokers[0].kill()

Every node is a JVM that is broker and controller (KRaft) and listens on 127.0.0.1 only. POSIX only.
A folder looks like this, and a broker started on it again continues with its data:

    <directory>/server.properties     written at every start
    <directory>/broker.log            warnings and errors, of all starts
    <directory>/data/                 Kafka's log directory
"""

from __future__ import annotations

import atexit
import os
import socket
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..clients.kafka.config import admin_client
from .errors import BrokerError, PortTaken
from .jars import DEFAULT_VERSION, kafka_jars
from .java import find_java
from .process import OneProcess, ServerProcess
from .server import Server
from .settings import LOOPBACK, Node, free_port, server_properties
from .storage import cluster_id_of, format_storage, new_cluster_id

START_TIMEOUT = 90.0  # seconds; 3 on an idle machine
_PORT_ATTEMPTS = 5
# The serial collector starts quickest and is enough for half a gigabyte. The optimizing compiler
# stays on: brokers that live for seconds gain little without it, benchmarks would lose much.
_JVM_OPTIONS = (
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
)


class KafkaBroker(OneProcess, Server):
    """One Kafka node.

    `port` 0 picks a free one, which then stays the same through `restart()`. `directory` None is a
    temporary folder, deleted at the end (not if this process is killed); a folder that was given
    is never deleted. `version` is Kafka's. `properties` go over the defaults of
    `settings.server_properties`. `features` ({"transaction.version": 1}) are finalized when the
    folder is formatted, that is at the first start on it. Methods raise BrokerError.
    """

    called = "The broker"

    def __init__(
        self,
        port: int = 0,
        directory: str | os.PathLike[str] | None = None,
        version: str = DEFAULT_VERSION,
        properties: Mapping[str, object] | None = None,
        features: Mapping[str, int] | None = None,
        *,
        node_id: int = 1,
        cluster_id: str | None = None,
    ) -> None:
        self._wanted_port = port
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        if directory is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="eo-kafka-broker-")
            directory = self._temporary.name
        self.directory = Path(directory).absolute()
        self.version = version
        self.node_id = node_id
        self._properties = dict(properties or {})
        self._features = dict(features or {})
        self._cluster_id = cluster_id or new_cluster_id()
        self._quorum: Sequence[Node] = ()

    @property
    def bootstrap_servers(self) -> str:
        """`127.0.0.1:PORT`, what clients are given."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def port(self) -> int:
        """The port clients connect to."""
        return self._node.port

    @property
    def log_path(self) -> Path:
        """The file with the broker's warnings and errors."""
        return self.directory / "broker.log"

    def epitaph(self) -> str:
        """A sentence about a broker that ended without being asked to."""
        return (
            f"Kafka {self.version}, node {self.node_id} in {self.directory}, ended by itself. "
            f"Its log ends with: {self._log_end()}"
        )

    def start(self) -> None:
        """Start, and return once requests are answered. Does nothing if it runs."""
        if self.running:
            return
        if self._quorum:
            self._launch(self._quorum)
            self._await_ready({self.node_id})
        else:
            _first_start([self])

    def restart(self) -> None:
        """Stop if it runs, and start again with the same port and folder."""
        self.stop()
        self.start()

    def close(self) -> None:
        """End it and delete its folder if that is a temporary one. `with` calls this."""
        if self._temporary is None:
            self.stop()
        else:
            self.kill()  # nothing is kept that an orderly end could save
            self._temporary.cleanup()
        atexit.unregister(self.close)

    @property
    def _node(self) -> Node:
        for node in self._quorum:
            if node.id == self.node_id:
                return node
        raise BrokerError("The broker was not started: call start() or use 'with'.")

    def _launch(self, quorum: Sequence[Node]) -> None:
        """Start the JVM without waiting for it."""
        jars, java = kafka_jars(self.version), str(find_java())
        self._quorum = tuple(quorum)
        data, config = self.directory / "data", self.directory / "server.properties"
        self.directory.mkdir(parents=True, exist_ok=True)
        config.write_text(server_properties(self._node, quorum, data, self._properties))
        classpath = ("-cp", f"{jars}/*")
        if cluster_id_of(data) is None:
            quick_java = (java, "-XX:TieredStopAtLevel=1", *classpath)
            format_storage(quick_java, config, self._cluster_id, self._features)
        self._cluster_id = cluster_id_of(data) or self._cluster_id
        self._process = ServerProcess(
            [java, *_JVM_OPTIONS, *classpath, "kafka.Kafka", str(config)], self.log_path
        )
        atexit.register(self.close)

    def _await_ready(self, expected: Collection[int], timeout: float = START_TIMEOUT) -> None:
        """Return once this node answers requests and knows all `expected` nodes as alive."""
        deadline = time.monotonic() + timeout
        while not (_listens(self.port) and self._alive_nodes() >= set(expected)):
            if not self.running:
                raise self._died()
            if time.monotonic() > deadline:
                raise BrokerError(
                    f"Kafka {self.version} at {self.bootstrap_servers} did not answer within "
                    f"{timeout:.0f} seconds. Its log, {self.log_path}, ends with: {self._log_end()}"
                )
            time.sleep(0.05)

    def _alive_nodes(self) -> set[int]:
        """Ids of the brokers in the metadata; none while our own Kafka does not answer."""
        from confluent_kafka import KafkaException

        admin = admin_client({"bootstrap.servers": self.bootstrap_servers})
        try:
            metadata = admin.list_topics(timeout=2)
        except KafkaException:
            return set()
        # another process's Kafka may have taken the port while ours was down
        return set(metadata.brokers) if metadata.cluster_id == self._cluster_id else set()

    def _died(self) -> BrokerError:
        if "Address already in use" in self._said():
            return PortTaken(
                f"Kafka could not listen on {self.bootstrap_servers} or its controller's port "
                f"{self._node.controller_port}: another process holds it. Choose another port, or "
                f"0 for a free one."
            )
        return BrokerError(self.epitaph())


class KafkaCluster:
    """Brokers that form one Kafka. `brokers` can be killed, stopped and restarted one by one."""

    def __init__(self, brokers: Sequence[KafkaBroker]) -> None:
        self.brokers = tuple(brokers)

    @property
    def bootstrap_servers(self) -> str:
        """All nodes, `127.0.0.1:P1,127.0.0.1:P2,...`."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers)

    def start(self) -> None:
        """Start those that do not run, together: one alone would wait for a quorum."""
        for broker in self.brokers:
            if not broker.running:
                broker._launch(broker._quorum)
        for broker in self.brokers:
            broker._await_ready({other.node_id for other in self.brokers})


@contextmanager
def cluster(
    nodes: int = 3,
    *,
    port: int = 0,
    directory: str | os.PathLike[str] | None = None,
    version: str = DEFAULT_VERSION,
    properties: Mapping[str, object] | None = None,
    features: Mapping[str, int] | None = None,
) -> Iterator[KafkaCluster]:
    """A running Kafka of several processes; with three, replication 3 and min.insync.replicas 2.

    `port` is the first node's. The nodes keep their data in `<directory>/node-1` and so on. The
    rest is as for KafkaBroker. Raises BrokerError.
    """
    cluster_id = new_cluster_id()
    brokers = [
        KafkaBroker(
            port if node_id == 1 else 0,
            None if directory is None else Path(directory) / f"node-{node_id}",
            version,
            properties,
            features,
            node_id=node_id,
            cluster_id=cluster_id,
        )
        for node_id in range(1, nodes + 1)
    ]
    try:
        _first_start(brokers)
        yield KafkaCluster(brokers)
    finally:
        if directory is not None:
            for broker in brokers:  # all at once: the last ones cannot stop without a quorum
                broker._ask_to_stop()
        for broker in brokers:
            broker.close()


def _first_start(brokers: Sequence[KafkaBroker]) -> None:
    """Choose ports and start. A port that was free may be taken a moment later: choose again."""
    for attempt in range(1, _PORT_ATTEMPTS + 1):
        quorum = [
            Node(broker.node_id, free_port(broker._wanted_port), free_port()) for broker in brokers
        ]
        try:
            for broker in brokers:
                broker._launch(quorum)
            for broker in brokers:
                broker._await_ready({node.id for node in quorum})
        except PortTaken:
            for broker in brokers:
                broker.kill()
            if attempt == _PORT_ATTEMPTS:
                raise
        else:
            return


def _listens(port: int) -> bool:
    try:
        socket.create_connection((LOOPBACK, port), timeout=1).close()
    except OSError:
        return False
    return True
