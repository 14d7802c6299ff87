"""`eo-kafka broker`: Kafka in the foreground, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import argparse
import signal
import time
from contextlib import AbstractContextManager
from types import FrameType

from eo_kafka.broker.embedded import KafkaBroker, KafkaCluster, cluster
from eo_kafka.broker.errors import BrokerError
from eo_kafka.broker.jars import DEFAULT_VERSION


class _AskedToEnd(BaseException):
    """Raised by the signal handler, so that every `with` on the way out cleans up."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--port", type=_port, default=0, help="port on 127.0.0.1; 0, the default, picks a free one"
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
        type=_nodes,
        default=1,
        help="number of processes; 3 gives replication 3 and min.insync.replicas 2; default: 1",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run Kafka; 0 when asked to end. Raises BrokerError if it cannot start or ends by itself."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _ask_to_end)
    try:
        with _kafka(arguments) as kafka:
            print(f"bootstrap.servers={kafka.bootstrap_servers}", flush=True)
            _watch(kafka.brokers if isinstance(kafka, KafkaCluster) else (kafka,))
    except _AskedToEnd:
        return 0
    return 1


def _kafka(
    arguments: argparse.Namespace,
) -> AbstractContextManager[KafkaBroker] | AbstractContextManager[KafkaCluster]:
    where = {
        "port": arguments.port,
        "directory": arguments.dir,
        "version": arguments.kafka,
    }
    return KafkaBroker(**where) if arguments.nodes == 1 else cluster(arguments.nodes, **where)


def _watch(brokers: tuple[KafkaBroker, ...]) -> None:
    """Come back only with an error: a node that ended without being asked to."""
    while True:
        for broker in brokers:
            if not broker.running:
                raise BrokerError(broker.epitaph())
        time.sleep(0.5)  # a signal's exception ends it at once


def _ask_to_end(_number: int, _frame: FrameType | None) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # once is enough; stopping is bounded
    raise _AskedToEnd


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65535:
        raise argparse.ArgumentTypeError("must be from 0 to 65535")
    return port


def _nodes(text: str) -> int:
    nodes = int(text)
    if not 1 <= nodes <= 9:
        raise argparse.ArgumentTypeError("must be from 1 to 9")
    return nodes
