"""The Spark queries that are measured, and the check that each did its work."""

from __future__ import annotations

import itertools
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import eo_kafka
from benchmarks import nothing
from benchmarks.report import Batch
from benchmarks.workload import Topics, Workload

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_QUERY_TIMEOUT_S = 300
T = TypeVar("T")


class WrongResult(Exception):
    """A run did not read or write what it was given, so its speed means nothing."""


@dataclass(frozen=True)
class Contender:
    """A format, and what its sink and its source are told besides topic and servers."""

    name: str
    format: str
    sink_options: Mapping[str, str] = field(default_factory=dict)
    source_options: Mapping[str, str] = field(default_factory=dict)


JVM = Contender("kafka", "kafka")
READER = Contender("eo-kafka", "eo-kafka")
AT_LEAST_ONCE = Contender("eo-kafka at-least-once", "eo-kafka", {"guarantee": "at-least-once"})
EXACTLY_ONCE = Contender("eo-kafka exactly-once", "eo-kafka", {"guarantee": "exactly-once"})
DIRECT = Contender("eo-kafka direct", "direct")  # eo_kafka.direct, which is no format
SNAPSHOTS = Contender("eo-kafka with snapshots", "eo-kafka", {"snapshots": "true"})
NOTHING = Contender("do-nothing", nothing.FORMAT)
PREPARED = Contender("do-nothing, prepared rows", nothing.PREPARED_FORMAT)


class Runner:
    """Runs one query at a time, each on a checkpoint, an output topic and a ledger of its own."""

    def __init__(self, spark: SparkSession, topics: Topics) -> None:
        self._spark = spark
        self._topics = topics
        self._names = (f"output-{uuid.uuid4().hex[:8]}-{number}" for number in itertools.count(1))
        self._checksums: dict[str, tuple[int, int]] = {}

    def read(self, contender: Contender, workload: Workload, batches: int) -> list[Batch]:
        """All seven columns of all records into Spark's sink that drops them.

        Raises WrongResult unless every record was read.
        """
        rows = self._source(contender, workload, batches)
        measured = run(rows.writeStream.format("noop"))
        _check_read(contender, workload, measured)
        return measured

    def copy(self, contender: Contender, workload: Workload, batches: int) -> list[Batch]:
        """Key and value of all records into a new topic with as many partitions.

        Raises WrongResult unless the output holds the same records, once each.
        """
        with self.output(workload) as output:
            measured = self.copy_into(contender, workload, batches, output)
            self.check_copy(contender.name, workload, output)
        return measured

    def copy_unchecked(self, contender: Contender, workload: Workload, batches: int) -> list[Batch]:
        """`copy` for where the check would be measured, too. Raises WrongResult unless every record
        was read."""
        with self.output(workload) as output:
            measured = self.copy_into(contender, workload, batches, output)
        _check_read(contender, workload, measured)
        return measured

    @contextmanager
    def output(self, workload: Workload) -> Iterator[str]:
        """The name of a new topic for a copy of `workload`, deleted at the end with its ledger."""
        output = next(self._names)
        with self._topics.temporary(output, workload.partitions, own_topics(_job(output))):
            yield output

    def copy_into(
        self, contender: Contender, workload: Workload, batches: int, output: str
    ) -> list[Batch]:
        """Copy into a topic that is there, and check nothing."""
        if contender.format == DIRECT.format:
            sink = {"topic": output, "jobName": _job(output), **self._servers}
            sink |= contender.sink_options
            source = self._source_options(contender, workload, batches)
            return run(eo_kafka.direct(self._spark, source, sink))
        rows = self._source(contender, workload, batches).select("key", "value")
        writer = rows.writeStream.format(contender.format).options(
            **{"topic": output, **self._servers, **contender.sink_options}
        )
        if contender.format == READER.format:
            writer = writer.option("jobName", _job(output))
        return run(writer)

    def do_nothing(self, rows: int) -> list[Batch]:
        """Batches of one row through a Python source and sink that do nothing."""
        stream = self._spark.readStream.format(NOTHING.format)
        frame = stream.option("rows", rows).option("maxOffsetsPerTrigger", 1).load()
        return run(frame.writeStream.format(NOTHING.format))

    def read_prepared(self, workload: Workload, batches: int) -> list[Batch]:
        """As many rows of the same columns into Spark's sink that drops them, without Kafka."""
        return run(self._prepared(workload, batches).writeStream.format("noop"))

    def copy_prepared(self, workload: Workload, batches: int) -> list[Batch]:
        """As many keys and values from Python to Python through Spark, without Kafka."""
        rows = self._prepared(workload, batches).select("key", "value")
        return run(rows.writeStream.format(PREPARED.format))

    def _prepared(self, workload: Workload, batches: int) -> DataFrame:
        given = {
            "rows": workload.records,
            "maxOffsetsPerTrigger": -(-workload.records // batches),
            "recordBytes": workload.size,
            "tasks": workload.partitions,
        }
        return self._spark.readStream.format(PREPARED.format).options(**given).load()

    @property
    def _servers(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self._topics.bootstrap_servers}

    def _source(self, contender: Contender, workload: Workload, batches: int) -> DataFrame:
        options = self._source_options(contender, workload, batches)
        return self._spark.readStream.format(contender.format).options(**options).load()

    def _source_options(
        self, contender: Contender, workload: Workload, batches: int
    ) -> dict[str, str]:
        # Connectors round the share of a partition down: the slack keeps the number of batches.
        per_batch = -(-workload.records // batches)
        slack = workload.partitions if workload.partitions > 1 else 0
        return {
            **self._servers,
            "subscribe": workload.topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(per_batch + slack),
            **contender.source_options,
        }

    def check_copy(self, name: str, workload: Workload, output: str) -> None:
        """Raises WrongResult unless a consumer that is `read_committed` finds in `output` the
        records of `workload`, once each, whoever of that `name` wrote them."""
        if workload.topic not in self._checksums:
            self._checksums[workload.topic] = self._checksum(workload.topic)
        wanted, found = self._checksums[workload.topic], self._checksum(output)
        if wanted[0] != workload.records or found != wanted:
            raise WrongResult(
                f"{name} wrote {found[0]} records with checksum {found[1]:x}; the input "
                f"has {wanted[0]} with checksum {wanted[1]:x}."
            )

    def _checksum(self, topic: str) -> tuple[int, int]:
        """Count and order-free checksum of the committed records, by the JVM connector."""
        frame = self._spark.read.format(JVM.format).options(**self._servers)
        frame = frame.option("subscribe", topic).option("kafka.isolation.level", "read_committed")
        row = frame.load().selectExpr("count(*)", "bit_xor(xxhash64(key, value))").first()
        if row is None or row[1] is None:
            return 0, 0
        return int(row[0]), int(row[1])


def _check_read(contender: Contender, workload: Workload, measured: list[Batch]) -> None:
    """Raises WrongResult unless every record was read."""
    read = sum(batch.rows for batch in measured)
    if read != workload.records:
        of_batches = [batch.rows for batch in measured]
        raise WrongResult(
            f"{contender.name} read {read} of {workload.records} records of {workload.topic}: "
            f"{of_batches} in its batches."
        )


def _job(output: str) -> str:
    return f"bench-{output}"


def in_turn(all_of_them: Sequence[T], number: int) -> Sequence[T]:
    """Each once, in an order that moves on by one a round."""
    shift = number % len(all_of_them)
    return (*all_of_them[shift:], *all_of_them[:shift])


def own_topics(job: str) -> tuple[str, ...]:
    """What a job makes besides its output."""
    return (f"__eo_kafka.{job}.ledger", f"__eo_kafka.{job}.state")


def run(writer: DataStreamWriter) -> list[Batch]:
    """Run to the end of what is there; the batches that had rows."""
    with tempfile.TemporaryDirectory(prefix="eo-kafka-bench-") as checkpoint:
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        try:
            if not query.awaitTermination(_QUERY_TIMEOUT_S):
                raise WrongResult(f"A query did not end within {_QUERY_TIMEOUT_S} s.")
            progress = query.recentProgress
        finally:
            query.stop()
    return [Batch(rows, report["durationMs"]) for report in progress if (rows := _rows(report))]


def _rows(report: StreamingQueryProgress) -> int:
    """How many records a batch read; of the direct lane Spark counts the ranges."""
    found = eo_kafka.progress(report)
    told = [one.numInputRecords for one in found.sinks] if found else []
    rows: int = report["numInputRows"]
    return next((records for records in told if records is not None), rows)
