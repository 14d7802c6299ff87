"""What did each visitor look at in one go?

A session is a visitor's page views with no pause longer than `gap_minutes`. It is written once,
when no view can be added to it any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streams import Job, read, typed, write

VIEW = "page STRING NOT NULL, at TIMESTAMP NOT NULL"
NO_KEY = "A view has no key, which would tell whose it is."


@dataclass(frozen=True, kw_only=True)
class Settings(Job):
    """`lateness_minutes`: how much later than a newer view one may come. Spark drops later ones."""

    gap_minutes: int
    lateness_minutes: int

    def __post_init__(self) -> None:
        if self.gap_minutes < 1:  # Spark would drop each view, and not say so
            raise ValueError("'gap_minutes' must be 1 or more.")


def build(spark: SparkSession, config: Mapping[str, str]) -> DataStreamWriter:
    """The query, not started: job.py and the tests start it in their own way."""
    job = typed(Settings, config)
    return write(result(spark, job), job, **to(job))


def to(job: Settings) -> dict[str, str]:
    """Where the rows go: options of the sink."""
    return {"topic": job.sink}


def result(spark: SparkSession, job: Settings) -> DataFrame:
    """What is written; flow.py asks for it, too."""
    told = read(spark, job, job.source, VIEW).where("value IS NOT NULL")
    visitor = F.coalesce("key", F.raise_error(F.lit(NO_KEY))).alias("key")
    views = told.select(visitor, "value.*")
    # of two views at the same time chance would decide, and once more after a crash
    order = F.struct("at", "page")
    sessions = (
        views.withWatermark("at", f"{job.lateness_minutes} minutes")
        .groupBy("key", F.session_window("at", f"{job.gap_minutes} minutes").alias("time"))
        .agg(
            F.count("*").alias("views"),
            F.min("at").alias("first"),
            F.max("at").alias("last"),
            F.min_by("page", order).alias("entry"),
            F.max_by("page", order).alias("exit"),
        )
    )
    value = F.struct("views", "first", "last", "entry", "exit")
    return sessions.select("key", value.alias("value"))
