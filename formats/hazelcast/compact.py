"""Decodes Hazelcast's Compact values as structs, all values of a schema at once.

A value is `schema's id i64 | length of the data i32 | data | positions`. The data begins with the
fields of fixed size, the largest first, then the booleans as bits, then come the others, wherever
the positions say (-1: null), which are of one byte where the data is shorter than 255 bytes, of two
below 65535, else of four. Without such fields there is neither length nor positions. An array whose
items may be null, or have sizes of their own, is laid out in the same way: `length | count | items
| positions`. All numbers are big-endian. A schema has names and kinds, and the order follows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from pyspark.sql import types as t

from ..shared.arrow_types import arrow_type
from ..shared.decoding import merged
from .field_kinds import NUMBERS, Kind, booleans, check_fit, scalars
from .places import Damaged, Places, lists, numbered, offsets_of, spread

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from ...clients.hazelcast.internals import CompactSchema
    from .places import Offsets

    SchemaOf = Callable[[int], CompactSchema]

_YEAR = ">i4"
_KINDS = {
    1: Kind.BOOLEAN,
    3: Kind.INT8,
    7: Kind.INT16,
    9: Kind.INT32,
    11: Kind.INT64,
    13: Kind.FLOAT32,
    15: Kind.FLOAT64,
    17: Kind.STRING,
    19: Kind.DECIMAL,
    21: Kind.TIME,
    23: Kind.DATE,
    25: Kind.TIMESTAMP,
    27: Kind.ZONED,
    29: Kind.NESTED,
}
_NULLABLE = {
    33: Kind.BOOLEAN,
    35: Kind.INT8,
    37: Kind.INT16,
    39: Kind.INT32,
    41: Kind.INT64,
    43: Kind.FLOAT32,
    45: Kind.FLOAT64,
}


class Field(NamedTuple):
    """Where a field is: by `offset`, and `bit`, if it is of fixed size, else by `position`, the
    number of its position."""

    kind: Kind
    is_array: bool
    in_place: bool  # of fixed size; of an array, its items are
    offset: int = -1
    bit: int = 0
    position: int = -1


class Layout(NamedTuple):
    """A schema's fields, and how large the part of fixed size is."""

    fields: dict[str, Field]
    fixed: int
    positions: int


def layout(schema: CompactSchema) -> Layout:
    """Raises Damaged for a kind of field that Compact does not have."""
    # As Java and so the members order names, by UTF-16; Python's client does by code points
    ordered = sorted(schema.fields, key=lambda field: field[0].encode("utf-16-be"))
    fields = {name: _field(name, number) for name, number in ordered}
    numbers = [name for name, one in fields.items() if one.in_place and not one.is_array]
    sizes = {name: _size(fields[name].kind) for name in numbers}
    at = 0
    for name in sorted(numbers, key=lambda name: -sizes[name]):
        fields[name] = fields[name]._replace(offset=at)
        at += sizes[name]
    bits = [name for name in numbers if fields[name].kind is Kind.BOOLEAN]
    for number, name in enumerate(bits):
        fields[name] = fields[name]._replace(offset=at + number // 8, bit=number % 8)
    others = [name for name in fields if name not in sizes]
    for index, name in enumerate(others):
        fields[name] = fields[name]._replace(position=index)
    return Layout(fields, at + (len(bits) + 7) // 8, len(others))


def _size(kind: Kind) -> int:
    return np.dtype(NUMBERS[kind]).itemsize if kind in NUMBERS else 0  # booleans are bits


def _field(name: str, number: int) -> Field:
    is_array = number % 2 == 0  # a kind's array has the next number
    single = number - is_array
    if single in _NULLABLE:
        return Field(_NULLABLE[single], is_array, in_place=False)
    if single not in _KINDS:
        raise Damaged(f"field '{name}' is of a kind that Compact does not have ({number})")
    kind = _KINDS[single]
    return Field(kind, is_array, in_place=kind in NUMBERS or kind is Kind.BOOLEAN)


def structs(places: Places, kind: t.StructType, schema_of: SchemaOf, at: str) -> pa.Array:
    """The values that begin at `places`, all there, as structs of `kind`: null where a schema does
    not have a field, whatever else it has passed over. Raises Damaged, NotOfSchema, and what
    `schema_of` raises."""
    ids = places.numbers(">i8")
    pieces = []
    for number in np.unique(ids).tolist():
        rows = np.flatnonzero(ids == number)
        reader = _Values(places.of(rows).moved(8), layout(schema_of(number)), schema_of)
        pieces.append((rows, reader.structs(kind, at)))
    if len(pieces) == 1:
        return pieces[0][1]
    return merged(len(places), pieces) if pieces else _empty(kind)


class _Values:
    """Values of one schema, from behind its id."""

    def __init__(self, places: Places, found: Layout, schema_of: SchemaOf) -> None:
        self._layout, self._schema_of = found, schema_of
        self._data, self._lengths = places, np.full(len(places), found.fixed)
        if found.positions:
            self._lengths = places.counts()
            self._data = places.moved(4)
        if bool(np.any(self._lengths < found.fixed)):
            raise Damaged("it is shorter than its schema")
        self._data.need(self._lengths)

    def structs(self, kind: t.StructType, at: str) -> pa.Array:
        import pyarrow as pa

        wanted = arrow_type(kind)
        columns = [self._column(one.name, one.dataType, f"{at}.{one.name}") for one in kind.fields]
        buffers: list[None] = [None]
        return pa.Array.from_buffers(wanted, len(self._data), buffers, children=columns)

    def _column(self, name: str, wanted: t.DataType, at: str) -> pa.Array:
        import pyarrow as pa

        field = self._layout.fields.get(name)
        if field is None:
            return pa.nulls(len(self._data), arrow_type(wanted))
        check_fit(field.kind, field.is_array, wanted, at)
        if field.position < 0:
            place = self._data.moved(field.offset)
            if field.kind is Kind.BOOLEAN:
                return booleans(_bits(place, field.bit), wanted)
            return scalars(field.kind, place, wanted, _YEAR, at)
        table = self._data.moved(self._lengths)
        positions = _positions(table, self._lengths, field.position)
        there = positions >= 0
        place = self._data.of(there).moved(positions[there])
        place = place.until((self._data.at + self._lengths)[there])
        read = self._array if field.is_array else self._one
        return spread(read(field, place, wanted, at), there)

    def _one(self, field: Field, places: Places, wanted: t.DataType, at: str) -> pa.Array:
        if isinstance(wanted, t.StructType):
            return structs(places, wanted, self._schema_of, at)
        return scalars(field.kind, places, wanted, _YEAR, at)

    def _array(self, field: Field, places: Places, wanted: t.DataType, at: str) -> pa.Array:
        if not field.in_place:
            return self._positioned(field, places, wanted, at)
        counts = places.counts()
        items = places.moved(4)
        if isinstance(wanted, t.BinaryType):
            return items.pieces(counts)
        assert isinstance(wanted, t.ArrayType)
        if field.kind is Kind.BOOLEAN:
            items.need((counts + 7) // 8)
            order = numbered(counts)
            found = booleans(_bits(items.each(counts).moved(order // 8), order % 8), _of(wanted))
        else:
            size = np.dtype(NUMBERS[field.kind]).itemsize
            items.need(counts * size)
            found = scalars(field.kind, items.each(counts, size), _of(wanted), _YEAR, f"{at}[]")
        return lists(counts, found, arrow_type(wanted))

    def _positioned(self, field: Field, places: Places, wanted: t.DataType, at: str) -> pa.Array:
        import pyarrow as pa

        lengths, counts = places.counts(), places.moved(4).counts()
        data = places.moved(8)
        data.need(lengths)
        table = data.moved(lengths)
        table.need(counts)  # before so many are believed
        rows = np.repeat(np.arange(len(places)), counts)
        positions = _positions(table.of(rows), lengths[rows], numbered(counts))
        there = positions >= 0
        items = data.of(rows[there]).moved(positions[there])
        items = items.until((data.at + lengths)[rows[there]])
        if isinstance(wanted, t.BinaryType):
            found = spread(scalars(field.kind, items, t.ByteType(), _YEAR, f"{at}[]"), there)
            return _joined(counts, found, at)
        assert isinstance(wanted, t.ArrayType)
        found = self._one(field, items, _of(wanted), f"{at}[]")
        assert isinstance(found, pa.Array)
        return lists(counts, spread(found, there), arrow_type(wanted))


def _of(wanted: t.ArrayType) -> t.DataType:
    return wanted.elementType


def _joined(counts: Offsets, found: pa.Array, at: str) -> pa.Array:
    """Bytes out of items that are none of them null."""
    import pyarrow as pa

    from .field_kinds import NotOfSchema

    if found.null_count:
        raise NotOfSchema(f"{at} has items that are null, which no binary has")
    content = pa.py_buffer(np.asarray(found))
    offsets = pa.py_buffer(offsets_of(counts).astype(np.int32))
    return pa.Array.from_buffers(pa.binary(), len(counts), [None, offsets, content])


def _bits(places: Places, bit: Offsets | int) -> NDArray[np.bool_]:
    found = places.numbers(">u1").astype(np.int64)
    return np.asarray((found >> bit) & 1 != 0)


def _positions(table: Places, lengths: Offsets, index: Offsets | int) -> Offsets:
    """What the position numbered `index` of each table is; -1 for null."""
    index = np.broadcast_to(np.asarray(index, np.int64), lengths.shape)
    found = np.full(len(table), -1, np.int64)
    short, long = lengths < 255, lengths >= 65535
    for chosen, code, null in (
        (short, ">u1", 0xFF),
        (~short & ~long, ">u2", 0xFFFF),
        (long, ">i4", -1),
    ):
        if bool(chosen.any()):
            step = index[chosen] * np.dtype(code).itemsize
            raw = table.of(chosen).moved(step).numbers(code).astype(np.int64)
            found[chosen] = np.where(raw == null, -1, raw)
    if bool(np.any((found < -1) | (found > lengths))):
        raise Damaged("a field lies beyond its value")
    return found


def _empty(kind: t.StructType) -> pa.Array:
    import pyarrow as pa

    return pa.array([], arrow_type(kind))
