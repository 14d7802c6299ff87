"""Turns rows of a DataFrame into entries of a map; a null value removes the key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...core.errors import SinkError, cut
from ...formats import bad_records
from ...formats.json import texts
from ...sinks.maps.options import RowShape

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class Entries:
    """Makes them, of rows of one schema. Pickled to the tasks. Raises OptionsError where JSON has
    nothing for the values, and where bad records would be lost."""

    def __init__(self, shape: RowShape, schema: StructType) -> None:
        from pyspark.sql.types import BinaryType, StringType, StructType

        bad_records.refuse_lost("eo-map", schema)
        self._shape = shape
        kind = schema["value"].dataType
        self._encodes = shape.json and not isinstance(kind, StringType | BinaryType)
        value = BinaryType() if self._encodes else kind
        # Nothing else goes on: the partition of a map that is copied is not that of the copy
        self.schema = StructType().add("key", schema["key"].dataType).add("value", value)

    def of(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Executor. Raises SinkError for a row that is no entry."""
        import pyarrow as pa

        for batch in rows:
            key = batch.column("key")
            if key.null_count:
                raise SinkError(
                    "A row's key is null, and a map's entry needs one. Filter such rows."
                )
            value = self._removed(batch, self._encoded(batch.column("value")))
            yield pa.record_batch([key, value], names=["key", "value"])

    def _removed(self, batch: pa.RecordBatch, value: pa.Array) -> pa.Array:
        import pyarrow as pa
        import pyarrow.compute as pc

        if self._shape.remove_column is None:
            return value
        gone = batch.column(self._shape.remove_column).fill_null(False)
        if pc.any(pc.and_(value.is_null(), pc.invert(gone))).as_py():
            raise SinkError(
                f"A row has no value, and its column '{self._shape.remove_column}' does not say "
                "that its key is to be removed. Filter such rows, or set the column."
            )
        return pc.if_else(gone, pa.scalar(None, value.type), value)

    def _encoded(self, column: pa.Array) -> pa.Array:
        if not self._encodes:
            return column
        encode = texts.encoder(column.type)
        try:
            return encode(column)
        except (ValueError, TypeError, OverflowError) as error:
            raise SinkError(
                f"A row's value cannot be written as JSON: {cut(error, 300)}."
            ) from None
