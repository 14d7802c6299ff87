"""Turns whole answers of serialized values from members into Arrow columns.

A value ("heap data") is `hash i32 | type i32 | payload`, all big-endian. Text and JSON have the
payload `length i32 | UTF-8`. An event of a journal is an IdentifiedDataSerializable of factory -4
and class 132: `hash | -2 | 1 | -4 | 132 | kind i32`, then key, new and old value, each
`length i32 (-1: null) | heap data`, and, since member 5.7, a byte: "events before this are lost".
"""

from __future__ import annotations

import datetime
import decimal
import hashlib
import json
import struct
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...clients.hazelcast.internals import BYTES, JSON, TEXT
from ...core.errors import SourceError

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

KINDS = {1: "ADDED", 2: "REMOVED", 4: "UPDATED", 8: "EVICTED", 512: "LOADED"}
_HEAD = struct.Struct(">iiBii")  # hash, -2, identified, factory, class
_EVENT = (-2, 1, -4, 132)
_HEAD_BYTES = _HEAD.size
_INT, _LONG = -7, -8
_NULL = 0
# Of Java's LocalTime, LocalDateTime and OffsetDateTime: where their nanoseconds are
_NANOSECONDS_AT = {-52: 11, -53: 17, -54: 17}
_CONTENT = 12  # where text and byte arrays begin: after hash, type and length

ToObject = Callable[[bytes], Any]


class Values(NamedTuple):
    """Pieces of `data`, in the order in which they lie there; where `null`, there is none."""

    data: bytes
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    null: NDArray[np.bool_]

    def types(self) -> NDArray[np.int32]:
        """The type of each; 0 for a null. Raises SourceError for what is too short to have one."""
        found = np.zeros(len(self.starts), np.int32)
        there = ~self.null
        self.need(8)
        found[there] = _ints(self.data)[self.starts[there] + 4]
        return found

    def need(self, least: int) -> None:
        """Raise SourceError unless each is of so many bytes: beyond them lies something else."""
        if bool(np.any((self.ends - self.starts < least) & ~self.null)):
            raise SourceError(_UNKNOWN_VALUE)

    def piece(self, row: int) -> bytes | None:
        """One of them, whole."""
        return None if self.null[row] else self.data[self.starts[row] : self.ends[row]]


class Events(NamedTuple):
    """Events of journals, in columns."""

    kinds: pa.Array
    keys: Values
    values: Values
    old_values: Values


def event_digest(item: bytes) -> str:
    """Tells one event of a journal from any other in its place: of its kind, key and values, but
    not of the mark that events before it are lost, which depends on who reads."""
    end = _HEAD_BYTES + 4
    for _ in range(3):
        (length,) = struct.unpack_from(">i", item, end)
        end += 4 + max(length, 0)
    return hashlib.blake2b(item[_HEAD_BYTES:end], digest_size=6).hexdigest()


def events(items: Sequence[bytes]) -> Events:
    """Take events apart. Raises SourceError for what is not laid out as one."""
    import pyarrow as pa

    data, starts, ends = _joined(items)
    try:
        ints = _ints(data)
        head = (ints[starts + 4], _bytes(data)[starts + 8], ints[starts + 9], ints[starts + 13])
        if any(bool(np.any(found != wanted)) for found, wanted in zip(head, _EVENT, strict=True)):
            raise SourceError(_UNKNOWN_LAYOUT)
        kinds = ints[starts + _HEAD_BYTES]
        fields, at = [], starts + _HEAD_BYTES + 4
        for _ in range(3):
            lengths = ints[at].astype(np.int64)
            begin = at + 4
            at = begin + np.maximum(lengths, 0)
            fields.append(Values(data, begin, at, lengths < 0))
    except IndexError:
        raise SourceError(_UNKNOWN_LAYOUT) from None
    if (at > ends).any():
        raise SourceError(_UNKNOWN_LAYOUT)
    names = pa.array(list(KINDS.values()))
    index = np.full(len(kinds), -1, np.int32)
    for position, number in enumerate(KINDS):
        index[kinds == number] = position
    if (index < 0).any():
        raise SourceError(_UNKNOWN_LAYOUT)
    return Events(names.take(pa.array(index)), *fields)


def entries(items: Sequence[bytes]) -> tuple[Values, Values]:
    """Keys and values, which come in turn."""
    data, starts, ends = _joined(items)
    null = np.zeros(len(items) // 2, np.bool_)
    return (
        Values(data, starts[0::2], ends[0::2], null),
        Values(data, starts[1::2], ends[1::2], null),
    )


def as_text(values: Values, to_object: ToObject) -> pa.Array:
    """Text and JSON as they are, anything else in its plain form. Raises SourceError for a value
    that has none."""
    import pyarrow as pa

    types = values.types()
    kinds = _kinds(types)
    if kinds <= {TEXT, JSON}:
        try:
            return _pieces(values, _CONTENT).cast(pa.string())  # looks that it is UTF-8
        except pa.ArrowInvalid as error:
            raise SourceError(f"A text is not UTF-8 ({error}); read it as 'data'.") from None
    if kinds in ({_LONG}, {_INT}):
        return _numbers(values, 8 if kinds == {_LONG} else 4).cast(pa.string())
    pieces = (values.piece(row) for row in range(len(types)))
    return pa.array(
        [None if piece is None else _plain(piece, to_object) for piece in pieces], pa.string()
    )


def as_bytes(values: Values) -> pa.Array:
    """The content of byte arrays, and of text. Raises SourceError for any other type."""
    strange = sorted(_kinds(values.types()) - {BYTES, TEXT, JSON})
    if strange:
        raise SourceError(
            f"A value is neither a byte array nor text but of Hazelcast's type {strange[0]}: read "
            "it as 'text', or as 'data', which is any value as it was serialized."
        )
    return _pieces(values, _CONTENT)


def as_data(values: Values) -> pa.Array:
    """Values as they were serialized, whatever they are."""
    return _pieces(values, 0)


def _kinds(types: NDArray[np.int32]) -> set[int]:
    """The different types, without null's."""
    usual = {kind for kind in (TEXT, JSON) if (types == kind).any()}
    rest = types[(types != TEXT) & (types != JSON) & (types != _NULL)]
    return usual | {int(kind) for kind in np.unique(rest)}


def _joined(items: Sequence[bytes]) -> tuple[bytes, NDArray[np.int64], NDArray[np.int64]]:
    lengths = np.fromiter(map(len, items), np.int64, len(items))
    ends = np.cumsum(lengths)
    return b"".join(items), ends - lengths, ends


def _ints(data: bytes) -> NDArray[np.int32]:
    """The big-endian integer at each offset of `data`."""
    return np.ndarray((max(len(data) - 3, 0),), ">i4", data, 0, (1,))


def _bytes(data: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8)


def _pieces(values: Values, head: int) -> pa.Array:
    """The values without their first `head` bytes, as binary.

    Taken in one go: an array whose elements are, in turn, the pieces and what lies between them,
    and of that every other one.
    """
    import pyarrow as pa

    values.need(head)
    if head == _CONTENT:
        there = ~values.null
        starts, ends = values.starts[there], values.ends[there]
        if bool(np.any(_ints(values.data)[starts + 8] != ends - starts - head)):
            raise SourceError(_UNKNOWN_VALUE)
    count = len(values.starts)
    large = len(values.data) >= 2**31
    offsets = np.empty(2 * count + 1, np.int64 if large else np.int32)
    offsets[0:-1:2] = np.where(values.null, values.ends, values.starts + head)
    offsets[1:-1:2] = values.ends
    offsets[-1] = values.ends[-1] if count else 0
    kind = pa.large_binary() if large else pa.binary()
    both = pa.Array.from_buffers(
        kind, max(2 * count, 0), [None, pa.py_buffer(offsets), pa.py_buffer(values.data)]
    )
    chosen = pa.array(np.arange(0, 2 * count, 2), pa.int64(), mask=values.null)
    return both.take(chosen).cast(pa.binary())


def _numbers(values: Values, size: int) -> pa.Array:
    import pyarrow as pa

    values.need(8 + size)
    shape = (max(len(values.data) - size + 1, 0),)
    every = np.ndarray(shape, f">i{size}", values.data, 0, (1,))
    found = np.zeros(len(values.starts), np.int64)
    there = ~values.null
    found[there] = every[values.starts[there] + 8]
    return pa.array(found, mask=values.null)


def _plain(piece: bytes, to_object: ToObject) -> str | None:
    """A value of any other type as text."""
    kind = struct.unpack_from(">i", piece, 4)[0] if len(piece) >= 8 else _NULL
    try:
        value = to_object(piece)
    except Exception as error:  # whatever the client raises that has no serializer for it
        raise SourceError(
            f"A value of Hazelcast's type {kind} cannot be read as text "
            f"({type(error).__name__}: {error}). {_WAYS_OUT.get(kind, '')}Read it as 'data', its "
            "serialized form."
        ) from None
    if kind in _NANOSECONDS_AT:
        return _exact_time(value, struct.unpack_from(">i", piece, _NANOSECONDS_AT[kind])[0])
    return plain_text(value, kind)


def _exact_time(value: datetime.time | datetime.datetime, nanoseconds: int) -> str:
    """Of Java's times the client reads the microseconds."""
    if not nanoseconds % 1000:
        return value.isoformat()
    text = value.isoformat(timespec="microseconds")
    end = text.index(".") + 7
    return f"{text[:end]}{nanoseconds % 1000:03}{text[end:]}"


def plain_text(value: Any, kind: int) -> str | None:
    """The plain text of a value; lists as JSON. Raises SourceError where there is none."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | decimal.Decimal | uuid.UUID):
        return str(value)
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if hasattr(value, "to_string"):  # HazelcastJsonValue
        return str(value.to_string())
    if isinstance(value, list | tuple):
        try:
            return json.dumps(_listed(value, kind), allow_nan=False)
        except ValueError:
            raise SourceError(
                "A list holds a number that JSON has no form for, NaN or infinity: read it as "
                "'data', its serialized form."
            ) from None
    raise SourceError(
        f"A value of Hazelcast's type {kind} ({type(value).__name__}) has no plain text: read it "
        "as 'bytes' if it is a byte array, or as 'data', its serialized form."
    )


def _listed(value: Any, kind: int) -> Any:
    """What is in a list, as JSON takes it."""
    if isinstance(value, list | tuple):
        return [_listed(one, kind) for one in value]
    if isinstance(value, datetime.time | datetime.datetime):
        raise SourceError(
            "Hazelcast's client cuts times in lists to microseconds, so what a list holds is not "
            "known: read it as 'data', its serialized form."
        )
    is_json = value is None or isinstance(value, bool | int | float)
    return value if is_json else plain_text(value, kind)


# By Hazelcast's type: that of Portable, and of Compact
_WAYS_OUT = {
    kind: f"Read it as columns, with 'value.format' '{name}' and 'value.schema' (for a key "
    "'key.format' and 'key.schema'). Or: "
    for kind, name in ((-1, "portable"), (-55, "compact"))
}
_UNKNOWN_VALUE = "A value is not laid out as Hazelcast's serialization does it. It was not used."
_UNKNOWN_LAYOUT = (
    "An event of the journal is not laid out as members from 5.5 to 5.7 do it. Nothing of it was "
    "taken for data: a newer member needs a newer eo-kafka."
)
