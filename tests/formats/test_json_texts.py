"""Columns that are written as JSON at once, and their values one by one: the same bytes."""

from __future__ import annotations

import math
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eo_kafka.errors import OptionsError
from eo_kafka.formats.json.texts import encoder
from eo_kafka.formats.json.writer import value_writer

UTC = timezone.utc
_TIMES = st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30))
_FLOATS = st.floats() | st.floats(-1e12, 1e12) | st.integers(-(2**53), 2**53).map(float)
_KINDS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.uint8(), st.integers(0, 255)),
    (pa.bool_(), st.booleans()),
    (pa.float64(), _FLOATS),
    (pa.float32(), st.floats(width=32)),
    (pa.string(), st.text() | st.text(st.characters(max_codepoint=127))),
    (pa.large_string(), st.text()),
    (pa.binary(), st.binary()),
    (pa.decimal128(20, 3), st.decimals(-(10**16), 10**16, places=3)),
    (pa.date32(), st.dates()),
    (pa.timestamp("us"), _TIMES),
    (pa.timestamp("us", "UTC"), _TIMES.map(lambda time: time.replace(tzinfo=UTC))),
    (pa.timestamp("us", "Asia/Tokyo"), _TIMES.map(lambda time: time.replace(tzinfo=UTC))),
    (pa.timestamp("ms"), _TIMES.map(lambda time: time.replace(microsecond=0))),
    (pa.null(), st.none()),
]


def _extended(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Of (type, values): lists, maps and structs of them."""

    def struct(members: list[tuple[pa.DataType, st.SearchStrategy[Any]]]) -> Any:
        names = [f'm{number}"' if number == 1 else f"m{number}" for number in range(len(members))]
        kinds = [pa.field(name, kind) for name, (kind, _) in zip(names, members, strict=True)]
        values = {name: st.none() | of for name, (_, of) in zip(names, members, strict=True)}
        return pa.struct(kinds), st.fixed_dictionaries(values)

    return st.one_of(
        inner.map(lambda one: (pa.list_(one[0]), st.lists(st.none() | one[1], max_size=3))),
        inner.map(
            lambda one: (
                pa.map_(pa.string(), one[0]),
                st.dictionaries(st.text(max_size=3), st.none() | one[1], max_size=3).map(
                    lambda found: list(found.items())
                ),
            )
        ),
        st.lists(inner, max_size=4).map(struct),
    )


@st.composite
def columns(draw: st.DrawFn) -> pa.Array:
    """Of any type, with nulls, and as a part of a longer one."""
    kind, values = draw(st.recursive(st.sampled_from(_KINDS), _extended, max_leaves=6))
    found = pa.array(draw(st.lists(st.none() | values, max_size=8)), kind)
    return found.slice(draw(st.integers(0, len(found))))


def one_by_one(column: pa.Array) -> list[bytes | None]:
    write = value_writer(column.type)
    return [None if value is None else write(value).encode() for value in column.to_pylist()]


@given(columns())
def test_a_column_is_written_as_its_values_are(column: pa.Array) -> None:
    assert encoder(column.type)(column).to_pylist() == one_by_one(column)


@pytest.mark.parametrize(
    "column",
    [
        pa.array(
            [sign * float(f"{digits}e{power}") for power in range(-12, 25) for digits in
             ("1", "1.5", "9.999999999999999", "9", "123.25") for sign in (1, -1)]
            + [0.0, -0.0, math.nan, math.inf, -math.inf, 9999999999.999999, 5e-324]
        ),
        pa.array([chr(code) for code in range(0x300)] + ["\u2028", "\U0001f600", '\\"', ""]),
        pa.array([datetime(1000, 1, 1), datetime(999, 12, 31), datetime(9998, 12, 31, 23, 59, 59),
                  datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(2026, 1, 1, 0, 0, 0, 1000),
                  datetime(2026, 1, 1, 0, 0, 0, 1)], pa.timestamp("us")),
        pa.array([date(1, 1, 1), date(9999, 12, 31), date(2026, 2, 3)]),
        pa.array([Decimal("0.000000001"), Decimal("12345678901.5")], pa.decimal128(30, 9)),
    ],
    ids=["floats", "texts", "times", "dates", "decimals"],
)  # fmt: skip
def test_the_edges_of_what_arrow_writes_alike(column: pa.Array) -> None:
    assert encoder(column.type)(column).to_pylist() == one_by_one(column)


@pytest.mark.parametrize(
    "kind",
    [pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("us", "Japan")],
)
def test_a_year_that_arrow_has_no_text_for_is_not_written_as_another(kind: pa.DataType) -> None:
    """Its years are counted round and round, of 16 bits: 67536 looked like 2000."""
    days = 23_947_489
    number = pa.int32() if kind == pa.date32() else pa.int64()
    column = pa.array([days if kind == pa.date32() else days * 86_400_000_000], number).cast(kind)
    with pytest.raises(OverflowError):
        encoder(kind)(column)


def test_a_null_struct_is_null_and_one_of_nulls_is_empty() -> None:
    kind = pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.string())]))])
    column = pa.array([None, {"a": None, "b": None}, {"a": 1, "b": {"c": None}}], kind)
    assert encoder(kind)(column).to_pylist() == [None, b"{}", b'{"a":1,"b":{}}']


@pytest.mark.parametrize(
    "bad", [b"a\xff", b'\xff"', b"\xed\xa0\x80"], ids=["plain", "escaped", "surrogate"]
)
@pytest.mark.parametrize("before", [0, 1])
def test_text_that_is_not_utf8_is_no_json(bad: bytes, before: int) -> None:
    """Spark and Arrow let it pass as text, and no reader of JSON does."""
    texts = pa.array([b"\xff"] * before + [b"ok", None, bad]).slice(before)
    column = texts.view(pa.string())
    for one in (column, pa.StructArray.from_arrays([column], ["a"])):
        with pytest.raises((pa.ArrowInvalid, UnicodeDecodeError)):
            encoder(one.type)(one)
    good = column.slice(0, 2)
    assert encoder(good.type)(good).to_pylist() == [b'"ok"', None]


def test_a_struct_with_two_fields_of_a_name_is_refused() -> None:
    column = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    with pytest.raises(OptionsError, match="'a'"):
        encoder(column.type)


def test_numbers_of_32_bits_have_the_digits_that_they_need():
    """As Spark's `to_json` writes them."""
    given = pa.array([0.1, 16777217.0, 3.4028235e38, 1e-45, None, float("nan")], pa.float32())
    wanted = [b"0.1", b"16777216.0", b"3.4028235e+38", b"1e-45", None, b'"NaN"']
    assert encoder(given.type)(given).to_pylist() == wanted


@pytest.mark.parametrize("word", [b"variant", b"geometry", b"geography"])
def test_what_spark_hands_over_as_its_own_bytes_is_refused(word: bytes) -> None:
    """As PySpark marks such a struct."""
    mark = pa.field("metadata", pa.binary(), metadata={word: b"true"})
    kind = pa.struct([pa.field("value", pa.binary()), mark])
    for one in (kind, pa.struct([("v", kind)]), pa.list_(kind), pa.map_(pa.string(), kind)):
        with pytest.raises(OptionsError, match=f"type {word.decode().upper()} cannot be written"):
            encoder(one)
