"""Holds single values to the Avro types that they are written as, before fastavro changes them.

A value that is none of its type's, or would become another one, raises SchemaMismatch. No I/O.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from datetime import date, datetime, timezone
from typing import Any, TypeAlias

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
