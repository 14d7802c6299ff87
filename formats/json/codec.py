"""Decodes single JSON texts to values of Spark's types. No I/O.

Strict: a field of another type than the schema's makes the record a bad one, where Spark's own
`from_json` would give null without a word. Fields that are missing are null; those that the schema
does not have are passed over.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import struct
from collections.abc import Callable
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql import types as t

from ...core.errors import OptionsError
from ..shared.decimals import quantizer

if TYPE_CHECKING:
    import pyarrow as pa

    from ..shared.decoding import Rows

Read: TypeAlias = Callable[[Any], Any]


class NotOfSchema(ValueError):
    """A value is not what the schema says. The message says where: `$.price`."""


class JsonDecoder:
    """Reads JSON of one type. Raises OptionsError for types that JSON cannot fill."""

    def __init__(self, kind: t.DataType) -> None:
        self._kind = kind
        self._read = _reader(kind, "$")

    def __reduce__(self) -> tuple[type[JsonDecoder], tuple[t.DataType]]:
        return JsonDecoder, (self._kind,)

    def decode(self, data: bytes) -> Any:
        """A value for Arrow. Raises ValueError with what is wrong and where."""
        try:
            return self._read(json.loads(data, parse_float=Decimal, parse_constant=_no_constant))
        except json.JSONDecodeError as error:
            raise NotOfSchema(f"it is no JSON ({error.msg} at character {error.pos})") from None
        except UnicodeDecodeError:
            raise NotOfSchema("it is no JSON (not UTF-8)") from None
        except ArithmeticError:
            raise NotOfSchema("a number in it has an exponent that no number here has") from None
        except RecursionError:
            raise NotOfSchema("it is nested too deeply") from None

    def column(self, values: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Rows] | None:
        """As `Decoder.column` (formats/shared/decoding.py)."""
        from . import columns as json_columns

        return json_columns.decoded(values, kind)


def _no_constant(word: str) -> Any:
    raise NotOfSchema(f"it is no JSON ('{word}' is none of its words)")


# --- reading ------------------------------------------------------------------------------------


def _reader(kind: t.DataType, at: str, may_be_null: bool = True) -> Read:
    """What turns JSON's values into Arrow's; null stays null, where it may be."""
    if isinstance(kind, t.StructType):
        read = _struct(kind, at)
    elif isinstance(kind, t.ArrayType):
        read = _array(kind, at)
    elif isinstance(kind, t.MapType):
        read = _map(kind, at)
    elif type(kind) in _INTEGERS:
        read = _integer(*_INTEGERS[type(kind)])
    elif isinstance(kind, t.DecimalType):
        read = _decimal(kind)
    elif type(kind) in _SCALARS:
        read = _SCALARS[type(kind)]
    else:
        raise OptionsError(
            [f"JSON is not read as {kind.simpleString()} (at {at}): use a string and convert it."]
        )

    def nullable(value: Any) -> Any:
        if value is None:
            if may_be_null:
                return None
            raise NotOfSchema(f"{at} is null or missing, and is NOT NULL in its schema")
        try:
            return read(value)
        except NotOfSchema:
            raise
        except (ValueError, TypeError, ArithmeticError):
            found = json.dumps(value, default=str)
            shown = found if len(found) <= 60 else found[:60] + "..."
            raise NotOfSchema(f"{at} is no {kind.simpleString()}: {shown}") from None

    return nullable


def _struct(kind: t.StructType, at: str) -> Read:
    fields = [
        (field.name, _reader(field.dataType, f"{at}.{field.name}", field.nullable))
        for field in kind.fields
    ]

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise TypeError
        return {name: inner(value.get(name)) for name, inner in fields}

    return read


def _array(kind: t.ArrayType, at: str) -> Read:
    inner = _reader(kind.elementType, f"{at}[]", kind.containsNull)

    def read(value: Any) -> Any:
        if not isinstance(value, list):
            raise TypeError
        return [inner(one) for one in value]

    return read


def _map(kind: t.MapType, at: str) -> Read:
    if not isinstance(kind.keyType, t.StringType):
        raise OptionsError([f"JSON's maps have strings for keys; at {at} the schema has others."])
    inner = _reader(kind.valueType, f"{at}.*", kind.valueContainsNull)

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise TypeError
        return [(_string(name), inner(one)) for name, one in value.items()]

    return read


def _integer(low: int, high: int) -> Read:
    def read(value: Any) -> Any:
        if type(value) is not int or not low <= value <= high:
            raise ValueError
        return value

    return read


_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")


def _decimal(kind: t.DecimalType) -> Read:
    exact = quantizer(kind.precision, kind.scale)

    def read(value: Any) -> Any:
        if type(value) not in (int, Decimal, str):
            raise TypeError
        if isinstance(value, str) and not _NUMBER.fullmatch(value):
            raise ValueError  # Python takes 1_0 and blanks
        return exact(Decimal(value))

    return read


def _string(value: Any) -> Any:
    """As Spark does: what is no text is kept as its JSON."""
    if isinstance(value, str):
        value.encode()  # half a surrogate pair, which JSON can escape, is no text
        return value
    return _json(value)


def _json(value: Any) -> str:
    """With all digits of each number: a Decimal, as `json.loads` was told. `json.dumps` has none
    for it but those of a float."""
    if isinstance(value, dict):
        members = [f"{json.dumps(name)}: {_json(one)}" for name, one in value.items()]
        return "{" + ", ".join(members) + "}"
    if isinstance(value, list):
        return "[" + ", ".join([_json(one) for one in value]) + "]"
    return str(value) if isinstance(value, Decimal) else json.dumps(value)


def _boolean(value: Any) -> Any:
    if not isinstance(value, bool):
        raise TypeError
    return value


_FRACTION = re.compile(r"\.(\d+)")
_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def _float(value: Any) -> Any:
    if isinstance(value, str):
        return _WORDS[value] if value in _WORDS else _boolean(value)  # raises
    if type(value) not in (int, Decimal):
        raise TypeError
    found = float(value)
    if math.isinf(found):
        raise OverflowError
    return found


def _single(value: Any) -> Any:
    found = _float(value)
    struct.pack("<f", found)  # raises OverflowError
    return found


def _binary(value: Any) -> Any:
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error:
        raise ValueError from None


def _date(value: Any) -> Any:
    return date.fromisoformat(value)


def _timestamp(value: Any) -> Any:
    """With a zone; one without is UTC's."""
    found = _iso(value)
    return found if found.tzinfo is not None else found.replace(tzinfo=timezone.utc)


def _timestamp_ntz(value: Any) -> Any:
    found = _iso(value)
    if found.tzinfo is not None:
        raise ValueError
    return found


def _iso(value: Any) -> datetime:
    if not isinstance(value, str):
        raise TypeError
    if len(value.strip()) <= len("2026-01-01"):
        raise ValueError
    # Python 3.10 reads neither the Z nor other numbers of digits than 3 and 6.
    text, found = value.strip(), _FRACTION.search(value)
    if found:
        text = f"{value[: found.start()]}.{found[1][:6]:0<6}{value[found.end() :]}".strip()
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


_INTEGERS: dict[type[t.DataType], tuple[int, int]] = {
    t.ByteType: (-(2**7), 2**7 - 1),
    t.ShortType: (-(2**15), 2**15 - 1),
    t.IntegerType: (-(2**31), 2**31 - 1),
    t.LongType: (-(2**63), 2**63 - 1),
}
_SCALARS: dict[type[t.DataType], Read] = {
    t.StringType: _string,
    t.BooleanType: _boolean,
    t.FloatType: _single,
    t.DoubleType: _float,
    t.BinaryType: _binary,
    t.DateType: _date,
    t.TimestampType: _timestamp,
    t.TimestampNTZType: _timestamp_ntz,
}
