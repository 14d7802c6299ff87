"""Decodes a column of JSON texts at once: pyarrow's JSON reader, held to `JsonDecoder`'s rules.

What it reads is what `JsonDecoder` gives (tests/formats/test_json_columns.py). What it refuses, or
reads by rules of its own, is looked for in ever smaller pieces of the column, and the few rows
around it are left to `JsonDecoder`. Runs on executors.
"""

from __future__ import annotations

import re
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from ..shared.decoding import Rows

_SPLIT = 8  # a piece with something to refuse is cut into so many
_LEFT_ROWS = 512  # and left, once it is as small as this: a call costs as much as 100 rows
_BYTES_MAX = 2**30  # of one piece; the reader counts in 32 bits

# The reader takes lines of objects, and passes over members that it does not know. A text stands
# in it as `{"r":[[[[[text]]]]]}`. Two values in a text, or none, make a list of a length that is
# not 1; so does closing some of the brackets and opening them again. Only a text that closes all
# five could pass as more members or more lines. Where no text has a bracket that closes, one is
# enough, and each list takes the reader time.
_DEPTH = 5
_CLOSES = r"\]"
_CLOSES_ALL = r"\s*".join([_CLOSES] * _DEPTH)
# What the reader takes for numbers, and JSON has not. The words alone are found six times as fast.
_WORDS, _NO_NUMBER = ("NaN", "Inf"), r"(^|[\s:,\[-])(NaN|Inf(inity)?)\s*([,\]}]|$)"

# Numbers that Python refuses, wherever they stand, and how deep values may be in each other for
# Python to read them whatever its stack holds already.
_DIGITS_MAX, _EXPONENT, _OPENINGS_MAX = 1000, r"[eE][+-]?\d{18}", 200

_DATE = r"\d{4}-\d\d-\d\d"
_TIME = rf"^{_DATE}[ T]([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?"
_LOCAL, _WITH_ZONE = rf"{_TIME}$", rf"{_TIME}(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$"
_BELOW_MICROS = r"(\.\d{6})\d+"
_YEARS = range(2, 9999)  # those that Python's datetime has, in every time zone


class _Left(Exception):
    """There is something in a piece that `JsonDecoder` is to read."""


def decoded(column: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Rows] | None:
    """The (binary) column as `kind`, with nulls where it has them, and the rows that are left to
    `JsonDecoder`, null as well. None if it cannot be done here."""
    import numpy as np
    import pyarrow as pa

    wire = _wire_type(kind)
    if wire is None or not pa.types.is_binary(column.type):
        return None
    pieces: list[pa.Array] = []
    left: list[npt.NDArray[np.int64]] = []
    todo = [(0, len(column))]
    while todo:
        first, rows = todo.pop()
        try:
            pieces.append(_read(column.slice(first, rows), wire, kind))
        except (pa.ArrowInvalid, _Left):
            if rows <= _LEFT_ROWS:
                pieces.append(pa.nulls(rows, kind))
                left.append(np.arange(first, first + rows))
            else:
                size = -(-rows // _SPLIT)
                cuts = range(first, first + rows, size)
                todo += [(cut, min(size, first + rows - cut)) for cut in reversed(cuts)]
    array = pa.concat_arrays(pieces) if len(pieces) != 1 else pieces[0]
    rest = np.concatenate([np.empty(0, np.int64), *left])
    return array, rest[np.asarray(column.is_valid()).take(rest)]


def _read(values: pa.Array, wire: pa.DataType, kind: pa.DataType) -> pa.Array:
    """A piece. Raises ArrowInvalid and _Left."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import json

    if not len(values):
        return pa.nulls(0, kind)
    if values.nbytes > _BYTES_MAX:
        raise _Left
    texts = pc.fill_null(values.cast(pa.string()), "null")
    depth = _DEPTH if _has(texts, _CLOSES) else 1
    head, tail = '{"r":' + "[" * depth, "]" * depth + "}\n"
    data = pc.binary_join_element_wise(head, texts, tail, "").buffers()[2]
    whole = _one_text(data)  # is searched in less time than its parts
    if any(_has(whole, word) for word in _WORDS) and _has(whole, _NO_NUMBER):
        raise _Left
    if (depth > 1 and _has(texts, _CLOSES_ALL)) or _has(whole, _EXPONENT):
        raise _Left
    if _is_long(texts) or _is_deep(texts):
        raise _Left
    schema = pa.schema([("r", _in_lists(wire, depth))])
    table = json.read_json(
        pa.BufferReader(data),
        json.ReadOptions(use_threads=False, block_size=data.size + 1),
        json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )
    found = _out_of_lists(table.column("r").combine_chunks(), len(values), depth)
    return _converted(found, kind)


def _has(texts: pa.Array, pattern: str) -> bool:
    import pyarrow.compute as pc

    return bool(pc.any(pc.match_substring_regex(texts, pattern)).as_py())


def _one_text(data: pa.Buffer) -> pa.Array:
    import numpy as np
    import pyarrow as pa

    offsets = pa.py_buffer(np.array([0, data.size], np.int32))
    return pa.Array.from_buffers(pa.string(), 1, [None, offsets, data])


def _longer(texts: pa.Array, size: int) -> pa.Array:
    import pyarrow.compute as pc

    return texts.filter(pc.greater(pc.binary_length(texts), size))


def _is_long(texts: pa.Array) -> bool:
    """Whether there is a number of more digits than Python reads."""
    return _has(_longer(texts, _DIGITS_MAX - 1), rf"\d{{{_DIGITS_MAX}}}")


def _is_deep(texts: pa.Array) -> bool:
    """Whether values are deeper in each other than Python may read; the reader has no limit."""
    import pyarrow.compute as pc

    texts = _longer(texts, _OPENINGS_MAX)
    openings = pc.add(pc.count_substring(texts, "["), pc.count_substring(texts, "{"))
    many = texts.filter(pc.greater(openings, _OPENINGS_MAX)).to_pylist()
    return any(_depth(text) > _OPENINGS_MAX for text in many)


def _depth(text: str) -> int:
    """Of a text that is JSON."""
    brackets = re.findall(r"[][{}]", re.sub(r'"(?:[^"\\]|\\.)*"', "", text))
    return max(accumulate(1 if one in "[{" else -1 for one in brackets), default=0)


def _in_lists(kind: pa.DataType, depth: int) -> pa.DataType:
    import pyarrow as pa

    for _ in range(depth):
        kind = pa.list_(kind)
    return kind


def _out_of_lists(array: pa.Array, rows: int, depth: int) -> pa.Array:
    """Raises _Left unless each text is one value."""
    import numpy as np

    for _ in range(depth):
        if len(array) != rows or (np.asarray(array.value_lengths()) != 1).any():
            raise _Left
        array = array.flatten()
    if len(array) != rows:
        raise _Left
    return array


def _wire_type(kind: pa.DataType) -> pa.DataType | None:
    """What is read for a type: times as text, for they are converted more strictly here. None if
    there is a type in it that the reader does not read from what Spark's JSON has for it, or a
    decimal: pyarrow's own conversion crashes at 1e-99999999, and overflows without a word."""
    import pyarrow as pa

    of = pa.types
    plain = (of.is_float64, of.is_boolean, of.is_string, of.is_signed_integer)
    found: pa.DataType | None = kind if any(one(kind) for one in plain) else None
    if of.is_struct(kind):
        fields = {one.name: _wire_type(one.type) for one in kind}
        if len(fields) == kind.num_fields and None not in fields.values():
            found = pa.struct(list(fields.items()))
    elif of.is_list(kind):
        inner = _wire_type(kind.value_type)
        found = None if inner is None else pa.list_(inner)
    elif of.is_float32(kind):
        found = pa.float64()
    elif of.is_date32(kind) or (of.is_timestamp(kind) and kind.unit == "us"):
        found = pa.string()
    return found


def _converted(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """From what was read to the type itself. Raises ArrowInvalid and _Left."""
    import pyarrow as pa

    of = pa.types
    if of.is_struct(kind):
        parts = [
            _converted(part, one.type) for part, one in zip(array.flatten(), kind, strict=True)
        ]
        # a part is null where the whole is
        if any(
            not one.nullable and part.null_count > array.null_count
            for part, one in zip(parts, kind, strict=True)
        ):
            raise _Left
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=array.is_null())
    if of.is_list(kind):
        items = _converted(array.values, kind.value_type)
        if items.null_count and not kind.value_field.nullable:
            raise _Left
        return pa.ListArray.from_arrays(array.offsets, items, type=kind, mask=array.is_null())
    if of.is_floating(kind):
        return _floats(array, kind)
    if of.is_date32(kind):
        return _in_range(_only(array, rf"^{_DATE}$").cast(kind))
    if of.is_timestamp(kind):
        return _in_range(_times(array, kind))
    return array


def _floats(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Not what is too large, and no zero with a sign: "-0" has none in Python, which has an integer
    there, but "-0.0" has."""
    import numpy as np

    found = array.cast(kind, safe=False)
    numbers = np.asarray(found.fill_null(0))
    if not np.isfinite(numbers).all() or (np.signbit(numbers) & (numbers == 0)).any():
        raise _Left
    return found


def _times(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """In microseconds; what is below them is cut off. A time without a zone is UTC's."""
    import pyarrow as pa
    import pyarrow.compute as pc

    array = pc.replace_substring_regex(array, _BELOW_MICROS, r"\1")
    if kind.tz is None:
        return _only(array, _LOCAL).cast(kind)
    zoned = pc.match_substring_regex(array, _WITH_ZONE)
    nothing = pa.scalar(None, pa.string())
    with_zone = pc.if_else(zoned, array, nothing).cast(kind)
    local = _only(pc.if_else(zoned, nothing, array), _LOCAL)
    return pc.coalesce(with_zone, local.cast(pa.timestamp("us")).cast(kind))


def _only(array: pa.Array, pattern: str) -> pa.Array:
    """Raises _Left for another text."""
    import pyarrow.compute as pc

    if pc.all(pc.match_substring_regex(array, pattern)).as_py() is False:
        raise _Left
    return array


def _in_range(times: pa.Array) -> pa.Array:
    """Raises _Left for a time in years that Python's has not."""
    import pyarrow.compute as pc

    years = pc.min_max(pc.year(times))
    if years["min"].is_valid and not (
        years["min"].as_py() in _YEARS and years["max"].as_py() in _YEARS
    ):
        raise _Left
    return times
