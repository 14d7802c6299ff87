"""How does each reading of a meter count once, though gateways send some of them again?

Two records with the same key are the same reading. The first one is passed on. A key is remembered
until no reading that is as old can come any more, so the state does not grow for ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streams import Job, read, typed, write

READING = "meter STRING NOT NULL, watts BIGINT NOT NULL, at TIMESTAMP NOT NULL"
NO_KEY = "A reading has no key, by which it could be told from others."
NO_DATA = "spark.sql.streaming.noDataMicroBatches.enabled"
STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@dataclass(frozen=True, kw_only=True)
class Settings(Job):
    """`lateness_minutes`: how much later than a newer reading one may come, the first time. Later
    ones are dropped, and so is what is sent again later still. `ttl_seconds`: remember keys for as
    long by the clock instead, and drop nothing else; 0: do not."""

    lateness_minutes: int
    ttl_seconds: int = 0


def build(spark: SparkSession, config: Mapping[str, str]) -> DataStreamWriter:
    """The query, not started: job.py and the tests start it in their own way."""
    job = typed(Settings, config)
    return write(result(spark, job), job, **to(job))


def to(job: Settings) -> dict[str, str]:
    """Where the rows go: options of the sink."""
    return {"topic": job.sink}


def result(spark: SparkSession, job: Settings) -> DataFrame:
    """What is written; flow.py asks for it, too."""
    key = F.coalesce("key", F.raise_error(F.lit(NO_KEY))).alias("key")
    told = read(spark, job, job.source, READING).where("value IS NOT NULL")
    readings = told.select(key, "value", "value.at")
    if job.ttl_seconds:
        distinct = first_by_the_clock(spark, readings, job.ttl_seconds)
    else:
        first = readings.withWatermark("at", f"{job.lateness_minutes} minutes")
        distinct = first.dropDuplicatesWithinWatermark(["key"])
    return distinct.select("key", "value")


def first_by_the_clock(spark: SparkSession, readings: DataFrame, seconds: int) -> DataFrame:
    """The first reading of each key, which is forgotten that long after it. The clock is that of
    the batch, which Spark keeps: a batch that runs again gives the same."""
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor  # eo-kafka[state]

    spark.conf.set(STATE_STORE, ROCKSDB)
    spark.conf.set(NO_DATA, "false")  # else one batch follows another, with or without readings

    class First(StatefulProcessor):  # in here, so that tasks need no module of this project
        def init(self, handle: Any) -> None:
            self._seen = handle.getValueState("seen", "seen BOOLEAN", seconds * 1000)

        def handleInputRows(  # noqa: N802 - Spark's names
            self,
            key: Any,
            rows: Iterator[Any],
            timerValues: Any,  # noqa: N803
        ) -> Iterator[Any]:
            first, *_ = rows
            if not self._seen.exists():
                self._seen.update((True,))
                yield first

        def close(self) -> None:
            pass

    keyed: Any = readings.groupBy("key")
    found: DataFrame = keyed.transformWithState(
        First(), readings.schema, "Append", "ProcessingTime"
    )
    return found
