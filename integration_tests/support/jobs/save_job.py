"""A batch write from topic to topic, in a driver of its own so that a test can kill it.

The one argument is JSON: see `Copy` in harness.py.
"""

import json
import os
import sys

os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import SparkSession


def main() -> None:
    job = json.loads(sys.argv[1])
    spark = (
        SparkSession.builder.master(job["master"]).config("spark.ui.enabled", "false").getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    save(spark, job)


def save(spark, job):
    """The tests also call this with a session of their own."""
    source = {**job["source_options"]}
    source.pop("maxOffsetsPerTrigger", None)
    rows = spark.read.format("eo-kafka").options(**source).load().select("key", "value")
    sink = {**job["sink_options"]}
    sink.pop("checkpointLocation", None)
    rows.write.format("eo-kafka").mode("append").options(**sink).save()


if __name__ == "__main__":
    main()
