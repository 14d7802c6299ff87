"""What `eo_kafka.progress` tells of a query, beside what Spark's own connector reports."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from pyspark.sql.streaming.listener import StreamingQueryListener

import eo_kafka
from eo_kafka.tools.run import driver_program
from eo_kafka.tools.run.status import Status
from harness import fail_at, make_copy, produce, wait_until

LONG_S = 180.0
VALUES = [b"%d" % number for number in range(300)]
STEPS = ["decide", "done", "finish", "plan", "snapshot", "tasks"]
LAG = ("minOffsetsBehindLatest", "maxOffsetsBehindLatest", "avgOffsetsBehindLatest")


def as_json(found):
    return json.loads(json.dumps(asdict(found)))


class Exporter(StreamingQueryListener):
    """As docs/progress.md has it."""

    def __init__(self):
        self.seen: list[object] = []

    def onQueryStarted(self, event): ...
    def onQueryIdle(self, event): ...
    def onQueryTerminated(self, event): ...

    def onQueryProgress(self, event):
        self.seen.append(as_json(eo_kafka.progress(event.progress)))


@pytest.fixture
def exporter(spark):
    listener = Exporter()
    spark.streams.addListener(listener)
    yield listener
    spark.streams.removeListener(listener)


@pytest.fixture
def job(broker, make_topic, tmp_path):
    return make_copy(broker.bootstrap_servers, make_topic, tmp_path, VALUES, per_batch=100)


def finished(job, spark):
    with job.running(spark) as query:
        assert query.awaitTermination(180)
    return query


def test_lag_is_what_the_jvm_connector_reports_and_each_batch_says_what_its_steps_took(
    job, spark, exporter, tmp_path
):
    job.sink_extra = {"snapshots": "true"}
    query = finished(job, spark)
    found = [eo_kafka.progress(one) for one in query.recentProgress]
    exported = list(map(as_json, found))
    wait_until(lambda: exporter.seen == exported, "a listener was told the same of each batch")
    assert eo_kafka.progress(query) == found[-1]
    rows = spark.readStream.format("kafka").options(**job.as_job()["source_options"]).load()
    writer = rows.writeStream.format("noop").trigger(availableNow=True)
    theirs = writer.option("checkpointLocation", str(tmp_path / "theirs")).start()
    assert theirs.awaitTermination(180)

    told = [{name: str(getattr(one.sources[0], name)) for name in LAG} for one in found]
    assert told == [one.sources[0].metrics for one in theirs.recentProgress]
    assert [one.sources[0].latestOffset for one in found] == [
        json.dumps(json.loads(one.sources[0].latestOffset)) for one in theirs.recentProgress
    ]
    for number, one in enumerate(found):
        (sink,) = one.sinks
        assert (one.batchId, sink.batchId, sink.jobName) == (number, number, job.job_name)
        assert sorted(sink.durationMs) == STEPS
        assert min(sink.durationMs.values()) > 0
        assert sum(sink.durationMs.values()) <= one.durationMs["addBatch"]
        assert sink.openTransactions == 2  # of its two tasks
        assert sink.snapshotFiles > 0
        assert 0 < sink.snapshotSentBytes <= sink.snapshotBytes


def test_a_batch_that_runs_again_has_no_lag_as_spark_asks_nobody_and_no_transaction(
    job, spark, crash_points
):
    fail_at(job, spark, crash_points, "S6.after_decision")
    query = finished(job, spark)
    again, *others = map(eo_kafka.progress, query.recentProgress)
    assert again.batchId == 0
    assert again.sources[0].latestOffset is None
    assert [getattr(again.sources[0], name) for name in LAG] == [None] * 3
    assert again.sinks[0].openTransactions == 0  # S1 has finished it; its tasks wrote nothing
    assert [one.sources[0].maxOffsetsBehindLatest for one in others][-1] == 0
    assert all(one.sources[0].latestOffset for one in others)
    assert [one.sinks[0].openTransactions for one in others] == [2] * len(others)


def test_a_query_that_waits_for_input_tells_of_its_last_batch(job, spark):
    """Spark reports then with the number of the batch that comes next."""
    status = Status()

    def waits() -> bool:
        last = query.lastProgress
        return last is not None and "addBatch" not in last.durationMs

    every = "spark.sql.streaming.noDataProgressEventInterval"
    spark.conf.set(every, "500")
    try:
        rows = spark.readStream.format("eo-kafka").options(**job.as_job()["source_options"])
        writer = rows.load().select("key", "value").writeStream.format("eo-kafka")
        query = writer.options(**job.sink_options).start()
    finally:
        spark.conf.unset(every)
    try:
        wait_until(waits, "it waits", LONG_S)
        newest = max(int(one.name) for one in (job.checkpoint / "commits").glob("[0-9]*"))
        for last in (newest, newest + 1):
            wait_until(waits, "it waits again", LONG_S)
            assert query.lastProgress.batchId == last + 1
            found = eo_kafka.progress(query)
            assert (found.batchId, [one.batchId for one in found.sinks]) == (last, [last])
            driver_program._look(query, status)
            assert status.batch == last
            produce(job.servers, job.source_topic, [b"more"])
            wait_until(lambda: not waits(), "another batch", LONG_S)
    finally:
        query.stop()


def test_a_job_with_a_long_trigger_is_not_busy_between_two(job, spark):
    """Spark says until the next trigger that there is data."""
    status = Status(query="q", busy_since_s=0.0)
    rows = spark.readStream.format("eo-kafka").options(**job.as_job()["source_options"])
    writer = rows.load().select("key", "value").writeStream.format("eo-kafka")
    query = writer.options(**job.sink_options).trigger(processingTime="1 hour").start()
    try:
        wait_until(lambda: query.lastProgress is not None, "a batch", LONG_S)
        wait_until(lambda: not query.status["isTriggerActive"], "it waits")
        assert query.status["isDataAvailable"]
        driver_program._look(query, status)
        assert (status.batch, status.busy_since_s) == (0, None)
    finally:
        query.stop()
