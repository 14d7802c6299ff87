"""Portable values to Arrow, against the client's own writer and reader."""

from __future__ import annotations

import datetime
import struct

import pyarrow as pa
import pytest
from hazelcast.serialization.data import Data
from hazelcast.serialization.portable.classdef import ClassDefinitionBuilder
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as t
from serialized_values import (
    PORTABLE,
    PORTABLE_NULLABLE,
    PortableRecord,
    portable_class,
    portable_service,
)

from eo_kafka.errors import SourceError
from eo_kafka.formats.hazelcast.columns import PortableColumn

NAMES = st.text("abcXYZ_09", min_size=1, max_size=4)


@st.composite
def kinds(draw):
    """The client's word for a kind, Spark's type, and values."""
    name = draw(st.sampled_from(sorted(PORTABLE)))
    kind, values = PORTABLE[name]
    if name == "byte" and draw(st.booleans()):
        return "byte_array", t.BinaryType(), st.none() | st.binary().map(bytearray)
    if name != "byte" and draw(st.booleans()):
        return f"{name}_array", t.ArrayType(kind), st.none() | st.lists(values, max_size=20)
    return name, kind, st.none() | values if name in PORTABLE_NULLABLE else values


CLASSES = st.dictionaries(NAMES, kinds(), min_size=1, max_size=8)


def struct_of(fields: dict) -> t.StructType:
    return t.StructType([t.StructField(name, kind) for name, (_, kind, _) in fields.items()])


def class_of(fields: dict, number: int = 1) -> type[PortableRecord]:
    return portable_class({name: word for name, (word, _, _) in fields.items()}, number)


def value_of(draw, made: type[PortableRecord], fields: dict) -> PortableRecord:
    return made({name: draw(values) for name, (_, _, values) in fields.items()})


def to_data(service, value: PortableRecord) -> bytes:
    return bytes(service.to_data(value).buffer)


def no_schema(number: int):
    raise AssertionError(f"nobody asks for Compact's schema {number}")


def read(pieces: list[bytes | None], kind: t.StructType) -> list:
    column = PortableColumn(kind)(pa.array(pieces, pa.binary()), no_schema)
    column.validate(full=True)
    return column.to_pylist()


@given(st.data(), CLASSES)
def test_fields_of_any_type_are_what_the_clients_reader_says(data, fields) -> None:
    made = class_of(fields)
    service = portable_service(made)
    values = [value_of(data.draw, made, fields) for _ in range(data.draw(st.integers(0, 4)))]
    pieces = [to_data(service, value) for value in values]
    read_by_client = [service.to_object(Data(piece)).as_row() for piece in pieces]
    assert read([*pieces, None], struct_of(fields)) == [*read_by_client, None]


@given(st.data(), CLASSES)
def test_values_in_values_and_arrays_of_them(data, fields) -> None:
    inner = class_of(fields, 2)
    outer = portable_class(
        {"a": "int", "items": "portable_array", "one": "portable", "z": "boolean"}
    )
    service = portable_service(inner, outer)

    def value() -> PortableRecord:
        return value_of(data.draw, inner, fields)

    pieces = [
        to_data(service, outer({"a": 1, "items": items, "one": value(), "z": True}))
        for items in [[value() for _ in range(count)] for count in (1, 3)]
    ]
    kind = struct_of(fields)
    wanted = t.StructType().add("items", t.ArrayType(kind)).add("one", kind).add("z", "boolean")
    expected = [service.to_object(Data(piece)).as_row() for piece in pieces]
    found = read(pieces, wanted)
    assert found == [{name: row[name] for name in ("items", "one", "z")} for row in expected]


def test_a_value_in_a_value_may_be_null() -> None:
    class Outer(portable_class({})):
        def write_portable(self, writer) -> None:
            writer.write_null_portable("one", 7, 2)
            writer.write_portable_array("items", None)
            writer.write_portable_array("empty", [])

    inner = ClassDefinitionBuilder(7, 2, 0).add_int_field("x").build()
    outer = ClassDefinitionBuilder(7, 1, 0)
    outer.add_portable_field("one", inner).add_portable_array_field("items", inner)
    outer.add_portable_array_field("empty", inner)
    service = portable_service(Outer)
    context = service._portable_context
    context.register_class_definition(inner)
    context.register_class_definition(outer.build())
    kind = t.StructType().add("x", "integer")
    wanted = t.StructType().add("one", kind).add("items", t.ArrayType(kind))
    wanted = wanted.add("empty", t.ArrayType(kind))
    found = read([to_data(service, Outer())], wanted)
    assert found == [{"one": None, "items": None, "empty": []}]
    strict = t.StructType().add("one", kind, nullable=False)
    with pytest.raises(SourceError, match=r"\$\.one is null or missing, and is NOT NULL"):
        read([to_data(service, Outer())], strict)


def test_versions_of_a_class_and_other_classes_are_read_side_by_side() -> None:
    shapes = [
        ({"id": "int"}, {"id": 1}),
        ({"name": "string", "id": "long"}, {"name": "b", "id": 2}),
        ({"id": "int"}, {"id": 3}),
        ({"eman": "string", "id": "long"}, {"eman": "d", "id": 4}),  # as long as the second's
    ]
    pieces = []
    for kinds_of, fields in shapes:
        made = portable_class(kinds_of)
        pieces.append(to_data(portable_service(made), made(fields)))
    wanted = t.StructType().add("name", "string").add("id", "long").add("nobody has it", "date")
    assert read(pieces, wanted) == [
        {"name": name, "id": number, "nobody has it": None}
        for number, name in ((1, None), (2, "b"), (3, None), (4, None))
    ]


def test_what_does_not_fit_is_told_with_the_field() -> None:
    made = portable_class({"f": "long", "day": "timestamp_with_timezone"})
    zone = datetime.timezone(datetime.timedelta(hours=2))
    value = made({"f": 300, "day": datetime.datetime(2024, 2, 29, 1, tzinfo=zone)})
    piece = to_data(portable_service(made), value)
    texts = t.StructType().add("f", "string").add("day", "string")
    assert read([piece], texts) == [{"f": "300", "day": "2024-02-29T01:00:00+02:00"}]
    with pytest.raises(SourceError, match=r"\$\.f does not fit tinyint: .*300 not in range"):
        read([piece], t.StructType().add("f", "byte"))
    with pytest.raises(SourceError, match=r"\$\.day is timestamp with timezone, which is not"):
        read([piece], t.StructType().add("day", "date"))
    with pytest.raises(SourceError, match="of Hazelcast's type -11, and Portable is -1: read"):
        read([piece, struct.pack(">iii", 0, -11, 1) + b"x"], t.StructType().add("f", "long"))


def test_bytes_are_binary_or_numbers() -> None:
    made = portable_class({"f": "byte_array"})
    piece = to_data(portable_service(made), made({"f": bytearray(b"\x01\xff")}))
    assert read([piece], t.StructType().add("f", "binary")) == [{"f": b"\x01\xff"}]
    assert read([piece], t.StructType().add("f", t.ArrayType(t.LongType()))) == [{"f": [1, -1]}]


@given(st.data(), CLASSES)
def test_damage_is_told_in_a_sentence(data, fields) -> None:
    """Or is not seen: then the columns are whole, and each row but the damaged one is as it was."""
    made = class_of(fields)
    service = portable_service(made)
    good = to_data(service, value_of(data.draw, made, fields))
    noise = data.draw(st.binary(min_size=1, max_size=8))
    at = data.draw(st.integers(0, len(good)))
    damaged = good[:at] + noise + good[at + len(noise) :]
    damaged = damaged[: data.draw(st.integers(0, len(damaged)))]
    try:
        found = read([good, damaged, good], struct_of(fields))
    except SourceError as error:
        assert str(error).startswith("It is ")
    else:
        assert found[0] == found[2] == service.to_object(Data(good)).as_row()
