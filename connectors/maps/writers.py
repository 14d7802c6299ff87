"""Spark's writers of maps: into a compacted topic, and into an IMap by puts or by decision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from ...core.errors import OptionsError
from ...sinks.maps.options import MapSinkOptions, read_topic
from ...sinks.maps.two_phase_options import read_two_phase
from ..kafka_sink import KafkaBatchWriter, KafkaStreamWriter
from ..ledger_writer import LedgerWriter, task_context, told_batch
from ..one_build import OneBuild
from ..pickling import tells_errors
from ..plain_errors import plain_errors
from ..spark_versions import StreamArrowWriter, refuse_without_admission_control
from .rows import Entries

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


@dataclass
class MapMessage(WriterCommitMessage):
    """A task's message to the driver: a `MapReport`."""

    report: Any = None


class _TopicMap:
    """What both writers of a topic share: the Kafka sink's writer, and rows made for it."""

    _kafka: Any  # which of the Kafka sink's writers

    def __init__(self, given: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        options, shape, problems = read_topic(given, _columns(schema))
        try:
            if not problems:
                self._entries = Entries(shape, schema)
                self._map = options["topic"]
                self._sink = self._kafka(options, self._entries.schema, overwrite)
        except OptionsError as error:
            problems += error.problems
        if problems:
            raise OptionsError(problems)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Runs on executors, once an attempt of a partition."""
        message: WriterCommitMessage = self._sink.write(self._entries.of(iterator))
        return message


@plain_errors
class TopicMapStreamWriter(_TopicMap, StreamArrowWriter):
    """One micro-batch into a topic: the Kafka sink's, with all of its guarantees."""

    _kafka = KafkaStreamWriter

    @tells_errors
    def __getstate__(self) -> dict[str, Any]:
        """Being pickled for the tasks is when the topic is looked at; see `KafkaStreamWriter`."""
        from ...sinks.maps.topic import check_is_map

        check_is_map(self._sink.options)
        return self.__dict__.copy()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """S6 to S8, on the driver."""
        self._sink.commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver, when a task or `commit` failed."""
        self._sink.abort(messages, batchId)


@plain_errors
class TopicMapBatchWriter(_TopicMap, DataSourceArrowWriter):
    """One `save()` into a topic."""

    _kafka = KafkaBatchWriter

    @tells_errors
    def __getstate__(self) -> dict[str, Any]:
        """As a stream's writer."""
        from ...sinks.maps.topic import check_is_map

        check_is_map(self._sink.options)
        return self.__dict__.copy()

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, once, after all tasks."""
        self._sink.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, when a task or `commit` failed."""
        self._sink.abort(messages)


class _Imap(OneBuild):
    """What both writers of an IMap share."""

    def __init__(self, given: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        _refuse_overwrite(overwrite)
        self._options, shape = MapSinkOptions.parse(given, _columns(schema))
        self._entries = Entries(shape, schema)


@plain_errors
class ImapStreamWriter(_Imap, StreamArrowWriter):
    """One micro-batch into an IMap: idempotent, entry by entry."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Runs on executors, once an attempt of a partition."""
        from ...sinks.maps import puts as map_writer

        query, batch = told_batch(task_context(), ", by which older tasks are kept out.")
        rows = self._entries.of(iterator)
        return MapMessage(map_writer.write(self._options, rows, query, batch))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """The members remember the batch. On the driver, once a batch, or again after a failure."""
        from ...sinks.maps import puts as map_writer

        reports = [one.report for one in messages if isinstance(one, MapMessage)]
        map_writer.commit(self._options, reports, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What is written stays, and is written again."""


@plain_errors
class ImapTwoPhaseWriter(LedgerWriter):
    """One micro-batch into an IMap, and perhaps a topic: invisible until its decision, in the job's
    ledger in Kafka, and then whole."""

    def __init__(self, given: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        refuse_without_admission_control(given, sink=True)
        _refuse_overwrite(overwrite)
        options, self._target, shape = read_two_phase(given, _columns(schema))
        super().__init__(options)
        self._entries = Entries(shape, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Runs on executors, once an attempt of a partition."""
        from ...sinks.maps import two_phase as map_two_phase

        task = self._task(self._context())
        assert self._plan is not None, "pickled for the tasks without S1"
        rows = self._entries.of(iterator)
        report = map_two_phase.write(self._options, self._target, self._plan, task, rows)
        return self._reported(report)


@plain_errors
class ImapBatchWriter(_Imap, DataSourceArrowWriter):
    """One `save()` into an IMap."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Runs on executors, once an attempt of a partition."""
        from ...sinks.maps import puts as map_writer

        return MapMessage(map_writer.write(self._options, self._entries.of(iterator)))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing to do: all is written."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What is written stays; saving again makes it whole."""


def _refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise OptionsError(
            [
                "A map is written entry by entry and never replaced as a whole: use output "
                "mode 'append' (or eo_kafka.foreach_batch), and mode('append') for a batch."
            ]
        )


def _columns(schema: StructType) -> list[tuple[str, str]]:
    return [
        (field.name, field.dataType.simpleString().partition(" collate ")[0])
        for field in schema.fields
    ]
