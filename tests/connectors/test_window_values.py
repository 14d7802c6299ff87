"""What windows keep is held to its SQL type: Spark would keep null in its place, without a word."""

from __future__ import annotations

import decimal
import math
from datetime import date, datetime
from types import SimpleNamespace

import numpy
import pytest
from pyspark.sql import functions
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    Row,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from eo_kafka import windows
from eo_kafka.errors import OptionsError
from eo_kafka.windows.asked import Asked


@pytest.mark.parametrize(
    ("kind", "values", "fits"),
    [
        ("bigint", [2**62] * 3, False),
        ("bigint", [2**62, 2**62 - 1], True),
        ("bigint", [-(2**62)] * 3, False),
        ("decimal(38,0)", [decimal.Decimal("9" * 38), decimal.Decimal(1)], False),
        ("decimal(38,0)", [decimal.Decimal("9" * 37 + "8"), decimal.Decimal(1)], True),
        ("decimal(12,2)", [decimal.Decimal("9999999999.99")] * 2, False),
        ("double", [1e308] * 3, True),  # infinite, as Spark's
        ("double", ["1", "2"], False),
    ],
)
def test_a_sum_that_its_type_does_not_hold_is_refused(kind, values, fits):
    """Spark would keep null of it, and the window would begin anew."""
    for one in (windows.sum("n"), windows.avg("n")):
        typed, _, _ = one.types(lambda sql: kind)
        rows = [{"n": value} for value in values]

        def at_once(typed=typed, rows=rows):
            typed.add(typed.start(), rows)

        def merged(typed=typed, rows=rows):
            typed.merge(*(typed.add(typed.start(), one) for one in (rows[:-1], rows[-1:])))

        for way in (at_once, merged):
            if fits:
                way()
                continue
            with pytest.raises(ValueError, match=r"(sum|avg)\('n'\).* is no .*CAST") as refused:
                way()
            assert kind.upper() in str(refused.value)


INTS, TEXTS = ArrayType(LongType()), StringType()
PAIR = StructType().add("n", LongType()).add("x", DoubleType())


@pytest.mark.parametrize(
    ("kind", "value", "kept"),
    [
        (LongType(), None, None),
        (LongType(), 2**63 - 1, 2**63 - 1),
        (LongType(), numpy.int64(7), 7),
        (IntegerType(), -(2**31), -(2**31)),
        (DoubleType(), 1.5, 1.5),
        (DoubleType(), 2**53, float(2**53)),
        (DoubleType(), numpy.float64(1.5), 1.5),
        (DecimalType(3, 1), 12, decimal.Decimal(12)),
        (DecimalType(3, 1), decimal.Decimal("1.500"), decimal.Decimal("1.5")),
        (TEXTS, "a", "a"),
        (BooleanType(), True, True),
        (BinaryType(), b"a", b"a"),
        (DateType(), date(2026, 1, 1), date(2026, 1, 1)),
        (INTS, (1, None), [1, None]),
        (MapType(TEXTS, DoubleType()), {"a": 1}, {"a": 1.0}),
        (PAIR, {"n": 1, "x": 2}, (1, 2.0)),
        (PAIR, {"n": 1}, (1, None)),
        (ArrayType(PAIR), [Row(n=1, x=2.0)], [Row(n=1, x=2.0)]),
    ],
    ids=lambda one: repr(one)[:40],
)
def test_what_a_fold_returns_is_kept_as_its_type_has_it(kind, value, kept):
    assert folded(kind, value) == kept
    assert type(folded(kind, value)) is type(kept) or isinstance(kept, tuple)


@pytest.mark.parametrize(
    ("kind", "value", "named"),
    [
        (LongType(), 2**63, "9223372036854775808 is no BIGINT"),
        (LongType(), 1.0, "1.0 is no BIGINT"),
        (LongType(), True, "True is no BIGINT"),
        (LongType(), "1", "'1' is no BIGINT"),
        (LongType(), decimal.Decimal(1), "is no BIGINT"),
        (IntegerType(), 2**31, "2147483648 is no INT"),
        (DoubleType(), 2**53 + 1, "9007199254740993 is no DOUBLE"),
        (DoubleType(), 10**400, "is no DOUBLE"),
        (DoubleType(), "1.5", "'1.5' is no DOUBLE"),
        (DoubleType(), False, "False is no DOUBLE"),
        (DecimalType(3, 1), decimal.Decimal("1.25"), r"is no DECIMAL\(3,1\)"),
        (DecimalType(3, 1), 100, r"is no DECIMAL\(3,1\)"),
        (DecimalType(3, 1), decimal.Decimal("NaN"), r"is no DECIMAL\(3,1\)"),
        (TEXTS, 5, "5 is no STRING"),
        (TEXTS, ["a"], "is no STRING"),
        (DateType(), 5, "5 is no DATE"),
        (BinaryType(), "a", "'a' is no BINARY"),
        (INTS, {1, 2}, r"\{1, 2\} is no array<bigint>"),
        (INTS, [1, 2**63], "9223372036854775808 is no BIGINT"),
        (ArrayType(LongType(), containsNull=False), [None], "None is no BIGINT NOT NULL"),
        (MapType(TEXTS, LongType()), {"a": "b"}, "'b' is no BIGINT"),
        (MapType(TEXTS, LongType()), {None: 1}, "None is no STRING NOT NULL"),
        (PAIR, (1,), "is no struct<n:bigint,x:double>"),
        (PAIR, {"n": 1, "y": 2}, "is no struct<n:bigint,x:double>"),
        (PAIR, 1, "1 is no struct<n:bigint,x:double>"),
    ],
    ids=lambda one: repr(one)[:40],
)
def test_what_a_fold_returns_and_its_type_does_not_hold_is_refused(kind, value, named):
    with pytest.raises(ValueError, match=f"aggregates\\['mine'\\]: .*{named}.* Return"):
        folded(kind, value)


def folded(kind, value):
    """What is kept of a fold that returns this, as `asked` makes it."""
    one = windows.fold(kind.simpleString(), None, lambda kept, row: row["n"], lambda a, b: a)
    one = one.checked("mine", kind)
    return one.add(one.start(), [{"n": value}])[0]


def refused(columns, **asked):
    """What is wrong with rows of these columns, without Spark."""
    rows = SimpleNamespace(isStreaming=True, schema=columns, columns=columns.names)
    asked = {"by": ["k"], "aggregates": {"rows": windows.count()}, **asked}
    told = Asked(rows, "at", watermark="1 s", allowed_lateness="0", early=False, **asked)
    return list(told._wrong_columns())


ROWS = StructType().add("at", TimestampType()).add("k", StringType()).add("n", LongType())


def test_text_is_not_added_up():
    """Python would put one text after the other, and Spark make null of that."""
    wrong = refused(
        ROWS, aggregates={"s": windows.sum("k"), "m": windows.avg("k"), "n": windows.sum("n")}
    )
    assert len(wrong) == 2
    assert "aggregates['s']: column 'k' is text" in wrong[0]
    assert "aggregates['m']: column 'k' is text" in wrong[1]
    assert not refused(ROWS, aggregates={"first": windows.min("k"), "some": windows.count("k")})


@pytest.mark.parametrize(
    "kind",
    [
        TimestampType(),
        ArrayType(TimestampType()),
        StructType().add("day", DateType()).add("at", TimestampType()),
        StructType().add("at", MapType(StringType(), ArrayType(TimestampType()))),
    ],
    ids=lambda kind: kind.simpleString(),
)
def test_an_instant_is_no_key(kind):
    """Spark gives the key of a timer as a time of the worker's zone, without it: results were
    shifted, and where clocks are set back two instants were one."""
    rows = StructType([*ROWS.fields]).add("t", kind)
    (wrong,) = refused(rows, by=["k", "t"])
    assert wrong.startswith("by: column 't' is or holds a TIMESTAMP")
    assert "unix_micros" in wrong
    assert "date_format" in wrong
    both = refused(rows, by=["t", "missing"])
    assert len(both) == 2
    assert not refused(rows)  # elsewhere in the rows it may be
    wrong = refused(rows, aggregates={"first": windows.min("t")})
    if kind == TimestampType():
        assert not wrong  # kept as microseconds
    else:
        assert len(wrong) == 1
        assert wrong[0].startswith("aggregates['first']: column 't' holds a TIMESTAMP")


def test_dates_and_times_without_a_zone_are_keys_that_spark_gives_back_as_they_are():
    for kind, value in (
        (DateType(), date(1969, 7, 20)),
        (TimestampNTZType(), datetime(2026, 11, 1, 1, 30, 0, 7)),
        (StructType().add("t", TimestampNTZType()), (datetime(1900, 1, 1, 0, 0, 0, 1),)),
    ):
        assert not refused(StructType([*ROWS.fields]).add("t", kind), by=["t"])
        assert kind.fromInternal(kind.toInternal(value)) == value


def test_a_query_holds_its_folds_to_their_types(monkeypatch):
    """And takes no TIMESTAMP for one."""
    monkeypatch.setattr(functions, "expr", lambda sql: sql)
    monkeypatch.setattr(functions, "lit", lambda _: SimpleNamespace(cast=lambda kind: kind))
    kinds = {
        "sum(`n`)": LongType(),
        "bigint": LongType(),
        "ARRAY<INT>": ArrayType(IntegerType()),
        "ARRAY<TIMESTAMP>": ArrayType(TimestampType()),
    }
    rows = SimpleNamespace(
        schema=ROWS,
        select=lambda sql: SimpleNamespace(schema=[SimpleNamespace(dataType=kinds[sql])]),
    )

    def rules(kind):
        made = windows.fold(kind, [], lambda kept, row: [*kept, row["n"]], lambda a, b: a + b)
        both = {"total": windows.sum("n"), "mine": made}
        return Asked(rows, "at", ["k"], both, "1 s", "0", early=False)._typed({"kind": "fixed"})[0]

    made = rules("ARRAY<INT>")
    window = made.open(0, 1)
    made.add(window, [(0, {"n": 7})])
    assert made.packed(window) == (7, [7])
    with pytest.raises(ValueError, match=r"aggregates\['mine'\]: .* 2147483648 is no INT\."):
        made.add(window, [(0, {"n": 2**31})])
    with pytest.raises(ValueError, match=r"sum\('n'\): 9223372036854775814 is no BIGINT\."):
        made.add(window, [(0, {"n": 2**63 - 1})])
    with pytest.raises(OptionsError, match=r"aggregates\['mine'\]: a fold cannot be or hold"):
        rules("ARRAY<TIMESTAMP>")


def test_of_zeros_the_sign_decides_whatever_their_order():
    for zeros in ([0.0, -0.0], [-0.0, 0.0]):
        events = [{"x": zero} for zero in zeros]
        for one, sign in ((windows.min("x"), -1), (windows.max("x"), 1)):
            assert math.copysign(1, one.add(one.start(), events)[0]) == sign
            merged = one.merge(*(one.add(one.start(), [event]) for event in events))
            assert math.copysign(1, merged[0]) == sign
