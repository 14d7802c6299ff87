"""How does a database's table become a map that follows it?

Debezium tells each change of a row as an envelope: before, after, and what was done. The map, a
compacted topic, holds each row as it is; a row that was deleted is removed. Anybody reads it with
`format("eo-map")`, or as a topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streams import Job, read, typed, write

ROW = "STRUCT<id BIGINT, name STRING, email STRING>"
ENVELOPE = f"op STRING, before {ROW}, after {ROW}"
WRITTEN = ("c", "u", "r")  # created, updated, read in the first snapshot; deleted is `d`


@dataclass(frozen=True, kw_only=True)
class Settings(Job):
    """What every job has."""


def build(spark: SparkSession, config: Mapping[str, str]) -> DataStreamWriter:
    """The query, not started: job.py and the tests start it in their own way.

    A row's changes stay in their order: they stand in one partition, which one task reads and
    writes. So nothing may be added here that shuffles the rows.
    """
    job = typed(Settings, config)
    changes = read(spark, job, job.source, ENVELOPE).where("value IS NOT NULL")  # no tombstones
    id_ = F.coalesce("value.after.id", "value.before.id").cast("string")
    is_written = F.col("value.op").isin(*WRITTEN)
    is_known = is_written | (F.col("value.op") == "d")
    unknown = F.concat(F.lit("Debezium tells an operation that is not known: "), "value.op")
    row = F.when(is_written, F.col("value.after")).when(~is_known, F.raise_error(unknown))
    rows = changes.select(id_.alias("key"), row.alias("value"))
    return write(rows, job, to="eo-map", backend="kafka", map=job.sink)
