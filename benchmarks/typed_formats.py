"""What orders are in the benchmark of typed values: JSON or Avro, each contender's words for it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql.avro import functions as avro

from benchmarks.peers.environments import FLINK_AVRO
from benchmarks.peers.flink import Statement
from eo_kafka.broker.jars import Bundle, fetched

MOST = 50  # pieces, of 0 to 99
READ = "id BIGINT, customer STRING, price DOUBLE, pieces INT, paid BOOLEAN, note STRING"
WRITTEN = "id BIGINT, customer STRING, price DOUBLE"
_QUERY = f"SELECT id, customer, price FROM source WHERE pieces < {MOST}"
_SPARK_AVRO = Bundle(
    title="Spark's Avro 4.2.0",
    folder="spark-avro-4.2.0",
    main="spark-avro_2.13-4.2.0.jar",
    dependencies="""
    <dependency org="org.apache.spark" name="spark-avro_2.13" rev="4.2.0"
                conf="default" transitive="false"/>""",
)


@dataclass(frozen=True)
class Format:
    """`read_by_spark` and `written_by_spark` are Spark's own functions, for its own connector;
    `result` reads what was written."""

    name: str
    encode: Callable[[Mapping[str, Any]], bytes]
    source: Mapping[str, str]  # options of eo-kafka
    sink: Mapping[str, str]
    statement: Statement
    read_by_spark: Callable[[Column], Column]
    written_by_spark: Callable[[Column], Column]
    result: Callable[[Column], Column]
    functions: str  # Spark's, by name
    size: int  # bytes of a record, about
    spark_bundles: Sequence[Bundle] = ()
    flink_bundles: Sequence[Bundle] = ()

    def jars_of_spark(self) -> list[str]:
        """Paths, fetched if need be."""
        return [str(fetched(bundle) / bundle.main) for bundle in self.spark_bundles]

    def jars_of_flink(self) -> list[Path]:
        """As `jars_of_spark`."""
        return [jar for bundle in self.flink_bundles for jar in fetched(bundle).glob("*.jar")]


def _json() -> Format:
    def parsed(columns: str) -> Callable[[Column], Column]:
        return lambda value: f.from_json(value.cast("string"), columns)

    return Format(
        "JSON",
        lambda order: json.dumps(order).encode(),
        {"value.format": "json", "value.schema": READ},
        {"value.format": "json"},
        Statement({"format": "json"}, READ, WRITTEN, _QUERY),
        parsed(READ),
        f.to_json,
        parsed(WRITTEN),
        "from_json and to_json",
        140,
    )


def _avro() -> Format:
    """Without a registry: all contenders are told the schema, which is that of Flink's tables."""

    def schema(columns: str) -> str:
        kinds = {"BIGINT": "long", "INT": "int"}
        pairs = (column.split() for column in columns.split(", "))
        fields = [{"name": name, "type": kinds.get(kind, kind.lower())} for name, kind in pairs]
        for field in fields:
            if field["name"] == "customer":
                field |= {"type": ["null", "string"], "default": None}
        return json.dumps({"type": "record", "name": "Order", "fields": fields})

    def flinks(columns: str) -> str:
        found = ", ".join(f"{column} NOT NULL" for column in columns.split(", "))
        return found.replace("customer STRING NOT NULL", "customer STRING")

    read, written = schema(READ), schema(WRITTEN)
    parsed = fastavro.parse_schema(json.loads(read))

    def encode(order: Mapping[str, Any]) -> bytes:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, order)
        return stream.getvalue()

    return Format(
        "Avro",
        encode,
        {"value.format": "avro", "value.schema": read},
        {"value.format": "avro", "value.schema": written},
        Statement({"format": "avro"}, flinks(READ), flinks(WRITTEN), _QUERY),
        lambda value: avro.from_avro(value, read),
        lambda value: avro.to_avro(value, written),
        lambda value: avro.from_avro(value, written),
        "from_avro and to_avro",
        60,
        [_SPARK_AVRO],
        [FLINK_AVRO],
    )


FORMATS: Mapping[str, Callable[[], Format]] = {"json": _json, "avro": _avro}
