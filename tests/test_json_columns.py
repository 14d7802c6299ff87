"""Arrow's JSON reader is taken where it gives what `JsonDecoder` gives, and for nothing else."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import types as t

from eo_kafka.formats import json_columns
from eo_kafka.formats.arrow_types import arrow_type
from eo_kafka.formats.decoding import typed
from eo_kafka.formats.json_codec import JsonDecoder

QUICK = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
SCHEMA = t.StructType(
    [
        t.StructField("n", t.LongType()),
        t.StructField("small", t.ByteType()),
        t.StructField("x", t.DoubleType()),
        t.StructField("single", t.FloatType()),
        t.StructField("s", t.StringType()),
        t.StructField("is", t.BooleanType()),
        t.StructField("day", t.DateType()),
        t.StructField("at", t.TimestampType()),
        t.StructField("local", t.TimestampNTZType()),
        t.StructField("list", t.ArrayType(t.IntegerType())),
        t.StructField("in", t.StructType([t.StructField("times", t.ArrayType(t.DateType()))])),
    ]
)
KIND = arrow_type(SCHEMA)
GOOD = {
    "n": 1 << 60,
    "small": -128,
    "x": 0.1,
    "single": 0.1,
    "s": "a\n\u2028\U0001f600",
    "is": True,
    "day": "2026-11-21",
    "at": "2026-11-21T01:02:03.5+05:30",
    "local": "2026-11-21 01:02:03",
    "list": [1, None, 2],
    "in": {"times": ["2026-01-01"]},
    "other": [{"x": None}],
}


def by_hand(values: list[bytes | None], kind: t.DataType = SCHEMA) -> tuple[pa.Array, list[int]]:
    decoder, shape = JsonDecoder(kind), arrow_type(kind)
    found, bad = [], []
    for row, value in enumerate(values):
        try:
            one = None if value is None else decoder.decode(value)
            pa.array([one], shape)
        except Exception:
            bad.append(row)
            one = None
        found.append(one)
    return pa.array(found, shape), bad


def assert_same(values: list[bytes | None]) -> list[int]:
    """And the rows that were left."""
    found = json_columns.decoded(pa.array(values, pa.binary()), KIND)
    assert found is not None
    array, left = found
    array.validate(full=True)
    expected, bad = by_hand(values)
    good = pa.array(np.setdiff1d(np.arange(len(values)), left))
    assert array.take(good).to_pylist() == expected.take(good).to_pylist()
    assert set(bad) <= set(left.tolist())
    return left.tolist()


def text(**changes: Any) -> bytes:
    return json.dumps({**GOOD, **changes}).encode()


def test_values_of_all_types_are_read_at_once() -> None:
    values: list[bytes | None] = [text(), None, b"{}", text(**{"in": None, "list": []})]
    assert assert_same([*values, *values]) == []
    found = json_columns.decoded(pa.array(values, pa.binary()), KIND)
    assert found is not None
    assert found[0].equals(by_hand(values)[0])


WRONG = [
    b"",
    b"null",
    b"[]",
    b"{",
    b"{} {}",
    b"{}{}",
    b"\xef\xbb\xbf{}",
    b' {"n":1} ',
    b'{"n":1}}',
    b'{"n":1,}',
    b'{"n":1.0}',
    b'{"n":1e2}',
    b'{"n":true}',
    b'{"n":"1"}',
    b'{"n":9223372036854775808}',
    b'{"n":1,"n":2}',
    b'{"n":-0,"x":-0}',
    b'{"small":128}',
    b'{"x":NaN}',
    b'{"x":-Infinity}',
    b'{"other":NaN}',
    b'{"other": [1, -Inf]}',
    b'{"x":"NaN"}',
    b'{"x":1e999}',
    b'{"single":1e39}',
    b'{"single":16777217.000000001}',
    b'{"s":5}',
    b'{"s":{"b": 1, "a": [1.50]}}',
    b'{"s":"\\ud800"}',
    b'{"s":"\\udc00"}',
    b'{"s":"\xff"}',
    b'{"other":"\xff"}',
    b'{"other":"a\nb"}',
    b'{"other":"\x00"}',
    b'{"other":"\\q"}',
    b'{"other":01}',
    b'{"other":tru}',
    b'{"is":1}',
    b'{"day":"2026-1-1"}',
    b'{"day":"2026-02-30"}',
    b'{"day":"20260101"}',
    b'{"day":5}',
    b'{"at":"2026-01-01"}',
    b'{"at":"2026-01-01T00:00:00"}',
    b'{"at":"2026-01-01T00:00:00.1234567Z"}',
    b'{"at":"2026-01-01T24:00:00Z"}',
    b'{"at":"2026-01-01T00:00:60Z"}',
    b'{"at":"2026-01-01T00:00Z"}',
    b'{"at":"2026-01-01T00:00:00+0100"}',
    b'{"at":"0000-01-01T00:00:00Z"}',
    b'{"at":"9999-12-31T23:59:59Z"}',
    b'{"at":1767225600}',
    b'{"local":"2026-01-01"}',
    b'{"local":"2026-01-01T00:00:00Z"}',
    b'{"list":{}}',
    b'{"list":[1.5]}',
    b'{"in":[]}',
    b'{"in":{"times":["x"]}}',
    b'{"other":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda value: repr(value)[2:40])
def test_what_is_not_quite_as_it_should_be_is_read_alike_or_left(wrong: bytes) -> None:
    assert_same([wrong])
    left = assert_same([text(), wrong, None, text()])
    assert left in ([], [1])


def test_two_halves_of_an_object_are_none() -> None:
    values: list[bytes | None] = [b'{"other":{}', b'{"n":1}}', b'{"s":"}', b'{"}', b"{}", b"{}{}"]
    assert_same(values)
    assert_same([b"{}{}", b'{"in":{}'])


def test_one_bad_value_leaves_few_to_be_read_one_by_one() -> None:
    values: list[bytes | None] = [text(n=row) for row in range(5000)]
    values[3210] = b'{"n":"x"}'
    left = assert_same(values)
    assert 3210 in left
    assert len(left) < 50
    told: list[int] = []
    column = typed(
        pa.array(values, pa.binary()), JsonDecoder(SCHEMA), KIND, lambda row, _: told.append(row)
    )
    assert told == [3210]
    assert column.equals(by_hand(values)[0])


@pytest.mark.parametrize(
    "kind",
    [
        t.StructType([t.StructField("d", t.DecimalType(10, 2))]),
        t.StructType([t.StructField("m", t.MapType(t.StringType(), t.LongType()))]),
        t.StructType([t.StructField("b", t.BinaryType())]),
        t.StructType([]),
        t.ArrayType(t.LongType()),
        t.StringType(),
    ],
    ids=lambda kind: kind.simpleString(),
)
def test_what_arrow_reads_otherwise_is_left(kind: t.DataType) -> None:
    assert json_columns.decoded(pa.array([b"{}"]), arrow_type(kind)) is None


atoms = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**65), 2**65),
    st.integers(-200, 200),
    st.floats(),
    st.text(max_size=4),
    st.sampled_from(["2026-11-21", "2026-11-21T01:02:03Z", "2026-11-21 01:02:03", "NaN"]),
)
trees = st.recursive(
    atoms,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["times", "n", "x"]), inner, max_size=2)
    ),
    max_leaves=4,
)
objects = st.dictionaries(st.sampled_from([*GOOD, "unknown"]), trees, max_size=5)


@QUICK
@given(st.lists(st.none() | objects, max_size=6), st.data())
def test_random_objects_are_read_alike_or_left(rows: list[Any], data: st.DataObject) -> None:
    values: list[bytes | None] = [None if row is None else json.dumps(row).encode() for row in rows]
    if values and data.draw(st.booleans()):
        row = data.draw(st.integers(0, len(values) - 1))
        damaged = bytearray(values[row] or b"{}")
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
        values[row] = bytes(damaged)
    assert_same(values)
