"""Each fault of `eo_kafka.testing` happens, and eo-kafka's own jobs survive it; long ones, for
releases."""

from __future__ import annotations

import itertools
import time

import pytest

from eo_kafka.testing import (
    CRASH_POINTS,
    CheckRefused,
    FaultMissed,
    JobFailed,
    assert_exactly_once,
    assert_order,
)
from eo_kafka.testing.nemesis import FAULTS, SLOW_FAULTS
from eo_kafka.testing.processes import wait_until

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]
COPY = "jobs.proved_jobs:copy"
ROWS = 100
QUICK = {"kafka.transaction.timeout.ms": "10000", "per_batch": "50"}


@pytest.fixture
def fresh():
    """Records nobody has written yet."""
    numbers = itertools.count()
    return lambda *_: [b"%d" % n for n in itertools.islice(numbers, ROWS)]


@pytest.fixture
def job(eo_broker, eo_job, fresh):
    """A copy job with something to do."""
    eo_broker.topic("in", partitions=2).write(fresh())
    return eo_job(COPY, source="in", sink="out", config=QUICK)


def events(job) -> list[str]:
    return [event.what for event in job.trial.history.events()]


def test_a_copy_comes_past_every_crash_point_and_dies_at_it(eo_broker, eo_job, fresh):
    topic = eo_broker.topic("in", partitions=2)
    job = eo_job(COPY, source="in", sink="out")
    for point in CRASH_POINTS:
        topic.write(fresh())
        job.run(crash=point)
    assert events(job).count("crash") == len(CRASH_POINTS) == 16
    assert_exactly_once("in", "out", key="value")


@pytest.mark.parametrize("how", ["kill", "raise"])
def test_a_process_dies_or_fails_and_the_rest_goes_on(job, how):
    job.run(crash="S5.prepared", how=how)
    assert "dead" not in events(job), "a task is tried again"
    assert_exactly_once("in", "out", key="value")
    assert_order("in", "out", key="value")


def test_transactions_expire_while_the_job_is_dead(job):
    with pytest.raises(FaultMissed, match="has nothing open in 'out'"):
        job.expire_transactions()
    job.run(crash="S7.after_first_end_txn", until="crashed")
    job.expire_transactions()
    job.run()
    assert_exactly_once("in", "out", key="value")


def test_a_second_driver_takes_over(job):
    job.second_driver()
    (gone,) = (e for e in job.trial.history.events() if e.what == "first driver went on")
    assert gone.details["exit_code"] not in (0, None), "nobody stopped the first driver"
    assert_exactly_once("in", "out", key="value")


def test_a_copy_of_a_task_overtakes_it(job):
    job.speculate()
    assert_exactly_once("in", "out", key="value")


def test_a_checkpoint_is_lost_or_rolled_back(eo_broker, eo_job, fresh):
    topic = eo_broker.topic("in", partitions=2).write(fresh())
    job = eo_job(COPY, source="in", sink="out", config={**QUICK, "snapshots": "true"})
    job.run()
    job.lose_checkpoint()
    topic.write(fresh())
    job.run()
    assert_exactly_once("in", "out", key="value")
    topic.write(fresh())
    job.run()
    job.roll_back_checkpoint()
    job.run()  # the same batches once more: eo-kafka knows them
    assert_exactly_once("in", "out", key="value")
    topic.write(fresh())
    job.run()
    job.roll_back_checkpoint()
    job.config["per_batch"] = "30"  # now the same numbers come with other records
    with pytest.raises(JobFailed, match=r"BatchMismatch[\s\S]*eo-kafka snapshots restore"):
        job.run()


def test_workers_and_drivers_are_killed_and_paused(eo_broker, job, fresh):
    job.start()
    job.kill_worker(seed=1)  # a task's is tried again; without the source's the query ends
    eo_broker.topic("in").write(fresh())
    job.start()
    job.pause_worker(1.0)
    job.pause_driver(1.0)
    job.kill_driver()
    with pytest.raises(FaultMissed, match="No driver of job"):
        job.kill_worker()
    job.start()
    with pytest.raises(CheckRefused, match="has not come to the end"):  # it may still write
        assert_exactly_once("in", "out", key="value")
    job.stop()
    job.run()
    assert_exactly_once("in", "out", key="value")


@pytest.mark.eo_kafka(own=True)
def test_a_broker_of_ones_own_is_killed_paused_and_cut_off(eo_broker, job, fresh):
    job.start()
    wait_until((job.checkpoint / "commits" / "0").exists, "it is at work", 180)
    eo_broker.pause(1.0)
    eo_broker.kill()
    eo_broker.start()
    with eo_broker.network_cut():
        time.sleep(1)
        eo_broker.topic("in").write(fresh())  # the test reaches it all the same
    with eo_broker.network_hangs():
        time.sleep(1)
    job.run()
    assert_exactly_once("in", "out", key="value")


@pytest.mark.eo_kafka(own=True, nodes=3)
def test_one_of_three_brokers_is_gone_while_the_job_runs(eo_broker, job):
    eo_broker.kill(1)
    job.run()
    eo_broker.start()
    assert_exactly_once("in", "out", key="value")


@pytest.mark.eo_kafka(own=True)
def test_the_nemesis_strikes_and_nothing_is_lost_or_repeated(job, fresh):
    job.nemesis(seed=7, minutes=1.5, feed=fresh)
    struck = [e.details["name"] for e in job.trial.history.events() if e.what == "fault"]
    assert struck
    assert set(struck) <= set(FAULTS)
    assert job.trial.seed == 7
    assert_exactly_once("in", "out", key="value")


@pytest.mark.parametrize("fault", SLOW_FAULTS)
def test_the_nemesis_strikes_slowly_where_it_is_told_to(job, fresh, fault):
    job.nemesis(seed=3, minutes=0.1, feed=fresh, faults=[fault])
    assert {"outlast the transactions": "transactions expired"}.get(
        fault, "task goes on"
    ) in events(job)
    assert_exactly_once("in", "out", key="value")
