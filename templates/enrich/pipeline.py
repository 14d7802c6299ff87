"""How does each purchase get its customer's name and tier, as they are now?

Customers are a map: a compacted topic. Each batch is joined with the map as it was when the batch
first began. A batch that runs again after a crash gets the same entries: it writes the same rows.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

import eo_kafka
from streams import Job, kafka, read, sink, typed

PURCHASE = (
    "customer STRING NOT NULL, item STRING NOT NULL, cents BIGINT NOT NULL, at TIMESTAMP NOT NULL"
)
CUSTOMER = "name STRING NOT NULL, tier STRING NOT NULL"


@dataclass(frozen=True, kw_only=True)
class Settings(Job):
    """`refresh`: how old the entries may be, such as `10 minutes`; `0 seconds`: anew for each
    batch. The whole map is copied each time: it must be small enough to be sent to every task."""

    customers: str
    refresh: str = "0 seconds"


def build(spark: SparkSession, config: Mapping[str, str]) -> DataStreamWriter:
    """The query, not started: job.py and the tests start it in their own way."""
    job = typed(Settings, config)
    purchases = read(spark, job, job.source, PURCHASE).select("key", "value.*")
    customers = eo_kafka.SideInput(
        {
            **kafka(job),
            "backend": "kafka",
            "map": job.customers,
            "value.format": "json",
            "value.schema": CUSTOMER,
        },
        f"{job.checkpoint}-customers",
        job.refresh,
    )
    write = eo_kafka.foreach_batch({**sink(job), "topic": job.sink})

    @functools.wraps(write)
    def enrich(rows: DataFrame, batch: int) -> None:
        found = customers.join(rows, batch, on="customer")  # `entry` is null where there is none
        value = F.struct("item", "cents", "at", "customer", "entry.name", "entry.tier")
        has_value = F.col("customer").isNotNull()  # a purchase without a value stays one
        write(found.select("key", F.when(has_value, value).alias("value")), batch)

    return (
        purchases.writeStream.foreachBatch(enrich)
        .option("checkpointLocation", job.checkpoint)
        .queryName(job.job_name)
    )
