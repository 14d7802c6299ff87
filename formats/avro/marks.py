"""Marks in schemas for fastavro, with which a value becomes what it is wanted as.

fastavro gives bare values, and does not look at the meaning of the type that they are read as: 5
may be an `int`, a `long` or a time's milliseconds. It calls a function for every logical type, so
types get one of ours. No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from fastavro.read import LOGICAL_READERS

from .fitting import SchemaMismatch
from .program import INT64
from .types import full_name, is_one_column

_MARK = "eo-kafka"
_KINDS = (
    *("boolean", "int", "long", "float", "double", "bytes", "string", "array", "map"),
    *("record", "enum", "fixed"),
)
_OWN = ("type", "name", "fields", "items", "values", "symbols", "size")  # what fastavro reads by
_SAME = ("type", "logicalType", "precision", "scale", "symbols")
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


def marked(
    schema: Any, written: Any, wanted: Any, member: int | None, is_among: bool = False
) -> Any:
    """`schema` for fastavro, whose values were `written` as one type and are `wanted` as another,
    which is a `member` of its union. `is_among`: fastavro may take them for those of another."""
    same = all(written.get(what) == wanted.get(what) for what in _SAME)
    is_time_of_day = f"{written['type']}-{written.get('logicalType')}" in _TIMES_OF_DAY
    if schema["type"] == "null" or (
        same and member is None and not is_among and not is_time_of_day
    ):
        return schema if len(schema) > 1 else schema["type"]
    own = {name: schema[name] for name in _OWN if name in schema}
    return {**own, "logicalType": _MARK, "written": written, "wanted": wanted, "member": member}


def refused(schema: Any, reason: str) -> Any:
    """`schema`, each of whose values raises SchemaMismatch."""
    return {**schema, "logicalType": _MARK, "refused": reason}


def _read(data: Any, mark: Any, _: Any = None) -> Any:
    """What a value is that was read as one type and is wanted as another."""
    if "refused" in mark:
        raise SchemaMismatch(mark["refused"])
    found, member = _as_wanted(data, mark["written"], mark["wanted"]), mark["member"]
    return found if member is None else Member(member, found)


def _as_wanted(data: Any, written: Any, wanted: Any) -> Any:
    kind, means = wanted["type"], written.get("logicalType")
    if kind == "enum":
        return _symbol(data, wanted)
    own, other = f"{written['type']}-{means}", f"{kind}-{wanted.get('logicalType')}"
    if {own, other} <= _UNITS.keys() and not {own, other} <= _READERS.keys():
        other = other.replace("timestamp-millis", "timestamp-micros")  # a column has these
        return _with_meaning(_in_unit(data, own, other), kind, other.partition("-")[2], wanted)
    if own in _READERS:
        return _with_meaning(data, written["type"], means, written)
    data = _promoted(data, written["type"], kind)
    return _with_meaning(data, kind, wanted.get("logicalType"), wanted)


def _symbol(name: str, wanted: Any) -> str:
    found = name if name in wanted["symbols"] else wanted.get("default")
    if found is None:
        raise SchemaMismatch(f"'{name}' is none of enum '{full_name(wanted)}', without a default")
    return str(found)


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


LOGICAL_READERS.update({f"{kind}-{_MARK}": _read for kind in _KINDS})


def default(schema: Any, value: Any, names: Mapping[str, Any]) -> Any:
    """A default as if it had been read. A schema has bytes as text, and of a union's default does
    not say the type: the first one. `names`: what is defined."""
    if isinstance(schema, list):
        found = default(schema[0], value, names)
        is_member = schema[0] != "null" and not is_one_column([x for x in schema if x != "null"])
        return Member(0, found) if is_member else found
    schema = names.get(schema, {"type": schema}) if isinstance(schema, str) else schema
    kind = schema["type"]
    if not isinstance(kind, str):
        return default(kind, value, names)
    if "fields" in schema:
        fields = {one["name"]: one for one in schema["fields"]}
        given = {name: value.get(name, one.get("default")) for name, one in fields.items()}
        return {name: default(fields[name]["type"], one, names) for name, one in given.items()}
    if kind == "array":
        value = [default(schema["items"], one, names) for one in value]
    elif kind == "map":
        value = {name: default(schema["values"], one, names) for name, one in value.items()}
    elif kind in ("bytes", "fixed"):
        value = value.encode("latin-1")
    elif kind in ("float", "double"):
        value = float(value)
    return _with_meaning(value, kind, schema.get("logicalType"), schema)
