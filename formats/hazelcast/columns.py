"""Decodes columns of Compact and Portable; a value that does not fit stops the query."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql.types import ArrayType, StructType

from ...core.errors import OptionsError, SourceError, cut
from ..shared.arrow_types import arrow_type
from . import compact as compact_columns
from . import portable as portable_columns
from .field_kinds import NotOfSchema, refuse_unreadable
from .places import Damaged, Places, spread

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType

    from .compact import SchemaOf

_TYPE_AT, _PAYLOAD_AT = 4, 8  # behind the hash; and behind the type


class SerializedColumn:
    """Reads one column. Pickled to the tasks. Raises OptionsError for what no field can fill."""

    name: str
    type_number: int

    def __init__(self, kind: DataType) -> None:
        if not isinstance(kind, StructType):
            raise OptionsError([f"A {self.name} value is columns, not {kind.simpleString()}."])
        refuse_unreadable(kind, self.name)
        self._kind = kind

    def __call__(self, data: pa.Array, schema_of: SchemaOf) -> pa.Array:
        """From binary, what members serialized, to the type. `schema_of` gives the schema of a
        Compact value's id. Raises SourceError with what is wrong, and what `schema_of` raises."""
        there = np.asarray(data.is_valid())
        places = Places.of_column(data).of(there)
        try:
            types = places.moved(_TYPE_AT).numbers(">i4")
            strange = types[types != self.type_number]
            if len(strange):
                raise SourceError(
                    f"It is of Hazelcast's type {strange[0]}, and {self.name} is {self.type_number}"
                    ": read such a map as 'text', or as 'data', its serialized form."
                )
            found = self._structs(places.moved(_PAYLOAD_AT), schema_of)
            _refuse_nulls(found, self._kind, "$")
        except NotOfSchema as error:
            raise SourceError(f"It is not of its schema: {cut(error, 300)}.") from None
        except Damaged as error:
            raise SourceError(
                f"It is not laid out as {self.name} is: {cut(error, 300)}. It was not used."
            ) from None
        return spread(found, there) if len(found) else _nulls(len(data), self._kind)

    def _structs(self, places: Places, schema_of: SchemaOf) -> pa.Array:
        raise NotImplementedError


class CompactColumn(SerializedColumn):
    """Compact: the values' schemas are the cluster's."""

    name, type_number = "Compact", -55

    def _structs(self, places: Places, schema_of: SchemaOf) -> pa.Array:
        return compact_columns.structs(places, self._kind, schema_of, "$")


class PortableColumn(SerializedColumn):
    """Portable: each value says what it has."""

    name, type_number = "Portable", -1

    def _structs(self, places: Places, schema_of: SchemaOf) -> pa.Array:
        places.need(12)
        return portable_columns.structs(places.moved(8), self._kind, "$")


def _refuse_nulls(found: pa.Array, kind: DataType, at: str) -> None:
    """Raise NotOfSchema for a null where the schema says NOT NULL: Spark does not look for one
    there, and would show a 0."""
    if isinstance(kind, StructType):
        parts = [(one.name, one.dataType, one.nullable) for one in kind.fields]
        items = found.drop_null().flatten()
    elif isinstance(kind, ArrayType):
        parts, items = [("[]", kind.elementType, kind.containsNull)], [found.flatten()]
    else:
        return
    for (name, inner, may_be_null), item in zip(parts, items, strict=True):
        where = f"{at}{name}" if name == "[]" else f"{at}.{name}"
        if item.null_count and not may_be_null:
            raise NotOfSchema(f"{where} is null or missing, and is NOT NULL in its schema")
        _refuse_nulls(item, inner, where)


def _nulls(count: int, kind: DataType) -> pa.Array:
    import pyarrow as pa

    return pa.nulls(count, arrow_type(kind))
