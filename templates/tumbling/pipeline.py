"""What did taxis earn in each zone, every few minutes?

Windows of `window_minutes` stand side by side. Each is written once, when it is complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streams import Job, read, typed, write

RIDE = "zone STRING NOT NULL, cents BIGINT NOT NULL, ended TIMESTAMP NOT NULL"


@dataclass(frozen=True, kw_only=True)
class Settings(Job):
    """`lateness_minutes`: how much later than a newer ride one may come. Spark drops later ones."""

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
    rides = read(spark, job, job.source, RIDE).where("value IS NOT NULL").select("value.*")
    earned = (
        rides.withWatermark("ended", f"{job.lateness_minutes} minutes")
        .groupBy(F.window("ended", f"{job.window_minutes} minutes"), "zone")
        .agg(F.count("*").alias("rides"), F.sum("cents").alias("cents"))
    )
    value = F.struct(F.col("window.start").alias("from"), "rides", "cents")
    return earned.select(F.col("zone").alias("key"), value.alias("value"))
