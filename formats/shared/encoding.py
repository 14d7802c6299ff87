"""Encodes columns to bytes: value by value where no whole column can be."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from ...core.arrow_kinds import with_leaves

if TYPE_CHECKING:
    import pyarrow as pa

# A column as bytes, with nulls where it has them
Encode: TypeAlias = "Callable[[pa.Array], pa.Array]"


def one_by_one(column: pa.Array, write: Callable[[Any], Any], kind: pa.DataType) -> pa.Array:
    """What `write` makes of each value that is not null, as a column of `kind`. Raises what `write`
    raises."""
    import pyarrow as pa

    in_utc = with_leaves(column.type, _in_utc)
    if in_utc != column.type:  # in the session's zone some of Python's years have no room
        column = column.view(in_utc)
    return pa.array([None if value is None else write(value) for value in column.to_pylist()], kind)


def _in_utc(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    has_zone = pa.types.is_timestamp(kind) and kind.tz is not None
    return pa.timestamp(kind.unit, "UTC") if has_zone else kind
