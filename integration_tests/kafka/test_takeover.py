"""A query that Spark's own connector started goes on under ours on one checkpoint, and back."""

from __future__ import annotations

import json
import shutil
from collections import Counter

import pytest
from pyspark.errors import StreamingQueryException

from eo_kafka.core.transaction import DecisionState
from eo_kafka.state.ledger.job_topics import MAIN_SINK
from eo_kafka.testing.records import control_plane
from harness import (
    assert_exactly_once,
    committed,
    kill_driver_at,
    make_copy,
    produce,
    read_ledger,
    wait_until,
    wait_until_timed_out,
)
from test_restore_jobs import SECOND, events, new_job, state_of  # noqa: F401 - a fixture

THIRD = events(300, 450)
VALUES = [b"%d" % number for number in range(1000)]


def test_a_checkpoint_of_the_jvm_connector_is_continued(spark, broker, make_topic, tmp_path):
    servers = broker.bootstrap_servers
    job = make_copy(servers, make_topic, tmp_path, VALUES[:600], source="kafka", sink="kafka")
    log = tmp_path / "log"
    assert job.run_in_own_driver(log) == 0, log.read_text()[-4000:]
    produce(job.servers, job.source_topic, VALUES[600:])
    job.source = job.sink = "eo-kafka"
    job.run(spark)
    assert_exactly_once(job, VALUES)


def test_a_checkpoint_of_ours_is_continued_by_the_jvm_connector(
    spark, broker, make_topic, tmp_path
):
    """The way back is open: Spark's own connector goes on where we stopped, in order."""
    job = make_copy(broker.bootstrap_servers, make_topic, tmp_path, VALUES[:600])
    job.run(spark)
    produce(job.servers, job.source_topic, VALUES[600:])
    job.source = job.sink = "kafka"
    log = tmp_path / "log"
    assert job.run_in_own_driver(log) == 0, log.read_text()[-4000:]
    assert_exactly_once(job, VALUES)


@pytest.mark.full
def test_a_stateful_checkpoint_is_taken_over_and_given_back(new_job, spark):  # noqa: F811
    """Windows that one connector opened are closed by the other, with all their records."""
    job, same = new_job("changing"), new_job("same")
    expected = {}
    for source, values in (("kafka", SECOND), ("eo-kafka", THIRD), ("kafka", None)):
        job.source, job.sink = source, "eo-kafka"
        job.run(spark)
        same.run(spark)
        expected = committed(job.servers, same.sink_topic)
        assert committed(job.servers, job.sink_topic) == expected
        assert state_of(job, spark) == state_of(same, spark)
        if values is not None:
            produce(job.servers, job.source_topic, values)
    assert expected


@pytest.mark.parametrize(
    ("before", "after"),
    [("kafka", "eo-kafka"), pytest.param("eo-kafka", "kafka", marks=pytest.mark.full)],
)
def test_a_batch_that_was_interrupted_is_taken_over(
    spark, broker, make_topic, tmp_path, crash_points, before, after
):
    """The driver dies between the decision and Spark's commit log; another source repeats the
    batch, and the sink sees that it is the same."""
    values = [b"%d" % number for number in range(600)]
    job = make_copy(broker.bootstrap_servers, make_topic, tmp_path, values, per_batch=200)
    job.source = before
    kill_driver_at(job, crash_points, "S7.after_first_end_txn", tmp_path / "log")
    assert len(list((job.checkpoint / "offsets").glob("[0-9]*"))) == 1 + len(
        list((job.checkpoint / "commits").glob("[0-9]*"))
    )
    job.source = after
    job.run(spark)
    assert_exactly_once(job, values)


@pytest.mark.parametrize("partitions", [2, pytest.param(4, marks=pytest.mark.full)])
@pytest.mark.parametrize(
    ("commit", "point"),
    [
        ("idempotent", "one-phase.committed"),
        pytest.param("idempotent", "S6.before_decision", marks=pytest.mark.full),
        ("two-phase", "S7.after_first_end_txn"),
    ],
)
@pytest.mark.parametrize("after", ["kafka", pytest.param("eo-kafka", marks=pytest.mark.full)])
def test_a_batch_that_is_partly_visible_is_completed_by_other_tasks(
    spark, broker, make_topic, tmp_path, crash_points, partitions, commit, point, after
):
    """Spark's own source gives two to four partitions to other tasks when a batch is run again."""
    job = make_copy(
        broker.bootstrap_servers, make_topic, tmp_path, VALUES[:80], partitions, timeout_ms=20_000
    )
    job.source, job.sink_extra["commit"] = "kafka", commit
    job.run(spark)
    produce(job.servers, job.source_topic, VALUES[80:])
    kill_driver_at(job, crash_points, point, tmp_path / "log")
    if commit == "two-phase":
        wait_until_timed_out(job)
    part = committed(job.servers, job.sink_topic)
    assert sum(part.values()) > 80, "none of the batch is visible"
    job.source = after
    job.run(spark)
    assert_exactly_once(job, VALUES)
    job.run(spark)
    assert_exactly_once(job, VALUES)


def planned_by_spark(job, spark) -> None:
    """Spark's connector, from `latest`, has stored where batch 0 begins, at 600, and where it ends,
    at 800, and dies in it each time."""
    assert job.source_extra["startingOffsets"] == "latest"

    def fail(rows, batch):
        raise RuntimeError("the sink is down")

    def start():
        rows = spark.readStream.format("kafka").options(**job.as_job()["source_options"]).load()
        writer = rows.writeStream.foreachBatch(fail).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(job.checkpoint)).start()
        with pytest.raises(StreamingQueryException, match="the sink is down"):
            query.awaitTermination()

    start()
    shutil.rmtree(job.checkpoint / "offsets")  # as if it had died before that was written
    produce(job.servers, job.source_topic, VALUES[600:800])
    start()
    assert batches_in(job, "offsets") == [0] and batches_in(job, "commits") == []


def batches_in(job, log: str) -> list[int]:
    return sorted(int(one.name) for one in (job.checkpoint / log).glob("[0-9]*"))


@pytest.fixture
def late(broker, make_topic, tmp_path, spark):
    """A job whose batch 0 Spark's connector has planned, and not committed."""
    job = make_copy(
        *(broker.bootstrap_servers, make_topic, tmp_path, VALUES[:600]),
        source_extra={"startingOffsets": "latest"},
    )
    planned_by_spark(job, spark)
    return job


def test_a_first_batch_that_sparks_connector_has_not_committed_is_refused(late, spark):
    """Its beginning is nowhere where a Python source sees it. One more run of Spark's connector, as
    the sentence says, and it is gone on from."""
    with pytest.raises(StreamingQueryException, match=r"commits/0"):
        late.run(spark)
    assert committed(late.servers, late.sink_topic) == {}
    with control_plane(late.servers) as control:
        assert late.ledger not in control.topics()
    late.source = late.sink = "kafka"
    late.run(spark)
    assert batches_in(late, "commits") == [0]
    produce(late.servers, late.source_topic, VALUES[800:])
    late.source = late.sink = "eo-kafka"
    late.run(spark)
    assert_exactly_once(late, VALUES[600:])


def test_or_it_is_read_from_where_spark_has_stored_that_it_begins(late, spark):
    """The other way that the sentence names."""
    stored = (late.checkpoint / "sources" / "0" / "0").read_text().splitlines()[-1]
    assert sum(json.loads(stored)[late.source_topic].values()) == 600
    late.source_extra["startingOffsets"] = stored
    late.run(spark)
    assert_exactly_once(late, VALUES[600:800])
    late.source_extra["startingOffsets"] = "latest"
    produce(late.servers, late.source_topic, VALUES[800:])
    late.run(spark)
    assert_exactly_once(late, VALUES[600:])


def newest(job, log: str) -> int:
    return max(batches_in(job, log), default=-1)


def stop_in_a_batch(job, spark) -> None:
    """`query.stop()`, as the guide says, while the second batch writes: its sink has sent a part,
    and waits in Spark's JVM for the rest."""
    options = job.as_job()["source_options"]
    wait = "reflect('java.lang.Thread', 'sleep', IF(int(string(value)) >= 300, 600000L, 0L))"
    rows = spark.readStream.format(job.source).options(**options).load()
    rows = rows.where(f"{wait} IS NOT NULL").select("key", "value")
    writer = rows.writeStream.format(job.sink).options(**job.sink_options)
    query = writer.trigger(availableNow=True).start()
    try:
        wait_until(lambda: committed(job.servers, job.sink_topic).total() > 200, "a part is sent")
    finally:
        query.stop()
    assert newest(job, "offsets") == newest(job, "commits") + 1


def test_a_batch_in_which_sparks_sink_was_stopped_is_ended_by_it_first(
    spark, broker, make_topic, tmp_path
):
    """The guide's steps 2 to 4. What Spark's sink repeats then, it repeats; we add nothing."""
    job = make_copy(
        *(broker.bootstrap_servers, make_topic, tmp_path, VALUES[:600]),
        partitions=1,
        per_batch=200,
        source="kafka",
        sink="kafka",
    )
    stop_in_a_batch(job, spark)
    job.run(spark)
    assert newest(job, "offsets") == newest(job, "commits")
    before = committed(job.servers, job.sink_topic)
    assert before.total() > 600, "the batch was not interrupted"
    produce(job.servers, job.source_topic, VALUES[600:])
    job.source = job.sink = "eo-kafka"
    job.run(spark)
    after = committed(job.servers, job.sink_topic)
    assert after - before == Counter(VALUES[600:])


def test_a_batch_that_spark_has_not_noted_is_ended_here_before_the_way_back(
    spark, broker, make_topic, tmp_path, crash_points
):
    """The ledger says DONE, and Spark's sink would write it again."""
    job = make_copy(broker.bootstrap_servers, make_topic, tmp_path, VALUES[:600])
    kill_driver_at(job, crash_points, "S8.after_done", tmp_path / "log")
    crash_points.clear()
    decisions = read_ledger(job).of_sink(MAIN_SINK)
    assert decisions[max(decisions)].state is DecisionState.DONE
    assert newest(job, "offsets") == newest(job, "commits") + 1
    job.run(spark)
    assert newest(job, "offsets") == newest(job, "commits")
    produce(job.servers, job.source_topic, VALUES[600:])
    job.source = job.sink = "kafka"
    job.run(spark)
    assert_exactly_once(job, VALUES)


@pytest.mark.parametrize("before", ["nothing", "continuous"])
def test_continuous_processing_is_refused_where_only_the_sink_was_changed(
    spark, broker, make_topic, tmp_path, before
):
    """Spark itself refuses a Python source, and takes the sink: it would never give it a row."""
    job = make_copy(broker.bootstrap_servers, make_topic, tmp_path, VALUES[:60])
    options = {**job.as_job()["source_options"]}
    del options["maxOffsetsPerTrigger"]

    def start(sink):
        rows = spark.readStream.format("kafka").options(**options).load().select("key", "value")
        writer = rows.writeStream.format(sink).options(**job.sink_options)
        return writer.trigger(continuous="1 second").start()

    if before == "continuous":
        query = start("kafka")
        wait_until(lambda: newest(job, "commits") >= 1, "epochs are committed")
        query.stop()
    query = start("eo-kafka")
    try:
        with pytest.raises(StreamingQueryException, match="its trigger is 'continuous'"):
            query.awaitTermination(60)
            pytest.fail("it runs, and writes nothing")
    finally:
        query.stop()
    with control_plane(job.servers) as control:
        assert job.ledger not in control.topics()
