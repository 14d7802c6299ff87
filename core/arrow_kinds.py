"""Changes the leaves of Arrow types. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def with_leaves(kind: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """The type with what `leaf` makes of each type in it that is no struct, map or list."""
    import pyarrow as pa

    def of_field(one: pa.Field) -> pa.Field:
        return one.with_type(with_leaves(one.type, leaf))

    of = pa.types
    if of.is_struct(kind):
        return pa.struct([of_field(one) for one in kind])
    if of.is_map(kind):
        return pa.map_(of_field(kind.key_field), of_field(kind.item_field), kind.keys_sorted)
    for is_list, made in ((of.is_list, pa.list_), (of.is_large_list, pa.large_list)):
        if is_list(kind):
            return made(of_field(kind.value_field))
    return leaf(kind)
