"""C18, C19 and two drivers at once: who was declared dead comes back, or never was. Whoever is not
the newest must not write anything that counts."""

from __future__ import annotations

import os
import re
import signal

import pytest

from eo_kafka.core.transaction import Identity
from eo_kafka.testing.processes import has_ended, killed_at_last, outlive_driver
from harness import (
    Copy,
    assert_exactly_once,
    committed,
    control_plane,
    kill_group,
    make_copy,
    open_tasks,
    produce,
    read_ledger,
    started,
    wait_until,
    written,
)

VALUES = [b"%d" % number for number in range(300)]
LATER = [b"later %d" % number for number in range(50)]
COMMITS = ["two-phase", pytest.param("idempotent", marks=pytest.mark.full)]


@pytest.fixture
def job(broker, make_topic, tmp_path) -> Copy:
    """300 records of two partitions, in three batches of two tasks."""
    return make_copy(broker.bootstrap_servers, make_topic, tmp_path, VALUES, per_batch=100)


@pytest.mark.parametrize(
    ("point", "commit"),
    [
        pytest.param("S6.before_decision", "two-phase", id="before-its-decision"),
        pytest.param(
            "S6.after_decision",
            "two-phase",
            id="between-decision-and-EndTxn",
            marks=pytest.mark.full,
        ),
        pytest.param(
            "S7.after_first_end_txn",
            "two-phase",
            id="between-two-EndTxns",
            marks=pytest.mark.full,
        ),
        pytest.param(
            "S6.before_decision",
            "idempotent",
            id="idempotent-before-DONE",
            marks=pytest.mark.full,
        ),
    ],
)
def test_c18_a_driver_that_was_stopped_changes_nothing_when_it_goes_on(
    job, spark, crash_points, tmp_path, point, commit
):
    job.sink_extra["commit"] = commit
    crash_points.arm(point, "stop")
    with started(job, tmp_path / "log") as old:
        zombie = crash_points.wait_reached(point)
        job.run(spark)
        assert_exactly_once(job, VALUES)
        ledger, ever = read_ledger(job), written(job.servers, job.sink_topic)
        os.kill(zombie, signal.SIGCONT)
        assert old.wait(180) != 0, "the old driver went on"
    assert "Fenced" in (tmp_path / "log").read_text()
    assert read_ledger(job) == ledger, "the old driver wrote into the ledger"
    assert written(job.servers, job.sink_topic) == ever, "the old driver wrote rows"
    assert_exactly_once(job, VALUES)


@pytest.mark.full  # CI has the one below, which was stopped a step before
def test_c19_a_task_that_had_prepared_ends_aborted(job, spark, crash_points, tmp_path):
    crash_points.arm("S5.prepared", "wait")
    with started(job, tmp_path / "log") as old:
        zombie = crash_points.wait_reached("S5.prepared")
        with killed_at_last(zombie):
            outlive_driver(zombie)
            kill_group(old, but=zombie)
            assert open_tasks(job), "nothing was prepared"
            job.run(spark)
            assert_exactly_once(job, VALUES)
            crash_points.release("S5.prepared")
            wait_until(lambda: has_ended(zombie), "the zombie gives up", 240)
    assert_exactly_once(job, VALUES)


@pytest.mark.parametrize("commit", COMMITS)
def test_c19_a_task_that_was_stopped_while_it_wrote_is_fenced_and_so_is_its_driver(
    job, spark, crash_points, tmp_path, commit
):
    job.sink_extra["commit"] = commit
    crash_points.arm("S3.while_writing", "stop")
    with started(job, tmp_path / "log") as old:
        zombie = crash_points.wait_reached("S3.while_writing")
        with killed_at_last(zombie):
            os.killpg(old.pid, signal.SIGSTOP)  # its JVM, which still has rows for the task
            job.run(spark)
            assert_exactly_once(job, VALUES)
            ledger = read_ledger(job)
            os.kill(zombie, signal.SIGCONT)
            os.killpg(old.pid, signal.SIGCONT)
            assert old.wait(180) != 0, "the old driver went on"
    assert "Fenced" in (tmp_path / "log").read_text()
    assert read_ledger(job) == ledger
    assert_exactly_once(job, VALUES)


@pytest.mark.parametrize(
    ("point", "error"),
    [
        pytest.param("S5.prepared", "Undecided", id="before-the-decision", marks=pytest.mark.full),
        pytest.param(
            "S6.after_decision",
            "ParticipantsLost",
            id="after-the-decision",
            marks=pytest.mark.full,
        ),
    ],
)
def test_c19_an_id_taken_in_the_window_that_is_not_atomic_is_found_out_and_mended(
    broker, make_topic, spark, crash_points, tmp_path, point, error
):
    """A task looks whether it has been replaced, and then takes its id. Stopped in between, it
    takes the id from a newer driver's prepared transaction, four generations later."""
    servers = broker.bootstrap_servers
    values = VALUES[:150]
    job = make_copy(servers, make_topic, tmp_path, values, partitions=1, per_batch=50)
    crash_points.arm("S2.before_init", "wait")
    with started(job, tmp_path / "log") as old:
        zombie = crash_points.wait_reached("S2.before_init")
        with killed_at_last(zombie):
            outlive_driver(zombie)
            kill_group(old, but=zombie)
            job.run(spark)  # generations 2, 3, 4
            produce(servers, job.source_topic, LATER)
            slot = job.ids.task("main", 0, generation=1, task_attempt_id=0)
            use_attempt_slot_0(spark)
            crash_points.arm(point, "wait")
            with job.running(spark) as query:
                crash_points.wait_reached(point)
                prepared = open_tasks(job)
                assert [found.transactional_id for found in prepared] == [slot]
                crash_points.release("S2.before_init")
                wait_until(lambda: has_ended(zombie), "the zombie gives up", 240)
                with control_plane(servers) as control:
                    taken = control.describe_one(slot)
                assert taken.identity != prepared[0].identity, "the zombie did not take the id"
                crash_points.release(point)
                with pytest.raises(Exception, match=error):
                    query.awaitTermination(240)
    assert not set(LATER) & set(committed(servers, job.sink_topic))
    job.run(spark)
    assert_exactly_once(job, values + LATER)


def use_attempt_slot_0(spark) -> None:
    """The next task that the session runs gets an attempt id that is a multiple of eight."""
    scheduler = spark.sparkContext._jsc.sc().taskScheduler()
    while scheduler.newTaskId() % 8 != 7:
        pass


@pytest.mark.parametrize("commit", COMMITS)
def test_c18_of_two_drivers_in_the_middle_of_one_batch_exactly_one_lives(
    job, spark, crash_points, tmp_path, commit
):
    """The old one goes on between the new one's S1 and S6, and the new one's batch commits at its
    first try."""
    job.sink_extra["commit"], job.per_batch = commit, 150
    crash_points.arm("S6.before_fence", "wait")
    with started(job, tmp_path / "log") as old:
        crash_points.wait_reached("S6.before_fence")
        crash_points.arm("S5.prepared", "wait")
        with job.running(spark) as new:
            crash_points.wait_reached("S5.prepared")
            taken = holder(job)
            crash_points.release("S6.before_fence")
            assert old.wait(180) != 0, "the old driver went on"
            assert "Fenced" in (tmp_path / "log").read_text()
            assert holder(job) == taken, "the old driver took the coordinator's id"
            crash_points.release("S5.prepared")
            assert new.awaitTermination(180)
            assert new.exception() is None
    assert_exactly_once(job, VALUES)


def holder(job: Copy) -> Identity:
    """Who has the coordinator's id, as Kafka says."""
    with control_plane(job.servers) as control:
        return control.describe_one(job.ids.coordinator).identity


@pytest.mark.parametrize("commit", COMMITS)
def test_two_drivers_alive_at_once_one_stops_and_the_output_is_exact(job, spark, tmp_path, commit):
    job.sink_extra["commit"], job.per_batch = commit, 10  # many, so that both still run
    with started(job, tmp_path / "log") as first:
        wait_until((job.checkpoint / "commits" / "0").exists, "the first one runs", 240)
        stops = []
        try:
            job.run(spark)
        except Exception as error:
            stops.append(str(error))
        if first.wait(180) != 0:
            stops.append((tmp_path / "log").read_text())
    assert stops, "both went on to the end: they were not alive at the same time"
    for stop in stops:
        assert re.search("Fenced|CONCURRENT_STREAM_LOG_UPDATE", stop), stop[-4000:]
    if len(stops) > 1:
        job.run(spark)
    assert_exactly_once(job, VALUES)
