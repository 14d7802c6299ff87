"""Where is traffic slow, over the last ten minutes, told every two?

Windows of `window_minutes` begin every `slide_minutes`: each car counts in several. A window is
written once, when it is complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streams import Job, read, typed, write

CAR = "road STRING NOT NULL, kmh BIGINT NOT NULL, at TIMESTAMP NOT NULL"


@dataclass(frozen=True, kw_only=True)
class Settings(Job):
    """`lateness_minutes`: how much later than a newer car one may come. Spark drops later ones."""

    window_minutes: int
    slide_minutes: int
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
    cars = read(spark, job, job.source, CAR).where("value IS NOT NULL").select("value.*")
    window = F.window("at", f"{job.window_minutes} minutes", f"{job.slide_minutes} minutes")
    speeds = (
        cars.withWatermark("at", f"{job.lateness_minutes} minutes")
        .groupBy(window, "road")
        .agg(
            F.count("*").alias("cars"),
            F.min("kmh").alias("slowest"),
            F.expr("sum(kmh) div count(*)").alias("kmh"),
        )
    )
    value = F.struct(F.col("window.end").alias("until"), "cars", "slowest", "kmh").alias("value")
    return speeds.select(F.col("road").alias("key"), value)
