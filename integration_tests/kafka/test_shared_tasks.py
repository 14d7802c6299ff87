"""Partitions of a topic share tasks where they are far more than tasks run at once, and share the
same ones again whenever the batch runs again, on whichever cluster."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from harness import (
    Copy,
    assert_exactly_once,
    committed,
    kill_driver_at,
    make_copy,
    read_ledger,
    started,
    wait_until_timed_out,
)

PARTITIONS = 26
VALUES = [b"%d" % number for number in range(2000)]


@pytest.fixture
def job(broker, make_topic, tmp_path) -> Copy:
    """A copy of 26 partitions in four batches, by a driver that runs three tasks at once."""
    return make_copy(
        broker.bootstrap_servers,
        make_topic,
        tmp_path,
        VALUES,
        partitions=PARTITIONS,
        per_batch=500,
        master="local[3,4]",
    )


def planned(job: Copy, batch: int) -> dict[str, object]:
    """Where Spark's checkpoint says that the batch ends."""
    return json.loads((job.checkpoint / "offsets" / str(batch)).read_text().splitlines()[-1])


def tasks_of(job: Copy, batch: int) -> int:
    """How many tasks had rows of it."""
    return len(read_ledger(job).of_sink("main")[batch].participants)


def killed_in_its_second_batch(job: Copy, crash_points, point: str, log: Path) -> None:
    """The first one shows the driver how many tasks run at once."""
    crash_points.arm("S8.after_done", "wait")
    with started(job, log) as driver:
        crash_points.wait_reached("S8.after_done")
        assert tasks_of(job, 0) == PARTITIONS
        crash_points.arm(point, "kill-driver")
        crash_points.release("S8.after_done")
        assert driver.wait(180) != 0, log.read_text()[-4000:]
    assert crash_points.reached(point)
    assert planned(job, 1)["@tasks 12"] == {}, "four for each of the three"


def test_a_batch_of_which_a_task_has_committed_has_the_same_tasks_again(
    job, spark, crash_points, tmp_path
):
    """With other ones, what is visible could not come back, and the query would stop."""
    job.sink_extra["commit"] = "idempotent"
    killed_in_its_second_batch(job, crash_points, "one-phase.committed", tmp_path / "log")
    assert len(committed(job.servers, job.sink_topic)) > 500
    job.run(spark)
    assert tasks_of(job, 1) == 12
    assert_exactly_once(job, VALUES)


def test_a_sink_of_few_tasks_does_not_limit_the_sources(job, tmp_path):
    """One task shows no core but its own: the next batch, or another query, may have many."""
    job.tasks = 1  # `repartition` before the sink
    assert job.run_in_own_driver(tmp_path / "log") == 0
    assert "@tasks" not in str([planned(job, batch) for batch in range(4)])
    assert_exactly_once(job, VALUES)


@pytest.mark.full
def test_participants_that_are_lost_are_written_again_by_the_same_tasks(
    job, spark, crash_points, tmp_path
):
    job.timeout_ms = 10_000
    killed_in_its_second_batch(job, crash_points, "S7.after_first_end_txn", tmp_path / "log")
    wait_until_timed_out(job)
    job.run(spark)
    assert read_ledger(job).of_sink("main")[1].round == 1
    assert_exactly_once(job, VALUES)


@pytest.mark.full
def test_a_lane_that_goes_on_with_fewer_cores_has_the_same_tasks(
    job, spark, crash_points, tmp_path
):
    job.source, job.timeout_ms = "direct", 10_000
    kill_driver_at(job, crash_points, "S7.after_first_end_txn", tmp_path / "log")
    wait_until_timed_out(job)
    assert planned(job, 0)["@tasks 6"] == {}, "Spark says that it runs three"
    job.run(spark)
    assert read_ledger(job).of_sink("main")[0].round == 1
    assert_exactly_once(job, VALUES)


@pytest.mark.full
def test_sparks_own_connector_goes_on_where_tasks_were_shared(job, spark, crash_points, tmp_path):
    killed_in_its_second_batch(job, crash_points, "S6.before_decision", tmp_path / "log")
    job.source = "kafka"
    job.run(spark)
    assert tasks_of(job, 1) > 12, "a task for each partition that has records"
    assert committed(job.servers, job.sink_topic) == Counter(VALUES)
