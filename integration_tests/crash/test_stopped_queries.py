"""A query that is stopped in the middle of a batch leaves nothing open: an open transaction would
hide everything later from readers, until it times out."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from eo_kafka.clients.kafka.control_plane import ControlPlane
from eo_kafka.errors import Fenced
from eo_kafka.sinks.protocol import committer, driver_memory
from eo_kafka.testing.processes import has_ended
from hand_made_tasks import HandMadeTasks, StuckTask, batch_of, wait_open
from harness import (
    Copy,
    assert_exactly_once,
    committed,
    control_plane,
    kill_driver_at,
    make_copy,
    open_tasks,
    read_ledger,
    started,
    wait_until,
)

VALUES = [b"%d" % number for number in range(300)]


@pytest.fixture
def job(broker, make_topic) -> HandMadeTasks:
    return HandMadeTasks(broker.bootstrap_servers, make_topic("out"))


def test_abort_ends_what_no_attempt_reported(job):
    for batch in range(4):  # ids of a producer that decisions name, in their next use
        job.commit(job.write(job.plan(), iter([batch_of(b"%d" % batch)]), batch=batch))
    plan = job.plan()
    running = StuckTask(lambda rows: job.write(plan, rows, batch=4), b"a")
    reported = job.write(plan, iter([batch_of(b"b")]), batch=4, partition=1)
    wait_open(job, 2)
    committer.abort(job.options, [None, reported], plan.generation)
    assert job.open() == []
    running.end()
    assert isinstance(running.error, Exception)
    with pytest.raises(Fenced):  # one that begins only now
        job.write(plan, iter([batch_of(b"c")]), batch=4, attempt=2)
    plan = job.plan()
    job.commit(job.write(plan, iter([batch_of(b"4")]), batch=4))
    assert committed(job.servers, job.topic) == Counter(b"%d" % batch for batch in range(5))


def test_abort_leaves_what_a_newer_driver_has_open_and_does_not_fence_it(job):
    old = job.plan()
    newer = job.plan()
    report = job.write(newer, iter([batch_of(b"a")]))
    for reports in ([None], []):
        committer.abort(job.options, reports, old.generation)
    assert len(job.open()) == 1
    with control_plane(job.servers) as control:
        holder = control.describe_one(job.options.ids.coordinator).identity
    assert holder == newer.coordinator
    job.commit(report)
    assert list(committed(job.servers, job.topic)) == [b"a"]


def test_abort_after_the_decision_ends_only_what_the_decision_does_not_name(job, monkeypatch):
    plan = job.plan()
    report = job.write(plan, iter([batch_of(b"a")]))

    def away(*_: object, **__: object) -> dict[str, str]:
        raise RuntimeError("dies before its first EndTxn")

    monkeypatch.setattr(ControlPlane, "end", away)
    with pytest.raises(RuntimeError):
        job.commit(report)
    monkeypatch.undo()
    committer.abort(job.options, [report], plan.generation)
    assert [found.identity for found in job.open()] == [report.participant.identity]
    job.plan()
    assert list(committed(job.servers, job.topic)) == [b"a"]


@pytest.fixture
def driver(tmp_path, monkeypatch) -> Iterator[tuple[subprocess.Popen, Path]]:
    """A process and a directory, as Spark's Python workers see their driver."""
    directory = tmp_path / "blockmgr"
    directory.mkdir()
    with subprocess.Popen(["sleep", "600"]) as process:
        monkeypatch.setattr(os, "getppid", lambda: process.pid)
        monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{directory},/another")
        yield process, directory
        process.kill()


@pytest.mark.parametrize("how", ["is told to stop", "is slow to stop", "has ended the batch"])
def test_what_is_done_when_the_driver_is_gone(job, driver, how):
    process, directory = driver
    plan = job.plan()
    driver_memory.begin(job.options, plan.generation)
    assert driver_memory.remembered(job.options) == plan.generation
    if how == "has ended the batch":
        driver_memory.end(job.options)
    (waiting,) = [
        one
        for one in psutil.Process().children()
        if "eo_kafka.sinks.protocol.after_driver" in one.cmdline()
    ]
    stuck = StuckTask(lambda rows: job.write(plan, rows), b"a")
    wait_open(job, 1)
    if how == "is slow to stop":  # Spark removes file by file while its Python workers live
        looked = waiting.num_ctx_switches().voluntary
        for file in directory.iterdir():
            file.unlink()
        wait_until(lambda: waiting.num_ctx_switches().voluntary > looked + 8, "it has looked again")
    process.kill()
    process.wait()
    shutil.rmtree(directory)
    waiting.wait(60)
    assert len(job.open()) == (1 if how == "has ended the batch" else 0)
    stuck.end()


@pytest.fixture
def copy(broker, make_topic, tmp_path) -> Copy:
    """Two tasks a batch; the transactions would stay open for ten minutes."""
    servers = broker.bootstrap_servers
    return make_copy(servers, make_topic, tmp_path, VALUES, per_batch=300, timeout_ms=600_000)


def test_a_query_that_is_stopped_ends_its_own_at_once(copy, spark, crash_points):
    crash_points.arm("S5.prepared", "wait")
    query = copy.start(spark)
    crash_points.wait_reached("S5.prepared")
    wait_until(lambda: len(open_tasks(copy)) == 2, "both tasks have written")
    query.stop()
    assert open_tasks(copy) == []
    copy.run(spark)
    assert_exactly_once(copy, VALUES)


@pytest.mark.parametrize(
    "whom", ["python", pytest.param("java", marks=pytest.mark.full)], ids=["driver", "its-jvm"]
)
def test_a_driver_that_is_told_to_stop_leaves_nothing_open(copy, crash_points, tmp_path, whom):
    """SIGTERM: Spark kills the process that it starts for `abort()` before it has begun."""
    crash_points.arm("S5.prepared", "wait")
    with started(copy, tmp_path / "log") as driver:
        crash_points.wait_reached("S5.prepared")
        wait_until(lambda: len(open_tasks(copy)) == 2, "both tasks have written")
        (jvm,) = [one for one in psutil.Process(driver.pid).children() if one.name() == "java"]
        os.kill(driver.pid if whom == "python" else jvm.pid, signal.SIGTERM)
        wait_until(lambda: has_ended(jvm.pid), "the driver is gone")
        wait_until(lambda: open_tasks(copy) == [], "nothing is open", 30)
    assert read_ledger(copy).decisions == {}


def test_a_driver_that_is_killed_leaves_the_rest_to_the_next_start(
    copy, spark, crash_points, tmp_path
):
    """Of a driver that may only be cut off, nobody else ends anything."""
    kill_driver_at(copy, crash_points, "S6.before_decision", tmp_path / "log")
    assert len(open_tasks(copy)) == 2
    copy.run(spark)
    assert_exactly_once(copy, VALUES)
