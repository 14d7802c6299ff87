"""The field kinds of Hazelcast's Compact and Portable, and the Spark types that fit them.

Both write them alike, other than dates. What is read here is there: that a field is null, or an
array, is each format's own business. Strict, as JSON is read: what does not fit stops the query.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, Inexact, InvalidOperation
from enum import Enum
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from pyspark.sql import types as t

from ...core.errors import OptionsError
from ..shared.arrow_types import arrow_type
from ..shared.decimals import quantizer
from . import time_fields
from .places import Damaged, Places, texts

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray


class Kind(Enum):
    """Of a field, or of an array's items."""

    BOOLEAN = "boolean"
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    CHAR = "char"
    STRING = "string"
    DECIMAL = "decimal"
    TIME = "time"
    DATE = "date"
    TIMESTAMP = "timestamp"
    ZONED = "timestamp with timezone"
    NESTED = "nested"


class NotOfSchema(ValueError):
    """A field is not what the schema says; the message says which."""


NUMBERS = {
    Kind.INT8: ">i1",
    Kind.INT16: ">i2",
    Kind.INT32: ">i4",
    Kind.INT64: ">i8",
    Kind.FLOAT32: ">f4",
    Kind.FLOAT64: ">f8",
}
_INTEGERS: tuple[type[t.DataType], ...] = (t.ByteType, t.ShortType, t.IntegerType, t.LongType)
_SINGLE_AND_DOUBLE: tuple[type[t.DataType], ...] = (t.FloatType, t.DoubleType)
_WHOLE = (*_INTEGERS, *_SINGLE_AND_DOUBLE, t.DecimalType, t.StringType)
_TIME: tuple[type[t.DataType], ...] = (t.TimeType,) if hasattr(t, "TimeType") else ()
# Spark's types that a kind can be read as; any plain one as text, in the form of `text`
FITS: dict[Kind, tuple[type[t.DataType], ...]] = {
    Kind.BOOLEAN: (t.BooleanType, t.StringType),
    **dict.fromkeys((Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT64), _WHOLE),
    **dict.fromkeys((Kind.FLOAT32, Kind.FLOAT64), (*_SINGLE_AND_DOUBLE, t.StringType)),
    Kind.CHAR: (t.StringType,),
    Kind.STRING: (t.StringType,),
    Kind.DECIMAL: (t.DecimalType, t.StringType),
    Kind.TIME: (*_TIME, t.StringType),
    Kind.DATE: (t.DateType, t.StringType),
    Kind.TIMESTAMP: (t.TimestampNTZType, t.TimestampType, t.StringType),
    Kind.ZONED: (t.TimestampType, t.StringType),
    Kind.NESTED: (t.StructType,),
}
_SCALARS = {kind for kinds in FITS.values() for kind in kinds} - {t.StructType}


def refuse_unreadable(kind: t.DataType, name: str, at: str = "$") -> None:
    """Raise OptionsError for a type that no field of the format `name` can fill."""
    if isinstance(kind, t.StructType):
        for field in kind.fields:
            refuse_unreadable(field.dataType, name, f"{at}.{field.name}")
    elif isinstance(kind, t.ArrayType) and not isinstance(kind.elementType, t.ArrayType):
        refuse_unreadable(kind.elementType, name, f"{at}[]")
    elif type(kind) not in _SCALARS and not isinstance(kind, t.BinaryType):
        raise OptionsError([f"{name} has no fields that are {kind.simpleString()} (at {at})."])


def check_fit(kind: Kind, is_array: bool, wanted: t.DataType, at: str) -> None:
    """Raise NotOfSchema unless such a field can be read as that type."""
    inner = wanted.elementType if is_array and isinstance(wanted, t.ArrayType) else wanted
    fits = type(inner) in FITS[kind] and (inner is not wanted) == is_array
    if not fits and not (is_array and kind is Kind.INT8 and isinstance(wanted, t.BinaryType)):
        words = f"an array of {kind.value}" if is_array else kind.value
        raise NotOfSchema(f"{at} is {words}, which is not read as {wanted.simpleString()}")


def scalars(kind: Kind, places: Places, wanted: t.DataType, year: str, at: str) -> pa.Array:
    """What lies at each place, as the Spark type `wanted`, which it fits. `year` is the number that
    a date begins with. Raises Damaged, NotOfSchema."""
    import pyarrow as pa

    try:
        return _READERS[kind](places, wanted, year)
    except (pa.ArrowInvalid, InvalidOperation, Inexact, OverflowError) as error:
        why = "" if isinstance(error, InvalidOperation) else f": {error}"
        why = ": it would be rounded" if isinstance(error, Inexact) else why
        raise NotOfSchema(f"{at} does not fit {wanted.simpleString()}{why}") from None


def booleans(found: NDArray[np.bool_], wanted: t.DataType) -> pa.Array:
    """Booleans, or the text of them."""
    import pyarrow as pa

    return pa.array(found).cast(arrow_type(wanted))


def _boolean(places: Places, wanted: t.DataType, _: str) -> pa.Array:
    return booleans(places.numbers(">u1") != 0, wanted)


def _number(code: str) -> _Reader:
    def read(places: Places, wanted: t.DataType, _: str) -> pa.Array:
        import pyarrow as pa

        found = places.numbers(code)
        if isinstance(wanted, t.StringType) and found.dtype.kind == "f":
            return texts([str(one) for one in found.tolist()])
        if isinstance(wanted, t.DecimalType):
            return _decimals([Decimal(one) for one in found.tolist()], wanted)
        made = pa.array(found).cast(arrow_type(wanted))
        if found.dtype.kind == "f" and not np.array_equal(found, made, equal_nan=True):
            raise OverflowError("it would be rounded, or is too large")
        return made

    return read


def _char(places: Places, _wanted: t.DataType, _: str) -> pa.Array:
    units = cast("NDArray[np.uint16]", places.numbers(">u2"))
    if bool(np.any((units >= 0xD800) & (units < 0xE000))):
        raise Damaged("a character is half of one")
    return texts([chr(unit) for unit in units.tolist()])


def _string(places: Places, _wanted: t.DataType, _: str) -> pa.Array:
    import pyarrow as pa

    found = places.moved(4).pieces(places.counts())
    try:
        return found.cast(pa.string())
    except pa.ArrowInvalid:
        raise Damaged("a text is not UTF-8") from None


def _decimal(places: Places, wanted: t.DataType, _: str) -> pa.Array:
    lengths = places.counts()
    digits = places.moved(4).pieces(lengths).to_pylist()
    scales = places.moved(4 + lengths).numbers(">i4").tolist()
    found = []
    for unscaled, scale in zip(digits, scales, strict=True):
        number = Decimal(int.from_bytes(unscaled, "big", signed=True)).as_tuple()
        found.append(Decimal((number.sign, number.digits, -scale)))
    if isinstance(wanted, t.StringType):
        return texts([str(one) for one in found])
    return _decimals(found, cast("t.DecimalType", wanted))


def _decimals(found: list[Decimal], wanted: t.DecimalType) -> pa.Array:
    """None is rounded. Raises InvalidOperation for one that is too large, and Inexact for one with
    more digits than the scale."""
    import pyarrow as pa

    exact = quantizer(wanted.precision, wanted.scale)
    return pa.array([exact(one) for one in found], arrow_type(wanted))


_Reader = Callable[[Places, t.DataType, str], Any]
_READERS: dict[Kind, _Reader] = {
    Kind.BOOLEAN: _boolean,
    **{kind: _number(code) for kind, code in NUMBERS.items()},
    Kind.CHAR: _char,
    Kind.STRING: _string,
    Kind.DECIMAL: _decimal,
    Kind.TIME: time_fields.time,
    Kind.DATE: time_fields.date,
    Kind.TIMESTAMP: time_fields.timestamp,
    Kind.ZONED: time_fields.zoned,
}
