"""Decodes a column of JSON texts; one that does not fit its schema stops the query."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.errors import OptionsError, SourceError, cut
from ..shared.arrow_types import arrow_type
from ..shared.decoding import typed
from .codec import JsonDecoder
from .ddl import ddl_problem

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType


def spark_schema(option: str, schema: str) -> StructType | str:
    """The type of a column whose schema was given as SQL's columns (then in Spark's words) or as
    `schema.json()`. Raises OptionsError, naming `option`."""
    import json

    from pyspark.sql.types import StructType

    if not schema.strip().startswith("{"):
        if problem := ddl_problem(schema):
            raise OptionsError([f"Option '{option}' {problem}; it is '{cut(schema)}'."])
        return f"STRUCT<{schema}>"
    try:
        return StructType.fromJson(json.loads(schema))
    except Exception as error:  # whatever PySpark trips over
        raise OptionsError(
            [f"Option '{option}' is no schema of Spark's: {cut(error, 200)}."]
        ) from None


class JsonColumn:
    """Reads one column. Pickled to the tasks. Raises OptionsError for what JSON cannot fill."""

    def __init__(self, kind: DataType) -> None:
        self._kind = kind
        self._decoder = JsonDecoder(kind)

    def __call__(self, texts: pa.Array) -> pa.Array:
        """From binary to the type. Raises SourceError with what is wrong with the first bad one."""

        def bad(_: int, error: Exception) -> None:
            raise SourceError(f"It is not of its schema: {cut(error, 300)}.") from None

        return typed(texts, self._decoder, arrow_type(self._kind), bad)
