"""What the protocol needs of the clients and is not promised by them: an upgrade that changes it
must fail here, not in somebody's topic."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import time
import uuid

import pytest
from confluent_kafka import Consumer, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from eo_kafka.clients.kafka import control_plane, transactional_producer
from eo_kafka.clients.kafka.control_plane import ControlPlane
from eo_kafka.clients.kafka.control_requests import Look
from eo_kafka.core.transaction import Identity, TransactionState
from eo_kafka.errors import OutcomeUnknown
from harness import committed


@pytest.fixture
def control(broker):
    plane = ControlPlane({"bootstrap.servers": broker.bootstrap_servers})
    yield plane
    plane.close()


def prepared(servers: str, topic: str, transactional_id: str) -> Producer:
    """A producer with one flushed record in an open transaction."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": transactional_id,
            "error_cb": lambda error: None,
        }
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"row")
    assert producer.flush(30) == 0
    return producer


def state(control: ControlPlane, transactional_id: str) -> TransactionState:
    return control.describe_one(transactional_id).state


def test_a_transaction_stays_open_when_its_producer_is_dropped(broker, make_topic, control):
    topic = make_topic("dropped")
    producer = prepared(broker.bootstrap_servers, topic, topic)
    del producer
    assert state(control, topic) is TransactionState.ONGOING
    control.end([control.describe_one(topic).identity], commit=False, version=5)


def test_a_transaction_stays_open_when_its_process_dies(broker, make_topic, control):
    topic = make_topic("died")
    code = (
        "import os, sys; sys.path[:0] = sys.argv[3].split(':')\n"
        "from test_client_assumptions import prepared\n"
        "p = prepared(sys.argv[1], sys.argv[2], sys.argv[2]); os._exit(9)"
    )
    arguments = [broker.bootstrap_servers, topic, ":".join(sys.path)]
    assert subprocess.run([sys.executable, "-c", code, *arguments]).returncode == 9
    assert state(control, topic) is TransactionState.ONGOING
    identity = control.describe_one(topic).identity
    assert control.end([identity], commit=True, version=5) == {topic: "NONE"}
    assert committed(broker.bootstrap_servers, topic)[b"row"] == 1


def test_close_aborts_so_it_must_never_be_called(broker, make_topic, control):
    topic = make_topic("closed")
    prepared(broker.bootstrap_servers, topic, topic).close()
    assert state(control, topic) is not TransactionState.ONGOING


@pytest.mark.parametrize("version", [3, 5])
def test_another_process_ends_a_transaction_and_may_ask_again(broker, make_topic, control, version):
    topic = make_topic(f"ended-{version}")
    producer = prepared(broker.bootstrap_servers, topic, topic)
    identity = control.describe_one(topic).identity
    answers = set()
    for _ in range(20):
        answers |= set(control.end([identity], commit=True, version=version).values())
    assert "NONE" in answers and answers <= {"NONE", "CONCURRENT_TRANSACTIONS"}
    assert committed(broker.bootstrap_servers, topic)[b"row"] == 1
    del producer


def test_an_abort_for_an_older_epoch_hits_nothing(broker, make_topic, control):
    topic = make_topic("older")
    old = prepared(broker.bootstrap_servers, topic, topic)
    before = control.describe_one(topic).identity
    new = prepared(broker.bootstrap_servers, topic, topic)
    assert control.end([before], commit=False, version=5)[topic] == "PRODUCER_FENCED"
    assert state(control, topic) is TransactionState.ONGOING
    new.commit_transaction(30)
    assert sum(committed(broker.bootstrap_servers, topic).values()) == 1
    del old


def test_ids_nobody_knows_are_told_apart(control):
    found = control.describe_one("never-used")
    assert found.state is TransactionState.MISSING
    answer = control.end([Identity("never-used", 1, 0)], commit=True, version=3)
    assert answer == {"never-used": "INVALID_PRODUCER_ID_MAPPING"}


def test_forty_transactions_end_in_one_round(broker, make_topic, control):
    topic = make_topic("many")
    producers = [prepared(broker.bootstrap_servers, topic, f"{topic}-{n}") for n in range(40)]
    ids = [f"{topic}-{n}" for n in range(40)]
    identities = [found.identity for found in control.describe(ids).values()]
    answers = control.end(identities, commit=True, version=control.end_txn_version())
    assert set(answers.values()) == {"NONE"}
    assert sum(committed(broker.bootstrap_servers, topic).values()) == 40
    del producers
    # Kafka works on one request of a connection at a time
    assert set(control.admin._manager._conns) >= {f"1-{at}" for at in range(1, 8)}


def test_taking_an_id_does_not_wait_out_a_pause_of_the_client(broker):
    """InitProducerId without a lasting connection is put off by 500 ms: in one of five, before."""
    settings = {"bootstrap.servers": broker.bootstrap_servers}
    seconds = []
    for number in range(20):
        began = time.monotonic()
        transactional_producer.take(settings, f"quick-{number % 3}", 60_000)
        seconds.append(time.monotonic() - began)
    assert sorted(seconds)[17] < 0.4, seconds  # two of twenty may be the machine's


def end_by_librdkafka(servers: str, topic: str, partition: int, committed: bool) -> int:
    isolation = "read_committed" if committed else "read_uncommitted"
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "ends", "isolation.level": isolation}
    )
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
    consumer.close()
    return end


def topic_id_by_librdkafka(servers: str, topic: str) -> str:
    admin = AdminClient({"bootstrap.servers": servers})
    (found,) = admin.describe_topics(TopicCollection([topic])).values()
    return str(uuid.UUID(bytes=base64.b64decode(f"{found.result(30).topic_id}==")))


def test_questions_asked_at_once_are_answered_as_each_alone(
    broker, make_topic, control, monkeypatch
):
    monkeypatch.setattr(control_plane, "LOOKUP_TIMEOUT_S", 0.1)
    topic = make_topic("at-once", partitions=2)
    holder = prepared(broker.bootstrap_servers, topic, topic)
    ends = [(topic, number, committed) for number in (0, 1) for committed in (False, True)]
    found = control.look([topic, "never-used"], ends, [topic, "no-such-topic"], version=True)
    assert found.described == control.describe([topic, "never-used"])
    assert found.ends == [end_by_librdkafka(broker.bootstrap_servers, *end) for end in ends]
    assert sorted(found.ends) == [0, 0, 0, 1]  # one partition has an open record
    with pytest.raises(OutcomeUnknown, match="UnknownTopicOrPartition"):
        control.look(ends=[(topic, 2, False)])
    assert found.topic_ids == {topic: topic_id_by_librdkafka(broker.bootstrap_servers, topic)}
    assert found.transaction_version == control.transaction_version() == 2
    assert control.look() == Look({}, [], {}, 0)
    holder.abort_transaction(30)


@pytest.mark.parametrize("level", ["1", "2"])
def test_answers_are_read_also_where_python_leaves_out_asserts(broker, level):
    """kafka-python reads within one."""
    asks = (
        "from eo_kafka.clients.kafka.control_plane import ControlPlane;"
        f"control = ControlPlane({{'bootstrap.servers': {broker.bootstrap_servers!r}}});"
        "print(control.transaction_version()); control.close()"
    )
    environment = {**os.environ, "PYTHONOPTIMIZE": level}
    command = [sys.executable, "-c", asks]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment)
    assert done.stdout == "2\n", done.stderr
