"""Rows of a DataFrame as a table takes them: nested columns become JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...core.errors import SinkError, cut
from ...formats.json import texts

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_JSON = "json"  # the type that such columns have for the sink


class TableRows:
    """Makes them, of rows of one schema. Pickled to the tasks."""

    def __init__(self, schema: StructType, but: tuple[str, ...]) -> None:
        """`but`: columns that go elsewhere, as they are."""
        from pyspark.sql.types import ArrayType, MapType, StructType

        nested = (ArrayType, MapType, StructType)
        self._encoded = {
            field.name
            for field in schema.fields
            if isinstance(field.dataType, nested) and field.name not in but
        }
        self.columns = [
            (
                field.name,
                _JSON if field.name in self._encoded else _words(field.dataType.simpleString()),
            )
            for field in schema.fields
        ]

    def of(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Executor. Raises SinkError for a value that JSON cannot hold."""
        import pyarrow as pa

        for batch in rows:
            if not self._encoded:
                yield batch
                continue
            names = batch.schema.names
            columns = [
                _encoded(batch.column(name), name) if name in self._encoded else batch.column(name)
                for name in names
            ]
            yield pa.record_batch(columns, names=names)


def _words(kind: str) -> str:
    """Spark's type; texts of all collations and lengths are strings."""
    if kind.startswith(("string", "varchar", "char")):
        return "string"
    return kind


def _encoded(column: pa.Array, name: str) -> pa.Array:
    import pyarrow as pa

    encode = texts.encoder(column.type)
    try:
        return encode(column).cast(pa.string())
    except (ValueError, TypeError, OverflowError) as error:
        raise SinkError(
            f"A value of column '{name}' cannot be written as JSON: {cut(error, 300)}."
        ) from None
