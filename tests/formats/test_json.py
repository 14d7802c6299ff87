"""JSON as typed columns, and back."""

from __future__ import annotations

import json
import math
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_type

from eo_kafka.errors import OptionsError
from eo_kafka.formats.json.codec import JsonDecoder, NotOfSchema
from eo_kafka.formats.json.texts import encoder

UTC = timezone.utc


def read(kind: t.DataType, text: str | bytes) -> Any:
    return JsonDecoder(kind).decode(text.encode() if isinstance(text, str) else text)


def of(**fields: t.DataType) -> t.StructType:
    kind = t.StructType()
    for name, one in fields.items():
        kind.add(name, one)
    return kind


# As `spark.range(1).schema.json()` has it. Spark does not look for nulls there
NOT_NULL = (
    t.StructType()
    .add("a", t.LongType(), nullable=False)
    .add("b", t.ArrayType(t.LongType(), containsNull=False))
    .add("c", t.MapType(t.StringType(), t.LongType(), valueContainsNull=False))
)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (t.LongType(), "9223372036854775807", 2**63 - 1),
        (t.ByteType(), "-128", -128),
        (t.DoubleType(), "1e3", 1000.0),
        (t.DoubleType(), "7", 7.0),
        (t.DoubleType(), '"-Infinity"', -math.inf),
        (t.BooleanType(), "true", True),
        (t.StringType(), '"é\\u00e9"', "éé"),
        (t.StringType(), "12.50", "12.50"),
        (t.StringType(), '{"a": [1, 2.5]}', '{"a": [1, 2.5]}'),
        (
            t.StringType(),
            '{"é": [0.12345678901234567890, true]}',
            '{"\\u00e9": [0.12345678901234567890, true]}',
        ),
        (t.StringType(), "[9007199254740993.0, 1e400, null]", "[9007199254740993.0, 1E+400, null]"),
        (t.DecimalType(10, 2), "12345678.900", Decimal("12345678.90")),
        (t.DecimalType(38, 0), "9" * 38, Decimal("9" * 38)),
        (t.DecimalType(5, 2), '"1.5"', Decimal("1.50")),
        (t.BinaryType(), '"AAH/"', b"\0\1\xff"),
        (t.DateType(), '"2026-02-28"', date(2026, 2, 28)),
        (t.TimestampType(), '"2026-01-01T00:00:00Z"', datetime(2026, 1, 1, tzinfo=UTC)),
        (
            t.TimestampType(),
            '"2026-01-01T01:00:00.123456789+01:00"',
            datetime(2026, 1, 1, 0, 0, 0, 123456, tzinfo=UTC),
        ),
        (
            t.TimestampType(),
            '"2026-01-01 10:00:00.5"',
            datetime(2026, 1, 1, 10, 0, 0, 500_000, UTC),
        ),
        (t.TimestampNTZType(), '"2026-01-01T10:00:00"', datetime(2026, 1, 1, 10)),
        (t.ArrayType(t.IntegerType()), "[1,null,2]", [1, None, 2]),
        (t.MapType(t.StringType(), t.IntegerType()), '{"a":1,"b":null}', [("a", 1), ("b", None)]),
        (of(a=t.IntegerType(), b=t.StringType()), '{"b":"x","c":1}', {"a": None, "b": "x"}),
        (of(a=of(b=t.LongType())), '{"a":{"b":1}}', {"a": {"b": 1}}),
        (of(a=t.IntegerType()), "null", None),
    ],
)
def test_what_json_means(kind: t.DataType, text: str, value: Any) -> None:
    found = read(kind, text)
    assert found == value
    assert pa.array([found], to_arrow_type(kind, timezone="UTC")).null_count == (value is None)


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (of(a=t.IntegerType()), '{"a":"5"}', '$.a is no int: "5"'),
        (of(a=t.IntegerType()), '{"a":5.0}', "$.a is no int"),
        (of(a=t.IntegerType()), '{"a":true}', "$.a is no int"),
        (of(a=t.IntegerType()), '{"a":2147483648}', "$.a is no int"),
        (of(a=of(b=t.DateType())), '{"a":{"b":"2026-02-30"}}', "$.a.b is no date"),
        (of(a=t.ArrayType(t.LongType())), '{"a":[1,[2]]}', "$.a[] is no bigint"),
        (of(a=t.MapType(t.StringType(), t.LongType())), '{"a":{"x":""}}', "$.a.* is no bigint"),
        (of(a=t.LongType()), "[]", "$ is no struct"),
        (NOT_NULL, '{"b":[],"c":{}}', "$.a is null or missing, and is NOT NULL"),
        (NOT_NULL, '{"a":null,"b":[],"c":{}}', "$.a is null or missing"),
        (NOT_NULL, '{"a":1,"b":[null],"c":{}}', "$.b[] is null"),
        (NOT_NULL, '{"a":1,"b":[],"c":{"x":null}}', "$.c.* is null"),
        (t.StringType(), '"\\ud800"', "$ is no string"),
        (t.FloatType(), "1e39", "$ is no float"),
        (t.DoubleType(), "1e400", "$ is no double"),
        (t.DoubleType(), '"1"', "$ is no double"),
        (t.DecimalType(4, 2), "123.4", "$ is no decimal"),
        (t.DecimalType(4, 2), '"NaN"', "$ is no decimal"),
        (t.BinaryType(), '"A"', "$ is no binary"),
        (t.TimestampType(), '"2026-01-01"', "$ is no timestamp"),
        (t.TimestampType(), '"2026-01-01 "', "$ is no timestamp"),
        (t.TimestampType(), "1700000000", "$ is no timestamp"),
        (t.TimestampType(), json.dumps([None] * 11), "$ is no timestamp"),
        (t.TimestampNTZType(), '"2026-01-01T10:00:00Z"', "$ is no timestamp_ntz"),
        (t.LongType(), "", "it is no JSON"),
        (t.LongType(), "1 2", "it is no JSON"),
        (t.LongType(), "NaN", "it is no JSON"),
        (t.LongType(), b"\xff", "it is no JSON"),
        (t.LongType(), "[" * 100_000, "nested too deeply"),
        (t.LongType(), "1e99999999999999999999", "a number in it has an exponent"),
    ],
)
def test_what_is_not_of_the_schema_is_said(
    kind: t.DataType, text: str | bytes, reason: str
) -> None:
    with pytest.raises(NotOfSchema) as raised:
        read(kind, text)
    assert reason in str(raised.value)


def test_a_type_that_json_cannot_fill_is_refused_at_once() -> None:
    for kind in (t.MapType(t.IntegerType(), t.LongType()), t.DayTimeIntervalType()):
        with pytest.raises(OptionsError):
            JsonDecoder(of(a=kind))


def written(value: Any, kind: pa.DataType) -> str:
    (one,) = encoder(kind)(pa.array([value], kind)).to_pylist()
    return one.decode()


def test_what_is_written() -> None:
    kind = pa.struct(
        [
            ("i", pa.int64()),
            ("none", pa.string()),
            ("d", pa.decimal128(38, 3)),
            ("s", pa.string()),
            ("f", pa.float64()),
            ("nan", pa.float64()),
            ("bin", pa.binary()),
            ("day", pa.date32()),
            ("at", pa.timestamp("us", "UTC")),
            ("local", pa.timestamp("us")),
            ("list", pa.list_(pa.int32())),
            ("map", pa.map_(pa.string(), pa.int32())),
            ("empty", pa.map_(pa.string(), pa.int32())),
            ("deep", pa.struct([("x", pa.bool_())])),
        ]
    )
    value = {
        "i": 2**53 + 1,
        "none": None,
        "d": Decimal("12345678901234567890123456789012345.678"),
        "s": 'é"\n',
        "f": 0.1,
        "nan": math.nan,
        "bin": b"\0\1\xff",
        "day": date(2026, 1, 2),
        "at": datetime(2026, 1, 2, 3, 4, 5, 6000, timezone(timedelta(hours=1))),
        "local": datetime(2026, 1, 2, 3, 4, 5, 6),
        "list": [1, None],
        "map": [("a", 1), ("b", None)],
        "empty": [],
        "deep": {"x": True},
    }
    assert written(value, kind) == (
        '{"i":9007199254740993,"d":12345678901234567890123456789012345.678,"s":"é\\"\\n","f":0.1,'
        '"nan":"NaN","bin":"AAH/","day":"2026-01-02","at":"2026-01-02T02:04:05.006Z",'
        '"local":"2026-01-02T03:04:05.000006","list":[1,null],"map":{"a":1,"b":null},"empty":{},'
        '"deep":{"x":true}}'
    )


def test_what_cannot_be_written_is_refused() -> None:
    with pytest.raises(OptionsError, match="convert it first"):
        encoder(pa.struct([("a", pa.duration("us"))]))
    with pytest.raises(OptionsError, match="strings for keys"):
        encoder(pa.map_(pa.int32(), pa.int32()))


_LEAVES: list[tuple[t.DataType, st.SearchStrategy[Any]]] = [
    (t.LongType(), st.integers(-(2**63), 2**63 - 1)),
    (t.DoubleType(), st.floats(allow_nan=False)),
    (t.StringType(), st.text()),
    (t.BinaryType(), st.binary()),
    (t.BooleanType(), st.booleans()),
    (t.DateType(), st.dates()),
    (t.TimestampType(), st.datetimes(timezones=st.just(UTC), min_value=datetime(1000, 1, 1))),
    (t.TimestampNTZType(), st.datetimes(min_value=datetime(1000, 1, 1))),
    (t.DecimalType(38, 6), st.decimals(-(10**31), 10**31, places=6)),
]


@st.composite
def typed(draw: st.DrawFn) -> tuple[t.DataType, Any]:
    """A type, and a value of it."""
    leaf, values = draw(st.sampled_from(_LEAVES))
    nullable = st.none() | values
    shape = draw(st.sampled_from(["leaf", "list", "map", "struct"]))
    if shape == "list":
        return t.ArrayType(leaf), draw(st.lists(nullable))
    if shape == "map":
        pairs = draw(st.dictionaries(st.text(), nullable))
        return t.MapType(t.StringType(), leaf), list(pairs.items())
    if shape == "struct":
        kind = of(a=leaf, b=t.ArrayType(of(c=leaf)))
        inner = st.lists(st.fixed_dictionaries({"c": nullable}))
        return kind, draw(st.fixed_dictionaries({"a": nullable, "b": inner}))
    return leaf, draw(values)


@given(typed())
def test_what_is_written_is_read_again(example: tuple[t.DataType, Any]) -> None:
    kind, value = example
    shape = to_arrow_type(kind, timezone="UTC")
    (sent,) = pa.array([value], shape).to_pylist()
    (data,) = encoder(shape)(pa.array([value], shape)).to_pylist()
    json.loads(data)
    again = pa.array([JsonDecoder(kind).decode(data)], shape)
    assert again.to_pylist() == [sent]


@given(st.binary(max_size=40) | st.text().map(str.encode) | st.builds(json.dumps, st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from("abc"), inner),
)).map(str.encode))  # fmt: skip
def test_whatever_comes_is_read_or_refused(data: bytes) -> None:
    kind = of(a=t.IntegerType(), b=t.ArrayType(t.StringType()), c=t.TimestampType())
    shape = to_arrow_type(kind, timezone="UTC")
    try:
        found = JsonDecoder(kind).decode(data)
    except NotOfSchema:
        return
    pa.array([found], shape)


@pytest.mark.parametrize(
    "text", ["1.005", '"1.005"', '"1_0.0"', '" 1"', '"\\u0661"', '"NaN"', "1e-9"]
)
def test_a_decimal_that_would_be_another_one_is_bad(text: str) -> None:
    decoder = JsonDecoder(t.DecimalType(9, 2))
    assert decoder.decode(b'"1.50e1"') == decoder.decode(b"15.000")
    with pytest.raises(NotOfSchema):
        decoder.decode(text.encode())
