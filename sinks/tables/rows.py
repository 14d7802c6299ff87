"""Rows from Arrow as COPY's CSV. Executor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.errors import SinkError, cut
from ..rows.one_value import plain
from .table import DELETE, UPSERT, TableTarget

if TYPE_CHECKING:
    import pyarrow as pa


def copied(
    target: TableTarget, batch: pa.RecordBatch, whose: tuple[int, int, int] | None
) -> memoryview:
    """A batch's rows for the staging table. `whose`: partition, attempt, and how many rows of it
    went before; None for the table itself, which has no such columns. Raises SinkError for a row
    that has no key, or no operation."""
    import pyarrow as pa
    from pyarrow import csv

    rows = batch.num_rows
    columns = [plain(batch.column(name)) for name in target.names]
    if whose is not None:
        partition, attempt, before = whose
        columns += [pa.repeat(pa.scalar(partition, pa.int32()), rows)]
        columns += [pa.repeat(pa.scalar(attempt, pa.int64()), rows)]
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
