"""Reads a partition to a given end, by position.

Transaction markers and compaction eat the last records of a log, so "until the last record" never
ends. An end-of-partition event carries the position instead, and a watchdog bounds the wait.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from eo_kafka.errors import EnvironmentRefused, ReadTimeout
from eo_kafka.kafka_config import connection_settings

STALL_TIMEOUT_S = 60.0


def read_records(
    settings: Mapping[str, str],
    topic: str,
    partition: int,
    start: int,
    end: int,
    at_once: int = 1000,
) -> Iterator[tuple[int, bytes, bytes | None]]:
    """Yield (offset, key, value) of the committed records in [start, end), in order. `at_once` of
    them are taken from the client at a time.

    `end` must be at or below the last stable offset, or the read waits for it. Runs on the driver.
    Raises ReadTimeout when nothing moves for a minute.
    """
    if start >= end:
        return
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            **connection_settings(settings),
            "group.id": f"eo-kafka-ledger-{uuid.uuid4()}",  # required; never joined
            "enable.auto.commit": "false",
            "isolation.level": "read_committed",
            "enable.partition.eof": "true",
            "check.crcs": "true",  # a decision is worth it
            # A ledger that was compacted below our position starts at what is left of it.
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": "10",
            # By default a fetch brings 1 MiB of a partition: one chunk of a file, and half of the
            # next in vain.
            "fetch.message.max.bytes": str(8 << 20),
            # How long it fetches nothing once enough waits for us: by default a second.
            "fetch.queue.backoff.ms": "5",
            "log_level": "3",
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, start)])
        yield from _until(consumer, topic, partition, start, end, at_once)
    finally:
        consumer.close()


def _until(
    consumer: Any, topic: str, partition: int, start: int, end: int, at_once: int
) -> Iterator[tuple[int, bytes, bytes | None]]:
    from confluent_kafka import KafkaError

    position = start
    moved = time.monotonic()
    while True:
        # consume() waits for as many as asked for, so only what is there already is asked for.
        first = consumer.poll(0.5)
        # Not `if first`: a message is as true as its value is long, and a tombstone would be lost.
        for message in () if first is None else [first, *consumer.consume(at_once, timeout=0)]:
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                # The group is a name that librdkafka insists on; it is never joined.
                passing = (KafkaError._TRANSPORT, KafkaError.GROUP_AUTHORIZATION_FAILED)
                if error.retriable() or error.code() in passing:
                    continue
                if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise EnvironmentRefused(
                        f"Not authorized to read {topic}-{partition}: the principal needs Read on "
                        "that topic. Grant it and start the query again."
                    )
                raise ReadTimeout(f"Reading {topic}-{partition} at {position}: {error.str()}.")
            if message.offset() >= end:
                return
            if error is None:
                position = message.offset() + 1
                yield message.offset(), message.key() or b"", message.value()
                if position >= end:
                    return
                moved = time.monotonic()  # only now: the caller may take its time
            elif message.offset() > position:
                moved = time.monotonic()
        if time.monotonic() - moved > STALL_TIMEOUT_S:
            raise ReadTimeout(
                f"Reading {topic}-{partition} stopped at offset {position} of {end}: the broker "
                f"sent nothing for {STALL_TIMEOUT_S:.0f} s. Is the partition's leader up, and is "
                "no other program holding a transaction open on it?"
            )
