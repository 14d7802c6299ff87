"""Maps Avro schemas to Spark's types and back, as Spark's own Avro support does. No I/O.

Source: SchemaConverters of Spark's Avro module. Times of day stay numbers, as there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from pyspark.sql import types as t

from ...core.errors import SourceError

Schema: TypeAlias = "str | Mapping[str, Any] | Sequence[Any]"
Type: TypeAlias = "tuple[t.DataType, bool]"  # and whether a value may be null
Named: TypeAlias = "dict[str, Any]"

_PRIMITIVES: dict[str, type[t.DataType]] = {
    "null": t.NullType,
    "boolean": t.BooleanType,
    "int": t.IntegerType,
    "long": t.LongType,
    "float": t.FloatType,
    "double": t.DoubleType,
    "bytes": t.BinaryType,
    "string": t.StringType,
    "enum": t.StringType,
    "fixed": t.BinaryType,
}
_LOGICAL: dict[tuple[str, str], type[t.DataType]] = {
    ("int", "date"): t.DateType,
    ("long", "timestamp-millis"): t.TimestampType,
    ("long", "timestamp-micros"): t.TimestampType,
    ("long", "local-timestamp-millis"): t.TimestampNTZType,
    ("long", "local-timestamp-micros"): t.TimestampNTZType,
}
# Unions that one type holds.
_WIDER: dict[frozenset[str], type[t.DataType]] = {
    frozenset({"int", "long"}): t.LongType,
    frozenset({"float", "double"}): t.DoubleType,
}
_DECIMAL_DIGITS_MAX = 38
# A damaged count of them would fill the memory.
BARE_ITEMS = "An Avro array's items have no bytes, so that its length cannot be trusted"


def spark_type(schema: Schema) -> Type:
    """The type of a (parsed) schema's values, and whether one may be null. Raises SourceError for
    what Spark has no type for (recursion, decimals of more than 38 digits) and for `BARE_ITEMS`."""
    if has_bare_items(schema):
        raise SourceError(f"{BARE_ITEMS}: read it with a schema without that field.")
    return _type(schema, {}, ())


def _type(schema: Schema, named: Named, inside: tuple[str, ...]) -> Type:
    if isinstance(schema, str):
        if schema in _PRIMITIVES:
            return _PRIMITIVES[schema](), schema == "null"
        return _named(schema, named, inside)
    if not isinstance(schema, Mapping):
        return _union(schema, named, inside)
    kind = schema["type"]
    if not isinstance(kind, str):
        return _type(kind, named, inside)
    if kind in _NESTED:
        return _NESTED[kind](schema, named, inside), False
    if kind in ("enum", "fixed"):
        named[full_name(schema)] = schema
    return _scalar(kind, schema), kind == "null"


def _scalar(kind: str, schema: Mapping[str, Any]) -> t.DataType:
    if schema.get("logicalType") == "decimal" and kind in ("bytes", "fixed"):
        return _decimal(schema)
    logical = _LOGICAL.get((kind, str(schema.get("logicalType"))))
    return (logical or _PRIMITIVES[kind])()


def _named(name: str, named: Named, inside: tuple[str, ...]) -> Type:
    if name in inside:
        raise SourceError(
            f"Avro type '{name}' contains itself, and a Spark column cannot: keep the bytes, or "
            "read it with a schema of your own that ends somewhere."
        )
    if name not in named:
        raise SourceError(f"The Avro schema names a type '{name}' that it does not define.")
    return _type(named[name], named, inside)


def _record(
    schema: Mapping[str, Any], named: dict[str, Any], inside: tuple[str, ...]
) -> t.DataType:
    name = full_name(schema)
    named[name] = schema
    fields = []
    for field in schema["fields"]:
        kind, nullable = _type(field["type"], named, (*inside, name))
        fields.append(t.StructField(field["name"], kind, nullable))
    return t.StructType(fields)


def _array(schema: Mapping[str, Any], named: Named, inside: tuple[str, ...]) -> t.DataType:
    return t.ArrayType(*_type(schema["items"], named, inside))


def _map(schema: Mapping[str, Any], named: Named, inside: tuple[str, ...]) -> t.DataType:
    return t.MapType(t.StringType(), *_type(schema["values"], named, inside))


_NESTED = {"record": _record, "error": _record, "array": _array, "map": _map}


def _union(branches: Sequence[Any], named: Named, inside: tuple[str, ...]) -> Type:
    present = [branch for branch in branches if branch != "null"]
    nullable = len(present) < len(branches)
    if not present:
        return t.NullType(), True
    if len(present) == 1:
        return _type(present[0], named, inside)[0], nullable
    if is_one_column(present):
        return _WIDER[frozenset(present)](), nullable
    members = [
        t.StructField(f"member{number}", _type(branch, named, inside)[0], True)
        for number, branch in enumerate(present)
    ]
    return t.StructType(members), nullable


def is_one_column(present: Sequence[Any]) -> bool:
    """Whether a union's types (without null) are a single column, not a struct of one for each."""
    return len(present) < 2 or (
        all(isinstance(branch, str) for branch in present) and frozenset(present) in _WIDER
    )


def _decimal(schema: Mapping[str, Any]) -> t.DataType:
    precision, scale = int(schema["precision"]), int(schema.get("scale", 0))
    if precision > _DECIMAL_DIGITS_MAX:
        raise SourceError(
            f"An Avro decimal has {precision} digits, and Spark's have at most "
            f"{_DECIMAL_DIGITS_MAX}: read it with a schema in which it is bytes."
        )
    return t.DecimalType(precision, scale)


def full_name(schema: Mapping[str, Any]) -> str:
    """Of a record, an enum or a fixed, with its namespace."""
    name, space = str(schema["name"]), schema.get("namespace")
    return name if "." in name or not space else f"{space}.{name}"


def has_bare_items(schema: Schema) -> bool:
    """Whether there is an array in a (parsed) schema whose items are read from no bytes at all."""
    found: list[Schema] = []
    _has_bytes(schema, {}, found)
    return bool(found)


def _has_bytes(schema: Schema, named: dict[str, bool], bare: list[Schema]) -> bool:
    """Whether each value has a byte; arrays whose items have none are added to `bare`."""
    if isinstance(schema, str):
        return named.get(schema, schema != "null")
    if not isinstance(schema, Mapping):
        for branch in schema:
            _has_bytes(branch, named, bare)
        return True  # which branch it is
    kind = schema["type"]
    if not isinstance(kind, str):
        return _has_bytes(kind, named, bare)
    if kind in ("record", "error"):
        named[full_name(schema)] = True  # in itself: it ends in a union, an array or a map
        fields = [_has_bytes(field["type"], named, bare) for field in schema["fields"]]
        named[full_name(schema)] = any(fields)
        return any(fields)
    if kind == "fixed":
        named[full_name(schema)] = bool(schema["size"])
    elif kind == "array" and not _has_bytes(schema["items"], named, bare):
        bare.append(schema)
    elif kind == "map":
        _has_bytes(schema["values"], named, bare)
    return bool(schema["size"]) if kind == "fixed" else named.get(kind, kind != "null")


# --- the other way ------------------------------------------------------------------------------

_AVRO: dict[type[t.DataType], Any] = {
    t.NullType: "null",
    t.BooleanType: "boolean",
    t.ByteType: "int",
    t.ShortType: "int",
    t.IntegerType: "int",
    t.LongType: "long",
    t.FloatType: "float",
    t.DoubleType: "double",
    t.StringType: "string",
    t.BinaryType: "bytes",
    t.DateType: {"type": "int", "logicalType": "date"},
    t.TimestampType: {"type": "long", "logicalType": "timestamp-micros"},
    t.TimestampNTZType: {"type": "long", "logicalType": "local-timestamp-micros"},
}
_TOP = "topLevelRecord"


def avro_schema(kind: t.DataType) -> Any:
    """The schema that Spark's `to_avro` would make of a type; decimals are bytes, not fixed. Raises
    SourceError for what Avro has no type for."""
    return _avro(kind, _TOP, set())


def _avro(kind: t.DataType, name: str, taken: set[str]) -> Any:
    """`taken`: the names of records, of which no two may have one."""
    if isinstance(kind, t.StructType):
        while name in taken:  # field `b` in `a` beside a field `a_b`
            name += "_"
        taken.add(name)
        fields = [
            {
                "name": field.name,
                "type": _or_null(field.dataType, field.nullable, f"{name}_{field.name}", taken),
                **_default(field.nullable),
            }
            for field in kind.fields
        ]
        return {"type": "record", "name": name, "fields": fields}
    if isinstance(kind, t.ArrayType):
        return {
            "type": "array",
            "items": _or_null(kind.elementType, kind.containsNull, name, taken),
        }
    if isinstance(kind, t.MapType) and isinstance(kind.keyType, t.StringType):
        return {
            "type": "map",
            "values": _or_null(kind.valueType, kind.valueContainsNull, name, taken),
        }
    if isinstance(kind, t.DecimalType):
        size = {"precision": kind.precision, "scale": kind.scale}
        return {"type": "bytes", "logicalType": "decimal", **size}
    if type(kind) not in _AVRO:
        raise SourceError(f"Avro has no type for a column's {kind.simpleString()}: convert it.")
    return _AVRO[type(kind)]


def _or_null(kind: t.DataType, nullable: bool, name: str, taken: set[str]) -> Any:
    made = _avro(kind, name, taken)
    return ["null", made] if nullable and made != "null" else made


def _default(nullable: bool) -> dict[str, None]:
    """A field that may be null may be missing: so it can be added later."""
    return {"default": None} if nullable else {}
