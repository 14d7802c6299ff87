"""Each record that a share group hands out is once in the output, whoever dies and whenever."""

from __future__ import annotations

from collections import Counter

import pytest

from eo_kafka.testing.processes import has_ended, wait_until
from harness import committed, kill_driver_at, kill_group, start_driver, written
from queue_job import kafka_is_killed_at
from share_job import ShareCopy, numbered, share_copy_of

FULL = pytest.mark.full
VALUES = numbered(1200)  # more than are taken at a time


def check_each_once(job: ShareCopy) -> None:
    """By now no lock is left, and nothing comes again."""
    assert committed(job.servers, job.source_topic) == Counter(VALUES), "the inbox"
    assert committed(job.servers, job.sink_topic) == Counter(VALUES), "the output"
    with job.member() as one:
        assert one.receive() == 0, "all of it was acknowledged"


def run_to_the_end(job: ShareCopy, spark) -> None:
    """A run takes what nobody has a lock on: what a dead member had comes a moment later."""

    def all_there() -> bool:
        job.run(spark)
        return sum(committed(job.servers, job.sink_topic).values()) >= len(VALUES)

    wait_until(all_there, "all of it is in the output", 120)


@pytest.mark.parametrize(
    "point",
    [
        "queue.received",
        "queue.before_commit",
        "queue.after_commit",
        "queue.after_acknowledgement",
    ],
)
def test_a_driver_that_is_killed_loses_and_repeats_nothing_of_a_share_group(
    share_copy, spark, crash_points, tmp_path, point
) -> None:
    job = share_copy
    for first in range(0, len(VALUES), 100):  # batches of a producer are not divided
        job.publish(VALUES[first : first + 100])
    kill_driver_at(job, crash_points, point, tmp_path / "log")
    crash_points.clear()
    inbox = committed(job.servers, job.source_topic)
    assert bool(inbox) == (point in ("queue.after_commit", "queue.after_acknowledgement"))
    beside_trial = any(written(job.servers, job.source_topic))  # that one is empty
    assert beside_trial == (point != "queue.received")
    run_to_the_end(job, spark)
    check_each_once(job)


@FULL  # in CI test_queue_faults.py shows it of the inbox, which is the same
@pytest.mark.parametrize("point", ["queue.received", "queue.before_commit", "queue.after_commit"])
def test_a_kafka_that_is_killed_with_a_share_group_has_each_record_once(
    own_share_kafka, spark, crash_points, tmp_path, point
) -> None:
    """It has the records, the locks and the inbox: all of it comes back."""
    job = share_copy_of(own_share_kafka.bootstrap_servers, tmp_path)
    job.publish(VALUES)
    kafka_is_killed_at(point, job, own_share_kafka, spark, crash_points)
    crash_points.clear()
    run_to_the_end(job, spark)
    check_each_once(job)


@FULL  # as above
@pytest.mark.parametrize("point", ["queue.before_commit", "queue.after_commit"])
def test_of_two_drivers_of_a_share_group_one_fills_the_inbox(
    share_copy, spark, crash_points, tmp_path, point
) -> None:
    """The first is held up until its locks have ended; the second takes over and works; then the
    first goes on."""
    job = share_copy
    job.publish(VALUES)
    crash_points.arm(point, "wait")
    log = tmp_path / "log"
    first = start_driver(job, log)
    try:
        planner = crash_points.wait_reached(point)
        run_to_the_end(job, spark)
        crash_points.release(point)
        wait_until(lambda: has_ended(planner), "the first one stops")
        assert first.wait(60) != 0
    finally:
        kill_group(first)
    if point == "queue.before_commit":
        assert "Another driver of this job fills inbox" in log.read_text()
    job.run(spark)
    check_each_once(job)
