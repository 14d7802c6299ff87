"""A column of JSON texts as a typed column, by Arrow's own JSON reader: no Python object a value.

It is taken where it gives what `JsonDecoder` would. It reads a file of objects one behind the
other, so each text must be one object by itself; it says no more than that something is wrong, so
the texts are halved until what is wrong is found or there is too much of it; and what it takes that
is no JSON (NaN, broken UTF-8 in fields nobody asked for) is looked for before.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Rows = npt.NDArray[np.int64]

# What Arrow takes for a number and JSON does not, and a zero that keeps its sign in Arrow only.
_NO_NUMBER = re.compile(rb"[:,\[]\s*(?:-?(?:NaN|Inf)|-0\s*[,\]}])")
_FAILURES_MAX = 8
_BRACKETS_MAX = 500  # in one text: Python gives up at some depth, Arrow does not
# Of the texts of times, those that all Pythons and Arrow read alike.
_DATE = r"[12]\d{3}-\d\d-\d\d"
_TIME = _DATE + r"[T ]\d\d:\d\d:\d\d(?:\.\d{1,6})?"
_ZONE = r"(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)"


def decoded(column: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Rows] | None:
    """The (binary) column as `kind`, with nulls where it has them, and the rows that are left to
    `JsonDecoder`, null as well. None if `kind` has what cannot be done here."""
    import numpy as np
    import pyarrow as pa

    from eo_kafka.formats.decoding import merged

    if not pa.types.is_binary(column.type) or not pa.types.is_struct(kind):
        return None
    raw = _raw(kind)
    if raw is None:
        return None
    halves = _Halves(kind, raw)
    rows = np.flatnonzero(np.asarray(column.is_valid()))
    halves.read(rows, column.take(pa.array(rows)))
    nothing = (np.arange(len(column)), pa.nulls(len(column), kind))
    return merged(len(column), [nothing, *halves.found]), np.array(halves.left, np.int64)


def _raw(kind: pa.DataType) -> pa.DataType | None:
    """What Arrow is asked to read, so that a cast gives `kind`; None if there is nothing."""
    import pyarrow as pa

    of = pa.types
    if of.is_struct(kind):
        names = [field.name for field in kind]
        parts = [_raw(field.type) for field in kind]
        if not parts or None in parts or len(set(names)) < len(names):
            return None
        return pa.struct(list(zip(names, parts, strict=True)))
    if of.is_list(kind):
        inner = _raw(kind.value_type)
        return inner and pa.list_(inner)
    if of.is_timestamp(kind) or of.is_date32(kind):
        return pa.string()
    if of.is_float32(kind):
        return pa.float64()  # rounded twice, as struct.pack does
    is_plain = of.is_integer(kind) or of.is_float64(kind)
    return kind if is_plain or of.is_boolean(kind) or of.is_string(kind) else None


class _Halves:
    """Texts that are read together, or in halves."""

    def __init__(self, kind: pa.DataType, raw: pa.DataType) -> None:
        self._kind, self._raw = kind, raw
        self.found: list[tuple[Rows, pa.Array]] = []
        self.left: list[int] = []
        self._failures = 0

    def read(self, rows: Rows, texts: pa.Array) -> None:
        """Find a value for each, or leave it."""
        if not len(rows):
            return
        array = _read(texts, self._kind, self._raw)
        if array is not None:
            self.found.append((rows, array))
            return
        self._failures += 1
        if len(rows) == 1 or self._failures > _FAILURES_MAX:
            self.left += rows.tolist()
            return
        half = len(rows) // 2
        self.read(rows[:half], texts[:half])
        self.read(rows[half:], texts[half:])


def _read(texts: pa.Array, kind: pa.DataType, raw: pa.DataType) -> pa.Array | None:
    """All of them, or None."""
    import pyarrow as pa
    from pyarrow import json

    try:
        texts.cast(pa.string())  # raises if it is not UTF-8
        data = b"\n".join(texts.to_pylist())
        if not _are_objects(texts) or _has_other_numbers(data):
            return None
        table = json.read_json(
            pa.BufferReader(data),
            json.ReadOptions(use_threads=False, block_size=len(data) + 1),
            json.ParseOptions(
                explicit_schema=pa.schema(list(raw)),
                newlines_in_values=data.count(b"\n") >= len(texts),  # which takes twice as long
                unexpected_field_behavior="ignore",
            ),
        )
        # A text ends with } and the next begins with {, so that no object is of two texts, and
        # as many objects as texts are one of each.
        found = pa.concat_arrays(table.to_struct_array().chunks)
        if len(found) != len(texts) or not _are_texts_of(found, kind):
            return None
        typed = found.cast(kind)
        typed.validate(full=True)
        return typed if _is_finite(typed) else None
    except (pa.ArrowException, ValueError):
        return None


def _has_other_numbers(data: bytes) -> bool:
    """Whether there may be what Arrow takes for a number and JSON does not."""
    is_suspect = any(word in data for word in (b"NaN", b"Inf", b"-0"))
    return is_suspect and _NO_NUMBER.search(data) is not None


def _are_objects(texts: pa.Array) -> bool:
    """Whether each begins and ends as an object does, and has not too many others in it."""
    import pyarrow.compute as pc

    if not pc.all(pc.and_(pc.starts_with(texts, b"{"), pc.ends_with(texts, b"}"))).as_py():
        return False
    long = texts.filter(pc.greater(pc.binary_length(texts), _BRACKETS_MAX))
    brackets = pc.add(pc.count_substring(long, b"["), pc.count_substring(long, b"{"))
    return bool((pc.max(brackets).as_py() or 0) <= _BRACKETS_MAX)


def _are_texts_of(array: pa.Array, kind: pa.DataType) -> bool:
    """Whether all texts of times in it are what `_DATE`, `_TIME` and `_ZONE` say."""
    import pyarrow as pa
    import pyarrow.compute as pc

    of = pa.types
    if of.is_struct(kind):
        return all(_are_texts_of(array.field(at), kind[at].type) for at in range(kind.num_fields))
    if of.is_list(kind):
        return _are_texts_of(array.values, kind.value_type)
    if of.is_date32(kind):
        pattern = _DATE
    elif of.is_timestamp(kind):
        pattern = _TIME if kind.tz is None else _TIME + _ZONE
    else:
        return True
    return pc.all(pc.match_substring_regex(array, f"^{pattern}$")).as_py() is not False


def _is_finite(array: pa.Array) -> bool:
    """Whether no number became infinite when it was made a single one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    of, kind = pa.types, array.type
    if of.is_struct(kind):
        return all(_is_finite(array.field(at)) for at in range(kind.num_fields))
    if of.is_list(kind):
        return _is_finite(array.values)
    return not of.is_float32(kind) or pc.all(pc.is_finite(array)).as_py() is not False
