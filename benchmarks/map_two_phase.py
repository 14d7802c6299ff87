"""What a decided batch costs in an IMap beside idempotent puts of the same rows.

    python -m benchmarks.map_two_phase [--rows 10000] [--rounds 5] [--members 2]

Run it from the root of the repository. Keys are text, values JSON of 100 bytes, by four tasks, one
after the other. In each round, in turns: the idempotent writer; staging (S2 to S5 of a two-phase
batch) and the whole batch from the plan to DONE. All in one process, on its own Kafka and
Hazelcast, so the ratios are of one run.
"""

from __future__ import annotations

import argparse
import os
import time
from statistics import median

import pyarrow as pa

from eo_kafka.broker.embedded import KafkaBroker
from eo_kafka.broker.hazelcast import HazelcastCluster
from eo_kafka.sinks.maps import puts as map_writer
from eo_kafka.sinks.maps import two_phase as map_two_phase
from eo_kafka.sinks.maps.options import MapSinkOptions
from eo_kafka.sinks.maps.two_phase_options import read_two_phase
from eo_kafka.sinks.protocol import committer
from eo_kafka.sinks.protocol.recovery import make_plan
from eo_kafka.sinks.protocol.two_phase import TaskIdentity

TASKS = 4  # as many as lanes
COLUMNS = [("key", "string"), ("value", "string")]


def main() -> None:
    arguments = _arguments()
    with KafkaBroker() as kafka, HazelcastCluster(arguments.members, {}) as grid:
        given = {
            "backend": "hazelcast",
            "map": "bench",
            "hazelcast.members": ",".join(grid.addresses),
            "value.format": "json",
        }
        of_kafka = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "jobName": "bench"}
        rates: dict[str, list[float]] = {"idempotent": [], "staging": [], "whole batch": []}
        for turn in range(arguments.rounds + 1):
            rows = _rows(arguments.rows, turn)
            begin = time.perf_counter()
            map_writer.write(MapSinkOptions.parse(given, COLUMNS)[0], iter([rows]))
            idempotent = time.perf_counter() - begin
            staging, whole = _two_phase({**given, **of_kafka, "commit": "two-phase"}, rows, turn)
            if turn:  # the first one warms up
                for name, took in zip(rates, (idempotent, staging, whole), strict=True):
                    rates[name].append(arguments.rows / took)
    for name, found in rates.items():
        ratios = sorted(one / of for one, of in zip(found, rates["idempotent"], strict=True))
        print(
            f"{name:12} {median(found):10,.0f} rows a second; / idempotent: {median(ratios):.2f} "
            f"(from {ratios[0]:.2f} to {ratios[-1]:.2f} in {arguments.rounds} rounds)"
        )


def _two_phase(given: dict[str, str], rows: pa.RecordBatch, batch: int) -> tuple[float, float]:
    """Seconds of the task alone, and of all steps."""
    begin = time.perf_counter()
    options, target, _ = read_two_phase(given, COLUMNS)
    plan = make_plan(options)
    planned = time.perf_counter()
    reports = [
        map_two_phase.write(
            options,
            target,
            plan,
            TaskIdentity("bench", batch, number, TASKS * batch + number),
            iter([rows.slice(number * len(rows) // TASKS, len(rows) // TASKS)]),
        )
        for number in range(TASKS)
    ]
    staged = time.perf_counter()
    committer.commit(options, reports, batch)
    return staged - planned, time.perf_counter() - begin


def _rows(count: int, version: int) -> pa.RecordBatch:
    # Nothing that packs well: chunks are compressed
    values = [f'{{"id": {version:9}, "text": "{os.urandom(35).hex()}"}}' for _ in range(count)]
    keys = [f"key-{number}" for number in range(count)]
    columns = [pa.array(keys, pa.string()), pa.array(values, pa.string())]
    return pa.record_batch(columns, names=["key", "value"])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--members", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    main()
