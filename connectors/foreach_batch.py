"""Batch writes with a number: `eo_kafka.foreach_batch`, and `batchId`.

The first is for the output modes that Spark refuses to Python sinks (update and complete), the
second for scheduled batch jobs.

Inside `foreachBatch` a write is a batch write to Spark; to the sink it is the micro-batch that it
belongs to: same ledger, same transactions, same steps S1 to S8, with the query and the batch number
that the tasks are told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from ..core.errors import OptionsError
from ..core.options import OptionReader
from ..sinks.maps.backend import backend_of
from ..sinks.options import GUARANTEE
from ..state.ledger.job import EXACTLY_ONCE, JOB_NAME, read_topics
from . import swallowed_errors
from .kafka_sink import KafkaStreamWriter
from .ledger_writer import LedgerWriter
from .plain_errors import plain_errors
from .running_query import RunningQuery, running_query
from .spark_versions import StreamArrowWriter
from .written_format import format_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

BATCH = "foreachBatchId"
_TWICE = (
    "This query has already written batch {batch} with another eo_kafka.foreach_batch, into the "
    "same ledger '{ledger}'. A batch is written once in a ledger, so these rows would be skipped. "
    "Nothing of them was written. Give each of the two a 'jobName' of its own, and no common "
    "'ledgerTopic'."
)
_TEMPORARY = (
    "The query has no 'checkpointLocation': Spark has made '{checkpoint}', for this start alone. "
    "The next start would be another query to the job's ledger: refused, or all is written again. "
    "Nothing was written. Set option 'checkpointLocation' of writeStream."
)
# By ledger: the run of a query and the batch that it wrote last. A run hands out each batch once.
_written: dict[str | None, tuple[str, int]] = {}


def foreach_batch(options: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    """Make a function for `writeStream.foreachBatch(...)` that writes each batch once.

    Spark refuses update and complete mode to Python sinks; this function writes them with the
    streaming sink's guarantee. In update mode it writes the rows that changed, in complete mode all
    rows each time: make the topic compacted, with the group as its key. It runs on the driver, once
    a batch; Spark's tasks write the rows. Not on Spark Connect.

    Args:
        options: The options of the sink, with a `jobName`. With `backend` the batches go into a
            map, as with `format("eo-map")`; into a Hazelcast map, only `commit=two-phase` needs a
            `jobName`. With `table` they go into a table, as with `format("eo-postgres")`, with
            `path` into files, as with `format("eo-files")`, with `target` into a target of your
            own, as with `format("eo-target")`. The query's `checkpointLocation` is found. With
            `snapshots`, start the query by `eo_kafka.start`.

    Returns:
        A function of a batch's rows and its number. The rows have the sink's columns: `value`, and
        if wanted `key`, `topic`, `headers`, `partition`.

    Raises:
        OptionsError: `jobName` is missing (at once); or two functions with one ledger, by `jobName`
            or `ledgerTopic`, write the same batch (when the second one writes).

    Examples:
        >>> write = eo_kafka.foreach_batch({**kafka, "topic": "totals", "jobName": "totals"})
        >>> totals = orders.groupBy("key").count().selectExpr("key", "string(count) as value")
        >>> query = (
        ...     totals.writeStream.outputMode("update")
        ...     .foreachBatch(write)
        ...     .option("checkpointLocation", "/data/totals")
        ...     .queryName("totals")
        ...     .trigger(availableNow=True)
        ...     .start()
        ... )
        >>> query.awaitTermination()
    """
    given = {name.lower(): value for name, value in options.items()}
    format = format_of(given)
    has_ledger = format != "eo-map" or backend_of(given).has_ledger
    if has_ledger and not given.get("jobname", "").strip():
        raise OptionsError(
            [
                "eo_kafka.foreach_batch needs option 'jobName': inside foreachBatch nothing else "
                "names the query."
            ]
        )
    return BatchFunction(given, format, has_ledger)


class BatchFunction:
    """What `foreach_batch` returns: the `format` it writes, its `options` by their names in lower
    case."""

    def __init__(self, options: Mapping[str, str], name: str, has_ledger: bool) -> None:
        self.options = options
        self.format = name
        self._has_ledger = has_ledger

    def __call__(self, rows: DataFrame, batch: int) -> None:
        """Runs on the driver, once a batch, and again for one that was interrupted."""
        query = running_query(rows.sparkSession)
        if query is None:
            self._write(rows, batch, None)
            return
        at = query.run, batch, self._ledger or str(self.options)
        try:
            self._write(rows, batch, query if self._has_ledger else None)
        except Exception as error:
            swallowed_errors.failed(*at, error)
            raise
        swallowed_errors.written(*at)

    def _write(self, rows: DataFrame, batch: int, query: RunningQuery | None) -> None:
        is_exact = OptionReader(self.options).get(GUARANTEE) == EXACTLY_ONCE
        if query and query.is_temporary and is_exact:
            raise OptionsError([_TEMPORARY.format(checkpoint=query.checkpoint)])
        found = {"checkpointlocation": query.checkpoint} if query else {}
        told = f"{batch} {query.run}" if query else f"{batch}"
        ledger = self._ledger
        if query and _written.get(ledger) == (query.run, batch):
            raise OptionsError([_TWICE.format(ledger=ledger, batch=batch)])
        writer = rows.write.format(self.format).mode("append")
        writer.options(**{**found, **self.options}).option(BATCH, told).save()
        if query:
            _written[ledger] = (query.run, batch)

    @property
    def _ledger(self) -> str | None:
        reader = OptionReader(self.options)
        ledger, _ = read_topics(reader, reader.get(JOB_NAME))
        return ledger


@plain_errors
class NumberedWriter(DataSourceArrowWriter):
    """One batch write that is a micro-batch to its sink, such as a batch of the job's ledger with
    the steps S1 to S8. Spark pickles it once, for the tasks and for `commit`; S1 runs then."""

    def __init__(self, stream: StreamArrowWriter, batch: int) -> None:
        self._stream = stream
        self._batch = batch

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Runs on executors, once an attempt of a partition."""
        return self._stream.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """S6 to S8, on the driver, once. A batch without a single task decides nothing."""
        if messages:
            self._stream.commit(messages, self._batch)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, when a task or `commit` failed."""
        self._stream.abort(messages, self._batch)


def of_foreach_batch(
    given: Mapping[str, str],
    schema: StructType,
    overwrite: bool,
    stream: Callable[..., StreamArrowWriter] = KafkaStreamWriter,
) -> NumberedWriter:
    """The writer of a batch of the query that runs `foreach_batch`; `stream` makes the writer of
    its micro-batches."""
    writer = stream(_without(BATCH, given), schema, overwrite)
    batch, _, run = given[BATCH.lower()].partition(" ")
    if isinstance(writer, LedgerWriter):
        writer.of_foreach_batch(run)
    return NumberedWriter(writer, int(batch))


def of_job(given: Mapping[str, str], schema: StructType, overwrite: bool) -> NumberedWriter:
    """The writer of a `save()` with options `jobName` and `batchId`. The ledger's owner is the job
    itself: there is no query, and whoever writes the next batch, or this one again, goes on.

    Raises OptionsError.
    """
    from ..sinks.options import SinkOptions

    options = SinkOptions.parse(given, streaming=False)
    batch = options.batch_id
    if batch is None or overwrite:
        raise OptionsError(["Save mode 'overwrite' is not allowed for Kafka: use mode('append')."])
    return numbered(given, schema, f"{options.job}", batch)


def numbered(
    given: Mapping[str, str],
    schema: StructType,
    job: str,
    batch: int,
    stream: Callable[..., StreamArrowWriter] = KafkaStreamWriter,
) -> NumberedWriter:
    """The writer of batch `batch` of the batch writes of `job`; `stream` makes a stream's."""
    from ..sinks.options import BATCH_ID, BATCH_WRITES

    rest = _without(BATCH_ID.name, given)
    identity = (f"{BATCH_WRITES}{job}", batch)
    return NumberedWriter(stream(rest, schema, overwrite=False, batch=identity), batch)


def _without(name: str, given: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in given.items() if key.lower() != name.lower()}
