"""How fast values become typed columns, and columns values, beside a loop over fastavro or json.

    python -m benchmarks.decoding [--rounds 7]

Both ends are the same Arrow column. The loops are what one would write: fastavro's schemaless
reader and writer, `json.loads` and `json.dumps`, and `pa.array` over what they give. In turns,
medians with spread.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import fastavro
import pyarrow as pa
from pyspark.sql import types as t

from eo_kafka.formats.avro import columns as avro_columns
from eo_kafka.formats.avro import pieces
from eo_kafka.formats.avro.types import spark_type
from eo_kafka.formats.json import columns as json_columns
from eo_kafka.formats.json import texts
from eo_kafka.formats.shared.arrow_types import arrow_type

ROWS = 20_000
Case = tuple[pa.Array, Callable[[], pa.Array], Callable[[], pa.Array]]  # values, loop, ours
FLAT = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": ["null", "string"]},
        {"name": "price", "type": "double"},
        {"name": "count", "type": "int"},
        {"name": "paid", "type": "boolean"},
        {"name": "note", "type": "string"},
    ],
}
LINE = {
    "type": "record",
    "name": "Line",
    "fields": [{"name": "product", "type": "string"}, {"name": "price", "type": "double"}],
}
NESTED = {
    "type": "record",
    "name": "Basket",
    "fields": [*FLAT["fields"], {"name": "lines", "type": {"type": "array", "items": LINE}}],  # type: ignore[misc]
}


def row(number: int, *, nested: bool) -> dict[str, Any]:
    found = {
        "id": number * 7919,
        "customer": None if number % 5 == 0 else f"customer-{number}",
        "price": number / 7,
        "count": number % 100,
        "paid": number % 2 == 0,
        "note": "n" * 60,
    }
    if nested:
        found["lines"] = [{"product": f"p{n}", "price": n / 3} for n in range(number % 4)]
    return found


def avro(schema: Any, *, nested: bool) -> Case:
    parsed = fastavro.parse_schema(schema)
    values = []
    for number in range(ROWS):
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, row(number, nested=nested))
        values.append(stream.getvalue())
    column, text = pa.array(values), json.dumps(schema)
    kind = arrow_type(spark_type(parsed)[0])

    def loop() -> pa.Array:
        read = (fastavro.schemaless_reader(io.BytesIO(v), parsed, None) for v in column.to_pylist())
        return pa.array(list(read), kind)

    def ours() -> pa.Array:
        found = avro_columns.decoded(column, text, text, kind)
        assert found is not None
        return found[0]

    return column, loop, ours


def avro_written(schema: Any, *, nested: bool) -> Case:
    parsed, text = fastavro.parse_schema(schema), json.dumps(schema)
    kind = arrow_type(spark_type(parsed)[0])
    column = pa.array([row(number, nested=nested) for number in range(ROWS)], kind)

    def written(value: Any) -> bytes:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, value)
        return stream.getvalue()

    def loop() -> pa.Array:
        return pa.array([written(value) for value in column.to_pylist()])

    def ours() -> pa.Array:
        return pieces.encoder(text, kind)(column)

    return loop(), loop, ours


def json_texts(*, nested: bool) -> Case:
    values = [json.dumps(row(number, nested=nested)).encode() for number in range(ROWS)]
    column, kind = pa.array(values), json_kind(nested=nested)

    def loop() -> pa.Array:
        return pa.array([json.loads(value) for value in column.to_pylist()], kind)

    def ours() -> pa.Array:
        found = json_columns.decoded(column, kind)
        assert found is not None
        assert not len(found[1])
        return found[0]

    return column, loop, ours


def json_written(*, nested: bool) -> Case:
    kind = json_kind(nested=nested)
    column = pa.array([row(number, nested=nested) for number in range(ROWS)], kind)

    def written(value: Any) -> bytes:
        there = {name: one for name, one in value.items() if one is not None}
        return json.dumps(there, separators=(",", ":")).encode()

    def loop() -> pa.Array:
        return pa.array([written(value) for value in column.to_pylist()])

    def ours() -> pa.Array:
        return texts.encoder(kind)(column)

    return loop(), loop, ours


def json_kind(*, nested: bool) -> pa.DataType:
    line = t.StructType().add("product", "string").add("price", "double")
    schema = t.StructType().add("id", "long").add("customer", "string").add("price", "double")
    schema = schema.add("count", "integer").add("paid", "boolean").add("note", "string")
    if nested:
        schema = schema.add("lines", t.ArrayType(line))
    return arrow_type(schema)


def took(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    cases = {
        "Avro, 6 fields": avro(FLAT, nested=False),
        "Avro, and an array of records": avro(NESTED, nested=True),
        "JSON, 6 fields": json_texts(nested=False),
        "JSON, and an array of objects": json_texts(nested=True),
        "Avro written, 6 fields": avro_written(FLAT, nested=False),
        "Avro written, and an array of records": avro_written(NESTED, nested=True),
        "JSON written, 6 fields": json_written(nested=False),
        "JSON written, and an array of objects": json_written(nested=True),
    }
    print("| values | bytes each | loop, values/s | at once, values/s | ratio |")
    print("|---|---|---|---|---|")
    for name, (column, loop, ours) in cases.items():
        assert ours().equals(loop()), name  # compiles, too
        pairs = [(took(loop), took(ours)) for _ in range(rounds)]
        ratios = sorted(slow / fast for slow, fast in pairs)
        slow, fast = (statistics.median(side) for side in zip(*pairs, strict=True))
        print(
            f"| {name} | {column.nbytes // ROWS} | {ROWS / slow:,.0f} | {ROWS / fast:,.0f} | "
            f"{statistics.median(ratios):.1f} ({ratios[0]:.1f}-{ratios[-1]:.1f}) |"
        )


if __name__ == "__main__":
    main()
