"""Jobs that test_explain_crashes.py kills: each writes down what `eo_kafka.explain` says of it.

The values are `1:<n>` and, in a second wave, `2:<n>`.
"""

from __future__ import annotations

import time
from pathlib import Path

from pyspark.sql import functions as F

import eo_kafka
from jobs.proved_jobs import sink_options, slowly, source

NUMBER = "substring(string(value), 3)"


def _told(writer, config):
    Path(config["told"]).write_text(eo_kafka.explain(writer).guarantee)
    return writer


def _written(rows, config):
    writer = rows.writeStream.format("eo-kafka").options(**sink_options(config))
    return _told(writer, config)


def dice_into_state(spark, config):
    """Which numbers of the first wave pass is left to chance; each is to be written once."""
    rows = source(spark, config).where("rand() < 0.5 OR string(value) LIKE '2:%'")
    return _written(rows.selectExpr(f"{NUMBER} AS value").dropDuplicates(["value"]), config)


def dice_beside_state(spark, config):
    """The same state, whatever the dice say: each number once, with another key in each run."""
    rows = source(spark, config).selectExpr(f"{NUMBER} AS value", "uuid() AS key")
    return _written(rows.dropDuplicates(["value"]), config)


def changing_side(spark, config):
    """Which numbers pass, a file says, which somebody changes."""
    side = spark.read.text(config["side"]).withColumnRenamed("value", "number")
    rows = source(spark, config).selectExpr(f"{NUMBER} AS number").join(side, "number")
    return _written(rows.selectExpr("number AS value").dropDuplicates(["value"]), config)


def dice_counted(spark, config):
    """Counts by chance, each new count into the sink: update mode."""
    counts = source(spark, config).groupBy(F.expr("int(rand() * 1000)").alias("n")).count()
    writer = (
        counts.selectExpr("string(n) AS key", "string(count) AS value")
        .writeStream.outputMode("update")
        .option("checkpointLocation", config["checkpoint"])
        .foreachBatch(eo_kafka.foreach_batch(sink_options(config)))
    )
    return _told(writer, config)


def slow_sink(spark, config):
    """Copies so slowly that it can be killed in the middle of a batch."""
    rows = source(spark, config).mapInPandas(slowly, "key binary, value binary")
    if config["format"] != "kafka":
        return _written(rows, config)
    writer = rows.writeStream.format("kafka").option("topic", config["sink"])
    writer = writer.option("kafka.bootstrap.servers", config["bootstrap_servers"])
    return _told(writer.option("checkpointLocation", config["checkpoint"]), config)


def two_writers(spark, config):
    """A function of the user's, which writes a batch into two places."""

    def both(rows, _batch):
        connection = {"kafka.bootstrap.servers": config["bootstrap_servers"]}
        writer = rows.write.format("kafka").mode("append").options(**connection)
        writer.option("topic", config["sink"]).save()
        time.sleep(3)
        rows.write.format("noop").mode("append").save()

    writer = source(spark, config).writeStream.foreachBatch(both)
    return _told(writer.option("checkpointLocation", config["checkpoint"]), config)
