"""Repairs two faults of pika in how it reads a message's headers, in its private parts.

It cuts numbers with a fraction to whole ones, and it ends the connection at a time that Python has
no date for, as of a publisher that writes milliseconds where AMQP has seconds: such a message could
never be read, and those behind it neither.
"""

from __future__ import annotations

import struct
from datetime import datetime, timezone
from typing import Any

_FLOATS = {b"f": ">f", b"d": ">d"}
_TIME = b"T"


def repair() -> None:
    """In this process, once. Raises AttributeError where pika is another than was tried."""
    from pika import data

    original = data.decode_value
    if getattr(original, "is_repaired", False):
        return

    def decode_value(encoded: bytes, offset: int) -> tuple[Any, int]:
        kind = encoded[offset : offset + 1]
        if kind in _FLOATS:
            (number,) = struct.unpack_from(_FLOATS[kind], encoded, offset + 1)
            return number, offset + 1 + struct.calcsize(_FLOATS[kind])
        if kind == _TIME:
            (seconds,) = struct.unpack_from(">Q", encoded, offset + 1)
            return _moment(seconds), offset + 9
        found: tuple[Any, int] = original(encoded, offset)  # tables in it come back to here
        return found

    decode_value.is_repaired = True  # type: ignore[attr-defined]
    data.decode_value = decode_value


def _moment(seconds: int) -> datetime | int:
    try:
        return datetime.fromtimestamp(seconds, timezone.utc)
    except (ValueError, OverflowError, OSError):
        return seconds
