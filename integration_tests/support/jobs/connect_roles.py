"""What the package offers, used by a client of Spark Connect. Prints a JSON object: for each step
its result, or the text of the error.

Arguments: servers, a topic to fill, a topic to write to, a folder.
"""

import json
import os
import shutil
import sys
import time

os.environ["PYSPARK_PYTHON"] = sys.executable

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import eo_kafka

servers, source, sink, folder = sys.argv[1:]
options = {"kafka.bootstrap.servers": servers}
spark = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").getOrCreate()
found, STEPS = {}, []


def step(function):
    STEPS.append(function)
    return function


def count(topic):
    return spark.read.format("eo-kafka").options(subscribe=topic, **options).load().count()


def stream(**extra):
    given = {"subscribe": source, "startingOffsets": "earliest", **options, **extra}
    return spark.readStream.format("eo-kafka").options(**given).load()


def writer(name, rows, **extra):
    made = rows.writeStream.format("eo-kafka").options(topic=sink, **options, **extra)
    made = made.option("checkpointLocation", f"{folder}/{name}").queryName(name)
    return made.trigger(availableNow=True)


@step
def batch():
    rows = spark.range(100).selectExpr("cast(id as string) value", "cast(id % 3 as string) key")
    rows.write.format("eo-kafka").options(topic=source, **options).mode("append").save()
    return count(source)


@step
def streaming():
    query = writer("copy", stream(maxOffsetsPerTrigger="40").select("value")).start()
    query.awaitTermination()
    found = eo_kafka.progress(query)
    lag = found.sources[0].maxOffsetsBehindLatest
    return len(query.recentProgress), count(sink), lag, len(found.sinks)


@step
def restored():
    for _ in range(2):
        shutil.rmtree(f"{folder}/kept", ignore_errors=True)
        query = eo_kafka.start(writer("kept", stream().select("value"), snapshots="true"))
        query.awaitTermination()
    return count(sink)


@step
def snapshots():
    rows = spark.read.format("eo-state").options(jobName="kept", **options).load().collect()
    return [row["name"] for row in rows]


@step
def group():
    listener = eo_kafka.ConsumerGroup("watched", options, query="listened")
    spark.streams.addListener(listener)
    writer("listened", stream().select("value")).start().awaitTermination()
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "watched"})
    deadline = time.monotonic() + 30
    while (offset := consumer.committed([TopicPartition(source, 0)], 30)[0].offset) < 0:
        assert time.monotonic() < deadline, "the listener committed nothing"
        time.sleep(0.2)
    spark.streams.removeListener(listener)
    return offset


@step
def avro():
    fields = [{"name": "id", "type": "long"}]
    schema = json.dumps({"type": "record", "name": "r", "fields": fields})
    data = spark.range(3).select(eo_kafka.to_avro(f.struct("id"), schema).alias("data"))
    rows = data.select(eo_kafka.from_avro("data", schema).alias("r")).select("r.id").collect()
    return sorted(row["id"] for row in rows)


@step
def view():
    grouped = stream().groupBy(f.col("key").cast("string").alias("k")).count()
    grouped = grouped.writeStream.outputMode("complete").format("memory").queryName("counts")
    grouped = grouped.option("checkpointLocation", f"{folder}/counts").trigger(availableNow=True)
    grouped.start().awaitTermination()
    view = eo_kafka.StateView(spark, f"{folder}/counts", "counting", "counts", options)
    view.refresh()
    values = spark.read.format("eo-state").options(
        jobName="counting", read="view", view="counts", **options
    )
    return values.load().count()


@step
def in_foreach_batch():
    given = {**options, "topic": sink, "jobName": "updates"}
    updates = stream().groupBy("key").count().selectExpr("key", "cast(count as string) value")
    updates = updates.writeStream.outputMode("update").foreachBatch(eo_kafka.foreach_batch(given))
    updates = updates.option("checkpointLocation", f"{folder}/updates").trigger(availableNow=True)
    updates.start().awaitTermination()


@step
def after_foreach_batch():
    return count(sink)


def saved_in_a_function(name, numbers):
    """How many values there are after a function has written the same batch twice."""

    def write(rows, _batch):
        for number in numbers:
            given = {"topic": sink, **options}
            given |= {"jobName": name, "batchId": number} if number else {}
            named = rows.selectExpr(f"concat('{name}', string(value)) AS value")
            named.write.format("eo-kafka").options(**given).mode("append").save()

    made = stream().select("value").writeStream.foreachBatch(write)
    made = made.option("checkpointLocation", f"{folder}/{name}").trigger(availableNow=True)
    made.start().awaitTermination()
    rows = spark.read.format("eo-kafka").options(subscribe=sink, **options).load()
    return rows.where(f"string(value) LIKE '{name}%'").count()


@step
def plain_in_foreach_batch():
    return saved_in_a_function("plain", [None, None])


@step
def numbered_in_foreach_batch():
    return saved_in_a_function("numbered", ["7", "7"])


@step
def direct():
    def tagged(batches):
        for batch in batches:
            values = [b"direct " + value for value in batch["value"].to_pylist()]
            yield pa.record_batch({"value": pa.array(values)})

    given = {"subscribe": source, "startingOffsets": "earliest", **options}
    made = eo_kafka.direct(
        spark, given, {"topic": sink, "jobName": "direct", **options}, tagged, "value BINARY"
    )
    made = made.option("checkpointLocation", f"{folder}/direct").trigger(availableNow=True)
    made.start().awaitTermination()
    rows = spark.read.format("eo-kafka").options(subscribe=sink, **options).load()
    return rows.where("string(value) LIKE 'direct %'").count()


@step
def registered():
    eo_kafka.register(spark)


for function in STEPS:
    try:
        found[function.__name__] = function()
    except Exception as error:
        found[function.__name__] = f"{type(error).__name__}: {error}"
print(json.dumps(found))
