"""Jobs that test_testing_plugin.py proves, good ones and ones with a fault planted in them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import eo_kafka


def source(spark: SparkSession, config: Mapping[str, str], fmt: str = "eo-kafka") -> DataFrame:
    """What is in the job's source, as key and value."""
    reader = spark.readStream.format(fmt).option(
        "kafka.bootstrap.servers", config["bootstrap_servers"]
    )
    reader = reader.option("subscribe", config["source"]).option("startingOffsets", "earliest")
    if "per_batch" in config:
        reader = reader.option("maxOffsetsPerTrigger", config["per_batch"])
    return reader.load().select("key", "value")


def sink_options(config: Mapping[str, str]) -> dict[str, str]:
    """Those of eo-kafka's sink."""
    given = ("guarantee", "commit", "snapshots", "kafka.transaction.timeout.ms")
    return {
        "kafka.bootstrap.servers": config["bootstrap_servers"],
        "topic": config["sink"],
        "jobName": config["job_name"],
        "checkpointLocation": config["checkpoint"],
        **{name: config[name] for name in given if name in config},
    }


def copy(spark, config):
    """Nothing is wrong with it."""
    return source(spark, config).writeStream.format("eo-kafka").options(**sink_options(config))


def picky(spark, config):
    """A copy whose function does not take the value `poison`, until the file `handled` is there."""

    def look(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for batch in batches:
            if b"poison" in set(batch["value"]) and not Path(config["handled"]).exists():
                raise ValueError("this job does not take poison")
            yield batch

    rows = source(spark, config).mapInPandas(look, "key binary, value binary")
    return rows.writeStream.format("eo-kafka").options(**sink_options(config))


def started(spark, config):
    """Starts its query itself, with a trigger of its own."""
    return copy(spark, config).trigger(processingTime="200 milliseconds").start()


def count(spark, config):
    """Counts by value, and each new count into the sink: update mode."""
    counts = source(spark, config).groupBy("value").count()
    rows = counts.select(F.col("value").alias("key"), F.col("count").cast("string").alias("value"))
    write = eo_kafka.foreach_batch(sink_options(config))
    return (
        rows.writeStream.outputMode("update")
        .option("checkpointLocation", config["checkpoint"])
        .foreachBatch(write)
    )


def other_source(spark, config):
    """Reads what it should not."""
    return copy(spark, {**config, "source": config["other"]})


def other_checkpoint(spark, config):
    """Keeps its checkpoint where nobody knows."""
    return copy(spark, {**config, "checkpoint": config["checkpoint"] + "-elsewhere"})


def dropping(spark, config):
    """Loses some records."""
    rows = source(spark, config).where("value NOT LIKE '%3'")
    return rows.writeStream.format("eo-kafka").options(**sink_options(config))


def repeating(spark, config):
    """Spark's own sink, which writes a batch again when it died in the middle of it."""
    rows = source(spark, config).mapInPandas(slowly, "key binary, value binary")
    return (
        rows.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", config["bootstrap_servers"])
        .option("topic", config["sink"])
        .option("checkpointLocation", config["checkpoint"])
    )


def slowly(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """The last rows come when the first ones are in the topic."""
    for batch in batches:
        yield batch
        time.sleep(3)


def random_batches(spark, config):
    """What a batch writes hangs on chance, and so does its replay."""
    options = sink_options(config)
    write = eo_kafka.foreach_batch(options)

    def with_dice(rows: DataFrame, number: int) -> None:
        value = F.concat(F.col("value").cast("string"), F.lit(" "), F.rand().cast("string"))
        write(rows.select("key", value.alias("value")), number)

    return (
        source(spark, config)
        .writeStream.option("checkpointLocation", config["checkpoint"])
        .foreachBatch(with_dice)
    )


def nothing(spark, config):
    """Forgets to return its query."""
    copy(spark, config)
