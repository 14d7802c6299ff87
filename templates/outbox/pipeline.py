"""How do a service's events get from its outbox table into topics, each once and in their order?

A service writes an event into the table `outbox` in the transaction that it tells of, and Debezium
tells of each row. Here a row becomes a record: the type of its aggregate says to which topic it
goes, its id is the key, `payload` the value, and headers `id` and `type` say what it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streams import Job, read, typed, write

ROW = (
    "STRUCT<id STRING NOT NULL, aggregatetype STRING NOT NULL, aggregateid STRING NOT NULL, "
    "type STRING NOT NULL, payload STRING NOT NULL>"
)
ENVELOPE = f"op STRING NOT NULL, after {ROW}"
INSERTED = ("c", "r")  # created, or read in the first snapshot; deleted is `d`


@dataclass(frozen=True, kw_only=True)
class Settings(Job):
    """Events of orders go to topic `sink`, those of customers to `customers`."""

    customers: str


def build(spark: SparkSession, config: Mapping[str, str]) -> DataStreamWriter:
    """The query, not started: job.py and the tests start it in their own way."""
    job = typed(Settings, config)
    return write(result(spark, job), job, **to(job))


def to(job: Settings) -> dict[str, str]:
    """Where the rows go: options of the sink."""
    return {"value.format": "raw"}  # the payload's text as it is


def result(spark: SparkSession, job: Settings) -> DataFrame:
    """What is written; flow.py asks for it, too.

    An aggregate's events stay in their order: they stand in one partition, which one task reads and
    writes. So nothing may be added that shuffles the rows or cuts partitions (`minPartitions`).
    """
    told = read(spark, job, job.source, ENVELOPE)
    changes = told.where("value IS NOT NULL AND value.op IS DISTINCT FROM 'd'")  # nor tombstones
    kind = F.when(F.col("value.op").isin(*INSERTED), F.col("value.after.aggregatetype"))
    odd = F.concat(F.lit("This is no event of the outbox: "), F.to_json("value"))
    topic = (
        F.when(kind == "order", job.sink)
        .when(kind == "customer", job.customers)
        .otherwise(F.raise_error(odd))
    )
    return changes.select(
        topic.alias("topic"),
        F.col("value.after.aggregateid").alias("key"),
        F.col("value.after.payload").alias("value"),
        F.array(_header("id"), _header("type")).alias("headers"),
    )


def _header(name: str) -> Column:
    value = F.col(f"value.after.{name}").cast("binary")
    return F.struct(F.lit(name).alias("key"), value.alias("value"))
