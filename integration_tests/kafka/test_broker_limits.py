"""Brokers that let a transaction be open for less than a minute, or forget an id within a batch."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest
from confluent_kafka.admin import AdminClient

from conftest import topic_maker
from eo_kafka.broker.embedded import KafkaBroker
from eo_kafka.clients.kafka import control_plane, transactional_producer
from eo_kafka.clients.kafka.topics import settings_of
from eo_kafka.connectors.queues.reader import checked
from eo_kafka.core.transaction import TransactionState
from eo_kafka.errors import LedgerError, WriteFailed
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.protocol import preflight
from eo_kafka.sources.queues.id_window import IdWindows
from eo_kafka.sources.queues.inbox import Inbox
from eo_kafka.sources.queues.message import Record
from eo_kafka.state.view import Marker
from eo_kafka.state.view_writer import ViewWriter, open_view
from eo_kafka.testing.processes import wait_until
from eo_kafka.tools.doctor.cluster_check import check_cluster
from eo_kafka.tools.doctor.topic_rehearsal import rehearse
from eo_kafka.tools.run.verdict import Way, way_of
from hand_made_tasks import HandMadeTasks, batch_of
from harness import committed, committed_messages

ALLOWED_MS = 30_000


@pytest.fixture(scope="module")
def short():
    with KafkaBroker(properties={"transaction.max.timeout.ms": ALLOWED_MS}) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def forgetful():
    properties = {
        "transactional.id.expiration.ms": 3000,
        "transaction.remove.expired.transaction.cleanup.interval.ms": 500,
    }
    with KafkaBroker(properties=properties) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(params=["seen", "hidden"])
def limit(request, monkeypatch) -> str:
    """Whether the principal may see what brokers allow."""
    monkeypatch.setattr(transactional_producer, "_allowed_ms", {})
    monkeypatch.setattr(preflight, "_checked", set())
    if request.param == "hidden":
        denied = {"transaction.max.timeout.ms": None}
        monkeypatch.setattr(
            preflight,
            "settings_of",
            lambda *given, **named: {**settings_of(*given, **named), **denied},
        )
    return request.param


def short_job(servers: str, topic: str) -> HandMadeTasks:
    job = HandMadeTasks(servers, topic)
    kafka = {**job.options.kafka, "transaction.timeout.ms": "20000"}
    job.options = replace(job.options, kafka=kafka)
    return job


def asked_ms(options: SinkOptions) -> int:
    return control_plane.shared(options.kafka).describe_one(options.ids.coordinator).timeout_ms


def test_a_job_asks_for_no_more_than_brokers_allow_and_notices_a_lost_ledger(short, limit, caplog):
    topic = topic_maker(short)("out")
    job = short_job(short, topic)
    for batch in range(2):
        plan = job.plan()
        assert asked_ms(job.options) == (ALLOWED_MS if batch else ALLOWED_MS - 1)
        transactional_producer._allowed_ms.clear()  # as in another process, which has not asked
        job.commit(job.write(plan, iter([batch_of(b"%d" % batch)]), batch=batch))
        assert asked_ms(job.options) == ALLOWED_MS
    assert committed(short, topic) == {b"0": 1, b"1": 1}
    refused = caplog.text.count("transaction.max.timeout.ms is below")
    assert refused == (limit == "hidden"), "S6 keeps to what S1 had"
    admin, ledger = AdminClient({"bootstrap.servers": short}), job.options.ledger_topic
    admin.delete_topics([ledger])[ledger].result(30)
    wait_until(lambda: ledger not in admin.list_topics(timeout=30).topics, "it is gone")
    preflight._checked.clear()
    with pytest.raises(LedgerError, match="Kafka remembers that job"):
        job.plan()


@pytest.mark.usefixtures("limit")
def test_a_view_and_an_inbox_ask_for_no_more_than_brokers_allow(short):
    given, name = {"kafka.bootstrap.servers": short}, f"job-{uuid.uuid4().hex[:6]}"
    ViewWriter(name, "shown", given).write([(b'{"k":1}', b'{"v":1}')], Marker("q", 1))
    assert open_view(name, "shown", given).marker == Marker("q", 1)
    queue = {"url": "amqp://host/shop", "queue": "orders", "inbox": f"{name}-inbox"}
    options = checked({**given, **queue}).queue
    inbox = Inbox(options, IdWindows((options.inbox, options.poison_topic), options.window))
    inbox.append([Record(b"1", b"v", [])], [])
    assert [one.key() for one in committed_messages(short, options.inbox)] == [b"1"]


@pytest.mark.usefixtures("limit")
def test_what_doctor_says_of_it_is_true(short):
    options = short_job(short, topic_maker(short)("out")).options
    found = {one.subject: one for one in check_cluster(options)}["transaction.max.timeout.ms"]
    assert found.level.value == "ok"
    assert "30.0 s, the sink asks for 20.0 s; what the driver writes has no longer" in found.text
    told = rehearse(options, control_plane.shared(options.kafka))
    assert {one.level.value for one in told} == {"ok"}, told


@pytest.mark.parametrize(
    ("commit", "when"),
    [("two-phase", "before it writes"), ("idempotent", "before it is prepared")],
)
def test_an_id_that_kafka_has_forgotten_is_nobody_elses(forgetful, commit, when):
    topic = topic_maker(forgetful)("out")
    job = HandMadeTasks(forgetful, topic, commit)
    control = control_plane.shared(job.options.kafka)

    def forget() -> None:
        def forgotten() -> bool:
            found = control.describe_one(job.options.ids.coordinator)
            return found.state is TransactionState.MISSING

        wait_until(forgotten, "Kafka forgets the coordinator's id", 30)

    def rows():
        yield batch_of(b"1")
        if when == "before it is prepared":
            forget()

    plan = job.plan()
    if when == "before it writes":
        forget()
    with pytest.raises(WriteFailed, match=r"transactional\.id\.expiration\.ms") as stop:
        job.write(plan, rows())
    assert way_of(type(stop.value).__name__) is Way.RESTART
    report = job.write(job.plan(), iter([batch_of(b"1")]))
    forget()
    job.commit(report)
    assert committed(forgetful, topic) == {b"1": 1}
