"""Which songs were played most, every few minutes?

Plays are counted in windows, and of each window the first `places` songs are kept, in their order.
A chart is written once, when its window is complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streams import Job, read, typed, write

PLAY = "song STRING NOT NULL, at TIMESTAMP NOT NULL"
# not in the session's zone: that may change, and where clocks are put back, times come twice
MINUTE = {"timestampFormat": "yyyy-MM-dd'T'HH:mm'Z'", "timeZone": "UTC"}


@dataclass(frozen=True, kw_only=True)
class Settings(Job):
    """`lateness_minutes`: how much later than a newer play one may come. Spark drops later ones."""

    window_minutes: int
    places: int
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
    plays = read(spark, job, job.source, PLAY).where("value IS NOT NULL").select("value.*")
    counts = (
        plays.withWatermark("at", f"{job.lateness_minutes} minutes")
        .groupBy(F.window("at", f"{job.window_minutes} minutes"), "song")
        .agg(F.count("*").alias("plays"))
    )
    # of as many plays the song with the smaller name comes first: a chart that chance decides
    # would be another one after a crash
    place = F.struct((-F.col("plays")).alias("order"), "song", "plays")
    chart = F.slice(F.sort_array(F.collect_list(place)), 1, job.places)
    charts = counts.groupBy("window").agg(chart.alias("chart"))
    songs = F.transform("chart", lambda one: F.struct(one["song"], one["plays"]))
    key = F.to_csv(F.struct("window.start"), MINUTE).alias("key")
    return charts.select(key, F.struct(songs.alias("songs")).alias("value"))
