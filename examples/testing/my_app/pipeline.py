"""The job that the tests beside this folder prove: it bills orders."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

ORDER = "id STRING, amount INT"


def build(spark: SparkSession, config: Mapping[str, str]) -> DataStreamWriter:
    """The query, not started: production and the tests start it in their own way."""
    orders = (
        spark.readStream.format("eo-kafka")
        .option("kafka.bootstrap.servers", config["bootstrap_servers"])
        .option("subscribe", config["source"])
        .option("startingOffsets", "earliest")
        .load()
    )
    order = F.from_json(F.col("value").cast("string"), ORDER).alias("order")
    total = (F.col("order.amount") * 119 / 100).cast("int").alias("total")
    bills = orders.select("key", order).select(
        "key", F.to_json(F.struct("order.id", total)).alias("value")
    )
    return (
        bills.writeStream.format("eo-kafka")
        .option("kafka.bootstrap.servers", config["bootstrap_servers"])
        .option("topic", config["sink"])
        .option("jobName", config["job_name"])
        .option("checkpointLocation", config["checkpoint"])
        .option("kafka.transaction.timeout.ms", config.get("transaction_timeout_ms", "60000"))
    )
