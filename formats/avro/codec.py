"""Decodes and encodes single Avro values with fastavro. No I/O.

fastavro gives dictionaries and Python's own dates, times and decimals; what is left to do is what
Spark has another shape for: unions of several types, which are structs with one field set.
"""

from __future__ import annotations

import copy
import functools
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import fastavro

from .fitting import SCALARS, Convert, SchemaMismatch, decimals, member_of
from .marks import Member
from .resolution import for_reading, unwrapped
from .strict import Strict
from .types import BARE_ITEMS, Schema, full_name, has_bare_items, is_one_column

Named: TypeAlias = "dict[str, Convert | None]"
# Spark has no type for these: what is below them is what a column holds. (As for times of day, of
# which `marks.py` knows the unit.)
_PLAIN = {"uuid", "duration"}


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
    """Reads what was written with one schema, as another one if there is another. Both `parsed`.
    Raises SchemaMismatch for `BARE_ITEMS`."""

    def __init__(self, written: Any, wanted: Any = None) -> None:
        if has_bare_items(written):
            raise SchemaMismatch(BARE_ITEMS)
        self._strict = Strict(written)
        self._written, self._wanted = for_reading(written, wanted)
        self._convert = _conversion(written if wanted is None else wanted, {}, _READ)

    def decode(self, data: bytes) -> Any:
        """Raises what fastavro raises for bytes that are none of the schema's, and ValueError for
        some that are left over."""
        self._strict.check(data)
        stream = io.BytesIO(data)
        value = unwrapped(fastavro.schemaless_reader(stream, self._written, self._wanted))
        if left := len(data) - stream.tell():
            raise ValueError(f"{left} bytes are left over")
        return value if self._convert is None else self._convert(value)


@dataclass(frozen=True)
class _Way:
    """What differs between reading and writing; the walk over the schema is the same."""

    array: Callable[[Convert | None], Convert | None]
    map: Callable[[Convert | None], Convert]
    union: Callable[[Sequence[Any], Sequence[Convert | None]], Convert]
    numbers: Callable[[Sequence[Any], Sequence[Convert | None]], Convert | None]  # of two sizes
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
    if kind in ("bytes", "fixed") and schema.get("logicalType") == "decimal":
        exact = decimals(schema)
        if kind == "fixed":
            named[full_name(schema)] = exact
        return exact
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
    return (way.numbers if is_one_column(present) else way.union)(present, inner)


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
        if not isinstance(value, Member):  # a default, of its first type; and that is null
            raise SchemaMismatch(f"default {value!r} of a union is not of its first type")
        number, found = value
        change = inner[number]
        return {f"member{number}": change(found) if change else found}

    return convert


_READ = _Way(_read_array, _read_map, _read_union, lambda *_: None, {})


def _named_type(branch: Any) -> str | None:
    if isinstance(branch, Mapping) and branch["type"] in ("record", "error", "enum", "fixed"):
        return full_name(branch)
    primitive = ("boolean", "int", "long", "float", "double", "bytes", "string")
    return branch if isinstance(branch, str) and branch not in primitive else None


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
        found = {name: inner(value) if inner else value for name, value in pairs}
        if len(found) < len(pairs):
            raise SchemaMismatch("a map has a key twice, and Avro's readers keep one of them")
        return found

    return convert


def _write_union(present: Sequence[Any], inner: Sequence[Convert | None]) -> Convert:
    names = words(present)

    def convert(value: Any) -> Any:
        if value is None:
            return None
        found = member_of(value, names)
        if found is None:
            return None
        member, change = value[f"member{found}"], inner[found]
        return names[found], change(member) if change else member

    return convert


def words(present: Sequence[Any]) -> list[str]:
    """What fastavro is told which of a union's types a value is of; else it takes the first one
    that it may be of."""
    return [_named_type(one) or (one if isinstance(one, str) else one["type"]) for one in present]


def _write_number(present: Sequence[Any], inner: Sequence[Convert | None]) -> Convert:
    def convert(value: Any) -> Any:
        if value is None:
            return None
        for name, change in zip(present, inner, strict=True):
            try:
                return name, change(value) if change else value
            except SchemaMismatch:
                continue
        raise SchemaMismatch(f"{value!r} is in none of {' and '.join(present)}")

    return convert


_WRITE = _Way(_write_array, _write_map, _write_union, _write_number, SCALARS)


@functools.lru_cache(maxsize=64)
def encoder(schema: str) -> Encoder:
    """For a schema as JSON; made once a process."""
    return Encoder(parsed(json.loads(schema)))


@functools.lru_cache(maxsize=256)
def is_bytes(schema: str) -> bool:
    """Whether all of a value is bytes, by its schema as JSON. Confluent's serializers then have no
    length of Avro's in front of them."""
    found = json.loads(schema)
    while isinstance(found, dict):
        found = found["type"]
    return bool(found == "bytes")


def with_length(data: bytes) -> bytes:
    """Bytes as Avro has them."""
    return encoder('"bytes"').encode(data)


def without_length(data: bytes) -> bytes:
    """The way back."""
    return bytes(_BYTES.decode(data))


_BYTES = Decoder("bytes")
