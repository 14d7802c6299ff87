"""Avro values that are cut off or garbage, where fields of the writer's are passed over."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from eo_kafka.errors import SourceError
from eo_kafka.formats.avro import columns as avro_columns
from eo_kafka.formats.avro.codec import Decoder, Encoder, parsed
from eo_kafka.formats.avro.reader import AvroReader
from eo_kafka.formats.avro.types import spark_type
from eo_kafka.formats.shared.arrow_types import arrow_type
from eo_kafka.formats.shared.decoding import typed
from eo_kafka.formats.shared.registry import pack

HUGE = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"  # 2**62 - 1 items, and then nothing
EMPTY = {"type": "record", "name": "E", "fields": []}


def record(*fields: tuple[str, Any]) -> Any:
    return {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": kind} for name, kind in fields],
    }


def array(items: Any) -> Any:
    return {"type": "array", "items": items}


KEPT = (("id", "long"), ("name", "string"))
PAIR = {"type": "record", "name": "Pair", "fields": [{"name": "x", "type": "double"}]}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("bytes", b"as long as it gets"),
        ("float", 1.5),
        ("double", 1.5),
        ("boolean", True),
        (["null", "string"], "note"),
        ({"type": "fixed", "name": "F", "size": 6}, b"123456"),
        (array("double"), [1.5, 2.5]),
        ({"type": "map", "values": "float"}, [("a", 1.5)]),
        (array(PAIR), [{"x": 1.5}]),
    ],
    ids=str,
)
def test_a_value_that_is_cut_off_is_bad_also_in_what_is_passed_over(kind: Any, value: Any) -> None:
    written, wanted = parsed(record(*KEPT, ("gone", kind))), parsed(record(*KEPT))
    whole = Encoder(written).encode({"id": 1, "name": "a", "gone": value})
    decoder = Decoder(written, wanted)
    assert decoder.decode(whole) == {"id": 1, "name": "a"}
    accepted = []
    for size in range(len(whole)):
        try:
            decoder.decode(whole[:size])
        except Exception:  # of fastavro's many kinds
            continue
        accepted.append(size)
    assert accepted == []


def test_a_length_below_zero_does_not_swallow_the_rest() -> None:
    decoder = Decoder(parsed(record(*KEPT, ("gone", "string"))), parsed(record(*KEPT)))
    with pytest.raises(EOFError):
        decoder.decode(b"\x02\x02a" + b"\x01" + b"anything at all")


@pytest.mark.parametrize("items", ["double", "float", "boolean", PAIR], ids=str)
def test_a_count_that_is_damaged_ends_at_once(items: Any) -> None:
    decoder = Decoder(parsed(record(*KEPT, ("gone", array(items)))), parsed(record(*KEPT)))
    with pytest.raises(EOFError):
        decoder.decode(b"\x02\x02a" + HUGE)


@pytest.mark.parametrize(
    "items",
    ["null", EMPTY, {"type": "fixed", "name": "F", "size": 0}, record(("e", EMPTY))],
    ids=str,
)
def test_an_array_of_what_has_no_bytes_is_refused(items: Any) -> None:
    """Nine bytes could be any number of them."""
    written = {
        "type": "record",
        "name": "Whole",
        "fields": [{"name": "id", "type": "long"}, {"name": "xs", "type": array(items)}],
    }
    text = json.dumps(written)
    with pytest.raises(SourceError, match="items have no bytes"):
        spark_type(parsed(written))
    kept = {**written, "fields": written["fields"][:1]}
    kind = arrow_type(spark_type(parsed(kept))[0])
    assert avro_columns.decoded(pa.array([b"\x02" + HUGE]), text, json.dumps(kept), kind) is None

    class Registry:
        def schema(self, *_: object) -> str:
            return text

    found: list[str] = []
    values = pa.array([pack(7, b"\x02\x00"), pack(7, b"\x02" + HUGE)])
    reader: Any = AvroReader(json.dumps(kept), Registry())  # type: ignore[arg-type]
    typed(values, reader, kind, lambda _, error: found.append(str(error)))
    assert len(found) == 2
    assert "items have no bytes" in found[0]


def test_a_type_that_contains_itself_has_bytes() -> None:
    tree = {"type": "record", "name": "Tree", "fields": [{"name": "below", "type": array("Tree")}]}
    decode = Decoder(parsed(record(("id", "long"), ("gone", tree))), parsed(record(("id", "long"))))
    assert decode.decode(b"\x02\x02\x00\x00") == {"id": 1}


ENUM = {"type": "enum", "name": "E", "symbols": ["NEW", "PAID", "CANCELLED"]}
LONG_2_40 = b"\x80\x80\x80\x80\x80\x40"
DAMAGED: list[tuple[str, Any, bytes]] = [
    ("an enum's number below 0", ENUM, b"\x01"),
    ("an enum's number far below 0", ENUM, b"\x05"),
    ("an enum's number that has no name", ENUM, b"\x06"),
    ("a union's number below 0", ["null", "string"], b"\x01\x02a"),
    ("a union's number below 0, null", ["null", "string"], b"\x03"),
    ("a union's number below 0, of several", ["null", "string", "long"], b"\x01\x02"),
    ("a union's number that has no type", ["null", "string"], b"\x04\x02a"),
    ("a boolean of 2", "boolean", b"\x02"),
    ("a boolean of 255", "boolean", b"\xff"),
    ("a long of 11 bytes", "long", b"\x80" * 10 + b"\x01"),
    ("a long of 65 bits", "long", b"\x80" * 9 + b"\x02"),
    ("a long of 70 bits", "long", b"\xff" * 9 + b"\x7f"),
    ("a long of 20 bytes", "long", b"\x82" + b"\x80" * 18 + b"\x00"),
    ("a length of 11 bytes", "string", b"\x82" + b"\x80" * 9 + b"\x00a"),
    ("a count of 11 bytes", array("int"), b"\x82" + b"\x80" * 9 + b"\x00\x02\x00"),
    ("an int of 2**40", "int", LONG_2_40),
    ("an int of 2**31", "int", b"\x80\x80\x80\x80\x10"),
    ("a block of another size", array("int"), b"\x03\x7e\x02\x04\x00"),
    ("a block of a size below 0", array("int"), b"\x03\x03\x02\x04\x00"),
    ("a map's block of another size", {"type": "map", "values": "int"}, b"\x01\x04\x02a\x02\x00"),
]
WHOLE: list[tuple[str, Any, bytes, Any]] = [
    ("the last name", ENUM, b"\x04", "CANCELLED"),
    ("the last type", ["null", "string"], b"\x02\x02a", "a"),
    ("the lowest long", "long", b"\xff" * 9 + b"\x01", -(2**63)),
    ("the highest long", "long", b"\xfe" + b"\xff" * 8 + b"\x01", 2**63 - 1),
    ("more bytes than it needs", "long", b"\x82\x80\x80\x00", 1),
    ("the highest int", "int", b"\xfe\xff\xff\xff\x0f", 2**31 - 1),
    ("a block of its size", array("int"), b"\x03\x04\x02\x04\x00", [1, 2]),
    ("blocks of both", array("int"), b"\x01\x02\x02\x02\x04\x03\x04\x06\x08\x00", [1, 2, 3, 4]),
]  # fmt: skip
# How a field is read: as it was written, from among others, as a wider type, and not at all
READINGS = ("same", "evolved", "widened", "passed over")


def read_as(reading: str, kind: Any, data: bytes) -> tuple[list[Any], list[str]]:
    """The field, and why it is bad."""
    wanted = record(("id", "long"), ("f", kind))
    if reading == "evolved":
        wanted["fields"].append({"name": "g", "type": ["null", "long"], "default": None})
    elif reading == "widened":
        wanted["fields"][1]["type"] = ["double", "string", array("double"), ENUM, "boolean"]
    elif reading == "passed over":
        wanted["fields"].pop()
    shape = arrow_type(spark_type(parsed(wanted))[0])

    class Registry:
        def schema(self, *_: object) -> str:
            return json.dumps(record(("id", "long"), ("f", kind)))

    bad: list[str] = []
    reader = AvroReader(json.dumps(wanted), Registry())  # type: ignore[arg-type]
    values = pa.array([pack(7, b"\x02" + data)])
    found = typed(values, reader, shape, lambda _, error: bad.append(str(error)))
    return found.to_pylist(), bad


@pytest.mark.usefixtures("loops")
@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize(
    ("kind", "data"), [one[1:] for one in DAMAGED], ids=[o[0] for o in DAMAGED]
)
def test_what_is_damaged_is_bad_however_it_is_read(kind, data, reading) -> None:
    found, bad = read_as(reading, kind, data)
    assert found == [None], found
    assert len(bad) == 1


@pytest.mark.usefixtures("loops")
@pytest.mark.parametrize("reading", ["same", "evolved", "passed over"])
@pytest.mark.parametrize(
    ("kind", "data", "value"), [one[1:] for one in WHOLE], ids=[one[0] for one in WHOLE]
)
def test_what_looks_unusual_and_is_whole_is_read(kind, data, value, reading) -> None:
    found, bad = read_as(reading, kind, data)
    assert bad == []
    field = {} if reading == "passed over" else {"f": value}
    assert found == [{"id": 1, **field, **({"g": None} if reading == "evolved" else {})}]
