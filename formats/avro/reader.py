"""Decodes Avro values one by one, each with its writer's schema. Runs on executors.

Which schema that is, each value says itself where there is a registry; else it is the one wanted.
"""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any

from ...core.errors import cut
from ..shared import registry as wire
from ..shared.registry import Registry, UnknownSchema
from ..shared.schema_numbers import SchemaNumbers
from .codec import Decoder, is_bytes, parsed, with_length

if TYPE_CHECKING:
    import pyarrow as pa

    from ..shared.decoding import Rows

_SCHEMAS_MAX = 16  # of one batch, that are read together


class AvroReader:
    """Pickled to the executors, where it remembers the schemas it met. `wanted` is what values are
    seen as."""

    def __init__(self, wanted: str, known: Registry | None, subject: str | None = None) -> None:
        self._wanted = as_json(wanted)
        self._known, self._subject = known, subject
        self._schemas: SchemaNumbers[str] = SchemaNumbers()

    def decode(self, value: bytes) -> Any:
        """Raises EoKafkaError for what is not the value's fault; anything else is:
        what fastavro raises for wrong bytes is of many kinds."""
        if self._known is None:
            return _decoder(self._wanted, self._wanted).decode(value)
        number, data = wire.unpack(value)
        schema = self._schema(number)
        data = with_length(data) if is_bytes(schema) else data
        return _decoder(schema, self._wanted).decode(data)

    def column(self, values: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Rows] | None:
        """As `Decoder.column` (formats/shared/decoding.py). Raises SourceError if the registry does
        not answer."""
        from . import columns as avro_columns

        if self._known is None:
            return avro_columns.decoded(values, self._wanted, self._wanted, kind)
        return self._numbered(values, kind)

    def _numbered(self, values: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Rows] | None:
        """By the schemas that the values name."""
        import numpy as np
        import pyarrow as pa

        from ..shared.decoding import merged

        numbers = wire.numbers(values)
        if numbers is None:
            return None
        if len(numbers) and numbers[0] >= 0 and (numbers == numbers[0]).all():  # as a rule
            return self._of_one(values, int(numbers[0]), kind)
        present = np.unique(numbers[numbers >= 0])
        if len(present) > _SCHEMAS_MAX:
            return None
        valid = np.asarray(values.is_valid())
        left = [np.flatnonzero(valid & (numbers < 0))]
        pieces = [(np.arange(len(values)), pa.nulls(len(values), kind))]
        for number in present.tolist():
            rows = np.flatnonzero(numbers == number)
            found = self._of_one(values.take(pa.array(rows)), number, kind)
            if found is None:
                left.append(rows)
                continue
            pieces.append((rows, found[0]))
            left.append(rows[found[1]])
        return merged(len(values), pieces), np.sort(np.concatenate(left))

    def _of_one(
        self, values: pa.Array, number: int, kind: pa.DataType
    ) -> tuple[pa.Array, Rows] | None:
        """All of them written by one schema."""
        from . import columns as avro_columns

        try:
            schema = self._schema(number)
        except UnknownSchema:
            return None
        if is_bytes(schema):
            return None
        return avro_columns.decoded(values, schema, self._wanted, kind, wire.HEAD_SIZE)

    def _schema(self, number: int) -> str:
        known = self._known
        assert known is not None

        def ask(one: int) -> str:
            return _readable(as_json(known.schema(one, wire.AVRO, self._subject)), one)

        return self._schemas.get(number, ask)


def _readable(schema: str, number: int) -> str:
    """Registries hold what Java's Avro takes: that ignores what is wrong with a logical type."""
    try:
        parsed(json.loads(schema))
    except Exception as error:  # fastavro's are of many kinds
        raise UnknownSchema(
            f"schema {number} cannot be read here: {type(error).__name__}: {cut(error, 200)}"
        ) from None
    return schema


def as_json(schema: str) -> str:
    """A primitive type may be given by its bare name."""
    text = schema.strip()
    return text if text[:1] in ("{", "[", '"') else json.dumps(text)


@functools.lru_cache(maxsize=256)
def _decoder(written: str, wanted: str) -> Decoder:
    schema = parsed(json.loads(written))
    return Decoder(schema, None if written == wanted else parsed(json.loads(wanted)))
