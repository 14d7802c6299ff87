"""Avro schemas as Spark's types, and values there and back."""

from __future__ import annotations

import io
import json
import math
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_type

from eo_kafka.errors import SourceError
from eo_kafka.formats.avro import columns as avro_columns
from eo_kafka.formats.avro.codec import Decoder, Encoder, parsed
from eo_kafka.formats.avro.fitting import SchemaMismatch
from eo_kafka.formats.avro.types import spark_type

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "paid", "type": "boolean"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "other", "type": ["null", "Kind"]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "uid", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "time", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "tags", "type": {"type": "map", "values": ["null", "double"]}},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [{"name": "n", "type": "int"}],
                },
            },
        },
        {
            "name": "note",
            "type": [
                "null",
                "string",
                "long",
                "Line",
                {"type": "record", "name": "Gift", "fields": [{"name": "to", "type": "string"}]},
            ],
        },
        {"name": "size", "type": ["int", "long"]},
    ],
}
TYPE = (
    "struct<id:bigint,paid:boolean,kind:string,other:string,day:date,at:timestamp,"
    "price:decimal(9,2),uid:string,time:int,tags:map<string,double>,lines:array<struct<n:int>>,"
    "note:struct<member0:string,member1:bigint,member2:struct<n:int>,member3:struct<to:string>>,"
    "size:bigint>"
)
VALUE = {
    "id": 1 << 40,
    "paid": True,
    "kind": "B",
    "other": None,
    "day": date(2026, 11, 21),
    "at": datetime(2026, 11, 21, 1, 2, 3, 4, timezone.utc),
    "price": Decimal("12.34"),
    "uid": "6b29fc40-ca47-1067-b31d-00dd010662da",
    "time": 61_001,
    "tags": [("a", 1.5), ("b", None)],
    "lines": [{"n": 1}, {"n": 2}],
    "note": None,
    "size": 7,
}
NOTES: list[tuple[Any, Any]] = [
    (None, None),
    ("text", {"member0": "text"}),
    (5, {"member1": 5}),
    (("shop.Line", {"n": 3}), {"member2": {"n": 3}}),
    (("shop.Gift", {"to": "you"}), {"member3": {"to": "you"}}),
]


def test_types_are_those_of_sparks_own_avro_support() -> None:
    kind, nullable = spark_type(parsed(ORDER))
    assert (kind.simpleString(), nullable) == (TYPE, False)
    assert not kind["id"].nullable
    assert kind["note"].nullable
    assert kind["tags"].dataType.valueContainsNull


@pytest.mark.parametrize(("written", "read"), NOTES)
def test_values_are_read_as_arrow_takes_them(written: Any, read: Any) -> None:
    schema = parsed(ORDER)
    stream = io.BytesIO()
    given = {**VALUE, "tags": dict(VALUE["tags"]), "note": written}
    fastavro.schemaless_writer(stream, schema, given)
    found = Decoder(schema).decode(stream.getvalue())
    assert found == {**VALUE, "note": read}
    kind = to_arrow_type(spark_type(schema)[0], timezone="UTC")
    missing = {f"member{number}": None for number in range(4)}
    (back,) = pa.array([found], kind).to_pylist()
    assert back["note"] == (None if read is None else {**missing, **read})
    assert {**back, "note": None} == VALUE
    assert Decoder(schema).decode(Encoder(schema).encode(back)) == found


def test_all_that_avro_has_is_read_at_once() -> None:
    schema = json.loads(json.dumps(ORDER))
    schema["fields"][-1]["type"] = "long"  # a union of a number and a wider one is left
    kind = to_arrow_type(spark_type(parsed(schema))[0], timezone="UTC")
    encode, decode = Encoder(parsed(schema)).encode, Decoder(parsed(schema)).decode
    values = [encode({**VALUE, "note": note}) for _, note in NOTES]
    text = json.dumps(schema)
    found = avro_columns.decoded(pa.array([*values, None]), text, text, kind)
    assert found is not None
    assert len(found[1]) == 0
    assert found[0].equals(pa.array([*map(decode, values), None], kind))


def test_a_reader_with_a_schema_of_its_own_gets_defaults_and_wider_numbers() -> None:
    old = parsed(
        {
            "type": "record",
            "name": "R",
            "fields": [{"name": "n", "type": "int"}, {"name": "gone", "type": "string"}],
        }
    )
    new = parsed(
        {
            "type": "record",
            "name": "R",
            "fields": [
                {"name": "n", "type": "double"},
                {"name": "m", "type": ["null", "int"], "default": None},
            ],
        }
    )
    data = Encoder(old).encode({"n": 3, "gone": "x"})
    assert Decoder(old, new).decode(data) == {"n": 3.0, "m": None}


@pytest.mark.parametrize("data", [b"", b"\x02", b"\x02\x06ab", b"\x02\x02a\x00"])
def test_bytes_that_are_not_the_schemas_are_refused(data: bytes) -> None:
    schema = parsed(
        {
            "type": "record",
            "name": "R",
            "fields": [{"name": "n", "type": "int"}, {"name": "s", "type": "string"}],
        }
    )
    assert Decoder(schema).decode(b"\x02\x02a") == {"n": 1, "s": "a"}
    with pytest.raises((EOFError, ValueError, IndexError)):
        Decoder(schema).decode(data)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("int", 2**31),
        ("int", 1.0),
        ("long", 1.5),
        ("long", Decimal("1.5")),
        ("boolean", "no"),
        ("float", 1e300),
        ("float", 1e-50),
        ("float", 0.1),
        ("float", 2**24 + 1),
        ("double", 2**53 + 1),
        (["float", "double"], 2**53 + 1),
        ("int", True),
        ("long", True),
        ("float", True),
        ("double", False),
        (["int", "long"], True),
        ({"type": "long", "logicalType": "timestamp-millis"}, datetime(2026, 1, 1, 0, 0, 0, 1)),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            datetime(2026, 1, 1, 0, 0, 0, 1500, timezone.utc),
        ),
        (
            {"type": "long", "logicalType": "local-timestamp-millis"},
            datetime(2026, 1, 1, 0, 0, 0, 1),
        ),
        (
            {"type": "long", "logicalType": "local-timestamp-micros"},
            datetime(2026, 1, 1, tzinfo=timezone.utc),
        ),
        (
            {"type": "long", "logicalType": "local-timestamp-millis"},
            datetime(2026, 1, 1, tzinfo=timezone.utc),
        ),
        ({"type": "map", "values": "int"}, [("a", 1), ("a", 2)]),
        ({"type": "double"}, Decimal("0.1")),
        (["null", "int"], 2**31),
        ({"type": "map", "values": "int"}, [("a", 0.5)]),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "double"}]}, {"a": "1"}),
    ],
    ids=str,
)
def test_no_value_is_written_as_another_one(schema: Any, value: Any) -> None:
    with pytest.raises((SchemaMismatch, ValueError)):
        Encoder(parsed(schema)).encode(value)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("float", 0.5),
        ("float", -0.0),
        ("float", float("inf")),
        ("float", float("nan")),
        ("float", 2**24),
        ("float", 2**100),
        ("double", 0.1),
        ("double", float("nan")),
        ("double", 2**53),
        ("double", -(2**63)),
        (["float", "double"], 0.5),
        (["float", "double"], 0.1),
        (["int", "long"], 2**40),
        (["null", "int", "long"], None),
        (["null", "int", "long"], 5),
    ],
    ids=str,
)
def test_a_number_that_its_type_holds_is_kept(schema: Any, value: Any) -> None:
    found = Decoder(parsed(schema)).decode(Encoder(parsed(schema)).encode(value))
    assert found == value or (value is not None and math.isnan(found))
    assert str(found) == (str(value) if isinstance(found, int | None) else str(float(value)))


def test_a_type_that_contains_itself_is_said() -> None:
    schema = {
        "type": "record",
        "name": "Tree",
        "fields": [{"name": "left", "type": ["null", "Tree"]}],
    }
    with pytest.raises(SourceError, match="'Tree' contains itself"):
        spark_type(parsed(schema))


def test_a_decimal_that_spark_cannot_hold_is_said() -> None:
    schema = {"type": "bytes", "logicalType": "decimal", "precision": 50}
    with pytest.raises(SourceError, match="has 50 digits"):
        spark_type(parsed(schema))
