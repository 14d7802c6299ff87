"""The compiled Avro decoder gives the columns that the plain one gives, and leaves it the rest."""

from __future__ import annotations

import io
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eo_kafka.formats.avro import columns as avro_columns
from eo_kafka.formats.avro.codec import Decoder, Encoder, parsed
from eo_kafka.formats.avro.reader import AvroReader
from eo_kafka.formats.avro.types import spark_type
from eo_kafka.formats.shared.arrow_types import arrow_type
from eo_kafka.formats.shared.decoding import typed

QUICK = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
SCALARS: list[Any] = [
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "bytes",
    "string",
    {"type": "int", "logicalType": "date"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 3},
    {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 5},
]


def numbered(schema: Any, numbers: Iterator[int]) -> Any:
    """With a name for each type that needs one."""
    if isinstance(schema, list):
        return [numbered(one, numbers) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: numbered(one, numbers) for name, one in schema.items()}
    return {**found, "name": f"n{next(numbers)}"} if "name" not in found else found


def records(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def record(kinds: list[Any]) -> dict[str, Any]:
        fields = [{"name": f"f{at}", "type": kind} for at, kind in enumerate(kinds)]
        return {"type": "record", "fields": fields}

    return st.lists(inner, min_size=1, max_size=4).map(record)


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    no_union = inner.filter(lambda kind: not isinstance(kind, list))
    return st.one_of(
        records(inner),
        inner.map(lambda kind: {"type": "array", "items": kind}),
        inner.map(lambda kind: {"type": "map", "values": kind}),
        no_union.map(lambda kind: ["null", kind]),
        no_union.map(lambda kind: [kind, "null"]),
        records(inner).map(lambda kind: ["string", "null", kind, "boolean"]),
    )


leaves = st.one_of(
    st.sampled_from(SCALARS),
    st.just({"type": "enum", "symbols": ["A", "B", "C"]}),
    st.just({"type": "fixed", "size": 3}),
    st.just({"type": "fixed", "size": 4, "logicalType": "decimal", "precision": 9, "scale": 1}),
)
schemas = records(st.recursive(leaves, nested, max_leaves=8)).map(
    lambda schema: numbered(schema, itertools.count())
)


def by_hand(schema: Any, values: list[bytes | None], wanted: Any = None) -> pa.Array:
    """What the plain decoder makes of it, one by one."""
    decoder = Decoder(parsed(schema), wanted and parsed(wanted))
    kind = arrow_type(spark_type(parsed(wanted or schema))[0])
    found = []
    for value in values:
        try:
            one = None if value is None else decoder.decode(value)
            pa.array([one], kind)
        except Exception:
            one = None
        found.append(one)
    return pa.array(found, kind)


def at_once(schema: Any, values: list[bytes | None], wanted: Any = None) -> Any:
    kind = arrow_type(spark_type(parsed(wanted or schema))[0])
    written = json.dumps(schema)
    return avro_columns.decoded(
        pa.array(values, pa.binary()), written, json.dumps(wanted or schema), kind
    )


def assert_same(schema: Any, values: list[bytes | None], wanted: Any = None) -> None:
    found = at_once(schema, values, wanted)
    assert found is not None
    array, left = found
    array.validate(full=True)
    expected = by_hand(schema, values, wanted)
    good = np.setdiff1d(np.arange(len(values)), left)
    assert array.take(pa.array(good)).to_pylist() == expected.take(pa.array(good)).to_pylist()
    assert array.take(pa.array(left)).null_count == len(left)


def plain(schema: Any) -> Any:
    """Without logical types: what lies below may be any number, or any bytes."""
    if isinstance(schema, list):
        return [plain(one) for one in schema]
    if isinstance(schema, dict):
        return {name: plain(one) for name, one in schema.items() if name != "logicalType"}
    return schema


NUMBERS = st.one_of(st.integers(-1000, 3_000_000), st.integers(-(2**31), 2**31 - 1))
OF_SCALARS: dict[str, Any] = {
    "boolean": st.booleans(),
    "int": NUMBERS,
    "long": st.one_of(NUMBERS, st.integers(-(2**63), 2**63 - 1)),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=10),
    "string": st.text(max_size=5),
}


def data_of(schema: Any) -> Any:
    """Data that a plain schema takes."""
    if isinstance(schema, list):
        present = [one for one in schema if one != "null"]
        pairs = [data_of(one) for one in present]
        return st.one_of(st.none(), *pairs) if "null" in schema else st.one_of(*pairs)
    if isinstance(schema, str):
        return OF_SCALARS[schema]
    kind = schema["type"]
    if kind == "record":
        return st.fixed_dictionaries(
            {one["name"]: data_of(one["type"]) for one in schema["fields"]}
        )
    if kind == "array":
        return st.lists(data_of(schema["items"]), max_size=3)
    if kind == "map":
        return st.dictionaries(st.text(max_size=3), data_of(schema["values"]), max_size=3)
    if kind == "enum":
        return st.sampled_from(schema["symbols"])
    if kind == "fixed":
        return st.binary(min_size=schema["size"], max_size=schema["size"])
    return data_of(kind)


def written(schema: Any, data: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(plain(schema)), data)
    return stream.getvalue()


@QUICK
@given(st.data())
def test_what_was_written_is_read(data: st.DataObject) -> None:
    schema = data.draw(schemas)
    rows = data.draw(st.lists(data_of(plain(schema)), max_size=6))
    values: list[bytes | None] = [written(schema, row) for row in rows]
    assert_same(schema, [*values, None, *values])


@QUICK
@given(st.data())
def test_damaged_values_are_read_alike_or_left(data: st.DataObject) -> None:
    schema = data.draw(schemas)
    value = written(schema, data.draw(data_of(plain(schema))))
    damaged = bytearray(value)
    for _ in range(data.draw(st.integers(1, 3))):
        if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    values: list[bytes | None] = [value, bytes(damaged), value[:-1], value + b"\0", value]
    if at_once(schema, values) is not None:  # else all is left: text that is not UTF-8
        assert_same(schema, values)


@QUICK
@given(schemas, st.lists(st.none() | st.binary(max_size=24), max_size=8))
def test_random_bytes_are_read_alike_or_left(schema: Any, values: list[bytes | None]) -> None:
    if at_once(schema, values) is not None:
        assert_same(schema, values)


OLD = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "n", "type": "int"},
        {"name": "gone", "type": ["null", "string"]},
        {"name": "x", "type": "float"},
        {"name": "s", "type": ["null", "string"]},
        {"name": "in", "type": {"type": "record", "name": "I", "fields": []}},
    ],
}
NEW = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "s", "type": ["string", "null"]},
        {"name": "added", "type": ["null", "int"], "default": None},
        {"name": "x", "type": ["null", "double"]},
        {"name": "n", "type": "double"},
        {"name": "word", "type": "string", "default": "none"},
        {
            "name": "in",
            "type": {
                "type": "record",
                "name": "I",
                "fields": [{"name": "more", "type": "long", "default": 7}],
            },
        },
    ],
}


def test_a_schema_that_changed_is_read_as_the_new_one() -> None:
    row = {"n": 3, "gone": "x", "x": 0.1, "s": "s", "in": {}}
    values: list[bytes | None] = [written(OLD, row), None, written(OLD, {**row, "s": None}), b"\2"]
    found = at_once(OLD, values, NEW)
    assert_same(OLD, values, NEW)
    assert found is not None
    assert found[1].tolist() == [3]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (["int", "long", "string"], "a union of several types"),
        ({"type": "long", "logicalType": "timestamp-millis"}, "another meaning"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "no number"),
        (["null", "string"], "no number"),
    ],
)
def test_what_is_rare_is_left_to_the_plain_decoder(changed: Any, reason: str) -> None:
    def one(kind: Any) -> Any:
        return {"type": "record", "name": "R", "fields": [{"name": "n", "type": kind}]}

    assert at_once(one("long"), [b"\2"], one(changed)) is None, reason


def test_a_column_of_good_and_bad_and_unlike_values_is_whole() -> None:
    schema = json.dumps({"type": "map", "values": "long"})
    kind = arrow_type(spark_type(parsed(json.loads(schema)))[0])
    encode = Encoder(parsed(json.loads(schema))).encode
    good = encode([("a", 1), ("b", 2)])
    twice = b"\x04\x02a\x02\x02a\x04\x00"  # a key that comes twice: the last one counts
    bad: list[int] = []
    column = pa.array([good, twice, None, b"\xff", good], pa.binary())
    found = typed(column, AvroReader(schema, None), kind, lambda row, _: bad.append(row))
    assert bad == [3]
    pairs = [("a", 1), ("b", 2)]
    assert found.to_pylist() == [pairs, [("a", 2)], None, None, pairs]


@pytest.mark.full
def test_the_loop_stays_inside_its_arrays(tmp_path: Path) -> None:
    """All of the above once more, with every index looked at."""
    checked = {"NUMBA_BOUNDSCHECK": "1", "XDG_CACHE_HOME": str(tmp_path)}
    name = "not test_the_loop_stays_inside_its_arrays"
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k", name],
        env={**os.environ, **checked},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout[-4000:]
