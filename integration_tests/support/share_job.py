"""A topic's records copied into another topic, as a share group hands them out."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Producer, ShareConsumer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from eo_kafka.broker.embedded import KafkaBroker
from eo_kafka.sources.queues.receiver import Receiver
from eo_kafka.testing.processes import wait_until
from harness import control_plane
from queue_job import InboxCopy

# Locks and heartbeats of seconds would be waited for in each test.
QUICK_BROKER = {
    "group.share.min.record.lock.duration.ms": 1000,
    "group.share.min.heartbeat.interval.ms": 200,
    "group.share.min.session.timeout.ms": 1000,
    "group.share.partition.max.record.locks": 10_000,
    "group.share.max.partition.max.record.locks": 10_000,
}
QUICK_GROUP = {
    "share.auto.offset.reset": "earliest",
    "share.isolation.level": "read_committed",
    "share.delivery.count.limit": "10",
    "share.record.lock.duration.ms": "2000",
    "share.heartbeat.interval.ms": "300",
    "share.session.timeout.ms": "1500",
}


def set_group(servers: str, group: str, settings: Mapping[str, str]) -> None:
    """As kafka-configs.sh does."""
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": servers})
    admin.incremental_alter_configs([resource])[resource].result(30)


@dataclass
class ShareCopy(InboxCopy):
    """`queue` is the topic that is shared."""

    group: str = ""

    @property
    def backend(self) -> dict[str, str]:
        return {"shareGroup": self.group}

    @property
    def topic_id(self) -> str:
        with control_plane(self.servers) as control:
            return control.topic_ids([self.queue])[self.queue]

    def publish(self, values: list[bytes], partition: int = 0, **more: Any) -> None:
        """Records whose keys are their values."""
        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": "5"})
        for value in values:
            producer.produce(self.queue, value, value, partition, **more)
        assert producer.flush(30) == 0

    def transactional_producer(self) -> Producer:
        """One that has its id."""
        settings = {"bootstrap.servers": self.servers, "transactional.id": self.queue}
        producer = Producer(settings)
        producer.init_transactions(30)
        return producer

    def receive(self, count: int, **given: str) -> None:
        """A new one takes messages until it has taken so many, and leaves."""
        with self.member(**given) as one:
            wait_taken(one, count)

    @contextmanager
    def member(self, **given: str) -> Iterator[Receiver]:
        """A new one, which leaves the group at the end."""
        one = self.receiver(**given)
        try:
            yield one
        finally:
            one.close()

    @contextmanager
    def other(self, **given: str) -> Iterator[ShareConsumer]:
        """Another member of the group."""
        settings = {"share.acknowledgement.mode": "explicit", "log_level": "0", **given}
        consumer = ShareConsumer(
            {"bootstrap.servers": self.servers, "group.id": self.group, **settings}
        )
        consumer.subscribe([self.queue])
        try:
            yield consumer
        finally:
            consumer.close()


def wait_taken(one: Receiver, count: int) -> None:
    """Until it has taken so many more."""
    took = 0

    def enough() -> bool:
        nonlocal took
        took += one.receive()
        return took >= count

    wait_until(enough, f"{count} messages are taken, not {took}", 60)


def numbered(count: int, first: int = 0) -> list[bytes]:
    """Values."""
    return [b"m%05d" % number for number in range(first, first + count)]


def polled(consumer: ShareConsumer) -> list[Any]:
    """What the next poll brings that brings something."""
    found: list[Any] = []
    wait_until(lambda: found.extend(consumer.poll(0.2)) or found, "records come", 30)
    return found


def share_copy_of(servers: str, tmp_path, partitions: int = 1, **group: str) -> ShareCopy:
    """A copy of a new topic, by a new group with settings for tests."""
    name = f"shared-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": servers})
    for topic, number in ((name, partitions), (f"{name}-out", 2)):
        admin.create_topics([NewTopic(topic, number, 1)])[topic].result(30)
    set_group(servers, f"group-{name}", {**QUICK_GROUP, **group})
    return ShareCopy(
        servers=servers,
        source_topic=f"inbox-{name}",
        sink_topic=f"{name}-out",
        checkpoint=tmp_path / "checkpoint",
        job_name=f"job-{name}",
        queue=name,
        group=f"group-{name}",
    )


@pytest.fixture
def own_share_kafka() -> Iterator[KafkaBroker]:
    """The same, for a test that kills it."""
    with KafkaBroker(properties=QUICK_BROKER) as started:
        yield started


@pytest.fixture(scope="module")
def share_kafka() -> Iterator[KafkaBroker]:
    """One whose groups may have short locks."""
    with KafkaBroker(properties=QUICK_BROKER) as started:
        yield started


@pytest.fixture
def share_copy(share_kafka, tmp_path) -> ShareCopy:
    """A copy of a topic of one partition."""
    return share_copy_of(share_kafka.bootstrap_servers, tmp_path)
