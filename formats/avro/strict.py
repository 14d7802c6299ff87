"""Holds values to Avro's specification, and to a depth, before fastavro reads them. No I/O.

fastavro takes what is damaged for a good value: an index below 0 is the last of an enum's names or
a union's types, bits beyond the 64th are shifted onto others, any byte is a boolean; and it does
not look at all whether what it passes over is there. It does that by recursion in C, without a
limit: a field that is nested 20,000 deep, which takes a byte a level, would end the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from .fitting import SchemaMismatch
from .program import INT32
from .types import Schema, full_name

# Linux gives 8 MB of stack, in which three times as many fit; a level is a record, or an array's,
# a map's or a union's value.
LEVELS_MAX = 10_000
_BITS, _LAST_SHIFT = 7, 63  # of a number in each byte, and where the 64th bit is


class _Cursor:
    """A place in a value's bytes. All raise EOFError or IndexError where it ends too early."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at, self.end = data, 0, len(data)

    def skip(self, size: int) -> None:
        """So many bytes."""
        self.at += size
        if size < 0 or self.at > self.end:
            raise EOFError("it is cut off, or a length in it is wrong")

    def number(self) -> int:
        """In zigzag. Raises SchemaMismatch for one of more than 64 bits."""
        found = shift = 0
        while (byte := self.data[self.at]) > 127:
            found |= (byte & 127) << shift
            shift += _BITS
            self.at += 1
            if shift > _LAST_SHIFT:
                raise SchemaMismatch("a number in it has more than 64 bits")
        if shift == _LAST_SHIFT and byte > 1:
            raise SchemaMismatch("a number in it has more than 64 bits")
        self.at += 1
        found |= byte << shift
        return (found >> 1) ^ -(found & 1)

    def index(self, count: int, words: str) -> int:
        """Of one of so many."""
        found = self.number()
        if 0 <= found < count:
            return found
        raise SchemaMismatch(f"{words} {found}")


# Goes past a value of one type, or says of which types its parts are, to go on with
_Past: TypeAlias = Callable[[_Cursor], "Iterator[_Past] | None"]


class Strict:
    """Of the values of one schema (`parsed`)."""

    def __init__(self, schema: Schema) -> None:
        self._named: dict[str, _Past] = {}
        self._whole = self._past(schema)

    def check(self, data: bytes) -> None:
        """Raises SchemaMismatch if it is no value, or nested too deep, and EOFError if it ends too
        early. What is left over is not looked at."""
        cursor, levels = _Cursor(data), [iter((self._whole,))]
        try:
            while levels:
                for past in levels[-1]:
                    if (parts := past(cursor)) is not None:
                        levels.append(parts)
                        break
                else:
                    levels.pop()
                if len(levels) > LEVELS_MAX:
                    raise SchemaMismatch(f"it is nested more than {LEVELS_MAX} levels deep")
        except IndexError:
            raise EOFError("it is cut off") from None

    def _past(self, schema: Any) -> _Past:
        if isinstance(schema, list):
            return _union([self._past(branch) for branch in schema])
        kind = schema if isinstance(schema, str) else schema["type"]
        if not isinstance(kind, str):
            return self._past(kind)
        if kind in ("record", "error"):
            return self._record(schema)
        if kind in ("array", "map"):
            item = self._past(schema["values" if kind == "map" else "items"])
            parts = (_sized, item) if kind == "map" else (item,)
            return lambda cursor: _items(cursor, parts)
        if isinstance(schema, dict) and kind in _MADE:
            found = _MADE[kind](schema)
            if "name" in schema:
                self._named[full_name(schema)] = found
            return found
        return _SCALARS.get(kind) or self._named[kind]

    def _record(self, schema: Any) -> _Past:
        parts: list[_Past] = []
        self._named[full_name(schema)] = found = lambda _: iter(parts)
        parts += [self._past(field["type"]) for field in schema["fields"]]
        return found


def _union(branches: list[_Past]) -> _Past:
    return lambda cursor: iter((branches[cursor.index(len(branches), "a union has no type")],))


def _items(cursor: _Cursor, parts: tuple[_Past, ...]) -> Iterator[_Past]:
    """Of an array or a map, block by block."""
    while count := cursor.number():
        size = cursor.number() if count < 0 else None
        begin = cursor.at
        for _ in range(abs(count)):
            yield from parts
        if size is not None and cursor.at != begin + size:  # some pass over it by its size
            raise SchemaMismatch("a block of it has another size than it says")


def _enum(schema: Any) -> _Past:
    count, words = len(schema["symbols"]), f"enum '{full_name(schema)}' has no name"

    def enum(cursor: _Cursor) -> None:
        cursor.index(count, words)

    return enum


def _bytes(schema: Any) -> _Past:
    """Bytes, and a fixed."""
    if schema.get("logicalType") == "decimal" and "precision" in schema:
        return _decimal(schema)
    return _skip(int(schema["size"])) if schema["type"] == "fixed" else _sized


def _decimal(schema: Any) -> _Past:
    """fastavro rounds one that is too long."""
    digits = int(schema["precision"])
    size, most = int(schema["size"]) if schema["type"] == "fixed" else None, 10**digits

    def decimal(cursor: _Cursor) -> None:
        length = cursor.number() if size is None else size
        begin = cursor.at
        cursor.skip(length)
        if abs(int.from_bytes(cursor.data[begin : cursor.at], "big", signed=True)) >= most:
            raise SchemaMismatch(f"a decimal in it has more than {digits} digits")

    return decimal


def _skip(size: int) -> _Past:
    def skip(cursor: _Cursor) -> None:
        cursor.skip(size)

    return skip


def _sized(cursor: _Cursor) -> None:
    cursor.skip(cursor.number())


def _boolean(cursor: _Cursor) -> None:
    if cursor.data[cursor.at] > 1:
        raise SchemaMismatch(f"a boolean in it is {cursor.data[cursor.at]}, neither 0 nor 1")
    cursor.at += 1


def _int(cursor: _Cursor) -> None:
    found = cursor.number()
    if not INT32[0] <= found <= INT32[1]:
        raise SchemaMismatch(f"an int in it is {found}, which has more than 32 bits")


def _long(cursor: _Cursor) -> None:
    cursor.number()


_MADE: dict[str, Callable[[Any], _Past]] = {"enum": _enum, "bytes": _bytes, "fixed": _bytes}
_SCALARS: dict[str, _Past] = {
    "null": _skip(0),
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "bytes": _sized,
    "string": _sized,
    "float": _skip(4),
    "double": _skip(8),
}
