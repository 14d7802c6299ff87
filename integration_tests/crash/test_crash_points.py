"""Rows of the crash matrix (docs/guarantees.md): something is killed, for real, at a named point,
the job is started again, and the committed output must be the input, once."""

from __future__ import annotations

import os
import signal
from collections import Counter

import pytest

from eo_kafka.core.transaction import DecisionState
from harness import (
    Copy,
    assert_exactly_once,
    committed,
    fail_at,
    kill_driver_at,
    make_copy,
    open_transactions,
    read_ledger,
    started,
    task_workers,
    wait_until,
    wait_until_timed_out,
    written,
)

ROWS = 1000
VALUES = [b"%d" % number for number in range(ROWS)]


@pytest.fixture
def job(broker, make_topic, tmp_path) -> Copy:
    """A copy of 1000 records of two partitions, in two batches of two tasks."""
    return make_copy(broker.bootstrap_servers, make_topic, tmp_path, VALUES, per_batch=500)


def test_c1_a_task_that_is_killed_when_rows_of_it_are_with_the_broker_is_retried(
    job, spark, crash_points
):
    """Its transaction stays open, and nobody who knows of it is left: DONE is readable all the
    same."""
    crash_points.arm("S3.while_writing", "wait")
    with job.running(spark) as query:
        task = crash_points.wait_reached("S3.while_writing")
        wait_until(lambda: written(job.servers, job.sink_topic), "a row is acknowledged")
        os.kill(task, signal.SIGKILL)
        assert query.awaitTermination(180)
    assert sum(written(job.servers, job.sink_topic).values()) > ROWS
    assert_exactly_once(job, VALUES)


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("S2.after_init", id="C1-before-its-first-row"),
        pytest.param("S5.after_flush", id="C2-after-its-flush"),
        pytest.param("S5.prepared", id="C2-prepared-but-not-reported"),
    ],
)
def test_a_task_that_is_killed_is_retried_and_repeats_nothing(job, spark, crash_points, point):
    crash_points.arm(point, "kill")
    job.run(spark)
    assert crash_points.reached(point)
    if point.startswith("S5"):  # so an attempt was complete, and not it but another is visible
        assert sum(written(job.servers, job.sink_topic).values()) > ROWS
    assert_exactly_once(job, VALUES)


@pytest.mark.parametrize("action", ["kill", pytest.param("kill-driver", marks=pytest.mark.full)])
def test_at_least_once_loses_nothing(job, spark, crash_points, tmp_path, action):
    job.sink_extra["guarantee"] = "at-least-once"
    if action == "kill-driver":
        kill_driver_at(job, crash_points, "S3.while_writing", tmp_path / "log")
    else:
        crash_points.arm("S3.while_writing", "kill")
    job.run(spark)
    assert crash_points.reached("S3.while_writing")
    assert committed(job.servers, job.sink_topic) >= Counter(VALUES)


def test_c3_commit_works_when_the_workers_that_prepared_are_dead(job, crash_points, tmp_path):
    crash_points.arm("S6.before_decision", "wait")
    with started(job, tmp_path / "log") as driver:
        committing = crash_points.wait_reached("S6.before_decision")
        forked = [worker for worker in task_workers(driver.pid) if worker.pid != committing]
        assert forked, "no task worker was alive to be killed"
        for worker in forked:
            os.kill(worker.pid, signal.SIGKILL)
        crash_points.release("S6.before_decision")
        assert driver.wait(180) == 0
    assert_exactly_once(job, VALUES)


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("S1.after_generation", id="C0-before-any-task", marks=pytest.mark.full),
        pytest.param("S6.before_decision", id="C6-before-the-decision", marks=pytest.mark.smoke),
        pytest.param("S6.after_decision", id="C8-before-the-first-EndTxn", marks=pytest.mark.smoke),
        pytest.param("S7.after_first_end_txn", id="C9-between-two-EndTxns", marks=pytest.mark.full),
        pytest.param("S7.after_last_end_txn", id="C12-before-DONE", marks=pytest.mark.full),
        pytest.param("S8.after_done", id="C13-before-Sparks-commit-log", marks=pytest.mark.full),
    ],
)
def test_a_driver_that_is_killed_starts_again_and_loses_and_repeats_nothing(
    job, spark, crash_points, tmp_path, point
):
    kill_driver_at(job, crash_points, point, tmp_path / "log")
    if point in ("S1.after_generation", "S6.before_decision", "S6.after_decision"):
        assert not committed(job.servers, job.sink_topic), "visible before the first EndTxn"
    job.run(spark)
    assert_exactly_once(job, VALUES)
    # What was decided is finished and its replay writes nothing; the rest is written again.
    once = written(job.servers, job.sink_topic) == Counter(VALUES)
    assert once == (point != "S6.before_decision")


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("S6.before_decision", id="C15-before-the-decision"),
        pytest.param(
            "S6.after_decision",
            id="C16-after-it-all-participants",
            marks=pytest.mark.full,
        ),
        pytest.param(
            "S7.after_first_end_txn",
            id="C16-after-it-some-participants",
            marks=pytest.mark.full,
        ),
    ],
)
def test_an_outage_longer_than_the_transaction_timeout_loses_and_repeats_nothing(
    job, spark, crash_points, tmp_path, point
):
    job.timeout_ms = 10_000
    kill_driver_at(job, crash_points, point, tmp_path / "log")
    wait_until_timed_out(job)
    job.run(spark)
    assert_exactly_once(job, VALUES)


@pytest.mark.full
def test_topic_partitions_that_shared_a_task_share_it_again_after_an_outage(
    broker, make_topic, spark, crash_points, tmp_path
):
    job = make_copy(
        broker.bootstrap_servers, make_topic, tmp_path, VALUES, partitions=7, timeout_ms=10_000
    )
    job.source_extra["maxPartitions"] = "3"
    kill_driver_at(job, crash_points, "S7.after_first_end_txn", tmp_path / "log")
    wait_until_timed_out(job)
    decision = read_ledger(job).of_sink("main")[0]
    assert len(decision.participants) == 3
    job.run(spark)  # two of them are lost: it writes these again, for their rows are the same
    assert_exactly_once(job, VALUES)
    decision = read_ledger(job).of_sink("main")[0]
    assert (decision.state, decision.round) == (DecisionState.DONE, 1)


def test_a_lost_partition_whose_replay_differs_stops_with_the_repair_named(
    job, spark, crash_points, tmp_path
):
    job.tasks, job.timeout_ms = 3, 10_000
    kill_driver_at(job, crash_points, "S7.after_first_end_txn", tmp_path / "log")
    wait_until_timed_out(job)
    before = committed(job.servers, job.sink_topic)
    job.tasks = 1
    with pytest.raises(Exception, match=r"RepairNeeded: Batch 0 was decided.*job repair") as stop:
        job.run(spark)
    assert "offsets/0" in str(stop.value)
    assert committed(job.servers, job.sink_topic) == before, "something was written all the same"
    # With the plan of the first run the same rows come back, and the job goes on by itself.
    job.tasks = 3
    job.run(spark)
    assert_exactly_once(job, VALUES)


def test_a_commit_that_raises_after_the_decision_is_not_undone_by_abort(job, spark, crash_points):
    fail_at(job, spark, crash_points, "S6.after_decision")
    assert len(open_transactions(job)) == 2
    job.run(spark)
    assert_exactly_once(job, VALUES)
    assert written(job.servers, job.sink_topic) == Counter(VALUES), "the replay wrote rows"


def test_a_commit_that_raises_before_the_decision_is_aborted_at_once(job, spark, crash_points):
    fail_at(job, spark, crash_points, "S6.before_decision")
    assert open_transactions(job) == []
    job.run(spark)
    assert_exactly_once(job, VALUES)


@pytest.mark.parametrize("source", ["eo-kafka", "direct"])
def test_a_checkpoint_that_cannot_be_read_at_commit_holds_no_reader_back(
    job, spark, crash_points, tmp_path, source
):
    """The driver lives on, and no writer can be made as usual, nor for `abort`. A folder in the
    place of a file: no test can break a disk."""
    job.source = source
    metadata, away = job.checkpoint / "metadata", tmp_path / "away"
    crash_points.arm("S5.prepared", "wait")
    with job.running(spark) as query:
        crash_points.wait_reached("S5.prepared")
        metadata.rename(away)
        metadata.mkdir()
        crash_points.release("S5.prepared")
        with pytest.raises(Exception, match=r"CheckpointUnreadable.*Nothing was decided"):
            query.awaitTermination(180)
    assert open_transactions(job) == []
    metadata.rmdir()
    away.rename(metadata)
    job.run(spark)
    assert_exactly_once(job, VALUES)
    assert sum(written(job.servers, job.sink_topic).values()) > ROWS, "nothing was prepared"


def test_a_deleted_checkpoint_stops_at_start_with_the_ways_out(job, spark, tmp_path):
    job.run(spark)
    job.checkpoint = tmp_path / "another"
    with pytest.raises(Exception, match="ForeignLedger") as stop:
        job.run(spark)
    choices = ("'stop'", "'new-job'", "'continue'")
    for way_out in ("the old checkpoint", "new 'jobName'", "eo-kafka job reset", *choices):
        assert way_out in str(stop.value)
    assert_exactly_once(job, VALUES)
