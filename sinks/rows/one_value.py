"""What a topic gets of rows that are staged for another target, and what stands for them in a
digest where no topic gets them. Executor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

KAFKA_COLUMNS = ("key", "value", "headers", "partition")  # of rows that go to a topic, too


def sent(
    batch: pa.RecordBatch, target: Sequence[str], row: Sequence[str] | None = None
) -> pa.RecordBatch:
    """The columns that go to the topic, which are not the `target`'s; without any of them, one
    column that stands for the row, made of the columns `row`, or the target's."""
    import pyarrow as pa

    names = [name for name in batch.schema.names if name in KAFKA_COLUMNS and name not in target]
    if names:
        return batch.select(names)
    columns = [batch.column(name) for name in row or target]
    return pa.record_batch([_one_value(columns)], names=["value"])


def _one_value(columns: Sequence[pa.Array]) -> pa.Array:
    """Of each row one text: each column's length and text; of a null -1."""
    import pyarrow as pa
    import pyarrow.compute as pc

    parts: list[Any] = []
    for one in columns:
        column = pc.cast(plain(one), pa.string())
        length = pc.cast(pc.binary_length(column).fill_null(-1), pa.string())
        parts += [length, column.fill_null("")]
    return pc.cast(pc.binary_join_element_wise(*parts, ","), pa.binary())


def plain(column: pa.Array) -> pa.Array:
    """Such that it can be cast to text: bytes in hex, times in UTC, as PostgreSQL takes both."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        hex_of = [None if one is None else "\\x" + one.hex() for one in column.to_pylist()]
        return pa.array(hex_of, pa.string())
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return column.cast(pa.timestamp(kind.unit, "UTC"))
    if pa.types.is_nested(kind):
        return pa.array([None if one is None else repr(one) for one in column.to_pylist()])
    return column
