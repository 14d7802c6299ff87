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
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from textwrap import fill
from typing import Any

import numpy as np

from benchmarks.latency_contenders import Contender, contenders
from benchmarks.latency_ends import Load, Watcher, producing
from benchmarks.peers.environments import FLINK_FACTS, installed
from benchmarks.peers.flink import flink
from benchmarks.queries import WrongResult, in_turn, own_topics
from benchmarks.session import benchmark_session, environment
from benchmarks.workload import BROKER_PROPERTIES, Topics
from eo_kafka.broker.embedded import KafkaBroker

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks" / "latency.md"
PARTITIONS = 2
SIZE = 100  # bytes of a value
WARM_S = 15  # of each run, not measured: the first batches are late, and catch up


@dataclass(frozen=True)
class Latency:
    """Of one run: milliseconds of records written after the first WARM_S seconds, and how long its
    batches were."""

    p50: float
    p99: float
    most: float
    batch_ms: float | None  # None: it has no batches

    @classmethod
    def of(cls, seconds: np.ndarray[Any, Any], load: Load, batches: Sequence[float]) -> Latency:
        """`seconds` by the records' numbers, of those that count."""
        measured = seconds[load.records - load.counted :] * 1000
        p50, p99 = np.percentile(measured, [50, 99])
        batch = median(batches) if batches else None
        return cls(float(p50), float(p99), float(measured.max()), batch)


class Runner:
    """Runs one copy at a time, each with topics of its own."""

    def __init__(self, topics: Topics, rate: int, seconds: int) -> None:
        self._topics, self._rate, self._seconds = topics, rate, seconds

    def run(self, contender: Contender) -> Latency:
        """Raises WrongResult unless each record became visible, and once where that is promised."""
        name = f"latency-{uuid.uuid4().hex[:8]}"
        servers, output = self._topics.bootstrap_servers, f"{name}-out"
        load = Load(servers, name, PARTITIONS, self._rate, SIZE, WARM_S, self._seconds)
        with self._topics.temporary(name, PARTITIONS, (output, *own_topics(name))):
            self._topics.create(output, PARTITIONS)
            watcher = Watcher(load, output)
            try:
                with contender.copying(servers, name, output) as batches:
                    producer = producing(load)
                    seconds = watcher.seconds(repeats=contender.repeats)
                    producer.join()
                    if producer.exitcode != 0:
                        raise WrongResult(f"{contender.name}: the producer was too slow.")
                    return Latency.of(seconds, load, batches())
            finally:
                watcher.close()


def render(facts: Mapping[str, Any], rate: int, found: Mapping[str, Sequence[Latency]]) -> str:
    """The page: of each figure the median of the rounds, with the extremes."""
    rounds = len(next(iter(found.values())))
    method = (
        f"A producer writes {rate:,} records a second of {SIZE} bytes, evenly into {PARTITIONS} "
        'partitions. A query with `trigger(processingTime="0 seconds")` copies them, or a job of '
        "Flink SQL whose transactions end with its checkpoints, of the interval that is named. A "
        "`read_committed` consumer takes the time at which it is handed each record; the record "
        "holds the time at which `produce()` was called for it. All on one machine and clock, in "
        f"one Spark session (`local[2]`) and one Flink of two slots. The first {WARM_S} s of a run "
        "are not counted. Each record must come, once where exactly-once is promised, or the run "
        f"does not count. The contenders run in turns. Medians of {rounds} rounds, with the "
        "extremes; `a batch` is the median of a run's last hundred."
    )
    lines = [
        "# Latency: rows, the direct lane, and Flink",
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
            values = [value for one in runs if (value := getattr(one, figure)) is not None]
            cells.append(_cell(values) if values else "-")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += [
        "",
        "A record waits for the batch under way, and then for its own.",
        "",
        ", ".join(f"{name} {value}" for name, value in facts.items()),
    ]
    return "\n".join(lines) + "\n"


def _cell(values: Sequence[float]) -> str:
    return f"{median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency")
    parser.add_argument("--rate", type=int, default=10_000, help="records a second")
    parser.add_argument("--seconds", type=int, default=60, help="that are measured, of each run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--page", action="store_true", help=f"write {PAGE.name}")
    given = parser.parse_args(arguments)
    found: dict[str, list[Latency]] = {}
    with (
        KafkaBroker(properties=BROKER_PROPERTIES) as broker,
        benchmark_session() as spark,
        flink(installed(), broker.bootstrap_servers) as flinks,
    ):
        facts = {**environment(spark, broker.version), **FLINK_FACTS}
        runner = Runner(Topics(broker.bootstrap_servers), given.rate, given.seconds)
        all_of_them = contenders(spark, flinks)
        for turn in range(given.rounds):
            for contender in in_turn(all_of_them, turn):
                latency = runner.run(contender)
                found.setdefault(contender.name, []).append(latency)
                print(f"round {turn + 1}, {contender.name}: {latency}", file=sys.stderr, flush=True)
    text = render({**facts, "rounds": given.rounds, "seconds": given.seconds}, given.rate, found)
    if given.page:
        PAGE.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
