"""Windows that are other ones than those of the checkpoint stop at the start: before a row of
theirs is visible, and after a restore, too."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as f

from eo_kafka import windows
from harness import committed
from jobs.stateful_job import settings
from test_restore_jobs import ROCKSDB, lose_the_disk
from test_windows import events, new_job, put  # noqa: F401 - a fixture

AGGREGATES = {"views": windows.sum("v"), "clicks": windows.sum("c")}
ASKED = {"size": "10 seconds", "allowed_lateness": "1 minute", "aggregates": AGGREGATES}


def test_a_column_whose_name_must_be_quoted_is_a_key_and_times_that_python_lacks_are_named(
    spark, tmp_path
) -> None:
    (tmp_path / "in").mkdir()

    def run(*rows: dict) -> list:
        name = tmp_path / "in" / f"{len(list((tmp_path / 'in').iterdir()))}.json"
        name.write_text("\n".join(map(json.dumps, rows)))
        found = []
        with settings(spark, ROCKSDB):
            read = spark.readStream.schema("k STRING, t LONG, d LONG").json(str(tmp_path / "in"))
            read = read.withColumn("t", f.timestamp_seconds("t"))
            read = read.withColumn("until", f.timestamp_seconds("d")).drop("d")
            counts = windows.tumbling(
                read.withColumnRenamed("k", "order.id"),
                time="t",
                by=["order.id"],
                size="10 seconds",
                watermark="1 second",
                aggregates={"n": windows.count(), "last": windows.max("until")},
            )
            writer = counts.writeStream.option("checkpointLocation", str(tmp_path / "cp"))
            writer = writer.foreachBatch(lambda batch, _: found.extend(batch.collect()))
            writer.trigger(availableNow=True).start().awaitTermination()
        return found

    run({"k": "a", "t": 1_000_000, "d": 253_402_300_799}, {"k": "a", "t": 1_000_001})
    (result,) = run({"k": "a", "t": 1_000_100, "d": None})
    assert (result["order.id"], result["n"]) == ("a", 2)
    with pytest.raises(StreamingQueryException, match="Column 'until' .*10000-01-01.* 1 to 9999"):
        run({"k": "a", "t": 1_000_101, "d": 253_402_300_800})


@pytest.fixture
def started(spark, tmp_path):
    """Runs a query over one more row, and returns what came out."""
    folder = tmp_path / "in"
    folder.mkdir()

    def start(t: int, made=windows.tumbling, conf: Mapping[str, str] = {}, **asked) -> list:
        row = {"k": "a", "t": t, "v": 1000, "c": 1}
        (folder / f"{t}.json").write_text(json.dumps(row))
        found = []
        with settings(spark, {**ROCKSDB, **conf}):
            rows = spark.readStream.schema("k STRING, t LONG, v LONG, c LONG").json(str(folder))
            rows = rows.withColumn("t", f.timestamp_seconds("t"))
            asked = {"time": "t", "by": ["k"], "watermark": "1 second", **ASKED, **asked}
            writer = made(rows, **asked).writeStream
            writer = writer.option("checkpointLocation", str(tmp_path / "cp"))
            writer = writer.foreachBatch(lambda batch, _: found.extend(batch.collect()))
            writer.trigger(availableNow=True).start().awaitTermination()
        return found

    return start


def test_what_the_windows_are_stays_as_long_as_the_checkpoint(started) -> None:
    assert started(1_000_000) == []
    for changed in (
        {"size": "20 seconds"},
        {"aggregates": dict(reversed(AGGREGATES.items()))},
        {"allowed_lateness": "10 minutes"},
        {"made": windows.sliding, "slide": "5 seconds"},
    ):
        with pytest.raises(StreamingQueryException, match="eo_kafka_windows_stay") as refused:
            started(1_000_001, **changed)
        assert re.search("size_10000000_.*size_[12]0000000_", str(refused.value))
    (result,) = started(1_000_100, watermark="2 seconds", early=False)
    assert (result.views, result.clicks, result.kind) == (2000, 2, "on_time")


POLICY = "spark.sql.streaming.multipleWatermarkPolicy"
CHAINED = {"spark.sql.streaming.statefulOperator.allowMultiple": "false"}
BY_PARTITION = windows.by_partition("1 second", partitions=2, column="c")


def test_a_checkpoint_stays_with_the_watermark_that_is_ahead(started) -> None:
    """Spark goes by the setting that it noted with the first batch, whatever the session has."""
    assert started(1_000_000, conf={POLICY: "max"}) == []
    with pytest.raises(StreamingQueryException, match="was begun with .*Policy=max.*jobName"):
        started(1_000_001, watermark=BY_PARTITION, conf=CHAINED)
    (result,) = started(1_000_100)
    assert (result.views, result.kind) == (2000, "on_time")


def test_one_that_was_begun_with_the_least_goes_on_by_partition(started) -> None:
    assert started(1_000_000) == []
    assert started(1_000_001, watermark=BY_PARTITION, conf=CHAINED) == []


def test_it_is_in_the_snapshot(new_job, spark) -> None:  # noqa: F811
    job = new_job("tumbling")
    put(job, events(job, 0, 100))
    job.run(spark)
    written = committed(job.servers, job.sink_topic)
    lose_the_disk(job)
    put(job, events(job, 100, 200))
    job.operator = "sliding"
    with pytest.raises(StreamingQueryException, match="eo_kafka_windows_stay"):
        job.run(spark)
    assert committed(job.servers, job.sink_topic) == written
