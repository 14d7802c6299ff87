"""Spark's writer interfaces for Kafka, stream and batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from ..core.errors import OptionsError, SinkError
from ..formats import bad_records
from ..formats.declared import STRING
from ..formats.options import FormatOptions
from ..formats.writing import Writing
from ..formats.writing import column_problems as writing_problems
from ..sinks.options import SinkOptions
from ..sinks.rows.columns_needed import ENCODABLE, column_problems
from .ledger_writer import LedgerWriter, Report, all_tasks, task_context
from .one_build import OneBuild
from .pickling import tells_errors
from .plain_errors import plain_errors
from .spark_versions import refuse_without_admission_control

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


def _options(
    given: Mapping[str, str], schema: StructType, streaming: bool
) -> tuple[SinkOptions, Writing]:
    """Options and columns, checked together so that all problems are told at once."""
    problems: list[str] = []
    options, formats = None, None
    try:
        options = SinkOptions.parse(given, streaming)
    except OptionsError as error:
        problems += error.problems
    try:
        formats = FormatOptions.of_writer(given)
    except OptionsError as error:
        problems += [sentence for sentence in error.problems if sentence not in problems]
    columns = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    if formats is None:  # then it is not known either which types the columns may be of
        encoded = list(ENCODABLE)
    else:
        encoded = [column.name for column in formats.columns if column.format != STRING]
    problems += column_problems(columns, topic_option="topic" in given, encoded=encoded)
    if formats is not None:
        problems += writing_problems(formats, schema)
    letters = bad_records.goes_to(schema)
    if options is not None and letters in options.own_topics:
        problems.append(
            f"Dead letter topic '{letters}' (option 'deadLetterTopic' of the source) is also the "
            "sink's option 'ledgerTopic' or 'stateTopic'. Name another one."
        )
    if problems or options is None or formats is None:
        raise OptionsError(problems)
    writing = Writing.of(formats, schema)
    if writing.routes:
        options = replace(options, dead_letter_topic=letters)
    return options, writing


def _sent(
    options: SinkOptions, writing: Writing, rows: Iterator[pa.RecordBatch]
) -> tuple[SinkOptions, Iterator[pa.RecordBatch]]:
    """The rows as they are sent, and the options to send them with: dead letters have topics of
    their own, so that each row names one."""
    if not writing.changes_rows:
        return options, rows
    batches = writing.batches(rows, options.topic)
    return (replace(options, topic=None) if writing.routes else options), batches


@plain_errors
class KafkaStreamWriter(LedgerWriter):
    """One micro-batch into topics."""

    def __init__(
        self,
        given: Mapping[str, str],
        schema: StructType,
        overwrite: bool,
        batch: tuple[str, int] | None = None,
    ) -> None:
        """`batch`: query id and number, where Spark does not tell the tasks."""
        refuse_without_admission_control(given, sink=True)
        options, self._writing = _options(given, schema, streaming=True)
        super().__init__(options, batch)
        self._schema = schema
        self._overwrite = overwrite

    @tells_errors
    def __getstate__(self) -> dict[str, Any]:
        """S1, see `LedgerWriter`; and the registry is asked, once, for what it knows of schemas."""
        if self._overwrite:
            raise SinkError(
                "Output mode 'complete' would need the topic to be replaced with each batch, which "
                "a Kafka topic cannot be. Use append."
            )
        self._writing = self._writing.prepared(self._schema)
        return super().__getstate__()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Runs on executors, once an attempt of a partition."""
        from ..sinks.protocol import one_phase, two_phase
        from ..sinks.rows import plain_write

        context = self._context()
        options, rows = _sent(self._options, self._writing, iterator)
        if self._plan is None:
            plain_write.write(options, context.partitionId(), rows)
            return self._reported(None)
        write = one_phase.write if self._options.one_phase else two_phase.write
        return self._reported(write(options, self._plan, self._task(context), rows))


@plain_errors
class KafkaBatchWriter(OneBuild, DataSourceArrowWriter):
    """One `save()`. The same pickled writer serves the tasks and `commit`."""

    def __init__(self, given: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        from ..sinks.protocol.batch import new_batch
        from ..sinks.protocol.preflight import with_allowed_timeout

        options, writing = _options(given, schema, streaming=False)
        if overwrite:
            raise OptionsError(
                ["Save mode 'overwrite' is not allowed for Kafka: use mode('append')."]
            )
        self._writing = writing.prepared(schema)
        self._options = with_allowed_timeout(options)
        self._batch = new_batch(self._options)

    @property
    def options(self) -> SinkOptions:
        """As checked."""
        return self._options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Runs on executors, once an attempt of a partition."""
        from ..sinks.protocol import batch
        from ..sinks.rows import plain_write

        context = task_context()
        options, rows = _sent(self._options, self._writing, iterator)
        if not options.exactly_once:
            plain_write.write(options, context.partitionId(), rows)
            return Report()
        if context.getLocalProperty("sql.streaming.queryId") is not None:
            # Spark calls the function again for a batch that was interrupted after this save()
            raise SinkError(
                "A plain save() inside foreachBatch would write a batch that is run again a second "
                "time. Nothing was written. Write with eo_kafka.foreach_batch(options), or give "
                "the save() a 'jobName' of its own and the batch's number as 'batchId', or choose "
                "guarantee 'at-least-once'."
            )
        return Report(
            batch.write(options, self._batch, context.partitionId(), context.taskAttemptId(), rows)
        )

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, once, after all tasks."""
        if self._options.exactly_once:
            from ..sinks.protocol import batch

            batch.commit(self._options, self._batch, all_tasks(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, when a task or `commit` failed."""
        if self._options.exactly_once:
            from ..core.patience import in_a_hurry
            from ..sinks.protocol import batch

            with in_a_hurry():
                batch.abort(self._options, self._batch, [_task(message) for message in messages])


def _task(message: WriterCommitMessage | None) -> Any:
    return message.task if isinstance(message, Report) else None
