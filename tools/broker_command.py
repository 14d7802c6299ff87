"""`eo-kafka broker`: runs Kafka in the foreground until SIGTERM or Ctrl-C."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import AbstractContextManager

from ..broker.embedded import KafkaBroker, KafkaCluster, cluster
from ..broker.foreground import AskedToEnd, end_when_asked, port, small_number, watch
from ..broker.jars import DEFAULT_VERSION
from ..broker.settings import DIFFERENCES
from ..clients.kafka.cluster import connect
from .topic_command import created, wanted

_CONNECT_S = 30.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _epilog()
    parser.add_argument(
        "--port", type=port, default=0, help="port on 127.0.0.1; 0, the default, picks a free one"
    )
    parser.add_argument(
        "--dir", help="folder to keep the data in; default: a temporary one, deleted at the end"
    )
    parser.add_argument(
        "--kafka",
        metavar="VERSION",
        default=DEFAULT_VERSION,
        help=f"version of Apache Kafka, fetched once; default: {DEFAULT_VERSION}",
    )
    parser.add_argument(
        "--nodes",
        type=small_number,
        default=1,
        help="number of processes; 3 gives replication 3 and min.insync.replicas 2; default: 1",
    )
    parser.add_argument(
        "--topic",
        action="append",
        default=[],
        type=wanted,
        metavar="NAME:PARTITIONS",
        help="a topic to create once Kafka is up, such as orders:4; may be repeated",
    )


def _epilog() -> str:
    lines = [
        "Kafka's own defaults hold, such as auto.create.topics.enable=true and num.partitions=1,",
        "but for these ('1 or 3': of one node, or of three):",
    ]
    for one in DIFFERENCES:
        values = " or ".join(dict.fromkeys(str(one.value(nodes)) for nodes in (1, 3)))
        lines.append(f"  {one.name}={values}, not {one.default}: {one.reason}")
    return "\n".join(lines)


def run(arguments: argparse.Namespace) -> int:
    """Run Kafka; 0 when asked to end. Raises BrokerError if it cannot start or ends by itself."""
    end_when_asked()
    try:
        with _kafka(arguments) as kafka:
            made = _created(kafka.bootstrap_servers, arguments.topic)
            print("\n".join((f"bootstrap.servers={kafka.bootstrap_servers}", *made)), flush=True)
            watch(kafka.brokers if isinstance(kafka, KafkaCluster) else (kafka,))
    except AskedToEnd:
        return 0


def _created(servers: str, topics: Sequence[tuple[str, int]]) -> list[str]:
    """A sentence about each. They are there before the servers are told, for whoever waits for
    that."""
    if not topics:
        return []
    admin, _ = connect({"bootstrap.servers": servers}, _CONNECT_S)
    return list(created(admin, topics))


def _kafka(
    arguments: argparse.Namespace,
) -> AbstractContextManager[KafkaBroker] | AbstractContextManager[KafkaCluster]:
    where = {
        "port": arguments.port,
        "directory": arguments.dir,
        "version": arguments.kafka,
    }
    return KafkaBroker(**where) if arguments.nodes == 1 else cluster(arguments.nodes, **where)
