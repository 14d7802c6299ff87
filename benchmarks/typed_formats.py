"""What orders are in the benchmark of typed values: JSON or Avro, each contender's words for it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql.avro import functions as avro

from benchmarks.peers.environments import FLINK_AVRO, FLINK_AVRO_CONFLUENT
from benchmarks.peers.flink import Statement
from eo_kafka.broker.jars import Bundle, fetched
from eo_kafka.broker.registry import SchemaRegistry
from eo_kafka.formats.shared.registry import pack

MOST = 50  # pieces, of 0 to 99
READ = "id BIGINT, customer STRING, price DOUBLE, pieces INT, paid BOOLEAN, note STRING"
WRITTEN = "id BIGINT, customer STRING, price DOUBLE"
_QUERY = f"SELECT id, customer, price FROM source WHERE pieces < {MOST}"
_SPARK_AVRO = Bundle.of_one_jar(
    "Spark's Avro 4.2.0", "spark-avro-4.2.0", "org.apache.spark", "spark-avro_2.13", "4.2.0"
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


def _json(_: ExitStack) -> Format:
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


def _avro(_: ExitStack) -> Format:
    """Without a registry: all contenders are told the schema, which is that of Flink's tables."""
    read, written = _schema(READ), _schema(WRITTEN)
    return Format(
        "Avro",
        _avro_encoder(read),
        {"value.format": "avro", "value.schema": read},
        {"value.format": "avro", "value.schema": written},
        Statement({"format": "avro"}, _flinks(READ), _flinks(WRITTEN), _QUERY),
        lambda value: avro.from_avro(value, read),
        lambda value: avro.to_avro(value, written),
        lambda value: avro.from_avro(value, written),
        "from_avro and to_avro",
        60,
        [_SPARK_AVRO],
        [FLINK_AVRO],
    )


def _registered_avro(until: ExitStack) -> Format:
    """With a registry, which runs `until` then. Spark's functions know none: as its users do, its
    query takes the five bytes before each value off, and puts them before what it writes."""
    registry = until.enter_context(SchemaRegistry())
    read, written = _schema(READ), _schema(WRITTEN)
    known = SchemaRegistryClient({"url": registry.url})
    of_read, of_written = (
        pack(known.register_schema(subject, Schema(schema, "AVRO")), b"")
        for subject, schema in (("read", read), ("written", written))
    )
    encode = _avro_encoder(read)
    given = {"value.format": "avro", "schema.registry.url": registry.url}
    flinks = {"format": "avro-confluent", "avro-confluent.url": registry.url}
    sink_options = {"avro-confluent.subject": "written", "avro-confluent.schema": written}

    def bare(value: Column) -> Column:
        return f.substring(value, 6, 1_000_000)

    return Format(
        "Avro with a schema registry",
        lambda order: of_read + encode(order),
        {**given, "value.subject": "read"},
        {**given, "value.subject": "written", "value.schema": written},
        Statement(flinks, _flinks(READ), _flinks(WRITTEN), _QUERY, sink_options),
        lambda value: avro.from_avro(bare(value), read),
        lambda value: f.concat(f.lit(of_written), avro.to_avro(value, written)),
        lambda value: avro.from_avro(bare(value), written),
        "from_avro and to_avro",
        65,
        [_SPARK_AVRO],
        [FLINK_AVRO_CONFLUENT],
    )


def _schema(columns: str) -> str:
    kinds = {"BIGINT": "long", "INT": "int"}
    pairs = (column.split() for column in columns.split(", "))
    fields = [{"name": name, "type": kinds.get(kind, kind.lower())} for name, kind in pairs]
    for field in fields:
        if field["name"] == "customer":
            field |= {"type": ["null", "string"], "default": None}
    return json.dumps({"type": "record", "name": "Order", "fields": fields})


def _flinks(columns: str) -> str:
    found = ", ".join(f"{column} NOT NULL" for column in columns.split(", "))
    return found.replace("customer STRING NOT NULL", "customer STRING")


def _avro_encoder(schema: str) -> Callable[[Mapping[str, Any]], bytes]:
    parsed = fastavro.parse_schema(json.loads(schema))

    def encode(order: Mapping[str, Any]) -> bytes:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, order)
        return stream.getvalue()

    return encode


FORMATS: Mapping[str, Callable[[ExitStack], Format]] = {
    "json": _json,
    "avro": _avro,
    "avro-confluent": _registered_avro,
}
