"""DONE means that the batch can be read: what attempts left open, that nobody needs, is ended."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest

from eo_kafka.clients.kafka.control_plane import ControlPlane
from eo_kafka.errors import Fenced, OutcomeUnknown
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.protocol import batch as df_write
from eo_kafka.sinks.protocol import two_phase
from eo_kafka.sinks.transactions import stragglers
from eo_kafka.sinks.transactions.task_transaction import TaskTransaction
from hand_made_tasks import HandMadeTasks, StuckTask, batch_of, wait_open
from harness import committed, wait_until, written


@pytest.fixture
def job(broker, make_topic) -> HandMadeTasks:
    return HandMadeTasks(broker.bootstrap_servers, make_topic("out"))


def test_a_committed_batch_can_be_read_though_an_attempt_died_at_its_first_rows(job):
    plan = job.plan()
    lost = StuckTask(lambda rows: job.write(plan, rows, attempt=0), b"lost")
    wait_open(job, 1)
    report = job.write(plan, iter([batch_of(b"a", b"b")]), attempt=1)
    assert job.commit(report).aborted == 1
    assert committed(job.servers, job.topic) == Counter([b"a", b"b"])
    assert job.open() == []
    lost.end()
    assert lost.error is not None, "what was aborted was reported"
    assert committed(job.servers, job.topic) == Counter([b"a", b"b"])


@pytest.mark.parametrize("commit", ["two-phase", "idempotent"])
@pytest.mark.parametrize("rows", [1, 0])
def test_so_it_can_with_every_way_to_commit_and_in_an_empty_batch(broker, make_topic, commit, rows):
    job = HandMadeTasks(broker.bootstrap_servers, make_topic("out"), commit)
    plan = job.plan()
    report = job.write(plan, iter([batch_of(*[b"a"] * rows)]))
    left = TaskTransaction(job.options, [job.options.ids.task("main", 7, plan.generation, 0)], "x")
    left.send(batch_of(b"of an attempt that was lost"))
    left._flush()
    assert len(job.open()) == (2 if rows and commit == "two-phase" else 1)
    job.commit(report)
    assert job.open() == []
    assert committed(job.servers, job.topic) == Counter([b"a"] * rows)


def test_a_save_without_a_ledger_can_be_read_when_it_returns(broker, make_topic):
    topic = make_topic("out")
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": topic}
    options = SinkOptions.parse(given, streaming=False)
    save = df_write.new_batch(options)
    lost = StuckTask(lambda rows: df_write.write(options, save, 0, 0, rows), b"lost")
    wait_until(lambda: written(broker.bootstrap_servers, topic), "the lost one has sent its row")
    report = df_write.write(options, save, 0, 1, iter([batch_of(b"a")]))
    with_open = TaskTransaction(options, ["another-program"], "x")
    with_open.send(batch_of(b"not ours to end"))
    df_write.commit(options, save, [report])
    with_open.prepare()
    with_open.commit()
    assert committed(broker.bootstrap_servers, topic) == Counter([b"a", b"not ours to end"])
    lost.end()
    assert lost.error is not None


def test_a_task_that_looked_before_the_fence_and_opened_after_the_sweep_ends_itself(
    job, monkeypatch
):
    """It sends its first row and waits for the next: nobody else knows of its transaction."""
    plan, may_take = job.plan(), threading.Event()
    looked = threading.Event()

    def pause(name: str) -> None:
        if name == "S2.before_init" and threading.current_thread().name.startswith("eo-kafka-open"):
            looked.set()
            assert may_take.wait(60)

    report = job.write(plan, iter([batch_of(b"a")]), attempt=1)
    monkeypatch.setattr(two_phase, "crash_point", pause)
    monkeypatch.setattr(TaskTransaction, "_had_rows", True)
    late = StuckTask(lambda rows: job.write(plan, rows, attempt=2), b"late")
    assert looked.wait(60)
    job.commit(report)
    may_take.set()
    wait_open(job, 1)
    wait_open(job, 0)
    assert committed(job.servers, job.topic) == Counter([b"a"])
    late.end()
    assert isinstance(late.error, Fenced), late.error


def test_a_task_that_writes_for_long_and_is_wanted_is_left_alone(job):
    plan = job.plan()
    slow = StuckTask(lambda rows: job.write(plan, rows), b"a")
    wait_open(job, 1)
    time.sleep(1.5)  # it has looked by now
    slow.end()
    job.commit(slow.report)
    assert committed(job.servers, job.topic) == Counter([b"a"])


def test_a_listing_that_fails_is_asked_again_and_is_never_taken_for_none(job, monkeypatch):
    plan = job.plan()
    lost = StuckTask(lambda rows: job.write(plan, rows, attempt=0), b"lost")
    wait_open(job, 1)
    report = job.write(plan, iter([batch_of(b"a")]), attempt=1)
    ask, failing = ControlPlane.open_transactions, [3]

    def refuse(self, *args):
        failing[0] -= 1
        if failing[0] >= 0:
            raise OutcomeUnknown("a broker is away")
        return ask(self, *args)

    monkeypatch.setattr(ControlPlane, "open_transactions", refuse)
    job.commit(report)
    monkeypatch.undo()
    assert job.open() == []
    monkeypatch.setattr(stragglers, "LIST_TIMEOUT_S", 0.0)
    failing[0] = 1000
    monkeypatch.setattr(ControlPlane, "open_transactions", refuse)
    with pytest.raises(OutcomeUnknown, match="could not be listed"):
        job.plan()  # S1
    lost.end()
