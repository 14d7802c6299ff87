"""A column of JSON that is read at once is what `JsonDecoder` gives, or it leaves a text to it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import types as t

from eo_kafka.formats.json import columns as json_columns
from eo_kafka.formats.json.codec import JsonDecoder
from eo_kafka.formats.shared.arrow_types import arrow_type
from eo_kafka.formats.shared.decoding import typed

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


def assert_same(values: list[bytes | None], kind: t.DataType = SCHEMA) -> list[int]:
    """And the rows that were left."""
    found = json_columns.decoded(pa.array(values, pa.binary()), arrow_type(kind))
    assert found is not None
    array, left = found
    array.validate(full=True)
    expected, bad = by_hand(values, kind)
    good = pa.array(np.setdiff1d(np.arange(len(values)), left))
    # As text: a zero keeps its sign.
    assert repr(array.take(good).to_pylist()) == repr(expected.take(good).to_pylist())
    assert array.take(good).equals(expected.take(good))
    assert array.take(pa.array(left)).null_count == len(left)
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


PLAIN = [
    b"null",
    b' { "n" : 1 , "x" : [ ] , "list" : [ 1 , null ] } \r\n\t'.replace(b'"x"', b'"y"'),
    b'{"list":[1,2],"n":5,"s":"order"}',
    b'{"s":"\\u00e9\\ud83d\\ude00 \\"\\\\\\/\\b\\f\\n\\r\\t"}',
    '{"s":"é€😀 of more than eight letters"}'.encode(),
    b'{"other":{"a":[{"n":1},[[]],{}],"b":"\\u0000"},"n":9}',
    b'{"other":[1.5e300,-0.0,0,true,false,null,"x"],"is":false}',
    b'{"x":2.2250738585072014e-308,"single":3.4e38}',
    b'{"x":9007199254740993,"n":-9223372036854775807}',
    b'{"x":0.1234567890123456789}',
    b'{"x":0.000000000000000000000000012345678901234567}',
    b'{"day":"1000-02-28","at":"2999-12-31T23:59:59.123456789Z"}',
    b'{"at":"2024-02-29 23:59:59-23:59","local":"1969-12-31T23:59:59.9"}',
    b'{"at":"2026-01-01T00:00:00"}',
    b'{"in":{"other":1}}',
    b'{"s":"NaN, Info and ]]]]"}',
]


@pytest.mark.parametrize("plain", PLAIN, ids=lambda value: repr(value)[2:40])
def test_what_is_plain_json_is_not_left(plain: bytes) -> None:
    assert assert_same([plain]) == []
    assert assert_same([text(), plain, None, text()]) == []


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
    b'{"x":-0.0,"single":-0}',
    b'{"other":[[[[[1]]]]]}',
    b'{"n":1},"q":{"n":2}',
    b'{"n":1}],"q":[{"n":2}',
    b'{"n":1}]]]]],"q":[[[[[{"n":2}',
    b'{"n":1}]]]]]}\n{"r":[[[[[{"n":2}',
    b'{"n":1},{"n":2}',
    b'{"n":1}],[{"n":2}',
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
    b'{"other":"a\\',
    b'{"other":"a\\u12',
    b'{"other":"\\ud800\\u0041"}',
    b'{"s":"\\uD83D\\uDE0"}',
    b'{"s":"\xed\xa0\x80"}',
    b'{"s":"\xc0\xaf"}',
    b'{"s":"\xf4\x90\x80\x80"}',
    b'{"s":"\xe2\x82',
    b'{"s":"\xf0\x9f\x98',
    b'{"\\u006e":1}',
    b'{"n":1e400}',
    b'{"x":1e-400}',
    b'{"x":5e-324}',
    b'{"x":1.7976931348623159e308}',
    b'{"x":1e99999999999999999999}',
    b'{"other":1e99999999999999999999}',
    b'{"x":12345678901234567890123}',
    b'{"x":.5}',
    b'{"x":5.}',
    b'{"x":+5}',
    b'{"x":-}',
    b'{"x":1e}',
    b'{"x":00}',
    b'{"n":-9223372036854775808}',
    b'{"n":18446744073709551615}',
    b'{"list":[1,]}',
    b'{"list":[,1]}',
    b'{"list":[1 2]}',
    b'{"list":[[1]]}',
    b'{"list":[}',
    b'{,"n":1}',
    b'{"n" 1}',
    b'{"n":}',
    b'{"n":1 "x":2}',
    b'{"other":{"a":1,}}',
    b'{"other":[1}',
    b'{"other":{]}',
    b'{"other":nul',
    b'{"other":falsy}',
    b'{"is":t',
    b"\x00{\x00}",
    b"{\x00}\x00",
    b'{"other":' + b"[" * 64 + b"]" * 64 + b"}",
    b'{"other":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    b'{"other":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001,
    b'{"other":' + b'["]]]",{"a":' * 3000 + b"1" + b"}]" * 3000 + b"}",
    b'{"other":' + b"9" * 5000 + b"}",
    b'{"other":1e-99999999999999999999}',
    b'{"x":1e-99999999999999999999}',
]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda value: repr(value)[2:40])
def test_what_is_not_quite_as_it_should_be_is_read_alike_or_left(wrong: bytes) -> None:
    assert_same([wrong])
    for beside in (text(), b'{"n":1,"s":"no list"}'):
        left = assert_same([beside, wrong, None, beside])
        assert 1 in left or not left


def test_two_halves_of_an_object_are_none() -> None:
    values: list[bytes | None] = [b'{"other":{}', b'{"n":1}}', b'{"s":"}', b'{"}', b"{}", b"{}{}"]
    assert_same(values)
    assert_same([b"{}{}", b'{"in":{}'])


def test_one_bad_value_leaves_few_to_be_read_one_by_one() -> None:
    values: list[bytes | None] = [text(n=row) for row in range(20_000)]
    values[3210] = b'{"n":"x"}'
    left = assert_same(values)
    assert 3210 in left
    assert len(left) <= 512
    told: list[int] = []
    column = typed(
        pa.array(values, pa.binary()), JsonDecoder(SCHEMA), KIND, lambda row, _: told.append(row)
    )
    assert told == [3210]
    assert column.equals(by_hand(values)[0])


@pytest.mark.parametrize(
    "kind",
    [
        t.StructType([t.StructField("b", t.BinaryType())]),
        t.MapType(t.StringType(), t.LongType()),
        # pyarrow ends the process at 1e-99999999
        t.StructType([t.StructField("sum", t.ArrayType(t.DecimalType(10, 2)))]),
        t.StructType([t.StructField("a", t.LongType()), t.StructField("a", t.LongType())]),
    ],
    ids=lambda kind: kind.simpleString(),
)
def test_types_that_are_not_read_at_once_are_left(kind: t.DataType) -> None:
    assert json_columns.decoded(pa.array([b"{}"]), arrow_type(kind)) is None


def test_a_null_where_the_schema_has_none_is_left() -> None:
    inner = t.StructType().add("n", t.LongType(), nullable=False)
    kind = t.StructType().add("in", inner).add("list", t.ArrayType(inner, containsNull=False))
    assert (
        assert_same([b'{"in":{"n":1},"list":[{"n":2}]}', b'{"in":null}', None, b"{}"], kind) == []
    )
    for wrong in (b'{"in":{}}', b'{"in":{"n":null}}', b'{"list":[null]}', b'{"list":[{}]}'):
        assert assert_same([b"{}", None, wrong], kind) == [0, 2]


def test_lists_in_lists_are_read() -> None:
    inner = t.StructType([t.StructField("s", t.StringType()), t.StructField("n", t.LongType())])
    kind = t.ArrayType(t.ArrayType(inner))
    rows = [[[{"s": "\n" * n, "n": n}] * n for n in range(size)] for size in (1, 0, 20, 3)]
    values: list[bytes | None] = [json.dumps(row).encode() for row in rows]
    assert assert_same(values, kind) == []
    assert 6 in assert_same([values[2], None, *values, b"[[{}", values[1]], kind)


def test_a_slice_of_a_column_is_read_where_it_is() -> None:
    column = pa.array([b'{"n":1}', None, b'{"n":2,"s":"\\n"}', b'{"n":"x"}', b"{}"])[2:4]
    found = json_columns.decoded(column, KIND)
    assert found is not None
    assert found[0].to_pylist() == [None, None]  # one is bad, and they are few
    assert found[1].tolist() == [0, 1]
    good = json_columns.decoded(column[:1], KIND)
    assert good is not None
    assert [(row["n"], row["s"]) for row in good[0].to_pylist()] == [(2, "\n")]


def test_doubles_are_the_nearest() -> None:
    """As Python reads them; those that are left are few."""
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 2**64, 20_000, np.uint64)
    texts = [repr(x) for x in bits.view(np.float64).tolist() if np.isfinite(x)]
    texts += [
        f"{d}e{e}" for d, e in zip(bits.tolist(), rng.integers(-345, 300, 20_000), strict=True)
    ]
    texts += [f"{d >> 40}.{d % 10**9:09}" for d in bits.tolist()]
    texts += [repr(x) for x in (bits % np.uint64(10**16) / 7.0).tolist()]
    # Halfway between two doubles, and beside it.
    halves = [(2**53 + int(d >> 11)) * 2 + 1 for d in bits.tolist()[:5000]]
    texts += [str(half + beside) for half in halves for beside in (-1, 0, 1)]
    texts += [str(n * 5**k) + f"e-{k}" for k in range(1, 5) for n in halves[:500]]
    found = json_columns.decoded(pa.array([one.encode() for one in texts]), pa.float64())
    assert found is not None
    array, left = found
    good = np.setdiff1d(np.arange(len(texts)), left)
    expected = np.array([float(one) for one in texts])[good]
    read = array.take(pa.array(good)).to_numpy()
    assert (read.view(np.int64) == expected.view(np.int64)).all()
    assert len(left) < 0.2 * len(texts)


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


dumps = st.sampled_from([{}, {"separators": (",", ":")}, {"ensure_ascii": False}, {"indent": 1}])


SIGNS = rb',:{}[]"\0-.enu'


def damaged(value: bytes, data: st.DataObject) -> bytes:
    """With one byte changed, lost or more, or cut."""
    at = data.draw(st.integers(0, len(value) - 1))
    new = data.draw(st.binary(max_size=2) | st.sampled_from(SIGNS).map(lambda one: bytes([one])))
    if data.draw(st.integers(0, 3)) == 0:
        return value[:at]
    return value[:at] + new + value[at + data.draw(st.integers(0, 2)) :]


def written(row: Any, options: dict[str, Any]) -> bytes:
    """Halves of surrogate pairs can be written as escapes only."""
    try:
        return json.dumps(row, **options).encode()
    except UnicodeEncodeError:
        return json.dumps(row).encode()


@QUICK
@given(st.lists(st.none() | objects, max_size=6), dumps, st.data())
def test_random_objects_are_read_alike_or_left(
    rows: list[Any], options: dict[str, Any], data: st.DataObject
) -> None:
    values = [None if row is None else written(row, options) for row in rows]
    if values and data.draw(st.booleans()):
        row = data.draw(st.integers(0, len(values) - 1))
        values[row] = damaged(values[row] or b"{}", data)
    assert_same(values)


flat = st.dictionaries(st.sampled_from([*GOOD, "unknown"]), atoms, max_size=4)


@QUICK
@given(st.lists(st.none() | flat, min_size=2, max_size=6), dumps, st.data())
def test_random_objects_without_lists_are_read_alike_or_left(
    rows: list[Any], options: dict[str, Any], data: st.DataObject
) -> None:
    """These are read with one bracket around each; what two lack or have too much could make up."""
    values: list[bytes | None] = [None if row is None else written(row, options) for row in rows]
    for row in data.draw(st.lists(st.integers(0, len(values) - 1), max_size=2)):
        values[row] = damaged(values[row] or b"{}", data)
    assert_same(values)


SCALARS: list[tuple[t.DataType, st.SearchStrategy[Any]]] = [
    (t.ByteType(), st.integers(-130, 130)),
    (t.ShortType(), st.integers(-(2**15), 2**15 - 1)),
    (t.IntegerType(), st.integers(-(2**31), 2**31 - 1)),
    (t.LongType(), st.integers(-(2**63), 2**63 - 1)),
    (t.FloatType(), st.floats(width=32) | st.integers(-1000, 1000)),
    (t.DoubleType(), st.floats() | st.integers(-(2**65), 2**65)),
    (t.BooleanType(), st.booleans()),
    (t.StringType(), st.text(max_size=20) | st.integers()),
    (t.DateType(), st.dates().map(str)),
    (t.TimestampType(), st.datetimes().map(str) | st.datetimes().map(lambda at: f"{at}Z")),
    (t.TimestampNTZType(), st.datetimes().map(lambda at: at.isoformat())),
]


def typed_values(depth: int) -> st.SearchStrategy[tuple[t.DataType, st.SearchStrategy[Any]]]:
    """A type, and values that are mostly of it."""
    scalars = st.sampled_from(SCALARS)
    if depth == 0:
        return scalars
    inner = typed_values(depth - 1)
    names = st.lists(st.sampled_from(["a", "ab", "é", "long-name-of-a-field"]), unique=True)
    return st.one_of(
        scalars,
        inner.map(lambda of: (t.ArrayType(of[0]), st.lists(st.none() | of[1], max_size=6))),
        names.flatmap(lambda names: st.tuples(*(st.tuples(st.just(n), inner) for n in names))).map(
            lambda fields: (
                t.StructType([t.StructField(name, of[0]) for name, of in fields]),
                st.fixed_dictionaries(
                    {}, optional={name: st.none() | of[1] for name, of in fields} | {"z": trees}
                ).flatmap(lambda one: st.permutations(list(one.items())).map(dict)),
            )
        ),
    )


@QUICK
@given(typed_values(3), dumps, st.data())
def test_random_types_are_read_alike_or_left(
    of: tuple[t.DataType, st.SearchStrategy[Any]], options: dict[str, Any], data: st.DataObject
) -> None:
    kind, one = of
    rows = data.draw(st.lists(st.none() | one, max_size=4))
    values: list[bytes | None] = [written(row, options) for row in rows]
    if values and data.draw(st.booleans()):
        values[-1] = damaged(values[-1] or b"{}", data)
    assert_same(values, kind)
