"""Writer's schemas that a registry takes, and fastavro does not: Java's Avro ignores what is wrong
with a logical type."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from eo_kafka.formats.avro.reader import AvroReader
from eo_kafka.formats.shared.decoding import typed
from eo_kafka.formats.shared.registry import pack

KIND = pa.struct([("a", pa.int64())])
GOOD, EVIL = 7, 8


def schema(kind: Any) -> str:
    fields = [{"name": "a", "type": "long"}, {"name": "d", "type": kind}]
    return json.dumps({"type": "record", "name": "R", "fields": fields})


WANTED = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]})
DECIMAL = {"type": "bytes", "logicalType": "decimal"}
REFUSED = {
    "more digits behind the point than at all": schema({**DECIMAL, "precision": 2, "scale": 4}),
    "a fixed that is too small": schema(
        {**DECIMAL, "type": "fixed", "name": "F", "size": 2, "precision": 30}
    ),
    "a default that is none of the enum's": schema(
        {"type": "enum", "name": "E", "symbols": ["A"], "default": "Z"}
    ),
    "an unknown type": schema("nope"),
    "no JSON": "{nope",
    "a list of nothing that is a schema": "[1, null]",
    "deep JSON": '{"type":' * 20_000,
    "a number": '{"type": 1}',
}

# What the compiled loops alone do not take
READ = {
    "no precision": schema(DECIMAL),
    "a union in a union": schema(["null", ["null", "long"]]),
}


class Registry:
    def __init__(self, evil: str) -> None:
        self._evil = evil

    def schema(self, number: int, *_: object) -> str:
        return self._evil if number == EVIL else WANTED


@pytest.mark.usefixtures("loops")
@pytest.mark.parametrize("name", REFUSED)
def test_its_values_are_bad_and_their_neighbours_are_read(name) -> None:
    values = [pack(GOOD, b"\x02"), pack(EVIL, b"\x02\x00"), pack(GOOD, b"\x04")]
    reader = AvroReader(WANTED, Registry(REFUSED[name]))  # type: ignore[arg-type]
    bad: list[tuple[int, str]] = []
    for given in (values, values[1:2]):
        found = typed(
            pa.array(given), reader, KIND, lambda row, error: bad.append((row, str(error)))
        )
        rows = [{"a": 1}, None, {"a": 2}]
        assert found.to_pylist() == (rows if len(given) > 1 else [None])
    assert [row for row, _ in bad] == [1, 0]
    assert all("schema 8" in reason for _, reason in bad), bad


@pytest.mark.usefixtures("loops")
@pytest.mark.parametrize("name", READ)
def test_what_fastavro_reads_is_read(name) -> None:
    reader = AvroReader(WANTED, Registry(READ[name]))  # type: ignore[arg-type]
    bad: list[Exception] = []
    values = pa.array([pack(GOOD, b"\x02"), pack(EVIL, b"\x04\x00")])
    found = typed(values, reader, KIND, lambda _, error: bad.append(error))
    assert found.to_pylist() == [{"a": 1}, {"a": 2}]
    assert bad == []
