"""Rows from Arrow as COPY's CSV, and as what stands for them in a digest. Executor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.errors import SinkError, cut
from .table import DELETE, UPSERT, TableTarget

if TYPE_CHECKING:
    import pyarrow as pa

KAFKA_COLUMNS = ("key", "value", "headers", "partition")  # of rows that go to a topic, too
_NULL = "\0"  # PostgreSQL's text cannot hold it


def copied(target: TableTarget, batch: pa.RecordBatch, whose: tuple[int, int, int]) -> memoryview:
    """A batch's rows for the staging table. `whose`: partition, attempt, and how many rows of it
    went before. Raises SinkError for a row that has no key, or no operation."""
    import pyarrow as pa
    from pyarrow import csv

    rows = batch.num_rows
    partition, attempt, before = whose
    columns = [_plain(batch.column(name)) for name in target.names]
    columns += [pa.array([partition] * rows, pa.int32()), pa.array([attempt] * rows, pa.int64())]
    if target.keys:
        _check_keys(target, batch)
        columns.append(pa.array(range(before, before + rows), pa.int64()))
    if target.operation is not None:
        columns.append(_gone(target, batch))
    written = pa.BufferOutputStream()
    # Null is an empty field without quotes, and an empty text one with them: COPY's own rule
    how = csv.WriteOptions(include_header=False, quoting_style="all_valid")
    names = [str(number) for number in range(len(columns))]
    csv.write_csv(pa.table(columns, names=names), written, how)
    return memoryview(written.getvalue())


def sent(target: TableTarget, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The columns that go to the topic; without any of them, one column that stands for the row."""
    import pyarrow as pa

    names = [
        name for name in batch.schema.names if name in KAFKA_COLUMNS and name not in target.names
    ]
    if names:
        return batch.select(names)
    return pa.record_batch([_one_value(target, batch)], names=["value"])


def _one_value(target: TableTarget, batch: pa.RecordBatch) -> pa.Array:
    """All that makes a row, in one text: each column's length and text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns: list[Any] = []
    for name in [*target.names, *([target.operation] if target.operation else [])]:
        column = pc.cast(_plain(batch.column(name)), pa.string()).fill_null(_NULL)
        columns += [pc.cast(pc.binary_length(column), pa.string()), column]
    return pc.cast(pc.binary_join_element_wise(*columns, ","), pa.binary())


def _plain(column: pa.Array) -> pa.Array:
    """Such that its text is PostgreSQL's: bytes in hex, times in UTC."""
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
    return column


def _check_keys(target: TableTarget, batch: pa.RecordBatch) -> None:
    empty = [name for name in target.keys if batch.column(name).null_count]
    if empty:
        raise SinkError(
            f"A row's key column '{empty[0]}' (option 'keys') is null, and a row without a key "
            f"could not be found again in {target.place}. Filter such rows."
        )


def _gone(target: TableTarget, batch: pa.RecordBatch) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    assert target.operation is not None
    words = batch.column(target.operation)
    known = pc.is_in(words, value_set=pa.array([UPSERT, DELETE]))
    if batch.num_rows and not pc.all(known).as_py():
        strange = pc.filter(words, pc.invert(known))[0].as_py()
        raise SinkError(
            f"A row's column '{target.operation}' (option 'operationColumn') is "
            f"{cut(repr(strange))}: it must be '{UPSERT}' or '{DELETE}'."
        )
    return pc.equal(words, DELETE)
