"""Confluent's wire format: what confluent-kafka's own classes write and read."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from eo_kafka.formats.avro import columns as avro_columns
from eo_kafka.formats.avro import pieces
from eo_kafka.formats.avro.reader import AvroReader
from eo_kafka.formats.shared.decoding import typed
from eo_kafka.formats.shared.registry import pack

VALUE = SerializationContext("topic", MessageField.VALUE)
PAYLOADS = [b"\x04ab", b"hello", b"", b"n" * 200]
DECIMAL = '{"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}'


class Registry:
    """With one schema for all numbers."""

    def __init__(self, schema: str) -> None:
        self._schema = schema

    def schema(self, *_: object) -> str:
        return self._schema


def read(schema: str, values: list[bytes], wanted: str, kind: pa.DataType) -> list[Any]:
    known: Any = Registry(schema)

    def bad(row: int, error: Exception) -> None:
        raise AssertionError(f"{values[row]!r}: {error}")

    found = typed(pa.array(values, pa.binary()), AvroReader(wanted, known), kind, bad)
    return list(found.to_pylist())


@pytest.mark.parametrize(
    "schema", ['"bytes"', '{"type": "bytes"}', '["null", "bytes"]', '"string"', '"long"']
)
def test_a_single_value_is_written_and_read_as_confluents_classes_do(schema: str) -> None:
    avro_columns._warm_up()
    client = SchemaRegistryClient.new_client({"url": "mock://wire"})
    serialize, deserialize = AvroSerializer(client, schema), AvroDeserializer(client)
    kinds: Any = {'"string"': (pa.string(), ["", "hello"]), '"long"': (pa.int64(), [0, -5])}
    kind, values = kinds.get(schema, (pa.binary(), PAYLOADS))
    theirs = [serialize(value, VALUE) for value in values]
    assert read(schema, theirs, schema, kind) == values
    number = int.from_bytes(theirs[0][1:5], "big")
    ours = pieces.encoder(schema, kind, number)(pa.array([*values, None], kind)).to_pylist()
    assert ours == [*theirs, None]
    # theirs for Python writes empty bytes, and does not read them
    back = {value: deserialize(ours[at], VALUE) for at, value in enumerate(values) if value != b""}
    assert back == {value: value for value in values if value != b""}


def test_bytes_are_read_as_a_text_or_a_decimal_that_is_wanted() -> None:
    assert read('"bytes"', [pack(1, b"hello")], '"string"', pa.string()) == ["hello"]
    price, kind = [Decimal("-1.28")], pa.decimal128(9, 2)
    (value,) = pieces.encoder(DECIMAL, kind, 1)(pa.array(price, kind)).to_pylist()
    assert value.startswith(pack(1, b""))
    assert int.from_bytes(value[5:], "big", signed=True) == -128
    assert read(DECIMAL, [value], DECIMAL, kind) == price


def test_without_a_registry_bytes_have_their_length() -> None:
    found = pieces.encoder('"bytes"', pa.binary())(pa.array([b"ab"]))
    assert found.to_pylist() == [b"\x04ab"]
    values = pa.array([b"\x04ab"], pa.binary())
    assert AvroReader('"bytes"', None).decode(values[0].as_py()) == b"ab"
