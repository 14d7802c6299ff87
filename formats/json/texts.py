"""Writes a column of values as JSON texts at once: byte for byte what `writer` makes of each.

Texts of whole columns are put together by Arrow's own functions. A column of a type that has none
here, and single values that Arrow would write in other words, are left to `writer`
(tests/formats/test_json_texts.py). Runs on executors.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..shared.encoding import Encode, one_by_one
from .writer import check_names, value_writer

if TYPE_CHECKING:
    import pyarrow as pa

_ESCAPED = r'["\\\x00-\x1f]'
# Numbers between these Arrow writes as Python does, but for the ".0" of whole ones.
_SMALLEST, _LARGEST = 1e-4, 1e10


def encoder(kind: pa.DataType) -> Encode:
    """What turns a column of an Arrow type into JSON, in bytes. Raises OptionsError where JSON has
    nothing."""
    import pyarrow as pa

    texts = _texts(kind)
    return lambda column: texts(column).cast(pa.binary())


def _texts(kind: pa.DataType) -> Encode:
    import pyarrow as pa

    of = pa.types
    if of.is_struct(kind) and kind.num_fields:
        return _struct(kind)
    write = value_writer(kind)  # refuses what JSON has not
    if of.is_map(kind):
        return _map(kind)
    if of.is_list(kind) or of.is_large_list(kind):
        return _list(kind)
    for fits, texts in (
        (of.is_integer(kind) or of.is_boolean(kind), _cast),
        (of.is_floating(kind) and not of.is_float16(kind), _floats),
        (of.is_string(kind), _strings),
        (of.is_date32(kind), _dates),
        (of.is_timestamp(kind) and kind.unit == "us", _times),
    ):
        if fits:
            return lambda column: texts(column, write)
    return lambda column: one_by_one(column, write, pa.string())


def _cast(column: pa.Array, _: Callable[[Any], str]) -> pa.Array:
    import pyarrow as pa

    return column.cast(pa.string())


def _except(
    column: pa.Array, texts: pa.Array, is_fit: pa.Array, write: Callable[[Any], str]
) -> Any:
    """`texts`, and where it is not fit what `write` makes of the value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    unfit = pc.invert(pc.fill_null(is_fit, True))
    if not pc.any(unfit).as_py():
        return texts
    return pc.replace_with_mask(texts, unfit, one_by_one(column.filter(unfit), write, pa.string()))


def _strings(column: pa.Array, write: Callable[[Any], str]) -> pa.Array:
    import pyarrow.compute as pc

    column.validate(full=True)  # text of Spark's or a transform's need not be UTF-8, and JSON is
    is_plain = pc.invert(pc.match_substring_regex(column, _ESCAPED))
    return _except(column, pc.binary_join_element_wise('"', column, '"', ""), is_plain, write)


def _floats(column: pa.Array, write: Callable[[Any], str]) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    # with the digits that 32 bits need, if they are no more
    texts = column.cast(pa.string())
    is_whole = pc.equal(pc.trunc(column), column)
    texts = pc.if_else(is_whole, pc.binary_join_element_wise(texts, ".0", ""), texts)
    size = pc.abs(column)
    is_usual = pc.and_(pc.greater_equal(size, _SMALLEST), pc.less(size, _LARGEST))
    return _except(column, texts, pc.or_(is_usual, pc.equal(size, 0)), write)


def _dates(column: pa.Array, write: Callable[[Any], str]) -> pa.Array:
    import pyarrow as pa

    return _in_quotes(column, column.cast(pa.string()), write)


def _times(column: pa.Array, write: Callable[[Any], str]) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.type.tz is not None:
        column = column.cast(pa.timestamp("us", "UTC"))
    # 2026-11-25 01:02:03.456000Z
    texts = pc.binary_replace_slice(column.cast(pa.string()), 10, 11, "T")
    milliseconds = pc.binary_replace_slice(texts, 23, 26, "")
    texts = pc.if_else(pc.equal(pc.microsecond(column), 0), milliseconds, texts)
    return _in_quotes(column, texts, write)


def _in_quotes(times: pa.Array, texts: pa.Array, write: Callable[[Any], str]) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    # Not by pc.year: it counts in 16 bits, round and round
    first, end = (pa.array([datetime(year, 1, 1)]).cast(times.type)[0] for year in (1000, 9999))
    is_usual = pc.and_(pc.greater_equal(times, first), pc.less(times, end))
    return _except(times, pc.binary_join_element_wise('"', texts, '"', ""), is_usual, write)


def _struct(kind: pa.DataType) -> Encode:
    import pyarrow as pa
    import pyarrow.compute as pc

    check_names(kind)
    name = value_writer(pa.string())
    inner = [(f"{name(field.name)}:", _texts(field.type)) for field in kind]

    def write(column: pa.Array) -> pa.Array:
        parts: list[Any] = []
        for (head, texts), part in zip(inner, column.flatten(), strict=True):
            found = pc.binary_join_element_wise(f",{head}", texts(part), "")
            parts.append(pc.fill_null(found, "") if found.null_count else found)
        members = pc.binary_replace_slice(pc.binary_join_element_wise(*parts, ""), 0, 1, "{")
        return _where_valid(column, pc.binary_join_element_wise(members, "}", ""))

    return write


def _list(kind: pa.DataType) -> Encode:
    texts = _texts(kind.value_type)
    return lambda column: _joined(
        column, "[", "]", lambda part: _or_null(texts(part(column.values)))
    )


def _map(kind: pa.DataType) -> Encode:
    import pyarrow.compute as pc

    names, texts = _texts(kind.key_type), _texts(kind.item_type)

    def write(column: pa.Array) -> pa.Array:
        def entries(part: Callable[[pa.Array], pa.Array]) -> pa.Array:
            values = _or_null(texts(part(column.items)))
            return pc.binary_join_element_wise(names(part(column.keys)), values, ":")

        return _joined(column, "{", "}", entries)

    return write


def _joined(
    column: pa.Array,
    begin: str,
    end: str,
    entries: Callable[[Callable[[pa.Array], pa.Array]], pa.Array],
) -> pa.Array:
    """Lists or maps of what `entries` makes of those values that are the column's."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if not len(column):
        return pa.array([], pa.string())
    offsets = np.asarray(column.offsets)
    first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    texts = entries(lambda values: values.slice(first, count))
    lists = pa.ListArray.from_arrays(pa.array(offsets - first, pa.int32()), texts)
    whole = pc.binary_join_element_wise(begin, pc.binary_join(lists, ","), end, "")
    return _where_valid(column, whole)


def _or_null(texts: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    return pc.fill_null(texts, "null") if texts.null_count else texts


def _where_valid(column: pa.Array, texts: pa.Array) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    nothing = pa.scalar(None, pa.string())
    return pc.if_else(column.is_valid(), texts, nothing) if column.null_count else texts
