"""Which type of the wanted schema a written one becomes: as Java's Avro says, or a bad record.

What Java gives was asked of Avro 1.12.1, the one in Spark.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from avro_reading import read_as_source

from eo_kafka.formats.avro.codec import Decoder, parsed
from eo_kafka.formats.avro.types import spark_type
from eo_kafka.formats.shared.arrow_types import arrow_type


def record(name: str, *fields: tuple[str, Any], **more: Any) -> Any:
    made = [{"name": field, "type": kind} for field, kind in fields]
    return {"type": "record", "name": name, "fields": made, **more}


def one(*fields: tuple[str, Any]) -> Any:
    return record("T", *fields)


def grown(schema: Any) -> Any:
    more: Any = {"name": "more", "type": "int", "default": 7}
    return {**schema, "fields": [*schema["fields"], more]}


def read(old: Any, new: Any, data: bytes) -> tuple[Any, list[str]]:
    """One value, by the way that a source has; the plain decoder gives the same."""
    found, bad = read_as_source(old, new, data)
    if not bad:
        same = pa.array([Decoder(parsed(old), parsed(new)).decode(data)], found.type)
        assert same.to_pylist() == found.to_pylist()
    return found.to_pylist()[0], bad


V1 = record("com.v1.Order", ("id", "int"))
V2 = record("com.v2.Order", ("id", "int"), ("sum", "int"))
V2_ROW = {"o": {"member0": None, "member1": {"id": 5, "sum": 9}}}
E1 = {"type": "enum", "name": "a.E", "symbols": ["A", "B"]}
E2 = {"type": "enum", "name": "b.E", "symbols": ["A", "B"]}
F1 = {"type": "fixed", "name": "a.F", "size": 2}
F2 = {"type": "fixed", "name": "b.F", "size": 2}
B_OF_E2 = {"o": {"member0": None, "member1": "B"}}
AB_OF_F2 = {"o": {"member0": None, "member1": b"ab"}}
NAMES: list[tuple[Any, Any, bytes, Any]] = [
    (one(("o", V2)), one(("o", [V1, V2])), b"\x0a\x12", V2_ROW),
    (one(("o", ["null", V2])), one(("o", ["null", V1, V2])), b"\2\x0a\x12", V2_ROW),
    (one(("o", [V1, V2])), grown(one(("o", [V1, V2]))), b"\2\x0a\x12", {**V2_ROW, "more": 7}),
    (one(("o", [V1, V2])), one(("o", ["null", V1, V2])), b"\2\x0a\x12", V2_ROW),
    ([V1, V2], [V1, V2, "null"], b"\2\x0a\x12", V2_ROW["o"]),
    (one(("o", {"type": "array", "items": V2})), one(("o", {"type": "array", "items": [V1, V2]})),
     b"\2\x0a\x12\0", {"o": [V2_ROW["o"]]}),
    (one(("o", E2)), one(("o", [E1, E2])), b"\2", B_OF_E2),
    (one(("o", [E1, E2])), one(("o", ["null", E1, E2])), b"\2\2", B_OF_E2),
    (one(("o", F2)), one(("o", [F1, F2])), b"ab", AB_OF_F2),
    (one(("o", F2)), one(("o", [{**E1, "name": "a.F"}, F2])), b"ab", AB_OF_F2),
    (one(("o", ["null", F2])), one(("o", ["null", {**E1, "name": "a.F"}, F2])), b"\2ab", AB_OF_F2),
    (one(("o", E2)), one(("o", [record("a.E", ("x", "int")), E2])), b"\2", B_OF_E2),
    (one(("o", V2)), one(("o", [{**E1, "name": "a.Order"}, V2])), b"\x0a\x12", V2_ROW),
    (one(("o", V2)), one(("o", [V1, {**V2, "name": "New", "aliases": ["com.v2.Order"]}])),
     b"\x0a\x12", V2_ROW),
    (one(("o", V2)), one(("o", [V1, {**V2, "name": "com.v2.New", "aliases": ["Order"]}])),
     b"\x0a\x12", V2_ROW),
    # Java does not know enums and fixed of another namespace; the specification does
    (one(("o", E2)), one(("o", ["int", {**E2, "name": "c.E"}])), b"\2", B_OF_E2),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "data", "row"), NAMES, ids=str)
def test_of_two_types_with_one_short_name_it_is_the_one_of_its_full_name(
    old: Any, new: Any, data: bytes, row: Any
) -> None:
    assert read(old, new, data) == (row, [])


def test_it_is_the_same_one_where_the_schema_has_not_changed() -> None:
    old = {**V1, "name": "com.v1.New", "aliases": ["Order"]}
    schema = one(("o", [V1, old]))
    row = {"o": {"member0": {"id": 5}, "member1": None}}
    kind = arrow_type(spark_type(parsed(schema))[0])
    found = pa.array([Decoder(parsed(schema)).decode(b"\0\x0a")], kind)
    assert found.to_pylist() == [row]
    assert read(schema, schema, b"\0\x0a") == (row, [])


OTHERS: list[tuple[Any, Any, bytes, str]] = [
    (one(("o", F1)), one(("o", {**E1, "name": "a.F"})), b"ab",
     "fixed 'a.F' of 2 bytes is not enum 'a.F'"),
    (one(("o", F1)), one(("o", ["null", {**F1, "size": 3}])), b"ab", "fixed 'a.F' of 2 bytes is"),
    (one(("o", V1)), one(("o", {**E1, "name": "com.v1.Order"})), b"\x0a", "record 'com.v1.Order'"),
    (one(("o", V1)), one(("o", V2)), b"\x0a", "'com.v1.Order' has no field 'sum'"),
    # Which of them is meant, nobody can say
    (one(("o", {**V1, "name": "a.Order"})), one(("o", [V1, {**V1, "name": "b.Order"}])), b"\x0a",
     "record 'a.Order' is not one of record 'com.v1.Order', record 'b.Order'"),
    (one(("o", V1)), grown(one(("o", [V1, {**V1, "name": "New", "aliases": ["com.v1.Order"]}]))),
     b"\x0a", "'com.v1.Order' is not one of"),
    (one(("a", "int"), ("b", "int")),
     record("T", fields=[{"name": "c", "type": "int", "aliases": ["a", "b"]}]),
     b"\2\4", "two fields of record 'T' are its 'c'"),
    (one(("o", [E1, E2])), one(("o", ["null", E1])), b"\2\0", "enum 'b.E' is not one of null"),
    (one(("o", E1)), one(("o", {**E1, "symbols": ["A"]})), b"\2", "'B' is none of enum 'a.E'"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "data", "words"), OTHERS, ids=str)
def test_what_is_none_of_the_wanted_types_is_bad_and_told(
    old: Any, new: Any, data: bytes, words: str
) -> None:
    row, (reason,) = read(old, new, data)
    assert row is None
    assert words in reason


ADDRESS = record("Address", ("street", "string"))
TWICE = one(("billing", ADDRESS), ("shipping", "Address"))
X, Y = {"street": "x"}, {"street": "y"}
HOME = {"name": "home", "type": ["null", ADDRESS], "default": None}
MOVED: list[tuple[Any, Any, bytes, Any]] = [
    (TWICE, one(("shipping", ["null", ADDRESS])), b"\2x\2y", {"shipping": Y}),
    (TWICE, one(("shipping", ["null", ADDRESS]), ("billing", ["null", "Address"])), b"\2x\2y",
     {"shipping": Y, "billing": X}),
    (TWICE, one(("shipping", ADDRESS), ("billing", ["int", "Address"])), b"\2x\2y",
     {"shipping": Y, "billing": {"member0": None, "member1": X}}),
    (TWICE, {**TWICE, "fields": [HOME, {"name": "shipping", "type": "Address"}]}, b"\2x\2y",
     {"home": None, "shipping": Y}),
    (one(("a", E1), ("b", "a.E")), one(("b", ["null", E1])), b"\0\2", {"b": "B"}),
    (one(("a", ["null", ADDRESS]), ("l", {"type": "array", "items": "Address"})),
     one(("l", {"type": "array", "items": ["null", ADDRESS]})), b"\0\2\2x\0", {"l": [X]}),
    # Dropped twice, in a record that is used twice; and one that contains itself
    (one(("p", record("P", ("a", ADDRESS), ("n", "int"))), ("q", "P")),
     one(("p", record("P", ("n", "int"))), ("q", ["null", "P"])), b"\2x\2\2y\4",
     {"p": {"n": 1}, "q": {"n": 2}}),
    (one(("t", record("Tree", ("l", ["null", "Tree"]), ("n", "int"))), ("u", ["null", "Tree"])),
     one(("t", record("Tree", ("n", "int")))), b"\2\0\2\4\2\0\6", {"t": {"n": 2}}),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "data", "row"), MOVED, ids=str)
def test_a_type_is_known_where_its_definition_has_moved(
    old: Any, new: Any, data: bytes, row: Any
) -> None:
    assert read(old, new, data) == (row, [])


def lists(shape: str, inner: Any) -> Any:
    return {"type": shape, "items" if shape == "array" else "values": inner}


@pytest.mark.parametrize("shape", ["array", "map"])
def test_an_empty_array_or_map_is_read_whatever_its_items_were(shape: str) -> None:
    old, new = one(("x", ["int", lists(shape, "string")])), one(("x", ["int", lists(shape, "int")]))
    assert read(old, new, b"\2\0") == ({"x": {"member0": None, "member1": []}}, [])
    row, (reason,) = read(old, new, b"\2\2\2\2\0" if shape == "array" else b"\2\2\2k\2\2\0")
    assert row is None
    assert "string is not int" in reason


PROMOTED: list[tuple[Any, Any, bytes, Any]] = [
    (["float", "int"], ["double", "float"], b"\2\4", 2.0),
    (["float", "int"], ["double", "float", "string"], b"\2\4", {"member0": 2.0}),
    (["long", "int"], ["string", "double", "long"], b"\2\4", {"member1": 2.0}),
    (["bytes", "string"], "string", b"\2\4ab", "ab"),
    (["bytes", "string"], "bytes", b"\0\4ab", b"ab"),
    (["string", "bytes"], "bytes", b"\2\2\xff", b"\xff"),  # is no text in between
    (["bytes", "string"], ["int", "string"], b"\0\4ab", {"member1": "ab"}),
]


@pytest.mark.parametrize(("old", "new", "data", "value"), PROMOTED, ids=str)
def test_each_type_of_a_union_widens_by_itself(old: Any, new: Any, data: bytes, value: Any) -> None:
    row, bad = read(one(("x", old)), one(("x", new)), data)
    found = row["x"]
    if isinstance(found, dict):
        found = {name: one for name, one in found.items() if one is not None}
    assert (found, bad) == (value, [])


def test_an_old_name_is_a_fields_only_where_its_new_one_was_not_written() -> None:
    a = {"name": "a", "type": "int", "aliases": ["b"]}
    new = record("T", fields=[a, {"name": "b", "type": "int", "default": 7}])
    assert read(one(("b", "int")), new, b"\2") == ({"a": 1, "b": 7}, [])
    assert read(one(("b", "int"), ("a", "int")), new, b"\2\4") == ({"a": 2, "b": 1}, [])
