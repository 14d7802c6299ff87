"""Batch and stream, source and sink, once each, in an environment that a test made.

Arguments: servers, a topic to fill, a topic for the copy, a folder for the checkpoint. Prints what
became of the options that need Spark 4.2. With variable REGISTER it registers the formats first.
"""

import json
import os
import sys

import pyspark
from pyspark.sql import SparkSession

import eo_kafka
from eo_kafka.core.librdkafka import available

servers, source, sink, checkpoint = sys.argv[1:]
ROWS, LIMIT = 100, 40
AVRO = """{"type": "record", "name": "Row", "fields": [{"name": "id", "type": "long"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}}]}"""
master = os.environ.get("MASTER", "local[1]")
spark = SparkSession.builder.master(master).config("spark.ui.enabled", "false").getOrCreate()
if "REGISTER" in os.environ:
    eo_kafka.register(spark)
options = {"kafka.bootstrap.servers": servers}


def read(topic, **extra):
    return spark.read.format("eo-kafka").options(subscribe=topic, **options, **extra).load()


def copy(name, /, into=(), **extra):
    given = {"subscribe": source, "startingOffsets": "earliest", **options, **extra}
    stream = spark.readStream.format("eo-kafka").options(**given).load().select("value")
    writer = stream.writeStream.format("eo-kafka").options(topic=sink, **options)
    writer = (
        writer.options(**dict(into))
        .option("checkpointLocation", f"{checkpoint}/{name}")
        .trigger(availableNow=True)
    )
    query = writer.start()
    query.awaitTermination()
    told = eo_kafka.progress(query)
    assert told.sources[0].maxOffsetsBehindLatest == 0, told
    assert told.sinks[0].batchId == told.batchId, told
    return len([progress for progress in query.recentProgress if progress["numInputRows"]])


rows = spark.range(ROWS).selectExpr("cast(id as string) as value")
rows.write.format("eo-kafka").options(topic=source, **options).mode("append").save()
assert read(source).count() == ROWS
batches = copy("all")
assert batches == 1, batches
assert read(sink).count() == ROWS
assert available() is None, available()
workers = spark.range(1).rdd.map(lambda _: eo_kafka.__file__).collect()
print(f"the driver has {eo_kafka.__file__}, a worker {workers[0]}")
print(f"all four roles work on PySpark {pyspark.__version__}")
try:
    batches = copy("limited", maxOffsetsPerTrigger=str(LIMIT))
    assert read(sink).count() == 2 * ROWS
    print(f"limited: {batches} batches")
except Exception as error:
    assert read(sink).count() == ROWS, "a refused query wrote"
    print(f"limited: {error}")
for name, into, extra in (
    ("recorded", {}, {"jobName": f"followed-{sink}", "minOffsetsPerTrigger": "1"}),
    (
        "interval",
        {"jobName": f"kept-{sink}", "snapshots": "true", "snapshotInterval": "1 minute"},
        {},
    ),
):
    try:
        print(f"{name}: {copy(name, into, **extra)} batches")
    except Exception as error:
        print(f"{name}: {error}")
for name, schema in (("json", "id BIGINT, at TIMESTAMP"), ("avro", AVRO)):
    typed = {"value.format": name, "value.schema": schema}
    last = read(sink).agg({"offset": "max"}).first()[0]
    starts = {"startingOffsets": json.dumps({sink: {"0": last + 1}})}
    rows = spark.range(3).selectExpr("struct(id, timestamp_seconds(id) as at) as value")
    try:
        rows.write.format("eo-kafka").options(topic=sink, **options, **typed).mode("append").save()
        again = read(sink, **typed, **starts)
        assert all(row.at.timestamp() == row.id for row in again.select("value.*").collect())
        print(f"{name}:", sorted(row.id for row in again.select("value.id").collect()))
    except Exception as error:
        print(f"{name}: {error}")
try:
    values = read(sink, **starts).select(eo_kafka.from_avro("value", AVRO).alias("value"))
    print("from_avro:", sorted(row.id for row in values.select("value.id").collect()))
except Exception as error:
    print(f"from_avro: {error}")
