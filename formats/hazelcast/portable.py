"""Decodes Hazelcast's Portable values as structs, all values of a layout at once.

A value is `factory i32 | class i32 | version i32 | end i32 | count i32 | a position i32 for each of
its fields`, all from where the entry's bytes begin; and a field is `length of its name i16 | name |
type u8 | content`. So it says by itself what it has, and no class definition is needed. What may be
null has a byte before it that says so (text and arrays: a length of -1). The items of an array of
decimals, times or nested values lie where a list of positions says, those of any other one behind
the other. All numbers are big-endian.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from pyspark.sql import types as t

from ..shared.arrow_types import arrow_type
from ..shared.decoding import merged
from .field_kinds import NUMBERS, Kind, check_fit, scalars
from .places import Damaged, Places, lists, offsets_of, spread

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from .places import Offsets

_YEAR = ">i2"
_SINGLE = (
    *(Kind.NESTED, Kind.INT8, Kind.BOOLEAN, Kind.CHAR, Kind.INT16, Kind.INT32, Kind.INT64),
    *(Kind.FLOAT32, Kind.FLOAT64, Kind.STRING),
)
_LATER = (Kind.DECIMAL, Kind.TIME, Kind.DATE, Kind.TIMESTAMP, Kind.ZONED)
# By type number: a kind, and whether an array of it
_TYPES = {
    **{number: (kind, False) for number, kind in enumerate(_SINGLE)},
    **{number: (kind, True) for number, kind in enumerate(_SINGLE, len(_SINGLE))},
    **{20 + 2 * number: (kind, False) for number, kind in enumerate(_LATER)},
    **{21 + 2 * number: (kind, True) for number, kind in enumerate(_LATER)},
}
_ITEMS = {**NUMBERS, Kind.BOOLEAN: ">u1", Kind.CHAR: ">u2"}
_NONE = -1
_FIELDS_MAX = 10_000


class Field(NamedTuple):
    """One of a layout: the number of its position, and where its content begins after that."""

    position: int
    head: bytes  # length, name and type
    kind: Kind
    is_array: bool


def structs(places: Places, kind: t.StructType, at: str) -> pa.Array:
    """The values whose versions lie at `places`, all there, as structs of `kind`: null where a
    value does not have a field, whatever else it has passed over. Raises Damaged, NotOfSchema."""
    pieces = []
    body = places.moved(8)  # behind version and end
    left = np.arange(len(places))
    while len(left):
        found = _layout(body.of(left[:1]))
        same = _are_of(body.of(left), found)
        rows = left[same]
        pieces.append((rows, _structs(body.of(rows), found, kind, at)))
        left = left[~same]
    if len(pieces) == 1:
        return pieces[0][1]
    return merged(len(places), pieces) if pieces else _empty(kind)


def _layout(body: Places) -> dict[str, Field]:
    """The fields of one value."""
    (count,) = body.counts().tolist()
    if count > _FIELDS_MAX:
        raise Damaged("it has more fields than a class can have")
    fields = {}
    for index in range(count):
        place = _at(body, body.moved(4 + 4 * index))
        length = place.numbers(">u2").astype(np.int64)
        (head,) = place.pieces(2 + length + 1).to_pylist()
        name = head[2:-1].decode("utf-8", "replace")
        if head[-1] not in _TYPES:
            raise Damaged(f"field '{name}' is of a type that Portable does not have ({head[-1]})")
        fields[name] = Field(index, head, *_TYPES[head[-1]])
    if len(fields) < count:
        raise Damaged("two of its fields have the same name")
    return fields


def _are_of(body: Places, fields: dict[str, Field]) -> NDArray[np.bool_]:
    """Which of the values have just these fields, in this order."""
    import pyarrow as pa
    import pyarrow.compute as pc

    same = np.asarray(body.counts() == len(fields))
    for field in fields.values():
        rows = np.flatnonzero(same)
        chosen = body.of(rows)
        head = _at(chosen, chosen.moved(4 + 4 * field.position))
        sizes = np.minimum(len(field.head), np.maximum(head.ends - head.at, 0))
        wanted = pa.scalar(field.head, pa.binary())
        same[rows] = np.asarray(pc.equal(head.pieces(sizes), wanted))
    return same


def _at(body: Places, table: Places) -> Places:
    """What the position at `table` points to."""
    return replace(body, at=body.begins + table.counts())


def _structs(body: Places, fields: dict[str, Field], kind: t.StructType, at: str) -> pa.Array:
    import pyarrow as pa

    columns = []
    for one in kind.fields:
        found = fields.get(one.name)
        if found is None:
            columns.append(pa.nulls(len(body), arrow_type(one.dataType)))
            continue
        where = f"{at}.{one.name}"
        check_fit(found.kind, found.is_array, one.dataType, where)
        place = _at(body, body.moved(4 + 4 * found.position)).moved(len(found.head))
        read = _array if found.is_array else _nullable
        columns.append(read(found.kind, place, one.dataType, where))
    buffers: list[None] = [None]
    return pa.Array.from_buffers(arrow_type(kind), len(body), buffers, children=columns)


def _nullable(kind: Kind, places: Places, wanted: t.DataType, at: str) -> pa.Array:
    if kind is Kind.STRING:
        there = places.counts(none=_NONE) != _NONE
        return spread(scalars(kind, places.of(there), wanted, _YEAR, at), there)
    if kind in _ITEMS:
        return scalars(kind, places, wanted, _YEAR, at)
    there = places.numbers(">u1") == 0
    found = places.of(there).moved(1)
    if isinstance(wanted, t.StructType):
        return spread(structs(found.moved(8), wanted, at), there)  # behind factory and class
    return spread(scalars(kind, found, wanted, _YEAR, at), there)


def _array(kind: Kind, places: Places, wanted: t.DataType, at: str) -> pa.Array:
    counts = places.counts(none=_NONE)
    there = counts != _NONE
    places, counts = places.of(there).moved(4), counts[there]
    if isinstance(wanted, t.BinaryType):
        return spread(places.pieces(counts), there)
    assert isinstance(wanted, t.ArrayType)
    inner, at = wanted.elementType, f"{at}[]"
    if kind is Kind.STRING:
        found = _nullable(kind, _texts(places, counts), inner, at)
    elif kind in _ITEMS:
        size = np.dtype(_ITEMS[kind]).itemsize
        places.need(counts * size)
        found = scalars(kind, places.each(counts, size), inner, _YEAR, at)
    else:
        table = places.moved(8) if kind is Kind.NESTED else places  # factory and class
        table.need(counts * 4)
        items = table.each(counts, 4)
        items = _at(items, items)
        if isinstance(inner, t.StructType):
            found = structs(items, inner, at)
        else:
            found = scalars(kind, items, inner, _YEAR, at)
    return spread(lists(counts, found, arrow_type(wanted)), there)


def _texts(places: Places, counts: Offsets) -> Places:
    """Each text of some arrays of them: where one begins is known from the one before."""
    places.need(counts * 4)
    data = places.data.data
    found = np.empty(offsets_of(counts)[-1], np.int64)
    number = 0
    for begin, end, count in zip(
        places.at.tolist(), places.ends.tolist(), counts.tolist(), strict=True
    ):
        at = begin
        for _ in range(count):
            if at + 4 > end:
                raise Damaged("it ends before what it says it holds")
            found[number] = at
            number += 1
            at += 4 + max(struct.unpack_from(">i", data, at)[0], 0)
    return replace(places.each(counts), at=found)


def _empty(kind: t.StructType) -> pa.Array:
    import pyarrow as pa

    return pa.array([], arrow_type(kind))
