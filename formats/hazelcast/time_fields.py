"""Decodes dates and times of Compact and Portable values.

Each function reads the values at some places as a Spark type. They are cut to microseconds, Spark's
precision, except as text. `year` is numpy's type of the number that a date begins with; a month and
a day follow in a byte each. A time has a byte each for hour, minute and second, and four for
nanoseconds. Raise Damaged, and Arrow's ArrowInvalid for dates that Spark's calendar does not have.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, cast

import numpy as np
from pyspark.sql import types as t

from ..shared.arrow_types import arrow_type
from .places import Damaged, Places, texts

if TYPE_CHECKING:
    import pyarrow as pa

    from .places import Offsets

_DAY_US = 24 * 3600 * 10**6
_OFFSET_MAX = 18 * 3600  # Java's
_EPOCH = datetime.date(1970, 1, 1).toordinal()
_FIRST_DAY, _LAST_DAY = (one.toordinal() - _EPOCH for one in (datetime.date.min, datetime.date.max))


def time(places: Places, wanted: t.DataType, _: str) -> pa.Array:
    """A time of the day."""
    import pyarrow as pa

    nanoseconds = _clock(places)
    if isinstance(wanted, t.StringType):
        return texts([_clock_text(one) for one in nanoseconds.tolist()])
    cut = nanoseconds // 1000 * 1000
    return pa.array(cut).cast(pa.time64("ns")).cast(arrow_type(wanted))


def date(places: Places, wanted: t.DataType, year: str) -> pa.Array:
    """A day."""
    import pyarrow as pa

    days = _days(places, year)
    if isinstance(wanted, t.StringType):
        return texts([_day_text(one) for one in days.tolist()])
    return pa.array(days.astype(np.int32)).view(pa.date32())


def timestamp(places: Places, wanted: t.DataType, year: str) -> pa.Array:
    """One without a zone; as an instant it is UTC's, as JSON's are."""
    days, nanoseconds = _days(places, year), _clock(places.moved(_day_size(year)))
    if isinstance(wanted, t.StringType):
        pairs = zip(days.tolist(), nanoseconds.tolist(), strict=True)
        return texts([f"{_day_text(day)}T{_clock_text(clock)}" for day, clock in pairs])
    return _instants(days * _DAY_US + nanoseconds // 1000, wanted)


def zoned(places: Places, wanted: t.DataType, year: str) -> pa.Array:
    """The instant; the zone stays in a text only."""
    import pyarrow as pa

    offsets = places.moved(_day_size(year) + 7).numbers(">i4").astype(np.int64)
    if bool(np.any(np.abs(offsets) > _OFFSET_MAX)):
        raise Damaged("a time zone is more than 18 hours away")
    if isinstance(wanted, t.StringType):
        local = timestamp(places, wanted, year).to_pylist()
        zones = [_zone_text(one) for one in offsets.tolist()]
        return texts([time + zone for time, zone in zip(local, zones, strict=True)])
    days, nanoseconds = _days(places, year), _clock(places.moved(_day_size(year)))
    found = days * _DAY_US + nanoseconds // 1000 - offsets * 10**6
    if bool(np.any((found < _FIRST_DAY * _DAY_US) | (found >= (_LAST_DAY + 1) * _DAY_US))):
        raise pa.ArrowInvalid("it is before year 1 or after year 9999")
    return _instants(found, wanted)


def _instants(microseconds: Offsets, wanted: t.DataType) -> pa.Array:
    import pyarrow as pa

    return pa.array(microseconds).cast(arrow_type(wanted))


def _clock(places: Places) -> Offsets:
    """Nanoseconds since midnight."""
    hours, minutes, seconds = (places.moved(by).numbers(">i1").astype(np.int64) for by in range(3))
    parts = places.moved(3).numbers(">i4").astype(np.int64)
    limits = ((hours, 24), (minutes, 60), (seconds, 60), (parts, 10**9))
    if any(bool(np.any((part < 0) | (part >= most))) for part, most in limits):
        raise Damaged("a time is none of a clock")
    return ((hours * 60 + minutes) * 60 + seconds) * 10**9 + parts


def _day_size(year: str) -> int:
    return np.dtype(year).itemsize + 2


def _days(places: Places, code: str) -> Offsets:
    """Days since 1970-01-01."""
    import pyarrow as pa

    years = places.numbers(code).astype(np.int64)
    month_at = places.moved(np.dtype(code).itemsize)
    months, days = (month_at.moved(by).numbers(">i1").astype(np.int64) for by in range(2))
    if bool(np.any((years < 1) | (years > 9999))):
        raise pa.ArrowInvalid("it is before year 1 or after year 9999")
    firsts = ((years - 1970) * 12 + months - 1).astype("datetime64[M]")
    found = firsts.astype("datetime64[D]") + (days - 1)
    right = (months >= 1) & (months <= 12) & (found.astype("datetime64[M]") == firsts)
    if not bool(right.all()):
        raise Damaged("a date is none of the calendar")
    return cast("Offsets", found.astype(np.int64))


def _day_text(day: int) -> str:
    return datetime.date.fromordinal(day + _EPOCH).isoformat()


def _clock_text(nanoseconds: int) -> str:
    """As Python writes it, with nine digits where six are not enough."""
    seconds, part = divmod(nanoseconds, 10**9)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    if part % 1000:
        return f"{text}.{part:09}"
    return f"{text}.{part // 1000:06}" if part else text


def _zone_text(seconds: int) -> str:
    zone = datetime.timezone(datetime.timedelta(seconds=seconds))
    return datetime.datetime(2000, 1, 1, tzinfo=zone).isoformat()[len("2000-01-01T00:00:00") :]
