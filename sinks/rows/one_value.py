"""What a topic gets of rows that are staged for another target, and what stands in a digest for
what no topic gets. Executor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...core.arrow_kinds import with_leaves

if TYPE_CHECKING:
    import pyarrow as pa

KAFKA_COLUMNS = ("key", "value", "headers", "partition")  # of rows that go to a topic, too


def sent(
    batch: pa.RecordBatch, target: Sequence[str], row: Sequence[str] | None = None
) -> pa.RecordBatch:
    """The columns that go to the topic, which are not the `target`'s; without any of them, one
    column that stands for the row, made of the columns `row`, or the target's."""
    names = [name for name in batch.schema.names if name in KAFKA_COLUMNS and name not in target]
    if names:
        return batch.select(names)
    return one_value(batch, row or target)


def one_value(batch: pa.RecordBatch, row: Sequence[str]) -> pa.RecordBatch:
    """One column that stands for the columns `row`."""
    import pyarrow as pa

    columns = [batch.column(name) for name in row]
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
        values = column.cast(with_leaves(kind, _in_numbers)).to_pylist()
        return pa.array([None if one is None else repr(one) for one in values], pa.string())
    return column


def _in_numbers(kind: pa.DataType) -> pa.DataType:
    """Of a time: Python's own have a zone, and not every year."""
    import pyarrow as pa

    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return pa.int64() if kind.bit_width == 64 else pa.int32()
    return kind
