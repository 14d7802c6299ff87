"""Columns that are written as Avro at once, and their values one by one: the same bytes."""

from __future__ import annotations

import itertools
import json
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from test_avro_columns import OF_SCALARS, leaves, nested, numbered, schemas

from eo_kafka.formats.avro import pieces
from eo_kafka.formats.avro.codec import Encoder, parsed
from eo_kafka.formats.avro.fitting import SchemaMismatch
from eo_kafka.formats.avro.types import spark_type
from eo_kafka.formats.shared import encoding, registry
from eo_kafka.formats.shared.arrow_types import arrow_type

QUICK = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
UTC = timezone.utc
# The first and the last year are left to the encoder of single values
_TIMES = st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 30))
_DATES = st.dates(date(2, 1, 1), date(9998, 12, 30))
_ZONED = _TIMES.map(lambda time: time.replace(tzinfo=UTC))


def _in_millis(time: datetime) -> datetime:
    """One with a part of a millisecond is no value of such a schema, and is refused."""
    return time.replace(microsecond=time.microsecond // 1000 * 1000)


_LOGICAL: dict[str, st.SearchStrategy[Any]] = {
    "date": _DATES,
    "timestamp-millis": _ZONED.map(_in_millis),
    "timestamp-micros": _ZONED,
    "local-timestamp-millis": _TIMES.map(_in_millis),
    "local-timestamp-micros": _TIMES,
}


def values_of(schema: Any) -> st.SearchStrategy[Any]:
    """Values of a column that a schema takes, as Arrow has them."""
    if isinstance(schema, list):
        present = [values_of(one) for one in schema if one != "null"]
        if len(present) > 1:
            members = enumerate(present)
            present = [value.map(lambda one, at=at: {f"member{at}": one}) for at, value in members]
        return st.one_of(*[st.none()] * ("null" in schema), *present)
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind == "record":
        fields = {one["name"]: values_of(one["type"]) for one in schema["fields"]}
        return st.fixed_dictionaries(fields)
    if kind == "array":
        return st.lists(values_of(schema["items"]), max_size=3)
    if kind == "map":
        found = st.dictionaries(st.text(max_size=3), values_of(schema["values"]), max_size=3)
        return found.map(lambda pairs: list(pairs.items()))
    if isinstance(schema, str):
        return OF_SCALARS[schema]
    if schema.get("logicalType") == "decimal":
        most = 10 ** schema["precision"] - 1
        return st.integers(-most, most).map(lambda one: Decimal(f"{one}E-{schema['scale']}"))
    if kind == "enum":
        return st.sampled_from(schema["symbols"])
    if kind == "fixed":
        return st.binary(min_size=schema["size"], max_size=schema["size"])
    return _LOGICAL[schema["logicalType"]]


def any_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Any values of a column's type, nulls among them."""
    of = pa.types
    if of.is_struct(kind):
        found = st.fixed_dictionaries({one.name: any_of(one.type) for one in kind})
    elif of.is_map(kind):
        found = st.lists(st.tuples(st.text(max_size=1), any_of(kind.item_type)), max_size=3)
    elif of.is_list(kind) or of.is_large_list(kind):
        found = st.lists(any_of(kind.value_type), max_size=3)
    else:
        found = _any_scalar(kind)
    return st.none() | found


def _any_scalar(kind: pa.DataType) -> st.SearchStrategy[Any]:
    of = pa.types
    if of.is_decimal(kind):
        most = 10**kind.precision - 1
        return st.integers(-most, most).map(lambda one: Decimal(f"{one}E-{kind.scale}"))
    if of.is_timestamp(kind):
        return _TIMES if kind.tz is None else _ZONED
    if of.is_null(kind):
        return st.none()
    for fits, found in (
        (of.is_boolean, st.booleans()),
        (of.is_int32, st.integers(-(2**31), 2**31 - 1)),
        (of.is_int8, st.integers(-128, 127)),
        (of.is_int64, st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-1000, 1000))),
        (of.is_integer, st.integers(0, 2**64 - 1)),
        (of.is_float16, st.floats(width=16)),
        (of.is_float32, st.floats(width=32)),
        (of.is_floating, st.floats()),
        (of.is_date, st.dates()),
        (of.is_string, st.sampled_from(["A", "Z"]) | st.text(max_size=5)),
        (of.is_large_string, st.text(max_size=5)),
    ):
        if fits(kind):
            return found
    if of.is_fixed_size_binary(kind):
        return st.binary(min_size=3, max_size=3)
    return st.binary(max_size=5)


def part(draw: st.DrawFn, rows: list[Any], kind: pa.DataType) -> pa.Array:
    """A column, as a part of a longer one."""
    column = pa.array(rows, kind)
    first = draw(st.integers(0, len(column)))
    return column.slice(first, draw(st.integers(0, len(column) - first)))


def kind_of(schema: Any) -> pa.DataType:
    return arrow_type(spark_type(parsed(schema))[0])


def one_by_one(schema: Any, column: pa.Array, head: bytes = b"") -> list[bytes | None]:
    write = Encoder(parsed(schema)).encode
    found: list[bytes | None] = encoding.one_by_one(
        column, lambda value: head + write(value), pa.binary()
    ).to_pylist()
    return found


def at_once(schema: Any, column: pa.Array, number: int | None = None) -> list[bytes | None]:
    """Without a value that is left to the encoder of single ones."""
    text, head = json.dumps(schema), b"" if number is None else registry.pack(number, b"")
    write = pieces._writer(text, column.type)
    assert write is not None
    found = pieces._encoded(column, write, head)
    found.validate(full=True)
    assert found.equals(pieces.encoder(text, column.type, number)(column))
    values: list[bytes | None] = found.to_pylist()
    return values


@st.composite
def good(draw: st.DrawFn) -> tuple[Any, pa.Array]:
    """A schema, and a column of its values."""
    schema = draw(schemas)
    rows = draw(st.lists(st.none() | values_of(schema), max_size=6))
    return schema, part(draw, rows, kind_of(schema))


@QUICK
@given(good(), st.none() | st.integers(0, 2**31 - 1))
def test_a_column_is_written_as_its_values_are(
    given: tuple[Any, pa.Array], number: int | None
) -> None:
    schema, column = given
    head = b"" if number is None else registry.pack(number, b"")
    assert at_once(schema, column, number) == one_by_one(schema, column, head)


def result(encode: Any, *arguments: Any) -> Any:
    """What it gives, or that it refuses."""
    try:
        return encode(*arguments)
    except Exception as error:
        return type(error), str(error)


def encoded(schema: Any, column: pa.Array) -> list[bytes | None]:
    values: list[bytes | None] = pieces.encoder(json.dumps(schema), column.type)(column).to_pylist()
    return values


@QUICK
@given(st.data())
def test_what_does_not_fit_is_refused_alike(data: st.DataObject) -> None:
    schema = data.draw(schemas)
    kind = kind_of(schema)
    column = part(data.draw, data.draw(st.lists(any_of(kind), max_size=3)), kind)
    assert result(encoded, schema, column) == result(one_by_one, schema, column)


KINDS = [
    *(pa.int8(), pa.int64(), pa.uint64(), pa.float32(), pa.float64(), pa.bool_(), pa.null()),
    *(pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.binary(3), pa.date32()),
    *(pa.timestamp("us", zone) for zone in (None, "UTC", "Asia/Tokyo")),
    *(pa.decimal128(20, 3), pa.decimal128(5, 5), pa.decimal128(38, 1), pa.float16()),
    *(pa.list_(pa.int32()), pa.large_list(pa.int64()), pa.map_(pa.string(), pa.int64())),
    *(pa.struct([("f0", pa.int64())]), pa.struct([("member0", pa.string())]), pa.struct([])),
]


def of_schema(kind: Any) -> Any:
    """A record of one field, whose own types need names."""
    return numbered({"type": "record", "fields": [{"name": "f0", "type": kind}]}, itertools.count())


@QUICK
@given(st.data())
def test_columns_of_other_types_are_written_or_refused_alike(data: st.DataObject) -> None:
    schema = of_schema(data.draw(st.one_of(leaves, nested(leaves))))
    kind = pa.struct([("f0", data.draw(st.sampled_from(KINDS)))])
    assume(not isinstance(result(pieces.encoder, json.dumps(schema), kind), tuple))  # no union's
    column = part(data.draw, data.draw(st.lists(any_of(kind), max_size=3)), kind)
    assert result(encoded, schema, column) == result(one_by_one, schema, column)


def decimal(digits: int, scale: int, **rest: Any) -> Any:
    kind = {"type": "bytes", "logicalType": "decimal", "precision": digits, "scale": scale}
    return {**kind, **rest}


POWERS = sorted({sign * 2**power + near for power in range(126) for near in (-1, 0, 1)
                 for sign in (1, -1)})  # fmt: skip
LONGS = [number for number in POWERS if -(2**63) <= number < 2**63] + [-(2**63)]
INTS = {"type": "array", "items": "int"}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
FIXED = {"type": "fixed", "name": "F", "size": 9}


@pytest.mark.parametrize(
    ("schema", "column"),
    [
        ("long", pa.array(LONGS)),
        ("int", pa.array([one for one in LONGS if abs(one) < 2**31])),
        (decimal(38, 0), pa.array(map(Decimal, POWERS), pa.decimal128(38, 0))),
        (
            decimal(20, 4, **FIXED),
            pa.array([Decimal(one).scaleb(-4) for one in LONGS], pa.decimal128(20, 4)),
        ),
        ("string", pa.array(["", "n" * 63, "n" * 64, "\U0001f600" * 5000], pa.large_string())),
        ("bytes", pa.array([b"", b"n" * 8191, b"n" * 8192], pa.large_binary())),
        (MILLIS, pa.array([-1000, 0, 999_000, 10**15], pa.timestamp("us", "UTC"))),
        (INTS, pa.array([[1] * 64, [], None, [2]], pa.large_list(pa.int8()))),
        ("float", pa.array([2**-149, 3.4028234663852886e38, -0.0, float("inf")])),
        ("float", pa.array([2**24, -(2**24)])),
        ("double", pa.array([2**53, -(2**53)])),
    ],
    ids=str,
)  # fmt: skip
def test_the_edges_of_what_is_written_at_once(schema: Any, column: pa.Array) -> None:
    assert at_once(schema, column) == one_by_one(schema, column)
    assert at_once(schema, column.slice(1, 2)) == one_by_one(schema, column.slice(1, 2))
    assert at_once(schema, column.slice(1, 0)) == []


@pytest.mark.parametrize(
    ("schema", "column"),
    [
        ({"type": "int", "logicalType": "date"}, pa.array([-719162, 2932896], pa.date32())),
        ("string", pa.array(["a", "b", None, "a"]).dictionary_encode()),
        (["null", "int", "long"], pa.array([1, 2**40, None])),
        (decimal(9, 2), pa.array([Decimal("1.5")], pa.decimal128(9, 1))),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_left_to_the_encoder_of_single_values(schema: Any, column: pa.Array) -> None:
    assert encoded(schema, column) == one_by_one(schema, column)
    with pytest.raises((AssertionError, pieces.Left)):
        at_once(schema, column)


@pytest.mark.parametrize(
    ("schema", "column"),
    [
        ("float", pa.array([0.1])),
        ("float", pa.array([1e-50])),
        ("float", pa.array([2**24 + 1], pa.int32())),
        ("double", pa.array([2**53 + 1])),
        ("double", pa.array([2**63 - 1])),
        ("double", pa.array([True])),
        ("int", pa.array([True])),
        (MILLIS, pa.array([-1], pa.timestamp("us", "UTC"))),
        (
            {"type": "map", "values": "int"},
            pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int8())),
        ),
    ],
    ids=str,
)
def test_a_column_with_a_number_that_would_change_is_refused(schema: Any, column: pa.Array) -> None:
    with pytest.raises(SchemaMismatch):
        encoded(schema, column)


@pytest.mark.parametrize("numbers", [[2**30, -(2**31)], [2**62, -(2**63)]], ids=str)
def test_large_numbers_that_a_double_or_float_holds_are_written(numbers: list[int]) -> None:
    for kind in ("float", "double"):
        assert encoded(kind, pa.array(numbers)) == one_by_one(kind, pa.array(numbers))


def test_a_field_without_a_column_has_its_default() -> None:
    fields = [
        {"name": "n", "type": "int", "default": 7},
        {"name": "a", "type": "long"},
        {"name": "s", "type": "string", "default": "none"},
        {"name": "o", "type": ["null", {"type": "array", "items": "int"}], "default": None},
    ]
    schema = {"type": "record", "name": "R", "fields": fields}
    column = pa.array([{"a": 1}, None, {"a": 300}])
    assert at_once(schema, column) == one_by_one(schema, column)
    fields[3] = {"name": "o", "type": {"type": "array", "items": "int"}, "default": [1]}
    assert encoded(schema, column) == one_by_one(schema, column)
    fields[3] = {"name": "o", "type": "int"}
    with pytest.raises(ValueError, match="missing from the record"):
        encoded(schema, column)


UNIONS: list[list[Any]] = [
    ["null", "int", "long"],
    ["string", {"type": "enum", "symbols": ["A"]}],
    [{"type": "int", "logicalType": "date"}, "string"],
    [{"type": "array", "items": "int"}, "bytes"],
    ["null", {"type": "fixed", "size": 3}, "string"],
    ["double", "long", "boolean"],
    [{"type": "map", "values": "int"}, {"type": "record", "fields": []}],
    ["string", "bytes", "long", "boolean", {"type": "array", "items": "int"}],
    ["long", "null", {"type": "map", "values": "int"}],
    ["long"],
    ["null"],
    [],
]


@pytest.mark.parametrize("union", UNIONS, ids=str)
@settings(QUICK, max_examples=20)
@given(st.data())
def test_unions_of_types_that_are_alike_are_written_alike(
    union: list[Any], data: st.DataObject
) -> None:
    schema = of_schema({"type": "array", "items": union})
    try:
        kind = kind_of(schema)
    except Exception:
        kind = pa.struct([("f0", pa.list_(pa.null()))])
    column = pa.array(data.draw(st.lists(any_of(kind), max_size=4)), kind)
    assert result(encoded, schema, column) == result(one_by_one, schema, column)
