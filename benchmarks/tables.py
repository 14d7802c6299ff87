"""What a decided batch costs in a table beside a plain COPY of the same rows.

    python -m benchmarks.tables [--rows 200000] [--rounds 5]

Run it from the root of the repository. Rows are a number and a text of 90 bytes, by two tasks, one
after the other. In each round, in turns: COPY into a table, the tasks' part (S3 to S5), and the
whole batch from the plan to DONE, with and without keys, with each way to commit. All in one
process, on its own Kafka and PostgreSQL, so the ratios are of one run.
"""

from __future__ import annotations

import argparse
import os
import time
from statistics import median

import psycopg
import pyarrow as pa
from pyarrow import csv

from eo_kafka.broker.embedded import KafkaBroker
from eo_kafka.broker.postgres import Postgres
from eo_kafka.sinks.protocol import committer
from eo_kafka.sinks.protocol.recovery import make_plan
from eo_kafka.sinks.protocol.two_phase import TaskIdentity
from eo_kafka.sinks.tables import writing
from eo_kafka.sinks.tables.options import read_table

TASKS = 2
BATCH_ROWS = 10_000  # as Spark's
COLUMNS = [("id", "bigint"), ("word", "string")]
TWO_PHASE = {"commit": "two-phase"}
WAYS = {
    "staged, appended": {},
    "staged, by keys": {"keys": "id"},
    "two-phase, appended": TWO_PHASE,
    "two-phase, by keys": {"keys": "id", **TWO_PHASE},
}


def main() -> None:
    arguments = _arguments()
    with KafkaBroker() as kafka, Postgres() as server:
        for number, (way, more) in enumerate(WAYS.items()):
            table = f"bench_{number}"
            key = ", PRIMARY KEY (id)" if "keys" in more else ""
            with psycopg.connect(server.url, autocommit=True) as connection:
                for name in (table, f"{table}_plain"):
                    connection.execute(f"CREATE TABLE {name} (id bigint, word text{key})")
            given = {"url": server.url, "table": table, "jobName": table, **more}
            given["kafka.bootstrap.servers"] = kafka.bootstrap_servers
            rates: dict[str, list[float]] = {"COPY": [], "the tasks": [], "whole batch": []}
            for turn in range(arguments.rounds + 1):
                rows = _rows(arguments.rows, turn)
                begin = time.perf_counter()
                _copy(server.url, f"{table}_plain", rows)
                plain = time.perf_counter() - begin
                if turn:  # the first one warms up
                    for name, took in zip(rates, (plain, *_batch(given, rows, turn)), strict=True):
                        rates[name].append(arguments.rows / took)
                else:
                    _batch(given, rows, turn)
            for name, found in rates.items():
                ratios = sorted(one / of for one, of in zip(found, rates["COPY"], strict=True))
                print(
                    f"{way}: {name:12} {median(found):10,.0f} rows a second; / COPY: "
                    f"{median(ratios):.2f} (from {ratios[0]:.2f} to {ratios[-1]:.2f} in "
                    f"{arguments.rounds} rounds)"
                )


def _batch(given: dict[str, str], rows: list[pa.RecordBatch], batch: int) -> tuple[float, float]:
    """Seconds of the tasks alone, and of all steps."""
    begin = time.perf_counter()
    options, target = read_table(given, COLUMNS)
    plan = make_plan(options)
    planned = time.perf_counter()
    reports = [
        writing.write(
            options,
            target,
            plan,
            TaskIdentity("bench", batch, number, TASKS * batch + number),
            iter(rows[number::TASKS]),
        )
        for number in range(TASKS)
    ]
    staged = time.perf_counter()
    committer.commit(options, reports, batch)
    return staged - planned, time.perf_counter() - begin


def _copy(url: str, table: str, rows: list[pa.RecordBatch]) -> None:
    with (
        psycopg.connect(url) as connection,
        connection.cursor().copy(f"COPY {table} FROM STDIN (FORMAT csv)") as copy,
    ):
        for batch in rows:
            written = pa.BufferOutputStream()
            csv.write_csv(batch, written, csv.WriteOptions(include_header=False))
            copy.write(memoryview(written.getvalue()))


def _rows(count: int, turn: int) -> list[pa.RecordBatch]:
    ids = pa.array(range(turn * count, (turn + 1) * count), pa.int64())
    words = pa.array([f"{number:090d}" for number in range(count)])
    whole = pa.record_batch({"id": ids, "word": words})
    return [whole.slice(at, BATCH_ROWS) for at in range(0, count, BATCH_ROWS)]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    found = parser.parse_args()
    print(f"{os.cpu_count()} cores, {found.rows:,} rows a batch", flush=True)
    return found


if __name__ == "__main__":
    main()
