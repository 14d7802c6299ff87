"""`eo-kafka hazelcast`: runs Hazelcast in the foreground until SIGTERM or Ctrl-C."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from ..broker.foreground import AskedToEnd, end_when_asked, port, small_number, watch
from ..broker.hazelcast import HazelcastCluster
from ..broker.hazelcast_settings import JOURNAL_CAPACITY, journal
from ..broker.jars import HAZELCAST_VERSION


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--port",
        type=port,
        default=0,
        help="the first member's port on 127.0.0.1; 0, the default, picks a free one",
    )
    parser.add_argument(
        "--members", type=small_number, default=1, help="number of processes; default: 1"
    )
    parser.add_argument(
        "--journal",
        type=_journal,
        action="append",
        metavar="MAP=EVENTS",
        help="a map (or a pattern such as 'orders*') with an event journal of so many events over "
        f"all partitions; may be repeated; default: every map, with {JOURNAL_CAPACITY}",
    )
    parser.add_argument(
        "--hazelcast",
        metavar="VERSION",
        default=HAZELCAST_VERSION,
        help=f"version of Hazelcast, fetched once; default: {HAZELCAST_VERSION}",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run Hazelcast; 0 when asked to end. Raises BrokerError if it cannot start or ends by
    itself."""
    end_when_asked()
    maps: Mapping[str, Mapping[str, object]] | None = None
    if arguments.journal:
        maps = {name: journal(capacity) for name, capacity in arguments.journal}
    try:
        with HazelcastCluster(
            arguments.members, maps, port=arguments.port, version=arguments.hazelcast
        ) as grid:
            print(f"hazelcast.members={','.join(grid.addresses)}", flush=True)
            print(f"hazelcast.cluster={grid.cluster_name}", flush=True)
            watch(grid.members)
    except AskedToEnd:
        return 0


def _journal(text: str) -> tuple[str, int]:
    name, separator, capacity = text.rpartition("=")
    # fewer than one event a partition is no journal
    if not separator or not name or not capacity.isdigit() or int(capacity) < 271:
        raise argparse.ArgumentTypeError("must be MAP=EVENTS, with at least 271 events")
    return name, int(capacity)
