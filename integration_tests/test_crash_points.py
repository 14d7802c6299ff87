"""Rows of the crash matrix (docs/guarantees.md): something is killed, for real, at a named point,
the job is started again, and the committed output must be the input, once."""

from __future__ import annotations

import os
import signal

import pytest

from harness import (
    Copy,
    assert_exactly_once,
    committed,
    open_transactions,
    produce,
    started,
    task_workers,
    wait_until,
)

ROWS = 1000
VALUES = [b"%d" % number for number in range(ROWS)]


@pytest.fixture
def job(broker, make_topic, tmp_path, request) -> Copy:
    """A copy of 1000 records of two partitions, in three batches of two tasks."""
    source = make_topic("in", partitions=2)
    produce(broker.bootstrap_servers, source, VALUES)
    return Copy(
        servers=broker.bootstrap_servers,
        source_topic=source,
        sink_topic=make_topic("out", partitions=2),
        checkpoint=tmp_path / "checkpoint",
        job_name=f"job-{source}",
    )


def run_until_killed(job: Copy, crash_points, point: str, log) -> None:
    """Run in a driver of its own and make it die at `point`."""
    crash_points.arm(point, "kill-driver")
    code = job.run_in_own_driver(log)
    assert crash_points.reached(point), f"{point} was not reached:\n{log.read_text()[-4000:]}"
    assert code != 0, "the driver survived"


def wait_until_timed_out(job: Copy) -> None:
    """The broker aborts what was open for longer than its timeout."""
    wait_until(
        lambda: not open_transactions(job),
        "Kafka aborts the transactions that timed out",
    )


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("S3.while_writing", id="C1-while-it-writes"),
        pytest.param("S2.after_init", id="C1-before-its-first-row"),
        pytest.param("S5.after_flush", id="C2-after-its-flush"),
        pytest.param("S5.prepared", id="C2-prepared-but-not-reported"),
    ],
)
def test_a_task_that_is_killed_is_retried_and_repeats_nothing(job, spark, crash_points, point):
    crash_points.arm(point, "kill")
    job.run(spark)
    assert crash_points.reached(point)
    assert_exactly_once(job, VALUES)


def test_c3_commit_works_when_the_workers_that_prepared_are_dead(job, crash_points, tmp_path):
    crash_points.arm("S6.before_decision", "wait")
    with started(job, tmp_path / "log") as driver:
        wait_until(lambda: crash_points.reached("S6.before_decision"), "the driver decides")
        committing = crash_points.reached("S6.before_decision")
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
        pytest.param("S1.after_generation", id="C0-before-any-task"),
        pytest.param("S6.before_decision", id="C6-before-the-decision"),
        pytest.param("S6.after_decision", id="C8-before-the-first-EndTxn"),
        pytest.param("S7.after_first_end_txn", id="C9-between-two-EndTxns"),
        pytest.param("S7.after_last_end_txn", id="C12-before-DONE"),
        pytest.param("S8.after_done", id="C13-before-Sparks-commit-log"),
    ],
)
def test_a_driver_that_is_killed_starts_again_and_loses_and_repeats_nothing(
    job, spark, crash_points, tmp_path, point
):
    run_until_killed(job, crash_points, point, tmp_path / "log")
    if point in ("S1.after_generation", "S6.before_decision", "S6.after_decision"):
        assert not committed(job.servers, job.sink_topic), "visible before the first EndTxn"
    job.run(spark)
    assert_exactly_once(job, VALUES)


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("S6.before_decision", id="C15-before-the-decision"),
        pytest.param("S6.after_decision", id="C16-after-it-all-participants"),
        pytest.param("S7.after_first_end_txn", id="C16-after-it-some-participants"),
    ],
)
def test_an_outage_longer_than_the_transaction_timeout_loses_and_repeats_nothing(
    job, spark, crash_points, tmp_path, point
):
    job.timeout_ms = 10_000
    run_until_killed(job, crash_points, point, tmp_path / "log")
    assert open_transactions(job), "nothing was left to time out"
    wait_until_timed_out(job)
    job.run(spark)
    assert_exactly_once(job, VALUES)


@pytest.mark.parametrize("tasks_then", [5, 1])
def test_a_decided_batch_may_run_again_with_another_number_of_tasks(
    job, spark, crash_points, tmp_path, tasks_then
):
    job.tasks = 3
    run_until_killed(job, crash_points, "S6.after_decision", tmp_path / "log")
    job.tasks = tasks_then
    job.run(spark)
    assert_exactly_once(job, VALUES)


def test_a_lost_partition_whose_replay_differs_stops_with_the_repair_named(
    job, spark, crash_points, tmp_path
):
    job.tasks, job.timeout_ms = 3, 10_000
    run_until_killed(job, crash_points, "S7.after_first_end_txn", tmp_path / "log")
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
    crash_points.arm("S6.after_decision", "raise")
    with pytest.raises(Exception, match="CrashPointReached"):
        job.run(spark)
    job.run(spark)
    assert_exactly_once(job, VALUES)


def test_a_commit_that_raises_before_the_decision_is_aborted_at_once(job, spark, crash_points):
    crash_points.arm("S6.before_decision", "raise")
    with pytest.raises(Exception, match="CrashPointReached"):
        job.run(spark)
    assert open_transactions(job) == []
    job.run(spark)
    assert_exactly_once(job, VALUES)


def test_an_old_driver_stops_when_a_newer_one_has_taken_over(job, spark, crash_points, tmp_path):
    crash_points.arm("S6.before_decision", "stop")
    with started(job, tmp_path / "log") as old:
        wait_until(lambda: crash_points.reached("S6.before_decision"), "the old driver decides")
        zombie = crash_points.reached("S6.before_decision")
        job.run(spark)
        assert_exactly_once(job, VALUES)
        os.kill(zombie, signal.SIGCONT)
        assert old.wait(180) != 0
    assert "Fenced" in (tmp_path / "log").read_text()
    assert_exactly_once(job, VALUES)


def test_a_deleted_checkpoint_stops_at_start_with_the_ways_out(job, spark, tmp_path):
    job.run(spark)
    job.checkpoint = tmp_path / "another"
    with pytest.raises(Exception, match="ForeignLedger") as stop:
        job.run(spark)
    for way_out in ("restore the old checkpoint", "new 'jobName'", "eo-kafka job reset"):
        assert way_out in str(stop.value)
    assert_exactly_once(job, VALUES)
