"""How does each reading of a meter count once, though gateways send some of them again?

Two records with the same key are the same reading. The first one is passed on. A key is remembered
until no reading that is as old can come any more, so the state does not grow for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streams import Job, read, typed, write

READING = "meter STRING, watts BIGINT, at TIMESTAMP"


@dataclass(frozen=True, kw_only=True)
class Settings(Job):
    """`lateness_minutes`: how much later than a newer reading one may come, the first time. Later
    ones are dropped, and so is what is sent again later still."""

    lateness_minutes: int


def build(spark: SparkSession, config: Mapping[str, str]) -> DataStreamWriter:
    """The query, not started: job.py and the tests start it in their own way."""
    job = typed(Settings, config)
    readings = read(spark, job, job.source, READING).select("key", "value", "value.at")
    first = readings.withWatermark("at", f"{job.lateness_minutes} minutes")
    distinct = first.dropDuplicatesWithinWatermark(["key"])
    return write(distinct.select("key", "value"), job, topic=job.sink)
