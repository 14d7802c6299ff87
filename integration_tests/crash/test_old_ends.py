"""A leader that is cut off tells an old end of the ledger, a coordinator who held an id before:
nothing is lost or repeated by that.

Here a broker's answers are held back: it tells what was so before, until the client asks another
one. A real leader that is cut off is in containers/test_broker_clusters.py.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from eo_kafka.clients.kafka import control_plane
from eo_kafka.clients.kafka.control_plane import ControlPlane
from eo_kafka.clients.kafka.control_requests import End, TransactionRequests
from eo_kafka.errors import Fenced, Undecided
from eo_kafka.sinks.protocol import committer, one_phase
from eo_kafka.sinks.protocol.finisher import Finisher
from eo_kafka.state.ledger.ledger import DECISION_PARTITION
from eo_kafka.state.ledger.topics import TOKEN_PARTITION
from eo_kafka.state.snapshots.search import SnapshotSearch
from eo_kafka.tools.cli import main
from eo_kafka.tools.transactions import ending
from hand_made_tasks import HandMadeTasks, batch_of
from harness import committed


class OldEnds:
    """The ends of one job's ledger, as they were and as they are told."""

    def __init__(self) -> None:
        self.told: dict[End, int] = {}
        self._remembered: dict[End, int] = {}

    def remember(self, job: HandMadeTasks, partition: int) -> None:
        _, ledger = job.options.job_and_ledger
        control = control_plane.shared(job.options.kafka)
        for stable in (False, True):
            end = (ledger, partition, stable)
            self._remembered[end] = control.end_offset(*end)

    def tell(self) -> None:
        """From now on what was remembered is told."""
        self.told = self._remembered


@pytest.fixture
def old_ends(monkeypatch) -> OldEnds:
    old = OldEnds()
    ask, others = TransactionRequests._ends, ControlPlane._as_others_say

    async def _ends(self, rows, ends):
        found = await ask(self, rows, ends)
        return {end: old.told.get(end, at) for end, at in found.items()}

    def _as_others_say(self, *asked):
        old.told = {}
        return others(self, *asked)

    monkeypatch.setattr(TransactionRequests, "_ends", _ends)
    monkeypatch.setattr(ControlPlane, "_as_others_say", _as_others_say)
    monkeypatch.setattr(control_plane, "OTHERS_AFTER_S", 0.2)
    return old


@pytest.fixture(params=["two-phase", "idempotent"])
def job(request, broker, make_topic) -> HandMadeTasks:
    """Batch 0 is written."""
    made = HandMadeTasks(broker.bootstrap_servers, make_topic("out"), request.param)
    run(made, 0)
    return made


def run(job: HandMadeTasks, batch: int) -> None:
    plan = job.plan()
    job.commit(job.write(plan, rows_of(batch), batch=batch))


def rows_of(batch: int):
    return iter([batch_of(b"row %d" % batch)])


def rows(job: HandMadeTasks) -> Counter[bytes]:
    return committed(job.servers, job.topic)


def test_a_decision_after_the_end_that_is_told_is_carried_out(job, old_ends, monkeypatch):
    """Its driver died. The next one must not abort its transactions."""
    report = job.write(job.plan(), rows_of(1), batch=1)
    old_ends.remember(job, DECISION_PARTITION)
    _dies_after_its_decision(job, report, monkeypatch)
    old_ends.tell()
    assert not job.plan().must_write(1, 0)
    assert not old_ends.told, "nothing was asked of others"
    run(job, 1)
    assert rows(job) == Counter([b"row 0", b"row 1"])


def _dies_after_its_decision(job, report, monkeypatch) -> None:
    with monkeypatch.context() as patched:
        for name in ("finish", "end_others"):
            patched.setattr(Finisher, name, lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            job.commit(report)


def test_tokens_after_the_end_that_is_told_are_not_taken_for_lost(broker, make_topic, old_ends):
    job = HandMadeTasks(broker.bootstrap_servers, make_topic("out"))
    run(job, 0)
    plan = job.plan()
    old_ends.remember(job, TOKEN_PARTITION)
    report = job.write(plan, rows_of(1), batch=1)
    old_ends.tell()
    job.commit(report)
    assert rows(job) == Counter([b"row 0", b"row 1"])


def test_what_tasks_committed_by_themselves_is_seen(broker, make_topic, old_ends):
    """By the driver after one that died before it could say DONE; and by a task's next attempt."""
    job = HandMadeTasks(broker.bootstrap_servers, make_topic("out"), "idempotent")
    run(job, 0)
    plan = job.plan()
    old_ends.remember(job, TOKEN_PARTITION)
    job.write(plan, rows_of(1), batch=1)
    old_ends.tell()
    run(job, 1)
    assert rows(job) == Counter([b"row 0", b"row 1"])

    plan = job.plan()
    old_ends.remember(job, TOKEN_PARTITION)
    job.write(plan, rows_of(2), batch=2)
    old_ends.tell()
    job.commit(job.write(plan, rows_of(2), batch=2, attempt=1))
    assert rows(job) == Counter([b"row 0", b"row 1", b"row 2"])


def test_a_newer_driver_after_the_end_that_is_told_stops_the_older_one(job, old_ends):
    report = job.write(job.plan(), rows_of(1), batch=1)
    old_ends.remember(job, DECISION_PARTITION)
    job.plan()
    old_ends.tell()
    with pytest.raises((Fenced, Undecided)):
        job.commit(report)
    run(job, 1)
    assert rows(job) == Counter([b"row 0", b"row 1"])


def test_abort_spares_a_decision_after_the_end_that_is_told(
    broker, make_topic, old_ends, monkeypatch
):
    """Spark calls abort() also where commit() failed after its decision."""
    job = HandMadeTasks(broker.bootstrap_servers, make_topic("out"))
    report = job.write(job.plan(), rows_of(0))
    old_ends.remember(job, DECISION_PARTITION)
    _dies_after_its_decision(job, report, monkeypatch)
    old_ends.tell()
    committer.abort(job.options, [report])
    assert len(job.open()) == 1
    run(job, 0)
    assert rows(job) == Counter([b"row 0"])


def test_an_abort_by_hand_spares_a_decision_after_the_end_that_is_told(
    broker, make_topic, old_ends, monkeypatch, capsys
):
    job = HandMadeTasks(broker.bootstrap_servers, make_topic("out"))
    report = job.write(job.plan(), rows_of(0))
    old_ends.remember(job, DECISION_PARTITION)
    _dies_after_its_decision(job, report, monkeypatch)
    old_ends.tell()
    close = ending.close_to_drivers

    def close_and_tell(*arguments):
        found = close(*arguments)
        old_ends.tell()
        return found

    monkeypatch.setattr(ending, "close_to_drivers", close_and_tell)
    words = ["txn", "abort", "--job", job.name, "--yes"]
    assert main([*words, "--bootstrap-servers", job.servers]) == 1
    assert "refused: it was decided meanwhile" in capsys.readouterr().out
    assert len(job.open()) == 1
    old_ends.told = {}
    run(job, 0)
    assert rows(job) == Counter([b"row 0"])


def test_an_abort_by_hand_of_what_seems_stale_spares_a_decision_after_the_end_that_is_told(
    broker, make_topic, old_ends, monkeypatch, capsys
):
    """A newer generation's transaction is in another slot than the one that is told, too."""
    job = HandMadeTasks(broker.bootstrap_servers, make_topic("out"))
    for batch in range(4):  # slots are used again from the fifth generation on
        run(job, batch)
    old_ends.remember(job, DECISION_PARTITION)
    report = job.write(job.plan(), rows_of(4), batch=4)
    _dies_after_its_decision(job, report, monkeypatch)
    old_ends.tell()
    words = ["txn", "abort", "--job", job.name]
    assert main([*words, "--bootstrap-servers", job.servers]) == 1
    assert "its batch is decided" in " ".join(capsys.readouterr().out.split())
    assert len(job.open()) == 1
    old_ends.told = {}
    run(job, 4)
    assert rows(job) == Counter(b"row %d" % batch for batch in range(5))


def test_a_search_after_a_generation_sees_what_stands_before_it(job, old_ends):
    """`cancel_and_export` takes one first: what the job wrote last is in the export, or refused."""
    old_ends.remember(job, DECISION_PARTITION)
    run(job, 1)
    generation = job.plan().generation
    old_ends.tell()
    search = SnapshotSearch(job.name, {"kafka.bootstrap.servers": job.servers})
    assert set(search.ledger().of_sink(job.options.sink)) == {0}
    search.catch_up(generation)
    old_ends.tell()
    assert set(search.ledger().of_sink(job.options.sink)) == {0, 1}


def test_an_old_coordinator_lets_no_task_commit_behind_a_newer_driver(
    broker, make_topic, monkeypatch
):
    job = HandMadeTasks(broker.bootstrap_servers, make_topic("out"), "idempotent")
    run(job, 0)
    old = job.plan()
    newer = job.plan()
    with monkeypatch.context() as patched, pytest.raises(Fenced):
        _coordinator_is_still(old, patched)
        job.write(old, rows_of(1), batch=1)
    job.commit(job.write(newer, rows_of(1), batch=1))
    assert rows(job) == Counter([b"row 0", b"row 1"])


def _coordinator_is_still(plan, patched) -> None:
    coordinator = plan.coordinator
    name, describe = coordinator.transactional_id, TransactionRequests.describe
    was = {"producer_id": coordinator.producer_id, "epoch": coordinator.epoch}

    async def _describe(self, ids):
        found = await describe(self, ids)
        return found | ({name: replace(found[name], **was)} if name in found else {})

    patched.setattr(TransactionRequests, "describe", _describe)


def test_an_old_coordinator_lets_no_task_end_what_a_newer_driver_has_prepared(
    broker, make_topic, monkeypatch
):
    job = HandMadeTasks(broker.bootstrap_servers, make_topic("out"), "idempotent")
    run(job, 0)
    old = job.plan()
    job.write(old, rows_of(1), batch=1)
    newer = HandMadeTasks(job.servers, job.topic, "two-phase", job.query, job.name)
    plan = newer.plan()
    report = newer.write(plan, rows_of(1), batch=1)
    more = newer.write(plan, rows_of(2), batch=1, partition=1)
    monkeypatch.setattr(one_phase, "STRAGGLERS_AFTER_S", 0.0)
    with monkeypatch.context() as patched, pytest.raises(Fenced):
        _coordinator_is_still(old, patched)
        job.write(old, rows_of(1), batch=1, attempt=1)
    assert job.open()
    newer.commit(report, more)
    assert rows(job) == Counter([b"row 0", b"row 1", b"row 2"])


def test_a_driver_with_other_ids_stops_the_tasks_of_the_one_before(broker, make_topic):
    """None of its own ids fences them: option transactionalIdPrefix was changed."""
    job = HandMadeTasks(broker.bootstrap_servers, make_topic("out"), "idempotent")
    run(job, 0)
    other = HandMadeTasks(job.servers, job.topic, "idempotent", job.query, job.name)
    other.options = replace(job.options, prefix="another")
    old, newer = job.plan(), other.plan()
    with pytest.raises(Fenced):
        job.write(old, rows_of(1), batch=1)
    other.commit(other.write(newer, rows_of(1), batch=1))
    assert rows(job) == Counter([b"row 0", b"row 1"])


def test_rows_are_not_gone_with_their_topic_because_one_broker_has_not_heard_of_it(
    job, monkeypatch
):
    """Its driver dies after the decision (or the tasks have committed). The next one asks a broker
    that has an old list of topics; here the others are asked of the same broker, by another way."""
    report = job.write(job.plan(), rows_of(1), batch=1)
    if not job.options.one_phase:
        _dies_after_its_decision(job, report, monkeypatch)
    look = TransactionRequests.look

    async def _look(self, ids, ends, topics, *more):
        found = await look(self, ids, ends, topics, *more)
        old = {name: i for name, i in found.topic_ids.items() if name != job.topic}
        return replace(found, topic_ids=old)

    with monkeypatch.context() as patched:
        patched.setattr(TransactionRequests, "look", _look)
        plan = job.plan()
    job.commit(job.write(plan, rows_of(1), batch=1))
    assert rows(job) == Counter([b"row 0", b"row 1"])


def test_all_brokers_are_asked_for_a_topic_that_one_says_is_gone(broker, make_topic):
    control = control_plane.shared({"bootstrap.servers": broker.bootstrap_servers})
    topic = make_topic("out")
    assert control.agreed_topic_ids([topic, "none"]) == control.topic_ids([topic]) != {}
