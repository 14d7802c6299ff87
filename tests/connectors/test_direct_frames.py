"""Transforms that are written for frames: every value comes out as it went in, or is refused."""

from __future__ import annotations

import datetime
import pickle
from decimal import Decimal
from importlib import util
from uuid import UUID
from zoneinfo import ZoneInfo

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from pyspark import cloudpickle

from eo_kafka import pandas_frames, polars_frames
from eo_kafka.connectors.direct.frames import FrameTransform
from eo_kafka.connectors.direct.shape import in_shape
from eo_kafka.core.errors import OptionsError, SinkError

BOTH = pytest.mark.parametrize("frames", [pandas_frames, polars_frames])
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
YEAR = datetime.timezone.utc, datetime.datetime(1, 1, 2), datetime.datetime(9999, 12, 30)
TIMES = st.datetimes(YEAR[1], YEAR[2])
# As Spark has them: a type, and values of it
KINDS = {
    "boolean": (pa.bool_(), st.booleans()),
    "tinyint": (pa.int8(), st.integers(-(2**7), 2**7 - 1)),
    "int": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "bigint": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "float": (pa.float32(), st.floats(width=32)),
    "double": (pa.float64(), st.floats()),
    "decimal": (
        pa.decimal128(38, 10),
        st.integers(-(10**38) + 1, 10**38 - 1).map(
            lambda one: Decimal((int(one < 0), tuple(map(int, str(abs(one)))), -10))
        ),
    ),
    "string": (pa.string(), st.text()),
    "binary": (pa.binary(), st.binary()),
    "date": (pa.date32(), st.dates()),
    "timestamp": (pa.timestamp("us", "UTC"), TIMES.map(lambda one: one.replace(tzinfo=YEAR[0]))),
    "timestamp_ntz": (pa.timestamp("us"), TIMES),
    "interval": (pa.duration("us"), st.timedeltas().filter(lambda one: abs(one.days) < 10**8)),
    "headers": (
        HEADERS,
        st.lists(st.fixed_dictionaries({"key": st.text(), "value": st.none() | st.binary()})),
    ),
    "struct": (
        pa.struct([("n", pa.int64()), ("inner", pa.struct([("b", pa.binary())]))]),
        st.fixed_dictionaries(
            {
                "n": st.none() | st.integers(-(2**63), 2**63 - 1),
                "inner": st.fixed_dictionaries({"b": st.none() | st.binary()}),
            }
        ),
    ),
    "map": (
        pa.map_(pa.string(), pa.int64()),
        st.dictionaries(st.text(), st.none() | st.integers(-(2**63), 2**63 - 1)).map(
            lambda one: list(one.items())
        ),
    ),
}
SHAPE = pa.schema([(name, kind) for name, (kind, _) in KINDS.items()])
ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | values for name, (_, values) in KINDS.items()}),
    max_size=4,
)


def same(frames):
    yield from frames


def run(transform: FrameTransform, batch: pa.RecordBatch, shape: pa.Schema) -> pa.RecordBatch:
    (made,) = transform.written_as(shape)(iter([batch]))
    return in_shape(made, shape)


@BOTH
@settings(max_examples=30, deadline=None)
@given(rows=ROWS)
def test_what_is_handed_on_is_what_came_in(frames, rows) -> None:
    """NaN too, which is no null; by what Python sees of both."""
    batch = pa.RecordBatch.from_pylist(rows, schema=SHAPE)
    made = run(frames(same), batch, SHAPE)
    assert made.schema == SHAPE
    assert repr(made.to_pylist()) == repr(batch.to_pylist())
    assert [column.null_count for column in made] == [column.null_count for column in batch]


@BOTH
def test_a_null_record_of_which_no_field_may_be_null_is_handed_on(frames) -> None:
    """As Avro's decoder makes it: nulls below it are nulls, too. pandas would have Arrow look."""
    field = pa.field("street", pa.string(), nullable=False)
    street = pa.StructArray.from_arrays(
        [pa.array(["x", None])], fields=[field], mask=pa.array([False, True])
    )
    whole = pa.StructArray.from_arrays(
        [street, street], fields=[pa.field(name, street.type) for name in "ab"]
    )
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 2], pa.int32()), street)
    maps = pa.MapArray.from_arrays([0, 2, 2], pa.array(["k", "l"]), street)
    batch = pa.record_batch({"value": street, "whole": whole, "lists": lists, "maps": maps})
    made = run(frames(same), batch, batch.schema)
    assert made.schema == batch.schema
    assert made.to_pylist() == batch.to_pylist()


def with_gaps(frames):
    """Joins and gaps, which make floats of integers that are not Arrow's."""
    for frame in frames:
        more = pd.DataFrame({"bigint": frame["bigint"][:1], "joined": frame["bigint"][:1]})
        yield frame.merge(more, how="left", on="bigint").reindex([0, 1, 2])


def test_a_join_with_gaps_keeps_the_digits_of_integers() -> None:
    batch = pa.record_batch({"bigint": pa.array([2**62 + 1, 5], pa.int64())})
    shape = pa.schema([("bigint", pa.int64()), ("joined", pa.int64())])
    made = run(pandas_frames(with_gaps), batch, shape)
    assert made["joined"].to_pylist() == [2**62 + 1, None, None]
    assert made["bigint"].to_pylist() == [2**62 + 1, 5, None]


def giving(**columns):
    """A transform of pandas that gives these, whatever it is given."""

    def transform(frames):
        for _ in frames:
            yield pd.DataFrame(columns)

    return pandas_frames(transform)


def objects(*values) -> pd.Series:
    """Of Python's values."""
    return pd.Series(values, dtype=object)


def in_utc(at: datetime.datetime) -> datetime.datetime:
    return at.astimezone(datetime.timezone.utc)


TWO = pa.struct([("a", pa.int64()), ("b", pa.int64())])
MAP, DEC = pa.map_(pa.string(), pa.int64()), pa.decimal128(38, 0)
SIDES = pa.struct([("left", pa.int64()), ("right", pa.int64())])
FAR = "1E-99999999"  # Arrow crashes there
BERLIN = ZoneInfo("Europe/Berlin")  # its clocks show half past two twice
TWICE = [datetime.datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=one) for one in (0, 1)]
UTC, US = pa.timestamp("us", "UTC"), pa.timestamp("us")
DAY = datetime.datetime(2026, 11, 25, 4)
SPRING = DAY.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=2)))


@pytest.mark.parametrize(
    ("values", "kind", "why"),
    [
        ([1.0, None], pa.int64(), "pandas makes floats of integers"),
        (pd.Series([1.0, None], dtype="category"), pa.int64(), "pandas makes floats of integers"),
        (pd.Series([1.5, 2], dtype=object), pa.int64(), "fractions would be cut off"),
        (pd.Series([2**64], dtype=object), pa.int64(), "too large|too big|out of range|convert"),
        (pd.Series([2**40]), pa.int32(), "not in range|out of bounds"),
        ([0.125], pa.decimal128(10, 2), "its values would be rounded"),
        ([1e300], pa.float32(), "large ones become infinite"),
        (["1e400"], pa.float64(), "large ones become infinite"),
        ([Decimal("0.125")], pa.decimal128(10, 2), "would cause data loss"),
        (pd.to_datetime(["2026-11-25"]), UTC, "it is not known which moment is meant"),
        (pd.to_datetime(["2026-11-25"], utc=True), US, "it is not known which moment is meant"),
        (pd.Series([SPRING], dtype=object), US, "it is not known which moment is meant"),
        (pd.Series([DAY, SPRING], dtype=object), US, "some of them have a time"),
        (pd.Series([DAY.date(), DAY], dtype=object), pa.date32(), "some of them have a time"),
        (pd.to_datetime(["2026-11-25 10:00:00.000000001"]), US, "would lose data"),
        (pd.to_datetime(["2026-11-25 10:00"]), pa.date32(), "time of day would be cut off"),
        ([5], UTC, "it is not known what the number counts"),
        ([2], pa.bool_(), "numbers would become true"),
        ([{"a": 1, "c": 2}], pa.struct([("a", pa.int64())]), "field ['c'] that would be left out"),
        ([{"a": 1.5}], pa.map_(pa.string(), pa.int64()), "fractions would be cut off"),
        ([[1.5]], pa.list_(pa.int64()), "fractions would be cut off"),
        ([b"\xff"], pa.string(), "utf8|UTF8"),
        (["a", 1], pa.string(), "Expected bytes"),
        ([Decimal("1.5")], pa.int64(), "fractions or digits"),
        ([Decimal("Infinity")], pa.decimal128(10, 2), "Infinity|NaN|cannot be written"),
        (objects(2**62, 1.5), pa.int64(), "fractions or digits"),
        (objects(2**65, {"a": 1}), pa.int64(), "too large|too big|Could not convert"),
        ([[("a", 1.5)]], MAP, "fractions or digits"),
        ([{"a": 1.5}, {"b": 2**62, 3: 1}], MAP, "fractions or digits|Expected bytes"),
        ([[("a", 1e300)]], pa.map_(pa.string(), pa.float32()), "infinite"),
        ([[("a", DAY)]], pa.map_(pa.string(), UTC), "zone"),
        ([[("a", DAY)]], pa.map_(pa.string(), pa.date32()), "time of day"),
        (objects([SPRING], [DAY]), pa.list_(UTC), "zone"),
        (objects([DAY], [SPRING]), pa.list_(US), "zone"),
        ([{"a": SPRING}, {"a": DAY}], pa.struct([("a", UTC)]), "zone"),
        (objects(5, DAY), US, "what the number counts"),
        (objects(5, datetime.timedelta(1)), pa.duration("us"), "what the number counts"),
        (objects(pd.Timestamp(1764000000000000001)), US, "lose data"),
        (objects(pd.Timestamp(1764000000000000001, tz="UTC")), UTC, "lose data"),
        (objects([pd.Timestamp(1764000000000000001)]), pa.list_(US), "lose data"),
        (objects(pd.Timedelta(1001)), pa.duration("us"), "lose data"),
        (objects({"a": 2**65}, {"a": 1, "c": 2}), pa.struct([("a", DEC)]), "field ['c'] that"),
        (objects(SPRING, DAY).astype("category"), UTC, "some of them have a time"),
        (objects(pd.Timestamp(2**40, unit="s"), None), US, "out of range"),
        (objects("\ud800"), pa.string(), "surrogates not allowed"),
        (objects(Decimal(FAR)), DEC, "a decimal's exponent is too far"),
        (objects({"a": [Decimal(FAR)]}), pa.struct([("a", pa.list_(DEC))]), "exponent is too far"),
        (pd.Series([FAR], dtype="string"), DEC, f"(row 0 of a batch, counted from 0: '{FAR}' is"),
        (pd.period_range("2025-01", periods=1, freq="M"), pa.string(), "numbers that pandas keeps"),
        (pd.period_range("2025-01", periods=1, freq="M"), pa.int64(), "numbers that pandas keeps"),
        (pd.arrays.IntervalArray.from_tuples([(0, 1)]), SIDES, "numbers that pandas keeps"),
        (pd.to_timedelta(["1s"]), pa.string(), "what the number counts"),
    ],
)
def test_what_would_not_be_what_it_was_is_refused(values, kind, why) -> None:
    with pytest.raises(SinkError) as stop:
        run(giving(c=values), pa.record_batch({"x": [1]}), pa.schema([("c", kind)]))
    assert any(one in str(stop.value) for one in why.split("|")), stop.value
    assert "column 'c'" in str(stop.value)
    assert "Nothing of the batch is visible." in str(stop.value)


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (pd.Series([2**62 + 1, None], dtype="Int64"), pa.int64(), [2**62 + 1, None]),
        ([7, 8], pa.int32(), [7, 8]),
        ([Decimal("1.5"), None], pa.decimal128(10, 2), [Decimal("1.50"), None]),
        ([b"\x00", None], pa.binary(), [b"\x00", None]),
        (["é", None], pa.string(), ["é", None]),
        ([float("nan"), 1.5], pa.float64(), [None, 1.5]),  # numpy tells them not apart
        ([None, pd.NA], pa.int64(), [None, None]),
        ([DAY, pd.NaT], US, [DAY, None]),
        (pd.Series([SPRING], dtype=object), UTC, [SPRING.astimezone(datetime.timezone.utc)]),
        (pd.Series(["b", "a"], dtype="category"), pa.string(), ["b", "a"]),
        (pd.Series([10**30], dtype=object), pa.decimal128(38, 0), [Decimal(10**30)]),
        ([{"a": 1}, {"a": None}], pa.struct([("a", pa.int32())]), [{"a": 1}, {"a": None}]),
        ([[("k", 1)]], pa.map_(pa.string(), pa.int64()), [[("k", 1)]]),
        (objects({"k": 1}, [("l", 2**62)], None), MAP, [[("k", 1)], [("l", 2**62)], None]),
        (objects([{"key": "k", "value": 2}]), MAP, [[("k", 2)]]),
        ([Decimal("2"), Decimal("NaN")], pa.int64(), [2, None]),
        (objects(2**62, 1.0), pa.int64(), [2**62, 1]),
        (objects("é", b"x", bytearray(b"y")), pa.binary(), ["é".encode(), b"x", b"y"]),
        (objects((1, 2), (3, None)), TWO, [{"a": 1, "b": 2}, {"a": 3, "b": None}]),
        (objects([("a", 3), ("b", 4)]), TWO, [{"a": 3, "b": 4}]),
        (objects({b"a": 1, "b": None}, {}), TWO, [{"a": 1, "b": None}, {"a": None, "b": None}]),
        (objects([float("nan"), pd.NaT, 1.5]), pa.list_(pa.float64()), [[None, None, 1.5]]),
        (objects(np.array([1.5, 2.0]), {3.0}), pa.list_(pa.float64()), [[1.5, 2.0], [3.0]]),
        (objects([np.bool_(True)], None), pa.list_(pa.bool_()), [[True], None]),
        (objects(np.float32(0.1)), pa.float32(), [float(np.float32(0.1))]),
        (objects(pd.Series([1, 2]), pa.array([3])), pa.list_(pa.int64()), [[1, 2], [3]]),
        (objects([SPRING, *TWICE]), pa.list_(UTC), [[in_utc(one) for one in (SPRING, *TWICE)]]),
        (objects(pd.Timestamp(DAY), DAY, pd.NaT), US, [DAY, DAY, None]),
        (objects(pd.Timedelta(1000)), pa.duration("us"), [datetime.timedelta(microseconds=1)]),
        (objects(DAY.time()), pa.time64("us"), [DAY.time()]),
        (objects(DAY.date(), None), pa.date32(), [DAY.date(), None]),
        (objects(UUID(int=5)), pa.binary(16), [UUID(int=5).bytes]),
        (objects(1, 2, None).astype("category"), pa.int64(), [1, 2, None]),
    ],
)
def test_what_pandas_makes_itself_is_written_as_it_is(values, kind, expected) -> None:
    made = run(giving(c=values), pa.record_batch({"x": [1]}), pa.schema([("c", kind)]))
    assert made["c"].to_pylist() == expected


@BOTH
def test_a_function_may_hand_back_what_it_was_given(frames) -> None:
    batch = pa.record_batch({"n": [1, None]})
    assert run(frames(lambda given: given), batch, batch.schema).to_pylist() == batch.to_pylist()


@BOTH
def test_what_is_no_frame_is_told(frames) -> None:
    batch, shape = pa.record_batch({"key": [b"k"]}), pa.schema([("value", pa.binary())])
    library = frames.__name__.partition("_")[0]

    def told(function) -> str:
        with pytest.raises(SinkError) as stop:
            run(frames(function), batch, shape)
        return str(stop.value)

    assert "The transform gave no column ['value']; it gave ['key']" in told(same)
    assert f"a NoneType and not an iterator of {library}.DataFrame" in told(lambda frames: None)
    assert f"a DataFrame and not an iterator of {library}.DataFrame" in told(next)
    assert f"a str and not a {library}.DataFrame" in told(lambda frames: iter("x"))
    asked = told(lambda frames: frames.groupBy("key"))
    assert "asked for 'groupBy', which is a step of a DataFrame" in asked
    assert f"an iterator of {library}.DataFrame" in asked


@BOTH
def test_what_cannot_be_used_is_refused_where_it_is_made(frames, monkeypatch) -> None:
    library = frames.__name__.partition("_")[0]
    with pytest.raises(OptionsError, match=rf"eo_kafka.{library}_frames needs a function .* a str"):
        frames("no function")
    monkeypatch.setattr(util, "find_spec", lambda name: None)
    monkeypatch.setattr("eo_kafka.connectors.direct.frames.find_spec", lambda name: None)
    with pytest.raises(OptionsError, match=rf"pip install 'eo-kafka\[{library}\]'"):
        frames(same)


@BOTH
def test_frames_are_read_one_by_one_and_travel_with_their_function(frames) -> None:
    seen = []

    def batches():
        for number in range(3):
            seen.append(number)
            yield pa.record_batch({"n": pa.array([number, None], pa.int32())})

    def first(frames):
        yield next(frames)

    shape = pa.schema([("n", pa.int32())])
    sent = pickle.loads(cloudpickle.dumps(frames(first).written_as(shape)))
    (made,) = sent(batches())
    assert (made["n"].to_pylist(), seen) == ([0, None], [0])


def test_a_wide_frame_of_polars_is_written_as_it_is() -> None:
    """Of the types that only polars has."""

    def made(frames):
        for _ in frames:
            yield pl.DataFrame(
                {
                    "kind": pl.Series(["b", None], dtype=pl.Categorical),
                    "texts": [["a", None], None],
                    "nan": [float("nan"), None],
                    "at": pl.Series([DAY, None]).dt.replace_time_zone("Europe/Berlin"),
                }
            )

    shape = pa.schema(
        [
            ("kind", pa.string()),
            ("texts", pa.list_(pa.string())),
            ("nan", pa.float64()),
            ("at", UTC),
        ]
    )
    found = run(polars_frames(made), pa.record_batch({"x": [1]}), shape)
    assert repr(found.slice(0, 1).to_pylist()[0]["nan"]) == "nan"
    at = DAY.replace(hour=3, tzinfo=datetime.timezone.utc)
    assert found.drop_columns("nan").to_pylist()[0] == {
        "kind": "b",
        "texts": ["a", None],
        "at": at,
    }
    assert found.to_pylist()[1] == {"kind": None, "texts": None, "nan": None, "at": None}
    refused = pa.schema([("at", US)])
    with pytest.raises(SinkError, match="it is not known which moment is meant"):
        run(polars_frames(made), pa.record_batch({"x": [1]}), refused)


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
def test_objects_in_a_frame_of_polars_are_refused(kind) -> None:
    """Arrow would be given where they are in memory, as bytes."""
    objects = polars_frames(
        lambda _: iter([pl.DataFrame({"c": pl.Series([{1}], dtype=pl.Object)})])
    )
    with pytest.raises(SinkError, match="column 'c' is of type Object and cannot be written"):
        run(objects, pa.record_batch({"x": [1]}), pa.schema([("c", kind)]))
