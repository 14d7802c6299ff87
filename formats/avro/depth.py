"""Holds values of types that contain themselves to a depth, before fastavro reads them. No I/O.

fastavro passes over a field that nobody wants by recursion in C, without a limit: one that is
nested 20,000 deep, which takes a byte a level, would end the process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .fitting import SchemaMismatch
from .types import Schema, full_name

# Linux gives 8 MB of stack, in which three times as many fit; a level is a record, or an array's,
# a map's or a union's value.
LEVELS_MAX = 10_000
_RECORDS = ("record", "error")
_REPEATED = ("array", "map")
_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}
# What is to be done with a schema, if not as many values of a block, or look whether it ends here
_ONE, _BLOCK = -1, -2


class Depth:
    """Of the values of one schema (`parsed`)."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._named = {full_name(one): one for one in _definitions(schema)}
        records = [one for one in self._named.values() if one["type"] in _RECORDS]
        self._levels_a_byte = len(records) + 1  # at most: records in each other have none

    def check(self, data: bytes) -> None:
        """Raises SchemaMismatch if it is nested too deep, and EOFError if it ends too early."""
        if len(data) * self._levels_a_byte <= LEVELS_MAX:
            return
        at = 0
        todo: list[tuple[Any, int, int]] = [(self._schema, _ONE, 0)]
        while todo:
            schema, what, level = todo.pop()
            if level > LEVELS_MAX:
                raise SchemaMismatch(
                    f"it is nested more than {LEVELS_MAX} levels deep, in a type that contains "
                    "itself"
                )
            if what == _ONE:
                at = self._value(data, at, todo, schema, level)
            elif what == _BLOCK:
                at = _block(data, at, todo, schema, level)
            elif schema is None:
                if at != what:  # some read a block, others pass over its bytes
                    raise SchemaMismatch("a block of it has another size than it says")
            else:
                if what > 1:
                    todo.append((schema, what - 1, level))
                if schema["type"] == "map":
                    at = _past(data, at, "string", schema)
                todo.append((_parts(schema)[0], _ONE, level + 1))

    def _value(self, data: bytes, at: int, todo: list[Any], schema: Any, level: int) -> int:
        """Where it ends, or its parts begin, which are put before what is `todo`."""
        if isinstance(schema, list):
            number, at = _number(data, at)
            if not 0 <= number < len(schema):
                raise SchemaMismatch(f"a union has no type {number}")
            todo.append((schema[number], _ONE, level + 1))
            return at
        kind = schema if isinstance(schema, str) else schema["type"]
        if not isinstance(kind, str) or kind in self._named:
            todo.append((self._named[kind] if isinstance(kind, str) else kind, _ONE, level))
        elif kind in _RECORDS:
            todo += [(part, _ONE, level + 1) for part in reversed(_parts(schema))]
        elif kind in _REPEATED:
            todo.append((schema, _BLOCK, level))
        else:
            return _past(data, at, kind, schema)
        return at


def _block(data: bytes, at: int, todo: list[Any], schema: Any, level: int) -> int:
    """Of an array's or a map's values: where they begin."""
    count, at = _number(data, at)
    if count == 0:
        return at
    todo.append((schema, _BLOCK, level))
    if count < 0:
        size, at = _number(data, at)
        todo.append((None, at + size, level))
    todo.append((schema, abs(count), level))
    return at


def depth_of(schema: Schema) -> Depth | None:
    """None where no type contains itself: a value is then as deep as its schema."""
    return Depth(schema) if _contains_itself(schema, ()) else None


def _contains_itself(schema: Any, inside: tuple[str, ...]) -> bool:
    if isinstance(schema, str):
        return schema in inside
    if isinstance(schema, Mapping) and schema["type"] in _RECORDS:
        inside = (*inside, full_name(schema))
    return any(_contains_itself(part, inside) for part in _parts(schema))


def _definitions(schema: Any) -> Iterator[Mapping[str, Any]]:
    """The types that have names."""
    if isinstance(schema, Mapping) and "name" in schema:
        yield schema
    for part in () if isinstance(schema, str) else _parts(schema):
        yield from _definitions(part)


def _parts(schema: Any) -> list[Any]:
    if not isinstance(schema, Mapping):
        return list(schema)
    if schema["type"] in _RECORDS:
        return [field["type"] for field in schema["fields"]]
    if schema["type"] in _REPEATED:
        return [schema["values" if schema["type"] == "map" else "items"]]
    return [schema["type"]]


def _past(data: bytes, at: int, kind: str, schema: Any) -> int:
    """Where a value without parts ends."""
    size = _SIZES.get(kind, 0)
    if kind == "fixed":
        size = int(schema["size"])
    elif kind in ("int", "long", "enum"):
        _, at = _number(data, at)
    elif kind in ("bytes", "string"):
        size, at = _number(data, at)
    if size < 0 or at + size > len(data):
        raise EOFError("it is cut off, or a length in it is wrong")
    return at + size


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A number in zigzag, and where it ends."""
    found = shift = 0
    while at < len(data):
        byte = data[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), at
        shift += 7
    raise EOFError("it is cut off")
