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
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any, TypeAlias

import fastavro

from .marks import Member, for_reading
from .types import Schema, full_name, is_one_column

Convert: TypeAlias = Callable[[Any], Any]
Named: TypeAlias = "dict[str, Convert | None]"
# Spark has no type for these: the numbers and texts below them are what a column holds.
_PLAIN = {"time-millis", "time-micros", "uuid", "duration"}


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
        self._written, self._wanted = for_reading(written, wanted)
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

    array: Callable[[Convert | None], Convert | None]
    map: Callable[[Convert | None], Convert]
    union: Callable[[Sequence[Any], Sequence[Convert | None]], Convert]
    scalars: Mapping[str, Convert]  # by the type, and its logical type behind it: `int-date`


def _conversion(schema: Any, named: Named, way: _Way) -> Convert | None:
    """What turns fastavro's value into Arrow's, or back; None where they are the same."""
    if isinstance(schema, str):
        return named.get(schema, way.scalars.get(schema))
    if isinstance(schema, list):
        return _of_union(schema, named, way)
    kind = schema["type"]
    if isinstance(kind, str) and kind in _NESTED:
        return _NESTED[kind](schema, named, way)
    found = way.scalars.get(f"{kind}-{schema.get('logicalType')}")
    return found or _conversion(kind, named, way)


def _of_record(schema: Any, named: Named, way: _Way) -> Convert | None:
    fields = {field["name"]: _conversion(field["type"], named, way) for field in schema["fields"]}
    needed = {name: convert for name, convert in fields.items() if convert is not None}
    named[full_name(schema)] = found = _of_fields(needed) if needed else None
    return found


def _of_array(schema: Any, named: Named, way: _Way) -> Convert | None:
    return way.array(_conversion(schema["items"], named, way))


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
    if is_one_column(present):
        return None
    return way.union(present, inner)


def _of_fields(needed: Mapping[str, Convert]) -> Convert:
    def convert(record: Any) -> Any:
        return {
            name: needed[name](value) if name in needed else value for name, value in record.items()
        }

    return convert


def _read_array(inner: Convert | None) -> Convert | None:
    return inner and (lambda values: [inner(value) for value in values])


def _read_map(inner: Convert | None) -> Convert:
    # Arrow has pairs.
    return lambda values: [
        (name, inner(value) if inner else value) for name, value in values.items()
    ]


def _read_union(present: Sequence[Any], inner: Sequence[Convert | None]) -> Convert:
    def convert(value: Any) -> Any:
        if value is None:
            return None
        number, found = value if isinstance(value, Member) else _named_member(present, value)
        change = inner[number]
        return {f"member{number}": change(found) if change else found}

    return convert


_READ = _Way(_read_array, _read_map, _read_union, {})


def _named_type(branch: Any) -> str | None:
    if isinstance(branch, Mapping) and branch["type"] in ("record", "error", "enum", "fixed"):
        return full_name(branch)
    primitive = ("boolean", "int", "long", "float", "double", "bytes", "string")
    return branch if isinstance(branch, str) and branch not in primitive else None


def _named_member(present: Sequence[Any], value: Any) -> Member:
    """Of a type that has a name, which fastavro says where there are several."""
    named = {number: _named_type(branch) for number, branch in enumerate(present)}
    if isinstance(value, tuple):
        name, value = value
        fits = [number for number, one in named.items() if one == name]
    else:
        fits = [number for number, one in named.items() if one and _fits(present[number], value)]
    if len(fits) != 1:
        raise SchemaMismatch(f"{type(value).__name__} is in none of the union's types, or in two")
    return Member(fits[0], value)


def _fits(branch: Any, value: Any) -> bool:
    if isinstance(branch, str):
        return True  # a type that is defined elsewhere
    kinds: dict[str, tuple[type, ...]] = {"enum": (str,), "fixed": (bytes, Decimal)}
    return isinstance(value, kinds.get(branch["type"], (dict,)))


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


def _write_array(inner: Convert | None) -> Convert:
    def convert(values: Any) -> Any:
        if not isinstance(values, list):  # fastavro takes bytes for a list of numbers
            raise SchemaMismatch(f"{values!r} is not an array")
        return [inner(value) for value in values] if inner else values

    return convert


def _write_map(inner: Convert | None) -> Convert:
    def convert(pairs: Any) -> Any:
        if not isinstance(pairs, list):
            raise SchemaMismatch(f"{pairs!r} is not a map")
        return {name: inner(value) if inner else value for name, value in pairs}

    return convert


def _write_union(present: Sequence[Any], inner: Sequence[Convert | None]) -> Convert:
    # fastavro takes the first type that a value may be of, if it is not told which
    names = [_named_type(one) or (one if isinstance(one, str) else one["type"]) for one in present]

    def convert(value: Any) -> Any:
        if value is None:
            return None
        for number, name in enumerate(names):
            member = value.get(f"member{number}")
            if member is not None:
                change = inner[number]
                return name, change(member) if change else member
        return None

    return convert


def _checked(
    kinds: tuple[type, ...], words: str, fits: Callable[[Any], bool] | None = None
) -> Convert:
    """fastavro takes 1.5 for an int, as 1, and any value for a boolean."""

    def convert(value: Any) -> Any:
        # fastavro makes numbers of times, and says in which field a null is; but of a boolean's
        # it makes false
        if (value is None and kinds != (bool,)) or (
            isinstance(value, kinds) and (fits is None or fits(value))
        ):
            return value
        raise SchemaMismatch(f"{value!r} is not {words}")

    return convert


def _fits_int(value: Any) -> bool:
    return isinstance(value, date) or -(2**31) <= value < 2**31


def _fits_date(value: Any) -> bool:
    return not isinstance(value, datetime) and _fits_int(value)  # of a time fastavro keeps the day


def _fits_float(value: float) -> bool:
    try:
        struct.pack("<f", value)
    except OverflowError:  # it would be infinity
        return False
    return True


_long = _checked((int, date), "an integer")  # fastavro refuses what is too long


def _instant(value: Any) -> Any:
    """A time without a zone is UTC's; to fastavro it is the machine's."""
    is_local = isinstance(value, datetime) and value.tzinfo is None
    return value.replace(tzinfo=timezone.utc) if is_local else _long(value)


_WRITE = _Way(
    _write_array,
    _write_map,
    _write_union,
    {
        "null": _checked((), "null"),
        "boolean": _checked((bool,), "a boolean"),
        "int": _checked((int, date), "an integer of 32 bits", _fits_int),
        "int-date": _checked((int, date), "a date", _fits_date),
        "long": _long,
        "long-timestamp-millis": _instant,
        "long-timestamp-micros": _instant,
        "float": _checked((int, float), "a number of 32 bits", _fits_float),
        "double": _checked((int, float), "a number"),
    },
)


@functools.lru_cache(maxsize=64)
def encoder(schema: str) -> Encoder:
    """For a schema as JSON; made once a process."""
    return Encoder(parsed(json.loads(schema)))
