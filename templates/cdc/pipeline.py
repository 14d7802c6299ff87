"""How does a database's table become a map that follows it?

Debezium tells each change of a row as an envelope: before, after, and what was done. The map, a
compacted topic, holds each row as it is; a row that was deleted is removed. Anybody reads it with
`format("eo-map")`, or as a topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from debezium import changes
from streams import Job, typed, write


@dataclass(frozen=True, kw_only=True)
class Settings(Job):
    """What every job has."""


def build(spark: SparkSession, config: Mapping[str, str]) -> DataStreamWriter:
    """The query, not started: job.py and the tests start it in their own way."""
    job = typed(Settings, config)
    return write(result(spark, job), job, **to(job))


def to(job: Settings) -> dict[str, str]:
    """Where the rows go: options of the sink."""
    return {"format": "eo-map", "backend": "kafka", "map": job.sink}


def result(spark: SparkSession, job: Settings) -> DataFrame:
    """What is written; flow.py asks for it, too."""
    key = F.col("row.id").cast("string")
    row = F.when(F.col("operation") == "upsert", F.col("row"))
    return changes(spark, job).select(key.alias("key"), row.alias("value"))
