"""Spark's types as Arrow's, with timestamps in UTC, as Spark expects from a source."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType


def arrow_type(kind: DataType) -> pa.DataType:
    """The Arrow type of a Spark type."""
    from pyspark.sql.pandas.types import to_arrow_type

    return to_arrow_type(kind, **_utc(to_arrow_type))


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema of a Spark schema."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, **_utc(to_arrow_schema))


def nullable(schema: pa.Schema) -> pa.Schema:
    """The same without NOT NULL: Arrow refuses to write, and to cast, a struct that is null and has
    fields that are never null."""
    import pyarrow as pa

    of = pa.types

    def loose(kind: pa.DataType) -> pa.DataType:
        if of.is_struct(kind):
            return pa.struct([(field.name, loose(field.type)) for field in kind])
        if of.is_map(kind):
            return pa.map_(loose(kind.key_type), loose(kind.item_type))
        if of.is_list(kind):
            return pa.list_(pa.field("element", loose(kind.value_type)))
        return kind

    return pa.schema([(field.name, loose(field.type)) for field in schema])


def _utc(function: Any) -> dict[str, Any]:
    """UTC is to be asked for since Spark 4.2; before, it is what comes unasked."""
    return {"timezone": "UTC"} if "timezone" in inspect.signature(function).parameters else {}
