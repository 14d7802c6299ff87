"""Which orders were paid in time, and which were not?

Two topics are joined: an order, and a payment for it within `pay_minutes`. An order without one is
written when no such payment can come any more. One that is paid twice in time is written twice,
with each payment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streams import Job, read, typed, write

ORDER = "customer STRING NOT NULL, cents BIGINT NOT NULL, ordered TIMESTAMP NOT NULL"
PAYMENT = "order STRING NOT NULL, method STRING NOT NULL, paid TIMESTAMP NOT NULL"


@dataclass(frozen=True, kw_only=True)
class Settings(Job):
    """`lateness_minutes`: how much later than a newer record of its topic one may come. Spark drops
    later ones."""

    payments: str
    pay_minutes: int
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
    lateness = f"{job.lateness_minutes} minutes"
    # a record without a value has no time: it would be kept, and waited for, for ever
    has_value = "value IS NOT NULL"
    orders = read(spark, job, job.source, ORDER).where(has_value).select("key", "value.*")
    payments = read(spark, job, job.payments, PAYMENT).where(has_value).select("value.*")
    is_for_it = F.expr(
        f"order = key AND paid BETWEEN ordered AND ordered + INTERVAL {job.pay_minutes} MINUTES"
    )
    judged = orders.withWatermark("ordered", lateness).join(
        payments.withWatermark("paid", lateness), is_for_it, "left_outer"
    )
    value = F.struct("customer", "cents", F.col("paid").isNotNull().alias("in_time"), "method")
    return judged.select("key", value.alias("value"))
