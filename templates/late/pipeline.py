"""What does each bus line earn, every few minutes, and which tickets came too late to be counted?

Buses send tickets when they have a network. A window's result is written early, again when it is
complete, and again for what comes within `correct_minutes`; a compacted topic keeps the newest.
Later tickets go to a topic of their own, in the same transaction: none is lost or counted twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

import eo_kafka
from streams import Job, read, typed, write

TICKET = "line STRING NOT NULL, cents BIGINT NOT NULL, at TIMESTAMP"
# not in the session's zone: that may change, and where clocks are put back, times come twice
MINUTE = {"timestampFormat": "yyyy-MM-dd'T'HH:mm'Z'", "timeZone": "UTC"}
STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@dataclass(frozen=True, kw_only=True)
class Settings(Job):
    """A window is complete when a ticket came that is `lateness_minutes` newer than its end. For
    `correct_minutes` more it still takes tickets."""

    late: str
    window_minutes: int
    lateness_minutes: int
    correct_minutes: int


def build(spark: SparkSession, config: Mapping[str, str]) -> DataStreamWriter:
    """The query, not started: job.py and the tests start it in their own way."""
    job = typed(Settings, config)
    spark.conf.set(STATE_STORE, ROCKSDB)  # the windows need it
    tickets = read(spark, job, job.source, TICKET).select("key", "value.*")
    earned = eo_kafka.windows.tumbling(
        tickets,
        time="at",
        size=f"{job.window_minutes} minutes",
        by=["line"],
        aggregates={"tickets": eo_kafka.windows.count(), "sum": eo_kafka.windows.sum("cents")},
        watermark=f"{job.lateness_minutes} minutes",
        allowed_lateness=f"{job.correct_minutes} minutes",
        early=True,
    )
    is_late = F.col("kind") == "late"
    is_complete = F.when(~is_late, F.col("kind") != "early").alias("complete")
    window = F.concat_ws(" ", "line", F.to_csv(F.struct("window_start"), MINUTE))
    # JSON leaves nulls out: a row is a window's result, or a late ticket as it came
    ticket = [f"late_row.{name}" for name in ("line", "cents", "at")]
    value = F.struct("tickets", "sum", is_complete, *ticket)
    has_value = ~is_late | F.col("late_row.line").isNotNull()
    rows = earned.select(
        F.when(is_late, job.late).otherwise(job.sink).alias("topic"),
        F.when(is_late, F.col("late_row.key")).otherwise(window).alias("key"),
        F.when(has_value, value).alias("value"),
    )
    return write(rows, job)
