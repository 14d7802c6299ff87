"""Writes values from Arrow as JSON texts, as Spark's `to_json` does. No I/O.

Nulls in structs are left out, those in arrays and maps stay; bytes in base64; decimals with all
their digits; times in ISO 8601, instants in UTC.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, TypeAlias

from ...core.errors import OptionsError

if TYPE_CHECKING:
    import pyarrow as pa

Write: TypeAlias = Callable[[Any], str]


def value_writer(kind: pa.DataType) -> Write:
    """What turns a value of an Arrow type into JSON. Raises OptionsError where JSON has nothing."""
    import pyarrow as pa

    of = pa.types
    if of.is_struct(kind):
        check_names(kind)
        write = _struct({field.name: field.type for field in kind})
    elif of.is_map(kind):
        write = _map(kind)
    elif of.is_list(kind) or of.is_large_list(kind):
        write = _array(kind)
    else:
        write = _scalar(kind)
    return lambda value: "null" if value is None else write(value)


def check_names(kind: pa.DataType) -> None:
    """Raises OptionsError for a struct with two fields of one name, of which a reader of JSON keeps
    one, and for what Spark hands over as a struct of its own bytes: VARIANT and places."""
    for word in (b"variant", b"geometry", b"geography"):
        if any((field.metadata or {}).get(word) == b"true" for field in kind):
            said = word.decode().upper()
            raise OptionsError(
                [
                    f"A column of type {said} cannot be written as JSON: convert it first, as with "
                    "to_json for a VARIANT."
                ]
            )
    names = [field.name for field in kind]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise OptionsError(
            [f"A struct has more than one field '{twice[0]}', and JSON keeps one: rename them."]
        )


def _struct(fields: dict[str, pa.DataType]) -> Write:
    inner = [(name, f"{_text(name)}:", value_writer(kind)) for name, kind in fields.items()]

    def write(value: Any) -> str:
        found = (head + one(value[name]) for name, head, one in inner if value[name] is not None)
        return "{" + ",".join(found) + "}"

    return write


def _map(kind: pa.DataType) -> Write:
    import pyarrow as pa

    if not (pa.types.is_string(kind.key_type) or pa.types.is_large_string(kind.key_type)):
        raise OptionsError([f"JSON's maps have strings for keys, not {kind.key_type}."])
    inner = value_writer(kind.item_type)
    return lambda value: "{" + ",".join(f"{_text(key)}:{inner(one)}" for key, one in value) + "}"


def _array(kind: pa.DataType) -> Write:
    inner = value_writer(kind.value_type)
    return lambda value: "[" + ",".join(map(inner, value)) + "]"


def _scalar(kind: pa.DataType) -> Write:
    import pyarrow as pa

    of = pa.types
    for fits, write in (
        (of.is_boolean, lambda value: "true" if value else "false"),
        (of.is_integer, str),
        (of.is_float32, _single),
        (of.is_floating, _float),
        (of.is_decimal, lambda value: format(value, "f")),
        (of.is_string, _text),
        (of.is_large_string, _text),
        (of.is_binary, _bytes),
        (of.is_large_binary, _bytes),
        (of.is_date, lambda value: f'"{value.isoformat()}"'),
        (of.is_timestamp, _time),
        (of.is_null, lambda value: "null"),
    ):
        if fits(kind):
            return write
    raise OptionsError([f"A column of type {kind} cannot be written as JSON: convert it first."])


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _bytes(value: bytes) -> str:
    return f'"{base64.b64encode(value).decode()}"'


def _float(value: float) -> str:
    """JSON has no words for what is no number; Spark writes them in quotes."""
    if math.isfinite(value):
        return repr(value)
    return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'


def _time(value: datetime) -> str:
    digits = "milliseconds" if value.microsecond % 1000 == 0 else "microseconds"
    if value.tzinfo is None:
        return f'"{value.isoformat(timespec=digits)}"'
    in_utc = value.astimezone(timezone.utc).replace(tzinfo=None)
    return f'"{in_utc.isoformat(timespec=digits)}Z"'


def _single(value: float) -> str:
    """With the digits that tell it from other numbers of 32 bits: 0.1, not 0.10000000149011612."""
    import numpy as np

    return _float(float(str(np.float32(value))))
