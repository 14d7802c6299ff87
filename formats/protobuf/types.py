"""Maps Protobuf messages to Spark's types, and checks columns that are to be written. No I/O.

Source: SchemaConverters of Spark's Protobuf module; docs/formats.md lists where this differs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor as F
from pyspark.sql import types as t

from ...core.errors import OptionsError

TIMESTAMP, DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"
_SCALARS: dict[int, t.DataType] = {
    F.TYPE_INT32: t.IntegerType(),
    F.TYPE_SINT32: t.IntegerType(),
    F.TYPE_SFIXED32: t.IntegerType(),
    F.TYPE_UINT32: t.LongType(),
    F.TYPE_FIXED32: t.LongType(),
    F.TYPE_INT64: t.LongType(),
    F.TYPE_SINT64: t.LongType(),
    F.TYPE_SFIXED64: t.LongType(),
    F.TYPE_UINT64: t.DecimalType(20, 0),
    F.TYPE_FIXED64: t.DecimalType(20, 0),
    F.TYPE_FLOAT: t.FloatType(),
    F.TYPE_DOUBLE: t.DoubleType(),
    F.TYPE_BOOL: t.BooleanType(),
    F.TYPE_STRING: t.StringType(),
    F.TYPE_BYTES: t.BinaryType(),
    F.TYPE_ENUM: t.StringType(),
}
_WHOLE = (t.ByteType, t.ShortType, t.IntegerType, t.LongType, t.DecimalType)


def is_map(field: Any) -> bool:
    """Whether a field is a map: to the library, a list of messages with a key and a value."""
    kind = field.message_type
    return kind is not None and bool(kind.GetOptions().map_entry)


def spark_type(descriptor: Any) -> t.StructType:
    """The type of a message. Raises OptionsError for one that contains itself or has no field."""
    found = _message(descriptor, ())
    if found is None:
        raise OptionsError(
            [
                f"Protobuf message '{descriptor.full_name}' has no field that a column can hold: "
                "keep the bytes."
            ]
        )
    return found


def fields(descriptor: Any) -> list[tuple[Any, t.StructField]]:
    """A message's fields that columns can hold, each with its column: those of messages without
    fields are left out, as Spark leaves them out."""
    return _fields(descriptor, ())


def _message(descriptor: Any, inside: tuple[str, ...]) -> t.StructType | None:
    if descriptor.full_name in inside:
        raise OptionsError(
            [
                f"Protobuf message '{descriptor.full_name}' contains itself, and a Spark column "
                "cannot: keep the bytes, or read it with a descriptor of your own that ends "
                "somewhere (fields that it does not have are skipped)."
            ]
        )
    found = _fields(descriptor, (*inside, descriptor.full_name))
    return t.StructType([column for _, column in found]) if found else None


def _fields(descriptor: Any, inside: tuple[str, ...]) -> list[tuple[Any, t.StructField]]:
    found = []
    for field in descriptor.fields:
        kind = _field(field, inside)
        if kind is not None:
            found.append((field, t.StructField(field.name, kind, not field.is_required)))
    return found


def _field(field: Any, inside: tuple[str, ...]) -> t.DataType | None:
    if is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        inner = _one(value, inside)
        return inner and t.MapType(_SCALARS[key.type], inner, valueContainsNull=False)
    kind = _one(field, inside)
    return t.ArrayType(kind, containsNull=False) if kind and field.is_repeated else kind


def _one(field: Any, inside: tuple[str, ...]) -> t.DataType | None:
    if field.message_type is None:
        return _SCALARS[field.type]
    if field.message_type.full_name == TIMESTAMP:
        return t.TimestampType()
    if field.message_type.full_name == DURATION:
        return t.DayTimeIntervalType()
    return _message(field.message_type, inside)


# --- the other way ------------------------------------------------------------------------------


def column_problems(descriptor: Any, kind: t.DataType, name: str) -> list[str]:
    """Why a column `name` of type `kind` cannot be written as the message, as sentences."""
    spark_type(descriptor)
    if not isinstance(kind, t.StructType):
        return [
            f"Column '{name}' is written as Protobuf message '{descriptor.full_name}', and must be "
            f"a struct of its fields; it is {kind.simpleString()}."
        ]
    return [
        f"Column '{name}' cannot be written as Protobuf message '{descriptor.full_name}': "
        f"{problem}."
        for problem in _unfit(descriptor, kind, name)
    ]


def _unfit(descriptor: Any, kind: t.StructType, at: str) -> Iterator[str]:
    known = {field.name: field for field, _ in fields(descriptor)}
    for one in kind.fields:
        if one.name not in known:
            yield f"'{at}.{one.name}' is no field of '{descriptor.full_name}'"
        else:
            yield from _unfit_field(known[one.name], one.dataType, f"{at}.{one.name}")
    for field in descriptor.fields:
        if field.is_required and field.name not in kind.names:
            yield f"'{at}.{field.name}' is required and is not there"


def _unfit_field(field: Any, kind: t.DataType, at: str) -> Iterator[str]:
    if is_map(field):
        if not isinstance(kind, t.MapType):
            yield f"'{at}' must be a map; it is {kind.simpleString()}"
            return
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        yield from _unfit_one(key, kind.keyType, f"{at}.key")
        yield from _unfit_one(value, kind.valueType, f"{at}.value")
    elif field.is_repeated:
        if not isinstance(kind, t.ArrayType):
            yield f"'{at}' must be an array; it is {kind.simpleString()}"
            return
        yield from _unfit_one(field, kind.elementType, at)
    else:
        yield from _unfit_one(field, kind, at)


def _unfit_one(field: Any, kind: t.DataType, at: str) -> Iterator[str]:
    expected = _one(field, ())
    if isinstance(expected, t.StructType) and isinstance(kind, t.StructType):
        yield from _unfit(field.message_type, kind, at)
    elif not (_fits(expected, kind) or isinstance(kind, t.NullType)):
        told = expected.simpleString() if expected else "nothing"
        yield f"'{at}' must be {told}; it is {kind.simpleString()}"


def _fits(expected: t.DataType | None, kind: t.DataType) -> bool:
    """A whole number may be of any size: it is checked when it is written."""
    if isinstance(expected, _WHOLE):
        return isinstance(kind, _WHOLE) and getattr(kind, "scale", 0) == 0
    if isinstance(expected, t.DoubleType) and isinstance(kind, t.FloatType):
        return True
    return type(expected) is type(kind)
