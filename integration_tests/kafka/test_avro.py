"""Avro columns with a real schema registry and without one, from a topic to a topic."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from functools import partial

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from pyspark.sql import functions as f

import eo_kafka
from eo_kafka.broker.registry import SchemaRegistry
from eo_kafka.errors import OptionsError, ReadTimeout, SourceError
from eo_kafka.formats.shared import registry
from harness import committed, produce

PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
NOTE = {"name": "note", "type": ["null", "string"], "default": None}
V1 = {"type": "record", "name": "Order", "namespace": "shop", "fields": [
    {"name": "id", "type": "long"},
    {"name": "price", "type": PRICE},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "lines", "type": {"type": "array", "items": "string"}},
]}  # fmt: skip
V2 = {
    **V1,
    "fields": [*V1["fields"], {"name": "note", "type": ["null", "string"], "default": None}],
}
V3 = {**V1, "fields": [{"name": "id", "type": "string"}]}
FIRST, SECOND, THIRD = (json.dumps(schema) for schema in (V1, V2, V3))


@pytest.fixture(scope="module")
def settings():
    with SchemaRegistry() as registry:
        yield {"url": registry.url}


@pytest.fixture
def orders(spark):
    rows = [(n, Decimal(n) / 4, date(2026, 11, n + 1), [str(n)] * n) for n in range(3)]
    return spark.createDataFrame(rows, "id LONG, price DECIMAL(9,2), day DATE, lines ARRAY<STRING>")


def written(orders, broker, topic, schema, **options):
    value = eo_kafka.to_avro(f.struct("*"), schema, **options).alias("value")
    writer = orders.select(value).write.format("eo-kafka").mode("append")
    writer.option("kafka.bootstrap.servers", broker.bootstrap_servers).option("topic", topic).save()


def read(spark, broker, topic, *schema, **options):
    rows = spark.read.format("eo-kafka").option("subscribe", topic)
    rows = rows.option("kafka.bootstrap.servers", broker.bootstrap_servers).load()
    return rows.select(eo_kafka.from_avro("value", *schema, **options).alias("o")).select("o.*")


def test_there_and_back_with_a_schema_that_grew(spark, broker, make_topic, orders, settings):
    topic = make_topic("avro")
    subject = f"{topic}-value"
    known = {"registry": settings, "subject": subject}
    written(orders, broker, topic, FIRST, register=True, **known)
    more = orders.withColumn("note", f.lit("new"))
    written(more, broker, topic, SECOND, register=True, **known)
    found = read(spark, broker, topic, **known)  # as the newest schema
    assert found.schema.simpleString() == (
        "struct<id:bigint,price:decimal(9,2),day:date,lines:array<string>,note:string>"
    )
    expected = [(*row, note) for note in (None, "new") for row in orders.collect()]
    assert sorted(map(tuple, found.collect()), key=str) == sorted(expected, key=str)
    old = read(spark, broker, topic, FIRST, registry=settings)
    assert old.columns == orders.columns
    assert old.count() == 6


def test_a_schema_that_may_not_follow_is_refused_with_the_registrys_words(settings, make_topic):
    subject = f"{make_topic('strict')}-value"
    eo_kafka.to_avro("value", FIRST, registry=settings, subject=subject, register=True)
    SchemaRegistryClient(settings).set_compatibility(subject, "BACKWARD")
    with pytest.raises(SourceError, match="refused subject.*(?i:incompatible)"):
        eo_kafka.to_avro("value", THIRD, registry=settings, subject=subject, register=True)
    with pytest.raises(
        SourceError, match="refused subject.*register=True"
    ):  # and none is made unasked
        eo_kafka.to_avro("value", SECOND, registry=settings, subject=subject)


@pytest.mark.smoke
def test_bare_avro_without_a_registry(spark, broker, make_topic, orders):
    topic = make_topic("bare")
    written(orders, broker, topic, FIRST)
    assert not any(value[:1] == b"\0" and len(value) < 5 for value in committed_of(broker, topic))
    found = read(spark, broker, topic, FIRST)
    assert sorted(map(tuple, found.collect()), key=str) == sorted(
        map(tuple, orders.collect()), key=str
    )


def committed_of(broker, topic):
    return committed(broker.bootstrap_servers, topic)


def test_bad_bytes_fail_the_query_or_are_null(spark, broker, make_topic, orders, settings):
    topic = make_topic("bad")
    known = {"registry": settings, "subject": f"{topic}-value"}
    written(orders, broker, topic, FIRST, register=True, **known)
    produce(broker.bootstrap_servers, topic, [b"no Avro", b"", b"\0\0\0\0\1"])
    with pytest.raises(Exception, match="cannot be read as Avro.*PERMISSIVE"):
        read(spark, broker, topic, **known).collect()
    found = read(spark, broker, topic, mode="PERMISSIVE", **known).collect()
    assert sum(row["id"] is None for row in found) == 3
    assert len(found) == 6


def test_what_is_missing_is_said_at_once(settings, monkeypatch):
    with pytest.raises(OptionsError, match="needs a 'schema', or a 'registry' and a 'subject'"):
        eo_kafka.from_avro("value", registry=settings)
    with pytest.raises(OptionsError, match="must be FAILFAST or PERMISSIVE"):
        eo_kafka.from_avro("value", FIRST, mode="guess")
    with pytest.raises(OptionsError, match="needs the 'subject'"):
        eo_kafka.to_avro("value", FIRST, registry=settings)
    monkeypatch.setattr(registry, "Wait", partial(registry.Wait, at_first_s=0))
    with pytest.raises(ReadTimeout, match="did not answer"):
        eo_kafka.from_avro("value", registry={"url": "http://127.0.0.1:1"}, subject="s")


# --- by options ---------------------------------------------------------------------------------


def by_options(rows, broker, topic, settings, **options):
    rows = rows.option("kafka.bootstrap.servers", broker.bootstrap_servers)
    rows = rows.option("schema.registry.url", settings["url"]).option("value.format", "avro")
    for name, value in options.items():
        rows = rows.option(name.replace("_", "."), value)
    return rows.option("topic", topic) if hasattr(rows, "save") else rows.option("subscribe", topic)


def save(orders, broker, topic, settings, **options):
    writer = orders.select(f.struct("*").alias("value")).write.format("eo-kafka").mode("append")
    by_options(writer, broker, topic, settings, **options).save()


def load(spark, broker, topic, settings, **options):
    return by_options(spark.read.format("eo-kafka"), broker, topic, settings, **options).load()


def test_options_make_the_schema_and_read_it(spark, broker, make_topic, orders, settings):
    topic = make_topic("typed")
    with pytest.raises(
        Exception, match=f"refused subject '{topic}-value'.*'schema.register' to true"
    ):
        save(orders, broker, topic, settings)  # nobody has made it, and nobody asked for that
    with pytest.raises(Exception, match=f"refused subject '{topic}-value'.*give 'value.schema'"):
        load(spark, broker, topic, settings)
    save(orders, broker, topic, settings, schema_register="true")
    save(orders, broker, topic, settings)
    found = load(spark, broker, topic, settings)
    assert dict(found.dtypes)["value"] == (
        "struct<id:bigint,price:decimal(9,2),day:date,lines:array<string>>"
    )
    got = sorted(map(tuple, found.select("value.*").collect()), key=str)
    assert got == sorted([*map(tuple, orders.collect())] * 2, key=str)


def test_a_topic_whose_schema_grew_is_read_as_the_newest_or_as_asked(
    spark, broker, make_topic, orders, settings
):
    topic = make_topic("grown")
    save(orders, broker, topic, settings, value_schema=FIRST, schema_register="true")
    more = orders.withColumn("note", f.lit("new"))
    save(more, broker, topic, settings, value_schema=SECOND, schema_register="true")
    newest = load(spark, broker, topic, settings).select("value.note").collect()
    assert sorted(row.note or "" for row in newest) == ["", "", "", "new", "new", "new"]
    old = load(spark, broker, topic, settings, value_schema=FIRST).select("value.*")
    assert old.columns == orders.columns
    assert old.count() == 6


def test_a_stream_of_avro_with_what_is_not_avro(
    spark, broker, make_topic, orders, settings, tmp_path
):
    topic, good, bad = make_topic("mixed"), make_topic("good"), make_topic("bad")
    save(orders, broker, topic, settings, value_schema=FIRST, schema_register="true")
    unknown = b"\0\xff\xff\xff\xff-"
    produce(broker.bootstrap_servers, topic, [b"no Avro", unknown])
    rows = by_options(
        spark.readStream.format("eo-kafka"),
        broker,
        topic,
        settings,
        startingOffsets="earliest",
        mode="DEADLETTER",
        deadLetterTopic=bad,
    ).load()
    writer = (
        rows.selectExpr("value", "_bad_record")
        .writeStream.format("eo-kafka")
        .option("jobName", f"avro-{topic}")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("schema.registry.url", settings["url"])
        .option("value.format", "avro")
        .option("schema.register", "true")
        .option("topic", good)
        .trigger(availableNow=True)
    )
    assert writer.start().awaitTermination(120)
    assert sorted(committed_of(broker, bad)) == sorted([b"no Avro", unknown])
    found = load(spark, broker, good, settings).select("value.*")
    assert sorted(map(tuple, found.collect()), key=str) == sorted(
        map(tuple, orders.collect()), key=str
    )


UNION = json.dumps(["null", "string", "long"])


@pytest.mark.parametrize(
    ("columns", "value", "reason"),
    [
        ("s STRING, l BIGINT", ("text", None), "without l and s: rename such fields"),
        ("member0 STRING, member1 BIGINT", ("text", 5), "member0 and member1 are set"),
    ],
)
def test_a_union_of_which_a_value_would_be_lost_writes_nothing(
    spark, broker, make_topic, columns, value, reason
):
    topic = make_topic("union")
    rows = spark.createDataFrame([(value,), (None,)], f"value STRUCT<{columns}>")
    writer = rows.write.format("eo-kafka").mode("append").option("topic", topic)
    writer.option("kafka.bootstrap.servers", broker.bootstrap_servers).option(
        "value.format", "avro"
    )
    with pytest.raises(Exception, match=reason):
        writer.option("value.schema", UNION).save()
    column = eo_kafka.to_avro("value", UNION)
    with pytest.raises(Exception, match=reason):
        rows.select(column).collect()
    assert not committed_of(broker, topic)


def test_a_decimal_that_would_be_another_number_writes_nothing(spark, broker, make_topic):
    topic = make_topic("decimal")
    kind = {**PRICE, "type": "fixed", "name": "F", "size": 4}
    schema = json.dumps({"type": "record", "name": "P", "fields": [{"name": "x", "type": kind}]})

    def save_of(number):
        rows = spark.createDataFrame([((Decimal(number),),)], "value STRUCT<x DECIMAL(9,0)>")
        writer = rows.write.format("eo-kafka").mode("append").option("topic", topic)
        writer.option("kafka.bootstrap.servers", broker.bootstrap_servers)
        writer.option("value.format", "avro").option("value.schema", schema).save()

    save_of("-4300000")
    with pytest.raises(Exception, match="is not a decimal of 9 digits, 2 of them behind the point"):
        save_of("-43000000")
    assert committed_of(broker, topic) == {(-430000000).to_bytes(4, "big", signed=True): 1}


def test_damaged_values_stop_the_query(spark, broker, make_topic):
    enum = {"type": "enum", "name": "E", "symbols": ["NEW", "PAID", "CANCELLED"]}
    fields = [("kind", enum), ("id", "long"), ("note", ["null", "string"]), ("ok", "boolean")]
    fields = [{"name": name, "type": kind} for name, kind in fields]
    schema = json.dumps({"type": "record", "name": "O", "fields": fields})
    topic = make_topic("damaged")
    long = b"\x80" * 10 + b"\x01"
    values = [b"\x01\x02\x00\x01", b"\x00" + long + b"\x00\x01", b"\0\2\3\1", b"\0\2\0\7"]
    produce(broker.bootstrap_servers, topic, [b"\0\2\0\1", *values])
    found = read(spark, broker, topic, schema, mode="PERMISSIVE").collect()
    assert sorted(tuple(row) for row in found if row.id is not None) == [("NEW", 1, None, True)]
    assert len(found) == 5
    with pytest.raises(Exception, match="cannot be read as Avro"):
        read(spark, broker, topic, schema).collect()
