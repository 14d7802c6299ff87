"""Changes a column's type where every value stays what it was. On executors.

Arrow's own cast wraps decimals around at 2**128 and crashes at the text `1E-99999999`. It looks
for nulls in what is NOT NULL also below a value that is null as a whole. So columns are taken
apart here, and Arrow is given single values that it changes exactly, or refuses.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING

from ...core.errors import cut
from ...formats.shared.decimals import quantizer
from .loss import is_list, is_text

if TYPE_CHECKING:
    import pyarrow as pa

_YEARS_S = -62_135_596_800, 253_402_300_800  # year 1 to 9999, in seconds since 1970
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def exact_cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The column as a type to which `loss` has no objection. Raises ArrowException. A null in what
    is NOT NULL stays there."""
    import pyarrow as pa

    column = _held(column)
    found, of = column.type, pa.types
    if found == kind:
        return column
    if of.is_struct(found) and of.is_struct(kind):
        parts = dict(zip((one.name for one in found), column.flatten(), strict=True))
        cast = [exact_cast(parts[one.name], one.type) for one in kind]
        return pa.StructArray.from_arrays(cast, fields=list(kind), mask=column.is_null())
    has_entries = of.is_map(found) and (of.is_map(kind) or of.is_list(kind))
    if has_entries or (is_list(found) and of.is_list(kind)):
        return _of_lists(as_lists(column) if has_entries else column, kind)
    return _cast(column, kind)


def _held(column: pa.Array) -> pa.Array:
    """The values, where a type says how they are kept, too."""
    import pyarrow as pa
    import pyarrow.compute as pc

    while True:
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        elif pa.types.is_run_end_encoded(column.type):
            column = pc.run_end_decode(column)
        elif isinstance(column, pa.ExtensionArray):
            column = column.storage
        else:
            return column


def as_lists(column: pa.Array) -> pa.Array:
    """Maps as lists of their entries, for Arrow has more functions for these. Not by a cast, which
    looks for nulls in what is NOT NULL."""
    import pyarrow as pa

    fields = [column.type.key_field.with_name("key"), column.type.item_field.with_name("value")]
    entries = pa.StructArray.from_arrays([column.keys, column.items], fields=fields)
    held = column.buffers()[:2], -1, column.offset, [entries]
    return pa.Array.from_buffers(pa.list_(entries.type), len(column), *held)


def _of_lists(lists: pa.Array, kind: pa.DataType) -> pa.Array:
    """Lists or maps of these values."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    sizes = np.asarray(pc.fill_null(pc.list_value_length(lists), 0)).astype(np.int64)
    ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
    is_null = np.append(np.asarray(lists.is_null()), [False])
    offsets = pa.array(ends, pa.int32(), mask=is_null)
    values = lists.flatten()  # those of the lists that are there, and of no other
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(offsets, exact_cast(values, kind.value_type), type=kind)
    keys, items = values.flatten()
    keys, items = exact_cast(keys, kind.key_type), exact_cast(items, kind.item_type)
    return pa.MapArray.from_arrays(offsets, keys, items, type=kind)


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Of values without parts."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found, of = column.type, pa.types
    if of.is_decimal(kind) and of.is_decimal(found):
        _check_size(column, kind)
    elif of.is_decimal(kind) and is_text(found):
        return _decimals(column.cast(pa.large_string()), kind)
    elif of.is_integer(kind) and is_text(found):
        column = column.cast(pa.large_string())
        if pc.any(pc.match_substring_regex(column, "[xX]")).as_py():  # 0xFFFFFFFF would be -1
            raise pa.ArrowInvalid("a text is no decimal number")
    if of.is_timestamp(found) and is_text(kind):
        _check_years(column)
    made = column.cast(kind)
    if of.is_temporal(found) and is_text(kind) and pc.any(pc.starts_with(made, "<")).as_py():
        raise pa.ArrowInvalid("a year is out of range")  # as Arrow's text says
    return made


def _check_years(moments: pa.Array) -> None:
    """Raises ArrowInvalid for a year that Arrow would write wrong: it counts them in 16 bits."""
    import pyarrow as pa
    import pyarrow.compute as pc

    unit = {"s": 1, "ms": 10**3, "us": 10**6}.get(moments.type.unit)
    if unit is None:  # nanoseconds have no such years
        return
    count = moments.cast(pa.int64())
    before, after = (pa.scalar(year * unit, pa.int64()) for year in _YEARS_S)
    if pc.any(pc.or_(pc.less(count, before), pc.greater_equal(count, after))).as_py():
        raise pa.ArrowInvalid("a year is out of range")


def _check_size(column: pa.Array, kind: pa.DataType) -> None:
    """Raises ArrowInvalid for a decimal with more digits before the point than the type has."""
    import pyarrow as pa
    import pyarrow.compute as pc

    whole, found = kind.precision - kind.scale, column.type
    if found.precision - found.scale <= whole:
        return
    end = Decimal(1).scaleb(whole)
    above = pc.greater_equal(column, pa.scalar(end, found))
    below = pc.less_equal(column, pa.scalar(-end, found))
    if pc.any(pc.or_(above, below)).as_py():
        raise pa.ArrowInvalid(f"a number has more than {whole} digits before the point")


def _decimals(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Raises ArrowInvalid. Arrow reads those without an exponent, and with no more digits than the
    type has; Python the others."""
    import pyarrow as pa
    import pyarrow.compute as pc

    plain = rf"^[+-]?\d{{0,{kind.precision - kind.scale}}}(\.\d{{0,{kind.scale}}})?$"
    if pc.all(pc.match_substring_regex(texts, plain)).as_py() is not False:
        return texts.cast(kind)
    exact = quantizer(kind.precision, kind.scale)
    made = []
    for text in texts.to_pylist():
        try:
            if text is not None and not _NUMBER.fullmatch(text):  # Python takes 1_0 and blanks
                raise ArithmeticError
            made.append(None if text is None else exact(Decimal(text)))
        except ArithmeticError:
            raise pa.ArrowInvalid(f"{cut(repr(text), 100)} is none, or would be rounded") from None
    return pa.array(made, kind)
