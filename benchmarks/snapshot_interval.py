"""What a longer `snapshotInterval` gains while a job runs, and costs when its disk is lost.

    python -m benchmarks.snapshot_interval [--seconds 25] [--partitions 50] [--records 2000000]

Run it from the root of the repository. One query that keeps state (each record's key is looked up
and remembered, in `--partitions` state stores; two tasks write) runs `--seconds` for each interval
and goes on until nine tenths of the interval have passed since its newest snapshot. Then it is
stopped, its checkpoint is deleted, and it starts again from Kafka: the time until it has come back
to where it was is the replay time, restore and start included. Table and plot: docs/benchmarks/.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import eo_kafka
from benchmarks.queries import WrongResult
from benchmarks.report import Batch, steady_rate
from benchmarks.session import benchmark_session, environment
from benchmarks.workload import BROKER_PROPERTIES, Topics, Workload
from eo_kafka.broker.embedded import KafkaBroker
from eo_kafka.state.ledger import records
from eo_kafka.state.ledger.job_topics import LEDGER_TOPIC, MAIN_SINK, STATE_TOPIC
from eo_kafka.state.ledger.ledger import DECISION_PARTITION, Ledger, fold
from eo_kafka.state.ledger.log_reader import read_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

INTERVALS = {"every batch": 0.0, "1 s": 1.0, "5 s": 5.0, "20 s": 20.0}
PER_BATCH = 5_000
DOCS = Path(__file__).parent.parent / "docs" / "benchmarks"
_TIMEOUT_S = 180
_BATCHES_MIN = 4  # a rate needs three, and the first is left out


@dataclass(frozen=True)
class Result:
    """One interval. `snapshots` of `batches` took one; `repeated` batches came back in
    `replay_s`."""

    interval: str
    rate: float
    batches: int
    snapshots: int
    repeated: int
    replay_s: float


class Bench:
    """Runs the query, one interval after the other, each time as a new job on the same input."""

    def __init__(self, spark: SparkSession, topics: Topics, workload: Workload) -> None:
        self._spark = spark
        self._topics = topics
        self._workload = workload

    def measure(self, interval: str, seconds: float) -> Result:
        """Run, lose the disk, come back."""
        name = f"interval-{interval.replace(' ', '-')}-{time.monotonic_ns()}"
        with (
            self._topics.temporary(name, 2, tuple(one.format(job=name) for one in _TOPICS)),
            tempfile.TemporaryDirectory(prefix="eo-kafka-bench-") as folder,
        ):
            batches, snapshots = self._run(name, interval, Path(folder), seconds)
            ledger = self._ledger(name)
            newest = max(ledger.of_sink(MAIN_SINK))
            shutil.rmtree(folder)
            replay_s = self._come_back(name, interval, Path(folder), newest)
        head = ledger.snapshot
        if head is None:
            raise WrongResult("No snapshot was taken.")
        measured = [batch for batch in batches if batch.rows]
        return Result(
            interval,
            steady_rate(measured),
            newest + 1,
            snapshots,
            newest - head.batch + 1,
            replay_s,
        )

    def _run(
        self, name: str, interval: str, folder: Path, seconds: float
    ) -> tuple[list[Batch], int]:
        query = self._start(name, interval, folder)
        try:
            _wait(query, lambda: len(query.recentProgress) > _BATCHES_MIN, "some batches are done")
            time.sleep(seconds)
            at_least_ms = INTERVALS[interval] * 900
            _wait(query, lambda: self._age_ms(name) >= at_least_ms, "most of the interval is over")
            progress = query.recentProgress
        finally:
            query.stop()
        if query.exception() is not None:
            raise WrongResult(str(query.exception()))
        return [
            Batch(found["numInputRows"], found["durationMs"]) for found in progress
        ], self._snapshots(name)

    def _come_back(self, name: str, interval: str, folder: Path, newest: int) -> float:
        began = time.monotonic()
        query = self._start(name, interval, folder)
        try:
            done = folder / "commits" / str(newest)
            _wait(query, done.exists, f"batch {newest} is repeated")
            return time.monotonic() - began
        finally:
            query.stop()

    def _start(self, name: str, interval: str, folder: Path) -> StreamingQuery:
        servers = {"kafka.bootstrap.servers": self._topics.bootstrap_servers, "jobName": name}
        rows = (
            self._spark.readStream.format("eo-kafka")
            .options(**servers, subscribe=self._workload.topic, startingOffsets="earliest")
            .option("maxOffsetsPerTrigger", PER_BATCH)
            .load()
        )
        every = "0" if not INTERVALS[interval] else interval
        writer = (
            rows.select("key", "value")
            .dropDuplicates(["key"])
            .repartition(2, "key")  # or each store would have a transaction of its own
            .writeStream.format("eo-kafka")
            .options(**servers, topic=name, snapshots="true", snapshotInterval=every)
            .option("checkpointLocation", str(folder))
        )
        return eo_kafka.start(writer)

    def _records(self, name: str) -> list[tuple[bytes, bytes | None]]:
        from confluent_kafka import Consumer, TopicPartition

        topic, settings = LEDGER_TOPIC.format(job=name), self._settings
        consumer = Consumer({**settings, "group.id": "bench", "isolation.level": "read_committed"})
        at = TopicPartition(topic, DECISION_PARTITION)
        _, end = consumer.get_watermark_offsets(at, timeout=30)  # the last stable offset
        consumer.close()
        found = read_records(settings, topic, DECISION_PARTITION, 0, end)
        return [(key, value) for _, key, value in found]

    @property
    def _settings(self) -> dict[str, str]:
        return {"bootstrap.servers": self._topics.bootstrap_servers}

    def _ledger(self, name: str) -> Ledger:
        return fold(self._records(name))

    def _snapshots(self, name: str) -> int:
        return sum(key == records.SNAPSHOT_KEY for key, _ in self._records(name))

    def _age_ms(self, name: str) -> float:
        head = self._ledger(name).snapshot
        return time.time() * 1000 - head.made_ms if head else 0.0


_TOPICS = (LEDGER_TOPIC, STATE_TOPIC)


def _wait(query: StreamingQuery, condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while not condition():
        if not query.isActive or time.monotonic() > deadline:
            raise WrongResult(f"not within {_TIMEOUT_S} s: {what} ({query.exception()})")
        time.sleep(0.1)


def render(facts: dict[str, Any], results: Sequence[Result]) -> str:
    """The report, as Markdown."""
    base = results[0].rate
    rows = [
        f"| {one.interval} | {one.rate:,.0f} | {one.rate / base:.2f} | {one.snapshots} of "
        f"{one.batches} | {one.repeated} | {one.replay_s:.1f} |"
        for one in results
    ]
    head = (
        "| snapshotInterval | records/s | x every batch | batches with a snapshot | batches "
        "repeated | replay, s |\n|:--|--:|--:|--:|--:|--:|"
    )
    return "\n\n".join(
        [", ".join(f"{name} {value}" for name, value in facts.items()), "\n".join([head, *rows])]
    )


def plot(results: Sequence[Result], path: Path) -> None:
    """Throughput against replay time, a point an interval."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4))
    axes.plot([one.replay_s for one in results], [one.rate for one in results], marker="o")
    for one in results:
        at = (one.replay_s, one.rate)
        axes.annotate(one.interval, at, textcoords="offset points", xytext=(6, -12))
    axes.set(
        xlabel="back where it was after a lost disk (s)",
        ylabel="records/s",
        title="snapshotInterval: throughput against replay time",
    )
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure all intervals, print the table, write table and plot."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.snapshot_interval")
    parser.add_argument("--seconds", type=float, default=25, help="at least, of each run")
    parser.add_argument("--partitions", type=int, default=50, help="state stores")
    parser.add_argument("--records", type=int, default=2_000_000, help="records of the input")
    parser.add_argument("--out", type=Path, default=DOCS, help="folder of table and plot")
    options = parser.parse_args(arguments)
    with (
        KafkaBroker(properties=BROKER_PROPERTIES) as broker,
        benchmark_session() as spark,
    ):
        topics = Topics(broker.bootstrap_servers)
        workload = Workload("input", options.records, 100, 2)
        topics.fill(workload)
        spark.conf.set("spark.sql.shuffle.partitions", str(options.partitions))
        bench = Bench(spark, topics, workload)
        bench.measure("1 s", 3)  # warms up
        results = []
        for interval in INTERVALS:
            results.append(bench.measure(interval, options.seconds))
            print(results[-1], file=sys.stderr, flush=True)
        facts = {**environment(spark, broker.version), "state stores": options.partitions}
    text = render(facts, results)
    print(text)
    (options.out / "snapshot_interval.md").write_text(
        f"# snapshotInterval\n\n{__doc__.split(chr(10) * 2)[0]}\n\n{text}\n\n"
        "![throughput against replay time](snapshot_interval.svg)\n"
    )
    plot(results, options.out / "snapshot_interval.svg")


if __name__ == "__main__":
    main()
