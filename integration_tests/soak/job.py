"""The driver of one of the soak's jobs. Its one argument is JSON; see supervisor.py.

It says how it ended in its last line, `ENDED <reason>`, unless it was killed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from typing import Any

os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

import eo_kafka

# Small, because three of them and three brokers share the machine with whatever else is on it.
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",  # compiling costs more than these few rows
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}


def main() -> None:
    asked_to_stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked_to_stop.set())
    threading.Thread(target=end_with_the_soak, daemon=True).start()
    job = json.loads(sys.argv[1])
    builder = SparkSession.builder.master(job["master"])
    for name, value in {**SETTINGS, **job["conf"]}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    writer = made(spark, job)
    once = {"availableNow": True} if job["to_the_end"] else {"processingTime": "500 milliseconds"}
    query = eo_kafka.start(writer.options(**job["sink_options"]).trigger(**once))
    try:
        while not query.awaitTermination(1):
            if asked_to_stop.is_set():
                query.stop()
                return
    finally:
        told = query.exception()
        print(f"\nENDED {told if told else 'in order'}", flush=True)


def made(spark: SparkSession, job: dict[str, Any]) -> DataStreamWriter:
    if job["workload"] == "direct":
        return eo_kafka.direct(spark, job["source_options"], job["sink_options"])
    rows = spark.readStream.format("eo-kafka").options(**job["source_options"]).load()
    return TRANSFORMS[job["workload"]](rows, job).writeStream.format("eo-kafka")


def end_with_the_soak() -> None:
    """Nobody would end us if the soak itself were killed."""
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


def copy(rows: DataFrame, _job: dict[str, Any]) -> DataFrame:
    return rows.select("key", "value")


def count(rows: DataFrame, job: dict[str, Any]) -> DataFrame:
    reading = F.from_json(F.col("value").cast("string"), "key STRING, second LONG").alias("reading")
    start = F.unix_timestamp("window.start")
    return (
        rows.select(reading)
        .select("reading.key", F.timestamp_seconds("reading.second").alias("time"))
        .withWatermark("time", f"{job['watermark_delay_s']} seconds")
        .groupBy("key", F.window("time", f"{job['window_s']} seconds"))
        .count()
        .select("key", F.format_string("%s@%d=%d", "key", start, "count").alias("value"))
    )


def bank(rows: DataFrame, job: dict[str, Any]) -> DataFrame:
    """The two entries of a transfer go to different tasks, as a rule: into two transactions."""
    schema = "id LONG, giver INT, taker INT, amount LONG"
    transfer = F.from_json(F.col("value").cast("string"), schema).alias("transfer")
    entry = F.expr(
        "explode(array(named_struct('account', giver, 'amount', -amount),"
        " named_struct('account', taker, 'amount', amount))) AS entry"
    )
    value = F.format_string("%d:%d:%d", "id", "entry.account", "entry.amount")
    return (
        rows.select(transfer)
        .select("transfer.*")
        .select("id", entry)
        .select(F.col("entry.account").cast("string").alias("key"), value.alias("value"))
        .repartition(job["tasks"], "value")
    )


TRANSFORMS = {"copy": copy, "count": count, "bank": bank}

if __name__ == "__main__":
    main()
