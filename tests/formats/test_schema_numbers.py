"""Bytes of another application in a topic that is read with a schema registry."""

from __future__ import annotations

import json
import logging
import pickle
import struct
import time
from typing import Any

import pyarrow as pa
import pytest

from eo_kafka.errors import SourceError
from eo_kafka.formats.avro.reader import AvroReader
from eo_kafka.formats.shared import schema_numbers
from eo_kafka.formats.shared.decoding import typed
from eo_kafka.formats.shared.registry import UnknownSchema, pack
from eo_kafka.formats.shared.schema_numbers import MANY, SchemaNumbers

GOOD = 7


class Registry:
    """With one schema; `asked` are the numbers it was asked for."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.known = {GOOD}

    def schema(self, number: int, *_: object) -> str:
        self.asked.append(number)
        if number not in self.known:
            raise UnknownSchema(f"the registry has no schema {number}")
        return json.dumps("string")


@pytest.fixture(autouse=True)
def soon(monkeypatch) -> None:
    monkeypatch.setattr(schema_numbers, "PAUSE_S", 0.001)


def read(reader: AvroReader, values: list[bytes]) -> tuple[list[Any], int]:
    bad: list[int] = []
    found = typed(pa.array(values), reader, pa.string(), lambda row, _: bad.append(row))
    return found.to_pylist(), len(bad)


def test_each_number_is_asked_for_once_and_registered_ones_are_read(caplog) -> None:
    known = Registry()
    known.known |= {100_000, 100_001}  # first seen behind all the garbage
    reader = AvroReader('"string"', known)  # type: ignore[arg-type]
    foreign = [struct.pack(">q", number * 2**24) for number in range(10, 310)]
    values = [pack(GOOD, b"\x02a"), *foreign, *foreign, pack(100_000, b"\x02b")]
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert read(reader, values) == (["a", *[None] * 600, "b"], 600)
        assert read(reader, [pack(100_001, b"\x02c")]) == (["c"], 0)
    assert sorted(known.asked) == sorted({GOOD, *range(10, 310), 100_000, 100_001})
    (told,) = [said.getMessage() for said in caplog.records]
    assert "name more than 100 schemas that the registry does not have" in told


def test_questions_are_slow_when_there_are_many(monkeypatch) -> None:
    monkeypatch.setattr(schema_numbers, "PAUSE_S", 0.05)
    known, numbers = Registry(), SchemaNumbers[str]()

    def ask_all(some: range) -> float:
        begun = time.monotonic()
        for number in some:
            with pytest.raises(UnknownSchema, match=f"no schema {number}"):
                numbers.get(number, known.schema)
        return time.monotonic() - begun

    ask_all(range(100, 100 + MANY))
    assert ask_all(range(1000, 1011)) >= 0.5
    assert numbers.get(GOOD, known.schema) == '"string"'
    assert len(known.asked) == MANY + 12


def test_a_number_that_a_registry_comes_to_know_is_read(monkeypatch) -> None:
    """One of several registries may be behind."""
    monkeypatch.setattr(schema_numbers, "_ASK_AGAIN_S", 0.0)
    known, numbers = Registry(), SchemaNumbers[str]()
    for _ in range(2):
        with pytest.raises(UnknownSchema):
            numbers.get(8, known.schema)
    known.known.add(8)
    assert [numbers.get(8, known.schema) for _ in range(2)] == ['"string"'] * 2
    assert known.asked == [8, 8, 8]


def test_a_registry_that_is_away_is_not_an_unknown_number() -> None:
    def away(_: int) -> str:
        raise SourceError("it is away")

    numbers = SchemaNumbers[str]()
    with pytest.raises(SourceError):
        numbers.get(GOOD, away)
    assert pickle.loads(pickle.dumps(numbers)).get(GOOD, Registry().schema) == '"string"'
