"""A stream joined with a map, batch for batch, in a driver of its own so that a test can kill it.

The one argument is JSON: see `Enriched` in test_side_input.py.
"""

import json
import os
import sys

os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import SparkSession

import eo_kafka


def main() -> None:
    job = json.loads(sys.argv[1])
    spark = (
        SparkSession.builder.master(job["master"])
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    start_enriched(spark, job).awaitTermination()


def start_enriched(spark, job):
    """Start the query; the tests also call this with a session of their own."""
    checkpoint = job["sink_options"]["checkpointLocation"]
    prices = eo_kafka.SideInput(job["side"], f"{checkpoint}/side", job["refresh"])
    write = eo_kafka.foreach_batch(job["sink_options"])

    def enrich(rows, batch):
        found = prices.join(rows, batch, on="key")
        write(found.selectExpr("key", "concat(value, ' ', coalesce(entry, '-')) as value"), batch)

    rows = spark.readStream.format("eo-kafka").options(**job["source_options"]).load()
    rows = rows.selectExpr("cast(key as string) as key", "cast(value as string) as value")
    writer = rows.writeStream.foreachBatch(enrich).trigger(availableNow=True)
    return writer.option("checkpointLocation", checkpoint).start()


if __name__ == "__main__":
    main()
