"""Encodes columns to bytes: value by value where no whole column can be."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa

# A column as bytes, with nulls where it has them
Encode: TypeAlias = "Callable[[pa.Array], pa.Array]"


def one_by_one(column: pa.Array, write: Callable[[Any], Any], kind: pa.DataType) -> pa.Array:
    """What `write` makes of each value that is not null, as a column of `kind`. Raises what `write`
    raises."""
    import pyarrow as pa

    return pa.array([None if value is None else write(value) for value in column.to_pylist()], kind)
