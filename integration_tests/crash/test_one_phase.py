"""`commit=idempotent`: each task commits its own rows; whatever dies, none is lost or repeated."""

from __future__ import annotations

import os
import signal
from collections import Counter

import pyarrow as pa
import pytest

from eo_kafka.errors import Undecided, WriteFailed
from eo_kafka.sinks.batches.committable import TaskReport, WritePlan
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.protocol import committer, one_phase
from eo_kafka.sinks.protocol.recovery import make_plan
from eo_kafka.sinks.protocol.two_phase import TaskIdentity
from eo_kafka.state.ledger import barrier
from eo_kafka.state.ledger.settled_tokens import read_tokens
from hand_made_tasks import HandMadeTasks, batch_of
from harness import (
    Copy,
    assert_exactly_once,
    committed,
    kill_driver_at,
    make_copy,
    started,
    wait_until_timed_out,
)

VALUES = [b"%d" % number for number in range(300)]


@pytest.fixture
def job(broker, make_topic, tmp_path) -> Copy:
    """A copy of 300 records in two batches of three tasks."""
    return make_copy(
        broker.bootstrap_servers,
        make_topic,
        tmp_path,
        VALUES,
        per_batch=200,
        tasks=3,
        sink_extra={"commit": "idempotent"},
    )


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("S3.while_writing", id="C1-while-it-writes"),
        pytest.param("S5.prepared", id="C2-before-its-commit"),
        pytest.param("one-phase.committed", id="committed-but-not-reported"),
    ],
)
def test_a_task_that_is_killed_is_retried_and_repeats_nothing(job, spark, crash_points, point):
    crash_points.arm(point, "kill")
    job.run(spark)
    assert crash_points.reached(point)
    assert_exactly_once(job, VALUES)


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("S3.while_writing", id="a-task-writes", marks=pytest.mark.full),
        pytest.param("one-phase.committed", id="a-task-has-committed", marks=pytest.mark.smoke),
        pytest.param("S6.before_decision", id="all-tasks-have-committed", marks=pytest.mark.full),
        pytest.param("S8.after_done", id="C13-before-Sparks-commit-log", marks=pytest.mark.full),
    ],
)
def test_a_driver_that_is_killed_starts_again_and_repeats_nothing(
    job, spark, crash_points, tmp_path, point
):
    kill_driver_at(job, crash_points, point, tmp_path / "log")
    job.run(spark)
    assert_exactly_once(job, VALUES)


def test_nothing_of_a_torn_batch_is_written_when_its_replay_differs(
    job, spark, crash_points, tmp_path
):
    kill_driver_at(job, crash_points, "one-phase.committed", tmp_path / "log")
    before = committed(job.servers, job.sink_topic)
    assert before, "the killed task had committed"
    job.tasks = 2
    with pytest.raises(Exception, match=r"RepairNeeded: Batch 0 was interrupted.*job repair"):
        job.run(spark)
    assert committed(job.servers, job.sink_topic) == before, "something was written all the same"
    job.tasks = 3
    job.run(spark)
    assert_exactly_once(job, VALUES)


@pytest.mark.full
def test_the_way_to_commit_may_be_changed_between_two_starts(job, spark, crash_points, tmp_path):
    kill_driver_at(job, crash_points, "one-phase.committed", tmp_path / "log")
    job.sink_extra = {"commit": "two-phase"}
    crash_points.clear()
    kill_driver_at(job, crash_points, "S6.before_decision", tmp_path / "log")
    crash_points.clear()
    kill_driver_at(job, crash_points, "S6.after_decision", tmp_path / "log")
    job.sink_extra = {"commit": "idempotent"}
    job.run(spark)
    assert_exactly_once(job, VALUES)


@pytest.mark.full
def test_a_batch_that_is_done_may_run_again_with_another_number_of_tasks(
    job, spark, crash_points, tmp_path
):
    kill_driver_at(job, crash_points, "S8.after_done", tmp_path / "log")
    job.tasks = 5
    job.run(spark)
    assert_exactly_once(job, VALUES)


def test_a_task_of_a_driver_that_was_replaced_cannot_commit(job, spark, crash_points, tmp_path):
    """It stops between its last look at the coordinator and its commit, the one place where
    nothing but the newer driver's wait for its token stands between it and a duplicate."""
    crash_points.arm("S5.prepared", "stop")
    with started(job, tmp_path / "log") as old:
        crash_points.wait_reached("S5.prepared")
        zombie = crash_points.reached("S5.prepared")
        job.run(spark)
        assert_exactly_once(job, VALUES)
        os.kill(zombie, signal.SIGCONT)
        assert old.wait(180) != 0
    assert_exactly_once(job, VALUES)


def test_a_task_that_fails_for_good_leaves_a_batch_that_the_next_start_completes(
    job, spark, crash_points, tmp_path
):
    crash_points.arm("S3.while_writing", "wait")
    crash_points.arm("one-phase.committed", "wait")
    with started(job, tmp_path / "log") as driver:
        crash_points.wait_reached("S3.while_writing")
        crash_points.wait_reached("one-phase.committed")
        # Both cores are taken. So the third task begins now, and fails in each of its four tries
        crash_points.arm("S3.while_writing", "raise-always")
        crash_points.release("S3.while_writing")
        assert driver.wait(300) != 0
    crash_points.clear()
    torn = committed(job.servers, job.sink_topic)
    assert torn < Counter(VALUES)
    job.run(spark)
    assert_exactly_once(job, VALUES)


@pytest.mark.full
def test_an_outage_longer_than_the_transaction_timeout(job, spark, crash_points, tmp_path):
    job.timeout_ms = 10_000
    kill_driver_at(job, crash_points, "S5.prepared", tmp_path / "log")
    wait_until_timed_out(job)
    job.run(spark)
    assert_exactly_once(job, VALUES)


def test_an_attempt_asks_for_tokens_only_if_another_came_before_it(broker, make_topic, monkeypatch):
    """The tasks run here, without Spark: ten batches use every slot of the ids again."""
    topic = make_topic("out")
    options = SinkOptions.parse(
        {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "topic": topic,
            "jobName": f"job-{topic}",
            "commit": "idempotent",
        },
        streaming=True,
    )
    asked: list[int] = []

    def counted(*args, **kwargs):
        asked.append(1)
        return read_tokens(*args, **kwargs)

    monkeypatch.setattr(one_phase, "read_tokens", counted)
    for batch in range(10):
        plan = make_plan(options)
        first = attempt(options, plan, batch)
        assert not asked, f"batch {batch}"
        if batch == 9:
            again = attempt(options, plan, batch)
            assert asked
            assert again.committed
            assert (again.rows, again.digest) == (first.rows, first.digest)
        committer.commit(options, [first], batch)
    assert committed(broker.bootstrap_servers, topic) == Counter(b"%d" % n for n in range(10))


def attempt(options: SinkOptions, plan: WritePlan, batch: int) -> TaskReport:
    rows = pa.RecordBatch.from_pydict({"value": pa.array([b"%d" % batch])})
    task = TaskIdentity(query_id="q", batch=batch, partition=0, task_attempt_id=0)
    return one_phase.write(options, plan, task, iter([rows]))


def test_a_second_attempt_of_a_jobs_first_task_looks_for_a_token_where_there_is_none(
    broker, make_topic
):
    job = HandMadeTasks(broker.bootstrap_servers, make_topic("out"), "idempotent")
    plan = job.plan()

    def dies():
        yield batch_of(b"row")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        job.write(plan, dies())
    job.commit(job.write(plan, iter([batch_of(b"row")]), attempt=1))
    assert committed(job.servers, job.topic) == {b"row": 1}


def test_a_second_attempt_without_rows_does_not_pass_over_those_of_the_first(broker, make_topic):
    """The first one's report was lost, and the query does not repeat its rows."""
    job = HandMadeTasks(broker.bootstrap_servers, make_topic("out"), "idempotent")
    plan = job.plan()
    job.write(plan, iter([batch_of(b"row")]))
    again = job.write(plan, iter([]), attempt=1)
    moved = job.write(plan, iter([batch_of(b"row")]), partition=1, attempt=2)
    with pytest.raises(Undecided, match=r"partitions \[0\] had committed 1 rows"):
        job.commit(again, moved)


def test_a_log_that_does_not_hold_the_own_token_proves_nothing(broker, make_topic, monkeypatch):
    """The ledger was deleted and made again, say: who reads nothing has not read that nobody is
    newer."""
    job = HandMadeTasks(broker.bootstrap_servers, make_topic("out"), "idempotent")
    plan = job.plan()
    with monkeypatch.context() as patched, pytest.raises(WriteFailed, match="does not hold"):
        patched.setattr(barrier, "read_records", lambda *_, **__: iter(()))
        job.write(plan, iter([batch_of(b"row")]))
    assert not committed(job.servers, job.topic)


def test_the_tokens_of_a_batch_are_read_once_in_a_process(broker, make_topic, monkeypatch):
    job = HandMadeTasks(broker.bootstrap_servers, make_topic("out"), "idempotent")
    plan = job.plan()
    begun: list[int] = []
    read = barrier.read_records

    def counted(settings, topic, partition, start, *more, **others):
        begun.append(start)
        return read(settings, topic, partition, start, *more, **others)

    monkeypatch.setattr(barrier, "read_records", counted)
    reports = [job.write(plan, iter([batch_of(b"row")]), partition=n, attempt=n) for n in (0, 1)]
    assert begun[0] == plan.token_from
    assert begun[1] > begun[0]
    job.commit(*reports)
    assert committed(job.servers, job.topic) == {b"row": 2}
