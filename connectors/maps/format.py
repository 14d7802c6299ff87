"""`format("eo-map")`: the class that Spark finds, and the columns of a map."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader

from ..foreach_batch import BATCH, of_foreach_batch
from ..plain_errors import plain_errors
from ..spark_versions import refuse_streams_of_maps, refuse_without_pushed_filters
from .backends import classes_of

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceArrowWriter
    from pyspark.sql.types import DataType, StructType

    from ...sources.maps.declared import MapShape
    from ...sources.maps.rows import Typed
    from ..spark_versions import StreamArrowWriter


@plain_errors
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
        return columns(classes_of(self.options).options(self.options, None))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Called once a query, at its start."""
        refuse_streams_of_maps()
        classes = classes_of(self.options)
        options = classes.options(self.options, True)
        return classes.stream_reader(options, typed(options, schema))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Called once a `load()`."""
        classes = classes_of(self.options)
        options = classes.options(self.options, False)
        columns_read = typed(options, schema)
        if options.push_filters:
            refuse_without_pushed_filters()
            return classes.pushing_reader(options, columns_read, schema)
        return classes.reader(options, columns_read, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamArrowWriter:
        """Called before each micro-batch, and again before each `commit` and `abort`; contacts
        nobody."""
        return classes_of(self.options).stream_writer(self.options, schema, overwrite)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Called once a `save()`, also for each batch of `eo_kafka.foreach_batch`."""
        classes = classes_of(self.options)
        if BATCH.lower() in {name.lower() for name in self.options}:
            return of_foreach_batch(self.options, schema, overwrite, classes.stream_writer)
        return classes.writer(self.options, schema, overwrite)


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
