"""A query that Spark's own connector started goes on under ours on one checkpoint, and back."""

from __future__ import annotations

import json
import shutil

import pytest
from pyspark.errors import StreamingQueryException

from eo_kafka.testing.records import control_plane
from harness import (
    assert_exactly_once,
    committed,
    kill_driver_at,
    make_copy,
    produce,
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
