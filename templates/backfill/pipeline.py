"""How does what was there before a stream get into its output, once, by the same function?

The stream reads from the offsets `begins` on. `backfill.py` reads what is before, as one batch,
and writes it into the same topic by one decision: killed and run again, it repeats nothing. A time
becomes such offsets once (`eo-kafka topic offsets`), and they are kept: both go by the same ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streams import Job, read, sink, source, typed, write

ITEM = "STRUCT<name STRING NOT NULL, cents BIGINT NOT NULL, count BIGINT NOT NULL>"
ORDER = f"customer STRING NOT NULL, items ARRAY<{ITEM}> NOT NULL"
NUMBER = 1  # of this backfill; another one needs a higher number, else it is taken for this one


@dataclass(frozen=True, kw_only=True)
class Settings(Job):
    """`begins`: an offset for each partition, as JSON. `starts`: those where the backfill starts;
    without it at the earliest record."""

    begins: str
    starts: str = ""


def build(spark: SparkSession, config: Mapping[str, str]) -> DataStreamWriter:
    """The query, not started: job.py and the tests start it in their own way."""
    job = typed(Settings, config)
    return write(result(spark, job), job, **to(job))


def to(job: Settings) -> dict[str, str]:
    """Where the rows go: options of the sink."""
    return {"topic": job.sink}


def result(spark: SparkSession, job: Settings) -> DataFrame:
    """What is written; flow.py asks for it, too."""
    orders = read(spark, job, job.source, ORDER, startingOffsets=_offsets(job, job.begins))
    return billed(orders)


def backfill(spark: SparkSession, config: Mapping[str, str]) -> None:
    """Write what was there before, if it is not written. All of it is one batch, whose transactions
    are open until it ends: cut what takes longer than `kafka.transaction.timeout.ms`."""
    job = typed(Settings, config)
    before = spark.read.format("eo-kafka").options(**source(job, job.source, ORDER))
    starts = _offsets(job, job.starts) if job.starts else "earliest"
    bounds = {"startingOffsets": starts, "endingOffsets": _offsets(job, job.begins)}
    orders = before.options(**bounds).load()
    numbered = {"jobName": f"{job.job_name}-backfill", "batchId": str(NUMBER), "snapshots": "false"}
    rows = billed(orders).write.format("eo-kafka").mode("append")
    rows.options(**{**sink(job), **numbered}).option("topic", job.sink).save()


def billed(orders: DataFrame) -> DataFrame:
    """What both write of orders. One without a value stays one."""
    odd = F.concat(F.lit("An item of an order is null: "), F.to_json("value"))
    is_odd = F.exists("value.items", lambda one: one.isNull())
    items = F.when(is_odd, F.raise_error(odd)).otherwise(F.col("value.items"))
    pieces = F.aggregate(items, F.lit(0).cast("long"), lambda sum, one: sum + one["count"])
    cents = F.aggregate(
        items, F.lit(0).cast("long"), lambda sum, one: sum + one["cents"] * one["count"]
    )
    bill = F.struct("value.customer", pieces.alias("pieces"), cents.alias("cents"))
    return orders.select("key", F.when(F.col("value").isNotNull(), bill).alias("value"))


def _offsets(job: Settings, of_partitions: str) -> str:
    try:
        found = json.loads(of_partitions).items()
    except (AttributeError, ValueError):
        found = ()
    # not -1, -2: latest, earliest: another one for the stream and the backfill
    if not found or not all(at.isdigit() and type(one) is int and one >= 0 for at, one in found):
        raise ValueError(
            "'begins' and 'starts' take offsets from 0 on, of partitions: '{\"0\": 200}', not "
            f"'{of_partitions}'."
        )
    return json.dumps({job.source: dict(found)})
