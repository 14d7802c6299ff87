"""What is written as Avro is what was given, or is refused: held to known values, not to the other
way of writing it."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as t

from eo_kafka.core.errors import OptionsError, SinkError
from eo_kafka.formats.avro import pieces
from eo_kafka.formats.avro.codec import Decoder, parsed
from eo_kafka.formats.avro.fitting import SchemaMismatch
from eo_kafka.formats.declared import AVRO
from eo_kafka.formats.options import Column, FormatOptions
from eo_kafka.formats.writing import Writing

UNION = ["null", "string", "long"]
EXACT = Context(prec=80)


def written(schema: Any, kind: pa.DataType, *values: Any) -> list[bytes]:
    found: list[bytes] = pieces.encoder(json.dumps(schema), kind)(
        pa.array(values, kind)
    ).to_pylist()
    return found


def struct(**kinds: pa.DataType) -> pa.DataType:
    return pa.struct(kinds)


FOREIGN = {
    "other names": struct(s=pa.string(), l=pa.int64()),
    "another case": struct(Member0=pa.string(), member1=pa.int64()),
    "Spark's stable names": struct(member_string=pa.string(), member_long=pa.int64()),
    "one too many": struct(member0=pa.string(), member1=pa.int64(), member2=pa.float64()),
    "one beside": struct(member0=pa.string(), member1=pa.int64(), note=pa.string()),
}


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
PLACES: dict[str, Any] = {  # a schema, its column and a value, with a union's in it
    "as it is": lambda union, kind, value: (union, kind, value),
    "record": lambda union, kind, value: (record(union), struct(u=kind), {"u": value}),
    "null": lambda union, kind, value: (["null", record(union)], struct(u=kind), {"u": value}),
    "array": lambda union, kind, value: (
        {"type": "array", "items": union}, pa.list_(kind), [value]
    ),
    "map": lambda union, kind, value: (
        {"type": "map", "values": union}, pa.map_(pa.string(), kind), [("k", value)]
    ),
    "behind what is written one by one": lambda union, kind, value: (
        record(union, ("d", DECIMAL)), struct(d=pa.decimal128(3, 1), u=kind),
        {"d": Decimal("1.5"), "u": value},
    ),
}  # fmt: skip


def record(kind: Any, *before: tuple[str, Any]) -> Any:
    fields = [{"name": name, "type": one} for name, one in (*before, ("u", kind))]
    return {"type": "record", "name": "R", "fields": fields}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("union", [UNION, ["string", "long"], ["string", "long", "null"]], ids=str)
def test_a_field_that_is_no_member_of_its_union_is_refused(union, name, place) -> None:
    kind = FOREIGN[name]
    for field in kind:
        value = {pa.string(): "x", pa.int64(): 5, pa.float64(): 2.5}[field.type]
        schema, column, row = PLACES[place](union, kind, {field.name: value})
        with pytest.raises(SchemaMismatch, match="a struct of member0 and member1, without"):
            written(schema, column, row)


def test_it_is_refused_before_there_is_a_value() -> None:
    for place in ("as it is", "record", "null", "array", "map"):
        for kind in FOREIGN.values():
            schema, column, _ = PLACES[place](UNION, kind, None)
            with pytest.raises(SchemaMismatch):
                pieces.encoder(json.dumps(schema), column)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("others", [[], ["double"]], ids=str)
def test_two_members_that_are_set_are_refused(others, place) -> None:
    kind = struct(member0=pa.string(), member1=pa.int64(), member2=pa.float64())
    kind = pa.struct(list(kind)[: 2 + len(others)])
    for pair in ({"member0": "x", "member1": 5}, {"member1": 5, "member2": 0.5}):
        if not others and "member2" in pair:
            continue
        schema, column, row = PLACES[place]([*UNION, *others], kind, pair)
        _, _, good = PLACES[place](UNION, kind, {"member1": 5})
        with pytest.raises(SchemaMismatch, match=" and ".join(pair)):
            written(schema, column, good, row)


def test_a_struct_may_lack_members() -> None:
    kind = struct(member1=pa.int64())
    assert written(UNION, kind, {"member1": 5}, {"member1": None}, None) == [b"\4\n", b"\0", None]
    with pytest.raises(Exception, match="do not match"):
        written(UNION[1:], kind, {"member1": None})


def test_what_is_no_struct_is_no_value_of_a_union() -> None:
    with pytest.raises(SchemaMismatch, match="5 is not a struct of member0 and member1"):
        written(UNION, pa.int64(), 5)


def test_a_batch_with_such_a_column_is_not_shown() -> None:
    fields = t.StructType().add("s", t.StringType()).add("l", t.LongType())
    kind = t.StructType().add("value", fields)
    column = Column("value", AVRO, json.dumps(UNION), None)
    writing = Writing.of(FormatOptions((column,), None), kind)
    with pytest.raises(OptionsError, match="'value' .*member0 and member1, without l and s"):
        writing.prepared(kind)
    rows = pa.record_batch({"value": pa.array([{"s": "x", "l": None}], FOREIGN["other names"])})
    given = replace(writing, schemas={"value": (json.dumps(UNION), None)})
    with pytest.raises(SinkError, match="A row's value cannot be written as avro"):
        list(given.batches(iter([rows]), None))


def decimal(digits: int, scale: int, size: int | None = None) -> Any:
    made = {"logicalType": "decimal", "precision": digits, "scale": scale}
    if size is None:
        return {"type": "bytes", **made}
    return {"type": "fixed", "name": "F", "size": size, **made}


def on_the_wire(schema: Any, data: bytes) -> Decimal:
    """Without fastavro."""
    digits = data if schema["type"] == "fixed" else data[1:]
    assert schema["type"] == "fixed" or data[0] == 2 * len(digits)
    number = Decimal(int.from_bytes(digits, "big", signed=True))
    return number.scaleb(-schema["scale"], EXACT)


WRITTEN = [
    ("1.5", (4, 1), (4, 2)),
    ("1.50", (4, 2), (4, 1)),
    ("-43000", (9, 0), (9, 2)),
    ("-0.01", (4, 2), (9, 4)),
    ("0", (38, 0), (38, 37)),
    ("-9999999", (9, 0), (9, 2)),
    ("99.99", (4, 2), (4, 2)),
    ("5", (38, 0), (1, 0)),
    ("-128.00", (9, 2), (4, 1)),
]
REFUSED = [
    ("-43000000", (9, 0), (9, 2)),
    ("-18446744073709.5", (15, 1), (18, 6)),
    ("-75125036419557994694844634104429753.334", (38, 3), (38, 4)),
    ("9999", (4, 0), (4, 2)),
    ("100.00", (5, 2), (4, 2)),
    ("1.55", (4, 2), (4, 1)),
    ("-48", (2, 0), (2, 1)),
]
SIZES = {1: 1, 2: 1, 4: 2, 9: 4, 18: 8, 38: 16}  # bytes by digits


@pytest.mark.parametrize("sized", [False, True], ids=["bytes", "fixed"])
@pytest.mark.parametrize(("number", "given", "to"), WRITTEN, ids=str)
def test_a_decimal_of_another_scale_is_the_same_number(number, given, to, sized) -> None:
    schema = decimal(*to, size=SIZES[to[0]] if sized else None)
    (data,) = written(schema, pa.decimal128(*given), Decimal(number))
    assert on_the_wire(schema, data) == Decimal(number)
    assert Decoder(parsed(schema)).decode(data) == Decimal(number)


@pytest.mark.parametrize("sized", [False, True], ids=["bytes", "fixed"])
@pytest.mark.parametrize(("number", "given", "to"), REFUSED, ids=str)
def test_a_decimal_that_its_type_does_not_hold_is_refused(number, given, to, sized) -> None:
    schema = decimal(*to, size=SIZES[to[0]] if sized else None)
    words = f"is not a decimal of {to[0]} digits, {to[1]} of them behind the point"
    for place in ("as it is", "record", "array", "null"):
        whole, column, row = PLACES[place](schema, pa.decimal128(*given), Decimal(number))
        with pytest.raises(SchemaMismatch, match=words):
            written(whole, column, row)


def test_a_named_type_is_held_to_its_digits_wherever_it_is_named() -> None:
    schema = record("F", ("d", decimal(9, 2, 4)))
    kind = struct(d=pa.decimal128(9, 0), u=pa.decimal128(9, 0))
    with pytest.raises(SchemaMismatch):
        written(schema, kind, {"d": Decimal(1), "u": Decimal(-43000000)})


def test_no_decimal_becomes_another_number() -> None:
    draw, kept = random.Random(3), 0
    for _ in range(4000):
        digits, size = draw.choice([*SIZES.items()])
        scale, given = draw.randint(0, digits), draw.randint(1, 38)
        behind = draw.randint(0, given)
        schema = decimal(digits, scale, draw.choice([None, size]))
        number = draw.choice([-1, 1]) * draw.randint(0, 10 ** draw.randint(1, given) - 1)
        value = Decimal(number).scaleb(-behind, EXACT)
        fits = value.scaleb(scale, EXACT)
        try:
            (data,) = written(schema, pa.decimal128(given, behind), value)
        except SchemaMismatch:
            assert fits != fits.to_integral_value() or abs(fits) >= 10**digits
            continue
        assert on_the_wire(schema, data) == value
        kept += 1
    assert kept > 500


def test_bytes_are_no_decimal() -> None:
    with pytest.raises(SchemaMismatch):
        written(decimal(4, 2), pa.binary(), b"\5")


@pytest.mark.parametrize("sized", [False, True], ids=["bytes", "fixed"])
@pytest.mark.parametrize("wanted", [None, (4, 2), (10, 2), (10, 0)], ids=str)
def test_a_decimal_that_is_too_long_for_its_type_is_bad_and_not_rounded(wanted, sized) -> None:
    schema = decimal(4, 2, 16 if sized else None)
    into = wanted and parsed(decimal(*wanted, size=16 if sized else None))
    digits = (12345).to_bytes(16 if sized else 3, "big")
    with pytest.raises(SchemaMismatch, match="more than 4 digits"):
        Decoder(parsed(schema), into).decode(digits if sized else b"\6" + digits)


def test_a_decimal_that_is_too_long_for_the_type_it_is_read_as_is_bad() -> None:
    reader = Decoder(parsed(decimal(9, 2)), parsed(decimal(4, 2)))
    with pytest.raises(SchemaMismatch, match="'100.00'. is not a decimal of 4 digits"):
        reader.decode(b"\4" + (10000).to_bytes(2, "big"))
