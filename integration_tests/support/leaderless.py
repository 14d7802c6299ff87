"""A cluster of which one broker goes and comes back: partitions whose only replica it has lack a
leader meanwhile. And a job that writes to one that stays and to one that goes."""

from __future__ import annotations

import itertools
import logging
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import ModuleType

import pyarrow as pa
import pytest
from confluent_kafka import ElectionType, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from eo_kafka.broker.embedded import KafkaCluster, cluster
from eo_kafka.clients.kafka import lost_markers
from eo_kafka.testing.processes import wait_until
from hand_made_tasks import HandMadeTasks
from harness import committed

STAYS, GOES = 0, 2  # of the brokers
WRITTEN = "They are written now"


@pytest.fixture(scope="module")
def nodes() -> Iterator[KafkaCluster]:
    with cluster(3) as running:
        yield running


@pytest.fixture
def three(nodes: KafkaCluster) -> KafkaCluster:
    """All of them up."""
    for broker in nodes.brokers:
        broker.start()
    return nodes


@pytest.fixture
def torn(three: KafkaCluster) -> HandMadeTasks:
    return torn_job(three)


def torn_job(three: KafkaCluster) -> HandMadeTasks:
    """It writes to two partitions, each with one replica, on another broker."""
    return HandMadeTasks(three.bootstrap_servers, make(three, "out", [STAYS], [GOES]))


def make(three: KafkaCluster, stem: str, *replicas: list[int], **config: str) -> str:
    name = f"{stem}-{uuid.uuid4().hex[:8]}"
    there = [[three.brokers[at].node_id for at in of] for of in replicas]
    topic = NewTopic(name, len(there), replica_assignment=there, config=config)
    admin = AdminClient({"bootstrap.servers": three.bootstrap_servers})
    admin.create_topics([topic])[name].result(30)
    return name


def rows(batch: int) -> list[bytes]:
    return [b"%d-%d" % (batch, number) for number in range(20)]


def brought(batch: int) -> Iterator[pa.RecordBatch]:
    """By their keys they go to both partitions."""
    yield pa.RecordBatch.from_pydict({"key": rows(batch), "value": rows(batch)})


def visible(job: HandMadeTasks) -> Counter[bytes]:
    assert job.topic
    return committed(job.servers, job.topic)


def expected(*batches: int) -> Counter[bytes]:
    return Counter(row for batch in batches for row in rows(batch))


def take_away(three: KafkaCluster, topic: str) -> None:
    """As soon as Kafka says so, a partition of the topic has no leader."""
    three.brokers[GOES].kill()
    admin = AdminClient({"bootstrap.servers": three.bootstrap_servers, "log_level": 0})

    def leaders() -> list[int]:
        return [one.leader for one in admin.list_topics(topic).topics[topic].partitions.values()]

    wait_until(lambda: -1 in leaders(), f"{topic} lacks a leader")


def come_back(three: KafkaCluster) -> None:
    """All are up, and lead what they led at first: an operator's election, or Kafka's own within
    minutes."""
    for broker in three.brokers:
        broker.start()
    admin = AdminClient({"bootstrap.servers": three.bootstrap_servers, "log_level": 0})

    def is_as_at_first() -> bool:
        with suppress(KafkaException):  # a broker that is not in sync yet
            admin.elect_leaders(ElectionType.PREFERRED).result(60)
        topics = admin.list_topics().topics
        log = topics["__transaction_state"].partitions if "__transaction_state" in topics else {}
        return all(one.leader == one.replicas[0] for one in log.values())

    wait_until(is_as_at_first, "each partition of the transaction log has its first leader")


def run(job: HandMadeTasks, *batches: int) -> None:
    for batch in batches:
        job.commit(job.write(job.plan(), brought(batch), batch=batch))


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [one for one in caplog.records if one.name == lost_markers.__name__]
    return [one.getMessage() for one in found if one.levelno >= logging.WARNING]


def died(*_: object) -> None:
    raise KeyboardInterrupt


@contextmanager
def losing(
    three: KafkaCluster,
    topic: str,
    module: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    number: int = 0,
) -> Iterator[threading.Event]:
    """A partition of the topic loses its leader in the next transaction that the module flushes, or
    in a later one: before its end."""
    flush, lacks_leader, counted = module.flush, threading.Event(), itertools.count()

    def flush_and_lose(*given: object) -> int:
        found: int = flush(*given)
        if next(counted) == number:
            take_away(three, topic)
            lacks_leader.set()
        return found

    with monkeypatch.context() as lost:
        lost.setattr(module, "flush", flush_and_lose)
        yield lacks_leader
