"""Turns fetched batches into typed columns and sets bad records apart.

The types are settled on the driver, when the query is made; records are read on executors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ..core.errors import OptionsError, SourceError, cut
from . import bad_records
from .bad_records import BadRecord
from .declared import AVRO, DEADLETTER, JSON, PERMISSIVE, PROTOBUF, STRING
from .options import Column, FormatOptions
from .shared.arrow_types import arrow_schema
from .shared.decoding import Decoder, Utf8, typed

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

_REASON_MAX = 300
_ADDRESS = re.compile("(?<= object) at 0x[0-9a-fA-F]+")  # as Python shows what has no text
_PLAIN = re.compile("[A-Za-z_][A-Za-z_0-9]*")  # a name that needs no quotes


def schema(options: FormatOptions, raw: StructType) -> StructType | str:
    """The reader's columns; as text for Spark to parse where a schema was given so. `raw` are the
    columns without formats. Driver, once a load; asks the registry for what is not given, and else
    whether it is there.

    Raises OptionsError, SourceError.
    """
    from pyspark.sql.types import StructType

    columns_of_formats = _settled(options)
    if options.registry is not None and columns_of_formats == list(options.columns):
        options.registry.look()  # nothing was asked for: tasks would tell a wrong address
    typed = {column.name: _type(column) for column in columns_of_formats}
    columns = {field.name: typed.get(field.name, field.dataType) for field in raw.fields}
    if options.shows_bad_records:
        columns[bad_records.COLUMN] = bad_records.spark_type()
    comments = {}
    if options.dead_letter_topic is not None:
        comments[bad_records.COLUMN] = bad_records.comment(options.dead_letter_topic)
    if any(isinstance(kind, str) for kind in columns.values()):
        return ", ".join(
            f"`{name}` {words(kind)}" + (f" COMMENT '{comments[name]}'" if name in comments else "")
            for name, kind in columns.items()
        )
    made = StructType()
    for name, kind in columns.items():
        said = {"comment": comments[name]} if name in comments else None
        made.add(name, kind, metadata=said)
    return made


class Reading:
    """Reads the formats of one source. Pickled to the executors.

    `schema` is what Spark made of `schema(...)`; raises OptionsError if it is another one.
    """

    def __init__(self, options: FormatOptions, raw: StructType, schema: StructType) -> None:
        self._options = options
        self.shows_bad_records = options.shows_bad_records
        self._schema = schema
        names = [*raw.names, *([bad_records.COLUMN] if options.shows_bad_records else [])]
        columns = _settled(options)
        own = {column.name for column in columns}
        expected = {field.name: field.dataType for field in raw.fields if field.name not in own}
        for column in columns:
            kind = _type(column)
            if not isinstance(kind, str):
                expected[column.name] = kind
        found = {field.name: field.dataType for field in schema.fields}
        if schema.names != names or any(found[name] != kind for name, kind in expected.items()):
            raise OptionsError(
                [
                    "The columns are not those of the formats: Kafka source has a fixed schema and "
                    "cannot be set with a custom one (set 'key.schema' and 'value.schema'). If a "
                    "new schema was registered since load(), call load() again: the same DataFrame "
                    "has the old columns at each start."
                ]
            )
        self._decode = {
            column.name: _decoder(options, column, found[column.name]) for column in columns
        }

    @property
    def unread(self) -> str | None:
        """The column in which the source says why it gives no timestamp or headers of a record: a
        bad one. None: there are no bad records here, and it is refused.

        With it headers must be fetched, asked for or not: a bad record keeps its own.
        """
        return bad_records.UNREAD if self._options.shows_bad_records else None

    def batches(self, fetched: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Each batch with its columns typed. Raises SourceError for a bad record under FAILFAST, or
        if the registry does not answer."""
        if not self._decode:
            return fetched
        shape = arrow_schema(self._schema)
        return (self._typed(batch, shape) for batch in fetched)

    def _typed(self, batch: pa.RecordBatch, shape: pa.Schema) -> pa.RecordBatch:
        import pyarrow as pa

        columns = {name: batch.column(name) for name in batch.schema.names}
        unread = columns.pop(bad_records.UNREAD, None)
        found = enumerate(unread.to_pylist() if unread is not None else ())
        reasons: dict[int, str] = {row: why for row, why in found if why}
        for name, decode in self._decode.items():
            kind = shape.field(name).type
            columns[name] = _decoded(batch.column(name), decode, kind, name, reasons)
        bad = [BadRecord(row, reason) for row, reason in sorted(reasons.items())]
        if bad and not self._options.shows_bad_records:
            self._refuse(batch, bad[0])
        if self._options.shows_bad_records:
            letters = self._options.dead_letter_topic
            columns[bad_records.COLUMN] = bad_records.column_of(batch, bad, letters)
        return pa.RecordBatch.from_arrays([columns[name] for name in shape.names], schema=shape)

    def _refuse(self, batch: pa.RecordBatch, bad: BadRecord) -> None:
        topic, partition, offset = (
            batch.column(name)[bad.row].as_py() for name in ("topic", "partition", "offset")
        )
        raise SourceError(
            f"The record of {topic}-{partition} at offset {offset} is not of its format: "
            f"{bad.reason}. To go on past such records, set option 'mode' to {PERMISSIVE} "
            f"(null, and the bytes in a column) or {DEADLETTER} (they are sent to a topic)."
        )


def _decoded(
    column: pa.Array, decoder: Decoder, kind: pa.DataType, name: str, reasons: dict[int, str]
) -> pa.Array:
    """The column, null where a value is bad; the reason is added to what is said of its row."""

    def bad(row: int, error: Exception) -> None:
        # Of a dead letter it is a header: a task that runs again must write the same.
        reason = f"{name}: {cut(_ADDRESS.sub('', str(error)), _REASON_MAX)}"
        reasons[row] = f"{reasons[row]}; {reason}" if row in reasons else reason

    return typed(column, decoder, kind, bad)


def _settled(options: FormatOptions) -> list[Column]:
    """The columns, Avro's with their schemas: the newest of the subject where none was given. Asked
    once, so that a column's type and its decoder are of the same."""
    return [
        replace(column, schema=options.registry.latest(str(column.subject), _if_unknown(column)))
        if column.format == AVRO and column.schema is None and options.registry is not None
        else column
        for column in options.columns
    ]


def _if_unknown(column: Column) -> str:
    return f"Correct option '{column.name}.subject', or give '{column.name}.schema'."


def _type(column: Column) -> DataType | str:
    """The column's type, or Spark's words for it."""
    from pyspark.sql.types import StringType

    if column.format == STRING:
        return StringType()
    if column.format == AVRO:
        from .avro.codec import parsed
        from .avro.reader import as_json
        from .avro.types import spark_type

        return spark_type(parsed(json.loads(as_json(str(column.schema)))))[0]
    if column.format == PROTOBUF:
        from .protobuf import descriptors, types

        return types.spark_type(descriptors.descriptor(str(column.schema), str(column.message)))
    from .json.column import spark_schema

    return spark_schema(f"{column.name}.schema", str(column.schema).strip())


def words(kind: DataType | str) -> str:
    """A type in Spark's words. `timestamp` would be what the session's `spark.sql.timestampType`
    says."""
    from pyspark.sql.types import ArrayType, MapType, StructType, TimestampType

    if isinstance(kind, str):
        return kind
    if isinstance(kind, ArrayType):
        return f"array<{words(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"map<{words(kind.keyType)},{words(kind.valueType)}>"
    if isinstance(kind, StructType):
        fields = (f"{_quoted(one.name)}:{words(one.dataType)}" for one in kind.fields)
        return f"struct<{','.join(fields)}>"
    return "timestamp_ltz" if isinstance(kind, TimestampType) else kind.simpleString()


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else f"`{name.replace('`', '``')}`"


def _decoder(options: FormatOptions, column: Column, kind: DataType) -> Decoder:
    if column.format == STRING:
        return Utf8()
    if column.format == JSON:
        from .json.codec import JsonDecoder

        return JsonDecoder(kind)
    if column.format == PROTOBUF:
        from .protobuf.reader import ProtobufReader

        return ProtobufReader(
            str(column.schema), str(column.message), options.registry, column.subject
        )
    from .avro.reader import AvroReader

    return AvroReader(str(column.schema), options.registry, column.subject)
