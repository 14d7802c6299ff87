"""How do card payments get from here to there, filtered, masked and sorted into topics?

Declined payments are left out, card numbers are masked, large payments go to a topic of their own.
What is no payment goes to `rejects` as it came, with the reason in its headers. A record without a
value, or with JSON's `null` as its value, goes there without a value and a reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streams import Job, read, typed, write

PAYMENT = (
    "id STRING NOT NULL, card STRING NOT NULL, cents BIGINT NOT NULL, currency STRING NOT NULL, "
    "approved BOOLEAN NOT NULL, at TIMESTAMP NOT NULL"
)
FIELDS = ("id", "card", "cents", "currency", "approved", "at")
LACKING = (
    f"A payment has a null in one of {', '.join(FIELDS)}: let the registry's schema require them, "
    "or say in pipeline.py what is to become of it. It is: "
)
SHORTEST = 12  # of card numbers; of anything shorter too much would be shown


@dataclass(frozen=True, kw_only=True)
class Settings(Job):
    """Payments of `large_cents` and more go to topic `large`, the others to `sink`. `registry`: a
    schema registry, where values are Avro, in and out; without one they are JSON."""

    large: str
    rejects: str
    large_cents: int
    registry: str = ""


def build(spark: SparkSession, config: Mapping[str, str]) -> DataStreamWriter:
    """The query, not started: job.py and the tests start it in their own way."""
    job = typed(Settings, config)
    return write(result(spark, job), job, **to(job))


def to(job: Settings) -> dict[str, str]:
    """Where the rows go: options of the sink."""
    if not job.registry:  # each row names its topic
        return {}
    return {**_avro(job), "value.subject": f"{job.sink}-value", "schema.register": "true"}


def result(spark: SparkSession, job: Settings) -> DataFrame:
    """What is written; flow.py asks for it, too."""
    dead_letters = {"mode": "DEADLETTER", "deadLetterTopic": job.rejects}
    # of Avro the registry tells the columns
    schema, avro = ("", _avro(job)) if job.registry else (PAYMENT, {})
    payments = read(spark, job, job.source, schema, **dead_letters, **avro)
    # declined ones alone: bad records, which the sink sends off, and nulls are neither
    wanted = payments.where("value.approved IS DISTINCT FROM false")
    size = F.when(F.col("value.cents") >= job.large_cents, job.large).otherwise(job.sink)
    digits = F.regexp_replace("value.card", r"\D", "")  # terminals write blanks or dashes, too
    shown = F.concat(F.substring(digits, 1, 4), F.lit("-xxxx-"), F.substring(digits, -4, 4))
    card = F.when(F.length(digits) >= SHORTEST, shown).otherwise("xxxx").alias("card")
    value = F.struct("value.id", card, "value.cents", "value.currency", "value.at")
    # of JSON it is a bad record already
    is_odd = F.expr(" OR ".join(f"value.{name} IS NULL" for name in FIELDS))
    odd = F.concat(F.lit(LACKING), F.to_json(F.struct("value.id", "value.at")))
    return wanted.select(
        F.when(F.col("value").isNull(), job.rejects)
        .when(is_odd, F.raise_error(odd))
        .otherwise(size)
        .alias("topic"),
        "key",
        F.when(F.col("value").isNotNull(), value).alias("value"),
        "_bad_record",
    )


def _avro(job: Settings) -> dict[str, str]:
    return {"value.format": "avro", "schema.registry.url": job.registry}
