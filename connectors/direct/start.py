"""`eo_kafka.direct` and `eo_kafka.direct_batch`: from topics, not through Spark's rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ...core.errors import OptionsError
from ...formats import reading
from ...formats.bad_records import COLUMN as BAD_RECORD
from ...formats.reading import Reading
from ...formats.shared.arrow_types import arrow_schema
from ...sinks.options import COMMIT, IDEMPOTENT
from ..kafka_source import reader_options
from .format import DirectDataSource, format_for
from .frames import FrameTransform
from .lane import Lane, Transform
from .slots import task_slots

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrameWriter, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import StructType

_COPIED = ("key", "value", "headers", BAD_RECORD)
# The names that a session has. Sent once more, a large function is one more file of Spark's.
_registered: WeakKeyDictionary[SparkSession, set[str]] = WeakKeyDictionary()


def direct(
    spark: SparkSession,
    source: Mapping[str, Any],
    sink: Mapping[str, Any],
    transform: Transform | None = None,
    schema: StructType | str | None = None,
) -> DataStreamWriter:
    """A stream from topics whose records do not pass through Spark's rows.

    Spark plans, schedules and repeats offset ranges, and keeps them in its checkpoint. A task reads
    the records of its ranges, gives them to `transform` and writes what that yields, within one
    process, by the same writer as `writeStream` has. So the guarantee is the same, and a checkpoint
    and a job can go to and fro between the two. For steps of one record or one task's records:
    filter, route, mask, encode anew, look up. What needs a shuffle (windows, joins,
    `dropDuplicates`) needs a DataFrame. Runs on the driver, once for each start.

    Args:
        spark: The session.
        source: Options of the eo-kafka source, such as `subscribe` and `value.format`. Without one
            about the number of tasks, a batch has at most twice as many as Spark runs at once.
        sink: Options of the eo-kafka sink, such as `topic` and `jobName`; with `table` those of
            format `eo-postgres`, with `backend` of `eo-map`, with `path` of `eo-files`, with
            `target` of `eo-target`. More can be set on what is returned.
        transform: A function as `DataFrame.mapInArrow` takes it, from an iterator of
            `pyarrow.RecordBatch` with the source's columns to one of batches with those of
            `schema`. Runs on executors, once a task attempt. It must take all batches that it is
            given, and make the same rows again from the same records. `eo_kafka.pandas_frames` and
            `eo_kafka.polars_frames` make one of a function of frames. None copies.
        schema: The columns to write and their types, as for `mapInArrow`. Others that the transform
            gives are left out. None: `key`, `value`, and `headers` where `includeHeaders` is set,
            as the source has them. With `mode=DEADLETTER` the transform must hand on
            `_bad_record`, whether `schema` names it or not; it keeps the source's type. With
            `mode=PERMISSIVE` topics and maps need a transform that leaves bad records out.

    Returns:
        The query, not started: set a trigger and a `checkpointLocation`, and call `start()`, or
        `eo_kafka.start` with it. Its `numInputRows` counts ranges; `eo_kafka.progress` has
        the records.

    Raises:
        OptionsError: Options of the source, or `schema`, are wrong. Those of the sink are checked
            when the query starts.

    Examples:
        >>> def loud(batches):
        ...     import pyarrow as pa, pyarrow.compute as pc
        ...     for batch in batches:
        ...         value = pc.utf8_upper(batch["value"].cast(pa.string()))
        ...         yield pa.record_batch({"key": batch["key"], "value": value})
        >>> query = eo_kafka.direct(
        ...     spark,
        ...     source={**kafka, "subscribe": "orders", "startingOffsets": "earliest"},
        ...     transform=loud,
        ...     sink={**kafka, "topic": "loud", "jobName": "loud"},
        ... ).option("checkpointLocation", "/data/loud").trigger(availableNow=True).start()
        >>> query.awaitTermination()
    """
    made = _format(spark, source, transform, schema, task_slots(spark), streaming=True)
    ranges = spark.readStream.format(made.name()).options(**source).load()
    return ranges.writeStream.format(made.name()).options(**sink)


def direct_batch(
    spark: SparkSession,
    source: Mapping[str, Any],
    sink: Mapping[str, Any],
    transform: Transform | None = None,
    schema: StructType | str | None = None,
) -> DataFrameWriter:
    """The same for a batch: from `startingOffsets` to `endingOffsets`, written once by `save()`.

    Runs on the driver, once for each `save()`.

    Args:
        spark: As `direct`.
        source: As `direct`.
        sink: As `direct`.
        transform: As `direct`.
        schema: As `direct`.

    Returns:
        What `df.write` is: call `save()`.

    Raises:
        OptionsError: As `direct`.

    Examples:
        >>> eo_kafka.direct_batch(
        ...     spark,
        ...     source={**kafka, "subscribe": "orders"},
        ...     sink={**kafka, "topic": "copied"},
        ... ).save()
    """
    commits = {str(value).lower() for name, value in sink.items() if name.lower() == COMMIT.key}
    # It keeps no offsets: a second run on a cluster of another size would have other tasks.
    slots = None if IDEMPOTENT in commits else task_slots(spark)
    made = _format(spark, source, transform, schema, slots, streaming=False)
    ranges = spark.read.format(made.name()).options(**source).load()
    return ranges.write.format(made.name()).mode("append").options(**sink)


def _format(
    spark: SparkSession,
    source: Mapping[str, Any],
    transform: Transform | None,
    schema: StructType | str | None,
    slots: int | None,
    streaming: bool,
) -> type[DirectDataSource]:
    from pyspark.sql.types import StructType

    given = {name: _text(value) for name, value in source.items()}
    problems = _problems(transform)
    try:
        options, formats = reader_options(given, streaming)
    except OptionsError as error:
        problems += error.problems
    asked: StructType | None = None
    try:
        asked = None if schema is None else StructType([*_schema(schema).fields])
    except OptionsError as error:
        problems += error.problems
    if problems:
        raise OptionsError(problems)
    raw = options.schema()
    columns: Any = reading.schema(formats, raw)
    if isinstance(columns, str):
        columns = StructType.fromDDL(columns)
    written = columns_to_write(asked, columns, formats.dead_letter_topic is not None)
    shape = _shape(written)
    if isinstance(transform, FrameTransform):
        transform = transform.written_as(shape)
    made = format_for(Lane(options, Reading(formats, raw, columns), transform, written, slots))
    if made.name() not in (names := _registered.setdefault(spark, set())):
        spark.dataSource.register(made)
        names.add(made.name())
    return made


def columns_to_write(
    asked: StructType | None, columns: StructType, dead_letters: bool
) -> StructType:
    """What `schema` asks for; None asks for the source's. Dead letters are the source's column, by
    whose type and comment the sink knows them: of another type they would not be written."""
    from pyspark.sql.types import StructType

    if asked is None:
        return StructType([field for field in columns.fields if field.name in _COPIED])
    if not dead_letters:
        return asked
    own = columns[BAD_RECORD]
    fields = [own if field.name == BAD_RECORD else field for field in asked.fields]
    return StructType(fields if BAD_RECORD in asked.names else [*fields, own])


def _shape(written: StructType) -> pa.Schema:
    from pyspark.errors import PySparkTypeError

    try:
        return arrow_schema(written)
    except PySparkTypeError as error:
        told = str(error).strip().splitlines()[0]
        raise OptionsError(
            [f"'schema' of eo_kafka.direct has a type that Arrow cannot hold: {told}"]
        ) from None


def _problems(transform: object) -> list[str]:
    """Of what is no transform, where that can be told before it runs."""
    if transform is None or (callable(transform) and not hasattr(transform, "evalType")):
        return []
    what = "a function of Spark's columns (a UDF)" if callable(transform) else "no function"
    return [
        f"'transform' of eo_kafka.direct is {what} ({type(transform).__name__}). It must be a "
        "function from an iterator of pyarrow.RecordBatch to another one, as mapInArrow takes it, "
        "or what eo_kafka.pandas_frames or eo_kafka.polars_frames makes of one of frames. Steps of "
        "a DataFrame need readStream and writeStream."
    ]


def _schema(schema: StructType | str) -> StructType:
    from pyspark.sql.types import StructType

    if not isinstance(schema, str):
        return schema
    try:
        found = StructType.fromDDL(schema)
    except Exception as error:  # a ParseException of Spark's, with the text of the JVM's
        told = str(error).strip().splitlines()[0]
        raise OptionsError([f"'schema' of eo_kafka.direct is '{schema}': {told}"]) from None
    if not isinstance(found, StructType):
        raise OptionsError([f"'schema' of eo_kafka.direct must name columns; it is '{schema}'."])
    return found


def _text(value: Any) -> str:
    """As Spark writes an option's value."""
    return str(value).lower() if isinstance(value, bool) else str(value)
