"""Holds what a transform gives to the columns and types that are written. On executors.

A type is changed where every value stays what it was: a larger integer, another layout of texts.
What would change a value is refused (`loss.py`, `exact_cast.py`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...core.errors import SinkError
from ...formats import bad_records
from .exact_cast import as_lists, exact_cast
from .loss import loss

if TYPE_CHECKING:
    import pyarrow as pa

BATCH = "pyarrow.RecordBatch"  # in sentences
_INVISIBLE = "Nothing of the batch is visible."
_NAMES = "'schema' of eo_kafka.direct names the types that are written."


def in_shape(batch: pa.RecordBatch, shape: pa.Schema) -> pa.RecordBatch:
    """The batch with the columns of the schema and no other, as the sink drops those it does not
    know. Raises SinkError."""
    import pyarrow as pa

    if not isinstance(batch, pa.RecordBatch):
        raise not_one_of(batch, f"a {BATCH}")
    check_names(batch.schema.names, shape)
    columns = [_cast(batch.column(field.name), field) for field in shape]
    for column, field in zip(_readable(columns, shape), shape, strict=True):
        if where := _null_in(column, field):
            raise SinkError(
                f"The transform's column '{field.name}' has a null in {where}, which is NOT NULL "
                f"in the schema that is written. {_INVISIBLE} Give a value, leave such rows out, "
                "or leave NOT NULL out of 'schema' of eo_kafka.direct."
            )
    return pa.RecordBatch.from_arrays(columns, schema=shape)


def check_names(given: Sequence[str], shape: pa.Schema) -> None:
    """Raises SinkError unless each column that is written is there, once."""
    if missing := [name for name in shape.names if name not in given]:
        raise SinkError(
            f"The transform gave no column {missing}; it gave {list(given)}. {_INVISIBLE} 'schema' "
            "of eo_kafka.direct names the columns that are written."
        )
    if twice := [name for name in shape.names if given.count(name) > 1]:
        raise SinkError(f"The transform gave two columns {twice}. {_INVISIBLE}")


def not_one_of(given: object, wanted: str) -> SinkError:
    """Of something else that a transform gave."""
    return SinkError(
        f"The transform gave a {type(given).__name__} and not {wanted}. {_INVISIBLE} A transform "
        "is a function that takes an iterator of them and yields them one by one."
    )


def cannot_be_written(name: str, found: object, wanted: object, why: object) -> SinkError:
    """Of a column's values."""
    return SinkError(
        f"The transform's column '{name}' is of type {found} and cannot be written as {wanted} "
        f"({why}). {_INVISIBLE} {_NAMES}"
    )


def _readable(columns: list[pa.Array], shape: pa.Schema) -> list[pa.Array]:
    """Without the rows of records that could not be read: they have nulls, and go as they came."""
    place = shape.get_field_index(bad_records.COLUMN)
    if place < 0 or columns[place].null_count == len(columns[place]):
        return columns
    read = columns[place].is_null()
    return [column.filter(read) for column in columns]


def _has_not_null(field: pa.Field) -> bool:
    """Whether it, or what is in it, takes no null. The keys of maps take none anyway."""
    kind = field.type
    inner = range(kind.num_fields)
    return not field.nullable or any(_has_not_null(kind.field(n)) for n in inner)


def _null_in(column: pa.Array, field: pa.Field, path: str = "") -> str | None:
    """Where a field that takes no null has one, as a path; None: nowhere."""
    import pyarrow.types as kinds

    if not _has_not_null(field):
        return None
    path = f"{path}.{field.name}" if path else field.name
    if not field.nullable and column.null_count:
        return path
    kind = column.type
    if kinds.is_map(kind):
        _, items = as_lists(column).flatten().flatten()
        inner = [(items, kind.item_field)]
    elif kinds.is_struct(kind):
        there = column.drop_null() if column.null_count else column
        inner = list(zip(there.flatten(), kind, strict=True))
    elif kinds.is_list(kind):
        inner = [(column.flatten(), kind.value_field)]
    else:
        return None
    return next(filter(None, (_null_in(*pair, path) for pair in inner)), None)


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    """Raises SinkError."""
    import pyarrow as pa

    if why := loss(column.type, field.type):
        raise cannot_be_written(field.name, column.type, field.type, why)
    try:
        return exact_cast(column, field.type)
    except pa.ArrowException as error:
        row = bisect_left(range(len(column)), True, key=lambda n: _fails(column, n + 1, field.type))
        where = "" if _fails(column, 0, field.type) else f"row {row} of a batch, counted from 0: "
        raise cannot_be_written(field.name, column.type, field.type, f"{where}{error}") from None


def _fails(column: pa.Array, rows: int, kind: pa.DataType) -> bool:
    """Whether the first rows cannot be cast."""
    import pyarrow as pa

    try:
        exact_cast(column.slice(0, rows), kind)
    except pa.ArrowException:
        return True
    return False
