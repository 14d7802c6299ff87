"""What writing an IMap from Arrow costs beside the client's own `put_all` of the same entries.

    python -m benchmarks.map_put [--entries 100000] [--rounds 5] [--members 1]

Run it from the root of the repository. Keys are text, values JSON of 100 bytes, 5000 rows a put. In
each round, in turns: `put_all` of dictionaries, the sink's writer from record batches,
and the same with `onConflict` `newest`, where every entry is newer. All in one process, on its own
Hazelcast, so the ratios are of one run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import pyarrow as pa
from hazelcast.core import HazelcastJsonValue

from eo_kafka.broker.hazelcast import HazelcastCluster
from eo_kafka.clients.hazelcast.client import client
from eo_kafka.sinks.maps.options import MapSinkOptions
from eo_kafka.sinks.maps.puts import write

MAP, PUT = "bench", 5000
COLUMNS = [("key", "string"), ("value", "string")]


def main() -> None:
    arguments = _arguments()
    count = arguments.entries
    keys = [f"key-{number}" for number in range(count)]
    with HazelcastCluster(arguments.members, {}) as grid:
        given = {
            "backend": "hazelcast",
            "map": MAP,
            "hazelcast.members": ",".join(grid.addresses),
            "value.format": "json",
        }
        plain, _ = MapSinkOptions.parse(given, COLUMNS)
        by_version = {**given, "onConflict": "newest", "versionField": "id"}
        newest, _ = MapSinkOptions.parse(by_version, COLUMNS)
        stored = client(plain.hazelcast).get_map(MAP).blocking()
        ways: dict[str, Callable[[list[str]], Any]] = {
            "put_all": lambda values: _put_all(stored, keys, values),
            "writer": lambda values: write(plain, iter([_batch(keys, values)])),
            "writer, newest": lambda values: write(newest, iter([_batch(keys, values)])),
        }
        rates: dict[str, list[float]] = {name: [] for name in ways}
        version = 0
        for turn in range(arguments.rounds + 1):
            for name, way in ways.items():
                version += 1
                pad = "x" * 71
                values = [f'{{"id": {version:9}, "text": "{pad}"}}'] * count
                begin = time.perf_counter()
                way(values)
                if turn:  # the first one warms up
                    rates[name].append(count / (time.perf_counter() - begin))
        assert stored.size() == count
    for name, found in rates.items():
        ratios = sorted(one / of for one, of in zip(found, rates["put_all"], strict=True))
        print(
            f"{name:16} {median(found):10,.0f} entries a second; / put_all: {median(ratios):.2f} "
            f"(from {ratios[0]:.2f} to {ratios[-1]:.2f} in {arguments.rounds} rounds)"
        )


def _put_all(stored: Any, keys: list[str], values: list[str]) -> None:
    for first in range(0, len(keys), PUT):
        some = slice(first, first + PUT)
        made = map(HazelcastJsonValue, values[some])
        stored.put_all(dict(zip(keys[some], made, strict=True)))


def _batch(keys: list[str], values: list[str]) -> pa.RecordBatch:
    columns = [pa.array(keys, pa.string()), pa.array(values, pa.string())]
    return pa.record_batch(columns, names=["key", "value"])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--members", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
