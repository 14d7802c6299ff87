"""Encodes typed columns to bytes, and turns bad records to dead letters, before rows are sent.

What needs the registry is asked on the driver, before the tasks start; rows are encoded on
executors.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from ..core.errors import OptionsError, SinkError, cut
from . import bad_records
from .declared import AVRO, JSON, PROTOBUF
from .options import Column, FormatOptions
from .shared import registry
from .shared.encoding import Encode, one_by_one

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class Writing:
    """The formats of one sink. Pickled to the executors once it is `prepared`."""

    options: FormatOptions
    routes: bool  # whether rows may be dead letters
    schemas: dict[str, tuple[str, int | None]] = field(default_factory=dict)  # and their numbers

    @classmethod
    def of(cls, options: FormatOptions, schema: StructType) -> Writing:
        """For rows of `schema`. Asks nobody."""
        kinds = {one.name: one.dataType.simpleString() for one in schema.fields}
        return cls(options, kinds.get(bad_records.COLUMN) == bad_records.TYPE)

    @property
    def changes_rows(self) -> bool:
        """Whether there is anything to do."""
        return self.routes or bool(self.options.columns)

    def prepared(self, schema: StructType) -> Writing:
        """With the schemas and their numbers in the registry. Driver, once a batch; again it
        changes nothing.

        Raises OptionsError, and SourceError for what the registry refuses.
        """
        if self.schemas:
            return self
        kinds = {one.name: one.dataType for one in schema.fields}
        found = {
            column.name: _schema(self.options, column, kinds[column.name])
            for column in self.options.columns
            if column.format in (AVRO, PROTOBUF) and column.name in kinds
        }
        return replace(self, schemas=found)

    def batches(
        self, rows: Iterator[pa.RecordBatch], topic: str | None
    ) -> Iterator[pa.RecordBatch]:
        """The rows as bytes; with dead letters, each with its topic (`topic` is the option).

        Raises SinkError for a row that is not of its schema.
        """
        for batch in rows:
            encoded = self._encoded(batch)
            yield bad_records.routed(encoded, topic) if self.routes else encoded

    def _encoded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for column in self.options.columns:
            if column.format not in (AVRO, JSON, PROTOBUF) or column.name not in batch.schema.names:
                continue
            at = batch.schema.get_field_index(column.name)
            batch = batch.set_column(at, column.name, self._written(batch.column(at), column))
        return batch

    def _written(self, values: pa.Array, of: Column) -> pa.Array:
        try:
            return self._encoder(of, values.type)(values)
        except Exception as error:  # what fastavro raises for wrong values is of many kinds
            raise SinkError(
                f"A row's {of.name} cannot be written as {of.format}: {cut(error, 300)}. The batch "
                "is not shown; cast or filter such rows, or change the schema."
            ) from None

    def _encoder(self, column: Column, kind: pa.DataType) -> Encode:
        if column.format == JSON:
            from .json import texts

            return texts.encoder(kind)
        schema, number = self.schemas[column.name]
        if column.format == AVRO:
            from .avro import pieces

            return pieces.encoder(schema, kind, number)
        return _of_protobuf(schema, str(column.message), number)


def column_problems(options: FormatOptions, schema: StructType) -> list[str]:
    """What columns hold that their message does not, as sentences. Driver, at the start; asks
    nobody."""
    kinds = {one.name: one.dataType for one in schema.fields}
    problems: list[str] = []
    for column in options.columns:
        if column.format == PROTOBUF and column.name in kinds:
            from .protobuf import types
            from .protobuf.descriptors import descriptor

            found = descriptor(str(column.schema), str(column.message))
            problems += types.column_problems(found, kinds[column.name], column.name)
    return problems


def _of_protobuf(schema: str, message: str, number: int | None) -> Encode:
    import pyarrow as pa

    from .protobuf import registered
    from .protobuf.codec import codec

    encode, head = codec(schema, message).encode, b""
    if number is not None:
        head = registry.pack(number, registered.head(schema, message))
    return lambda column: one_by_one(column, lambda value: head + encode(value), pa.binary())


def _schema(options: FormatOptions, column: Column, kind: Any) -> tuple[str, int | None]:
    """The schema to write with, and its number in the registry, if there is one."""
    text = _text(options, column, kind)
    if column.format == AVRO:
        from .avro import pieces
        from .shared.arrow_types import arrow_type

        try:  # before it is registered, for good
            pieces.encoder(text, arrow_type(kind), None if options.registry is None else 0)
        except Exception as error:  # what fastavro raises for schemas is of many kinds
            raise OptionsError(
                [f"Column '{column.name}' cannot be written by its Avro schema: {cut(error, 300)}."]
            ) from None
    return text, None if options.registry is None else _number(options, column, text)


def _text(options: FormatOptions, column: Column, kind: Any) -> str:
    known, subject = options.registry, column.subject
    if known is None:
        return _given(column)
    if subject is None:
        raise OptionsError(
            [
                f"Option '{column.name}.subject' must say which subject of the registry the "
                f"{column.name}s are of: there is no option 'topic' to take it from."
            ]
        )
    if column.schema is not None:
        return _given(column)
    if options.register:
        from .avro.types import avro_schema

        return json.dumps(avro_schema(kind))
    from .avro.reader import as_json

    return as_json(known.latest(subject, _if_unknown(column)))


def _given(column: Column) -> str:
    """The schema of the options, Avro's or Protobuf's."""
    if column.format == PROTOBUF:
        return str(column.schema)
    from .avro.reader import as_json

    return as_json(str(column.schema))


_numbers: dict[tuple[str, str, str], int] = {}


def _number(options: FormatOptions, column: Column, text: str) -> int:
    """A number never changes its meaning, so that one question a process is enough."""
    known, subject = cast("registry.Registry", options.registry), str(column.subject)
    key = (known.url, subject, text)
    if key not in _numbers:
        if column.format == PROTOBUF:
            from .protobuf import registered

            _numbers[key] = registered.number(
                known, subject, text, options.register, _if_unknown(column)
            )
        elif options.register:
            _numbers[key] = known.register(subject, text)
        else:
            _numbers[key] = known.number(subject, text, _if_unknown(column))
    return _numbers[key]


def _if_unknown(column: Column) -> str:
    return (
        f"Register the schema first, set option 'schema.register' to true to have it registered, "
        f"or correct option '{column.name}.subject'."
    )
