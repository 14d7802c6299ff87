"""The topics: filled once and read by all contenders, or written by one run and deleted."""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

# Broker settings: what a run wrote is gone from the disk before the next one needs it.
BROKER_PROPERTIES = {"log.segment.delete.delay.ms": 1000}
KEY_BYTES = 8
_FLUSH_TIMEOUT_S = 120


@dataclass(frozen=True)
class Workload:
    """A topic of `records` records, each `size` bytes of key and value together."""

    topic: str
    records: int
    size: int
    partitions: int


class Topics:
    """Creates and deletes topics on one broker."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers})

    def create(self, topic: str, partitions: int) -> None:
        """Returns when the topic exists. Raises KafkaException."""
        self._admin.create_topics([NewTopic(topic, num_partitions=partitions)])[topic].result(30)

    def fill(self, workload: Workload, *, text: bool = False) -> None:
        """Create the topic and write its records: unique keys, values that do not compress. As
        `text` they are letters and digits, and compress by a quarter."""
        self.create(workload.topic, workload.partitions)
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "linger.ms": 50,
                "batch.size": 1_000_000,
                "delivery.report.only.error": True,
                "enable.idempotence": True,
            }
        )
        failed: list[KafkaError] = []
        size = workload.size - KEY_BYTES
        noise = random.Random(workload.topic).randbytes(1 << 20)
        noise = base64.b64encode(noise) if text else noise
        for number in range(workload.records):
            start = number * 61 % (len(noise) - size)
            key = number.to_bytes(KEY_BYTES, "big")
            while True:
                try:
                    producer.produce(
                        workload.topic,
                        noise[start : start + size],
                        key,
                        on_delivery=lambda error, _: failed.append(error),
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
        if left := producer.flush(_FLUSH_TIMEOUT_S):
            raise RuntimeError(f"{left} records of {workload.topic} were not acknowledged")
        if failed:
            raise RuntimeError(f"{len(failed)} records of {workload.topic} failed: {failed[0]}")

    @contextmanager
    def temporary(self, topic: str, partitions: int, others: tuple[str, ...]) -> Iterator[None]:
        """An output topic of one run. At the end it is deleted, and of `others` what exists."""
        self.create(topic, partitions)
        try:
            yield
        finally:
            existing = self._admin.list_topics(timeout=30).topics
            gone = [name for name in (topic, *others) if name in existing]
            for deleted in self._admin.delete_topics(gone).values():
                deleted.result(30)
