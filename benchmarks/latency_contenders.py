"""Who copies a topic while `benchmarks.latency` takes the time: Spark's queries, Flink's jobs."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import eo_kafka
from benchmarks.peers.flink import Flink
from benchmarks.queries import WrongResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

Options: TypeAlias = Mapping[str, str]
Batches: TypeAlias = Callable[[], list[float]]  # how long they were, in ms; none without batches
_STARTS_S = 60.0


class Contender(Protocol):
    """One way to copy; `repeats`: it may, by what it promises."""

    @property
    def name(self) -> str: ...
    @property
    def repeats(self) -> bool: ...

    def copying(self, servers: str, topic: str, output: str) -> AbstractContextManager[Batches]:
        """Within it, what comes into `topic` is copied. Raises WrongResult."""


@dataclass(frozen=True)
class SparkCopy:
    """A query that is triggered as soon as the batch before is done."""

    name: str
    spark: SparkSession
    make: Callable[[SparkSession, Options, Options], DataStreamWriter]
    sink: Options
    repeats: bool = False

    @contextmanager
    def copying(self, servers: str, topic: str, output: str) -> Iterator[Batches]:
        """As Contender's. The job is called as the topic is."""
        kafka = {"kafka.bootstrap.servers": servers}
        sink = {**kafka, **self.sink, "topic": output}
        if not self.repeats:
            sink["jobName"] = topic
        source = {**kafka, "subscribe": topic, "startingOffsets": "earliest"}
        writer = self.make(self.spark, source, sink).trigger(processingTime="0 seconds")
        with tempfile.TemporaryDirectory() as folder:
            query = writer.option("checkpointLocation", folder).start()
            try:
                _wait_until_planned(query)
                yield lambda: [
                    one["durationMs"]["triggerExecution"]
                    for one in query.recentProgress
                    if one["numInputRows"]
                ]
            finally:
                query.stop()


@dataclass(frozen=True)
class FlinkCopy:
    """A job that goes on until it is cancelled. Its transactions end with its checkpoints."""

    name: str
    flink: Flink
    interval: str
    repeats: bool = False

    @contextmanager
    def copying(self, servers: str, topic: str, output: str) -> Iterator[Batches]:
        """As Contender's; Flink has its servers."""
        with self.flink.running(topic, output, self.interval):
            yield list


def contenders(spark: SparkSession, flinks: Flink) -> Sequence[Contender]:
    """All of them."""
    idempotent = {"commit": "idempotent"}
    return (
        SparkCopy("kafka, at least once", spark, _rows_by("kafka"), {}, repeats=True),
        SparkCopy("eo-kafka", spark, _rows_by("eo-kafka"), {}),
        SparkCopy("eo-kafka direct", spark, eo_kafka.direct, {}),
        SparkCopy("eo-kafka direct, idempotent", spark, eo_kafka.direct, idempotent),
        FlinkCopy("Flink SQL, checkpoints each second", flinks, "1 s"),
        FlinkCopy("Flink SQL, checkpoints each 200 ms", flinks, "200 ms"),
    )


def _rows_by(format: str) -> Callable[[SparkSession, Options, Options], DataStreamWriter]:
    def rows(spark: SparkSession, source: Options, sink: Options) -> DataStreamWriter:
        found = spark.readStream.format(format).options(**source).load().select("key", "value")
        return found.writeStream.format(format).options(**sink)

    return rows


def _wait_until_planned(query: Any) -> None:
    """The query has looked at its source: it waits for records."""
    until = time.monotonic() + _STARTS_S
    while not query.status["message"].startswith("Waiting for data"):
        if query.exception() is not None or time.monotonic() > until:
            raise WrongResult(f"The query did not start: {query.exception() or query.status}.")
        time.sleep(0.05)
