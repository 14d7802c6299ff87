"""Protobuf in Confluent's wire format: which message a value is, and what a registry says of it."""

from __future__ import annotations

import base64
import pickle
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema
from test_formats import fetched, raw

import protobuf_files as pb
from eo_kafka.errors import SourceError
from eo_kafka.formats import reading
from eo_kafka.formats.options import FormatOptions
from eo_kafka.formats.protobuf import registered
from eo_kafka.formats.protobuf.codec import codec
from eo_kafka.formats.protobuf.descriptors import pruned
from eo_kafka.formats.reading import Reading
from eo_kafka.formats.shared import registry
from eo_kafka.formats.shared.registry import PROTOBUF, Registry, UnknownSchema

ORDERS = pb.base64_of(pb.orders())
ORDER = pruned(ORDERS, "shop.Order")


def as_registered(file: Any) -> str:
    return base64.b64encode(file.SerializeToString()).decode()


@given(st.lists(st.integers(0, 2**30), min_size=1, max_size=5).map(tuple), st.binary(max_size=4))
def test_which_message_it_is_there_and_back(way: tuple[int, ...], data: bytes) -> None:
    assert registered.unpack(registered.pack(way) + data) == (way, data)


@pytest.mark.parametrize(
    ("way", "data"),
    [((0,), b"\x00"), ((1,), b"\x02\x02"), ((1, 0), b"\x04\x02\x00"), ((64,), b"\x02\x80\x01")],
)
def test_as_confluents_clients_write_it(way: tuple[int, ...], data: bytes) -> None:
    assert registered.pack(way) == data
    assert registered.unpack(b"\x02\x00") == ((0,), b""), "the long form is read, too"


@given(st.binary(max_size=8))
def test_any_bytes_are_a_way_or_refused(data: bytes) -> None:
    try:
        registered.unpack(data)
    except ValueError as error:
        assert "which message" in str(error)


def outline(text: str, maps: bool = True) -> dict[str, tuple[int, ...]]:
    return dict(registered._outline(text, maps))


def test_the_messages_of_a_proto_text() -> None:
    assert outline(pb.ORDER_PROTO) == {
        "shop.Line": (0,),
        "shop.Line.Note": (0, 1),  # behind a map, which is a message to Protobuf
        "shop.Order": (1,),
    }
    assert outline(pb.ORDER_PROTO, maps=False)["shop.Line.Note"] == (0, 0)
    text = """
        edition = "2024";
        message A { oneof x { string message = 1; group G = 2 { message H {} } }
            extensions 5 to 9; message B { enum E { Z = 0; } message C {} } }
        extend A { optional int32 e = 5; }
        service S { rpc R (A) returns (A) { option (x) = { message { a: 1 } }; } }
        export message D { string s = 1 [(o) = "}"]; }
    """
    assert outline(text) == {"A": (0,), "A.G.H": (0, 0, 0), "A.B": (0, 1), "A.B.C": (0, 1, 0),
                             "D": (1,)}  # fmt: skip


@given(st.text(alphabet="message A{};\"'/*<>map=1 \n.", max_size=40))
def test_any_text_is_outlined(text: str) -> None:
    outline(text)


def grown(change: Any) -> str:
    file = pb.orders()
    change(file.message_type[1])
    return as_registered(file)


def set_type(number: int, kind: str) -> Any:
    def change(order: Any) -> None:
        (field,) = (one for one in order.field if one.number == number)
        field.type = pb.KINDS[kind]

    return change


def repeat(order: Any) -> None:
    order.field[0].label = pb.F.LABEL_REPEATED


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda order: pb.add(order, "more", 9, "string"), None),
        (set_type(1, "int32"), None),
        (set_type(1, "uint64"), "field 1 of 'shop.Order' is uint64 there, and int64 here"),
        (set_type(1, "sint64"), "sint64 there"),
        (set_type(2, "bytes"), "bytes there"),
        (repeat, "repeated there, and not here"),
    ],
)
def test_a_registered_schema_is_compared_by_its_fields(change: Any, problem: str | None) -> None:
    if problem is None:
        assert registered.ways(grown(change), 1, ORDER, "shop.Order") == {(1,)}
    else:
        with pytest.raises(UnknownSchema, match=problem):
            registered.ways(grown(change), 1, ORDER, "shop.Order")


def test_a_message_inside_is_compared_too() -> None:
    file = pb.orders()
    file.message_type[0].field[1].type = pb.KINDS["string"]
    with pytest.raises(UnknownSchema, match="field 2 of 'shop.Line' is string there"):
        registered.ways(as_registered(file), 1, ORDER, "shop.Order")


@pytest.mark.parametrize("number", [3, 4, 6])  # a time, a message, an enum
def test_a_field_of_another_enum_or_message_is_another_type(number: int) -> None:
    """Its numbers have other names there: PAID would be read as what is 1 here."""

    def change(order: Any) -> None:
        (field,) = (one for one in order.field if one.number == number)
        field.type_name = ".shop.Other"

    with pytest.raises(UnknownSchema, match=rf"field {number} of 'shop.Order' is a 'shop.Other'"):
        registered.ways(grown(change), 1, ORDER, "shop.Order")


# --- whole batches ------------------------------------------------------------------------------


class Answers:
    """In place of the registry's client."""

    asked = 0

    def get_schema(self, number: int, fmt: str | None = None) -> Any:
        from confluent_kafka.schema_registry import Schema, SchemaRegistryError

        Answers.asked += 1
        assert fmt == ("serialized" if number else None)
        if number == 1:
            return Schema(as_registered(pb.orders()), PROTOBUF)
        if number == 2:
            return Schema('"string"', "AVRO")
        if number in (0, 3):
            raise SchemaRegistryError(404, 40403, f"Schema {number} not found")
        if number == 4:
            return Schema(pb.ORDER_PROTO, PROTOBUF)
        if number == 5:
            return Schema('syntax = "proto3"; message Order {}', PROTOBUF)
        if number == 6:
            return Schema(grown(set_type(1, "uint64")), PROTOBUF)
        raise ConnectionError("nobody there")


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> type[Answers]:
    Answers.asked = 0
    monkeypatch.setattr(Registry, "_client", Answers())
    return Answers


def options(mode: str, **more: str) -> FormatOptions:
    given = {"subscribe": "orders", "value.format": "protobuf", "value.schema": ORDERS,
             "value.message": "shop.Order", "mode": mode}  # fmt: skip
    return FormatOptions.of_reader({**given, **more})


def typed(options: FormatOptions, values: list[bytes | None]) -> pa.RecordBatch:
    columns = reading.schema(options, raw())
    assert isinstance(columns, t.StructType)
    made = pickle.loads(pickle.dumps(Reading(options, raw(), columns)))
    (found,) = made.batches(iter([fetched(values)]))
    assert found.schema == to_arrow_schema(columns, timezone="UTC")
    return found


URL = {"schema.registry.url": "http://registry"}


def framed(number: int, value: Any, way: tuple[int, ...] = (1,)) -> bytes:
    data = codec(ORDER, "shop.Order").encode(value)
    return registry.pack(number, registered.pack(way) + data)


def test_values_that_are_not_what_they_should_be_are_bad_records(answers: type[Answers]) -> None:
    good = framed(1, {"id": 7})
    bad = {
        b"": "it does not begin with a zero byte and a schema's number",
        b"\0\0\0\0\1": "it does not say which message of its schema it is",
        b"\0\0\0\0\1\2": "it does not say which message of its schema it is",
        framed(1, {"id": 7}, (0,)): "it is another message of schema 1 (0), and no 'shop.Order'",
        framed(1, {"id": 7}, (1, 5)): "it is another message of schema 1 (1.5)",
        framed(2, {"id": 7}): "schema 2 is of type AVRO, and only PROTOBUF is read here",
        framed(3, {"id": 7}): "the registry has no schema 3",
        framed(5, {"id": 7}): "schema 5 of the registry has no message 'shop.Order'",
        framed(6, {"id": 7}): "field 1 of 'shop.Order' is uint64 there, and int64 here",
        good + b"\xff": "",
        good[:-1]: "",
    }
    values = [good, None, framed(4, {"id": 8}), *bad, *bad, good]
    found = typed(options("PERMISSIVE", **URL), values)
    ids = [row and row["id"] for row in found.column("value").to_pylist()]
    assert ids == [7, None, 8, *[None] * 2 * len(bad), 7]
    reasons = [one and one["reason"] for one in found.column("_bad_record").to_pylist()]
    assert reasons[:3] == [None] * 3
    for reason, expected in zip(reasons[3:], [*bad.values()] * 2, strict=False):
        assert reason.startswith("value: ")
        assert expected in reason
    assert answers.asked == 1 + 6, "each number is asked for once"


@pytest.mark.parametrize("mode", ["FAILFAST", "PERMISSIVE"])
def test_a_registry_that_does_not_answer_makes_no_record_bad(
    answers: type[Answers], mode: str
) -> None:
    with pytest.raises(SourceError, match="did not answer"):
        typed(options(mode, **URL), [framed(9, {"id": 7})])


def test_failfast_names_the_record_in_the_same_words_as_avro() -> None:
    good = codec(ORDER, "shop.Order").encode({"id": 7})
    with pytest.raises(SourceError) as raised:
        typed(options("FAILFAST"), [good, b"\x30\x09"])
    assert str(raised.value) == (
        "The record of orders-3 at offset 101 is not of its format: value: enum 'shop.Kind' has no "
        "name for 9. To go on past such records, set option 'mode' to PERMISSIVE (null, and the "
        "bytes in a column) or DEADLETTER (they are sent to a topic)."
    )
