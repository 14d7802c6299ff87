"""What fastavro leaves open: the type of a union that a value is of, and the meaning of numbers."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Iterator
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from avro_reading import read_as_source

from eo_kafka.formats.avro import columns as avro_columns
from eo_kafka.formats.avro.codec import Decoder, Encoder, parsed
from eo_kafka.formats.avro.fitting import SchemaMismatch
from eo_kafka.formats.avro.types import spark_type
from eo_kafka.formats.shared.arrow_types import arrow_type

UTC = timezone.utc
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
DATE = {"type": "int", "logicalType": "date"}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
FIXED = {"type": "fixed", "name": "F", "size": 2}
INNER = {"type": "record", "name": "I", "fields": [
    {"name": "x", "type": "int", "default": 3}, {"name": "b", "type": "bytes", "default": "\u00ff"}
]}  # fmt: skip


def one(kind: Any, **more: Any) -> Any:
    return {"type": "record", "name": "R", "fields": [{"name": "f", "type": kind, **more}]}


def bare(kind: Any, value: Any) -> bytes:
    """A value of a type that is no union, as fastavro writes it."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(kind), value)
    return stream.getvalue()


UNIONS: list[tuple[list[Any], int, Any]] = [
    (["int", "long", "string"], 1, 5),
    (["int", "long", "string"], 1, 2**40),
    (["float", "double", "string"], 1, 0.1),
    (["float", "double", "string"], 0, 0.5),
    (["double", "long"], 1, 2**53 + 1),
    ([DATE, "long"], 1, 5),
    ([DATE, "string"], 1, "A"),
    (["null", MILLIS, "int"], 1, 5),
    ([ENUM, "string"], 1, "A"),
    (["string", ENUM], 1, "A"),
    (["string", ENUM], 0, "A"),
    (["bytes", "string"], 1, "ab"),
    (["string", "bytes"], 1, b"ab"),
    (["bytes", FIXED], 1, b"ab"),
    ([FIXED, "null", "bytes"], 1, b"ab"),
    ([{"type": "array", "items": "int"}, "bytes"], 1, b"ab"),
    ([{"type": "map", "values": "int"}, INNER], 1, {"x": 1, "b": b""}),
]


@pytest.mark.parametrize(("union", "number", "value"), UNIONS, ids=str)
def test_a_value_of_a_union_is_of_the_type_that_it_was_written_as(
    union: list[Any], number: int, value: Any
) -> None:
    present = [branch for branch in union if branch != "null"]
    data = bare("long", union.index(present[number])) + bare(present[number], value)
    schema = parsed(one(union))
    found = Decoder(schema).decode(data)
    assert list(found["f"]) == [f"member{number}"]
    grown = one(union)
    grown["fields"].append({"name": "more", "type": "int", "default": 7})
    assert Decoder(schema, parsed(grown)).decode(data) == {**found, "more": 7}
    kind = arrow_type(spark_type(schema)[0])
    (sent,) = pa.array([found], kind).to_pylist()
    assert Encoder(schema).encode(sent) == data
    at_once = avro_columns.decoded(pa.array([data]), *[json.dumps(one(union))] * 2, kind)
    assert at_once is None or at_once[0].to_pylist() == [sent]


CHANGED: list[tuple[Any, Any, Any, Any]] = [
    ("long", MILLIS, 1_700_000_000_000, datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)),
    ("int", MILLIS, 5, datetime(1970, 1, 1, 0, 0, 0, 5000, UTC)),
    ("long", MICROS, 5, datetime(1970, 1, 1, 0, 0, 0, 5, UTC)),
    (MILLIS, MICROS, 5, datetime(1970, 1, 1, 0, 0, 0, 5000, UTC)),
    ("int", DATE, 5, date(1970, 1, 6)),
    ("bytes", DECIMAL, b"\x01\x00", Decimal("2.56")),
    ("bytes", "string", b"ab", "ab"),
    ("string", "bytes", "\u00e9", b"\xc3\xa9"),
    ("long", "float", 2**60 + 2**36 + 1, float(2**60 + 2**37)),
    ("long", ["string", "double"], 5, {"member0": None, "member1": 5.0}),
    (ENUM, ["string", "null", ENUM], "B", {"member0": None, "member1": "B"}),
    ({"type": "array", "items": "long"}, {"type": "array", "items": MILLIS}, [0],
     [datetime(1970, 1, 1, tzinfo=UTC)]),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "written", "read"), CHANGED, ids=str)
def test_what_is_written_as_one_type_is_what_the_other_one_says(
    old: Any, new: Any, written: Any, read: Any
) -> None:
    plain = {name: one for name, one in old.items() if name != "logicalType"} if isinstance(
        old, dict
    ) else old  # fmt: skip
    schema = parsed(one(new))
    found = Decoder(parsed(one(old)), schema).decode(bare(plain, written))
    kind = arrow_type(spark_type(schema)[0])
    assert pa.array([found], kind).to_pylist() == [{"f": read}]


PAID = {"type": "record", "name": "Paid", "fields": [{"name": "sum", "type": "int"}]}
SHIPPED = {"type": "record", "name": "n.Shipped", "fields": [{"name": "sum", "type": "int"}]}
COLOUR = {"type": "enum", "name": "Colour", "symbols": ["A", "C"]}
WIDER = {"type": "fixed", "name": "W", "size": 3}
PAID_1 = {"member0": {"sum": 1}, "member1": None}
WIDENED: list[tuple[Any, Any, Any, Any]] = [
    (["null", PAID], ["null", PAID, SHIPPED], {"sum": 1}, PAID_1),
    (PAID, [SHIPPED, PAID], {"sum": 1}, {"member0": None, "member1": {"sum": 1}}),
    (["null", PAID], ["null", {**PAID, "name": "other.Paid"}, SHIPPED], {"sum": 1}, PAID_1),
    (["null", PAID], [SHIPPED, {**PAID, "name": "P", "aliases": ["Paid"]}], {"sum": 1},
     {"member0": None, "member1": {"sum": 1}}),
    ({"type": "array", "items": PAID}, {"type": "array", "items": [PAID, SHIPPED]}, [{"sum": 1}],
     [PAID_1]),
    (["null", ENUM], ["null", ENUM, COLOUR], "A", {"member0": "A", "member1": None}),
    (COLOUR, [ENUM, COLOUR], "A", {"member0": None, "member1": "A"}),
    (["null", FIXED], ["null", WIDER, FIXED], b"ab", {"member0": None, "member1": b"ab"}),
    ([PAID, SHIPPED], PAID, ("Paid", {"sum": 1}), {"sum": 1}),
    ([ENUM, COLOUR], ["null", COLOUR], ("Colour", "A"), "A"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "written", "read"), WIDENED, ids=str)
def test_a_named_type_is_found_again_in_another_union(
    old: Any, new: Any, written: Any, read: Any
) -> None:
    schema = parsed(one(new))
    found = Decoder(parsed(one(old)), schema).decode(bare(old, written))
    kind = arrow_type(spark_type(schema)[0])
    assert pa.array([found], kind).to_pylist() == [{"f": read}]


DEFAULTS: list[tuple[Any, Any, Any]] = [
    ("bytes", "\u00ff", b"\xff"),
    (FIXED, "\u00ff\u0000", b"\xff\0"),
    (DECIMAL, "\u0001", Decimal("0.01")),
    (MILLIS, 1_577_836_800_000, datetime(2020, 1, 1, tzinfo=UTC)),
    ([MILLIS, "null"], 1000, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
    ({"type": "map", "values": "bytes"}, {"a": "\u00ff"}, [("a", b"\xff")]),
    (["bytes", "string"], "\u00ff", {"member0": b"\xff", "member1": None}),
    (["int", "string"], 4, {"member0": 4, "member1": None}),
    (["null", "int", "string"], None, None),
    (INNER, {}, {"x": 3, "b": b"\xff"}),
    ([INNER, "string"], {"x": 1}, {"member0": {"x": 1, "b": b"\xff"}, "member1": None}),
    ([SHIPPED, PAID], {"sum": 1}, {"member0": {"sum": 1}, "member1": None}),
    ([COLOUR, ENUM], "A", {"member0": "A", "member1": None}),
]


@pytest.mark.parametrize(("kind", "default", "value"), DEFAULTS, ids=str)
def test_a_field_that_was_not_written_has_the_default_that_its_type_means(
    kind: Any, default: Any, value: Any
) -> None:
    old, new = one("int"), one("int")
    new["fields"].append({"name": "g", "type": kind, "default": default})
    shape = arrow_type(spark_type(parsed(new))[0])
    found = Decoder(parsed(old), parsed(new)).decode(b"\2")
    assert pa.array([found], shape).to_pylist() == [{"f": 1, "g": value}]
    at_once = avro_columns.decoded(pa.array([b"\2"]), json.dumps(old), json.dumps(new), shape)
    assert at_once is None or at_once[0].to_pylist() == [{"f": 1, "g": value}]


@pytest.mark.parametrize(("kind", "default", "value"), DEFAULTS, ids=str)
@pytest.mark.parametrize("shape", ["array", "map", "union"])
def test_it_has_it_also_where_no_record_is_at_the_top(
    shape: str, kind: Any, default: Any, value: Any
) -> None:
    def around(inner: Any) -> Any:
        if shape == "union":
            return ["null", {"type": "array", "items": inner}]
        return {"type": shape, "items" if shape == "array" else "values": inner}

    old, new = one("int"), one("int")
    new["fields"].append({"name": "g", "type": kind, "default": default})
    data = {"array": b"\2\2\0", "map": b"\2\2k\2\0", "union": b"\2\2\2\0"}[shape]
    found = Decoder(parsed(around(old)), parsed(around(new))).decode(data)
    row = {"f": 1, "g": value}
    column = pa.array([found], arrow_type(spark_type(parsed(around(new)))[0]))
    assert column.to_pylist() == [[("k", row)] if shape == "map" else [row]]


def logical(kind: str, meaning: str) -> Any:
    return {"type": kind, "logicalType": meaning}


HOUR_MS = 3_600_000
NANOS = logical("long", "timestamp-nanos")
TIME_MS, TIME_US = logical("int", "time-millis"), logical("long", "time-micros")
UNITS: list[tuple[Any, Any, int, Any]] = [
    (TIME_MS, TIME_US, HOUR_MS, HOUR_MS * 1000),
    (["null", TIME_MS], ["null", TIME_US], HOUR_MS, HOUR_MS * 1000),
    (TIME_MS, ["null", TIME_US], HOUR_MS, HOUR_MS * 1000),
    (TIME_MS, ["string", TIME_US], HOUR_MS, {"member0": None, "member1": HOUR_MS * 1000}),
    (TIME_MS, TIME_MS, HOUR_MS, HOUR_MS),
    (TIME_MS, "long", HOUR_MS, HOUR_MS),
    ("int", TIME_US, HOUR_MS, HOUR_MS),
    (NANOS, MICROS, 170_000_000_000_000_000, datetime(1975, 5, 22, 14, 13, 20, tzinfo=UTC)),
    (NANOS, MILLIS, 1_700_000_000_123_456_000, datetime(2023, 11, 14, 22, 13, 20, 123456, UTC)),
    (NANOS, NANOS, 170_000_000_000_000_001, 170_000_000_000_000_001),
    (NANOS, "long", 170_000_000_000_000_001, 170_000_000_000_000_001),
    (MICROS, NANOS, 1_700_000_000_000_000, 1_700_000_000_000_000_000),
    (MILLIS, NANOS, -1, -1_000_000),
    (logical("long", "local-timestamp-nanos"), logical("long", "local-timestamp-micros"), -1000,
     datetime(1969, 12, 31, 23, 59, 59, 999999)),
]  # fmt: skip
OTHERS: list[tuple[Any, Any, int]] = [
    (NANOS, MICROS, 170_000_000_000_000_001),  # it would be cut off
    (MICROS, NANOS, 2**62),  # no long holds it
    (TIME_MS, MICROS, HOUR_MS),
    (TIME_MS, NANOS, HOUR_MS),
    (NANOS, TIME_US, 3_600_000_000_000),
    (TIME_US, NANOS, HOUR_MS),
    (DATE, NANOS, 5),
    (DATE, TIME_US, 5),
    (MICROS, TIME_US, 5),
]


def read_units(old: Any, new: Any, number: int) -> tuple[list[Any], list[str]]:
    branch = b"\2" if isinstance(old, list) else b""
    found, bad = read_as_source(one(old), one(new), branch + bare("long", number))
    return found.to_pylist(), bad


@pytest.mark.parametrize(("old", "new", "number", "value"), UNITS, ids=str)
def test_a_time_of_another_unit_keeps_its_value(
    old: Any, new: Any, number: int, value: Any
) -> None:
    assert read_units(old, new, number) == ([{"f": value}], [])


@pytest.mark.parametrize(("old", "new", "number"), OTHERS, ids=str)
def test_a_time_that_would_become_another_one_is_bad(old: Any, new: Any, number: int) -> None:
    found, bad = read_units(old, new, number)
    assert (found, len(bad)) == ([None], 1)


def test_what_was_written_is_not_what_is_wanted_in_the_schemas_own_words() -> None:
    (row,), (reason,) = read_units(TIME_MS, "string", 5)
    assert row is None
    assert "eo-kafka" not in reason
    assert "time-millis" in reason
    _, (reason,) = read_units("long", "string", 5)
    assert "long is not string" in reason


def test_a_meaning_that_a_type_cannot_have_is_passed_over_in_both_ways() -> None:
    """Milliseconds are of a `long`."""
    schema = one({"type": "int", "logicalType": "timestamp-millis"})
    kind = arrow_type(spark_type(parsed(schema))[0])
    found = avro_columns.decoded(pa.array([b"\x0a"]), *[json.dumps(schema)] * 2, kind)
    assert found is None or found[0].to_pylist() == [{"f": 5}]
    assert Decoder(parsed(schema)).decode(b"\x0a") == {"f": 5}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (DATE, datetime(2026, 7, 2, 3, 4, 5)),  # its time of day would be lost
        (DATE, datetime(2026, 7, 2, 3, 4, 5, tzinfo=UTC)),
        ("boolean", None),
        ("null", 5),
        ({"type": "array", "items": "int"}, b"ab"),
        ({"type": "map", "values": "int"}, ""),
    ],
    ids=str,
)
def test_no_value_is_written_as_another_one(kind: Any, value: Any) -> None:
    with pytest.raises(SchemaMismatch):
        Encoder(parsed(one(kind))).encode({"f": value})


@pytest.fixture
def in_new_york() -> Iterator[None]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = "America/New_York"
    time.tzset()
    yield
    os.environ.pop("TZ") if before is None else os.environ.update(TZ=before)
    time.tzset()


@pytest.mark.usefixtures("in_new_york")
@pytest.mark.parametrize("kind", [MILLIS, MICROS], ids=str)
def test_a_time_without_a_zone_is_utcs_wherever_it_is_written(kind: Any) -> None:
    schema = parsed(one(kind))
    local = datetime(2026, 3, 8, 2, 30)  # a time that New York does not have
    found = Decoder(schema).decode(Encoder(schema).encode({"f": local}))
    assert found == {"f": local.replace(tzinfo=UTC)}
