"""A streaming copy from topic to topic, run in a driver of its own so that a test can kill it.

The one argument is JSON: see `Copy` in harness.py.
"""

import json
import os
import sys

os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import SparkSession

import eo_kafka
from eo_kafka.broker.jars import jvm_connector_jars


def main() -> None:
    job = json.loads(sys.argv[1])
    builder = (
        SparkSession.builder.master(job["master"])
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
    )
    if "kafka" in (job["source"], job["sink"]):
        builder = builder.config("spark.jars", jvm_connector_jars())
    for name, value in job.get("conf", {}).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    start_copy(spark, job).awaitTermination()


def start_copy(spark, job):
    """Start the query; the tests also call this with a session of their own."""
    writer = _direct(spark, job) if job["source"] == "direct" else _of_rows(spark, job)
    writer = writer.trigger(availableNow=True)
    with_snapshots = job["sink_options"].get("snapshots") == "true"
    return eo_kafka.start(writer) if with_snapshots else writer.start()


def _direct(spark, job):
    options = job["source_options"], job["sink_options"]
    return eo_kafka.direct(spark, *options, schema=job.get("schema"))


def _of_rows(spark, job):
    rows = spark.readStream.format(job["source"]).options(**job["source_options"]).load()
    rows = rows.select(*(name for name in ("key", "value", "_bad_record") if name in rows.columns))
    if job["tasks"] == "any":
        rows = rows.repartition("value")  # into as many as Spark sees fit
    elif job["tasks"]:
        rows = rows.repartition(job["tasks"], "value")
    return rows.writeStream.format(job["sink"]).options(**job["sink_options"])


if __name__ == "__main__":
    main()
