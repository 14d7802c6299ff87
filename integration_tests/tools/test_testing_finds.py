"""`eo_kafka.testing` finds what it is for: jobs with a planted fault, each named by the message."""

from __future__ import annotations

import re

import pytest

from eo_kafka.broker.jars import jvm_connector_jars
from eo_kafka.testing import (
    HALF_WRITTEN,
    Anomaly,
    FaultMissed,
    JobFailed,
    assert_deterministic,
    assert_exactly_once,
    assert_order,
    assert_windows,
)

JOBS = "jobs.proved_jobs"
VALUES = [b"%d" % number for number in range(200)]


@pytest.mark.full
def test_a_duplicate_of_sparks_own_sink_is_found(eo_broker, eo_job):
    eo_broker.topic("in", partitions=2).write(VALUES)
    jars = {"spark.jars": jvm_connector_jars()}
    job = eo_job(f"{JOBS}:repeating", source="in", sink="out", spark=jars)
    job.run(crash=HALF_WRITTEN)
    with pytest.raises(Anomaly, match=r"\d+ duplicate") as found:
        assert_exactly_once("in", "out", key="value")
    text = str(found.value)
    places = r"should be there 1 times \(source \d@\d+, read by batch 0\); is there 2 times \("
    assert re.search(places, text)
    assert "crash          point=half-written" in text
    assert "Run it again: pytest " in text
    assert "::test_a_duplicate_of_sparks_own_sink_is_found" in text


def test_a_loss_is_found(eo_broker, eo_job):
    eo_broker.topic("in").write(VALUES)
    eo_job(f"{JOBS}:dropping", source="in", sink="out").run()
    with pytest.raises(Anomaly, match=r"^20 lost: ") as found:
        assert_exactly_once("in", "out", key="value")
    assert "3  should be there 1 times (source 0@3, read by batch 0); is there 0 times" in str(
        found.value
    )


@pytest.mark.full
def test_a_replay_by_dice_of_a_batch_that_is_partly_committed_is_refused_by_name(eo_broker, eo_job):
    eo_broker.topic("in", partitions=2).write(VALUES)
    timeout = {"kafka.transaction.timeout.ms": "10000"}
    job = eo_job(f"{JOBS}:random_batches", source="in", sink="out", config=timeout)
    job.run(crash="S7.after_first_end_txn", until="crashed")
    job.expire_transactions()
    with pytest.raises(JobFailed, match="RepairNeeded: Batch 0 was decided"):
        job.run()


@pytest.mark.full
def test_a_function_that_throws_dice_is_found(eo_broker, eo_job):
    eo_broker.topic("in", partitions=2).write(VALUES)
    job = eo_job(f"{JOBS}:random_batches", source="in", sink="out")
    job.run()
    with pytest.raises(Anomaly, match=r"not deterministic: .*200 records"):
        assert_deterministic(job)


@pytest.mark.full
def test_a_crash_that_a_job_never_comes_to_is_no_pass(eo_broker, eo_job):
    topic = eo_broker.topic("in", partitions=2)
    job = eo_job(f"{JOBS}:copy", source="in", sink="out")
    with pytest.raises(FaultMissed, match="Topic 'in' is empty"):
        job.run()
    topic.write(VALUES)
    with pytest.raises(FaultMissed, match=r"'S7.in_chunk' was not reached, .* Only a batch that "):
        job.run(crash="S7.in_chunk")
    job.run()
    with pytest.raises(FaultMissed, match="has read all of 'in': no batch would run"):
        job.run(crash="S3.while_writing")
    assert_exactly_once("in", "out", key="value")
    assert_order("in", "out", key="value")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        pytest.param(
            "other_source", "does not say that it has read topic 'in-", marks=pytest.mark.full
        ),
        pytest.param("other_checkpoint", "does not say", marks=pytest.mark.full),
        pytest.param("nothing", "returned NoneType: it must return", marks=pytest.mark.full),
        pytest.param("missing", "has no attribute 'missing'", marks=pytest.mark.full),
    ],
)
def test_a_job_that_does_not_do_what_it_was_told_is_found(eo_broker, eo_job, name, says):
    eo_broker.topic("in").write(VALUES)
    other = eo_broker.topic("other").write(VALUES)
    names = {"other": other.real_name}
    job = eo_job(f"{JOBS}:{name}", source="in", sink="out", config=names)
    with pytest.raises(JobFailed, match=says):
        job.run()


@pytest.mark.full
def test_a_job_may_start_its_query_itself(eo_broker, eo_job):
    eo_broker.topic("in", partitions=2).write(VALUES)
    job = eo_job(f"{JOBS}:started", source="in", sink="out", config={"per_batch": "50"})
    job.run(crash="S6.before_decision")
    assert_exactly_once("in", "out", key="value")


@pytest.mark.full
def test_the_points_of_an_abort_and_of_a_restore_are_reached(eo_broker, eo_job):
    eo_broker.topic("in", partitions=2).write(VALUES)
    job = eo_job(f"{JOBS}:copy", source="in", sink="out", config={"snapshots": "true"})
    job.run(crash="abort.before_end_txn")
    job.lose_checkpoint()
    job.run(crash="restore.while_writing")
    assert_exactly_once("in", "out", key="value")


@pytest.mark.full
def test_counts_are_what_a_model_says(eo_broker, eo_job):
    topic = eo_broker.topic("in", partitions=2).write([b"a", b"b", b"a"] * 20)
    job = eo_job(f"{JOBS}:count", source="in", sink="out")
    job.run(crash="S6.after_decision")
    topic.write([b"a", b"c"])
    job.run()
    assert_windows("in", "out", model=lambda _: {"a": "41", "b": "20", "c": "1"})
    assert_deterministic(job, newest=True)
    with pytest.raises(Anomaly, match="1 lost, 1 foreign"):
        assert_windows("in", "out", model=lambda _: {"a": "42", "b": "20", "c": "1"})
