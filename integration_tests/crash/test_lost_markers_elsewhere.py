"""Whoever else ends transactions while a partition has no leader, as in test_lost_markers.py: the
inbox of a queue, an export, another program; and what an operator is told and may do."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import SimpleNamespace

import pytest
from confluent_kafka import Producer

from eo_kafka.broker.embedded import KafkaCluster
from eo_kafka.clients.kafka import control_plane
from eo_kafka.connectors.queues.reader import checked
from eo_kafka.errors import RepairNeeded
from eo_kafka.sinks.protocol.finisher import Finisher
from eo_kafka.sources.queues import inbox as inbox_module
from eo_kafka.sources.queues.id_window import IdWindows
from eo_kafka.sources.queues.inbox import Inbox
from eo_kafka.sources.queues.message import Record
from eo_kafka.sources.queues.options import QueueOptions
from eo_kafka.state.snapshots import writer as writer_module
from eo_kafka.state.snapshots.writer import ExportWriter
from eo_kafka.tools.cli import main
from hand_made_tasks import HandMadeTasks
from harness import committed
from leaderless import (
    GOES,
    brought,
    died,
    expected,
    losing,
    make,
    run,
    take_away,
    told,
    visible,
)


def test_an_operator_is_told_how_it_ended(three, torn, caplog, capsys, monkeypatch):
    report = torn.write(torn.plan(), brought(0))
    take_away(three, torn.topic)
    with monkeypatch.context() as dying:
        dying.setattr(Finisher, "end_others", died)
        with pytest.raises(KeyboardInterrupt):
            torn.commit(report)
    three.brokers[GOES].start()
    txn = command(torn.servers, torn.topic, capsys)
    code, said = txn("list")
    assert code == 3
    assert "hung: it was committed" in said
    assert "the next start of its query does it" in said
    capsys.readouterr()
    assert main(["doctor", "--topic", torn.topic, "--bootstrap-servers", torn.servers]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "hangs on partitions [1]" in said
    assert "the next start of its query" in said
    for refused in (["abort", "--yes"], ["abort", "--force"]):
        code, said = txn(*refused)
        assert (code, "it was committed, which cannot be undone" in said) == (1, True), said
    assert visible(torn) != expected(0)
    code, said = txn("commit")
    assert (code, "committed" in said) == (0, True), said
    assert visible(torn) == expected(0)
    assert "No open transactions" in txn("list")[1]
    run(torn, 1)
    assert visible(torn) == expected(0, 1)
    assert told(caplog) == []


@pytest.mark.parametrize("commits", [True, False])
def test_another_programs_transaction_ends_as_it_did(three, torn, capsys, commits):
    name = f"billing-{uuid.uuid4().hex[:8]}"
    other = Producer({"bootstrap.servers": torn.servers, "transactional.id": name, "log_level": 0})
    other.init_transactions(60)
    other.begin_transaction()
    for partition in (0, 1):
        other.produce(torn.topic, b"bill", partition=partition)
    assert other.flush(30) == 0
    take_away(three, torn.topic)
    (other.commit_transaction if commits else other.abort_transaction)(60)
    three.brokers[GOES].start()
    txn = command(torn.servers, torn.topic, capsys)
    right, wrong = ("commit", "abort") if commits else ("abort", "commit")
    code, said = txn("list")
    assert (code, f"eo-kafka txn {right} --topic {torn.topic} --force" in said) == (3, True), said
    assert txn(right)[0] == 1
    code, said = txn(wrong, "--force")
    assert (code, "which cannot be undone" in said) == (1, True), said
    assert txn(right, name, "--force")[0] == 0
    assert visible(torn) == Counter({b"bill": 2} if commits else {})
    assert "No open transactions" in txn("list")[1]
    del other


def command(
    servers: str, topic: str, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """`eo-kafka txn` about a topic: its exit code, and what it said."""

    def txn(*words: str) -> tuple[int, str]:
        capsys.readouterr()
        where = ["--topic", topic, "--bootstrap-servers", servers]
        code = main(["txn", *words, *where])
        return code, " ".join(capsys.readouterr().out.split())

    return txn


def returns_late(
    three: KafkaCluster, lacks_leader: threading.Event, act: Callable[[], object]
) -> None:
    """What it says is so only when the broker is back."""
    with ThreadPoolExecutor(1) as driver:
        done = driver.submit(act)
        assert lacks_leader.wait(60)
        with pytest.raises(TimeoutError):
            done.result(3)
        three.brokers[GOES].start()
        done.result(60)


KEPT, NEXT = (Record(name, b"v", []) for name in (b"kept", b"next"))


@pytest.fixture
def queue(three: KafkaCluster) -> QueueOptions:
    inbox = make(three, "inbox", [GOES])
    given = {"kafka.bootstrap.servers": three.bootstrap_servers, "url": "amqp://host/shop"}
    given |= {"queue": "orders", "inbox": inbox, "allowWeakReplication": "true"}
    return checked(given).queue


def opened(queue: QueueOptions) -> Inbox:
    return Inbox(queue, IdWindows((queue.inbox, queue.poison_topic), queue.window))


def test_a_message_is_acknowledged_when_it_can_be_read(three, queue, caplog, monkeypatch):
    found = opened(queue)
    found.try_out()
    with losing(three, queue.inbox, inbox_module, monkeypatch) as lost:
        returns_late(three, lost, lambda: found.append([KEPT], []))
    assert committed(three.bootstrap_servers, queue.inbox) == Counter([b"v"])
    assert "(1 committed)" in told(caplog)[0]


def test_a_trial_does_not_come_back(three, queue, caplog, monkeypatch):
    found = opened(queue)
    with losing(three, queue.inbox, inbox_module, monkeypatch) as lost:
        returns_late(three, lost, found.try_out)
    found.append([KEPT], [])
    assert committed(three.bootstrap_servers, queue.inbox) == Counter([b"v"])
    assert "(0 committed)" in told(caplog)[0]


def test_an_inbox_that_died_leaves_it_to_the_next(three, queue, caplog, monkeypatch):
    found = opened(queue)
    found.try_out()
    with losing(three, queue.inbox, inbox_module, monkeypatch), monkeypatch.context() as dying:
        dying.setattr(inbox_module, "settle", died)
        with suppress(KeyboardInterrupt):
            found.append([KEPT], [])
    three.brokers[GOES].start()
    later = opened(queue)
    assert later.memory.has(SimpleNamespace(id=b"kept"), is_poison=False)
    later.try_out()
    later.append([NEXT], [])
    assert committed(three.bootstrap_servers, queue.inbox) == Counter({b"v": 2})
    assert "(1 committed)" in told(caplog)[0]


@pytest.mark.parametrize("wanted", [True, False])
def test_what_nobody_knows_any_more_a_person_says(three, queue, capsys, monkeypatch, wanted):
    """The id was taken by who did not look."""
    found, servers = opened(queue), three.bootstrap_servers
    with losing(three, queue.inbox, inbox_module, monkeypatch), monkeypatch.context() as dying:
        dying.setattr(inbox_module, "settle", died)
        with pytest.raises(KeyboardInterrupt):
            found.append([KEPT], [])
    three.brokers[GOES].start()
    Producer({"bootstrap.servers": servers, "transactional.id": found._id}).init_transactions(60)
    with pytest.raises(RepairNeeded, match="Whether it was committed is not known") as stopped:
        opened(queue)
    word = "commit" if wanted else "abort"
    assert f"txn commit {found._id} --topic {queue.inbox} --force" in str(stopped.value)
    txn = command(servers, queue.inbox, capsys)
    assert "docs/troubleshooting.md says how to end it" in txn("list")[1]
    assert txn(word)[0] == 1
    assert txn(word, "--force")[0] == 0
    opened(queue).append([NEXT], [])
    assert committed(servers, queue.inbox) == Counter({b"v": 1 + wanted})


@pytest.fixture
def export(three: KafkaCluster) -> str:
    return make(three, "export", [GOES], **{"cleanup.policy": "compact"})


def writer_of(job: HandMadeTasks, topic: str) -> ExportWriter:
    made = ExportWriter(job.options, control_plane.shared(job.options.kafka), topic)
    made.look()
    return made


def test_an_export_is_made_when_it_can_be_read(three, torn, export, caplog, monkeypatch):
    found = writer_of(torn, export)
    with losing(three, export, writer_module, monkeypatch) as lost:
        returns_late(three, lost, lambda: found.append([(b"0" * 40 + b"/0", b"part")]))
    assert committed(torn.servers, export) == Counter([b"part"])
    assert "(1 committed)" in told(caplog)[0]


def test_an_exporter_that_died_leaves_it_to_the_next(three, torn, export, caplog, monkeypatch):
    found, part = writer_of(torn, export), (b"0" * 40 + b"/0", b"part")
    with losing(three, export, writer_module, monkeypatch), monkeypatch.context() as dying:
        dying.setattr(writer_module, "settle", died)
        with suppress(KeyboardInterrupt):
            found.append([part])
    three.brokers[GOES].start()
    assert writer_of(torn, export).keys == {part[0]}
    assert "(1 committed)" in told(caplog)[0]
