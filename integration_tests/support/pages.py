"""What pages of the documentation take for granted: topics with something in them, DataFrames, a
running job. It is typed before their first block, by the same newcomer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import dedent

from newcomer import Block

ORDERS = """
    kafka = {"kafka.bootstrap.servers": "localhost:9092"}
    letters = spark.createDataFrame([("a",), ("b",), ("a",)], "value STRING")
    letters = letters.selectExpr("value AS key", "value")
    letters.write.format("eo-kafka").mode("append").options(**kafka, topic="orders").save()
    read = spark.readStream.format("eo-kafka").options(**kafka).option("subscribe", "orders")
    rows = read.option("startingOffsets", "earliest").load()
    rows = rows.selectExpr("string(key) AS key", "string(value) AS value")
    counts = rows.dropDuplicates(["value"])  # in append mode, with a state
    totals = rows.groupBy("key").count().selectExpr("key", "string(count) AS value")
    report = letters.limit(1)
"""
RUNNING = f"""{ORDERS}
    import eo_kafka

    query = eo_kafka.start(
        counts.writeStream.format("eo-kafka")
        .options(**kafka, topic="counts", snapshots="true", checkpointLocation="/data/counts")
        .queryName("counts")
    )
    query.processAllAvailable()
"""
SHOUTED = f"""{ORDERS}
    query = (
        rows.writeStream.format("eo-kafka")
        .options(**kafka, topic="shouted", checkpointLocation="/data/shout")
        .queryName("shout")
        .start()
    )
    query.processAllAvailable()
"""
AVRO = """
    kafka = {"kafka.bootstrap.servers": "localhost:9092", "topic": "orders"}
    avro = {"value.format": "avro", "schema.registry.url": "http://localhost:8081"}
    orders = spark.sql("SELECT named_struct('id', id, 'price', id * 100D) AS value FROM range(3)")
    writer = orders.write.format("eo-kafka").mode("append").options(**kafka, **avro)
    writer.option("schema.register", "true").save()
    bad = spark.createDataFrame([("no Avro",)], "value STRING").write.format("eo-kafka")
    bad.mode("append").options(**kafka).save()
"""
PROTOBUF = """
    from pathlib import Path

    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    files = FileDescriptorSet()
    file = files.file.add(name="shop.proto", package="shop", syntax="proto3")
    parcel = file.message_type.add(name="Parcel")
    parcel.field.add(name="id", number=1, type="TYPE_INT64", label="LABEL_OPTIONAL")
    parcel.field.add(name="grams", number=2, type="TYPE_UINT32", label="LABEL_OPTIONAL")
    Path("/data/shop.pb").write_bytes(files.SerializeToString())
    some = spark.sql("SELECT named_struct('id', id, 'grams', id * 100) AS value FROM range(3)")
    writer = some.write.format("eo-kafka").mode("append").option("topic", "parcels")
    writer = writer.option("kafka.bootstrap.servers", "localhost:9092")
    writer = writer.option("value.format", "protobuf").option("value.message", "shop.Parcel")
    writer.option("value.schema.file", "/data/shop.pb").save()
"""


@dataclass(frozen=True)
class Given:
    """`topics`: what `eo-kafka topic create` is told, once for each. `before`: code. `servers`
    besides Kafka, by their commands. `rows`: how many a topic has in the end."""

    topics: tuple[str, ...] = ()
    before: str = ""
    servers: tuple[str, ...] = ()
    rows: tuple[tuple[str, int], ...] = ()
    one_query: bool = False  # the snippets are about the same one: it is stopped after each

    def blocks(self) -> Iterator[Block]:
        """As if they stood first on the page."""
        for topics in self.topics:
            words = f"eo-kafka topic create {topics} --bootstrap-servers localhost:9092"
            yield Block("sh", words)
        for server in self.servers:
            yield Block("sh", server)
        yield Block("python", dedent(self.before))


NOTHING = Given()  # the how-to pages make all that they need
COMPACTED = "--set cleanup.policy=compact"
MEMBERS = "eo-kafka hazelcast --members 2"
GIVEN = {
    "README.md": Given(("orders counts:2",), ORDERS, one_query=True),
    "docs/foreach-batch.md": Given(
        ("orders daily", f"totals:1 {COMPACTED}"),
        ORDERS,
        rows=(("totals", 2), ("daily", 1)),
        one_query=True,
    ),
    "docs/how-to/run-a-job.md": Given(("orders shouted",), ORDERS, rows=(("shouted", 3),)),
    "docs/formats.md": Given(
        ("orders orders.bad large parcels heavy",),
        f"{AVRO}{PROTOBUF}",
        ("eo-kafka registry",),
        rows=(("large", 1), ("orders.bad", 1), ("heavy", 1)),
    ),
    "docs/map-two-phase.md": Given(
        ("orders totals-changes",), ORDERS, (MEMBERS,), rows=(("totals-changes", 3),)
    ),
    "docs/map-writing.md": Given(("orders", f"totals {COMPACTED}"), ORDERS, rows=(("totals", 3),)),
    "docs/maps.md": Given((f"orders {COMPACTED}",)),
    "docs/metrics.md": Given(("orders counts",), RUNNING),
    "docs/operations.md": Given(rows=(("copied", 10), ("fixed", 1))),
    "docs/progress.md": Given(("orders counts",), RUNNING),
    "docs/queryable-state.md": Given(("orders counts",), RUNNING),
    "docs/state.md": Given(
        ("orders counts distinct seen",),
        ORDERS,
        rows=(("counts", 2), ("distinct", 2), ("seen", 2)),
        one_query=True,
    ),
    "docs/templates.md": NOTHING,
    "docs/troubleshooting.md": Given(("orders shouted",), SHOUTED),
    "docs/versions.md": NOTHING,
}
