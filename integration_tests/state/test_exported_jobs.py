"""Exported snapshots of real queries: taken while they run, gone on from with upgraded code."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

import eo_kafka
from harness import Stateful, assert_settled, committed, produce, read_ledger, wait_until
from test_restore_jobs import FIRST, SECOND, new_job, uninterrupted  # noqa: F401 - a fixture


def newest_batch(job: Stateful) -> int:
    return max((batch for _, batch in read_ledger(job).decisions), default=-1)


def start_from(job: Stateful, **changes) -> Stateful:
    """A new job from the export 'before'."""
    new = replace(
        job,
        job_name=f"{job.job_name}-upgraded",
        checkpoint=job.checkpoint.with_name("upgraded"),
        **changes,
    )
    eo_kafka.start_from(
        job.job_name, "before", new.job_name, str(new.checkpoint), new.sink_options, progress=False
    )
    return new


def test_an_export_of_a_running_query_starts_another_one(new_job, spark, crash_points, make_topic):  # noqa: F811
    job = new_job("running")
    job.run(spark)
    produce(job.servers, job.source_topic, SECOND)
    crash_points.arm("S6.before_decision", "wait")
    with job.running(spark) as query:
        crash_points.wait_reached("S6.before_decision")  # one batch is being written
        made = eo_kafka.export_snapshot(job.job_name, "before", job.sink_options, progress=False)
        before = committed(job.servers, job.sink_topic)
        crash_points.release("S6.before_decision")
        assert query.awaitTermination(180)
    assert made.snapshot.batch < newest_batch(job)
    after = committed(job.servers, job.sink_topic) - before
    new = start_from(job, sink_topic=make_topic("out-new"))
    new.run(spark)
    assert after
    assert committed(new.servers, new.sink_topic) == after
    assert_settled(new)


@pytest.mark.full
def test_a_query_is_cancelled_exported_and_upgraded(new_job, spark):  # noqa: F811
    job, same = new_job("old"), new_job("same")
    job.run(spark)
    expected = uninterrupted(same, spark)
    at = newest_batch(job)
    job.per_batch = 20
    query = job.start(spark)
    wait_until(lambda: newest_batch(job) > at + 1, "the query writes", 120)
    made = eo_kafka.cancel_and_export(
        query, job.job_name, "before", job.sink_options, progress=False
    )
    assert not query.isActive
    stopped = committed(job.servers, job.sink_topic)
    assert Counter() < stopped < expected, "it was stopped in the middle"
    new = start_from(job, per_batch=50)
    # An operator that the snapshot does not have is refused before anything is written.
    wrong = replace(new, operator="deduplication")
    with pytest.raises(Exception, match="STREAMING_STATEFUL_OPERATOR_NOT_MATCH") as refused:
        wrong.run(spark)
    assert "stateStoreSave" in str(refused.value)
    assert committed(job.servers, job.sink_topic) == stopped
    new.conf = {"spark.sql.shuffle.partitions": "3"}  # the snapshot's number stays
    new.run(spark)
    assert committed(job.servers, job.sink_topic) == expected
    assert newest_batch(new) > made.snapshot.batch
    assert_settled(new)
