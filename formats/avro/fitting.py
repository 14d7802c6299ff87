"""Holds single values to the Avro types that they are written as, before fastavro changes them.

A value that is none of its type's, or would become another one, raises SchemaMismatch. No I/O.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, timezone
from decimal import Decimal, Inexact, InvalidOperation
from typing import Any, TypeAlias

from ..shared.decimals import quantizer

Convert: TypeAlias = Callable[[Any], Any]


class SchemaMismatch(Exception):
    """A value is none of what its schema allows."""


def _checked(
    kinds: tuple[type, ...], words: str, fits: Callable[[Any], bool] | None = None
) -> Convert:
    """fastavro takes 1.5 for an int, as 1, true for a number, and any value for a boolean."""

    def convert(value: Any) -> Any:
        # fastavro makes numbers of times, and says in which field a null is; but of a boolean's
        # it makes false
        if (value is None and kinds != (bool,)) or (
            isinstance(value, kinds)
            and isinstance(value, bool) == (kinds == (bool,))
            and (fits is None or fits(value))
        ):
            return value
        raise SchemaMismatch(f"{value!r} is not {words}")

    return convert


def _fits_int(value: Any) -> bool:
    return isinstance(value, date) or -(2**31) <= value < 2**31


def _fits_date(value: Any) -> bool:
    return not isinstance(value, datetime) and _fits_int(value)  # of a time fastavro keeps the day


def _holds(form: str) -> Callable[[Any], bool]:
    """Whether a number is the same one as a float or a double."""
    of = struct.Struct(form)

    def fits(value: Any) -> bool:
        try:
            return of.unpack(of.pack(value))[0] == value or math.isnan(value)
        except OverflowError:  # it would be infinity
            return False

    return fits


_long = _checked((int, date), "an integer")  # fastavro refuses what is too long


def _instant(value: Any) -> Any:
    """A time without a zone is UTC's; to fastavro it is the machine's."""
    is_local = isinstance(value, datetime) and value.tzinfo is None
    return value.replace(tzinfo=timezone.utc) if is_local else _long(value)


def _millis(value: Any) -> Any:
    if isinstance(value, datetime) and value.microsecond % 1000:
        raise SchemaMismatch(f"{value} has microseconds, and the schema's times have milliseconds")
    return value


def _local(value: Any) -> Any:
    """An instant is another local time in each zone: which one is meant, the query says."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        raise SchemaMismatch(
            f"{value} has a zone, and the schema's time has none: cast it to TIMESTAMP_NTZ"
        )
    return _long(value)


def decimals(schema: Mapping[str, Any]) -> Convert | None:
    """fastavro counts digits before it moves the point, and cuts off those of numbers below 0. None
    for a schema without a precision, which has none of its own to be held to."""
    if "precision" not in schema:
        return None
    digits, scale = int(schema["precision"]), int(schema.get("scale", 0))
    exact = quantizer(digits, scale)

    def convert(value: Any) -> Any:
        try:
            if value is None or isinstance(value, Decimal):
                return value if value is None else exact(value)
        except (InvalidOperation, Inexact):
            pass
        raise SchemaMismatch(
            f"{value!r} is not a decimal of {digits} digits, {scale} of them behind the point"
        )

    return convert


def check_fields(fields: Iterable[str], types: Sequence[str]) -> None:
    """Of a struct for a union of `types`: the value of a field that is no member's would be lost
    without a word."""
    members = [f"member{number}" for number in range(len(types))]
    if foreign := sorted(set(fields) - set(members)):
        raise SchemaMismatch(
            f"a union of {' and '.join(types)} is a struct of {' and '.join(members)}, without "
            f"{' and '.join(foreign)}: rename such fields, or take them out"
        )


def member_of(value: Any, types: Sequence[str]) -> int | None:
    """Which of a union's types a struct is a value of; None for null."""
    if not isinstance(value, dict):
        raise SchemaMismatch(
            f"{value!r} is not a struct of "
            + " and ".join(f"member{number}" for number in range(len(types)))
        )
    check_fields(value, types)
    found = [name for name, one in value.items() if one is not None]
    if len(found) > 1:
        raise SchemaMismatch(f"{' and '.join(found)} are set, and a union's value is of one type")
    return int(found[0].removeprefix("member")) if found else None


# By the type, and its logical type behind it
SCALARS: dict[str, Convert] = {
    "null": _checked((), "null"),
    "boolean": _checked((bool,), "a boolean"),
    "int": _checked((int, date), "an integer of 32 bits", _fits_int),
    "int-date": _checked((int, date), "a date", _fits_date),
    "long": _long,
    "long-timestamp-millis": lambda value: _instant(_millis(value)),
    "long-timestamp-micros": _instant,
    "long-local-timestamp-millis": lambda value: _local(_millis(value)),
    "long-local-timestamp-micros": _local,
    "float": _checked((int, float), "a number that a float holds exactly", _holds("<f")),
    "double": _checked((int, float), "a number that a double holds exactly", _holds("<d")),
}
