"""How many of those who looked at a product bought it, every few minutes?

Two topics are counted together, by product and window. A window is written once, when both topics
have passed its end: the one that is behind is waited for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streams import Job, read, typed, write

VIEW = "product STRING NOT NULL, at TIMESTAMP NOT NULL"
PURCHASE = "product STRING NOT NULL, cents BIGINT NOT NULL, at TIMESTAMP NOT NULL"


@dataclass(frozen=True, kw_only=True)
class Settings(Job):
    """`lateness_minutes`: how much later than a newer record of its topic one may come. Spark drops
    later ones."""

    purchases: str
    window_minutes: int
    lateness_minutes: int


def build(spark: SparkSession, config: Mapping[str, str]) -> DataStreamWriter:
    """The query, not started: job.py and the tests start it in their own way."""
    job = typed(Settings, config)
    return write(result(spark, job), job, **to(job))


def to(job: Settings) -> dict[str, str]:
    """Where the rows go: options of the sink."""
    return {"topic": job.sink}


def result(spark: SparkSession, job: Settings) -> DataFrame:
    """What is written; flow.py asks for it, too."""
    lateness, size = f"{job.lateness_minutes} minutes", f"{job.window_minutes} minutes"
    # each with a watermark of its own: of two, Spark takes the older one
    views, purchases = (
        read(spark, job, topic, schema)
        .where("value IS NOT NULL")
        .select("value.*")
        .withWatermark("at", lateness)
        for topic, schema in ((job.source, VIEW), (job.purchases, PURCHASE))
    )
    both = views.unionByName(purchases, allowMissingColumns=True)
    counts = both.groupBy(F.window("at", size), "product").agg(
        F.count_if(F.col("cents").isNull()).alias("views"),
        F.count("cents").alias("purchases"),
        F.coalesce(F.sum("cents"), F.lit(0)).alias("cents"),
    )
    value = F.struct(F.col("window.start").alias("from"), "views", "purchases", "cents")
    return counts.select(F.col("product").alias("key"), value.alias("value"))
