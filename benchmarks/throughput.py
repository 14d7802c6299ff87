"""`make bench`: Spark's own Kafka connector and ours, in one run, in turns.

    python -m benchmarks.throughput [--rounds 3] [--records N] [--sizes 100,1000] [--json FILE]
                                    [--page]

Run it from the root of the repository. What is measured and why: docs/benchmarks/README.md.
`--page` writes docs/benchmarks/throughput.md.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.queries import (
    AT_LEAST_ONCE,
    DIRECT,
    EXACTLY_ONCE,
    JVM,
    NOTHING,
    PREPARED,
    READER,
    SNAPSHOTS,
    Contender,
    Runner,
    in_turn,
)
from benchmarks.session import CORES, benchmark_session, environment
from benchmarks.workload import BROKER_PROPERTIES, Topics, Workload
from eo_kafka.broker.embedded import KafkaBroker

BATCHES = 5  # a query; the first and the last are left out of the rate
# So many that a batch, a fifth of them, takes a second or more. What a batch costs whatever is in
# it, the last table shows.
BYTES, SMALLEST = 400_000_000, 1_200_000
READ_TIMES = 3  # as many records where they are only read, which is so much quicker
SMALL_BATCHES = 10
SMALL_LEFT_OUT = 3
PHASES = ("triggerExecution", "latestOffset", "walCommit", "queryPlanning", "addBatch",
          "commitOffsets")  # fmt: skip

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks" / "throughput.md"

Run = Callable[[Contender], list[report.Batch]]


@dataclass(frozen=True)
class Measurement:
    """One thing to measure, by whom, and what came out: a list of batches each round."""

    name: str
    title: str
    contenders: tuple[Contender, ...]
    run: Run
    results: dict[str, list[list[report.Batch]]] = field(default_factory=dict)

    def play(self, round_number: int) -> None:
        """Each contender once, in an order that moves on by one a round. Round 0 only warms up."""
        for contender in in_turn(self.contenders, round_number):
            began = time.monotonic()
            batches = self.run(contender)
            _say(
                f"{f'round {round_number}' if round_number else 'warm-up'}  {self.name:<16} "
                f"{contender.name:<24} {time.monotonic() - began:5.1f} s"
            )
            if round_number:
                self.results.setdefault(contender.name, []).append(batches)

    def rates(self) -> dict[str, list[float]]:
        """Records/s by contender, one a round."""
        return {
            contender.name: [report.steady_rate(run) for run in self.results[contender.name]]
            for contender in self.contenders
        }

    def batches(self, left_out: int) -> dict[str, list[report.Batch]]:
        """All batches of all rounds, without the first `left_out` of each query."""
        return {
            contender.name: [
                batch for run in self.results[contender.name] for batch in run[left_out:]
            ]
            for contender in self.contenders
        }


def large_workload(size: int, records: int | None) -> Workload:
    """The topic of one size: `records`, or as many as make a batch take a second or more."""
    records = records or max(SMALLEST, BYTES // size)
    return Workload(f"input-{size}", records, size, CORES)


def read_workload(copied: Workload) -> Workload:
    """The topic that is only read, beside the one that is copied."""
    return replace(copied, topic=f"{copied.topic}-read", records=READ_TIMES * copied.records)


def throughput(runner: Runner, workload: Workload) -> list[Measurement]:
    """Read-only and end to end, each over its topic."""
    to_read = read_workload(workload)

    def read(contender: Contender) -> list[report.Batch]:
        if contender is PREPARED:
            return runner.read_prepared(to_read, BATCHES)
        return runner.read(contender, to_read, BATCHES)

    def copy(contender: Contender) -> list[report.Batch]:
        if contender is PREPARED:
            return runner.copy_prepared(workload, BATCHES)
        return runner.copy(contender, workload, BATCHES)

    return [
        Measurement(
            f"read {workload.size} B",
            f"Read-only, {workload.size}-byte records",
            (JVM, READER, PREPARED),
            read,
        ),
        Measurement(
            f"copy {workload.size} B",
            f"End to end (topic to topic), {workload.size}-byte records",
            (JVM, AT_LEAST_ONCE, EXACTLY_ONCE, SNAPSHOTS, DIRECT, PREPARED),
            copy,
        ),
    ]


def small_batches(runner: Runner, workload: Workload) -> Measurement:
    """Batches of one record: what is left when there is nothing to do."""

    def run(contender: Contender) -> list[report.Batch]:
        if contender is NOTHING:
            return runner.do_nothing(workload.records)
        return runner.copy(contender, workload, workload.records)

    return Measurement(
        "small batches",
        "One-record batch, topic to topic, median milliseconds by phase",
        (NOTHING, JVM, AT_LEAST_ONCE, EXACTLY_ONCE, SNAPSHOTS),
        run,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and print its report."""
    options = _options(arguments)
    began = time.monotonic()
    with (
        KafkaBroker(properties=BROKER_PROPERTIES) as broker,
        benchmark_session() as spark,
    ):
        topics = Topics(broker.bootstrap_servers)
        runner = Runner(spark, topics)
        large: list[Measurement] = []
        filled: list[int] = []
        for size in options.sizes:
            workload = large_workload(size, options.records)
            for topic in (workload, read_workload(workload)):
                _say(f"filling {topic.topic}: {topic.records:,} records")
                topics.fill(topic)
            filled.append(workload.records)
            large += throughput(runner, workload)
        tiny = Workload("input-small", SMALL_BATCHES, 100, 1)
        topics.fill(tiny)
        small = small_batches(runner, tiny)
        for round_number in range(options.rounds + 1):
            for measurement in (*large, small):
                measurement.play(round_number)
        facts = environment(spark, broker.version)
    facts = {
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        **facts,
        "rounds": options.rounds,
        "records to copy": ", ".join(f"{one:,}" for one in filled),
        "minutes": round((time.monotonic() - began) / 60, 1),
    }
    text = render(facts, large, small)
    print(text)
    if options.page:
        PAGE.write_text(text)
    if options.json:
        options.json.write_text(json.dumps(_raw(facts, (*large, small)), indent=1))


def render(facts: dict[str, Any], large: Sequence[Measurement], small: Measurement) -> str:
    """The page."""
    parts = [
        "# Throughput beside Spark's own connector",
        "Written by `python -m benchmarks.throughput --page`. [The method](README.md#method) says "
        "what is\nmeasured, and who the contenders are.",
        ", ".join(f"{name} {value}" for name, value in facts.items()),
    ]
    for measurement in large:
        rates = measurement.rates()
        table = report.throughput_table(f"## {measurement.title}", rates, JVM.name)
        if EXACTLY_ONCE in measurement.contenders:
            table += "\n\n" + report.cost_line(rates, EXACTLY_ONCE.name, AT_LEAST_ONCE.name)
            table += "\n\n" + report.cost_line(rates, SNAPSHOTS.name, EXACTLY_ONCE.name)
        parts.append(table)
    batches = small.batches(SMALL_LEFT_OUT)
    parts.append(report.small_batch_table(f"## {small.title}", batches, PHASES, NOTHING.name))
    return "\n\n".join(parts) + "\n"


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.throughput", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds, after a warm-up")
    parser.add_argument("--records", type=int, help="records to copy, whatever their size")
    parser.add_argument(
        "--sizes",
        type=lambda text: [int(size) for size in text.split(",")],
        default=[100, 1000],
        help="bytes a record, key and value together, comma-separated",
    )
    parser.add_argument("--json", type=Path, help="also write every batch of every run here")
    parser.add_argument("--page", action="store_true", help=f"write {PAGE.name}")
    return parser.parse_args(arguments)


def _raw(facts: dict[str, Any], measurements: Sequence[Measurement]) -> dict[str, Any]:
    return {
        "facts": facts,
        "batches": {
            measurement.name: {
                contender: [[asdict(batch) for batch in run] for run in runs]
                for contender, runs in measurement.results.items()
            }
            for measurement in measurements
        },
    }


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
