"""The topics of config.toml's section dev: created, with one partition each, and read: all that
there are of those that others made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import tenacity
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import job
from generate import records
from rows import START, Row

INPUTS = {role for role, _, _ in records(200, START)}  # the settings that name them


def create(policies: Mapping[str, str]) -> None:
    """Those that are missing, each with its cleanup.policy."""
    admin = AdminClient(client())
    known = admin.list_topics(timeout=10).topics
    missing = [
        NewTopic(name, 1, config={"cleanup.policy": policy})
        for name, policy in policies.items()
        if name not in known
    ]
    for created in admin.create_topics(missing).values() if missing else ():
        created.result(30)


@tenacity.retry(  # Kafka does not know at once who leads a new topic
    retry=tenacity.retry_if_exception_type(KafkaException),
    stop=tenacity.stop_after_delay(20),
    wait=tenacity.wait_fixed(0.2),
    reraise=True,
)
def end(topic: str) -> int:
    """How many records have been written into it."""
    consumer = _consumer()
    try:
        ends = [consumer.get_watermark_offsets(one, 10)[1] for one in _partitions(consumer, topic)]
    finally:
        consumer.close()
    return sum(ends)


def read(topic: str) -> list[Row]:
    """All of it, as `read_committed` shows it."""
    consumer = _consumer()
    try:
        left = _partitions(consumer, topic)
        consumer.assign(left)
        rows: list[Row] = []
        while left:
            message = consumer.poll(10)
            if message is None:
                raise SystemExit(f"Kafka does not answer of topic '{topic}'.")
            if error := message.error():
                if error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                left = [one for one in left if one.partition != message.partition()]
                continue
            key, value = message.key() or b"", message.value()
            rows.append((key.decode(), None if value is None else _decoded(value)))
        return rows
    finally:
        consumer.close()


def _partitions(consumer: Consumer, topic: str) -> list[TopicPartition]:
    """Each from its beginning."""
    found = consumer.list_topics(topic, 10).topics[topic]
    if found.error is not None:
        raise KafkaException(found.error)
    return [TopicPartition(topic, number, 0) for number in sorted(found.partitions)]


def client() -> dict[str, Any]:
    """A client's settings: where Kafka is, and config.toml's `kafka.*`: how to log in."""
    config = job.config("job", "dev")
    more = {name[6:]: value for name, value in config.items() if name.startswith("kafka.")}
    return {"bootstrap.servers": config["bootstrap_servers"], **more}


def _consumer() -> Consumer:
    settings = {**client(), "group.id": "sample", "isolation.level": "read_committed"}
    return Consumer({**settings, "enable.partition.eof": True})


def _decoded(value: bytes) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value.decode()
