"""Decodes and encodes single Protobuf messages with google.protobuf. No I/O.

The library skips what it does not understand, as Protobuf wants it for fields that are new. A field
that is known and was skipped all the same (of another wire type, an enum's number without a name)
is a bad value here, not a missing one. A message's methods are called by its class: a field may
have the name of one, and the message has the field then.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any, TypeAlias

from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

from .descriptors import descriptor
from .strict import Misfit, check
from .types import DURATION, TIMESTAMP, fields, is_map

Read: TypeAlias = Callable[[Any], Any]  # a message, or one of its values, for Arrow
Write: TypeAlias = Callable[[Any, Any], None]  # fills a message with what Arrow has

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)
_PER_SECOND, _NANOS = 1_000_000, 1_000_000_000
# What Protobuf says these may hold: the years 1 to 9999, and 10,000 years.
_FIRST_S, _LAST_S = -62_135_596_800, 253_402_300_799
_DURATION_MAX_S = 315_576_000_000


class Codec:
    """Of one message. Made once a process (`codec`)."""

    def __init__(self, found: Any) -> None:
        self._descriptor = found
        self._class = GetMessageClass(found)
        self._read = _reader(found)
        self._write = _writer(found)

    def decode(self, data: bytes) -> Any:
        """Raises Misfit."""
        try:
            message = self._class.FromString(data)
        except (DecodeError, UnicodeDecodeError) as error:
            raise Misfit(f"its bytes are no '{self._descriptor.full_name}': {error}") from None
        if not self._class.IsInitialized(message):
            missing = ", ".join(self._class.FindInitializationErrors(message))
            raise Misfit(f"required fields are missing: {missing}")
        if self._class.SerializeToString(message, deterministic=True) != data:
            check(data, self._descriptor)
        return self._read(message)

    def encode(self, value: Any) -> bytes:
        """The same bytes for the same value, whichever way a map is ordered. Raises Misfit, and
        what the library raises for a value that its field cannot hold."""
        message = self._class()
        self._write(message, value)
        return bytes(self._class.SerializeToString(message, deterministic=True))


@functools.lru_cache(maxsize=64)
def codec(schema: str, name: str) -> Codec:
    """For a descriptor set that was `pruned`."""
    return Codec(descriptor(schema, name))


# --- reading ------------------------------------------------------------------------------------


def _reader(found: Any) -> Read:
    name = found.full_name
    numbers = {field.number: field.name for field in found.fields}
    plan = [(field.name, _read_field(field)) for field, _ in fields(found)]

    def read(message: Any) -> dict[str, Any]:
        for left in UnknownFieldSet(message):
            if left.field_number in numbers:
                raise Misfit(
                    f"field {left.field_number} ('{numbers[left.field_number]}') of '{name}' is "
                    f"there as what it is not (wire type {left.wire_type}, or an enum's number "
                    "without a name)"
                )
        return {name: one(message) for name, one in plan}

    return read


def _read_field(field: Any) -> Read:
    name = field.name
    if is_map(field):
        key, value = (_read_one(field.message_type.fields_by_name[at]) for at in ("key", "value"))
        # By key: the library's order differs from process to process, and so would a row's bytes.
        return lambda message: [
            (key(at), value(one)) for at, one in sorted(getattr(message, name).items())
        ]
    one = _read_one(field)
    if field.is_repeated:
        return lambda message: [one(value) for value in getattr(message, name)]
    if not field.has_presence or field.has_default_value:
        return lambda message: one(getattr(message, name))
    has = GetMessageClass(field.containing_type).HasField
    return lambda message: one(getattr(message, name)) if has(message, name) else None


def _read_one(field: Any) -> Read:
    if field.enum_type is not None:
        return _read_enum(field.enum_type)
    if field.type == field.TYPE_STRING:
        return _read_string
    if field.message_type is None:
        return lambda value: value
    special: dict[str, Read] = {TIMESTAMP: _read_timestamp, DURATION: _read_duration}
    return special.get(field.message_type.full_name) or _reader(field.message_type)


def _read_string(value: Any) -> str:
    if not isinstance(value, str):  # proto2 does not ask for UTF-8, and the library gives bytes
        raise Misfit("a string is not UTF-8")
    return value


def _read_enum(kind: Any) -> Read:
    names: dict[int, str] = {}
    for value in kind.values:
        names.setdefault(value.number, value.name)  # of several the first, as in Java

    def read(number: int) -> str:
        if number not in names:
            raise Misfit(f"enum '{kind.full_name}' has no name for {number}")
        return names[number]

    return read


def _read_timestamp(value: Any) -> int:
    _check_nested(value)
    seconds, nanos = value.seconds, value.nanos
    if not (_FIRST_S <= seconds <= _LAST_S and 0 <= nanos < _NANOS):
        raise Misfit(f"a timestamp of {seconds} s and {nanos} ns is none")
    return int(seconds * _PER_SECOND + nanos // 1000)


def _read_duration(value: Any) -> int:
    _check_nested(value)
    seconds, nanos = value.seconds, value.nanos
    signs_differ = (seconds > 0 > nanos) or (seconds < 0 < nanos)
    if abs(seconds) > _DURATION_MAX_S or abs(nanos) >= _NANOS or signs_differ:
        raise Misfit(f"a duration of {seconds} s and {nanos} ns is none")
    whole = abs(seconds) * _PER_SECOND + abs(nanos) // 1000
    return int(whole if seconds > 0 or nanos > 0 else -whole)


def _check_nested(value: Any) -> None:
    for left in UnknownFieldSet(value):
        if left.field_number in (1, 2):
            raise Misfit(f"field {left.field_number} of a time has wire type {left.wire_type}")


# --- writing ------------------------------------------------------------------------------------


def _writer(found: Any) -> Write:
    plan = {field.name: _write_field(field) for field, _ in fields(found)}
    either = [[field.name for field in one.fields] for one in found.oneofs]
    either = [names for names in either if len(names) > 1]
    required = [field.name for field in found.fields if field.is_required]

    def write(message: Any, value: Any) -> None:
        for names in either:
            given = [name for name in names if value.get(name) is not None]
            if len(given) > 1:
                raise Misfit(f"only one of {', '.join(given)} may be set: they are one 'oneof'")
        for name in required:
            if value.get(name) is None:
                raise Misfit(f"field '{name}' is required and is null")
        for name, one in value.items():
            if one is not None:
                plan[name](message, one)

    return write


def _write_field(field: Any) -> Write:
    name, kind = field.name, field.message_type
    if is_map(field):
        return _write_map(field)
    if kind is not None:
        fill = _fill(kind)
        if field.is_repeated:

            def write_messages(message: Any, values: Any) -> None:
                for value in values:
                    fill(getattr(message, name).add(), _there(value, name))

            return write_messages

        def write_message(message: Any, value: Any) -> None:
            inner = getattr(message, name)
            type(inner).SetInParent(inner)
            fill(inner, value)

        return write_message
    convert = _scalar(field)
    if field.is_repeated:

        def write_values(message: Any, values: Any) -> None:
            getattr(message, name).extend([convert(_there(value, name)) for value in values])

        return write_values
    return lambda message, value: setattr(message, name, convert(value))


def _write_map(field: Any) -> Write:
    name = field.name
    key, value = (field.message_type.fields_by_name[at] for at in ("key", "value"))
    as_key = _scalar(key)
    if value.message_type is not None:
        fill = _fill(value.message_type)

        def write_messages(message: Any, pairs: Any) -> None:
            _check_keys(pairs, name)
            for at, one in pairs:
                fill(getattr(message, name)[as_key(at)], _there(one, name))

        return write_messages
    convert = _scalar(value)

    def write(message: Any, pairs: Any) -> None:
        into = getattr(message, name)
        _check_keys(pairs, name)
        for at, one in pairs:
            into[as_key(at)] = convert(_there(one, name))

    return write


def _check_keys(pairs: Any, name: str) -> None:
    if len({at for at, _ in pairs}) < len(pairs):
        raise Misfit(f"field '{name}' has a key twice, and Protobuf's maps keep one of them")


def _there(value: Any, name: str) -> Any:
    if value is None:
        raise Misfit(f"field '{name}' holds a null, and Protobuf's lists and maps hold none")
    return value


def _fill(kind: Any) -> Write:
    special: dict[str, Write] = {TIMESTAMP: _write_timestamp, DURATION: _write_duration}
    return special.get(kind.full_name) or _writer(kind)


def _write_timestamp(message: Any, value: datetime) -> None:
    seconds, micros = divmod((value - _EPOCH) // _MICROSECOND, _PER_SECOND)
    message.seconds, message.nanos = seconds, micros * 1000


def _write_duration(message: Any, value: timedelta) -> None:
    whole = value // _MICROSECOND
    seconds, micros = divmod(abs(whole), _PER_SECOND)
    if seconds > _DURATION_MAX_S:
        raise Misfit(f"a duration of {seconds} s is longer than Protobuf's may be")
    sign = -1 if whole < 0 else 1
    message.seconds, message.nanos = sign * seconds, sign * micros * 1000


def _scalar(field: Any) -> Read:
    if field.enum_type is not None:
        numbers = {value.name: value.number for value in field.enum_type.values}
        full = field.enum_type.full_name

        def number(name: str) -> int:
            if name not in numbers:
                raise Misfit(f"enum '{full}' has no '{name}'")
            return int(numbers[name])

        return number
    if field.cpp_type in (
        field.CPPTYPE_INT32,
        field.CPPTYPE_INT64,
        field.CPPTYPE_UINT32,
        field.CPPTYPE_UINT64,
    ):
        return int
    return lambda value: value
