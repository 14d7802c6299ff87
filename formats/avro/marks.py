"""Schemas for fastavro with which a value says what it is: which of a union's types, and a time.

fastavro gives bare values, and does not look at the meaning of the type that they are read as: 5
may be an `int`, a `long` or a time's milliseconds. It calls a function for every logical type. So
types that have no name get one of ours; and so do those that have one, where another schema is
wanted: fastavro says the name only in a union of several that was written. No I/O.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import fastavro
from fastavro.read import LOGICAL_READERS

from .fitting import SchemaMismatch
from .program import INT64
from .types import is_one_column

_MARK = "eo-kafka"
_UNNAMED = ("boolean", "int", "long", "float", "double", "bytes", "string", "array", "map")
_TIMES_OF_DAY = ("int-time-millis", "long-time-micros")  # Spark has no type for them
_READERS = {name: read for name, read in LOGICAL_READERS.items() if name not in _TIMES_OF_DAY}
# What a number counts, and in how many nanoseconds
_UNITS = {
    "int-time-millis": ("time", 10**6),
    "long-time-micros": ("time", 10**3),
    **{
        f"long-{zone}timestamp-{unit}": ("timestamp", nanos)
        for zone in ("", "local-")
        for unit, nanos in (("millis", 10**6), ("micros", 10**3), ("nanos", 1))
    },
}


class Member(NamedTuple):
    """A value of a union, and which of its types (without null) it is of."""

    number: int
    value: Any


class _Record(dict[str, Any]):
    """Is of a named type, and says of which. So do the next two."""

    type_name: str


class _Symbol(str):
    type_name: str


class _Fixed(bytes):
    type_name: str


_NAMED: Mapping[str, Any] = {
    "record": _Record,
    "error": _Record,
    "enum": _Symbol,
    "fixed": _Fixed,
}


def for_reading(written: Any, wanted: Any = None) -> tuple[Any, Any]:
    """Both (parsed) with marks, and defaults as if they had been read."""
    source = _wrapped(_marked(written, wanted is not None))
    if wanted is None:
        return source, None
    target = _wrapped(_marked(wanted, False))
    names = {one["name"]: one for one in _records(copy.deepcopy(target))}
    for record in _records(target):
        for field in record["fields"]:
            if "default" in field:
                field["default"] = _default(field["type"], field["default"], names)
    return source, target


def _wrapped(schema: Any) -> Any:
    """As the only field of a record, whose bytes are the same. fastavro parses any other type again
    for each value, and takes no default then that has been read."""
    fields = [{"name": "value", "type": schema}]
    return fastavro.parse_schema({"type": "record", "name": "eo_kafka", "fields": fields})


def unwrapped(read: Any) -> Any:
    """What was read by one of the two."""
    return read["value"]


def _marked(schema: Any, everywhere: bool, member: int | None = None) -> Any:
    if isinstance(schema, list):
        present = [branch for branch in schema if branch != "null"]
        numbers = iter([None] * len(present) if is_one_column(present) else range(len(present)))
        found = [
            branch if branch == "null" else _marked(branch, everywhere, next(numbers))
            for branch in schema
        ]
        own = [one for one in found if isinstance(one, dict) and one.get("member") is not None]
        beside = {one["type"]: dict(one) for one in own}
        for one in own:
            one["beside"] = beside
        return found
    kind = schema if isinstance(schema, str) else schema["type"]
    if not isinstance(kind, str):
        return _marked(kind, everywhere, member)
    made = {} if isinstance(schema, str) else {k: v for k, v in schema.items() if k[:2] != "__"}
    for inner in ("items", "values"):
        if inner in made:
            made[inner] = _marked(made[inner], everywhere)
    if "fields" in made:
        made["fields"] = [
            {**field, "type": _marked(field["type"], everywhere)} for field in made["fields"]
        ]
    is_time_of_day = f"{kind}-{_means(made)}" in _TIMES_OF_DAY
    if kind in _NAMED and everywhere and _means(made) is None:
        return {**made, "logicalType": _MARK, "means": None}
    if kind in _UNNAMED and (everywhere or member is not None or is_time_of_day):
        return {**made, "type": kind, "logicalType": _MARK, "member": member, "means": _means(made)}
    return made or schema


def _means(schema: Any) -> str | None:
    """A type's own logical type."""
    found = schema.get("logicalType") if isinstance(schema, Mapping) else None
    return schema["means"] if found == _MARK else found


def _read(data: Any, written: Any, wanted: Any = None) -> Any:
    """What a value is that was read as one type and is wanted as another."""
    wanted = written if wanted is None else wanted
    if written["type"] in _NAMED:
        return _named(data, wanted)
    if isinstance(wanted, Mapping):  # fastavro takes the first type that a value could become
        wanted = wanted.get("beside", {}).get(written["type"], wanted)
    kind = wanted if isinstance(wanted, str) else wanted["type"]
    means = _means(written)
    own, other = f"{written['type']}-{means}", f"{kind}-{_means(wanted)}"
    if {own, other} <= _UNITS.keys() and not {own, other} <= _READERS.keys():
        other = other.replace("timestamp-millis", "timestamp-micros")  # a column has these
        data = _with_meaning(_in_unit(data, own, other), kind, other.partition("-")[2], wanted)
    elif own in _READERS:
        data = _with_meaning(data, written["type"], means, written)
    else:
        data = _promoted(data, written["type"], kind)
        data = _with_meaning(data, kind, _means(wanted), wanted)
    member = wanted.get("member") if isinstance(wanted, Mapping) else None
    return data if member is None else Member(member, data)


def _named(data: Any, schema: Any) -> Any:
    found = _NAMED[schema["type"]](data)
    found.type_name = schema["name"]
    return found


def _in_unit(number: int, own: str, other: str) -> int:
    (counted, nanos), (wanted, unit) = _UNITS[own], _UNITS[other]
    found, rest = divmod(number * nanos, unit)
    if counted != wanted or rest or not INT64[0] <= found <= INT64[1]:
        raise SchemaMismatch(f"{number} of type {own} is not the same as {other}")
    return found


def _with_meaning(data: Any, kind: str, means: str | None, schema: Any) -> Any:
    read = _READERS.get(f"{kind}-{means}")
    return read(data, schema, None) if read else data


def _promoted(data: Any, kind: str, into: str) -> Any:
    if kind == into:
        return data
    if into == "float":
        import numpy as np

        return float(np.int64(data).astype(np.float32))  # by way of a double it is rounded twice
    if into == "double":
        return float(data)
    if into in ("string", "bytes"):
        return data.decode() if into == "string" else data.encode()
    return data


LOGICAL_READERS.update({f"{kind}-{_MARK}": _read for kind in (*_UNNAMED, *_NAMED)})


def _records(schema: Any) -> Iterator[Any]:
    """All that are defined in a schema."""
    if isinstance(schema, list):
        for branch in schema:
            yield from _records(branch)
    elif isinstance(schema, Mapping):
        if "fields" in schema:
            yield schema
        inner = [field["type"] for field in schema.get("fields", ())]
        for one in (*inner, schema.get("items"), schema.get("values"), schema["type"]):
            yield from _records(one)


def _default(schema: Any, value: Any, names: Mapping[str, Any]) -> Any:
    """A schema has bytes as text, and of a union's default does not say the type: the first one."""
    if isinstance(schema, list):
        return _default(schema[0], value, names)
    schema = names.get(schema, {"type": schema}) if isinstance(schema, str) else schema
    kind = schema["type"]
    if "fields" in schema:
        fields = {one["name"]: one for one in schema["fields"]}
        given = {name: value.get(name, one.get("default")) for name, one in fields.items()}
        value = {name: _default(fields[name]["type"], one, names) for name, one in given.items()}
        return _named(value, schema)
    if kind == "array":
        value = [_default(schema["items"], one, names) for one in value]
    elif kind == "map":
        value = {name: _default(schema["values"], one, names) for name, one in value.items()}
    elif kind in ("bytes", "fixed"):
        value = value.encode("latin-1")
    elif kind in ("float", "double"):
        value = float(value)
    if kind in _NAMED and _means(schema) is None:
        return _named(value, schema)
    value = _with_meaning(value, kind, _means(schema), schema)
    member = schema.get("member")
    return value if member is None else Member(member, value)
