"""How does a database's table become a table of PostgreSQL that follows it, row for row?

Debezium tells each change of a row as an envelope: before, after, and what was done. A batch of
changes gets into the table in one transaction, once: rows are put in the place of those with their
key, or deleted. A reader of the table sees a whole batch, or nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from debezium import KEYS, changes
from streams import Job, typed, write


@dataclass(frozen=True, kw_only=True)
class Settings(Job):
    """`sink` is the table, as in SQL; `url` the database, and `password` the one of its user."""

    url: str
    password: str = ""


def build(spark: SparkSession, config: Mapping[str, str]) -> DataStreamWriter:
    """The query, not started: job.py and the tests start it in their own way."""
    job = typed(Settings, config)
    return write(result(spark, job), job, **to(job))


def to(job: Settings) -> dict[str, str]:
    """Where the rows go: options of the sink."""
    login = {"password": job.password} if job.password else {}
    into = {"url": job.url, **login, "table": job.sink, "keys": ",".join(KEYS)}
    return {"format": "eo-postgres", **into, "operationColumn": "operation"}


def result(spark: SparkSession, job: Settings) -> DataFrame:
    """What is written; flow.py asks for it, too."""
    return changes(spark, job).select("row.*", "operation")
