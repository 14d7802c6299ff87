"""Spark's sink interfaces, over `eo_kafka.sinks`."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from eo_kafka.connectors.spark_versions import StreamArrowWriter, refuse_without_admission_control
from eo_kafka.errors import OptionsError, SinkError
from eo_kafka.formats.declared import STRING
from eo_kafka.formats.options import FormatOptions
from eo_kafka.formats.writing import Writing
from eo_kafka.sinks.committable import TaskReport, WritePlan
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.rows import column_problems

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)


@dataclass
class Report(WriterCommitMessage):
    """A task's message to the driver. `task` is None under the weaker guarantees."""

    task: Any = None


def _options(
    given: Mapping[str, str], schema: StructType, streaming: bool
) -> tuple[SinkOptions, Writing]:
    """Options and columns, checked together so that all problems are told at once."""
    problems: list[str] = []
    options, formats = None, FormatOptions((), None)
    try:
        options = SinkOptions.parse(given, streaming)
    except OptionsError as error:
        problems += error.problems
    try:
        formats = FormatOptions.of_writer(given)
    except OptionsError as error:
        problems += [sentence for sentence in error.problems if sentence not in problems]
    columns = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    encoded = [column.name for column in formats.columns if column.format != STRING]
    problems += column_problems(columns, topic_option="topic" in given, encoded=encoded)
    if problems or options is None:
        raise OptionsError(problems)
    return options, Writing.of(formats, schema)


def _sent(
    options: SinkOptions, writing: Writing, rows: Iterator[pa.RecordBatch]
) -> tuple[SinkOptions, Iterator[pa.RecordBatch]]:
    """The rows as they are sent, and the options to send them with: dead letters have topics of
    their own, so that each row names one."""
    if not writing.changes_rows:
        return options, rows
    batches = writing.batches(rows, options.topic)
    return (replace(options, topic=None) if writing.routes else options), batches


class KafkaStreamWriter(StreamArrowWriter):
    """One micro-batch. Spark makes a new one for planning, for `commit` and for `abort`."""

    def __init__(
        self,
        given: Mapping[str, str],
        schema: StructType,
        overwrite: bool,
        batch: tuple[str, int] | None = None,
    ) -> None:
        """`batch`: query id and number, where Spark does not tell the tasks."""
        refuse_without_admission_control(given, sink=True)
        self._batch = batch
        self._options, self._writing = _options(given, schema, streaming=True)
        self._schema = schema
        self._overwrite = overwrite
        self._plan: WritePlan | None = None

    @property
    def options(self) -> SinkOptions:
        """As checked."""
        return self._options

    def __getstate__(self) -> dict[str, Any]:
        """S1 runs here: being pickled for the tasks is the one thing that happens to a writer
        before a batch and never before `commit` or `abort`. Spark pickles it more than once."""
        if self._overwrite:
            raise SinkError(
                "Output mode 'complete' would need the topic to be replaced with each batch, which "
                "a Kafka topic cannot be. Use append."
            )
        self._writing = self._writing.prepared(self._schema)
        if self._options.exactly_once and self._plan is None:
            from eo_kafka.sinks.recovery import make_plan

            self._plan = make_plan(self._options)
        return self.__dict__.copy()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Runs on executors, once an attempt of a partition."""
        from pyspark import TaskContext

        from eo_kafka.sinks import one_phase, plain_write, two_phase

        context = TaskContext.get()
        if context is None:
            raise SinkError("write() was called outside a Spark task.")
        options, rows = _sent(self._options, self._writing, iterator)
        if self._plan is None:
            plain_write.write(options, context.partitionId(), rows)
            return Report()
        query_id, batch = self._batch or _told_batch(context)
        task = two_phase.TaskIdentity(
            query_id=query_id,
            batch=batch,
            partition=context.partitionId(),
            task_attempt_id=context.taskAttemptId(),
            checkpoint=self._options.checkpoint or _default_checkpoint(self._options, context),
        )
        write = one_phase.write if self._options.one_phase else two_phase.write
        return Report(write(options, self._plan, task, rows))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """S6 to S8, on the driver, once a batch, or again after a failure."""
        reports = _reports(messages)
        if self._options.exactly_once:
            from eo_kafka.sinks import committer

            committer.commit(self._options, [task for task in reports if task], batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver, when a task or `commit` failed. It must not hide why."""
        reports = _reports(messages)
        if self._options.exactly_once and any(reports):
            from eo_kafka.sinks import committer

            try:
                committer.abort(self._options, reports)
            except Exception as error:
                log.warning("Batch %d: the next start cleans up (%s).", batchId, error)


def _told_batch(context: Any) -> tuple[str, int]:
    """The query's id and the batch's number, as Spark tells a stream's tasks."""
    query_id = context.getLocalProperty("sql.streaming.queryId")
    batch = context.getLocalProperty("streaming.sql.batchId")
    if query_id is None or batch is None:
        raise SinkError(
            "This Spark does not tell its tasks which query and batch they belong to (Spark "
            "Connect does not inside foreachBatch); exactly-once needs that. Nothing was written."
        )
    return query_id, int(batch)


def _default_checkpoint(options: SinkOptions, context: Any) -> str | None:
    """Where Spark puts the checkpoint of a named query without option `checkpointLocation`."""
    root = context.getLocalProperty("spark.sql.streaming.checkpointLocation")
    return f"{root.rstrip('/')}/{options.query_name}" if root and options.query_name else None


def _reports(messages: Sequence[WriterCommitMessage | None]) -> list[TaskReport | None]:
    return [message.task if isinstance(message, Report) else None for message in messages]


class KafkaBatchWriter(DataSourceArrowWriter):
    """One `save()`. The same pickled writer serves the tasks and `commit`."""

    def __init__(self, given: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        from eo_kafka.sinks.batch import new_batch

        self._options, writing = _options(given, schema, streaming=False)
        if overwrite:
            raise OptionsError(
                ["Save mode 'overwrite' is not allowed for Kafka: use mode('append')."]
            )
        self._writing = writing.prepared(schema)
        self._batch = new_batch(self._options)

    @property
    def options(self) -> SinkOptions:
        """As checked."""
        return self._options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Runs on executors, once an attempt of a partition."""
        from pyspark import TaskContext

        from eo_kafka.sinks import batch, plain_write

        context = TaskContext.get()
        if context is None:
            raise SinkError("write() was called outside a Spark task.")
        options, rows = _sent(self._options, self._writing, iterator)
        if not options.exactly_once:
            plain_write.write(options, context.partitionId(), rows)
            return Report()
        return Report(
            batch.write(options, self._batch, context.partitionId(), context.taskAttemptId(), rows)
        )

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, once, after all tasks."""
        if self._options.exactly_once:
            from eo_kafka.sinks import batch

            batch.commit(self._options, self._batch, [_task(message) for message in messages])

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, when a task or `commit` failed."""
        if self._options.exactly_once:
            from eo_kafka.sinks import batch

            batch.abort(self._options, self._batch, [_task(message) for message in messages])


def _task(message: WriterCommitMessage | None) -> Any:
    return message.task if isinstance(message, Report) else None
