"""`format("eo-map")`: the class that Spark finds, and the readers of IMaps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from ..spark_versions import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    refuse_streams_of_maps,
    refuse_without_pushed_filters,
)
from .filters import Pushing

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceArrowWriter
    from pyspark.sql.types import DataType, StructType

    from ...sources.maps.declared import MapShape
    from ...sources.maps.options import MapOptions
    from ...sources.maps.rows import Typed
    from ...sources.maps.topic_options import TopicMapOptions
    from ..spark_versions import StreamArrowWriter


class MapDataSource(DataSource):
    """A map as a replayable stream of its changes, as a batch, and as a sink. Options:
    docs/maps.md."""

    @classmethod
    def name(cls) -> str:
        """The word after `format`."""
        return "eo-map"

    def schema(self) -> str:
        """By the options `key.format` and `value.format`; the same for streams and batches, which
        Spark does not tell apart here. Contacts nobody. Raises OptionsError."""
        return columns(read_options(self.options, None))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Called once a query, at its start."""
        from ...sources.maps.topic_options import TopicMapOptions

        refuse_streams_of_maps()
        options = read_options(self.options, True)
        columns_read = typed(options, schema)
        if not isinstance(options, TopicMapOptions):
            return MapStreamReader(options, columns_read)
        from .topic_readers import TopicMapStreamReader

        return TopicMapStreamReader(options, columns_read)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Called once a `load()`."""
        from ...sources.maps.topic_options import TopicMapOptions

        options = read_options(self.options, False)
        columns_read = typed(options, schema)
        if options.push_filters:
            refuse_without_pushed_filters()
        if not isinstance(options, TopicMapOptions):
            of_members = PushingMapBatchReader if options.push_filters else MapBatchReader
            return of_members(options, columns_read, schema)
        from .topic_readers import PushingTopicMapBatchReader, TopicMapBatchReader

        of_topics = PushingTopicMapBatchReader if options.push_filters else TopicMapBatchReader
        return of_topics(options, columns_read, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamArrowWriter:
        """Called before each micro-batch, and again before each `commit` and `abort`; contacts
        nobody."""
        from .writers import stream_writer

        return stream_writer(self.options, schema, overwrite)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Called once a `save()`, also for each batch of `eo_kafka.foreach_batch`."""
        from .writers import batch_writer

        return batch_writer(self.options, schema, overwrite)


def read_options(given: Mapping[str, str], streaming: bool | None) -> MapOptions | TopicMapOptions:
    """Checked, for the backend that is asked for; Hazelcast's if that is missing or wrong, which is
    told then. Raises OptionsError. Contacts nobody."""
    from ...core.maps import is_topic
    from ...sources.maps.options import MapOptions
    from ...sources.maps.topic_options import TopicMapOptions

    if is_topic(given):
        return TopicMapOptions.parse(given, streaming)
    return MapOptions.parse(given, streaming)


def columns(options: MapShape) -> str:
    """The columns, in Spark's words. Raises OptionsError."""
    from ...core.maps import TEXT
    from ...formats.json.column import spark_schema
    from ...formats.reading import words
    from ...sources.maps.declared import TYPED

    def kind(name: str, format: str, schema: str | None) -> str:
        if format in TYPED:
            return words(spark_schema(f"{name}.schema", schema or ""))
        return "STRING" if format == TEXT else "BINARY"

    key = kind("key", options.key_format, options.key_schema)
    value = kind("value", options.value_format, options.value_schema)
    return (
        f"event STRING, key {key}, value {value}, old_value {value}, partition INT, sequence BIGINT"
    )


def typed(options: MapShape, schema: StructType) -> Typed:
    """What reads the columns that are JSON, Compact or Portable. `schema` is what Spark made of
    `schema()`, or what the user gave in its place; raises OptionsError if that is another one."""
    from ...core.errors import OptionsError
    from ...core.maps import JSON, TEXT
    from ...formats.hazelcast.columns import CompactColumn, PortableColumn
    from ...formats.json.column import JsonColumn
    from ...sources.maps.declared import COMPACT, PORTABLE
    from ...sources.maps.rows import NAMES

    readers: dict[str, Callable[[DataType], Any]] = {
        JSON: JsonColumn,
        COMPACT: CompactColumn,
        PORTABLE: PortableColumn,
    }

    formats = {"key": options.key_format, "value": options.value_format}
    found = {field.name: field.dataType for field in schema.fields}
    words = {name: "string" if kind == TEXT else "binary" for name, kind in formats.items()}
    expected = {**words, "event": "string", "partition": "int", "sequence": "bigint"}
    right = tuple(schema.names) == NAMES and found["old_value"] == found["value"]
    for name, kind in expected.items() if right else ():
        right = right and (formats.get(name) in readers or found[name].simpleString() == kind)
    if not right:
        raise OptionsError(
            [
                "The columns of a map are fixed and cannot be set with schema(): set 'key.format' "
                "and 'value.format', and for JSON, Compact and Portable 'key.schema' and "
                "'value.schema'."
            ]
        )
    return {name: readers[kind](found[name]) for name, kind in formats.items() if kind in readers}


class MapStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The event journal of a map.

    Spark asks `initialOffset()` again when it restarts before batch 0 is committed, and stores no
    answer. So the answer is empty; the first batch reads nothing and *ends* where the query
    starts, which Spark does store before any row is read.
    """

    def __init__(self, options: MapOptions, typed: Typed) -> None:
        from ...sources.maps.planner import MapPlanner

        self._options = options
        self._typed = typed
        self._planner = MapPlanner(options)
        self._until_now = False

    def initialOffset(self) -> dict[str, Any]:
        """Nothing yet; see the class."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        """By `maxEventsPerTrigger`, if given. Driver, once a run."""
        most = self._options.max_events
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read only up to what the first look at the journal sees. Driver, first call of a run."""
        self._until_now = True

    def latestOffset(self, start: Any = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        """Where the next batch ends. Driver, once for each batch or trigger.

        Raises DataLossError, ReadTimeout, EnvironmentRefused where the map has no journal.
        """
        from ...core.crash_points import crash_point

        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = self._planner.end(self._position(start), rows, now=self._until_now)
        if not start:
            crash_point("source.after_initial_resolution")
        return end.encode()

    def partitions(self, start: Any, end: Any) -> list[InputPartition]:
        """The tasks of one batch. Driver; after a restart the first call may be this one."""
        from ...core.crash_points import crash_point
        from ...sources.maps.position import ranges
        from ...sources.maps.reader import tasks

        crash_point("source.before_partitions")
        until = self._position(end)
        assert until is not None
        wanted = ranges(self._position(start), until)
        return [InputPartition(one) for one in tasks(until.cluster, wanted, self._options.tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The events of some ranges. Executor, once for each task attempt."""
        from ...sources.maps.reader import read_journal

        return read_journal(self._options, partition.value, self._typed)

    def commit(self, end: Any) -> None:
        """Nothing to do: the offsets are in the checkpoint."""

    def stop(self) -> None:
        """Disconnect. Spark ends the process without calling this."""
        from ...clients.hazelcast.client import close_clients

        close_clients()

    def _position(self, offset: Any) -> Any:
        from ...core.errors import OptionsError
        from ...sources.maps.position import MapPosition

        if not offset:
            return None
        found = MapPosition.decode(offset)
        if found.map != self._options.map:
            raise OptionsError(
                [
                    f"Option 'map' is '{self._options.map}', and the checkpoint is of a stream of "
                    f"map '{found.map}'. Another map needs another checkpoint."
                ]
            )
        return found


class MapBatchReader(DataSourceReader):
    """All entries of a map, as they are when they are read; it is no snapshot."""

    def __init__(self, options: MapOptions, typed: Typed, schema: StructType) -> None:
        from ...sources.maps.pushed import NOTHING_PUSHED

        self._options = options
        self._typed = typed
        self._schema = schema
        self._pushed = NOTHING_PUSHED

    def partitions(self) -> list[InputPartition]:
        """Groups of the map's partitions. Driver, once a load."""
        from ...sources.maps.entries import plan

        return [InputPartition(one) for one in plan(self._options, self._pushed)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The entries of some partitions. Executor, once for each task attempt."""
        from ...sources.maps.entries import read_entries

        return read_entries(self._options, partition.value, self._typed)


class PushingMapBatchReader(Pushing, MapBatchReader):
    """The same, restricted by Spark's filters."""
