"""How long a record takes from `produce()` to a `read_committed` consumer, at a steady rate.

    python -m benchmarks.latency [--rate 10000] [--seconds 60] [--rounds 3] [--page]

Run it from the root of the repository. A real Kafka, one Spark session, and a producer and a
consumer in processes of their own; each query copies key and value as fast as it can. Takes about
one and a half minutes a contender and round. `--page` writes docs/benchmarks/latency.md, which
belongs into the navigation of mkdocs.yml.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

import eo_kafka
from benchmarks.latency_ends import Load, Watcher, producing
from benchmarks.queries import WrongResult, own_topics
from benchmarks.session import benchmark_session, environment
from benchmarks.workload import BROKER_PROPERTIES, Topics
from eo_kafka.broker.embedded import KafkaBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks" / "latency.md"
PARTITIONS = 2
SIZE = 100  # bytes of a value
WARM_S = 15  # of each run, not measured: the first batches are late, and catch up
_STARTS_S = 60.0

Options = Mapping[str, str]


def _rows(spark: SparkSession, source: Options, sink: Options, format: str) -> DataStreamWriter:
    rows = spark.readStream.format(format).options(**source).load().select("key", "value")
    return rows.writeStream.format(format).options(**sink)


@dataclass(frozen=True)
class Contender:
    """One way to copy; `repeats`: it may, by what it promises."""

    name: str
    make: Callable[[SparkSession, Options, Options], DataStreamWriter]
    sink: Options
    repeats: bool = False


CONTENDERS = (
    Contender("kafka, at least once", lambda s, a, b: _rows(s, a, b, "kafka"), {}, repeats=True),
    Contender("eo-kafka", lambda s, a, b: _rows(s, a, b, "eo-kafka"), {}),
    Contender("eo-kafka direct", eo_kafka.direct, {}),
    Contender("eo-kafka direct, idempotent", eo_kafka.direct, {"commit": "idempotent"}),
)
MANY = len(CONTENDERS)


@dataclass(frozen=True)
class Latency:
    """Of one run: milliseconds of records written after the first WARM_S seconds, and how long its
    batches were."""

    p50: float
    p99: float
    most: float
    batch_ms: float

    @classmethod
    def of(cls, seconds: np.ndarray[Any, Any], load: Load, batches: Sequence[float]) -> Latency:
        """`seconds` by the records' numbers, of those that count."""
        measured = seconds[load.records - load.counted :] * 1000
        p50, p99 = np.percentile(measured, [50, 99])
        return cls(float(p50), float(p99), float(measured.max()), median(batches))


class Runner:
    """Runs one query at a time, each with topics and a checkpoint of its own."""

    def __init__(self, spark: SparkSession, topics: Topics, rate: int, seconds: int) -> None:
        self._spark, self._topics = spark, topics
        self._rate, self._seconds = rate, seconds

    def run(self, contender: Contender) -> Latency:
        """Raises WrongResult unless each record became visible, and once where that is promised."""
        name = f"latency-{uuid.uuid4().hex[:8]}"
        servers = self._topics.bootstrap_servers
        load = Load(servers, name, PARTITIONS, self._rate, SIZE, WARM_S, self._seconds)
        output, kafka = f"{name}-out", {"kafka.bootstrap.servers": servers}
        own = (output, *own_topics(name))
        with self._topics.temporary(name, PARTITIONS, own), tempfile.TemporaryDirectory() as folder:
            self._topics.create(output, PARTITIONS)
            sink = {**kafka, **contender.sink, "topic": output}
            if not contender.repeats:
                sink["jobName"] = name
            source = {**kafka, "subscribe": name, "startingOffsets": "earliest"}
            writer = contender.make(self._spark, source, sink)
            writer = writer.option("checkpointLocation", folder).trigger(processingTime="0 seconds")
            watcher = Watcher(load, output)
            query = writer.start()
            try:
                _wait_until_planned(query)
                producer = producing(load)
                seconds = watcher.seconds(repeats=contender.repeats)
                producer.join()
                if producer.exitcode != 0:
                    raise WrongResult(f"{contender.name}: the producer could not keep its rate.")
                progress = [one for one in query.recentProgress if one["numInputRows"]]
            finally:
                query.stop()
                watcher.close()
        batches = [one["durationMs"]["triggerExecution"] for one in progress]
        return Latency.of(seconds, load, batches)


def _wait_until_planned(query: Any) -> None:
    """The query has looked at its source: it waits for records."""
    until = time.monotonic() + _STARTS_S
    while not query.status["message"].startswith("Waiting for data"):
        if query.exception() is not None or time.monotonic() > until:
            raise WrongResult(f"The query did not start: {query.exception() or query.status}.")
        time.sleep(0.05)


def render(facts: Mapping[str, Any], rate: int, found: Mapping[str, Sequence[Latency]]) -> str:
    """The page: of each figure the median of the rounds, with the extremes."""
    rounds = len(next(iter(found.values())))
    method = (
        f"A producer writes {rate:,} records a second of {SIZE} bytes, evenly into {PARTITIONS} "
        'partitions. A query with `trigger(processingTime="0 seconds")` copies them. A '
        "`read_committed` consumer takes the time at which it is handed each record; the record "
        "holds the time at which `produce()` was called for it. All on one machine and clock, in "
        f"one Spark session (`local[2]`). The first {WARM_S} s of a run are not counted. Each "
        "record must come, once where exactly-once is promised, or the run does not count. The "
        f"contenders run in turns. Medians of {rounds} rounds, with the extremes; `a batch` is the "
        "median of a run's last hundred."
    )
    lines = [
        "# Latency: rows and the direct lane",
        "",
        "How long does a record take through a copy? Written by "
        "`python -m benchmarks.latency --page`.",
        "",
        fill(method, 110),
        "",
        "| | p50, ms | p99, ms | longest, ms | a batch, ms |",
        "|:--|--:|--:|--:|--:|",
    ]
    for name, runs in found.items():
        cells = []
        for figure in ("p50", "p99", "most", "batch_ms"):
            values = [getattr(one, figure) for one in runs]
            cells.append(f"{median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += [
        "",
        "A record waits for the batch under way, and then for its own.",
        "",
        ", ".join(f"{name} {value}" for name, value in facts.items()),
    ]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency")
    parser.add_argument("--rate", type=int, default=10_000, help="records a second")
    parser.add_argument("--seconds", type=int, default=60, help="that are measured, of each run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--page", action="store_true", help=f"write {PAGE.name}")
    given = parser.parse_args(arguments)
    found: dict[str, list[Latency]] = {one.name: [] for one in CONTENDERS}
    with KafkaBroker(properties=BROKER_PROPERTIES) as broker, benchmark_session() as spark:
        facts = environment(spark, broker.version)
        runner = Runner(spark, Topics(broker.bootstrap_servers), given.rate, given.seconds)
        for turn in range(given.rounds):
            for contender in (*CONTENDERS[turn % MANY :], *CONTENDERS[: turn % MANY]):
                latency = runner.run(contender)
                found[contender.name].append(latency)
                print(f"round {turn + 1}, {contender.name}: {latency}", file=sys.stderr, flush=True)
    text = render({**facts, "rounds": given.rounds, "seconds": given.seconds}, given.rate, found)
    if given.page:
        PAGE.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
