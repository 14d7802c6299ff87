"""How does each message of a queue get into a topic once, though a queue delivers some again?

A queue forgets what was acknowledged, and delivers again what was not. So messages go into an
inbox, a topic of Kafka, in one transaction, and are acknowledged when it is committed; those whose
id is known already are dropped. The job reads the inbox, as often as it has to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streams import Job, kafka, typed, write


@dataclass(frozen=True, kw_only=True)
class Settings(Job):
    """`source` is the queue, and `url` the RabbitMQ that has it."""

    url: str
    inbox: str


def build(spark: SparkSession, config: Mapping[str, str]) -> DataStreamWriter:
    """The query, not started: job.py and the tests start it in their own way."""
    job = typed(Settings, config)
    return write(result(spark, job), job, **to(job))


def to(job: Settings) -> dict[str, str]:
    """Where the rows go: options of the sink."""
    return {"topic": job.sink, "value.format": "raw"}  # the body's bytes as they are


def result(spark: SparkSession, job: Settings) -> DataFrame:
    """What is written; flow.py asks for it, too."""
    queue = {"url": job.url, "queue": job.source, "inbox": job.inbox}
    messages = spark.readStream.format("eo-queue").options(**kafka(job), **queue)
    return messages.load().select(F.col("messageId").alias("key"), "value")
