"""Decodes and encodes single Avro values with fastavro. No I/O.

fastavro gives dictionaries and Python's own dates, times and decimals; what is left to do is what
Spark has another shape for: unions of several types, which are structs with one field set.
"""

from __future__ import annotations

import copy
import functools
import io
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, TypeAlias

import fastavro

from .types import Schema, full_name

Convert: TypeAlias = Callable[[Any], Any]
Named: TypeAlias = "dict[str, Convert | None]"
# Spark has no type for these: the numbers and texts below them are what a column holds.
_PLAIN = {"time-millis", "time-micros", "uuid", "duration"}
_WIDENED = ({"int", "long"}, {"float", "double"})


class SchemaMismatch(Exception):
    """A value is none of what its schema allows."""


def parsed(schema: Schema) -> Any:
    """A schema with full names and without the logical types that Spark does not know."""
    return fastavro.parse_schema(_without_plain(copy.deepcopy(schema)))


def _without_plain(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_plain(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("logicalType") in _PLAIN:
        schema.pop("logicalType")
    for inner in ("type", "items", "values"):
        if inner in schema:
            schema[inner] = _without_plain(schema[inner])
    for field in schema.get("fields", ()):
        field["type"] = _without_plain(field["type"])
    return schema


class Decoder:
    """Reads what was written with one schema, as another one if there is another. Both `parsed`."""

    def __init__(self, written: Any, wanted: Any = None) -> None:
        self._written, self._wanted = written, wanted
        self._convert = _conversion(written if wanted is None else wanted, {}, _READ)

    def decode(self, data: bytes) -> Any:
        """Raises what fastavro raises for bytes that are none of the schema's, and ValueError for
        some that are left over."""
        stream = io.BytesIO(data)
        value = fastavro.schemaless_reader(
            stream,
            self._written,
            self._wanted,
            return_named_type=True,
            return_named_type_override=True,
        )
        if left := len(data) - stream.tell():
            raise ValueError(f"{left} bytes are left over")
        return value if self._convert is None else self._convert(value)


@dataclass(frozen=True)
class _Way:
    """What differs between reading and writing; the walk over the schema is the same."""

    map: Callable[[Convert | None], Convert]
    union: Callable[[Sequence[Any], Sequence[Convert | None]], Convert]
    scalars: Mapping[str, Convert]


def _conversion(schema: Any, named: Named, way: _Way) -> Convert | None:
    """What turns fastavro's value into Arrow's, or back; None where they are the same."""
    if isinstance(schema, str):
        return named.get(schema, way.scalars.get(schema))
    if isinstance(schema, list):
        return _of_union(schema, named, way)
    kind = schema["type"]
    if isinstance(kind, str) and kind in _NESTED:
        return _NESTED[kind](schema, named, way)
    return _conversion(kind, named, way)


def _of_record(schema: Any, named: Named, way: _Way) -> Convert | None:
    fields = {field["name"]: _conversion(field["type"], named, way) for field in schema["fields"]}
    needed = {name: convert for name, convert in fields.items() if convert is not None}
    named[full_name(schema)] = found = _of_fields(needed) if needed else None
    return found


def _of_array(schema: Any, named: Named, way: _Way) -> Convert | None:
    inner = _conversion(schema["items"], named, way)
    return inner and (lambda values: [inner(value) for value in values])


def _of_map(schema: Any, named: Named, way: _Way) -> Convert:
    return way.map(_conversion(schema["values"], named, way))


_NESTED: dict[str, Callable[[Any, Named, _Way], Convert | None]] = {
    "record": _of_record,
    "error": _of_record,
    "array": _of_array,
    "map": _of_map,
}


def _of_union(branches: Sequence[Any], named: Named, way: _Way) -> Convert | None:
    present = [branch for branch in branches if branch != "null"]
    inner = [_conversion(branch, named, way) for branch in present]
    if len(present) == 1:
        only = inner[0]
        return only and (lambda value: None if value is None else only(value))
    kinds = {branch for branch in present if isinstance(branch, str)}
    if not present or (len(kinds) == len(present) and kinds in _WIDENED):
        return None
    return way.union(present, inner)


def _of_fields(needed: Mapping[str, Convert]) -> Convert:
    def convert(record: Any) -> Any:
        return {
            name: needed[name](value) if name in needed else value for name, value in record.items()
        }

    return convert


def _read_map(inner: Convert | None) -> Convert:
    # Arrow has pairs.
    return lambda values: [
        (name, inner(value) if inner else value) for name, value in values.items()
    ]


def _read_union(present: Sequence[Any], inner: Sequence[Convert | None]) -> Convert:
    several = sum(1 for branch in present if _named_type(branch)) > 1

    def convert(value: Any) -> Any:
        if value is None:
            return None
        name = None
        if several and isinstance(value, tuple):
            name, value = value
        number = _branch(present, value, name)
        change = inner[number]
        return {f"member{number}": change(value) if change else value}

    return convert


_READ = _Way(_read_map, _read_union, {})


def _named_type(branch: Any) -> str | None:
    if isinstance(branch, Mapping) and branch["type"] in ("record", "error", "enum", "fixed"):
        return full_name(branch)
    primitive = ("boolean", "int", "long", "float", "double", "bytes", "string")
    return branch if isinstance(branch, str) and branch not in primitive else None


def _branch(present: Sequence[Any], value: Any, name: str | None) -> int:
    """Which of the union's types the value has."""
    for number, branch in enumerate(present):
        if name is not None:
            if _named_type(branch) == name:
                return number
        elif _fits(branch, value):
            return number
    raise SchemaMismatch(f"{type(value).__name__} is in none of the union's types")


# By the kind of a branch: what Python values of it are.
_PYTHON: dict[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "int": (int, date),
    "long": (int, datetime),
    "float": (float,),
    "double": (float,),
    "bytes": (bytes, Decimal),
    "fixed": (bytes, Decimal),
    "string": (str,),
    "enum": (str,),
    "record": (dict,),
    "error": (dict,),
    "map": (dict,),
    "array": (list,),
}


def _fits(branch: Any, value: Any) -> bool:
    kind = branch if isinstance(branch, str) else branch["type"]
    kinds = _PYTHON.get(kind, (dict, str, bytes))  # else it is the one named type among them
    if isinstance(value, bool):
        return kind == "boolean"
    if isinstance(value, datetime):
        return kind == "long"
    return isinstance(value, kinds)


class Encoder:
    """Writes values of Arrow's shape. `schema` is `parsed`."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._convert = _conversion(schema, {}, _WRITE)

    def encode(self, value: Any) -> bytes:
        """Raises what fastavro raises for a value that is none of the schema's."""
        stream = io.BytesIO()
        found = value if self._convert is None else self._convert(value)
        fastavro.schemaless_writer(stream, self._schema, found, strict_allow_default=True)
        return stream.getvalue()


def _write_map(inner: Convert | None) -> Convert:
    return lambda pairs: {name: inner(value) if inner else value for name, value in pairs}


def _write_union(present: Sequence[Any], inner: Sequence[Convert | None]) -> Convert:
    def convert(value: Any) -> Any:
        if value is None:
            return None
        for number, branch in enumerate(present):
            member = value.get(f"member{number}")
            if member is not None:
                change = inner[number]
                found = change(member) if change else member
                name = _named_type(branch)
                return (name, found) if name else found
        return None

    return convert


def _checked(
    kinds: tuple[type, ...], words: str, fits: Callable[[Any], bool] | None = None
) -> Convert:
    """fastavro takes 1.5 for an int, as 1, and any value for a boolean."""

    def convert(value: Any) -> Any:
        # fastavro makes numbers of times, and says in which field a null is
        if value is None or (isinstance(value, kinds) and (fits is None or fits(value))):
            return value
        raise SchemaMismatch(f"{value!r} is not {words}")

    return convert


def _fits_int(value: Any) -> bool:
    return isinstance(value, date) or -(2**31) <= value < 2**31


def _fits_float(value: float) -> bool:
    try:
        struct.pack("<f", value)
    except OverflowError:  # it would be infinity
        return False
    return True


_WRITE = _Way(
    _write_map,
    _write_union,
    {
        "boolean": _checked((bool,), "a boolean"),
        "int": _checked((int, date), "an integer of 32 bits", _fits_int),
        "long": _checked((int, date), "an integer"),  # fastavro refuses what is too long
        "float": _checked((int, float), "a number of 32 bits", _fits_float),
        "double": _checked((int, float), "a number"),
    },
)


@functools.lru_cache(maxsize=64)
def encoder(schema: str) -> Encoder:
    """For a schema as JSON; made once a process."""
    return Encoder(parsed(json.loads(schema)))
