"""Protobuf: types, values there and back, bad bytes, and what is said of wrong options."""

from __future__ import annotations

import base64
import pickle
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import struct_pb2
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pyspark.sql import types as t

import protobuf_files as pb
from eo_kafka.errors import OptionsError
from eo_kafka.formats.options import FormatOptions
from eo_kafka.formats.protobuf import options as protobuf_options
from eo_kafka.formats.protobuf.codec import codec
from eo_kafka.formats.protobuf.descriptors import descriptor, pruned
from eo_kafka.formats.protobuf.strict import Misfit
from eo_kafka.formats.protobuf.types import column_problems, spark_type
from eo_kafka.formats.shared.arrow_types import arrow_type

SCALARS = [
    "int32", "sint32", "sfixed32", "uint32", "fixed32", "int64", "sint64", "sfixed64", "uint64",
    "fixed64", "float", "double", "bool", "string", "bytes",
]  # fmt: skip


def all_kinds() -> Any:
    """A message with all that Protobuf has, singular, repeated, optional, and as a map."""
    made = pb.file("all.proto", "all", "google/protobuf/timestamp.proto",
                   "google/protobuf/duration.proto")  # fmt: skip
    enum = made.enum_type.add(name="Kind")
    for number, name in enumerate(("ZERO", "ONE")):
        enum.value.add(name=name, number=number)
    inner = made.message_type.add(name="Inner")
    pb.add(inner, "n", 1, "int32")
    made.message_type.add(name="Empty")
    kinds = [*SCALARS, "enum .all.Kind", ".all.Inner", ".google.protobuf.Timestamp",
             ".google.protobuf.Duration"]  # fmt: skip
    one = made.message_type.add(name="All")
    for number, kind in enumerate(kinds, 1):
        word = kind.rpartition(".")[2].lower()
        pb.add(one, f"one_{word}", number, kind)
        pb.add(one, f"some_{word}", number + 100, kind, repeated=True)
        pb.add_map(one, f"map{word}", number + 200, "string", kind, "all")
        if not kind.startswith("."):
            pb.add(one, f"maybe_{word}", number + 300, kind, optional=True)
    pb.add_map(one, "mapkeys", 401, "uint64", "bool", "all")
    pb.add(one, "empty", 402, ".all.Empty")
    either = len(one.oneof_decl)
    one.oneof_decl.add(name="either")
    for number, kind in ((403, "string"), (404, ".all.Inner")):
        pb.add(one, f"either{number}", number, kind).oneof_index = either
    # those of proto3's optional fields come last
    declared = [item for item in one.oneof_decl if item.name == "either"]
    declared += [item for item in one.oneof_decl if item.name != "either"]
    numbers = {item.name: number for number, item in enumerate(declared)}
    for field in one.field:
        if field.HasField("oneof_index"):
            field.oneof_index = numbers[one.oneof_decl[field.oneof_index].name]
    names = [item.name for item in declared]
    del one.oneof_decl[:]
    for name in names:
        one.oneof_decl.add(name=name)
    return made


ALL = pruned(pb.base64_of(all_kinds()), "all.All")
TYPE = spark_type(descriptor(ALL, "all.All"))
ARROW = arrow_type(TYPE)
ORDERS = pb.base64_of(pb.orders())
ORDER = pruned(ORDERS, "shop.Order")


def test_types() -> None:
    words = {field.name: field.dataType.simpleString() for field in TYPE.fields}
    assert {name: words[f"one_{name}"] for name in SCALARS} == {
        **dict.fromkeys(("int32", "sint32", "sfixed32"), "int"),
        **dict.fromkeys(("uint32", "fixed32", "int64", "sint64", "sfixed64"), "bigint"),
        **dict.fromkeys(("uint64", "fixed64"), "decimal(20,0)"),
        "float": "float",
        "double": "double",
        "bool": "boolean",
        "string": "string",
        "bytes": "binary",
    }
    assert words["one_kind"] == "string"
    assert words["one_timestamp"] == "timestamp"
    assert words["one_duration"] == "interval day to second"
    assert words["some_inner"] == "array<struct<n:int>>"
    assert words["mapkeys"] == "map<decimal(20,0),boolean>"
    assert "empty" not in words
    assert all(field.nullable for field in TYPE.fields), "nothing is required in proto3"


# --- there and back -----------------------------------------------------------------------------

_MICROSECONDS = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_NAME = st.sampled_from(["ZERO", "ONE"])
VALUES: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("int32", "sint32", "sfixed32"), st.integers(-(2**31), 2**31 - 1)),
    **dict.fromkeys(("int64", "sint64", "sfixed64"), st.integers(-(2**63), 2**63 - 1)),
    **dict.fromkeys(("uint32", "fixed32"), st.integers(0, 2**32 - 1)),
    **dict.fromkeys(("uint64", "fixed64"), st.integers(0, 2**64 - 1).map(Decimal)),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "string": st.text(max_size=5),
    "bytes": st.binary(max_size=5),
    "kind": _NAME,
    "inner": st.fixed_dictionaries({"n": st.integers(-5, 5)}),
    "timestamp": _MICROSECONDS.map(lambda micros: _EPOCH + timedelta(microseconds=micros)),
    "duration": st.integers(-(3 * 10**17), 3 * 10**17).map(lambda n: timedelta(microseconds=n)),
}


def _field(name: str) -> st.SearchStrategy[Any]:
    way, _, word = name.partition("_")
    if name == "mapkeys":
        keys = st.integers(0, 2**64 - 1).map(Decimal)
        return st.dictionaries(keys, st.booleans(), max_size=2).map(lambda d: sorted(d.items()))
    if name.startswith("map"):
        made = st.dictionaries(st.text(max_size=2), VALUES[name.removeprefix("map")], max_size=2)
        return made.map(lambda pairs: sorted(pairs.items()))
    if way == "some":
        return st.lists(VALUES[word], max_size=3)
    has_presence = way == "maybe" or word in ("inner", "timestamp", "duration")
    return st.none() | VALUES[word] if has_presence else VALUES[word]


_EITHER = st.sampled_from([
    {"either403": None, "either404": None},
    {"either403": "", "either404": None},
    {"either403": None, "either404": {"n": 0}},
])  # fmt: skip
ROWS = st.builds(
    lambda row, either: {**row, **either},
    st.fixed_dictionaries(
        {name: _field(name) for name in TYPE.names if not name.startswith("either")}
    ),
    _EITHER,
)


def by_order(row: Any) -> Any:
    """Maps have none."""
    return {name: sorted(value) if name.startswith("map") else value for name, value in row.items()}


@settings(max_examples=25, deadline=None)
@given(ROWS)
def test_there_and_back_through_arrow(row: dict[str, Any]) -> None:
    made = codec(ALL, "all.All")
    (before,) = pa.array([row], ARROW).to_pylist()
    data = made.encode(before)
    (after,) = pa.array([made.decode(data)], ARROW).to_pylist()
    assert by_order(after) == by_order(before) == row
    assert made.encode(after) == data, "the same bytes again: a replay must be equal"


def test_what_is_absent_is_null_or_protobufs_default() -> None:
    found = codec(ALL, "all.All").decode(b"")
    assert found["one_int32"] == 0
    assert found["one_kind"] == "ZERO"
    assert found["maybe_int32"] is None
    assert found["one_inner"] is None
    assert found["either403"] is None
    assert found["some_int32"] == found["mapint32"] == []
    made = codec(ALL, "all.All")
    assert made.encode({"one_int32": None, "maybe_int32": None}) == b""


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"one_int32": 2**31}, "out of range"),
        ({"one_uint32": -1}, "out of range"),
        ({"one_uint64": Decimal(2**64)}, "out of range"),
        ({"one_kind": "TWO"}, "enum 'all.Kind' has no 'TWO'"),
        ({"some_int32": [1, None]}, "'some_int32' holds a null"),
        ({"some_inner": [None]}, "'some_inner' holds a null"),
        ({"mapint32": [("a", None)]}, "'mapint32' holds a null"),
        ({"mapinner": [("a", None)]}, "'mapinner' holds a null"),
        ({"mapint32": [("a", 1), ("b", 1), ("a", 2)]}, "'mapint32' has a key twice"),
        ({"mapinner": [("a", {"n": 1}), ("a", {"n": 1})]}, "'mapinner' has a key twice"),
        ({"either403": "x", "either404": {"n": 1}}, "only one of either403, either404"),
        ({"one_duration": timedelta(days=4_000_000)}, "longer than Protobuf's"),
    ],
)
def test_a_value_that_its_field_cannot_hold_is_refused(value: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        codec(ALL, "all.All").encode(value)


# --- bad bytes ----------------------------------------------------------------------------------

GOOD = {"id": 7, "name": "a", "at": _EPOCH, "lines": [{"sku": "x", "count": 2}],
        "tags": [("t", 1.5)], "kind": "PAID"}  # fmt: skip


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x08", "its bytes are no 'shop.Order'"),  # a number that is cut off
        (b"\x12\x05ab", "its bytes are no 'shop.Order'"),  # a text that is cut off
        (b"\x10\x01\x08\x01", "field 2 .'name'. of 'shop.Order' has wire type 0, and not 2"),
        (b"\x08\x01\xff\xff", "its bytes are no 'shop.Order'"),  # something behind it
        (b"\x12\x01\xff", "its bytes are no 'shop.Order'"),  # a text that is not UTF-8
        (b"\x0a\x01x", "field 1 \\('id'\\) of 'shop.Order'.*wire type 2"),
        (b"\x10\x01", "field 2 \\('name'\\)"),
        (b"\x22\x02\x08\x01", "field 1 \\('sku'\\) of 'shop.Line'"),
        (b"\x30\x09", "no name for 9"),
        (b"\x2a\x05\x0a\x01a\x10\x07", "field [25] \\('(tags|value)'\\)"),  # in an entry of a map
        (b"\x1a\x02\x0a\x00", "field 1 of a time has wire type 2"),
        (b"\x1a\x0b\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "ns is none"),
        (b"\x1a\x07\x08\x80\x80\x80\x80\x80\x40", "s and 0 ns is none"),
    ],
)
def test_bytes_that_are_not_the_messages_are_refused(data: bytes, reason: str) -> None:
    made = codec(ORDER, "shop.Order")
    with pytest.raises(Misfit, match=reason):
        made.decode(data)


def test_a_message_that_is_cut_off_is_refused_or_lacks_what_was_behind() -> None:
    made = codec(ORDER, "shop.Order")
    data = made.encode(GOOD)
    whole = made.decode(data)
    for size in range(len(data)):
        try:
            found = made.decode(data[:size])
        except Exception:
            continue
        assert found != whole


def test_fields_that_are_new_are_skipped() -> None:
    made = codec(ORDER, "shop.Order")
    data = made.encode(GOOD)
    assert made.decode(data + b"\xd2\x06\x03new") == made.decode(data)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=40) | ROWS.map(lambda row: codec(ALL, "all.All").encode(row)), st.data())
def test_any_bytes_are_a_row_or_refused(data: bytes, draw: st.DataObject) -> None:
    """Nothing else: no crash, and no value that Arrow cannot hold."""
    if data and draw.draw(st.booleans()):
        at = draw.draw(st.integers(0, len(data) - 1))
        data = data[:at] + bytes([draw.draw(st.integers(0, 255))]) + data[at + 1 :]
    made = codec(ALL, "all.All")
    try:
        found = made.decode(data)
    except Misfit:
        return
    pa.array([found], ARROW)


def numbers(kind: str) -> str:
    """A message of numbers, of one of Protobuf's types, singly, in lists and deeper."""
    made = pb.file("n.proto", "n")
    inner = made.message_type.add(name="Inner")
    pb.add(inner, "one", 1, kind)
    one = made.message_type.add(name="Numbers")
    pb.add(one, "one", 1, kind)
    pb.add(one, "some", 2, kind, repeated=True)
    pb.add(one, "inner", 3, ".n.Inner")
    pb.add_map(one, "tags", 4, kind, kind, "n")
    return pruned(pb.base64_of(made), "n.Numbers")


PLACES = [
    lambda n: {"one": n},
    lambda n: {"some": [1, n]},
    lambda n: {"inner": {"one": n}},
    lambda n: {"tags": [(1, n)]},
    lambda n: {"tags": [(n, 1)]},
]
INTEGERS = ("int32", "uint32", "sint32", "int64", "uint64", "sint64")


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(INTEGERS), st.sampled_from(INTEGERS), st.sampled_from(PLACES), st.data())
def test_a_number_of_another_field_is_the_same_or_refused(
    written: str, read: str, place: Any, draw: st.DataObject
) -> None:
    """Bytes do not say which of the 64-bit types they are of, nor whether they are in zigzag;
    numbers that do not fit are told."""
    assume(written == read or "64" not in read)
    assume(("sint" in written) == ("sint" in read))
    value = int(draw.draw(VALUES[written] | VALUES["int32" if written[0] != "u" else "uint32"]))
    data = codec(numbers(written), "n.Numbers").encode(place(value))
    if (written, read) == ("uint64", "int32") and value >= 2**64 - 2**31:
        value -= 2**64  # the same bytes
    row = place(value)
    schema = numbers(read)
    low, high = (0, 2**32 - 1) if read == "uint32" else (-(2**31), 2**31 - 1)
    made = codec(schema, "n.Numbers")
    if written == read or low <= value <= high:
        shape = arrow_type(spark_type(descriptor(schema, "n.Numbers")))
        (found,) = pa.array([made.decode(data)], shape).to_pylist()
        assert {name: found[name] for name in row} == row
    else:
        with pytest.raises(Misfit, match="is too long for it"):
            made.decode(data)


@pytest.mark.parametrize(
    "data",
    [
        b"\x68\x02",  # two for a yes
        b"\x80\x01\x80\x80\x80\x80\x10",  # 2**32 for an enum: cut off it is the first name
        *(tag + b"\x80" * 9 + b"\x02" for tag in (b"\x30", b"\x38", b"\x48")),  # 2**64: cut off 0
        b"\x08" + b"\xff" * 9 + b"\x7f",  # cut off -1
        b"\xd2\x06\x0a" + b"\x80" * 9 + b"\x02",  # in a packed list
    ],
)
def test_numbers_that_are_cut_off_to_what_there_is_are_refused(data: bytes) -> None:
    with pytest.raises(Misfit, match="is too long for it|is there as what it is not"):
        codec(ALL, "all.All").decode(data)


@settings(max_examples=15, deadline=None)
@given(ROWS, st.randoms())
def test_fields_may_come_in_any_order(row: dict[str, Any], chance: Any) -> None:
    """As other encoders write them."""
    made = codec(ALL, "all.All")
    (given,) = pa.array([row], ARROW).to_pylist()
    parts = []
    for name, value in given.items():
        pieces = [[pair] for pair in value] if name.startswith("map") else [value]
        parts += [made.encode({name: piece}) for piece in pieces]
    chance.shuffle(parts)
    (found,) = pa.array([made.decode(b"".join(parts))], ARROW).to_pylist()
    assert by_order(found) == row


def test_proto2() -> None:
    file = pb.file("two.proto", "two", syntax="proto2")
    one = file.message_type.add(name="Two")
    pb.add(one, "id", 1, "int32").label = pb.F.LABEL_REQUIRED
    pb.add(one, "size", 2, "int32").default_value = "5"
    pb.add(one, "text", 3, "string")
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="A", number=1)
    pb.add(one, "kind", 4, "enum .two.Kind")
    schema = pruned(pb.base64_of(file), "two.Two")
    made = codec(schema, "two.Two")
    assert not spark_type(descriptor(schema, "two.Two"))["id"].nullable
    assert made.decode(b"\x08\x01") == {"id": 1, "size": 5, "text": None, "kind": None}
    with pytest.raises(ValueError, match="required fields are missing: id"):
        made.decode(b"\x10\x01")
    with pytest.raises(ValueError, match="field 4 .'kind'."):  # a number without a name
        made.decode(b"\x08\x01\x20\x07")
    with pytest.raises(ValueError, match="(?i)utf-8"):
        made.decode(b"\x08\x01\x1a\x01\xff")
    with pytest.raises(ValueError, match="'id' is required and is null"):
        made.encode({"id": None})


def test_a_map_is_read_in_the_same_order_by_every_process() -> None:
    """The library's own order is another one in each process, and a task that runs again must
    write the same JSON or Avro."""
    made = codec(ALL, "all.All")
    keys = [f"k{number}" for number in range(20)]
    data = b"".join(made.encode({"mapinner": [(key, {"n": 1})]}) for key in reversed(keys))
    assert [key for key, _ in made.decode(data)["mapinner"]] == sorted(keys)


METHODS = ["MergeFromString", "IsInitialized", "FindInitializationErrors", "SerializeToString",
           "HasField", "SetInParent", "UnknownFields", "FromString"]  # fmt: skip


def test_fields_may_be_named_like_the_librarys_methods() -> None:
    file = pb.file("methods.proto", "m", syntax="proto2")
    made = file.message_type.add(name="M")
    inner = made.nested_type.add(name="Inner")
    for number, name in enumerate(METHODS, 1):
        pb.add(made, name, number, "int32")
        pb.add(inner, name, number, "int32")
    pb.add(made, "inner", 20, ".m.M.Inner")
    pb.add(made, "must", 21, "int32").label = pb.F.LABEL_REQUIRED
    own = codec(pruned(pb.base64_of(file), "m.M"), "m.M")
    inside = {name: number for number, name in enumerate(METHODS)}
    for some in (inside, dict.fromkeys(METHODS)):
        row = {**some, "inner": some, "must": 1}
        assert own.decode(own.encode(row)) == row
    with pytest.raises(Misfit, match="required fields are missing: must"):
        own.decode(b"\x08\x01")


# --- columns and options ------------------------------------------------------------------------


def test_columns_that_the_message_does_not_have_are_told_all_together() -> None:
    kind = (
        t.StructType()
        .add("id", t.StringType())
        .add("nmae", t.StringType())
        .add("lines", t.ArrayType(t.StructType().add("sku", "binary").add("count", t.ShortType())))
        .add("tags", t.StringType())
        .add("kind", t.StringType())
    )
    said = column_problems(descriptor(ORDER, "shop.Order"), kind, "value")
    assert [sentence.partition(": ")[2] for sentence in said] == [
        "'value.id' must be bigint; it is string.",
        "'value.nmae' is no field of 'shop.Order'.",
        "'value.lines.sku' must be string; it is binary.",
        "'value.tags' must be a map; it is string.",
    ]
    (only,) = column_problems(descriptor(ORDER, "shop.Order"), t.StringType(), "value")
    assert "must be a struct of its fields; it is string" in only


def of_reader(**given: str) -> FormatOptions:
    dotted = {name.replace("_", "."): value for name, value in given.items()}
    return FormatOptions.of_reader({"subscribe": "orders", "value.format": "protobuf", **dotted})


def problems(**given: str) -> str:
    with pytest.raises(OptionsError) as raised:
        of_reader(**given)
    return " ".join(raised.value.problems)


def lonely() -> str:
    made = pb.file("a.proto", "a", "b.proto")
    pb.add(made.message_type.add(name="A"), "b", 1, ".b.B")
    return pb.base64_of(made)


def tree() -> str:
    made = pb.file("a.proto", "a")
    pb.add(made.message_type.add(name="Tree"), "left", 1, ".a.Tree")
    made.message_type.add(name="Empty")
    return pb.base64_of(made)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"value_schema": ORDERS}, "needs 'value.message'"),
        ({"value_message": "shop.Order"}, "needs one of 'value.schema.file'"),
        (
            {"value_message": "shop.Order", "schema_registry_url": "http://r"},
            "also with a schema registry",
        ),
        (
            {"value_message": "x", "value_schema": ORDERS, "value_schema_file": "f"},
            "needs one of 'value.schema.file'",
        ),
        ({"value_message": "x", "value_schema": "{}"}, "is not the base64 of a descriptor set"),
        ({"value_message": "x", "value_schema": "eHh4"}, "is no descriptor set"),
        ({"value_message": "x", "value_schema": "CgA="}, "no descriptor set: no file is in it"),
        (
            {"value_message": "x", "value_schema_file": "/nowhere/x"},
            "Option 'value.schema.file' (/nowhere/x) cannot be read on the driver's machine: "
            "FileNotFoundError",
        ),
        ({"value_message": "Order", "value_schema": ORDERS}, "did you mean 'shop.Order'?"),
        ({"value_message": "x.Y", "value_schema": ORDERS}, "it has shop.Line, shop.Order."),
        ({"value_message": "a.A", "value_schema": lonely()}, "lacks 'b.proto', which 'a.proto'"),
        ({"value_message": "a.Tree", "value_schema": tree()}, "'a.Tree' contains itself"),
        ({"value_message": "a.Empty", "value_schema": tree()}, "has no field that a column"),
        ({"value_format": "json", "value_message": "x"}, "is for 'value.format' 'protobuf'"),
    ],
)
def test_wrong_options_are_told(given: dict[str, str], sentence: str) -> None:
    assert sentence in problems(**given)


def test_all_is_told_at_once() -> None:
    said = problems(key_format="protobuf", mode="DEADLETTER", value_schema="?", value_message="x")
    for part in ("'key.message'", "'key.schema.file'", "deadLetterTopic", "no descriptor set"):
        assert part in said or "base64 of a descriptor set" in said


def test_well_known_types_that_contain_themselves_are_refused() -> None:
    own = pb.file("google/protobuf/struct.proto", "")
    struct_pb2.DESCRIPTOR.CopyToProto(own)
    made = pb.file("a.proto", "a", own.name)
    pb.add(made.message_type.add(name="A"), "any", 1, ".google.protobuf.Struct")
    said = problems(value_message="a.A", value_schema=pb.base64_of(own, made))
    assert "contains itself" in said


def test_where_the_library_is_missing_all_else_works() -> None:
    code = """
import sys
sys.modules["google"] = None
from eo_kafka.connectors import kafka, kafka_sink, kafka_source
from eo_kafka.formats import reading, writing
from eo_kafka.formats.options import FormatOptions
FormatOptions.of_reader({"value.format": "json", "value.schema": "id BIGINT"})
FormatOptions.of_reader({"value.format": "protobuf", "value.schema": "", "value.message": "x"})
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "OptionsError" in ran.stderr
    assert "pip install 'eo-kafka[protobuf]', on this machine and where the tasks" in ran.stderr


def test_a_file_travels_with_the_options_and_only_what_the_message_needs(tmp_path: Path) -> None:
    other = pb.file("other.proto", "other")
    other.message_type.add(name="Other")
    path = tmp_path / "orders.pb"
    path.write_bytes(pb.set_of(pb.orders(), other))
    named = {"value.schema.file": str(path), "value.message": "shop.Order"}
    found = {**named, **protobuf_options.with_files(named)}
    path.unlink()
    options = FormatOptions.of_reader({"subscribe": "t", "value.format": "protobuf", **found})
    (column,) = pickle.loads(pickle.dumps(options)).columns
    assert column.schema == ORDER
    assert b"other.proto" not in base64.b64decode(column.schema)
    again = {**found, **protobuf_options.with_files(found)}
    assert again == found
    assert protobuf_options.with_files(named) == {}, "what is wrong is left to be told"
