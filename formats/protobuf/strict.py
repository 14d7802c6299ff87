"""Looks into a message's bytes for what the library would change without a word. No I/O.

Numbers that are too long for their field are cut off by the library, as when the writer's field is
wider, or a tenth byte holds more than the 64th bit. Bytes that the library would write the same way
hold nothing of that kind, so that few values are looked at here: those of other encoders' orders.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import FieldDescriptor as F

_VARINT, _FIXED64, _SIZED, _GROUP, _GROUP_END, _FIXED32 = range(6)
_WIRE = {
    **dict.fromkeys((F.TYPE_FIXED64, F.TYPE_SFIXED64, F.TYPE_DOUBLE), _FIXED64),
    **dict.fromkeys((F.TYPE_FIXED32, F.TYPE_SFIXED32, F.TYPE_FLOAT), _FIXED32),
    **dict.fromkeys((F.TYPE_STRING, F.TYPE_BYTES, F.TYPE_MESSAGE), _SIZED),
    F.TYPE_GROUP: _GROUP,
}
_END = 1 << 64
# What a varint may be besides what it is by itself: negative numbers fill all 64 bits.
_SIGNED = {F.TYPE_INT32, F.TYPE_ENUM}
_LIMITS = {
    F.TYPE_INT32: 1 << 31,
    F.TYPE_ENUM: 1 << 31,
    F.TYPE_UINT32: 1 << 32,
    F.TYPE_SINT32: 1 << 32,
    F.TYPE_BOOL: 2,
}


class Misfit(ValueError):
    """A value is none of what its message allows."""


def check(data: bytes, found: Any) -> None:
    """`data` is what the library took as a message. Raises Misfit."""
    try:
        _walk(data, 0, len(data), found)
    except IndexError:
        raise Misfit(f"its bytes are no '{found.full_name}'") from None


def _walk(data: bytes, at: int, end: int, found: Any, group: int = 0) -> int:
    """Where the message ends. `found` is None in what the descriptor does not have."""
    fields = {} if found is None else found.fields_by_number
    while at < end:
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == _GROUP_END and number == group:
            return at
        field = fields.get(number)
        if field is not None:
            _check_wire(field, wire)
        inner = None if field is None else field.message_type
        if wire == _VARINT:
            value, at = _varint(data, at)
            if field is not None:
                _check_number(field, value)
        elif wire == _SIZED:
            size, at = _varint(data, at)
            if inner is not None:
                _walk(data, at, at + size, inner)
            elif field is not None and _WIRE.get(field.type, _VARINT) == _VARINT:
                _check_packed(data, at, at + size, field)
            at += size
        elif wire == _GROUP:
            at = _walk(data, at, end, inner, number)
        else:
            at += 8 if wire == _FIXED64 else 4
    return at


def _check_wire(field: Any, wire: int) -> None:
    expected = _WIRE.get(field.type, _VARINT)
    packed = wire == _SIZED and field.is_repeated and expected in (_VARINT, _FIXED64, _FIXED32)
    if wire != expected and not packed:
        raise Misfit(
            f"field {field.number} ('{field.name}') of '{field.containing_type.full_name}' has "
            f"wire type {wire}, and not {expected}"
        )


def _check_packed(data: bytes, at: int, end: int, field: Any) -> None:
    while at < end:
        value, at = _varint(data, at)
        _check_number(field, value)


def _check_number(field: Any, value: int) -> None:
    limit = _LIMITS.get(field.type, _END)
    if value < limit or (field.type in _SIGNED and _END - limit <= value < _END):
        return
    raise Misfit(
        f"field {field.number} ('{field.name}') of '{field.containing_type.full_name}' holds a "
        f"number that is too long for it ({value})"
    )


def _varint(data: bytes, at: int) -> tuple[int, int]:
    found = shift = 0
    while True:
        byte = data[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found, at
        shift += 7
