"""Whether what a window keeps is of its SQL type, which Spark does not ask.

It makes null of a value in the state that does not match, or wraps it, and the next batch would go
on from that.
"""

from __future__ import annotations

import decimal
import re
from array import array
from collections.abc import Callable
from functools import cache
from typing import Any

from pyspark.sql import types

from ..core.errors import cut

_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_PLAIN = {
    "float": (float,),
    "double": (float,),
    "string": (str,),
    "boolean": (bool,),
    "binary": (bytes, bytearray),
}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


class Misfit(ValueError):
    """A value that its type does not hold. The message says which, and is part of a sentence."""

    def __init__(self, value: Any, kind: str) -> None:
        kind = kind if "<" in kind else kind.upper()  # but for the names of fields
        super().__init__(f"{cut(repr(value), 200)} is no {cut(kind, 200)}")


@cache
def check_of(kind: str) -> Callable[[Any], bool] | None:
    """Whether a value is one of a simple type, by the type's name; None: it is no such type."""
    if bits := _BITS.get(kind):
        least, most = -(1 << bits - 1), (1 << bits - 1) - 1
        return lambda value: type(value) is int and least <= value <= most
    if plain := _PLAIN.get(kind):
        return lambda value: type(value) in plain
    if found := _DECIMAL.fullmatch(kind):
        precision, scale = map(int, found.groups())
        return lambda value: type(value) is decimal.Decimal and _has_room(value, precision, scale)
    return None


def fitting(kind: types.DataType, nullable: bool = True) -> Callable[[Any], Any]:
    """A function that returns a value as its type has it, or raises `Misfit`. Whole numbers become
    those of DOUBLE and DECIMAL, if that is exact; numpy's become Python's."""
    if isinstance(kind, types.ArrayType):
        within = _array(kind)
    elif isinstance(kind, types.MapType):
        within = _map(kind)
    elif isinstance(kind, types.StructType):
        within = _struct(kind)
    else:
        within = _simple(kind)

    def fit(value: Any) -> Any:
        if value is not None:
            return within(value)
        if nullable:
            return None
        raise Misfit(None, f"{kind.simpleString()} NOT NULL")

    return fit


def has_instants(kind: types.DataType) -> bool:
    """Whether it is or holds a TIMESTAMP, which Spark gives back from its state and with timers as
    a time in the zone of the worker's system, without the zone."""
    if isinstance(kind, types.ArrayType):
        return has_instants(kind.elementType)
    if isinstance(kind, types.MapType):
        return has_instants(kind.keyType) or has_instants(kind.valueType)
    if isinstance(kind, types.StructType):
        return any(has_instants(one.dataType) for one in kind.fields)
    return isinstance(kind, types.TimestampType)


def _simple(kind: types.DataType) -> Callable[[Any], Any]:
    name = "string" if isinstance(kind, types.StringType) else kind.simpleString()
    holds = check_of(name)
    if holds is None:
        return _as_spark_checks(kind)

    def fit(value: Any) -> Any:
        if holds(value):
            return value
        if getattr(value, "shape", None) == ():  # numpy's
            value = value.item()
        if type(value) is int and (name in ("float", "double") or name.startswith("decimal")):
            value = _converted(value, name)
        if not holds(value):
            raise Misfit(value, name)
        return value

    return fit


def _converted(value: int, name: str) -> Any:
    """A whole number as one of another type; itself, which does not fit, if that is not exact."""
    if name.startswith("decimal"):
        return decimal.Decimal(value)
    try:
        return float(value) if int(float(value)) == value else value
    except OverflowError:
        return value


def _as_spark_checks(kind: types.DataType) -> Callable[[Any], Any]:
    """Dates, intervals, and what else there is."""
    verify = types._make_type_verifier(kind)

    def fit(value: Any) -> Any:
        try:
            verify(value)
        except (AssertionError, TypeError, ValueError):
            raise Misfit(value, kind.simpleString()) from None
        return value

    return fit


def _array(kind: types.ArrayType) -> Callable[[Any], Any]:
    element = fitting(kind.elementType, kind.containsNull)

    def fit(value: Any) -> Any:
        if not isinstance(value, (list, tuple, array)):
            raise Misfit(value, kind.simpleString())
        return [element(one) for one in value]

    return fit


def _map(kind: types.MapType) -> Callable[[Any], Any]:
    key = fitting(kind.keyType, nullable=False)
    of_key = fitting(kind.valueType, kind.valueContainsNull)

    def fit(value: Any) -> Any:
        if not isinstance(value, dict):
            raise Misfit(value, kind.simpleString())
        return {key(one): of_key(other) for one, other in value.items()}

    return fit


def _struct(kind: types.StructType) -> Callable[[Any], Any]:
    names = kind.names
    fields = [fitting(one.dataType, one.nullable) for one in kind.fields]
    make = types.Row(*names)

    def fit(value: Any) -> Any:
        if isinstance(value, dict) and value.keys() <= set(names):
            value = [value.get(name) for name in names]
        if not isinstance(value, (list, tuple)) or len(value) != len(fields):
            raise Misfit(value, kind.simpleString())
        return make(*(field(one) for field, one in zip(fields, value, strict=True)))

    return fit


def _has_room(value: decimal.Decimal, precision: int, scale: int) -> bool:
    """Spark rounds what has more digits after the point, without a word."""
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return False  # NaN and the infinite ones
    if not value:
        return True
    too_fine = -scale - exponent
    fits = value.adjusted() < precision - scale
    return fits and (too_fine <= 0 or not any(digits[-too_fine:]))
